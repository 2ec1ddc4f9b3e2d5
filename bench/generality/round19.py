# SPDX-License-Identifier: Apache-2.0
"""Round 19: the larger side, the longer way, and more data than a step needs."""

import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-pyramid-from-full",
    round=19,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A loss on seven scales makes each from the full image, not from the scale before it.",
    symptom="avg_pool2d reads [6, 3, 256, 256] seven times for each batch, with kernels 2 to "
    "128; its backward writes as much each time.",
    answer="pyramid pools the full image once for each scale, with ever larger kernels; halve the "
    "scale before instead (avg_pool2d with kernel 2 seven times), which gives the same numbers "
    "from a quarter of the pixels at each scale.",
    names=("avg_pool2d", "AvgPool2D", "pyramid", "pooling"),
    actions=("scale before", "previous scale", "previous level", "level before", "successive",
             "from the last", "halve", "cascade", "reuse", "kernel 2", "by two each", "by 2 each",
             "progressive", "iterative", "recursive", "coarser from", "one after the other",
             "previous"),
)
def vision_pyramid_from_full(mended):
    images, side, levels = 6, 256, 7

    class Enlarger(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 48, 1), nn.PixelShuffle(4)
            )

        def forward(self, small):
            return self.layers(small)

    def pyramid(image):
        scales = []
        for level in range(1, levels + 1):
            if mended:
                image = F.avg_pool2d(image, 2)
                scales.append(image)
            else:
                scales.append(F.avg_pool2d(image, 2**level))
        return scales

    model = Enlarger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    sharp = torch.rand(images, 3, side, side)
    small = F.avg_pool2d(sharp, 4)

    def train_step():
        optimizer.zero_grad()
        loss = 0
        for made, wanted in zip(pyramid(model(small)), pyramid(sharp)):
            loss = loss + F.l1_loss(made, wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-muon-larger-side",
    round=19,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="A Muon optimizer makes tall gradients orthogonal through products of their larger side.",
    symptom="aten::mm of [512, 512] by [512, 512] and [384, 384] by [384, 384] in the optimizer, "
    "where the gradients are [512, 128] and [384, 128].",
    answer="orthogonalise forms x @ x.T of gradients with more rows than columns, so its products "
    "are 512 x 512 where 128 x 128 would do; transpose a tall gradient before the iteration and "
    "transpose the result back.",
    names=("orthogonalise", "Muon", "aten::mm", "aten::matmul", "512, 512", "Newton"),
    actions=("transpose", "smaller side", "shorter side", "smaller dimension", "x.T @ x",
             "128 x 128", "128x128", "[128, 128]", "small side", "other side", "smaller gram",
             "fewer rows", "smaller matri"),
)
def language_muon_larger_side(mended):
    width, heads, depth, words, rows, length = 128, 4, 2, 600, 6, 32

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up = nn.Linear(width, 4 * width, bias=False)
            self.down = nn.Linear(4 * width, width, bias=False)

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids):
            return self.head(self.norm(self.blocks(self.table(ids))))

    def orthogonalise(gradient, rounds=5):
        tall = mended and gradient.shape[0] > gradient.shape[1]
        x = gradient.t() if tall else gradient
        x = x / (x.norm() + 1e-7)
        for _ in range(rounds):
            gram = x @ x.t()
            x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
        return x.t() if tall else x

    class Muon(torch.optim.Optimizer):
        def __init__(self, weights, lr=0.02, momentum=0.95):
            super().__init__(weights, dict(lr=lr, momentum=momentum))

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for weight in group["params"]:
                    state = self.state[weight]
                    if not state:
                        state["moving"] = torch.zeros_like(weight)
                    state["moving"].lerp_(weight.grad, 1 - group["momentum"])
                    weight.sub_(orthogonalise(state["moving"]), alpha=group["lr"])

    model = Writer()
    matrices = [weight for weight in model.blocks.parameters() if weight.dim() == 2]
    others = [weight for name, weight in model.named_parameters()
              if weight.dim() == 1 or not name.startswith("blocks")]
    muon, adam = Muon(matrices), torch.optim.AdamW(others, lr=1e-3, fused=True)
    ids = torch.randint(words, (rows, length + 1))

    def train_step():
        muon.zero_grad()
        adam.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        muon.step()
        adam.step()
        return loss

    return train_step


@case(
    id="audio-ratio-not-reduced",
    round=19,
    domain="audio",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True),
    cause="Sounds are resampled from 4800 to 3200 (tens of hertz); the ratio is not reduced to 3 "
    "by 2, so the filter bank has 3200 phases of 4800 taps.",
    symptom="conv1d of [8, 1, 52820] with weights [3200, 1, 4820] and stride 4800 in Resampler.",
    answer="Resampler builds its filters for the rates as given: 3,200 filters of 4,820 taps "
    "with stride 4800. Divide both rates by their greatest common divisor (1600): two filters of "
    "some 20 taps with stride 3 give the same sound.",
    names=("Resampler", "resampl", "conv1d", "convolution", "[3200, 1,"),
    actions=("gcd", "common divisor", "reduce the ratio", "reduced ratio", "3 to 2", "3:2", "2/3",
             "3/2", "lowest terms", "2 filters", "two filters", "fewer phases", "fewer filters",
             "shorter filter", "simplif", "reduce the rates", "polyphase", "common factor",
             "smaller kernel", "shorter kernel"),
)
def audio_ratio_not_reduced(mended):
    clips, length, bands, tags = 8, 48_000, 40, 30

    class Resampler(nn.Module):
        def __init__(self, old, new, lobes=6, rolloff=0.99):
            super().__init__()
            shared = math.gcd(old, new) if mended else 1
            self.old, self.new = old // shared, new // shared
            base = min(self.old, self.new) * rolloff
            self.width = math.ceil(lobes * self.old / base)
            taps = torch.arange(-self.width, self.width + self.old, dtype=torch.float64)
            phases = torch.arange(0, -self.new, -1, dtype=torch.float64)
            t = (phases[:, None] / self.new + taps / self.old) * base
            t = t.clamp(-lobes, lobes)
            filters = torch.sinc(t) * (t * math.pi / lobes / 2).cos().square() * base / self.old
            self.register_buffer("filters", filters.float()[:, None])

        def forward(self, sounds):
            padded = F.pad(sounds[:, None], (self.width, self.width + self.old))
            made = F.conv1d(padded, self.filters, stride=self.old)
            return made.transpose(1, 2).flatten(1)[:, : sounds.shape[1] * self.new // self.old]

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(512))
            self.register_buffer("mel", torch.rand(bands, 257) / 257)
            self.layers = nn.Sequential(
                nn.Conv1d(bands, 64, 5, 2, 2), nn.ReLU(), nn.Conv1d(64, 64, 5, 2, 2), nn.ReLU(),
            )
            self.head = nn.Linear(64, tags)

        def forward(self, sounds):
            spectra = torch.stft(sounds, 512, 256, window=self.window, return_complex=True)
            power = torch.view_as_real(spectra).square().sum(-1)
            return self.head(self.layers((self.mel @ power + 1e-5).log()).mean(2))

    resampler, model = Resampler(4800, 3200), Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    sounds, labels = torch.randn(clips, length), torch.randint(tags, (clips,))

    def train_step():
        optimizer.zero_grad()
        with torch.no_grad():
            resampled = resampler(sounds)
        loss = F.cross_entropy(model(resampled), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-parallel-edges",
    round=19,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="The graph is a log of 160,000 messages among 200 people, and each message is an edge of "
    "its own: the same few thousand pairs occur again and again.",
    symptom="index_select and index_add of [160000, 32] among 200 nodes, which have 40,000 pairs "
    "at most.",
    answer="Layer spreads features along 160,000 edges though 200 nodes have only 40,000 pairs: "
    "most edges are repeats. Merge parallel edges once (coalesce or unique with counts) and "
    "multiply by the count, or use one 200 x 200 matrix.",
    names=("index_add", "index_select", "160000", "160,000", "Layer"),
    actions=("merge", "coalesce", "unique", "count", "weight", "duplicate", "parallel edges",
             "repeated edges", "dense matrix", "200 x 200", "adjacency matrix", "[200, 200]",
             "matrix product", "dedup", "multiplicit"),
)
def graph_parallel_edges(mended):
    people, pairs, messages, width = 200, 4000, 160_000, 32

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(width, width), nn.Linear(width, width, bias=False)

        def forward(self, h):
            sent = self.other(h).index_select(0, source)
            if mended:
                sent = sent * counts
            return self.own(h) + torch.zeros_like(h).index_add(0, target, sent) / messages * people

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(), Layer()
            self.leave = nn.Linear(width, 5)

        def forward(self, features):
            return self.leave(F.relu(self.second(F.relu(self.first(features)))))

    known = torch.randint(people, (2, pairs))
    edges, counts = known[:, torch.randint(pairs, (messages,))], None
    if mended:
        edges, counts = edges.unique(dim=1, return_counts=True)
        counts = counts.float()[:, None]
    source, target = edges
    model = Network()
    features, labels = torch.randn(people, width), torch.randint(5, (people,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-als-whole-catalogue",
    round=19,
    domain="recommenders",
    mode="training",
    profile=Profile(record_shapes=True, profile_memory=True),
    cause="Alternating least squares weighs the whole catalogue anew for each user, though the "
    "weight differs from one for the 30 items the user has seen alone.",
    symptom="aten::mul gives [96, 8000, 32], and aten::bmm of [96, 32, 8000] by [96, 8000, 32] "
    "follows.",
    answer="The Gram matrix of each user is summed over all 8,000 items; compute the Gram matrix "
    "of the catalogue once for all users and add to it the 30 items of each user alone, gathered "
    "by index.",
    names=("aten::bmm", "bmm", "[96, 8000, 32]", "96, 8000", "aten::mul", "8000", "8,000"),
    actions=("once for all users", "shared gram", "gram matrix of", "seen items", "only the items",
             "items seen", "seen alone", "sparse", "gather", "observed", "interacted", "nonzero",
             "non-zero", "once and add", "common gram", "history", "precompute"),
)
def recommender_als_whole_catalogue(mended):
    users, items, width, seen, trust, penalty = 96, 8000, 32, 30, 20.0, 0.1

    catalogue = torch.randn(items, width) / width**0.5
    histories = torch.rand(users, items).topk(seen).indices

    def normal_equations():
        if mended:
            rows = catalogue[histories]
            grams = catalogue.t() @ catalogue + trust * rows.transpose(1, 2) @ rows
            return grams, (1 + trust) * rows.sum(1)
        wanted = torch.zeros(users, items).scatter_(1, histories, 1.0)
        confidence = 1 + trust * wanted
        weighted = confidence[:, :, None] * catalogue
        return weighted.transpose(1, 2) @ catalogue, (confidence * wanted) @ catalogue

    @torch.no_grad()
    def update_users():
        grams, sums = normal_equations()
        grams.diagonal(dim1=1, dim2=2).add_(penalty)
        factors = torch.cholesky_solve(sums[:, :, None], torch.linalg.cholesky(grams))
        return factors.square().sum(1).sqrt()

    return update_users


@case(
    id="science-general-solve-of-factor",
    round=19,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    cause="A Gaussian process solves with its Cholesky factors through torch.linalg.solve, which "
    "factorises the triangular matrices again by LU.",
    symptom="aten::linalg_cholesky is followed by three times aten::linalg_solve of [800, 800] "
    "(linalg_lu_factor), each dearer than the Cholesky.",
    answer="predict calls torch.linalg.solve on the triangular factor, three LU factorisations of "
    "800 x 800; use torch.linalg.solve_triangular (or cholesky_solve), which need no "
    "factorisation.",
    names=("linalg_solve", "linalg.solve", "lu_factor", "linalg_lu", "_linalg_solve_ex",
           "lu_solve"),
    actions=("solve_triangular", "cholesky_solve", "triangular", "substitution"),
)
def science_general_solve_of_factor(mended):
    known, asked, inputs = 800, 60, 4

    places, values = torch.rand(known, inputs).double(), torch.randn(known, 1).double()
    wanted = torch.rand(asked, inputs).double()

    def kernel(one, other, scale):
        return (-torch.cdist(one, other).square() / (2 * scale**2)).exp()

    def solve(factor, right, upper=False):
        if mended:
            return torch.linalg.solve_triangular(factor, right, upper=upper)
        return torch.linalg.solve(factor, right)

    def predict(scale):
        gram = kernel(places, places, scale)
        gram.diagonal().add_(0.1)
        factor = torch.linalg.cholesky(gram)
        across = kernel(places, wanted, scale)
        weights = solve(factor.t(), solve(factor, values), upper=True)
        spread = 1.1 - solve(factor, across).square().sum(0)
        return across.t() @ weights, spread

    @torch.inference_mode()
    def evaluate():
        mean, spread = predict(0.3)
        return mean.square().mean() + spread.mean()

    return evaluate


@case(
    id="generative-whole-image-each-pixel",
    round=19,
    domain="generative",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, steps=2),
    cause="A masked convolutional model draws pixel after pixel and runs on the whole image for "
    "each, though a pixel depends on the few rows around it.",
    symptom="conv2d of [2, 32, 20, 20] runs for each of 60 pixels; aten::select takes one pixel of "
    "the output.",
    answer="draw runs the network on the whole 20 x 20 image to get one pixel; run it on the crop "
    "that the receptive field covers (5 x 9 pixels), or keep the features of earlier rows.",
    names=("convolution", "conv2d", "20, 20", "whole image", "PixelNetwork", "draw"),
    actions=("crop", "receptive field", "patch", "neighbourhood", "neighborhood", "window",
             "cache", "keep the features", "only the pixel", "region", "incremental", "reuse"),
)
def generative_whole_image_each_pixel(mended):
    images, side, rows, width, tones, reach = 2, 20, 3, 32, 16, 4

    class MaskedConvolution(nn.Conv2d):
        def __init__(self, inputs, outputs, size, centre):
            super().__init__(inputs, outputs, size, padding=size // 2)
            with torch.no_grad():
                self.weight[:, :, size // 2, size // 2 + centre:] = 0
                self.weight[:, :, size // 2 + 1:] = 0

    class PixelNetwork(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                MaskedConvolution(1, width, 5, 0), nn.ReLU(), MaskedConvolution(width, width, 3, 1),
                nn.ReLU(), MaskedConvolution(width, width, 3, 1), nn.ReLU(),
                nn.Conv2d(width, tones, 1),
            )

        def forward(self, image):
            return self.layers(image)

    model, given = PixelNetwork().eval(), torch.rand(images, 1, side, side)

    def tones_at(image, i, j):
        if mended:
            top, left = max(0, i - reach), max(0, j - reach)
            crop = image[:, :, top : i + 1, left : j + reach + 1]
            return model(crop)[:, :, i - top, j - left]
        return model(image)[:, :, i, j]

    @torch.inference_mode()
    def draw():
        image = given.clone()
        image[:, :, -rows:] = 0
        for i in range(side - rows, side):
            for j in range(side):
                tone = torch.multinomial(tones_at(image, i, j).softmax(1), 1)
                image[:, :, i, j] = tone / (tones - 1)
        return image[:, :, -rows:]

    return draw


@case(
    id="tabular-builtin-sum",
    round=19,
    domain="tabular",
    mode="training",
    profile=Profile(record_shapes=True, steps=2),
    cause="The loss of 2,400 rows is added up by the sum of Python, one row at a time.",
    symptom="aten::unbind of [2400] is followed by 2,400 aten::add of single numbers, and as many "
    "AddBackward0 in the backward.",
    answer="Python's sum goes over the tensor of 2,400 losses and adds one number at a time; "
    "take losses.sum() or losses.mean(): one op forward and one backward.",
    names=("aten::add", "unbind", "AddBackward", "sum()"),
    actions=("torch.sum", ".sum()", ".mean()", "torch.mean", "aten::sum", "one reduction",
             "single reduction", "one op", "vectori", "tensor's sum", "sum of the tensor",
             "at once", "reduce the tensor", "one sum"),
)
def tabular_builtin_sum(mended):
    columns, width, batch = 48, 192, 2400

    class Regressor(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, 1),
            )

        def forward(self, table):
            return self.layers(table)[:, 0]

    model = Regressor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    table, wanted = torch.randn(batch, columns), torch.randn(batch)

    def train_step():
        optimizer.zero_grad()
        losses = F.smooth_l1_loss(model(table), wanted, reduction="none")
        loss = losses.sum() / batch if mended else sum(losses) / batch
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-hmm-log-space",
    round=19,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A hidden Markov model adds a table of log transitions to each row of log states and "
    "takes logsumexp, where a matrix product of scaled numbers would do.",
    symptom="aten::add and aten::logsumexp of [32, 96, 96] for each of 31 moments, and their "
    "backward.",
    answer="advance makes [32, 96, 96] and takes logsumexp at each moment: 300,000 exponentials; "
    "subtract the maximum of each row, take exp of the 96 states, multiply by the transition "
    "matrix (matmul) and take the log.",
    names=("logsumexp", "advance", "[32, 96, 96]", "32, 96, 96"),
    actions=("matmul", "matrix product", "matrix multipl", "scaled", "subtract the max",
             "mm", "probability space", "linear space", "gemm", "normalis", "normaliz"),
)
def timeseries_hmm_log_space(mended):
    batch, length, states, inputs, width = 32, 32, 96, 8, 64

    class Markov(nn.Module):
        def __init__(self):
            super().__init__()
            self.emit = nn.Sequential(
                nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, states)
            )
            self.start = nn.Parameter(torch.randn(states))
            self.moves = nn.Parameter(torch.randn(states, states))

        def advance(self, state, moves):
            if mended:
                top = state.detach().amax(1, keepdim=True)
                return ((state - top).exp() @ moves).log() + top
            return (state[:, :, None] + moves).logsumexp(1)

        def forward(self, series):
            emitted, moves = self.emit(series).unbind(1), self.moves.log_softmax(1)
            if mended:
                moves = moves.exp()
            state = self.start.log_softmax(0) + emitted[0]
            for likely in emitted[1:]:
                state = self.advance(state, moves) + likely
            return state.logsumexp(1)

    model, series = Markov(), torch.randn(batch, length, inputs)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def train_step():
        optimizer.zero_grad()
        loss = -model(series).mean() / length
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-frozen-in-reduce",
    round=19,
    domain="language",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Adapters are trained in a frozen model, but the average of gradients includes zeros for "
    "all frozen weights.",
    symptom="aten::zeros_like of each frozen weight, aten::cat of 4 million numbers and "
    "gloo:all_reduce of them, where the backward gives some 80,000 gradients.",
    answer="average_gradients fills the gradients of frozen weights with zeros and sends them to "
    "the other rank; reduce the gradients of the adapters alone.",
    names=("average_gradients", "all_reduce", "allreduce", "zeros_like", "aten::cat"),
    actions=("adapters alone", "only the adapters", "trainable", "requires_grad", "skip frozen",
             "skip the frozen", "leave out", "leave the frozen", "only the gradients",
             "exclude", "without the frozen", "only gradients", "that have a gradient",
             "DistributedDataParallel", "DDP", "fewer bytes", "only what"),
)
def distributed_frozen_in_reduce(mended, rank, world):
    width, words, rows, length, rank_of = 320, 6000, 2, 24, 8

    class Adapted(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.base = nn.Linear(inputs, outputs).requires_grad_(False)
            self.down = nn.Linear(inputs, rank_of, bias=False)
            self.up = nn.Linear(rank_of, outputs, bias=False)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width).requires_grad_(False)
            self.layers = nn.ModuleList(
                [nn.Sequential(Adapted(width, 4 * width), nn.GELU(), Adapted(4 * width, width))
                 for _ in range(3)]
            )
            self.head = nn.Linear(width, 12)

        def forward(self, ids):
            x = self.table(ids)
            for layer in self.layers:
                x = x + layer(F.layer_norm(x, (width,)))
            return self.head(x)

    model = Tagger()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    chosen = trained if mended else list(model.parameters())
    optimizer = torch.optim.AdamW(trained, lr=1e-3, fused=True)
    ids = torch.randint(words, (world, rows, length))[rank]
    tags = torch.randint(12, (world, rows, length))[rank]

    @torch.no_grad()
    def average_gradients():
        found = [torch.zeros_like(w) if w.grad is None else w.grad for w in chosen]
        flat = torch.cat([gradient.flatten() for gradient in found])
        dist.all_reduce(flat)
        flat.div_(world)
        for weight, part in zip(chosen, flat.split([w.numel() for w in chosen])):
            if weight.grad is not None:
                weight.grad.copy_(part.view_as(weight))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten())
        loss.backward()
        average_gradients()
        optimizer.step()
        return loss

    return train_step
