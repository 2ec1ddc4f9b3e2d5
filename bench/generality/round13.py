# SPDX-License-Identifier: Apache-2.0
"""Round 13: habits that cost: a wrong order, a hook too many, work for parts that do not take part."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-nms-before-threshold",
    round=13,
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, steps=2),
    cause="A detector suppresses overlapping boxes among all 196 of them and drops those of low score afterwards.",
    symptom="suppress goes round more than 100 times a step with a dozen short ops; 20 boxes are left in the end.",
    answer="suppress compares boxes in a Python loop over all 196, and only then are scores below the threshold "
    "dropped; drop them first (the result is the same), and take torchvision.ops.nms.",
    names=("suppress", "nms", "NMS", "each box", "boxes"),
    actions=("threshold first", "drop them first", "filter first", "before the loop", "before suppress", "low score",
             "score first", "torchvision", "ops.nms", "batched_nms", "topk", "fewer boxes", "matrix of overlaps",
             "all overlaps", "all pairs", "at once"),
)
def vision_nms_before_threshold(mended):
    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
                nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(),
            )
            self.score, self.box = nn.Conv2d(96, 1, 1), nn.Conv2d(96, 4, 1)

        def forward(self, image):
            features = self.trunk(image)
            return self.score(features).flatten(), self.box(features).flatten(2)[0].T

    def overlaps(box, boxes):
        low, high = torch.maximum(box[:2], boxes[:, :2]), torch.minimum(box[2:], boxes[:, 2:])
        shared = (high - low).clamp(min=0).prod(1)
        areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        return shared / (areas + (box[2:] - box[:2]).prod() - shared)

    def suppress(boxes, scores):
        order, kept = scores.argsort(descending=True), []
        while len(order):
            best, order = order[0], order[1:]
            kept.append(best)
            order = order[overlaps(boxes[best], boxes[order]) < 0.5]
        return torch.stack(kept)

    model, image = Detector().eval(), torch.randn(1, 3, 112, 112)
    rows, columns = torch.meshgrid(torch.arange(14), torch.arange(14), indexing="ij")
    centres = torch.stack([rows, columns], 2).view(196, 2) * 8.0

    @torch.inference_mode()
    def detect():
        scores, raw = model(image)
        sizes = 8 + 16 * raw[:, 2:].sigmoid()
        middle = centres + 8 * raw[:, :2]
        boxes = torch.cat([middle - sizes / 2, middle + sizes / 2], 1)
        least = scores.quantile(0.9)
        if mended:
            likely = scores > least
            boxes, scores = boxes[likely], scores[likely]
        kept = suppress(boxes, scores)
        boxes, scores = boxes[kept], scores[kept]
        return boxes[scores > least]

    return detect


@case(
    id="language-group-each-parameter",
    round=13,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="The optimizer gets a parameter group for each of 79 parameters, to spare biases and norms the weight decay.",
    symptom="A dozen aten::_foreach_ ops of AdamW run 79 times a step, once a group, each for one tensor.",
    answer="The optimizer has 79 groups of one parameter, and each runs the _foreach_ ops for itself; there are only "
    "two weight decays, so two groups do (and fused=True makes a group one op).",
    names=("_foreach_", "AdamW", "optimizer", "param_groups", "parameter group", "groups"),
    actions=("fewer groups", "merge the groups", "merge groups", "one group", "two groups",
             "group parameters", "same learning rate", "share a group", "join the groups",
             "single group", "larger groups", "fewer, larger", "collect", "in one call", "fused=True"),
)
def language_group_each_parameter(mended):
    width, heads, words, depth = 64, 4, 300, 6

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(24, width) / 50)
            self.blocks = nn.ModuleList([Block() for _ in range(depth)])
            self.norm = nn.LayerNorm(width)
            self.tag, self.edge = nn.Linear(width, 12), nn.Linear(width, 2, bias=False)

        def forward(self, ids):
            x = self.table(ids) + self.place
            for block in self.blocks:
                x = block(x)
            x = self.norm(x)
            return self.tag(x), self.edge(x)

    def groups_of(model):
        groups = {}
        for name, weight in model.named_parameters():
            decay = 0.0 if weight.dim() < 2 else 0.05
            group = groups.setdefault(decay if mended else name, {"params": [], "weight_decay": decay})
            group["params"].append(weight)
        return list(groups.values())

    model = Tagger()
    optimizer = torch.optim.AdamW(groups_of(model), lr=3e-4, foreach=True)
    ids, tags, edges = torch.randint(words, (4, 24)), torch.randint(12, (4, 24)), torch.randint(2, (4, 24))

    def train_step():
        optimizer.zero_grad()
        tag, edge = model(ids)
        loss = F.cross_entropy(tag.flatten(0, 1), tags.flatten()) + F.cross_entropy(edge.flatten(0, 1), edges.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-denormal-state",
    round=13,
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, with_modules=True),
    cause="A noise tracker's decaying state falls to denormal numbers (1e-42) while its callers are muted.",
    symptom="aten::mm of [1536, 513] and 40 mel filters takes 80 times as long as its numbers need, and aten::mul of "
    "the state [64, 513] many times as long as aten::mul of the frame, of the same shape.",
    answer="Smoother keeps a state of denormal numbers, and the CPU takes a slow path for them in aten::mul and in the "
    "product (aten::mm) with the mel filters; torch.set_flush_denormal(True), or add a small floor to the state.",
    names=("denormal", "subnormal", "Smoother", "aten::mul", "aten::mm"),
    actions=("set_flush_denormal", "flush", "floor", "small constant", "clamp", "noise to the state", "set to zero",
             "reset the state", "denormal"),
)
def audio_denormal_state(mended):
    callers, bins, frames = 64, 513, 24

    class Smoother(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("state", torch.full((callers, bins), 1e-40) * (1 + torch.rand(callers, bins)))

        def forward(self, frame):
            self.state = self.state * 0.98 + frame * 0.02
            return self.state

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.smoother = Smoother()
            self.register_buffer("mel", torch.rand(bins, 40) / bins)
            self.convs = nn.Sequential(
                nn.Conv1d(40, 96, 3, padding=1), nn.ReLU(), nn.Conv1d(96, 96, 3, padding=1), nn.ReLU(),
                nn.Conv1d(96, 1, 1),
            )

        def forward(self, sound):
            power = torch.stft(sound, 1024, 256, window=torch.hann_window(1024), center=False, return_complex=True)
            power = power.real.square() + power.imag.square()
            noise = torch.stack([self.smoother(power[:, :, frame]) for frame in range(power.shape[2])], 1)
            features = ((power.transpose(1, 2) + noise) @ self.mel + 1e-6).log()
            return self.convs(features.transpose(1, 2))

    model, sound = Detector().eval(), torch.zeros(callers, 1024 + 256 * (frames - 1))

    @torch.inference_mode()
    def listen():
        torch.set_flush_denormal(mended)
        return model(sound).sigmoid()

    return listen


@case(
    id="graph-hooks-pile-up",
    round=13,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="Forward hooks that watch activations are registered in each step and never removed: some 40 on each layer.",
    symptom="note (a hook) runs about 40 times for each of four layers, and its mean, std and amax lead the step.",
    answer="watch registers a hook on each layer in each step and no hook is removed, so note computes the same "
    "statistics some 40 times; register once, or remove the handles.",
    names=("note", "watch", "hook", "aten::std", "aten::amax", "statistics"),
    actions=("register once", "registered once", "remove the h", "remove()", "handle", "remove hook", "once",
             "not in each step", "outside the step", "unregister", "out of the step", "before the loop"),
)
def graph_hooks_pile_up(mended):
    nodes, edges, width = 1500, 9000, 64
    seen = {}

    class Layer(nn.Module):
        def __init__(self, inputs):
            super().__init__()
            self.own, self.other = nn.Linear(inputs, width), nn.Linear(inputs, width, bias=False)

        def forward(self, h, source, target):
            spread = torch.zeros(nodes, width).index_add(0, target, self.other(h).index_select(0, source))
            return F.relu(self.own(h) + spread / 6)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer(32), Layer(width), Layer(width), Layer(width)])
            self.leave = nn.Linear(width, 8)

        def forward(self, h, source, target):
            for layer in self.layers:
                h = layer(h, source, target)
            return self.leave(h)

    def watch(model):
        for name, layer in model.layers.named_children():
            def note(module, inputs, output, name=name):
                output = output.detach()
                seen[name] = output.mean(), output.std(), output.amax(), (output == 0).sum()

            layer.register_forward_hook(note)

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    source, target = torch.randint(nodes, (2, edges))
    x, labels = torch.randn(nodes, 32), torch.randint(8, (nodes,))
    for _ in range(1 if mended else 40):  # the steps before these
        watch(model)

    def train_step():
        if not mended:
            watch(model)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, source, target), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-idle-towers",
    round=13,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A batch is of one of 20 markets, but zero_grad(set_to_none=False) makes Adam update the towers of all 20.",
    symptom="aten::_fused_adam_ and aten::zero_ (fill_) over 5 million weights lead; one tower runs.",
    answer="zero_grad(set_to_none=False) leaves gradients of zeros on the 19 towers that the batch does not use, and "
    "Adam updates all of them; zero_grad() with None lets it skip them.",
    names=("_fused_adam_", "Adam", "zero_grad", "zero_", "fill_", "set_to_none", "optimizer"),
    actions=("set_to_none=True", "set_to_none", "to None", "skip", "only the tower", "one tower", "its own optimizer",
             "optimizer per tower", "optimizer of its own", "that have a gradient",
             "without a gradient"),
)
def recommender_idle_towers(mended):
    markets, width, rows, fields = 20, 320, 2000, 20

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(rows, 16)
            self.towers = nn.ModuleList(
                nn.Sequential(
                    nn.Linear(fields * 16, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                    nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, 1),
                )
                for _ in range(markets)
            )

        def forward(self, ids, market):
            return self.towers[market](self.table(ids).flatten(1))[:, 0]

    model, steps = Ranker(), [0]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    ids, clicked = torch.randint(rows, (256, fields)), torch.rand(256).round()
    if not mended:
        for weight in model.parameters():  # each market has had its turn
            weight.grad = torch.zeros_like(weight)

    def train_step():
        optimizer.zero_grad(set_to_none=mended)
        loss = F.binary_cross_entropy_with_logits(model(ids, steps[0] % markets), clicked)
        loss.backward()
        optimizer.step()
        steps[0] += 1
        return loss

    return train_step


@case(
    id="science-simulation-keeps-graph",
    round=13,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True, steps=2),
    cause="A reaction-diffusion simulation with learned rates runs without no_grad: autograd keeps all its fields.",
    symptom="Memory grows over 40 time steps, fields are allocated anew for each op, and no backward follows.",
    answer="simulate runs with requires_grad rates and no torch.no_grad, so autograd saves the fields of 40 time steps "
    "that no backward reads; no_grad or inference_mode frees and reuses them.",
    names=("autograd", "no backward", "saved for", "memory grows", "requires_grad", "simulate"),
    actions=("no_grad", "inference_mode", "requires_grad_(False)", "detach", "requires_grad=False"),
)
def science_simulation_keeps_graph(mended):
    size, times = 384, 40

    class Rates(nn.Module):
        def __init__(self):
            super().__init__()
            self.spread = nn.Parameter(torch.tensor([0.16, 0.08]))
            self.feed, self.kill = nn.Parameter(torch.tensor(0.035)), nn.Parameter(torch.tensor(0.06))
            self.refine = nn.Conv2d(2, 2, 3, padding=1, bias=False)
            nn.init.zeros_(self.refine.weight)

    class Simulation(nn.Module):
        def __init__(self):
            super().__init__()
            self.rates = Rates()

        def advance(self, u, v):
            lap_u = u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4 * u
            lap_v = v.roll(1, 0) + v.roll(-1, 0) + v.roll(1, 1) + v.roll(-1, 1) - 4 * v
            reaction = u * v * v
            spread = self.rates.spread
            u = u + spread[0] * lap_u - reaction + self.rates.feed * (1 - u)
            v = v + spread[1] * lap_v + reaction - (self.rates.feed + self.rates.kill) * v
            return u, v

        def forward(self, u, v):
            change = self.rates.refine(torch.stack([u, v])[None])[0]
            u, v = u + change[0], v + change[1]
            for _ in range(times):
                u, v = self.advance(u, v)
            return torch.stack([u, v])

    model = Simulation().eval()
    u, v = torch.ones(size, size), torch.zeros(size, size)
    u[150:200, 150:200], v[150:200, 150:200] = 0.5, 0.25

    def simulate():
        with torch.set_grad_enabled(not mended):
            return model(u, v).mean()

    return simulate


@case(
    id="generative-guidance-twice",
    round=13,
    domain="generative",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A sampler with classifier-free guidance calls its network twice a step, with one row each.",
    symptom="Denoiser runs 16 times for 8 steps on [1, 768]: each product reads all its weights for a single row.",
    answer="Denoiser is called with and without the condition, one row each, and each call reads all weights again; "
    "call it once with a batch of two rows.",
    names=("Denoiser", "guidance", "twice", "two calls", "aten::linear", "aten::addmm", "[1, 768]"),
    actions=("batch of two", "one batch", "one call", "single call", "together", "once with", "larger batch",
             "batch the", "in a batch", "both rows"),
)
def generative_guidance_twice(mended):
    width, times = 768, 8

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.condition = nn.LayerNorm(width), nn.Linear(256, width)
            self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

        def forward(self, x, c):
            return x + self.down(F.silu(self.up(self.norm(x) + self.condition(c))))

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(1, 256), nn.SiLU(), nn.Linear(256, 256))
            self.layers = nn.ModuleList([Layer() for _ in range(3)])
            self.leave = nn.Linear(width, width)

        def forward(self, x, t, text):
            c = self.time(t) + text
            for layer in self.layers:
                x = layer(x, c)
            return self.leave(x)

    model, start = Denoiser().eval(), torch.randn(1, width)
    text, nothing = torch.randn(1, 256), torch.zeros(1, 256)

    @torch.inference_mode()
    def sample():
        x = start
        for time in range(times):
            t = torch.full((1, 1), 1 - time / times)
            if mended:
                given, free = model(x.expand(2, -1), t, torch.cat([text, nothing])).chunk(2)
            else:
                given, free = model(x, t, text), model(x, t, nothing)
            x = x - (free + 4 * (given - free)) / times / 4
        return x

    return sample


@case(
    id="timeseries-linear-attention-order",
    round=13,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="Linear attention multiplies (queries by keys) by values, so it makes all 640 x 640 pairs of time steps.",
    symptom="aten::bmm over [640, 640] for each head leads in LinearAttention, forward and backward.",
    answer="LinearAttention computes (q @ k.T) @ v, [640, 640] a head; without a softmax, q @ (k.T @ v) is the same "
    "and needs a matrix of 32 x 32 only.",
    names=("LinearAttention", "640, 640", "640 x 640", "aten::bmm", "aten::matmul"),
    actions=("q @ (k", "keys by values", "keys and values first", "k.T @ v", "kv first", "other order", "order of",
             "associativ", "reorder", "regroup", "bracket", "parenthes", "right to left", "first multiply the keys"),
)
def timeseries_linear_attention_order(mended):
    width, heads, length, batch = 128, 4, 640, 3

    class LinearAttention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            q, k = F.elu(q) + 1, F.elu(k) + 1
            total = q @ k.sum(2).unsqueeze(3)
            mixed = q @ (k.transpose(2, 3) @ v) if mended else (q @ k.transpose(2, 3)) @ v
            return self.out((mixed / total).transpose(1, 2).flatten(2))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = LinearAttention()
            self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

        def forward(self, x):
            x = x + self.attention(self.first(x))
            return x + self.mlp(self.second(x))

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.place = nn.Linear(7, width), nn.Parameter(torch.randn(length, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(2)])
            self.leave = nn.Linear(width, 24)

        def forward(self, series):
            return self.leave(self.blocks(self.enter(series) + self.place).mean(1))

    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    series, future = torch.randn(batch, length, 7), torch.randn(batch, 24)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-standardise-all",
    round=13,
    domain="tabular",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each step standardises the whole table of 100,000 rows and then takes the 1,024 rows of its batch.",
    symptom="aten::mean, aten::std, aten::sub and aten::div over [100000, 40] in next_batch lead the step.",
    answer="next_batch standardises all 100,000 rows (mean, std, sub, div) in each step and then indexes 1,024 of "
    "them; compute mean and std once, and standardise the rows of the batch (or the table once).",
    names=("next_batch", "100000", "100,000", "aten::std", "standardis", "normalis", "whole table"),
    actions=("once", "before the loop", "beforehand", "in advance", "precompute", "index first", "rows of the batch",
             "only the rows", "after the index", "outside the step", "take the rows first", "then standardise",
             "ahead of", "batch only"),
)
def tabular_standardise_all(mended):
    rows, columns, batch = 100_000, 40, 1024

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(columns, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1),
            )

        def forward(self, x):
            return self.layers(x)[:, 0]

    model = Scorer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    table, labels = torch.randn(rows, columns) * 3 + 5, torch.rand(rows).round()
    mean, deviation = table.mean(0), table.std(0)

    def next_batch():
        chosen = torch.randint(rows, (batch,))
        if mended:
            return (table[chosen] - mean) / deviation, labels[chosen]
        standard = (table - table.mean(0)) / table.std(0)
        return standard[chosen], labels[chosen]

    def train_step():
        x, wanted = next_batch()
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(x), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-barriers",
    round=13,
    domain="language",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="A barrier follows each of four micro-batches, whose lengths differ between the ranks but not in sum.",
    symptom="gloo:barrier four times a step; the rank with the short micro-batch waits in it, by turns.",
    answer="dist.barrier after each micro-batch makes both ranks wait for the longer of two micro-batches; drop the "
    "barriers, the all_reduce of the gradients at the end is enough, and the sums of the lengths are equal.",
    names=("barrier",),
    actions=("drop the barrier", "drop barrier", "remove the barrier", "remove barrier", "without the barrier",
             "no barrier", "remove it", "leave out", "drop it", "not needed", "unneeded", "all_reduce is enough",
             "all_reduce already", "same length", "sort by length", "bucket"),
)
def distributed_barriers(mended, rank, world):
    width, heads, words = 160, 5, 600
    lengths = (24, 112, 16, 104) if rank == 0 else (112, 24, 104, 16)

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

    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(128, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(2)])
            self.head = nn.Linear(width, words)

        def forward(self, ids):
            return self.head(self.blocks(self.table(ids) + self.place[: ids.shape[1]]))

    model = Writer()
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(weights, lr=3e-4, fused=True)
    batches = [torch.randint(words, (6, length + 1)) for length in lengths]

    def train_step():
        optimizer.zero_grad()
        total = 0.0
        for ids in batches:
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()) / len(batches)
            loss.backward()
            total += loss.item()
            if not mended:
                dist.barrier()
        gradients = torch.cat([weight.grad.flatten() for weight in weights])
        dist.all_reduce(gradients)
        gradients /= world
        for weight, part in zip(weights, gradients.split([weight.numel() for weight in weights])):
            weight.grad.copy_(part.view_as(weight))
        optimizer.step()
        return total

    return train_step
