# SPDX-License-Identifier: Apache-2.0
"""Round 18: the same computed for each part, more computed than is kept, and exactness that training does not need."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-augment-before-crop",
    round=18,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Colours of whole images of 288 x 288 are changed and normalised, and then a crop of 64 x 64 is taken.",
    symptom="aten::pow, aten::mul and aten::div of [12, 3, 288, 288] take longer than the network on [12, 3, 64, 64].",
    answer="augment converts, changes and normalises all pixels of [12, 3, 288, 288] and crops 64 x 64 at its end, a "
    "twentieth of them; crop first.",
    names=("augment", "aten::pow", "288", "crop", "aten::clamp", "aten::lerp", "aten::mul", "aten::div"),
    actions=("crop first", "crop before", "crop earlier", "after the crop", "before the colour", "cropped", "move the",
             "only the pixels", "only what", "slice first", "slice before", "narrow first", "select first", "crop the",
             "the part that is used", "read later", "that is kept", "are kept"),
)
def vision_augment_before_crop(mended):
    images, size, crop = 12, 288, 64

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(),
                nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 20),
            )

        def forward(self, images):
            return self.layers(images)

    def augment(pixels):
        top, left = torch.randint(size - crop, (2,)).tolist()
        gamma, bright, grey = torch.rand(3, images, 1, 1, 1)
        if mended:
            pixels = pixels[:, :, top : top + crop, left : left + crop]
        x = (pixels / 255).pow(0.7 + 0.6 * gamma) * (0.8 + 0.4 * bright)
        x = x.lerp(x.mean(1, keepdim=True), 0.3 * grey).clamp(0, 1)
        x = (x - middle) / spread
        return x if mended else x[:, :, top : top + crop, left : left + crop]

    model = Network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, fused=True)
    pixels = torch.randint(256, (images, 3, size, size), dtype=torch.uint8)
    labels = torch.randint(20, (images,))
    middle, spread = torch.tensor([0.48, 0.46, 0.41]).view(3, 1, 1), torch.tensor([0.23, 0.22, 0.22]).view(3, 1, 1)

    def train_step():
        x = augment(pixels)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-passage-for-each-answer",
    round=18,
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A multiple-choice reader runs the same passage of 160 words before each of eight answers of six words.",
    symptom="All products have 8 x 166 rows, of which 8 x 160 are the same passage eight times.",
    answer="choose expands the passage to eight rows and runs all blocks on [8, 166] words; run the passage once, keep "
    "its keys and values, and run the eight answers of six words against them.",
    names=("choose", "passage", "[8, 166", "expand", "1328", "166", "Block", "addmm", "linear"),
    actions=("once", "keys and values", "kv cache", "cache", "prefix", "share", "keep the keys", "past", "reuse",
             "prompt", "only the answers", "the same rows"),
)
def language_passage_for_each_answer(mended):
    width, heads, depth, words, passage, answers, length = 192, 4, 3, 2000, 160, 8, 6

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x, before=None):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            if before is None:
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                keys = torch.cat([before[0].expand(len(x), -1, -1, -1), k], 2)
                values = torch.cat([before[1].expand(len(x), -1, -1, -1), v], 2)
                mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x)), (k, v)

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Embedding(passage + length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1)

        def forward(self, ids, past=0, before=None):
            x, kept = self.table(ids) + self.place.weight[past : past + ids.shape[1]], []
            for number, block in enumerate(self.blocks):
                x, pair = block(x, before and before[number])
                kept.append(pair)
            return self.head(self.norm(x[:, -1])), kept

    visible = torch.ones(length, passage + length).tril(passage).bool()
    model, text = Reader().eval(), torch.randint(words, (1, passage))
    options = torch.randint(words, (answers, length))

    def choose(text, options):
        if mended:
            _, kept = model(text)
            return model(options, passage, kept)[0]
        return model(torch.cat([text.expand(answers, -1), options], 1))[0]

    @torch.inference_mode()
    def read():
        return choose(text, options).softmax(0).square()

    return read


@case(
    id="audio-smoothing-by-frame",
    round=18,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=3),
    cause="Per-channel energy normalisation smooths its energies frame by frame in Python, over 400 frames.",
    symptom="aten::select, aten::mul and aten::add of [12, 64] run 400 times a step, and aten::stack joins them.",
    answer="smooth is a first-order recursion over 400 frames in Python; its weights are known: compute blocks of "
    "frames with a product with a triangular matrix of decays (or an FFT or lfilter), and carry the state from one to "
    "the next.",
    names=("smooth", "Normaliser", "aten::select", "aten::lerp", "aten::stack", "aten::mul"),
    actions=("matrix", "product", "convol", "FFT", "lfilter", "blocks", "chunks", "scan", "vectori", "cumsum",
             "cumulative", "larger op", "compile", "at once", "all frames", "without a loop"),
)
def audio_smoothing_by_frame(mended):
    batch, bands, frames, block, pace = 12, 64, 400, 40, 0.04

    class Normaliser(nn.Module):
        def __init__(self):
            super().__init__()
            times = torch.arange(block)
            lags = times - times[:, None]
            self.register_buffer("decays", torch.where(lags >= 0, pace * (1 - pace) ** lags.clamp(min=0), 0.0))
            self.register_buffer("fading", (1 - pace) ** (times + 1.0))

        def smooth(self, energies):
            level, levels = energies[..., 0], []
            if mended:
                for part in (energies.unflatten(2, (-1, block)) @ self.decays).unbind(2):
                    levels.append(part + level[..., None] * self.fading)
                    level = levels[-1][..., -1]
                return torch.cat(levels, 2)
            for frame in range(frames):
                level = (1 - pace) * level + pace * energies[..., frame]
                levels.append(level)
            return torch.stack(levels, 2)

        def forward(self, energies):
            return (energies / (self.smooth(energies) + 1e-3) + 2).sqrt() - 2**0.5

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.normalise = Normaliser()
            self.layers = nn.Sequential(
                nn.Conv1d(bands, 64, 5, 4, 2), nn.ReLU(), nn.Conv1d(64, 64, 5, 2, 2), nn.ReLU(),
                nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 12),
            )

        def forward(self, energies):
            return self.layers(self.normalise(energies))

    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    energies, tags = torch.rand(batch, bands, frames), torch.randint(12, (batch,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(energies), tags)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-basis-each-block",
    round=18,
    domain="graphs",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="Each of six blocks of a molecular graph network computes distances and their radial basis anew; atoms do "
    "not move between blocks.",
    symptom="aten::sin of [16000, 40] runs six times a step on the same distances, once in each RadialBasis.",
    answer="Each Interaction calls RadialBasis on the same positions and edges: gathers, a norm and 40 sines for each "
    "of 16,000 edges, six times; compute the basis once and pass it to all blocks.",
    names=("RadialBasis", "aten::sin", "[16000, 40]", "basis", "linalg_vector_norm", "16000"),
    actions=("once", "pass it", "share", "before the blocks", "out of the blocks", "hoist", "reuse", "cache",
             "same input", "same for all", "precompute"),
)
def graph_basis_each_block(mended):
    atoms, edges, width, waves, depth = 1000, 16_000, 24, 40, 6

    class RadialBasis(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("numbers", torch.arange(1, waves + 1) * torch.pi)

        def forward(self, places):
            far = (places.index_select(0, source) - places.index_select(0, target)).norm(dim=1, keepdim=True) / 6
            far = far.clamp(0.05, 1)
            return (self.numbers * far).sin() / far * (1 - far**2) ** 2

    class Interaction(nn.Module):
        def __init__(self):
            super().__init__()
            self.basis, self.filter = RadialBasis(), nn.Linear(waves, width)
            self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, h, places, basis):
            if basis is None:
                basis = self.basis(places)
            messages = self.first(h).index_select(0, source) * self.filter(basis)
            return h + self.second(F.silu(torch.zeros_like(h).index_add_(0, target, messages)))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.leave = nn.Embedding(20, width), nn.Linear(width, 1)
            self.blocks = nn.ModuleList([Interaction() for _ in range(depth)])

        def forward(self, kinds, places):
            h, basis = self.table(kinds), self.blocks[0].basis(places) if mended else None
            for block in self.blocks:
                h = block(h, places, basis)
            return self.leave(h)

    model, kinds, places = Network().eval(), torch.randint(20, (atoms,)), 3 * torch.rand(atoms, 3)
    source, target = torch.randint(atoms, (edges,)), torch.randint(atoms, (edges,)).sort().values

    @torch.inference_mode()
    def energy():
        return model(kinds, places)

    return energy


@case(
    id="recommender-average-of-table",
    round=18,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A moving average of all weights is kept in each step: all 300,000 rows of a table, of which 2,048 changed.",
    symptom="aten::lerp_ of [300000, 32] takes longer than forward, backward and the sparse update.",
    answer="follow updates the moving average of the whole table in each step, though a sparse step changes 2,048 "
    "rows; update it every hundred steps (with the decay to that power), or the changed rows alone, or leave the table "
    "out.",
    names=("follow", "lerp", "300000", "300,000", "average"),
    actions=("every hundred", "every few", "every n", "less often", "only the rows", "changed rows", "touched", "rows",
             "leave the table out", "without the table", "not in each step", "rarely", "once an epoch", "per epoch",
             "end of training"),
)
def recommender_average_of_table(mended):
    items, width, batch, often = 300_000, 32, 1024, 100

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(items, width, sparse=True)
            self.layers = nn.Sequential(nn.Linear(2 * width, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(),
                                        nn.Linear(96, 1))

        def forward(self, pairs):
            return self.layers(self.table(pairs).flatten(1))[:, 0]

    model, steps = Ranker(), [0]
    averages = [weight.detach().clone() for weight in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    pairs, bought = torch.randint(items, (batch, 2)), torch.randint(2, (batch,)).float()

    @torch.no_grad()
    def follow(pace):
        for average, weight in zip(averages, model.parameters()):
            average.lerp_(weight, pace)

    def train_step():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(pairs), bought)
        loss.backward()
        optimizer.step()
        steps[0] += 1
        if not mended:
            follow(0.001)
        elif steps[0] % often == 0:
            follow(1 - 0.999**often)
        return loss

    return train_step


@case(
    id="science-propagator-each-step",
    round=18,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    cause="A quantum system with a constant Hamiltonian computes its matrix exponential anew in each time step.",
    symptom="aten::linalg_matrix_exp of a [112, 112] complex matrix runs in each of eight time steps.",
    answer="advance takes matrix_exp(-i H dt) of the same matrix in each of eight time steps, some ten products of "
    "matrices, to multiply four states by it; compute it once before the loop.",
    names=("matrix_exp", "advance", "linalg_matrix_exp", "[112, 112]"),
    actions=("once", "before the loop", "out of the loop", "hoist", "keep", "cache", "reuse", "precompute", "constant",
             "in advance", "beforehand", "action on the", "Krylov", "eigh", "store"),
)
def science_propagator_each_step(mended):
    levels, states, steps, dt = 112, 4, 8, 0.05

    coupling = torch.randn(levels, levels, dtype=torch.complex64) / levels**0.5
    hamiltonian = coupling + coupling.mH
    kept = torch.linalg.matrix_exp(-1j * dt * hamiltonian)
    start = F.normalize(torch.randn(levels, states, dtype=torch.complex64), dim=0)

    def advance(state):
        return (kept if mended else torch.linalg.matrix_exp(-1j * dt * hamiltonian)) @ state

    @torch.inference_mode()
    def evolve():
        state, seen = start, []
        for _ in range(steps):
            state = advance(state)
            seen.append(torch.linalg.vecdot(state, hamiltonian @ state, dim=0).real)
        return torch.stack(seen).square()

    return evolve


@case(
    id="generative-exact-divergence",
    round=18,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="A continuous flow takes the exact trace of its Jacobian: one backward for each of 16 dimensions at each "
    "step.",
    symptom="torch.autograd.grad runs 16 times in each of four steps of the flow, each through the whole field.",
    answer="divergence calls autograd.grad for each of 16 outputs and reads one column of each result; estimate the "
    "trace with one product with a random vector (Hutchinson), or batch the products with vmap.",
    names=("divergence", "autograd.grad", "autograd::engine", "AddmmBackward", "TanhBackward", "tanh_backward",
           "SelectBackward", "grad"),
    actions=("Hutchinson", "random vector", "one product", "estimate", "vmap", "vjp", "jvp", "is_grads_batched",
             "batch", "one backward", "single backward", "one call", "at once", "forward mode", "trace"),
    same_result=False,  # the trace is estimated
)
def generative_exact_divergence(mended):
    size, width, batch, steps = 16, 96, 128, 4

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(size + 1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, size),
            )

        def forward(self, x, time):
            return self.layers(torch.cat([x, x.new_full((len(x), 1), time)], 1))

    def divergence(moved, x):
        if mended:
            way = torch.randn_like(x)
            return (torch.autograd.grad(moved, x, way, create_graph=True)[0] * way).sum(1)
        total = 0
        for column in range(size):
            total = total + torch.autograd.grad(moved[:, column].sum(), x, create_graph=True)[0][:, column]
        return total

    field, data = Field(), torch.randn(batch, size)
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3, fused=True)

    def train_step():
        x, change = data.clone().requires_grad_(), 0
        for step in range(steps):
            moved = field(x, step / steps)
            change = change + divergence(moved, x) / steps
            x = x + moved / steps
        optimizer.zero_grad()
        loss = (0.5 * x.square().sum(1) - change).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-ghost-batches",
    round=18,
    domain="tabular",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True, steps=3),
    cause="Ghost batch norm cuts 1,024 rows into 32 chunks and calls a batch norm for each chunk in each of six "
    "layers.",
    symptom="aten::native_batch_norm of [32, 64] runs 192 times a step, and its backward as often; chunk and cat "
    "around it.",
    answer="GhostNorm loops over 32 chunks of 32 rows; take the statistics of all chunks at once (view as "
    "[32, 32, 64], or chunks as channels of one batch norm), or use larger virtual batches.",
    names=("GhostNorm", "batch_norm", "BatchNorm1d", "NativeBatchNormBackward", "native_batch_norm", "aten::cat",
           "aten::split", "chunk"),
    actions=("at once", "view", "reshape", "one call", "one op", "larger virtual", "larger chunk", "fewer chunks",
             "larger batch", "all chunks", "vectori", "as channels", "single call", "group", "stack", "batched"),
)
def tabular_ghost_batches(mended):
    rows, chunk, width, columns, depth = 1024, 32, 64, 48, 6

    class GhostNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(width, momentum=0.02)

        def forward(self, x):
            if not mended:
                return torch.cat([self.norm(part) for part in x.chunk(len(x) // chunk)])
            norm, parts = self.norm, len(x) // chunk
            wide = x.view(parts, chunk, width).transpose(0, 1).reshape(chunk, parts * width)
            means, spreads = torch.zeros(2, parts * width)
            wide = F.batch_norm(wide, means, spreads, norm.weight.repeat(parts), norm.bias.repeat(parts), True, 1.0)
            norm.running_mean.lerp_(means.view(parts, width).mean(0), 1 - 0.98**parts)
            norm.running_var.lerp_(spreads.view(parts, width).mean(0), 1 - 0.98**parts)
            return wide.view(chunk, parts, width).transpose(0, 1).reshape(len(x), width)

    class Layer(nn.Module):
        def __init__(self, inputs):
            super().__init__()
            self.linear, self.norm = nn.Linear(inputs, 2 * width, bias=False), GhostNorm()
            self.gate = nn.Linear(width, width)

        def forward(self, x):
            value, gate = self.linear(x).chunk(2, 1)
            return self.norm(value.contiguous()) * gate.sigmoid()

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer(width if number else columns) for number in range(depth)])
            self.leave = nn.Linear(width, 2)

        def forward(self, x):
            x = self.layers[0](x)
            for layer in self.layers[1:]:
                x = (x + layer(x)) * 0.5**0.5
            return self.leave(x)

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    table, labels = torch.randn(rows, columns), torch.randint(2, (rows,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(table), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-whole-evaluation",
    round=18,
    domain="time series",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="The evaluation has no DistributedSampler: each of two ranks predicts all eight batches and then they "
    "average.",
    symptom="Both ranks run the model on the same eight batches; one all_reduce of two numbers ends the step.",
    answer="evaluate goes over all eight batches in each rank, so all is predicted twice; give each rank half of them "
    "(DistributedSampler, or batches[rank::world]) and all_reduce the sums.",
    names=("evaluate", "both ranks", "each rank", "Forecaster", "all ranks", "same batches"),
    actions=("DistributedSampler", "half", "split", "shard", "rank::world", "divide", "share of the", "own part",
             "between the ranks", "among the ranks", "distribute"),
)
def distributed_whole_evaluation(mended, rank, world):
    width, length, horizon, rows, count = 256, 96, 24, 128, 8

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(4 * length, width), nn.ReLU(), nn.Linear(width, 2 * width), nn.ReLU(),
                nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, horizon),
            )

        def forward(self, series):
            return self.layers(series.flatten(1))

    model = Forecaster().eval()
    batches = list(zip(torch.randn(count, rows, length, 4), torch.randn(count, rows, horizon)))

    @torch.inference_mode()
    def evaluate():
        sums = torch.zeros(2)
        for series, future in batches[rank::world] if mended else batches:
            wrong = model(series) - future
            sums += torch.stack([wrong.abs().sum(), wrong.square().sum()])
        dist.all_reduce(sums)
        return sums / (count * rows * horizon * (1 if mended else world))

    return evaluate


@case(
    id="distributed-gathers-hidden",
    round=18,
    domain="language",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Both layers of a split feed-forward part are cut by columns, so the wide hidden vectors are gathered "
    "between them.",
    symptom="gloo:all_gather of [1024, 512] behind each first layer, more bytes than all else that is sent.",
    answer="SplitFeed gathers its hidden [1024, 512] from both ranks before the second layer; cut the second layer by "
    "rows, so each rank uses its own half of the hidden vectors, and all_reduce the [1024, 96] results.",
    names=("all_gather", "SplitFeed", "allgather", "aten::cat", "hidden"),
    actions=("by rows", "row", "all_reduce", "reduce", "partial sum", "local half", "own half", "without gather",
             "not gather", "Megatron", "fewer bytes", "smaller", "inputs of the second", "once a block"),
)
def distributed_gathers_hidden(mended, rank, world):
    width, hidden, tokens, depth = 96, 1024, 1024, 3

    def joined(part):
        parts = [torch.empty_like(part) for _ in range(world)]
        dist.all_gather(parts, part)
        return torch.cat(parts, 1)

    class SplitFeed(nn.Module):
        def __init__(self):
            super().__init__()
            first, second = torch.randn(hidden, width) / width**0.5, torch.randn(width, hidden) / hidden**0.5
            self.register_buffer("first", first.chunk(world)[rank].clone())
            self.register_buffer("second", second.chunk(world, 1 if mended else 0)[rank].clone())

        def forward(self, x):
            inner = F.relu(F.linear(x, self.first))
            if mended:
                out = F.linear(inner, self.second)
                dist.all_reduce(out)
                return out
            return joined(F.linear(joined(inner), self.second))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
            self.feeds = nn.ModuleList([SplitFeed() for _ in range(depth)])

        def forward(self, x):
            for norm, feed in zip(self.norms, self.feeds):
                x = x + feed(norm(x))
            return x

    model, words = Encoder().eval(), torch.randn(tokens, width)

    @torch.inference_mode()
    def encode():
        return model(words).square()

    return encode
