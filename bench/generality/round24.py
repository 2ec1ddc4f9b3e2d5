# SPDX-License-Identifier: Apache-2.0
"""Round 24: dtypes and layouts of habit, stores of the wrong form, and noise for all ranks."""

import pickle

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-numpy-double-pixels",
    round=24,
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=3),
    cause="Pictures are scaled and normalised one by one in numpy, which makes float64 of uint8; "
    "the tensors are cast to float32 behind.",
    symptom="prepare takes most of a step with few ops in it; aten::to copies double to float.",
    answer="prepare divides uint8 pictures in numpy, which computes in float64 and interleaved "
    "channels, and casts the stack to float32 at the end; take the batch as one uint8 tensor, "
    "permute, and normalise in float32 (or inside the first layer).",
    names=("prepare", "numpy", "float64", "double", "aten::_to_copy", "aten::to", "normalis"),
    actions=("float32", "uint8 tensor", "from_numpy", "in torch", "one tensor", "whole batch",
             "single precision", "np.float32", "astype", "batched", "fold", "worker",
             "num_workers", "first layer", "first convolution", "as tensors", "at once"),
)
def vision_numpy_double_pixels(mended):
    images, side, width, kinds = 16, 112, 24, 20

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, width, 8, 8), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(),
                nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(),
                nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, kinds),
            )

        def forward(self, x):
            return self.layers(x)

    model = Classifier().eval()
    drawn = torch.randint(256, (images, side, side, 3), dtype=torch.uint8).numpy()
    pictures = list(drawn)
    mean, spread = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    scale = torch.tensor(1 / (255 * spread), dtype=torch.float32)[:, None, None]
    shift = torch.tensor(-mean / spread, dtype=torch.float32)[:, None, None]

    def prepare(pictures):
        if mended:
            batch = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
            return torch.addcmul(shift, batch.float(), scale)
        tensors = []
        for picture in pictures:
            picture = picture / 255.0
            picture = (picture - mean) / spread
            tensors.append(torch.tensor(picture.transpose(2, 0, 1)))
        return torch.stack(tensors).float()

    @torch.inference_mode()
    def classify():
        return model(prepare(pictures)).softmax(1).square()

    return classify


@case(
    id="language-autocast-each-token",
    round=24,
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, steps=2),
    cause="Autocast is entered anew for each token, so all weights are cast to bfloat16 for each "
    "token: the cache of casts ends with the context.",
    symptom="aten::to, _to_copy and aten::copy_ of weights [1152, 384] and [1536, 384] before each "
    "linear layer, dearer than the layers on four rows.",
    answer="next_token enters autocast for each token, and the float32 weights are cast to "
    "bfloat16 again and again; enter it once around the loop so that the casts are kept, or keep "
    "the model in bfloat16 (model.bfloat16()).",
    names=("autocast", "aten::_to_copy", "aten::to", "aten::copy_", "next_token", "casts"),
    actions=("once around", "around the loop", "outside the loop", "out of the loop", "bfloat16()",
             "model.to(", "to(torch.bfloat16", "weights in bfloat16", "convert the model",
             "convert the weights", "cast the weights once", "cast once", "keep the model in",
             "cache", "without autocast", "whole loop", "disable autocast", "ahead of time",
             "hoist", "pre-cast", "in advance"),
)
def language_autocast_each_token(mended):
    width, heads, depth, words, rows, prompt, tokens = 384, 6, 2, 1200, 4, 24, 5

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x, keys, values, past):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            end = past + x.shape[1]
            keys[:, :, past:end], values[:, :, past:end] = k, v
            mixed = F.scaled_dot_product_attention(
                q, keys[:, :, :end], values[:, :, :end], is_causal=past == 0
            )
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

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
            return self.head(self.norm(x[:, -1]))

    model, asked = Writer().eval(), torch.randint(words, (rows, prompt))
    caches = [
        torch.zeros(2, rows, heads, prompt + tokens, width // heads, dtype=torch.bfloat16)
        for _ in range(depth)
    ]

    def next_token(ids, past):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(ids, caches, past)

    def write():
        ids, past = asked, 0
        for _ in range(tokens):
            scores = next_token(ids, past)
            past += ids.shape[1]
            ids = scores.argmax(1, keepdim=True)
        return scores.float().softmax(1).square()

    @torch.no_grad()
    def generate():
        if mended:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return write()
        return write()

    return generate


@case(
    id="audio-negatives-gathered-vectors",
    round=24,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    cause="A contrastive loss over frames gathers the vectors of 40 negatives for each frame and "
    "takes the cosine of each pair, where one product of all frames has them all.",
    symptom="aten::gather (or index) gives [4, 100, 40, 64]; cosine_similarity and its backward "
    "work on [4, 100, 41, 64].",
    answer="contrast copies 40 vectors of 64 numbers for each frame and normalises them again in "
    "cosine_similarity; normalise each frame once, take one batched product [4, 100, 100], and "
    "gather 41 scores of it by index.",
    names=("contrast", "cosine_similarity", "aten::index", "4, 100, 41, 64", "negatives",
           "IndexBackward", "index_put", "4, 100, 40, 64"),
    actions=("matmul", "bmm", "batched product", "one product", "gather the scores", "scores first",
             "normalise once", "normalize once", "all pairs", "100 x 100", "100, 100", "@",
             "similarity matrix", "gather from the", "before the gather", "once per frame"),
)
def audio_negatives_gathered_vectors(mended):
    clips, frames, bands, width, wrong = 4, 100, 64, 64, 40

    class Context(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(bands, 128)
            self.layer = nn.Conv1d(128, 128, 9, padding=4)
            self.leave, self.target = nn.Linear(128, width), nn.Linear(bands, width)

        def forward(self, sounds):
            seen = self.enter(sounds).relu().transpose(1, 2)
            seen = self.layer(seen).relu().transpose(1, 2)
            return self.leave(seen), self.target(sounds)

    model, sounds = Context(), torch.randn(clips, frames, bands)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    clip, own = torch.arange(clips)[:, None, None], torch.arange(frames)[None, :, None]

    def contrast(seen, wanted, drawn):
        places = torch.cat([own.expand(clips, -1, -1), drawn], 2)
        if mended:
            pairs = F.normalize(seen, dim=2) @ F.normalize(wanted, dim=2).transpose(1, 2)
            scores = pairs.gather(2, places)
        else:
            chosen = wanted[clip, places]
            scores = F.cosine_similarity(seen[:, :, None], chosen, dim=3)
        return -(scores / 0.1).log_softmax(2)[:, :, 0].mean()

    def train_step():
        drawn = (own + torch.randint(1, frames, (clips, frames, wrong))) % frames
        optimizer.zero_grad()
        loss = contrast(*model(sounds), drawn)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-same-sensors-as-edges",
    round=24,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="All samples share one graph of 120 sensors, but a batch repeats its 1,500 edges for "
    "each of 24 samples and moves messages edge by edge.",
    symptom="aten::index_select gives [36000, 32] and aten::index_add takes it, in each layer and "
    "in the backward.",
    answer="The batch is one large graph of 24 copies of the same 1,500 edges; index_select and "
    "index_add move 36,000 messages a layer. Keep one 120 x 120 adjacency matrix and multiply it "
    "by features [24, 120, 32]: a dense batched product.",
    names=("index_select", "index_add", "36000", "36,000", "SensorLayer", "edges", "copies"),
    actions=("adjacency", "matmul", "dense", "bmm", "120 x 120", "120x120", "batched product",
             "one graph", "share the graph", "same graph", "spmm", "sparse product", "einsum",
             "csr", "sparse.mm"),
)
def graph_same_sensors_as_edges(mended):
    samples, sensors, edges, past, width, depth = 24, 120, 1500, 12, 32, 3

    one, other = torch.randint(sensors, (2, edges))
    weights = torch.rand(edges) / 10
    source = (torch.arange(samples)[:, None] * sensors + one).flatten()
    target = (torch.arange(samples)[:, None] * sensors + other).flatten()
    repeated = weights.repeat(samples)[:, None]
    adjacency = torch.zeros(sensors, sensors).index_put((other, one), weights, accumulate=True)

    class SensorLayer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.near = nn.Linear(width, width), nn.Linear(width, width, bias=False)

        def forward(self, h):
            sent = self.near(h)
            if mended:
                seen = adjacency @ sent
            else:
                sent = sent.flatten(0, 1)
                messages = sent.index_select(0, source) * repeated
                seen = torch.zeros_like(sent).index_add(0, target, messages).view_as(h)
            return F.relu(self.own(h) + seen)

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(past, width)
            self.layers = nn.Sequential(*[SensorLayer() for _ in range(depth)])
            self.leave = nn.Linear(width, past)

        def forward(self, seen):
            return self.leave(self.layers(self.enter(seen)))

    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    seen, future = torch.randn(2, samples, sensors, past)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(seen), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-pickled-vectors",
    round=24,
    domain="recommenders",
    mode="inference",
    profile=Profile(with_stack=True, steps=2),
    cause="A store keeps the vector of each item as a pickled tensor of its own; a request loads "
    "48 of them one by one.",
    symptom="fetch calls pickle.loads and torch.load 48 times; few ops run until aten::stack.",
    answer="fetch unpickles a tensor for each of 48 candidates, some hundred Python calls each; "
    "store plain float32 bytes (or one table in memory) and make one tensor of the joined bytes by "
    "torch.frombuffer or np.frombuffer.",
    names=("fetch", "pickle", "torch.load", "_load_from_bytes", "serialization", "loads",
           "_rebuild_tensor", "unpickl"),
    actions=("frombuffer", "plain bytes", "raw bytes", "one table", "in memory", "cache",
             "one tensor", "embedding",
             "memmap", "memory-map", "one blob", "preload", "load once", "numpy", "at start",
             "all at once", "index_select", "single read"),
)
def recommender_pickled_vectors(mended):
    items, width, candidates = 400, 64, 48

    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                nn.Linear(256, 1),
            )

        def forward(self, user, vectors):
            return self.layers(torch.cat([user.expand_as(vectors), vectors], 1))[:, 0]

    model, user = Ranker().eval(), torch.randn(width)
    vectors = torch.randn(items, width)
    if mended:
        store = {item: vector.numpy().tobytes() for item, vector in enumerate(vectors)}
    else:
        store = {item: pickle.dumps(vector.clone()) for item, vector in enumerate(vectors)}
    wanted = torch.randperm(items)[:candidates].tolist()

    def fetch(ids):
        if mended:
            joined = bytearray(b"".join([store[item] for item in ids]))
            return torch.frombuffer(joined, dtype=torch.float32).view(-1, width)
        return torch.stack([pickle.loads(store[item]) for item in ids])

    @torch.inference_mode()
    def rank():
        return model(user, fetch(wanted)).sigmoid().topk(10).values

    return rank


@case(
    id="science-stencil-by-roll",
    round=24,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    cause="The Laplacian of a reaction and diffusion on a grid adds up eight torch.roll of the "
    "field; each roll copies it, the diagonal ones twice.",
    symptom="aten::roll with aten::cat and narrow copies [2, 192, 192] twelve times a time step.",
    answer="laplacian makes eight rolled copies of the fields in each time step; pad the fields "
    "once (circular) and add eight views by slices, or add neighbours along rows, then along "
    "columns.",
    names=("aten::roll", "laplacian", "torch.roll", "aten::cat", "roll"),
    actions=("pad", "slices", "views", "halo", "ghost", "slicing", "separab", "along rows",
             "triton", "torch.compile", "narrow views"),
)
def science_stencil_by_roll(mended):
    side, times = 192, 8

    fields = torch.rand(2, side, side)
    spread = torch.tensor([0.16, 0.08])[:, None, None]
    places = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    parts = {0: -3.0, 1: 0.5, 2: 0.25}
    readout = nn.Conv2d(2, 8, 4, 4)

    def laplacian(field):
        if mended:
            wide = F.pad(field[None], (1, 1, 1, 1), mode="circular")[0]
            inner, first, last = slice(1, -1), slice(None, -2), slice(2, None)
            sides = wide[:, first, inner] + wide[:, last, inner]
            sides += wide[:, inner, first]
            sides += wide[:, inner, last]
            corners = wide[:, first, first] + wide[:, first, last]
            corners += wide[:, last, first]
            corners += wide[:, last, last]
            return (parts[0] * field).add_(sides, alpha=parts[1]).add_(corners, alpha=parts[2])
        total = parts[0] * field
        for a, b in places:
            if a or b:
                total = total + parts[abs(a) + abs(b)] * torch.roll(field, (a, b), (1, 2))
        return total

    @torch.inference_mode()
    def simulate():
        field = fields
        for _ in range(times):
            u, v = field
            made = u * v * v
            change = torch.stack([0.035 * (1 - u) - made, made - 0.1 * v])
            field = field + spread * laplacian(field) + change
        return readout(field[None]).square()

    return simulate


@case(
    id="generative-normal-per-component",
    round=24,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True, steps=2),
    cause="The loss of a mixture of 16 normals makes a distribution object for each component in a "
    "Python loop and takes its log_prob by itself.",
    symptom="log_prob of Normal runs 16 times a step, with its checks (aten::all, is_nonzero) and "
    "some ten small ops each, and as many nodes of the backward.",
    answer="mixture_loss builds 16 Normal objects one after another, each with checks of arguments "
    "and small ops; build one Normal of shape [192, 16, 16] (MixtureSameFamily) and take log_prob "
    "once for all components.",
    names=("mixture_loss", "log_prob", "Normal", "distributions", "component", "is_nonzero"),
    actions=("MixtureSameFamily", "broadcast", "all components", "one Normal", "at once",
             "vectori", "batched", "one log_prob", "single log_prob", "without the loop",
             "no loop", "out of the loop", "single distribution", "one distribution",
             "validate_args"),
)
def generative_normal_per_component(mended):
    rows, size, width, components = 192, 16, 96, 16

    class Density(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, width))
            self.weights = nn.Linear(width, components)
            self.centres = nn.Linear(width, components * size)
            self.widths = nn.Linear(width, components * size)

        def forward(self, past):
            h = self.layers(past).relu()
            centres = self.centres(h).view(rows, components, size)
            widths = F.softplus(self.widths(h)).view(rows, components, size) + 1e-2
            return self.weights(h).log_softmax(1), centres, widths

    model = Density()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    past, following = torch.randn(2, rows, size)

    def mixture_loss(weights, centres, widths):
        if mended:
            normal = torch.distributions.Normal(centres, widths)
            chances = weights + normal.log_prob(following[:, None]).sum(2)
        else:
            chances = []
            for k in range(components):
                normal = torch.distributions.Normal(centres[:, k], widths[:, k])
                chances.append(weights[:, k] + normal.log_prob(following).sum(1))
            chances = torch.stack(chances, 1)
        return -chances.logsumexp(1).mean()

    def train_step():
        optimizer.zero_grad()
        loss = mixture_loss(*model(past))
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-members-one-by-one",
    round=24,
    domain="tabular",
    mode="inference",
    profile=Profile(with_modules=True, record_shapes=True, steps=2),
    cause="An ensemble of 64 small networks of one shape answers a request of 16 rows member by "
    "member.",
    symptom="Some 260 aten::linear of [16, 48] and [16, 40] a step, each of some microseconds, and "
    "aten::stack of 64 results.",
    answer="64 members of one shape run one after another on 16 rows, so that calls cost more than "
    "products; stack their weights and run all by one baddbmm a layer (torch.func.stack_module_"
    "state with vmap).",
    names=("aten::linear", "aten::addmm", "member", "ensemble", "64", "Member", "ModuleList"),
    actions=("baddbmm", "bmm", "vmap", "stack the weights", "stack_module_state", "batched",
             "one product", "grouped", "einsum", "stack their weights", "at once", "together",
             "CUDA graph", "torch.compile", "distil"),
)
def tabular_members_one_by_one(mended):
    members, rows, columns, width = 64, 16, 48, 40

    class Member(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(columns, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1),
            )

        def forward(self, x):
            return self.layers(x)[:, 0]

    class Ensemble(nn.Module):
        def __init__(self):
            super().__init__()
            self.members = nn.ModuleList([Member() for _ in range(members)])

        def forward(self, x):
            return torch.stack([member(x) for member in self.members])

    class Stacked(nn.Module):
        def __init__(self, ensemble):
            super().__init__()
            layers = zip(*[member.layers[::2] for member in ensemble.members])
            pairs = [
                (torch.stack([one.weight.detach().t() for one in layer]),
                 torch.stack([one.bias.detach()[None] for one in layer])) for layer in layers
            ]
            self.weights = nn.ParameterList([weight for weight, _ in pairs])
            self.biases = nn.ParameterList([bias for _, bias in pairs])

        def forward(self, x):
            h = x.expand(members, -1, -1)
            for weight, bias in zip(self.weights[:-1], self.biases[:-1]):
                h = torch.baddbmm(bias, h, weight).relu_()
            return torch.baddbmm(self.biases[-1], h, self.weights[-1])[:, :, 0]

    model = Ensemble().eval()
    if mended:
        model = Stacked(model).eval()
    table = torch.randn(rows, columns)

    @torch.inference_mode()
    def predict():
        spread, mean = torch.var_mean(model(table), 0)
        return mean.sigmoid() + spread

    return predict


@case(
    id="timeseries-update-norms",
    round=24,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, profile_memory=True),
    cause="Each step copies all weights before the optimizer and logs how far each has moved, "
    "relative to its norm, though such a log is read every hundred steps at most.",
    symptom="aten::clone of all weights, aten::sub and aten::linalg_vector_norm twice for each, "
    "and item, around the optimizer.",
    answer="log_updates clones every weight before each step and takes the norms of its change and "
    "of itself with an item each; log every hundredth step (or take the norms of gradients), so "
    "that other steps neither clone nor reduce.",
    names=("log_updates", "aten::clone", "linalg_vector_norm", "aten::item", "aten::norm",
           "updates", "clone"),
    actions=("every hundred", "every n", "less often", "every 100", "each hundredth",
             "now and then", "not each step", "every k", "interval", "periodic", "remove", "skip",
             "occasional", "less frequent", "debug", "from time to time", "_foreach_norm",
             "sampled", "only when"),
)
def timeseries_update_norms(mended):
    batch, past, ahead, width = 24, 336, 96, 640

    model = nn.Sequential(
        nn.Linear(past, width), nn.GELU(), nn.Linear(width, width), nn.GELU(),
        nn.Linear(width, width), nn.GELU(), nn.Linear(width, ahead),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, fused=True)
    seen, future = torch.randn(batch, past), torch.randn(batch, ahead)
    log, count = {}, [0]

    def log_updates(before):
        with torch.no_grad():
            for (name, weight), old in zip(model.named_parameters(), before):
                log[name] = ((weight - old).norm() / (old.norm() + 1e-12)).item()

    def train_step():
        count[0] += 1
        asked = not mended or count[0] % 100 == 0
        optimizer.zero_grad()
        loss = F.l1_loss(model(seen), future)
        loss.backward()
        if asked:
            before = [weight.detach().clone() for weight in model.parameters()]
        optimizer.step()
        if asked:
            log_updates(before)
        return loss

    return train_step


@case(
    id="distributed-noise-broadcast",
    round=24,
    domain="generative",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each rank samples half of the pictures, but rank 0 draws the noise of all of them in "
    "each step of diffusion and broadcasts it.",
    symptom="Rank 1 waits in gloo:broadcast of [64, 256, 48] while rank 0 runs aten::normal_, "
    "four times a step.",
    answer="draw_noise draws the noise of all 64 pictures on rank 0 and broadcasts it, while rank "
    "1 waits and then drops half; each picture has a generator of its own, so let each rank draw "
    "the noise of its own pictures and send nothing.",
    names=("broadcast", "draw_noise", "normal_", "randn", "noise"),
    actions=("own pictures", "each rank draw", "same seed", "seed", "locally", "own noise",
             "own half", "on each rank", "every rank", "its half", "scatter",
             "no broadcast", "without the broadcast", "without broadcast", "its share", "itself"),
)
def distributed_noise_broadcast(mended, rank, world):
    pictures, patches, pixels, width, times = 64, 256, 48, 16, 4
    share = pictures // world

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, pixels),
            )

        def forward(self, x):
            return self.layers(x)

    model = Denoiser().eval()
    generators = [torch.Generator().manual_seed(k) for k in range(pictures)]
    own = slice(rank * share, (rank + 1) * share)

    def draw(some):
        return torch.stack([torch.randn(patches, pixels, generator=one) for one in some])

    def draw_noise():
        if mended:
            return draw(generators[own])
        noise = draw(generators) if rank == 0 else torch.empty(pictures, patches, pixels)
        dist.broadcast(noise, 0)
        return noise[own]

    @torch.inference_mode()
    def sample():
        x = torch.zeros(share, patches, pixels)
        for at in range(times):
            x = 0.9 * (x - 0.1 * model(x)) + (0.4 / (at + 1)) * draw_noise()
        return x.square()

    return sample
