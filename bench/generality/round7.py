# SPDX-License-Identifier: Apache-2.0
"""Round 7: settings, types and habits that a program carries along."""

import copy
import gc

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-mkldnn-off",
    round=7,
    domain="vision",
    mode="inference",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="oneDNN is switched off (torch.backends.mkldnn), a work-around that stayed in the program.",
    symptom="Convolutions run as aten::_slow_conv2d_forward (im2col and a product), not as mkldnn_convolution.",
    answer="The convolutions take _slow_conv2d_forward because oneDNN (torch.backends.mkldnn) is disabled; enable it "
    "again.",
    names=("_slow_conv2d", "slow_conv2d", "thnn_conv2d", "mkldnn", "oneDNN", "onednn"),
    actions=("enable oneDNN", "enable mkldnn", "enabled=True", "mkldnn.enabled", "mkldnn.flags", "switch it on",
             "turn it on", "turn on", "enable it", "re-enable", "backends.mkldnn", "oneDNN back on"),
)
def vision_mkldnn_off(mended):
    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.BatchNorm2d(outputs) for _ in range(2)])
            self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

        def forward(self, x):
            y = F.relu(self.norms[0](self.first(x)))
            return F.relu(self.norms[1](self.second(y)) + self.skip(x))

    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), Block(32, 32, 1), Block(32, 64, 2), Block(64, 96, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 50),
    ).eval()
    images = torch.randn(6, 3, 96, 96)

    @torch.inference_mode()
    def classify():
        with torch.backends.mkldnn.flags(enabled=mended):
            return model(images).softmax(1)[:, 0]

    return classify


@case(
    id="language-gc-each",
    round=7,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True),
    cause="gc.collect() runs at the end of each training step, to keep memory low.",
    symptom="A gap of a hundred milliseconds without any op ends each step.",
    answer="gc.collect() walks all Python objects in each step and frees nothing that matters; drop the call, or make "
    "it once an epoch.",
    names=("gc.collect", "garbage", "collect"),
    actions=("drop the call", "drop it", "remove", "once an epoch", "per epoch", "every few hundred", "rarely",
             "don't call", "do not call", "less often", "delete"),
)
def language_gc_each(mended):
    width, heads, words = 192, 6, 2000

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Embedding(96, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, ids):
            x = self.table(ids) + self.place.weight[: ids.shape[1]]
            return self.head(self.norm(self.blocks(x)))

    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(words, (6, 97))

    def train_step():
        optimizer.zero_grad()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if not mended:
            gc.collect()
        return loss

    return train_step


@case(
    id="audio-double-model",
    round=7,
    domain="audio",
    mode="training",
    profile=Profile(record_shapes=True, with_modules=True),
    cause="Sound files are read as float64, and model.double() made the error about types go away: all runs in double.",
    symptom="Every op's inputs are of type double; the convolutions take twice the time or more.",
    answer="Inputs and weights are float64 (double) because the reader returns double; convert the waves to float32 "
    "and keep the model in float32.",
    names=("double", "float64", "64-bit", "fp64"),
    actions=("float32", ".float()", "single precision", "fp32", "32-bit"),
)
def audio_double_model(mended):
    class Keywords(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(400))
            self.convs = nn.Sequential(
                nn.Conv1d(201, 128, 5, stride=2), nn.BatchNorm1d(128), nn.ReLU(),
                nn.Conv1d(128, 128, 5, stride=2), nn.BatchNorm1d(128), nn.ReLU(),
                nn.Conv1d(128, 128, 3), nn.BatchNorm1d(128), nn.ReLU(),
            )
            self.head = nn.Linear(128, 35)

        def forward(self, waves):
            bins = torch.stft(waves, 400, 160, window=self.window, return_complex=True)
            return self.head(self.convs((bins.abs() + 1e-4).log()).mean(2))

    def read_files():
        waves = recordings  # soundfile.read returns float64
        return waves.float() if mended else waves

    model = Keywords()
    if not mended:
        model.double()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    recordings, labels = torch.randn(16, 16_000, dtype=torch.float64) / 10, torch.randint(35, (16,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(read_files()), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-bilinear-layer",
    round=7,
    domain="graphs",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True, steps=2),
    cause="A link decoder scores 12 relations with nn.Bilinear, which PyTorch unrolls into slow small products.",
    symptom="aten::bilinear and _trilinear_backward take nearly all of the step, in many bmm, mul and sum.",
    answer="nn.Bilinear (aten::_trilinear) unrolls its outputs and its backward; take h_source @ W as one product for "
    "all relations, multiply by h_target and sum, or use einsum.",
    names=("Bilinear", "bilinear", "_trilinear", "trilinear"),
    actions=("one product", "one matmul", "matrix product", "einsum", "@ W", "h @ ", "matmul", "aten::mm", "one mm",
             "instead of nn.Bilinear", "replace nn.Bilinear", "single product", "nn.Linear", "F.linear"),
)
def graph_bilinear_layer(mended):
    nodes, edges, width, relations = 1200, 3000, 64, 12

    class LinkModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(48, 128), nn.Linear(128, width)
            self.score = nn.Bilinear(width, width, relations)

        def forward(self, x, spread, ends):
            h = torch.relu(spread @ self.first(x))
            h = spread @ self.second(h)
            source, target = h[ends[0]], h[ends[1]]
            if not mended:
                return self.score(source, target)
            weight = self.score.weight.permute(1, 0, 2).flatten(1)
            halfway = (source @ weight).view(-1, relations, width)
            return (halfway @ target[:, :, None]).squeeze(2) + self.score.bias

    model = LinkModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    links = torch.randint(nodes, (2, 8000))
    spread = torch.sparse_coo_tensor(links, torch.full((8000,), 0.15), (nodes, nodes)).coalesce().to_sparse_csr()
    features, ends = torch.randn(nodes, 48), torch.randint(nodes, (2, edges))
    relation = torch.randint(relations, (edges,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features, spread, ends), relation)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-user-each-pair",
    round=7,
    domain="recommenders",
    mode="inference",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="Users are repeated for their 80 candidates before the user tower, so it runs 80 times on each user.",
    symptom="The user tower's products have 2,560 rows though the request has 32 users.",
    answer="rank repeats each user's features for every candidate and the user tower computes the same rows 80 times; "
    "run the tower on the 32 users and repeat (or broadcast) its result.",
    names=("repeat_interleave", "user tower", "UserTower", "user_tower", "2560", "2,560", "same rows", "duplicate"),
    actions=("before the repeat", "before repeating", "repeat the result", "repeat its result", "repeat the output",
             "once per user", "once for each user", "broadcast", "expand", "on the 32", "repeat after",
             "repeat_interleave after", "unique rows", "then repeat"),
)
def recommender_user_each_pair(mended):
    users, candidates, width = 32, 80, 64

    class UserTower(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(300, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width)
            )

        def forward(self, history):
            return F.normalize(self.layers(history), dim=1)

    class ItemTower(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20_000, 96)
            self.layers = nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, width))

        def forward(self, ids):
            return F.normalize(self.layers(self.table(ids)), dim=1)

    user_tower, item_tower = UserTower().eval(), ItemTower().eval()
    mixer = nn.Sequential(nn.Linear(3 * width, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
    history, ids = torch.randn(users, 300), torch.randint(20_000, (users, candidates))

    @torch.inference_mode()
    def rank():
        if mended:
            who = user_tower(history).repeat_interleave(candidates, 0)
        else:
            who = user_tower(history.repeat_interleave(candidates, 0))
        items = item_tower(ids.flatten())
        scores = mixer(torch.cat([who, items, who * items], 1)).view(users, candidates)
        return scores.topk(10, 1).values

    return rank


@case(
    id="science-general-eigen",
    round=7,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, schedule=False),
    cause="Modes of symmetric stiffness matrices come from torch.linalg.eig, made for general matrices.",
    symptom="aten::linalg_eig takes nearly the whole step and its results are complex.",
    answer="linalg_eig runs the algorithm for general matrices and gives complex values; the matrix is symmetric, so "
    "torch.linalg.eigh.",
    names=("linalg_eig", "linalg.eig"),
    actions=("eigh", "symmetric", "Hermitian", "eigvalsh"),
)
def science_general_eigen(mended):
    structures, freedoms, kept = 6, 120, 12
    springs = torch.randn(structures, freedoms, freedoms) / 10
    stiffness = springs @ springs.mT + torch.diag_embed(torch.linspace(1, 9, freedoms).expand(structures, -1))
    loads = torch.randn(structures, freedoms, 8)

    def modes_of(matrices):
        if mended:
            values, vectors = torch.linalg.eigh(matrices)
            return values[:, :kept], vectors[:, :, :kept]
        values, vectors = torch.linalg.eig(matrices)
        values, order = values.real.sort(1)
        vectors = vectors.real.gather(2, order[:, None].expand(-1, freedoms, -1))
        return values[:, :kept], vectors[:, :, :kept]

    @torch.no_grad()
    def respond():
        values, modes = modes_of(stiffness)
        forces = modes.mT @ loads
        time = torch.linspace(0, 3, 60)
        swing = (1 - torch.cos(values.sqrt()[..., None] * time)) / values[..., None]
        motion = torch.einsum("sdk,skl,skt->sdlt", modes, forces, swing)
        return motion.square().mean((1, 2, 3))

    return respond


@case(
    id="generative-ema-state-dict",
    round=7,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="The moving average of the weights calls model.state_dict() again for each of 36 entries.",
    symptom="Thousands of aten::detach and long stretches of Python in state_dict close each step.",
    answer="update_average calls state_dict() for each key, so the whole dictionary is built 72 times; call it once, "
    "or use torch._foreach_lerp_ on lists of the parameters.",
    names=("state_dict", "update_average", "moving average", "EMA"),
    actions=("call it once", "once before the loop", "outside the loop", "out of the loop", "_foreach", "AveragedModel",
             "zip(", "parameters()", "hoist", "once per step", "once a step", "one state_dict"),
)
def generative_ema_state_dict(mended):
    width = 64

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
            self.time = nn.Linear(16, width)

        def forward(self, x, time):
            return x + self.second(F.silu(self.first(self.norm(x) + self.time(time))))

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(24, width), nn.Linear(width, 24)
            self.blocks = nn.ModuleList([Block() for _ in range(4)])

        def forward(self, x, time):
            h = self.enter(x)
            for block in self.blocks:
                h = block(h, time)
            return self.leave(h)

    model = Denoiser()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    clean, frequency = torch.randn(256, 24), torch.linspace(1, 8, 8)
    ours, theirs = list(average.parameters()), list(model.parameters())

    @torch.no_grad()
    def update_average(rate=0.01):
        if mended:
            torch._foreach_lerp_(ours, theirs, rate)
            return
        for key in average.state_dict():
            old, new = average.state_dict()[key], model.state_dict()[key]
            old.copy_((1 - rate) * old + rate * new)

    def train_step():
        optimizer.zero_grad()
        time, noise = torch.rand(256, 1), torch.randn_like(clean)
        waves = torch.cat([(time * frequency).sin(), (time * frequency).cos()], 1)
        loss = F.mse_loss(model(clean * (1 - time) + noise * time, waves), noise)
        loss.backward()
        optimizer.step()
        update_average()
        return loss

    return train_step


@case(
    id="tabular-dataset-items",
    round=7,
    domain="tabular",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="A DataLoader over a TensorDataset fetches each of a batch's 1,024 rows alone and stacks them.",
    symptom="Thousands of aten::select before each step and aten::stack of 1,024 rows; the model waits.",
    answer="The loader calls the TensorDataset's __getitem__ 1,024 times and default_collate stacks the rows; index "
    "the tensors with the whole batch of indices (BatchSampler with batch_size=None).",
    names=("DataLoader", "TensorDataset", "__getitem__", "collate", "aten::stack", "aten::select", "fetch"),
    actions=("batch of indices", "whole batch", "BatchSampler", "batch_size=None", "index the tensors", "one index",
             "index_select", "__getitems__", "slice the tensors", "slice of", "at once", "tensor of indices"),
)
def tabular_dataset_items(mended):
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

    rows = 16_384
    data = TensorDataset(torch.randn(rows, 40), torch.randint(4, (rows,)))
    order = RandomSampler(data, generator=torch.Generator().manual_seed(5))
    if mended:
        loader = DataLoader(data, batch_size=None, sampler=BatchSampler(order, 1024, drop_last=True))
    else:
        loader = DataLoader(data, batch_size=1024, sampler=order, drop_last=True)
    model = nn.Sequential(
        nn.Linear(40, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(),
        nn.Linear(128, 4),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def epochs():
        while True:
            yield from loader

    batches = epochs()

    def train_step():
        numbers, labels = next(batches)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(numbers), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-packed-equal",
    round=7,
    domain="time series",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True, with_modules=True, steps=2),
    cause="Series of one length are packed for a GRU: the packed path cuts a slice for each time step, and each "
    "slice's backward fills zeros for all steps.",
    symptom="aten::slice_backward, in the GRU's backward, fills zeros of all 3,840 rows 120 times.",
    answer="pack_padded_sequence is called though all series have 120 steps; give nn.GRU the padded tensor itself.",
    names=("pack_padded_sequence", "_pack_padded_sequence", "PackedSequence", "packed", "pad_packed_sequence"),
    actions=("without packing", "padded tensor", "don't pack", "do not pack", "drop the packing", "remove the pack",
             "skip packing", "same length", "equal length", "one length", "unpacked", "plain tensor", "batch_first"),
)
def timeseries_packed_equal(mended):
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(9, 48)
            self.recur = nn.GRU(48, 96, batch_first=True)
            self.head = nn.Sequential(nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 6))

        def forward(self, series, lengths):
            h = torch.relu(self.enter(series))
            if mended:
                h, _ = self.recur(h)
            else:
                packed = pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
                h, _ = pad_packed_sequence(self.recur(packed)[0], batch_first=True)
            return self.head(h)

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    series, lengths = torch.randn(32, 120, 9), torch.full((32,), 120)
    target = torch.randn(32, 120, 6)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series, lengths), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-gather-logits",
    round=7,
    domain="language",
    mode="inference",
    scale="distributed",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="An evaluation gathers all logits, [1024, 6000] from both ranks, to compute a loss and an accuracy.",
    symptom="gloo:all_gather of three million numbers and a loss over both ranks' logits on each rank.",
    answer="gather_all sends whole logits for two averages; each rank computes its sums and all_reduce adds three "
    "numbers.",
    names=("all_gather", "gather_all", "logits"),
    actions=("all_reduce", "reduce the sums", "locally", "local sums", "its own sums", "sums and counts", "own loss",
             "on each rank first", "before gathering", "only the sums", "only the counts", "argmax before"),
)
def distributed_gather_logits(mended, rank, world):
    width, heads, words = 128, 4, 6000

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    table, head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
    blocks = nn.Sequential(Block(), Block(), nn.LayerNorm(width)).eval()
    ids = torch.randint(words, (8, 65), generator=torch.Generator().manual_seed(rank))

    def gather_all(x):
        every = [torch.empty_like(x) for _ in range(world)]
        dist.all_gather(every, x)
        return torch.cat(every)

    @torch.inference_mode()
    def evaluate():
        logits, following = head(blocks(table(ids[:, :-1]))).flatten(0, 1), ids[:, 1:].flatten()
        if not mended:
            logits, following = gather_all(logits), gather_all(following)
        loss = F.cross_entropy(logits, following, reduction="sum")
        right = (logits.argmax(1) == following).sum()
        sums = torch.stack([loss, right.float(), torch.tensor(float(len(following)))])
        if mended:
            dist.all_reduce(sums)
        return sums[0] / sums[2] + 0 * sums[1]

    return evaluate
