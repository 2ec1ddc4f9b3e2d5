# SPDX-License-Identifier: Apache-2.0
"""Round 12: formulas that are taken literally, calls that could be one, and data that is moved in vain."""

import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-warps-in-series",
    round=12,
    domain="vision",
    mode="training",
    same_result=False,
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Augmentation rotates, scales, shears and moves the images one after another, each with a grid_sample.",
    symptom="Four aten::grid_sampler_2d and four affine_grid_generator a step on all images, before the model.",
    answer="augment resamples the images four times (grid_sampler_2d); multiply the four matrices and sample once, "
    "which also blurs less.",
    names=("grid_sampl", "augment", "affine_grid", "warp"),
    actions=("multiply the", "compose", "one matrix", "combine", "sample once", "one grid_sample", "single grid_sample",
             "one affine", "once", "one warp", "workers", "in one"),
)
def vision_warps_in_series(mended):
    batch = 8

    def matrices(a, b, c, d, e, f):
        rows = [torch.as_tensor(x, dtype=torch.float32).expand(batch) for x in (a, b, c, d, e, f)]
        rows += [torch.zeros(batch), torch.zeros(batch), torch.ones(batch)]
        return torch.stack(rows, 1).view(batch, 3, 3)

    def warp(images, matrix):
        grid = F.affine_grid(matrix[:, :2], images.shape, align_corners=False)
        return F.grid_sample(images, grid, mode="bicubic", padding_mode="reflection", align_corners=False)

    def augment(images):
        angle = (torch.rand(batch) - 0.5) / 2
        size = 0.9 + 0.2 * torch.rand(batch)
        rotation = matrices(angle.cos(), -angle.sin(), 0, angle.sin(), angle.cos(), 0)
        scaling = matrices(size, 0, 0, 0, size, 0)
        shear = matrices(1, (torch.rand(batch) - 0.5) / 5, 0, 0, 1, 0)
        shift = matrices(1, 0, (torch.rand(batch) - 0.5) / 5, 0, 1, (torch.rand(batch) - 0.5) / 5)
        if mended:
            return warp(images, rotation @ scaling @ shear @ shift)
        for matrix in (rotation, scaling, shear, shift):
            images = warp(images, matrix)
        return images

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(),
                nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
            )

        def forward(self, x):
            return self.layers(x)

    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images, labels = torch.rand(batch, 3, 128, 128), torch.randint(10, (batch,))

    def train_step():
        moved = augment(images)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(moved), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-gelu-by-hand",
    round=12,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="GELU is written by hand with its tanh formula: eight ops over [64, 32, 256] a block, and as many backward.",
    symptom="aten::pow, mul, add and tanh over [64, 32, 256] in NewGELU, and their backward, beside the products.",
    answer="NewGELU runs eight elementwise ops (pow, mul, add, tanh) over the widest tensor; "
    "F.gelu(approximate='tanh') is one op, forward and backward.",
    names=("NewGELU", "aten::tanh", "aten::pow", "TanhBackward", "PowBackward", "gelu"),
    actions=("F.gelu", "nn.GELU", "approximate=", "aten::gelu", "functional.gelu", "built-in", "one op", "fuse",
             "compile"),
)
def language_gelu_by_hand(mended):
    width, heads, words = 64, 2, 200

    class NewGELU(nn.Module):
        def forward(self, x):
            return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            act = nn.GELU(approximate="tanh") if mended else NewGELU()
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), act, nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(32, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids):
            return self.head(self.norm(self.blocks(self.table(ids) + self.place)))

    model = Writer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(words, (64, 33))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-lag-loop",
    round=12,
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="A pitch tracker computes its autocorrelation lag by lag: 320 products and sums over all frames.",
    symptom="aten::mul and aten::sum over [400, 1024 - lag] run 320 times a step, in autocorrelation.",
    answer="autocorrelation multiplies and sums all frames once for each of 320 lags; an FFT gives all lags at once "
    "(irfft of the squared magnitude of rfft).",
    names=("autocorrelation", "each lag", "lags", "320", "aten::mul"),
    actions=("fft", "FFT", "conv1d", "Wiener"),
)
def audio_lag_loop(mended):
    frames, size, least, most = 400, 1024, 40, 360

    def autocorrelation(sound):
        if mended:
            bins = torch.fft.rfft(sound, 2 * size)
            return torch.fft.irfft(bins.real.square() + bins.imag.square(), 2 * size)[:, least:most]
        return torch.stack([(sound[:, lag:] * sound[:, : size - lag]).sum(1) for lag in range(least, most)], 1)

    class Pitch(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(most - least, 256), nn.ReLU(), nn.Linear(256, 61))
            self.register_buffer("window", torch.hann_window(size))

        def forward(self, waves):
            sound = waves.unfold(1, size, 160).flatten(0, 1) * self.window
            lags = autocorrelation(sound)
            return self.layers(lags / sound.square().sum(1, keepdim=True))

    model, waves = Pitch().eval(), torch.randn(4, 160 * (frames // 4 - 1) + size) / 10

    @torch.inference_mode()
    def track():
        return model(waves).softmax(1)

    return track


@case(
    id="graph-weight-per-edge",
    round=12,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    cause="A relational graph layer gathers a 32 x 32 weight for each of 12,000 edges and multiplies with bmm.",
    symptom="aten::index makes [12000, 32, 32], 49 MB; bmm and the backward of the gather lead.",
    answer="Relational gathers a whole weight of its relation for each edge ([12000, 32, 32]) and multiplies with bmm; "
    "there are ten relations: multiply all nodes with the ten weights (or the edges of each relation) and gather "
    "the results.",
    names=("bmm", "12000, 32, 32", "Relational", "weight for each edge", "weight per edge", "gather"),
    actions=("ten weights", "per relation", "each relation", "by relation", "relation by relation", "group the edges",
             "sort by", "nodes first", "before the gather", "project first", "grouped", "gather the results",
             "multiply first", "then gather", "multiply the nodes"),
)
def graph_weight_per_edge(mended):
    nodes, edges, relations, width = 1000, 12_000, 10, 32

    class Relational(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(relations, width, width) / width**0.5)
            self.own = nn.Linear(width, width)

        def forward(self, h, source, target, kind):
            if mended:
                sent = (h @ self.weight).flatten(0, 1).index_select(0, kind * nodes + source)
            else:
                sent = torch.bmm(h[source].unsqueeze(1), self.weight[kind]).squeeze(1)
            return F.relu(self.own(h) + torch.zeros_like(h).index_add(0, target, sent) / 12)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(20, width), nn.Linear(width, 6)
            self.layers = nn.ModuleList([Relational() for _ in range(2)])

        def forward(self, x, source, target, kind):
            h = self.enter(x)
            for layer in self.layers:
                h = layer(h, source, target, kind)
            return self.leave(h)

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    source, target = torch.randint(nodes, (2, edges))
    kind, x, labels = torch.randint(relations, (edges,)), torch.randn(nodes, 20), torch.randint(6, (nodes,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, source, target, kind), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-auc-each-step",
    round=12,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A metric keeps all predictions of the epoch, and its AUC of all of them is computed after each step.",
    symptom="Auc.compute joins and sorts 250,000 predictions in each step; it takes longer than training.",
    answer="Auc.compute joins (cat) and sorts all 250,000 predictions so far in each step; compute it once an epoch, "
    "or keep counts in bins.",
    names=("Auc", "AUC", "argsort", "aten::sort", "compute"),
    actions=("once an epoch", "once per epoch", "end of the epoch", "an epoch", "every few", "every n", "less often",
             "rarely", "bins", "histogram", "every 100", "in intervals", "not in each step", "outside the step",
             "per epoch", "out of the step"),
)
def recommender_auc_each_step(mended):
    fields, rows, width, batch = 16, 2000, 16, 1024

    class Auc:
        def __init__(self):
            self.scores, self.labels = [], []

        def update(self, scores, labels):
            self.scores.append(scores)
            self.labels.append(labels)

        def compute(self):
            scores, labels = torch.cat(self.scores), torch.cat(self.labels)
            ranked = labels[scores.argsort(descending=True)]
            hits, misses = ranked.cumsum(0), (1 - ranked).cumsum(0)
            return (torch.trapezoid(hits, misses) / (hits[-1] * misses[-1])).item()

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(fields * rows, width, sparse=True)
            self.register_buffer("begins", torch.arange(fields) * rows)
            self.layers = nn.Sequential(
                nn.Linear(fields * width, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1),
            )

        def forward(self, ids):
            return self.layers(self.table(ids + self.begins).flatten(1))[:, 0]

    model, metric, steps = Ranker(), Auc(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ids, clicked = torch.randint(rows, (batch, fields)), torch.rand(batch).round()
    for _ in range(240):  # the epoch is well under way
        metric.update(torch.rand(batch), torch.rand(batch).round())

    def train_step():
        optimizer.zero_grad()
        logits = model(ids)
        loss = F.binary_cross_entropy_with_logits(logits, clicked)
        loss.backward()
        optimizer.step()
        metric.update(logits.detach(), clicked)
        steps[0] += 1
        if not mended or steps[0] % 240 == 0:
            metric.compute()
        return loss

    return train_step


@case(
    id="science-grad-each-input",
    round=12,
    domain="science",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A physics-informed network takes the derivative by each of its four inputs with a grad call of its own.",
    symptom="autograd.grad runs backward through the whole network four times for the same output.",
    answer="autograd.grad is called for x, y, z and t apart, and each call runs through the whole network; one call "
    "with all inputs gives the four derivatives from one backward.",
    names=("autograd.grad", "derivative", "backward through", "backward runs", "four times"),
    actions=("one call", "single call", "all inputs", "one grad", "one backward", "list of inputs", "[x, y, z, t]",
             "together", "one tensor", "at once", "jvp", "forward mode", "forward-mode"),
)
def science_grad_each_input(mended):
    points = 1500

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(4, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(),
                nn.Linear(96, 1),
            )

        def forward(self, x, y, z, t):
            return self.layers(torch.cat([x, y, z, t], 1))

    def derivative(u, x):
        return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]

    model = Field()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    x, y, z, t = (torch.rand(points, 1, requires_grad=True) for _ in range(4))

    def residual():
        u = model(x, y, z, t)
        if mended:
            ux, uy, uz, ut = torch.autograd.grad(u, (x, y, z, t), torch.ones_like(u), create_graph=True)
        else:
            ux, uy, uz, ut = derivative(u, x), derivative(u, y), derivative(u, z), derivative(u, t)
        speed = (1 + ux.square() + uy.square() + uz.square()).sqrt()
        return ut + 0.5 * u * ux + speed

    def train_step():
        optimizer.zero_grad()
        loss = residual().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="generative-masked-kernel",
    round=12,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="Causal convolutions of a PixelCNN have 7 x 7 kernels of which a mask zeroes the three lower rows.",
    symptom="Each MaskedConv multiplies its weight by a mask and runs a 7 x 7 convolution; 24 of 49 taps are zero.",
    answer="MaskedConv computes 7 x 7 taps, of which the mask zeroes the lower three rows; pad the image at the top "
    "and convolve with the 4 x 7 taps that are left.",
    names=("MaskedConv", "7, 7", "7 x 7", "mask", "convolution"),
    actions=("4 x 7", "pad the", "at the top", "shifted", "cut the kernel", "crop the kernel", "smaller kernel",
             "only the rows", "only the upper", "upper rows", "vertical stack", "leave out", "causal padding",
             "without the zero"),
)
def generative_masked_kernel(mended):
    width, size, levels = 40, 7, 16

    class MaskedConv(nn.Module):
        def __init__(self, inputs, outputs, first=False):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(outputs, inputs, size, size) / (inputs * 24) ** 0.5)
            self.bias = nn.Parameter(torch.zeros(outputs))
            mask = torch.zeros(size, size)
            mask[:3], mask[3, : 3 if first else 4] = 1, 1
            self.register_buffer("mask", mask)

        def forward(self, x):
            if mended:
                taps = self.weight[:, :, :4] * self.mask[:4]
                return F.conv2d(F.pad(x, (3, 3, 3, 0)), taps, self.bias)
            return F.conv2d(x, self.weight * self.mask, self.bias, padding=3)

    class PixelCnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = MaskedConv(1, width, True)
            self.layers = nn.ModuleList([MaskedConv(width, width) for _ in range(3)])
            self.leave = nn.Conv2d(width, levels, 1)

        def forward(self, x):
            x = self.enter(x)
            for layer in self.layers:
                x = x + F.relu(layer(x))
            return self.leave(x)

    model = PixelCnn()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    pixels = torch.randint(levels, (6, 1, 28, 28))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(pixels / levels), pixels[:, 0])
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-triangular-sum",
    round=12,
    domain="time series",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="Forecast increments become levels by a product with a 1,024 x 1,024 matrix of ones below the diagonal.",
    symptom="An aten::mm with a constant [1024, 1024] operand leads, forward and backward; convolutions take less.",
    answer="Integrate sums along time by a product with a triangular matrix of ones, [1024, 1024]; torch.cumsum does "
    "it in one pass.",
    names=("Integrate", "1024, 1024", "triangular", "tril", "triu", "aten::mm", "matmul"),
    actions=("cumsum", "cumulative sum", "running sum"),
)
def timeseries_triangular_sum(mended):
    length, width, batch = 1024, 16, 24

    class Integrate(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ones", torch.ones(length, length).triu())

        def forward(self, increments):
            if mended:
                return increments.cumsum(2)
            return increments @ self.ones

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.integrate = nn.Conv1d(6, width, 9, padding=4), Integrate()
            self.middle, self.leave = nn.Conv1d(width, width, 5, padding=2), nn.Conv1d(width, 6, 1)

        def forward(self, series):
            levels = self.integrate(torch.tanh(self.enter(series)) / 30)
            return self.leave(F.relu(self.middle(levels)))

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    series, future = torch.randn(batch, 6, length), torch.randn(batch, 6, length)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-sharded-weights",
    round=12,
    domain="language",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="Each rank keeps half of each weight, and all weights are gathered anew for each of four small requests.",
    symptom="gloo:all_gather of half weights [1024, 512] runs before each linear; the products are shorter.",
    answer="ShardedLinear gathers its frozen weights in each forward, though the model fits in each rank; keep whole "
    "weights on each rank (data parallel), or gather once and serve all requests as one batch.",
    names=("ShardedLinear", "all_gather", "allgather", "gather"),
    actions=("keep whole", "keep the whole", "whole weights", "full weights", "gather once", "once", "replicate",
             "data parallel", "data-parallel", "copy of the weights", "keep the gathered", "tensor parallel",
             "tensor-parallel", "cache", "reshard_after_forward", "keep them", "prefetch", "larger batch", "one batch",
             "own part of"),
)
def distributed_sharded_weights(mended, rank, world):
    width, heads, length = 512, 8, 32

    class ShardedLinear(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            whole = torch.randn(outputs, inputs) / inputs**0.5
            self.register_buffer("weight", whole if mended else whole.chunk(world)[rank].contiguous())

        def forward(self, x):
            weight = self.weight
            if not mended:
                parts = [torch.empty_like(weight) for _ in range(world)]
                dist.all_gather(parts, weight)
                weight = torch.cat(parts)
            return F.linear(x, weight)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = ShardedLinear(width, 3 * width), ShardedLinear(width, width)
            self.up, self.down = ShardedLinear(width, 4 * width), ShardedLinear(4 * width, width)

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    table, model = nn.Embedding(2000, width), nn.Sequential(*[Block() for _ in range(3)]).eval()
    requests = torch.randint(2000, (4, 2, length))

    @torch.inference_mode()
    def serve():
        return torch.stack([model(table(request)).mean(1) for request in requests])

    return serve


@case(
    id="distributed-padded-gather",
    round=12,
    domain="vision",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="About 1,200 found objects a rank are padded to 24,000 rows before all_gather, so that shapes agree.",
    symptom="gloo:all_gather of [24000, 128] leads; its input is new_zeros with a copy_ of some 1,200 rows.",
    answer="gather_found pads to 24,000 rows and all_gather moves 12 MB, of which 5 percent are used; gather the "
    "counts first and pad to the larger one only.",
    names=("gather_found", "all_gather", "allgather", "24000", "24,000", "pad"),
    actions=("counts first", "the counts", "sizes first", "the sizes", "larger count", "largest", "pad to the larger",
             "only the rows", "real size", "actual size", "variable", "fewer rows", "smaller"),
)
def distributed_padded_gather(mended, rank, world):
    width, capacity = 128, 24_000

    class Finder(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 24, 5, 2, 2), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(), nn.Conv2d(48, width, 1),
            )
            self.score = nn.Conv2d(width, 1, 1)

        def forward(self, images):
            features = self.trunk(images)
            return features.permute(0, 2, 3, 1).flatten(0, 2), self.score(features).flatten()

    def gather_found(found):
        count = torch.tensor([len(found)])
        counts = [torch.empty_like(count) for _ in range(world)]
        dist.all_gather(counts, count)
        counts = torch.cat(counts).tolist()
        padded = found.new_zeros(max(counts) if mended else capacity, width)
        padded[: len(found)] = found
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts)])

    model, images = Finder().eval(), torch.randn(6, 3, 112, 112)

    @torch.inference_mode()
    def find():
        features, scores = model(images)
        return gather_found(features[scores > scores.quantile(0.74 + 0.02 * rank)])

    return find
