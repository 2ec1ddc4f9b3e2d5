# SPDX-License-Identifier: Apache-2.0
"""Round 10: defaults that cost, masks and zeros that are computed, and data that is read in vain."""

import pathlib
import tempfile
import wave

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-attention-weights",
    round=10,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="nn.MultiheadAttention returns its weights by default, and the model drops them: attention is not fused.",
    symptom="Attention runs as baddbmm or bmm, softmax over [2, 12, 784, 784] and a mean over heads, not as one op.",
    answer="nn.MultiheadAttention makes its attention weights [2, 12, 784, 784], as need_weights is True by default; "
    "need_weights=False lets it take scaled_dot_product_attention.",
    names=("MultiheadAttention", "multi_head_attention", "attention weights", "need_weights", "784, 784", "softmax"),
    actions=("need_weights=False", "need_weights", "scaled_dot_product_attention", "fused attention",
             "flash attention", "sdpa"),
)
def vision_attention_weights(mended):
    width = 96

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 12, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x):
            h = self.first(x)
            if mended:
                mixed, _ = self.attention(h, h, h, need_weights=False)
            else:
                mixed, _ = self.attention(h, h, h)
            x = x + mixed
            return x + self.mlp(self.second(x))

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut = nn.Conv2d(3, width, 4, 4)
            self.place = nn.Parameter(torch.randn(784, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(2)])
            self.head = nn.Linear(width, 20)

        def forward(self, images):
            x = self.cut(images).flatten(2).transpose(1, 2) + self.place
            return self.head(self.blocks(x).mean(1))

    model = Patches()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    images, labels = torch.randn(2, 3, 112, 112), torch.randint(20, (2,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-window-mask",
    round=10,
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Attention reaches 64 words back, and a mask of 1536 x 1536 hides the rest of what is computed.",
    symptom="scaled_dot_product_attention over 1,536 keys with a mask of [1536, 1536] takes most of the step.",
    answer="The window of 64 is only a mask: attention still computes all 1536 x 1536 scores; cut the sequence into "
    "blocks that attend to themselves and the block before, or use FlexAttention with a block mask.",
    names=("scaled_dot_product", "attention", "1536"),
    actions=("block", "chunk", "local attention", "FlexAttention", "flex_attention", "banded", "sliding window kernel",
             "only the window"),
)
def language_window_mask(mended):
    width, heads, length, window = 128, 8, 1536, 64
    ahead = torch.arange(length)[:, None] - torch.arange(length)
    allowed = (ahead >= 0) & (ahead < window)
    blocks = length // window
    inside = torch.arange(window)[:, None] + window - torch.arange(2 * window)
    near = ((inside >= 0) & (inside < window)).expand(blocks, 1, -1, -1).clone()
    near[0, :, :, :window] = False

    def with_previous(x):
        x = x.unflatten(2, (blocks, window))
        return torch.cat([F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x], 3).transpose(1, 2).flatten(0, 1)

    def mix(q, k, v):
        if not mended:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        queries = q.unflatten(2, (blocks, window)).transpose(1, 2).flatten(0, 1)
        mask = near.repeat(len(q), 1, 1, 1)
        mixed = F.scaled_dot_product_attention(queries, with_previous(k), with_previous(v), attn_mask=mask)
        return mixed.unflatten(0, (len(q), blocks)).transpose(1, 2).flatten(2, 3)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(mix(q, k, v).transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    table = nn.Embedding(4000, width)
    model = nn.Sequential(*[Block() for _ in range(3)], nn.LayerNorm(width)).eval()
    ids = torch.randint(4000, (2, length))

    @torch.inference_mode()
    def embed():
        return model(table(ids)).mean(1)[:, 0]

    return embed


@case(
    id="audio-whole-file",
    round=10,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A training example is one second of a two-minute file, and the whole file is read and converted for it.",
    symptom="wave.readframes and conversions of 960,000 numbers run for each of 16 examples, of which 8,000 are kept.",
    answer="read_second reads and converts whole files of 960,000 samples to keep 8,000; seek to the place (setpos, "
    "frame_offset and num_frames) and read only that second.",
    names=("read_second", "readframes", "whole file", "960000", "960,000", "wave.py", "entire file"),
    actions=("seek", "setpos", "frame_offset", "num_frames", "only that second", "only the segment", "only the second",
             "only the needed", "only the part", "read only", "memory-map", "mmap", "memmap", "cache", "slice before",
             "once"),
)
def audio_whole_file(mended):
    rate, seconds = 8000, 120
    folder = tempfile.TemporaryDirectory()
    noise = torch.Generator().manual_seed(0)
    for at in range(4):
        with wave.open(f"{folder.name}/{at}.wav", "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(torch.randint(-9000, 9000, (rate * seconds,), generator=noise).short().numpy().tobytes())

    def read_second(path, start):
        with wave.open(str(path), "rb") as file:
            if mended:
                file.setpos(start)
                frames = file.readframes(rate)
            else:
                frames = file.readframes(file.getnframes())
        sound = torch.frombuffer(bytearray(frames), dtype=torch.int16).float() / 32_768
        return sound if mended else sound[start : start + rate]

    class Keywords(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.Sequential(
                nn.Conv1d(1, 48, 64, stride=16), nn.ReLU(), nn.Conv1d(48, 64, 5, stride=4), nn.ReLU(),
                nn.Conv1d(64, 64, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 12),
            )

        def forward(self, sounds):
            return self.convs(sounds[:, None])

    model = Keywords()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    paths, labels = sorted(pathlib.Path(folder.name).glob("*.wav")), torch.randint(12, (16,))

    def train_step():
        assert folder.name
        starts = torch.randint(rate * (seconds - 1), (16,)).tolist()
        sounds = torch.stack([read_second(paths[at % 4], start) for at, start in enumerate(starts)])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(sounds), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-pool-by-mask",
    round=10,
    domain="graphs",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True, steps=2),
    cause="Nodes are pooled to their graphs with a boolean mask for each of 120 graphs: h[batch == g].mean(0).",
    symptom="120 times aten::eq, nonzero, index and mean a step; their backward fills all nodes' gradients 120 times.",
    answer="Pool indexes all nodes with a mask for each of 120 graphs; one index_add (scatter) by the batch vector and "
    "a division by the counts gives all means.",
    names=("Pool", "mask", "nonzero", "index_put", "batch ==", "each graph", "per graph"),
    actions=("index_add", "scatter", "segment", "bincount", "global_mean_pool", "one op", "sparse", "index_reduce"),
)
def graph_pool_by_mask(mended):
    graphs, size, width = 120, 24, 48
    nodes, edges = graphs * size, 9000

    class Pool(nn.Module):
        def forward(self, h, batch):
            if not mended:
                return torch.stack([h[batch == graph].mean(0) for graph in range(graphs)])
            counts = torch.bincount(batch, minlength=graphs)
            return torch.zeros(graphs, width).index_add(0, batch, h) / counts[:, None]

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(9, width), nn.Linear(width, 1)
            self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
            self.pool = Pool()

        def forward(self, x, source, target, batch):
            h = self.enter(x)
            for layer in self.layers:
                h = h + F.relu(layer(torch.zeros_like(h).index_add(0, target, h[source])))
            return self.leave(self.pool(h, batch))[:, 0]

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    batch = torch.arange(graphs).repeat_interleave(size)
    source = torch.randint(nodes, (edges,))
    target = source // size * size + torch.randint(size, (edges,))
    x, wanted = torch.randn(nodes, 9), torch.randn(graphs)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x, source, target, batch), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-rejection-loop",
    round=10,
    domain="recommenders",
    mode="training",
    same_result=False,
    profile=Profile(with_stack=True, steps=2),
    cause="Negative items are drawn one by one in Python until one is not in the user's set: 6,000 draws a step.",
    symptom="draw_negatives takes the step's time in np.random.randint, without any op; then the model runs shortly.",
    answer="draw_negatives draws each of 6,000 negatives alone in Python and tests it against a set; draw them all "
    "with torch.randint, look up which are known in a mask, and redraw those.",
    names=("draw_negatives", "randint", "negative"),
    actions=("torch.randint", "all at once", "vectoriz", "vectoris", "one call", "in one draw", "mask",
             "batch of draws", "draw them all", "tensor", "workers", "in advance", "precompute"),
)
def recommender_rejection_loop(mended):
    users, items, batch, negatives = 2000, 5000, 1500, 4
    known = torch.rand(users, items) < 0.02
    liked = [set(row.nonzero()[:, 0].tolist()) for row in known]

    def draw_negatives(who):
        if mended:
            drawn = torch.randint(items, (len(who), negatives))
            while (again := known[who[:, None], drawn]).any():
                drawn = torch.where(again, torch.randint(items, drawn.shape), drawn)
            return drawn
        rows = []
        for user in who.tolist():
            row = []
            while len(row) < negatives:
                item = np.random.randint(items)
                if item not in liked[user]:
                    row.append(item)
            rows.append(row)
        return torch.tensor(rows)

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = nn.Embedding(users, 32), nn.Embedding(items, 32)

        def forward(self, who, which):
            return (self.users(who)[:, None] * self.items(which)).sum(2)

    model = Ranker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        who, liked_items = torch.randint(users, (batch,)), torch.randint(items, (batch, 1))
        scores = model(who, torch.cat([liked_items, draw_negatives(who)], 1))
        optimizer.zero_grad()
        loss = -F.logsigmoid(scores[:, :1] - scores[:, 1:]).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="science-general-pow",
    round=10,
    domain="science",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A Lennard-Jones potential takes (sigma / r) ** 12 and ** 6 with pow, whose backward takes ** 11 and ** 5.",
    symptom="aten::pow and PowBackward0 over all pairs lead; other ops on the same pairs take far less.",
    answer="pow with exponents 12 and 6 calls a general power function for each pair, in backward again; square and "
    "multiply: s2 = (sigma / r)^2, s6 = s2 * s2 * s2, s12 = s6 * s6.",
    names=("pow", "Pow", "** 12", "exponent"),
    actions=("square", "multiply", "multiplication", "s6 * s6", "x * x", "product", "repeated"),
)
def science_general_pow(mended):
    points, atoms = 8000, 50
    apart = 0.9 + 4 * torch.rand(points, atoms)
    charge = torch.randn(atoms)

    class Potential(nn.Module):
        def __init__(self):
            super().__init__()
            self.sigma, self.depth = nn.Parameter(0.8 + 0.2 * torch.rand(atoms)), nn.Parameter(torch.rand(atoms))

        def forward(self, r):
            ratio = self.sigma / r
            if mended:
                square = ratio * ratio
                six = square * square * square
                twelve = six * six
            else:
                six, twelve = ratio**6, ratio**12
            return (twelve - six) @ (4 * self.depth) + (1 / r) @ charge

    model = Potential()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    energies = torch.randn(points)

    def train_step():
        optimizer.zero_grad()
        loss = F.huber_loss(model(apart), energies)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="generative-zero-stuffing",
    round=10,
    domain="generative",
    mode="inference",
    profile=Profile(record_shapes=True, with_stack=True, profile_memory=True),
    cause="A generator enlarges by putting zeros between the pixels and then runs a 3 x 3 convolution over them.",
    symptom="Convolutions at double size lead, after new_zeros and a strided copy_; three of four inputs are zero.",
    answer="Enlarge writes pixels between zeros and conv2d multiplies the zeros, three quarters of its input; "
    "conv_transpose2d with stride 2 does the same without them.",
    names=("Enlarge", "zeros", "new_zeros", "conv2d", "convolution"),
    actions=("conv_transpose", "ConvTranspose", "transposed convolution", "PixelShuffle", "pixel_shuffle",
             "stride 2", "deconvolution", "polyphase", "sub-pixel"),
)
def generative_zero_stuffing(mended):
    class Enlarge(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3) / (1.5 * inputs**0.5))
            self.register_buffer("turned", self.weight.detach().flip(2, 3).transpose(0, 1).contiguous())

        def forward(self, x):
            if mended:
                return F.conv_transpose2d(x, self.turned, stride=2, padding=1, output_padding=1)
            batch, channels, height, width = x.shape
            stuffed = x.new_zeros(batch, channels, 2 * height, 2 * width)
            stuffed[:, :, ::2, ::2] = x
            return F.conv2d(stuffed, self.weight, padding=1)

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(64, 128 * 36)
            self.enlarge = nn.ModuleList([Enlarge(128, 96), Enlarge(96, 64), Enlarge(64, 48)])
            self.leave = nn.Conv2d(48, 3, 1)

        def forward(self, z):
            x = F.leaky_relu(self.enter(z), 0.2).view(-1, 128, 6, 6)
            for layer in self.enlarge:
                x = F.leaky_relu(layer(x), 0.2)
            return self.leave(x).tanh()

    model, z = Generator().eval(), torch.randn(12, 64)

    @torch.inference_mode()
    def generate():
        return model(z)

    return generate


@case(
    id="timeseries-nan-checks",
    round=10,
    domain="time series",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="Each layer's result, each gradient and each weight is tested for NaN and infinity in each step.",
    symptom="aten::isnan, isinf and any with aten::is_nonzero run after each op of the model, in check_finite.",
    answer="check_finite tests every activation, gradient and weight in each step; test the loss alone (or the "
    "gradients' norm), and the rest in a debug mode.",
    names=("check_finite", "isnan", "isinf", "is_nonzero", "NaN check", "nan check"),
    actions=("loss alone", "only the loss", "loss only", "just the loss", "debug", "remove", "drop", "less often",
             "every few", "once", "gradient norm", "gradients' norm", "on the loss"),
)
def timeseries_nan_checks(mended):
    width = 24

    def check_finite(name, tensor):
        if torch.isnan(tensor).any() or torch.isinf(tensor).any():
            raise FloatingPointError(name)

    class Block(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.mix = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
            self.norm = nn.BatchNorm1d(width)

        def forward(self, x):
            h = self.mix(x)
            if not mended:
                check_finite("mix", h)
            h = self.norm(h)
            if not mended:
                check_finite("norm", h)
            x = x + F.relu(h)
            if not mended:
                check_finite("block", x)
            return x

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv1d(4, width, 1), nn.Linear(width, 12)
            self.blocks = nn.Sequential(*[Block(2**depth) for depth in range(6)])

        def forward(self, series):
            return self.leave(self.blocks(self.enter(series)).mean(2))

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    series, future = torch.randn(24, 4, 192), torch.randn(24, 12)

    def train_step():
        optimizer.zero_grad()
        loss = F.l1_loss(model(series), future)
        check_finite("loss", loss)
        loss.backward()
        if not mended:
            for name, weight in model.named_parameters():
                check_finite(f"gradient of {name}", weight.grad)
        optimizer.step()
        if not mended:
            for name, weight in model.named_parameters():
                check_finite(name, weight)
        return loss

    return train_step


@case(
    id="tabular-sample-gradients",
    round=10,
    domain="tabular",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="Private training clips the gradient of each of 48 rows, from a forward and a backward with one row each.",
    symptom="48 forwards and backwards of one row a step; all ops are short and there are thousands.",
    answer="private_gradients runs forward and backward once for each row; torch.func.vmap over grad (or Opacus) gives "
    "all rows' gradients in one batched pass.",
    names=("private_gradients", "each row", "one row", "per-sample", "per sample", "batch of one", "batch size 1"),
    actions=("vmap", "torch.func", "Opacus", "functorch", "batched", "one pass", "is_grads_batched", "one batch"),
)
def tabular_sample_gradients(mended):
    from torch.func import functional_call, grad, vmap

    model = nn.Sequential(nn.Linear(40, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 3))
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    numbers, labels = torch.randn(48, 40), torch.randint(3, (48,))

    def loss_of(weights, row, label):
        return F.cross_entropy(functional_call(model, weights, (row[None],)), label[None])

    def private_gradients():
        if mended:
            weights = {name: weight.detach() for name, weight in model.named_parameters()}
            each = vmap(grad(loss_of), (None, 0, 0))(weights, numbers, labels)
            norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
            scale = (1 / norms).clamp(max=1)
            return [torch.tensordot(scale, g, 1) for g in each.values()]
        total = [torch.zeros_like(weight) for weight in parameters]
        for row, label in zip(numbers, labels):
            loss = F.cross_entropy(model(row[None]), label[None])
            gradients = torch.autograd.grad(loss, parameters)
            norm = torch.stack([g.norm() for g in gradients]).norm()
            scale = (1 / norm).clamp(max=1)
            for sum_of, gradient in zip(total, gradients):
                sum_of += scale * gradient
        return total

    def train_step():
        for weight, gradient in zip(parameters, private_gradients()):
            noise = 0.01 * torch.randn_like(gradient)
            weight.grad = (gradient + noise) / len(numbers)
        optimizer.step()
        return sum(weight.grad.square().sum() for weight in parameters)

    return train_step


@case(
    id="distributed-naive-pipeline",
    round=10,
    domain="language",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each of two ranks holds half the layers; the whole batch goes through one, then through the other.",
    symptom="Rank 1 waits in recv while rank 0 computes, and rank 0 waits for the answer while rank 1 computes.",
    answer="The ranks work one after the other: rank 1 waits in recv for the whole batch; cut the batch into "
    "micro-batches (pipelining), so that both ranks compute at the same time.",
    names=("recv", "rank 1 waits", "wait", "idle", "one after the other", "broadcast"),
    actions=("micro-batch", "microbatch", "micro batch", "pipelin", "overlap", "smaller pieces", "chunks",
             "split the batch", "data parallel", "data-parallel"),
)
def distributed_naive_pipeline(mended, rank, world):
    width, heads, length, batch = 256, 8, 64, 16
    pieces = 8 if mended else 1

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    table = nn.Embedding(4000, width)
    stage = nn.Sequential(*[Block() for _ in range(3)]).eval()
    head = nn.Linear(width, 5)
    ids = torch.randint(4000, (batch, length))

    def send_all():
        waiting = [dist.isend(stage(table(part)), 1) for part in ids.chunk(pieces)]
        for request in waiting:
            request.wait()

    def receive_all():
        scores = []
        for _ in range(pieces):
            x = torch.empty(batch // pieces, length, width)
            dist.recv(x, 0)
            scores.append(head(stage(x).mean(1)))
        return torch.cat(scores)

    @torch.inference_mode()
    def classify():
        scores = torch.empty(batch, 5)
        if rank == 0:
            send_all()
        else:
            scores = receive_all()
        dist.broadcast(scores, 1)
        return scores

    return classify
