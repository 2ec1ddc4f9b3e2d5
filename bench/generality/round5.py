# SPDX-License-Identifier: Apache-2.0
"""Round 5: more work than the result asks for, in forms that read well."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-histograms",
    round=5,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, steps=3),
    cause="A watcher takes a histogram of each weight and each gradient in every step, for a dashboard.",
    symptom="aten::histc after the backward takes a third of the step.",
    answer="log_histograms calls torch.histc on all weights and gradients in each step; log every hundred steps.",
    names=("histc", "log_histograms", "histogram"),
    actions=("every N steps", "every hundred", "every few", "less often", "rarely", "now and then", "outside the step",
             "sample of the", "not in each step", "not in every step"),
)
def vision_histograms(mended):
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(2048, 384), nn.ReLU(), nn.Linear(384, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images, labels = torch.randn(24, 3, 64, 64), torch.randint(10, (24,))
    board, done = {}, 0

    @torch.no_grad()
    def log_histograms():
        for name, parameter in model.named_parameters():
            board[name] = torch.histc(parameter, 64)
            board[f"{name}.grad"] = torch.histc(parameter.grad, 64)

    def train_step():
        nonlocal done
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        done += 1
        if not mended or done % 100 == 0:
            log_histograms()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-one-hot",
    round=5,
    domain="language",
    mode="training",
    profile=Profile(record_shapes=True, with_modules=True),
    cause="Words become vectors as a product of one-hot rows of 6,000 numbers with the table.",
    symptom="Before the first layer, and at the end of backward, a product with 6,000 columns outweighs the model.",
    answer="one_hot makes [6, 64, 6000] rows of a single 1 and multiplies the table by them; look the rows up with "
    "nn.Embedding.",
    names=("one_hot", "one-hot", "6000", "6,000"),
    actions=("nn.Embedding", "F.embedding", "look up", "lookup", "index_select", "gather the rows", "embedding lookup"),
)
def language_one_hot(mended):
    vocabulary, width = 6000, 96

    class WordVectors(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.randn(vocabulary, width))

        def forward(self, tokens):
            if mended:
                return F.embedding(tokens, self.table)
            return F.one_hot(tokens, vocabulary).float() @ self.table

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = WordVectors()
            layer = nn.TransformerEncoderLayer(width, 4, 384, dropout=0.0, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.out = nn.Linear(width, 5)

        def forward(self, tokens):
            return self.out(self.encoder(self.words(tokens)).mean(1))

    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens, labels = torch.randint(vocabulary, (6, 64)), torch.randint(5, (6,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-decimate-late",
    round=5,
    domain="audio",
    mode="inference",
    profile=Profile(record_shapes=True),
    cause="Sound is filtered at its full rate and then seven of eight samples are thrown away.",
    symptom="One convolution over 48,000 samples takes most of the step; all that follows sees 6,000.",
    answer="The low-pass convolution computes eight times the samples that the slice [::8] keeps; give it stride=8.",
    names=("conv1d", "low-pass", "decimat", "every eighth", "48000", "48,000", "thrown away", "slice"),
    actions=("stride", "polyphase", "only the samples", "only the outputs"),
)
def audio_decimate_late(mended):
    taps = 129
    at = torch.arange(taps) - taps // 2
    lowpass = (torch.sinc(at / 8) * torch.hann_window(taps, periodic=False) / 8)[None, None]
    tagger = nn.Sequential(
        nn.Conv1d(1, 32, 16, stride=8), nn.ReLU(), nn.Conv1d(32, 64, 8, stride=4), nn.ReLU(),
        nn.Conv1d(64, 64, 8, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 20),
    ).eval()
    clips = torch.randn(6, 1, 48_000)

    def decimate(wave):
        if mended:
            return F.conv1d(wave, lowpass, padding=taps // 2, stride=8)
        return F.conv1d(wave, lowpass, padding=taps // 2)[..., ::8]

    @torch.inference_mode()
    def tag():
        return tagger(decimate(clips))

    return tag


@case(
    id="graph-diagonal-product",
    round=5,
    domain="graphs",
    mode="training",
    profile=Profile(record_shapes=True, profile_memory=True),
    cause="A learned adjacency matrix is normalised as D A D with D a full matrix that torch.diag makes.",
    symptom="Two products of 600 x 600 matrices, and four in backward, in front of small layers.",
    answer="torch.diag(scale) makes a [600, 600] matrix of zeros around the diagonal and mm multiplies by it; scale "
    "rows and columns: scale[:, None] * a * scale.",
    names=("diag", "600, 600", "600 x 600", "600x600", "normalise", "normalize"),
    actions=("scale the rows", "scale rows", "rows and columns", "[:, None]", "broadcast", "element-wise",
             "elementwise", "aten::mul", "without the diagonal matrix"),
)
def graph_diagonal_product(mended):
    nodes, width = 600, 48

    class LearnedGraph(nn.Module):
        def __init__(self):
            super().__init__()
            self.where = nn.Linear(32, 24)
            self.first, self.second = nn.Linear(32, width), nn.Linear(width, 6)

        def normalised(self, x):
            place = self.where(x)
            a = F.relu(place @ place.T)
            scale = (a.sum(1) + 1).rsqrt()
            if mended:
                return scale[:, None] * a * scale
            return torch.diag(scale) @ a @ torch.diag(scale)

        def forward(self, x):
            a = self.normalised(x)
            return a @ self.second(F.relu(a @ self.first(x)))

    model = LearnedGraph()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x, labels = torch.randn(nodes, 32), torch.randint(6, (nodes,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-pair-loop",
    round=5,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, steps=3),
    cause="A factorization machine adds the products of all 190 pairs of its 20 fields in a Python loop.",
    symptom="Hundreds of mul and sum on [512, 16] in forward, and twice as many in backward.",
    answer="FactorizationMachine.forward loops over pairs of fields; the sum over pairs is half of the square of the "
    "sum less the sum of squares.",
    names=("FactorizationMachine", "pair", "loop"),
    actions=("square of the sum", "sum of squares", "squared sum", "bmm", "batched product", "one product",
             "all pairs at once", "vectorise", "vectorize", "einsum", "without a loop", "batch the", "triu_indices"),
)
def recommender_pair_loop(mended):
    fields, width = 20, 16

    class FactorizationMachine(nn.Module):
        def __init__(self):
            super().__init__()
            self.factors = nn.Embedding(4000, width)
            nn.init.normal_(self.factors.weight, std=0.1)
            self.deep = nn.Sequential(nn.Linear(fields * width, 128), nn.ReLU(), nn.Linear(128, 1))

        def forward(self, ids):
            factors = self.factors(ids)
            if mended:
                together = (factors.sum(1).square() - factors.square().sum(1)).sum(1) / 2
            else:
                together, each = 0.0, factors.unbind(1)
                for i in range(fields):
                    for j in range(i + 1, fields):
                        together = together + (each[i] * each[j]).sum(1)
            return together + self.deep(factors.flatten(1)).squeeze(1)

    model = FactorizationMachine()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    ids, clicks = torch.randint(4000, (512, fields)), torch.rand(512).round()

    def train_step():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(ids), clicks)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="science-kronecker",
    round=5,
    domain="science",
    mode="inference",
    profile=Profile(schedule=False),
    cause="A smoother on a grid forms the Kronecker product of its two one-dimensional operators to apply it.",
    symptom="aten::kron writes a matrix of 2,304 x 2,304 for each field, and a product with it follows.",
    answer="kron(a, b) @ u is a @ U @ b.T: two small products instead of a matrix of five million numbers.",
    names=("kron",),
    actions=("two small products", "two products", "a @ u @ b", "A @ X @ B", "without forming", "not form",
             "never form", "each axis", "one axis at a time", "einsum", "factors"),
)
def science_kronecker(mended):
    n = 48
    at = torch.linspace(0, 1, n)
    gap = (at[:, None] - at).square()
    field = torch.randn(n, n)

    @torch.no_grad()
    def smooth():
        u = field
        for step in range(4):
            a = torch.exp(-gap * (40 + step)) / 8
            b = torch.exp(-gap * (90 + step)) / 8
            if mended:
                u = a @ u @ b.T
            else:
                u = (torch.kron(a, b) @ u.flatten()).view(n, n)
            u = u / u.norm() * n
        return u.square().sum(0).max()

    return smooth


@case(
    id="generative-all-rays",
    round=5,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A radiance field makes the rays of all 300 x 300 pixels in each step and trains on 320 of them.",
    symptom="Ops on [300, 300, 3, 3] and meshgrid take a quarter of a step whose network sees 320 rays.",
    answer="get_rays computes the whole image's rays and the step then picks 320; pick the pixels first, or compute "
    "the rays once.",
    names=("get_rays", "rays", "meshgrid", "300, 300", "whole image", "all pixels"),
    actions=("pixels first", "pick first", "select first", "index first", "only the chosen", "only the picked",
             "selected pixels", "chosen pixels", "sampled pixels", "before the rays", "precompute", "compute once",
             "cache", "fewer"),
)
def generative_all_rays(mended):
    size, chosen, depth = 300, 320, 24
    focal = 320.0
    poses = torch.linalg.qr(torch.randn(20, 3, 3)).Q
    waves = 2.0 ** torch.arange(6)
    field = nn.Sequential(
        nn.Linear(36, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4),
    )
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-4, fused=True)
    colours = torch.rand(size, size, 3)
    depths = torch.linspace(2, 6, depth)[:, None]

    def get_rays(pose, rows, columns):
        towards = torch.stack(
            [(columns - size / 2) / focal, -(rows - size / 2) / focal, -torch.ones_like(rows)], -1
        )
        rays = (towards[..., None, :] * pose).sum(-1)
        return rays / rays.norm(dim=-1, keepdim=True)

    def train_step():
        optimizer.zero_grad()
        pose = poses[torch.randint(20, ()).item()]
        pixels = torch.randint(size * size, (chosen,))
        rows, columns = pixels // size, pixels % size
        if mended:
            rays = get_rays(pose, rows.float(), columns.float())
        else:
            along = torch.arange(size, dtype=torch.float32)
            rays = get_rays(pose, *torch.meshgrid(along, along, indexing="ij"))[rows, columns]
        points = rays[:, None] * depths
        angles = (points[..., None] * waves).flatten(2)
        out = field(torch.cat([angles.sin(), angles.cos()], 2))
        share = torch.softmax(out[..., 3], 1)[..., None]
        loss = F.mse_loss((share * out[..., :3].sigmoid()).sum(1), colours[rows, columns])
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-penalty-by-hand",
    round=5,
    domain="tabular",
    mode="training",
    profile=Profile(profile_memory=True, with_stack=True),
    cause="Weight decay is a sum of squares of all weights that is added to the loss, so autograd goes through it.",
    symptom="pow and sum of weight-sized tensors, with PowBackward0 and added gradients, take a third of the step.",
    answer="penalty squares every weight in forward, and backward makes a second gradient of each and adds it; pass "
    "weight_decay to the optimizer.",
    names=("penalty", "pow", "PowBackward0", "L2", "weight decay", "regularis", "regulariz"),
    actions=("weight_decay", "in the optimizer", "by the optimizer"),
)
def tabular_penalty_by_hand(mended):
    strength = 1e-4
    model = nn.Sequential(
        nn.Linear(200, 1200), nn.ReLU(), nn.Linear(1200, 1200), nn.ReLU(), nn.Linear(1200, 1200), nn.ReLU(),
        nn.Linear(1200, 1),
    )
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=2 * strength if mended else 0.0, fused=True
    )
    rows, target = torch.randn(112, 200), torch.randn(112, 1)

    def penalty():
        return sum(parameter.pow(2).sum() for parameter in model.parameters())

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), target)
        (loss if mended else loss + strength * penalty()).backward()
        optimizer.step()
        return loss.detach()

    return train_step


@case(
    id="timeseries-written-slices",
    round=5,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    cause="A gated recurrence writes each state to out[:, t]: backward copies all of out's gradient at each step.",
    symptom="Backward takes many times the forward; CopySlices with clones and zero fills of the whole output are on "
    "top.",
    answer="out[:, t] = state is an in-place write into a view, and each CopySlices copies the gradient of all 96 "
    "steps; keep the states in a list and torch.stack them.",
    names=("CopySlices", "in-place write", "written slices", "select_scatter", "out[:, t]"),
    actions=("torch.stack", "stack", "in a list", "a list", "cat once"),
)
def timeseries_written_slices(mended):
    width, steps = 64, 96

    class GatedMemory(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.drive = nn.Linear(8, width), nn.Linear(8, width)
            self.mix = nn.Parameter(torch.randn(width, width) / width)
            self.out = nn.Linear(width, 8)

        def forward(self, series):
            gates, drives = self.gate(series).sigmoid().unbind(1), self.drive(series).unbind(1)
            state, states = series.new_zeros(len(series), width), []
            out = series.new_zeros(len(series), steps, width)
            for t in range(steps):
                state = gates[t] * state + torch.tanh(torch.addmm(drives[t], state, self.mix))
                if mended:
                    states.append(state)
                else:
                    out[:, t] = state
            return self.out(torch.stack(states, 1) if mended else out)

    model = GatedMemory()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    series, target = torch.randn(24, steps, 8), torch.randn(24, steps, 8)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-buffers",
    round=5,
    domain="language",
    mode="training",
    scale="distributed",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="Frozen word vectors of 24 MB are a buffer; DDP broadcasts all buffers from rank 0 in every forward.",
    symptom="A gloo:broadcast of six million numbers opens each forward and takes more than the model.",
    answer="DDP's _sync_buffers broadcasts the 60,000 x 100 table, which never changes, at each forward; pass "
    "broadcast_buffers=False.",
    names=("broadcast", "_sync_buffers", "buffer"),
    actions=("broadcast_buffers=False", "broadcast_buffers", "ignore the buffer", "_set_params_and_buffers_to_ignore",
             "not a buffer", "out of the module", "forward_sync_buffers"),
)
def distributed_buffers(mended, rank, world):
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("vectors", torch.randn(60_000, 100))
            self.layers = nn.Sequential(nn.Linear(100, 256), nn.ReLU(), nn.Linear(256, 128))
            self.out = nn.Linear(128, 4)

        def forward(self, tokens):
            return self.out(self.layers(F.embedding(tokens, self.vectors)).mean(1))

    model = nn.parallel.DistributedDataParallel(Classifier(), broadcast_buffers=not mended)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    tokens, labels = torch.randint(60_000, (32, 24)), torch.randint(4, (32,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
