# SPDX-License-Identifier: Apache-2.0
"""Round 17: work on things that did not change, checks that stayed, and formulas at the wrong grain."""

import collections

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-video-window-again",
    round=17,
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="An action recogniser runs its backbone on the last 12 frames for each new frame; 11 of them were seen "
    "before.",
    symptom="Convolutions of Backbone run on [12, 3, 64, 64] for each of four new frames.",
    answer="watch stacks the last 12 frames and runs the backbone on all of them for each new frame; run it on the new "
    "frame alone and keep the features of the other eleven in the window.",
    names=("Backbone", "backbone", "watch", "convolution", "conv2d", "[12, 3, 64, 64]", "12 frames", "frames"),
    actions=("new frame", "keep the features", "cache", "features of the", "one frame", "each frame once", "reuse",
             "only the last frame", "store the features", "buffer of features", "store its features", "incremental"),
)
def vision_video_window_again(mended):
    window, fresh, width = 12, 4, 96

    class Backbone(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 1, 1), nn.ReLU(),
                nn.Conv2d(48, width, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            )

        def forward(self, frames):
            return self.layers(frames)

    class Recogniser(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = Backbone()
            self.time = nn.Sequential(nn.Conv1d(width, 128, 3, padding=1), nn.ReLU(), nn.Conv1d(128, 128, 3), nn.ReLU())
            self.head = nn.Linear(128, 30)

        def forward(self, features):
            return self.head(self.time(features.t()[None]).mean(2))

    model = Recogniser().eval()
    clip, camera = torch.randn(window - 1, 3, 64, 64), torch.randn(fresh, 3, 64, 64)
    last = collections.deque(clip, maxlen=window)
    if mended:
        with torch.inference_mode():
            last = collections.deque(model.backbone(clip), maxlen=window)

    def watch(frame):
        if mended:
            last.append(model.backbone(frame[None])[0])
            return model(torch.stack(tuple(last)))
        last.append(frame)
        return model(model.backbone(torch.stack(tuple(last))))

    @torch.inference_mode()
    def recognise():
        return torch.cat([watch(frame) for frame in camera]).softmax(1).square()

    return recognise


@case(
    id="language-repetition-penalty-loop",
    round=17,
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="The penalty for repetition goes over the words of each sequence in Python and changes one score at a time.",
    symptom="Hundreds of aten::select, aten::lt with aten::is_nonzero (item) and aten::div of one number a token.",
    answer="penalise loops over the set of earlier words of each sequence and tests and scales each score with ops of "
    "its own; gather the scores of all earlier words, scale them with where, and scatter them back.",
    names=("penalise", "aten::select", "is_nonzero", "aten::item", "_local_scalar_dense", "aten::div", "aten::lt",
           "aten::copy_"),
    actions=("gather", "scatter", "torch.where", "where", "vectori", "at once", "without a loop", "one op",
             "index_put", "batch", "whole tensor", "instead of the loop", "no loop", "out of the loop"),
)
def language_repetition_penalty_loop(mended):
    width, heads, depth, words, rows, prompt, tokens, penalty = 128, 4, 2, 1500, 3, 36, 5, 1.2

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x, keys, values, past):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            end = past + x.shape[1]
            keys[:, :, past:end], values[:, :, past:end] = k, v
            mixed = F.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end], is_causal=past == 0)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.blocks = nn.ModuleList([Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids, caches, past):
            x = self.table(ids)
            for block, (keys, values) in zip(self.blocks, caches):
                x = block(x, keys, values, past)
            return self.head(self.norm(x[:, -1:]))[:, -1]

    def penalise(scores, ids):
        if mended:
            found = scores.gather(1, ids)
            return scores.scatter(1, ids, torch.where(found < 0, found * penalty, found / penalty))
        for row in range(rows):
            for word in set(ids[row].tolist()):
                if scores[row, word] < 0:
                    scores[row, word] *= penalty
                else:
                    scores[row, word] /= penalty
        return scores

    model, asked = Writer().eval(), torch.randint(words, (rows, prompt))
    caches = [torch.empty(2, rows, heads, prompt + tokens, width // heads) for _ in range(depth)]

    @torch.inference_mode()
    def generate():
        ids, past = asked, 0
        for _ in range(tokens):
            scores = penalise(model(ids[:, past:], caches, past), ids)
            past = ids.shape[1]
            ids = torch.cat([ids, scores.argmax(1, keepdim=True)], 1)
        return scores.square()

    return generate


@case(
    id="audio-teacher-each-epoch",
    round=17,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A small tagger is distilled from a large one, which is run on the same unchanged clips in every epoch.",
    symptom="Forward of Teacher, without gradients, takes longer than forward and backward of Student.",
    answer="train_step runs the frozen teacher on clips that are the same in each epoch; compute its outputs once for "
    "the data set, store them, and read them with the batch.",
    names=("Teacher", "teacher"),
    actions=("once", "store", "precompute", "cache", "in advance", "beforehand", "keep its output", "ahead of training",
             "before training", "save its outputs", "offline"),
)
def audio_teacher_each_epoch(mended):
    bands, frames, tags, batch, clips = 64, 100, 40, 12, 48

    class Teacher(nn.Module):
        def __init__(self):
            super().__init__()
            layers, width = [], 1
            for wider in (32, 64, 128):
                layers += [nn.Conv2d(width, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
                width = wider
            self.layers, self.head = nn.Sequential(*layers), nn.Linear(width, tags)

        def forward(self, sounds):
            return self.head(self.layers(sounds[:, None]).mean((2, 3)))

    class Student(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(bands, 96, 5, 2, 2), nn.ReLU(), nn.Conv1d(96, 96, 5, 2, 2), nn.ReLU(),
                nn.Conv1d(96, 96, 5, 2, 2), nn.ReLU(),
            )
            self.head = nn.Linear(96, tags)

        def forward(self, sounds):
            return self.head(self.layers(sounds).mean(2))

    teacher, student = Teacher().eval().requires_grad_(False), Student()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3, fused=True)
    sounds, at = torch.randn(clips, bands, frames), [0]
    with torch.no_grad():
        stored = teacher(sounds)

    def train_step():
        rows = slice(at[0], at[0] + batch)
        at[0] = (at[0] + batch) % clips
        if mended:
            wanted = stored[rows]
        else:
            with torch.no_grad():
                wanted = teacher(sounds[rows])
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(student(sounds[rows]), (wanted / 2).sigmoid())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-negatives-from-dense",
    round=17,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Link prediction lists all pairs of nodes without an edge in each step, to draw some of them as negatives.",
    symptom="aten::nonzero of [2200, 2200] gives 4.8 million pairs; 9,000 are drawn.",
    answer="draw_negatives compares a dense adjacency matrix with zero and calls nonzero on it in each step, which "
    "lists all 4.8 million missing edges; draw random pairs and drop the few that are edges, or list the missing edges "
    "once.",
    names=("nonzero", "draw_negatives", "2200", "aten::eq", "adjacency", "aten::where"),
    actions=("random pairs", "randint", "draw pairs", "sample pairs", "negative_sampling", "reject", "once",
             "precompute", "in advance", "out of the step", "outside the step", "hoist", "cache", "keep", "directly",
             "without the dense", "without a dense", "store"),
    same_result=False,  # other negatives are drawn
)
def graph_negatives_from_dense(mended):
    nodes, edges, width = 2200, 9000, 64

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(width, width), nn.Linear(width, width, bias=False)

        def forward(self, h):
            spread = torch.zeros_like(h).index_add(0, target, self.other(h).index_select(0, source))
            return self.own(h) + spread / 4

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(), Layer()

        def forward(self, features):
            return self.second(F.relu(self.first(features)))

    source, target = torch.randint(nodes, (2, edges))
    features = torch.randn(nodes, width)
    adjacency = torch.zeros(nodes, nodes)
    adjacency[source, target] = 1
    keys = (source * nodes + target).sort().values
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def draw_negatives():
        if mended:
            drawn = torch.randint(nodes * nodes, (edges,))
            place = torch.searchsorted(keys, drawn).clamp_(max=edges - 1)
            drawn = drawn[keys[place] != drawn]
            return drawn // nodes, drawn % nodes
        missing = (adjacency == 0).nonzero()
        return missing[torch.randint(len(missing), (edges,))].t()

    def train_step():
        optimizer.zero_grad()
        h = model(features)
        right = (h[source] * h[target]).sum(1)
        one, other = draw_negatives()
        wrong = (h[one] * h[other]).sum(1)
        loss = F.softplus(-right).mean() + F.softplus(wrong).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-seen-items-isin",
    round=17,
    domain="recommenders",
    mode="inference",
    profile=Profile(record_shapes=True, with_modules=True),
    cause="Items that a user has seen are excluded by testing all 20,000 items against the history of each user.",
    symptom="aten::isin of [20000] and [40] runs 96 times a step, with masked_fill_ behind each.",
    answer="For each of 96 users, isin compares all 20,000 items with the 40 items of the history; write minus "
    "infinity at the places of the histories with one scatter_ (or index_put_) for all users.",
    names=("isin", "masked_fill", "20000", "20,000", "aten::any", "aten::eq"),
    actions=("scatter", "index_put", "index_fill", "by index", "with the ids", "with the indices", "vectori", "at once",
             "all users", "without isin", "without a loop", "one op", "batch"),
)
def recommender_seen_items_isin(mended):
    users, items, width, seen = 96, 20_000, 64, 40

    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.EmbeddingBag(items, width, mode="mean")
            self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

        def forward(self, histories):
            return self.layers(self.table(histories))

    model, catalogue = Tower().eval(), torch.randn(items, width)
    every, histories = torch.arange(items), torch.randint(items, (users, seen))

    def exclude(scores, histories):
        if mended:
            return scores.scatter_(1, histories, -torch.inf)
        for row, history in zip(scores, histories):
            row.masked_fill_(torch.isin(every, history), -torch.inf)
        return scores

    @torch.inference_mode()
    def recommend():
        scores = model(histories) @ catalogue.t()
        return exclude(scores, histories).topk(10).values

    return recommend


@case(
    id="science-finite-differences",
    round=17,
    domain="science",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=2),
    cause="A simulation is fitted by central differences: it runs 25 times for the gradient of twelve parameters.",
    symptom="simulate runs 25 times a step, and no backward runs.",
    answer="gradient moves each of twelve parameters up and down and runs the whole simulation for both; all its ops "
    "are differentiable, so take the gradient of all parameters with one backward.",
    names=("simulate", "gradient", "differences", "aten::roll", "25 times", "25 "),
    actions=("autograd", "backward", "one backward", "requires_grad", "automatic differentiation", "adjoint", "vmap",
             "batch", "all at once", "at once", "in parallel"),
)
def science_finite_differences(mended):
    side, steps, count, small = 112, 8, 12, 1e-4

    start, bumps = torch.rand(side, side, dtype=torch.float64), torch.randn(count, side, side, dtype=torch.float64)
    bumps = F.avg_pool2d(bumps, 9, 1, 4)
    rates = torch.full((count,), 0.1, dtype=torch.float64)

    def simulate(rates):
        field, medium = start, 0.1 + 0.1 * torch.tensordot(rates, bumps, 1)
        for _ in range(steps):
            around = field.roll(1, 0) + field.roll(-1, 0) + field.roll(1, 1) + field.roll(-1, 1) - 4 * field
            field = field + medium * around + 0.01 * field * (1 - field)
        return field

    seen = simulate(torch.randn(count, dtype=torch.float64))

    def misfit(rates):
        return (simulate(rates) - seen).square().mean()

    def gradient(rates):
        if mended:
            rates = rates.clone().requires_grad_()
            loss = misfit(rates)
            return loss.detach(), torch.autograd.grad(loss, rates)[0]
        moves = small * torch.eye(count, dtype=torch.float64)
        slopes = [(misfit(rates + move) - misfit(rates - move)) / (2 * small) for move in moves]
        return misfit(rates), torch.stack(slopes)

    def fit():
        loss, slope = gradient(rates)
        rates.sub_(slope, alpha=0.05)
        return loss * 1e3

    return fit


@case(
    id="generative-power-iterations",
    round=17,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="The discriminator's spectral norms take 15 power iterations in each forward; one is enough in training.",
    symptom="aten::mv of [256, 2048] and its transpose and F.normalize run 30 times a layer and forward.",
    answer="_SpectralNorm with n_power_iterations=15 multiplies each weight by vectors 30 times in each forward; the "
    "vectors are kept between the steps, so one iteration (the default) follows the weight.",
    names=("SpectralNorm", "spectral_norm", "aten::mv", "power", "_power_method", "normalize", "linalg_vector_norm"),
    actions=("one iteration", "n_power_iterations", "fewer", "1 iteration", "default", "single iteration",
             "a single power", "one power", "less iterations", "once per step", "once a step"),
    same_result=False,  # the norms are estimated a little less exactly
)
def generative_power_iterations(mended):
    from torch.nn.utils.parametrizations import spectral_norm

    images, code = 4, 48

    def limited(layer):
        return spectral_norm(layer, n_power_iterations=1 if mended else 15)

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                limited(nn.Conv2d(3, 64, 4, 2, 1)), nn.LeakyReLU(0.2), limited(nn.Conv2d(64, 128, 4, 2, 1)),
                nn.LeakyReLU(0.2), limited(nn.Conv2d(128, 256, 4, 2, 1)), nn.LeakyReLU(0.2), nn.Flatten(),
            )
            self.head = limited(nn.Linear(256 * 16, 1))

        def forward(self, images):
            return self.head(self.layers(images))

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(code, 96 * 16)
            self.layers = nn.Sequential(
                nn.ConvTranspose2d(96, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1),
                nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh(),
            )

        def forward(self, codes):
            return self.layers(self.enter(codes).unflatten(1, (96, 4, 4)))

    made_by, judge = Generator(), Discriminator()
    first = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.0, 0.9), fused=True)
    second = torch.optim.Adam(made_by.parameters(), lr=2e-4, betas=(0.0, 0.9), fused=True)
    real = torch.rand(images, 3, 32, 32) * 2 - 1

    def train_step():
        codes = torch.randn(images, code)
        first.zero_grad()
        loss = F.relu(1 - judge(real)).mean() + F.relu(1 + judge(made_by(codes).detach())).mean()
        loss.backward()
        first.step()
        judge.requires_grad_(False)
        second.zero_grad()
        (-judge(made_by(codes)).mean()).backward()
        second.step()
        judge.requires_grad_(True)
        return loss

    return train_step


@case(
    id="timeseries-warping-cells",
    round=17,
    domain="time series",
    mode="training",
    profile=Profile(record_shapes=True, steps=2),
    cause="Soft dynamic time warping fills its table cell by cell in Python: 196 cells, and autograd follows each.",
    symptom="aten::stack, aten::logsumexp and aten::add of [32] run 196 times a step, and their backward as often.",
    answer="The loss is a recursion over the 14 x 14 cells of a table, each with ops on 32 numbers; cells of one "
    "anti-diagonal do not depend on each other: compute a diagonal at a time (27 steps), or use a compiled kernel with "
    "its own backward.",
    names=("logsumexp", "aten::stack", "StackBackward", "aten::select", "SelectBackward", "aten::cat"),
    actions=("diagonal", "vectori", "larger op", "at once", "compiled kernel", "custom kernel", "C++", "numba",
             "fuse", "torch.compile", "batch", "fewer, larger", "autograd.Function", "own backward"),
)
def timeseries_warping_cells(mended):
    width, length, horizon, batch, soft, far = 96, 96, 14, 32, 0.1, 1e6

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(4, width, 5, 2, 2), nn.ReLU(), nn.Conv1d(width, width, 5, 2, 2), nn.ReLU(), nn.Flatten(),
                nn.Linear(width * length // 4, horizon),
            )

        def forward(self, series):
            return self.layers(series)

    lags = torch.arange(2 * horizon - 1) - torch.arange(horizon)[:, None]
    inside = (lags >= 0) & (lags < horizon)
    lags = lags.clamp(0, horizon - 1)

    def soft_min(values):
        return -soft * torch.logsumexp(-values / soft, 0)

    def warping(costs):
        if mended:
            skewed = costs.gather(2, lags.expand(len(costs), -1, -1)).masked_fill(~inside, far)
            before, last = torch.full_like(skewed[:, :, 0], far), skewed[:, :, 0]
            for at in range(1, 2 * horizon - 1):
                up, across = (F.pad(other[:, :-1], (1, 0), value=far) for other in (last, before))
                before, last = last, skewed[:, :, at] + soft_min(torch.stack([last, up, across]))
            return last[:, -1]
        outside, table = costs.new_full((len(costs),), far), {}
        for i in range(horizon):
            for j in range(horizon):
                near = [table.get(place, outside) for place in ((i, j - 1), (i - 1, j), (i - 1, j - 1))]
                table[i, j] = costs[:, i, j] + (soft_min(torch.stack(near)) if i or j else 0)
        return table[horizon - 1, horizon - 1]

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    series, future = torch.randn(batch, 4, length), torch.randn(batch, horizon)

    def train_step():
        optimizer.zero_grad()
        costs = (model(series)[:, :, None] - future[:, None]).square()
        loss = warping(costs).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-norm-gathers-rows",
    round=17,
    domain="tabular",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A norm over the rows of both ranks gathers all rows to compute their mean and variance.",
    symptom="gloo:all_gather of [1536, 384] in each CrossRankNorm, with aten::cat and aten::var_mean behind it.",
    answer="CrossRankNorm sends all activations to the other rank, to take a mean and a variance of each column; "
    "all_reduce the sums and the sums of squares (768 numbers) instead.",
    names=("all_gather", "CrossRankNorm", "allgather", "var_mean", "aten::cat"),
    actions=("sums", "all_reduce", "sum of squares", "squares", "statistics", "partial", "mean and variance of each",
             "local mean", "moments", "reduce", "only the", "SyncBatchNorm", "fewer bytes", "smaller"),
)
def distributed_norm_gathers_rows(mended, rank, world):
    rows, width, depth = 1536, 384, 3

    class CrossRankNorm(nn.Module):
        def forward(self, x):
            if mended:
                sums = torch.stack([x.sum(0), x.square().sum(0)])
                dist.all_reduce(sums)
                mean, square = sums / (world * len(x))
                spread = square - mean.square()
            else:
                parts = [torch.empty_like(x) for _ in range(world)]
                dist.all_gather(parts, x)
                spread, mean = torch.var_mean(torch.cat(parts), 0, correction=0)
            scale = (spread + 1e-5).rsqrt()
            return torch.addcmul(-mean * scale, x, scale)

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(64, width), nn.Linear(width, 1)
            self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
            self.norms = nn.ModuleList([CrossRankNorm() for _ in range(depth)])

        def forward(self, x):
            x = self.enter(x)
            for layer, norm in zip(self.layers, self.norms):
                x = F.relu(norm(layer(x)))
            return self.leave(x)

    model, table = Scorer().eval(), torch.randn(world, rows, 64)
    table = table[rank]

    @torch.inference_mode()
    def score():
        return model(table).sigmoid()

    return score


@case(
    id="distributed-check-in-sync",
    round=17,
    domain="language",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A check from the day of debugging gathers all weights in each step, to see that both ranks have the same.",
    symptom="gloo:all_gather of 1.9 million numbers and aten::equal after each optimizer step.",
    answer="check_in_sync gathers the weights of both ranks and compares them after each step, though DDP keeps them "
    "the same; drop it, or run it every thousand steps, or compare a checksum.",
    names=("check_in_sync", "all_gather", "allgather", "aten::equal", "aten::cat"),
    actions=("drop", "remove", "less often", "every thousand", "every few", "every n", "once an epoch", "per epoch",
             "checksum", "hash", "debug", "rarely", "not in each step", "out of the step", "fewer"),
)
def distributed_check_in_sync(mended, rank, world):
    width, words, rows, length = 256, 2000, 8, 24

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.layers = nn.Sequential(
                *[part for _ in range(3) for part in (nn.Linear(width, 2 * width), nn.ReLU(),
                                                      nn.Linear(2 * width, width), nn.LayerNorm(width))],
            )
            self.head = nn.Linear(width, 20)

        def forward(self, ids):
            return self.head(self.layers(self.table(ids)))

    model = nn.parallel.DistributedDataParallel(Tagger())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids, tags = torch.randint(words, (world, rows, length)), torch.randint(20, (world, rows, length))
    ids, tags = ids[rank], tags[rank]

    @torch.no_grad()
    def check_in_sync():
        mine = torch.cat([weight.flatten() for weight in model.parameters()])
        every = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(every, mine)
        if not torch.equal(every[0], every[1]):
            raise RuntimeError("the ranks have different weights")

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten())
        loss.backward()
        optimizer.step()
        if not mended:
            check_in_sync()
        return loss

    return train_step
