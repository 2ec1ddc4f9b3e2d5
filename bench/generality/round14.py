# SPDX-License-Identifier: Apache-2.0
"""Round 14: copies that guard against nothing, work done anew for each sample, and parts that run too often."""

import copy
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-layout-back-and-forth",
    round=14,
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A channels_last network has a gate in each block that calls contiguous(): the layout changes twice a "
    "block.",
    symptom="aten::contiguous with clone and copy_ of [4, 96, 56, 56] in each Gate, and a copy back before the next "
    "convolution.",
    answer="Gate calls contiguous() on a channels_last tensor, which copies it to another layout, and the next "
    "convolution copies it back; compute the gate without contiguous (mean over dimensions 2 and 3) and stay in "
    "channels_last.",
    names=("Gate", "contiguous", "channels_last", "copy_", "layout", "aten::clone"),
    actions=("without contiguous", "drop contiguous", "remove contiguous", "no contiguous", "drop the contiguous",
             "remove the contiguous", "stay in channels_last", "keep channels_last", "memory_format=", "one layout",
             "flatten", "adaptive_avg_pool2d", "mean((2, 3))", "same layout", "same memory format", "reshape"),
)
def vision_layout_back_and_forth(mended):
    width = 96

    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.squeeze, self.excite = nn.Linear(width, width // 4), nn.Linear(width // 4, width)

        def forward(self, x):
            if mended:
                pooled = x.mean((2, 3))
            else:
                x = x.contiguous()
                pooled = x.view(x.shape[0], width, -1).mean(2)
            return x * self.excite(F.relu(self.squeeze(pooled))).sigmoid()[:, :, None, None]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.spread = nn.Conv2d(width, width, 3, padding=1, groups=width)
            self.gate, self.mix = Gate(), nn.Conv2d(width, width, 1)

        def forward(self, x):
            return F.relu(x + self.mix(self.gate(F.relu(self.spread(x)))))

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, width, 4, 4)
            self.blocks = nn.Sequential(*[Block() for _ in range(6)])
            self.head = nn.Linear(width, 100)

        def forward(self, images):
            return self.head(self.blocks(self.stem(images)).mean((2, 3)))

    model = Classifier().eval().to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 224, 224).to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def classify():
        return model(images)

    return classify


@case(
    id="language-beam-reorder",
    round=14,
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="Beam search reorders the whole cache of each layer for each token, though the prompt's part is alike in "
    "all beams.",
    symptom="aten::index_select of [6, 8, 648, 32] twice a layer for each token leads, in reorder.",
    answer="reorder copies all keys and values of 648 words with index_select for each token, of which 640 are of the "
    "prompt and the same in all beams; reorder the words after the prompt alone, in place, or keep parents' indices.",
    names=("reorder", "index_select", "cache", "beam"),
    actions=("after the prompt", "only the new", "new words", "generated part", "generated words", "without the prompt",
             "prompt once", "share the prompt", "indices", "in place", "part that differs", "pointers", "views",
             "only if", "when the order", "paged", "indirection"),
)
def language_beam_reorder(mended):
    width, heads, words, beams, prompt, room = 256, 8, 1000, 6, 640, 648

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x, cache, length):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            cache[0][:, :, length : length + 1], cache[1][:, :, length : length + 1] = k, v
            mixed = F.scaled_dot_product_attention(q, cache[0][:, :, : length + 1], cache[1][:, :, : length + 1])
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    def reorder(caches, parents, length):
        for cache in caches:
            for which in range(2):
                if mended:
                    made = cache[which][:, :, prompt:length]
                    made.copy_(made.index_select(0, parents))
                else:
                    cache[which] = cache[which].index_select(0, parents)

    table, head = nn.Embedding(words, width), nn.Linear(width, words)
    blocks = nn.ModuleList([Block() for _ in range(3)]).eval()
    seen = [[torch.randn(1, heads, prompt, width // heads) for _ in range(2)] for _ in blocks]
    caches = [[torch.zeros(beams, heads, room, width // heads) for _ in range(2)] for _ in blocks]
    for cache, part in zip(caches, seen):
        for which in range(2):
            cache[which][:, :, :prompt] = part[which]

    @torch.inference_mode()
    def write():
        ids, scores = torch.arange(beams), torch.arange(beams) / -10
        for length in range(prompt, room):
            x = table(ids)[:, None]
            for block, cache in zip(blocks, caches):
                x = block(x, cache, length)
            total = scores[:, None] + head(x[:, 0]).log_softmax(1)
            scores, best = total.flatten().topk(beams)
            parents, ids = best // words, best % words
            reorder(caches, parents, length + 1)
        return scores

    return write


@case(
    id="audio-masks-clip-by-clip",
    round=14,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="SpecAugment masks clip by clip and mask by mask, each with a pass over the whole clip and its mean.",
    symptom="aten::mean, where and copy_ run 240 times a step on [80, 500] in spec_augment.",
    answer="spec_augment goes over 24 clips and 10 masks in Python and takes a clip's mean again for each mask; take "
    "all means at once and fill with one mask for the batch (compare positions with starts and ends, torch.where).",
    names=("spec_augment", "aten::mean", "aten::where", "mask", "each clip", "240"),
    actions=("one mask", "for the batch", "whole batch", "all clips", "torch.where", "masked_fill", "at once",
             "once a clip", "vectoris", "vectoriz", "batched", "once for each clip", "outside the loop", "mean once",
             "means at once", "workers"),
)
def audio_masks_clip_by_clip(mended):
    clips, bands, frames, masks = 24, 80, 500, 8

    def spec_augment(mel):
        starts, lengths = torch.randint(frames - 25, (clips, masks)), torch.randint(5, 25, (clips, masks))
        lows, heights = torch.randint(bands - 12, (clips, 2)), torch.randint(2, 12, (clips, 2))
        times, rows = torch.arange(frames), torch.arange(bands)
        if mended:
            hide_times = ((times >= starts[..., None]) & (times < (starts + lengths)[..., None])).any(1)
            hide_rows = ((rows >= lows[..., None]) & (rows < (lows + heights)[..., None])).any(1)
            means = mel.mean((1, 2), keepdim=True)
            return torch.where(hide_times[:, None, :] | hide_rows[:, :, None], means, mel)
        out = mel.clone()
        for clip in range(clips):
            for start, length in zip(starts[clip].tolist(), lengths[clip].tolist()):
                hide = (times >= start) & (times < start + length)
                out[clip] = torch.where(hide, mel[clip].mean(), out[clip])
            for low, height in zip(lows[clip].tolist(), heights[clip].tolist()):
                hide = (rows >= low) & (rows < low + height)
                out[clip] = torch.where(hide[:, None], mel[clip].mean(), out[clip])
        return out

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.Sequential(
                nn.Conv1d(bands, 32, 4, 4), nn.BatchNorm1d(32), nn.ReLU(),
                nn.Conv1d(32, 48, 3, 2, 1), nn.BatchNorm1d(48), nn.ReLU(),
                nn.Conv1d(48, 64, 3, 2, 1), nn.BatchNorm1d(64), nn.ReLU(),
            )
            self.leave = nn.Linear(64, 20)

        def forward(self, mel):
            return self.leave(self.convs(mel).mean(2))

    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    mel, tags = torch.randn(clips, bands, frames), torch.randint(20, (clips,))

    def train_step():
        hidden = spec_augment(mel)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(hidden), tags)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-powers-anew",
    round=14,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Return probabilities of 1 to 16 random steps come from 16 calls of matrix_power, each from the start.",
    symptom="aten::linalg_matrix_power runs 16 times a step and multiplies [240, 240] some 50 times.",
    answer="return_probabilities calls matrix_power anew for each of 16 lengths; multiply the last power by the matrix "
    "once to get the next one, 15 products in all.",
    names=("matrix_power", "return_probabilities", "240, 240", "aten::mm", "powers"),
    actions=("last power", "previous power", "power before", "one after the other", "keep the power",
             "reuse", "once more", "next one", "next power", "15 products", "each power from"),
)
def graph_powers_anew(mended):
    nodes, edges, width, walks = 240, 1800, 96, 16

    def return_probabilities(walk):
        if mended:
            power, found = walk, [walk.diagonal()]
            for _ in range(1, walks):
                power = power @ walk
                found.append(power.diagonal())
        else:
            found = [torch.linalg.matrix_power(walk, steps).diagonal() for steps in range(1, walks + 1)]
        return torch.stack(found, 1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other, self.norm = nn.Linear(width, width), nn.Linear(width, width), nn.LayerNorm(width)

        def forward(self, h, walk):
            return h + F.gelu(self.own(self.norm(h)) + walk @ self.other(h))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(24 + walks, width), nn.Linear(width, 5)
            self.layers = nn.ModuleList([Layer() for _ in range(4)])

        def forward(self, x, walk):
            h = self.enter(torch.cat([x, return_probabilities(walk)], 1))
            for layer in self.layers:
                h = layer(h, walk)
            return self.leave(h)

    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    source, target = torch.randint(nodes, (2, edges))
    x, labels = torch.randn(nodes, 24), torch.randint(5, (nodes,))

    def train_step():
        kept = torch.rand(edges) < 0.9
        walk = torch.eye(nodes)
        walk[target[kept], source[kept]] = 1
        walk /= walk.sum(1, keepdim=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, walk), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-normalise-catalogue",
    round=14,
    domain="recommenders",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False),
    cause="Cosine retrieval normalises the vectors of all 60,000 items for each request of eight users.",
    symptom="aten::linalg_vector_norm and aten::div over [60000, 96] lead the request; the product is shorter.",
    answer="F.normalize runs over all 60,000 item vectors in each request although they do not change; normalise them "
    "once when they are loaded.",
    names=("normalize", "linalg_vector_norm", "60000", "60,000", "aten::div"),
    actions=("once", "when they are loaded", "at load", "in advance", "beforehand", "precompute", "store",
             "keep the norm", "cache", "outside the request", "divide the scores", "out of the step", "ahead"),
)
def recommender_normalise_catalogue(mended):
    items, width, users, length = 60_000, 96, 8, 40

    class Tower(nn.Module):
        def __init__(self, table):
            super().__init__()
            self.table = table
            self.recur = nn.GRU(width, 128, batch_first=True)
            self.leave = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, width))

        def forward(self, history):
            return self.leave(self.recur(self.table(history))[1][0])

    class Retrieval(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.Embedding(items, width)
            self.tower = Tower(self.items)
            self.register_buffer("ready", F.normalize(self.items.weight.detach(), dim=1) if mended else None)

        def forward(self, history):
            catalogue = self.ready if mended else F.normalize(self.items.weight, dim=1)
            return (F.normalize(self.tower(history), dim=1) @ catalogue.T).topk(20)

    model, history = Retrieval().eval(), torch.randint(items, (users, length))

    @torch.inference_mode()
    def retrieve():
        return model(history).values

    return retrieve


@case(
    id="science-cold-start",
    round=14,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, steps=2),
    cause="The pressure of each time step is solved for from zero, though that of the step before is nearly right.",
    symptom="conjugate_gradient goes round some 110 times in each of four time steps; its short ops lead.",
    answer="conjugate_gradient starts from zero in each time step; start from the pressure of the step before (a warm "
    "start), which needs a third of the iterations, or use a preconditioner.",
    names=("conjugate_gradient", "iterations", "solver", "poisson", "aten::vdot", "aten::dot"),
    actions=("warm start", "warm-start", "initial guess", "first guess", "previous pressure", "step before",
             "last pressure", "previous solution", "last solution", "precondition", "start from the", "multigrid",
             "fft", "FFT", "fewer iterations", "direct solver"),
)
def science_cold_start(mended):
    size, times = 64, 4
    stencil = torch.tensor([[0.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 0.0]])[None, None]
    rows = torch.linspace(0, 3.1416, size)[:, None]
    columns = torch.linspace(0, 3.1416, size)

    class Closure(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(1, 24, 3, padding=1), nn.Tanh(), nn.Conv2d(24, 24, 3, padding=1), nn.Tanh(),
                nn.Conv2d(24, 1, 3, padding=1),
            )

        def forward(self, field):
            return self.layers(field)

    def conjugate_gradient(wanted, guess):
        left = wanted - F.conv2d(guess, stencil, padding=1)
        way, found, size_left = left, guess, left.square().sum()
        least = 1e-6 * wanted.square().sum()
        while size_left > least:
            turned = F.conv2d(way, stencil, padding=1)
            length = size_left / (way * turned).sum()
            found, left = found + length * way, left - length * turned
            before, size_left = size_left, left.square().sum()
            way = left + size_left / before * way
        return found

    model = Closure().eval()
    fields = [
        ((2 * rows).sin() * (columns + 0.004 * time).sin() + 0.2 * (rows * columns + 0.004 * time).cos())[None, None]
        for time in range(times + 1)
    ]
    nothing = torch.zeros_like(fields[0])

    @torch.inference_mode()
    def advance():
        pressure = known
        for field in fields[1:]:
            source = field + 0.02 * model(field)
            pressure = conjugate_gradient(source, pressure if mended else nothing)
        return pressure / size

    with torch.inference_mode():
        known = conjugate_gradient(fields[0] + 0.02 * model(fields[0]), nothing)  # the step before these
    return advance


@case(
    id="generative-penalty-each-step",
    round=14,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A GAN's gradient penalty, with its backward of a backward, is computed in each step.",
    symptom="autograd.grad with create_graph and ConvolutionBackwardBackward in each step, in penalty.",
    answer="penalty takes the gradient by the real images with create_graph and goes backward through it in each step; "
    "computed each 16th step with 16 times the weight (lazy regularisation) it does the same.",
    names=("penalty", "ConvolutionBackwardBackward", "create_graph", "autograd.grad", "convolution_backward",
           "double backward", "second backward", "backward of a backward", "ConvolutionBackward0Backward"),
    actions=("lazy", "each 16th", "every 16", "every few", "every n", "less often", "not in each step", "rarely",
             "some steps", "fewer samples", "part of the batch", "in intervals", "spectral"),
)
def generative_penalty_each_step(mended):
    generator = nn.Sequential(
        nn.Linear(64, 96 * 16), nn.Unflatten(1, (96, 4, 4)), nn.ReLU(), nn.ConvTranspose2d(96, 64, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh(),
    )

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 32, 3, padding=1), nn.Softplus(), nn.Conv2d(32, 48, 4, 2, 1), nn.Softplus(),
                nn.Conv2d(48, 64, 4, 2, 1), nn.Softplus(), nn.Flatten(), nn.Linear(64 * 64, 1), nn.Flatten(0),
            )

        def forward(self, images):
            return self.layers(images)

    discriminator, steps, every = Discriminator(), [0], 16 if mended else 1
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.0, 0.99), fused=True)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.0, 0.99), fused=True)
    images = torch.rand(12, 3, 32, 32) * 2 - 1

    def penalty():
        real = images.clone().requires_grad_()
        (slope,) = torch.autograd.grad(discriminator(real).sum(), real, create_graph=True)
        return slope.square().sum((1, 2, 3)).mean()

    def train_step():
        made = generator(torch.randn(12, 64))
        of_discriminator.zero_grad()
        loss = F.softplus(-discriminator(images)).mean() + F.softplus(discriminator(made.detach())).mean()
        loss.backward()
        if steps[0] % every == 0:
            (5 * every * penalty()).backward()
        of_discriminator.step()
        steps[0] += 1
        of_generator.zero_grad()
        discriminator.requires_grad_(False)
        F.softplus(-discriminator(made)).mean().backward()
        discriminator.requires_grad_(True)
        of_generator.step()
        return loss

    return train_step


@case(
    id="timeseries-deepcopy-best",
    round=14,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="The best model so far is kept with copy.deepcopy of model and optimizer whenever the training loss falls: "
    "in nearly each step.",
    symptom="copy.deepcopy with aten::clone (copy_) of all weights and Adam's averages takes longer than training.",
    answer="keep_best makes a deepcopy of the model and of the optimizer's state in each step in which the loss falls; "
    "compare the loss of a validation once an epoch, and copy the weights alone (into tensors made once).",
    names=("deepcopy", "keep_best", "aten::clone", "copy_", "aten::copy_"),
    actions=("once an epoch", "once per epoch", "per epoch", "an epoch", "less often", "every n", "every few", "rarely",
             "weights alone", "weights only", "only the weights", "state_dict", "made once", "preallocated", "in place",
             "not in each step", "end of the epoch", "after validation", "_foreach_copy_", "in intervals"),
)
def timeseries_deepcopy_best(mended):
    width, length, horizon = 640, 96, 24

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return x + self.down(F.relu(self.up(self.norm(x))))

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(length, width), nn.Linear(width, horizon)
            self.blocks = nn.Sequential(*[Block() for _ in range(2)])

        def forward(self, series):
            return self.leave(self.blocks(self.enter(series)))

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    series, future = torch.randn(64, length), torch.randn(64, horizon)
    kept, steps = {"loss": float("inf")}, [0]

    def keep_best(loss):
        if loss < kept["loss"]:
            kept.update(loss=loss, model=copy.deepcopy(model), optimizer=copy.deepcopy(optimizer.state_dict()))

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        steps[0] += 1
        if not mended or steps[0] % 400 == 0:
            keep_best(loss.item())
        return loss

    return train_step


@case(
    id="tabular-model-each-request",
    round=14,
    domain="tabular",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A service builds its model and loads the weights from disk again for each request.",
    symptom="aten::uniform_ (kaiming_uniform_ in reset_parameters), torch.load and copy_ take longer than the "
    "model runs.",
    answer="Each request makes the model anew: random weights are drawn (uniform_) and then overwritten by those that "
    "torch.load reads; load the model once when the service starts.",
    names=("load_model", "uniform_", "torch.load", "load_state_dict", "reset_parameters", "kaiming_uniform_", "_load"),
    actions=("once", "at the start", "when the service starts", "keep the model", "cache the model", "global",
             "outside the request", "before the first request", "skip_init", "meta", "reuse the model",
             "out of the step"),
)
def tabular_model_each_request(mended):
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name) / "scorer.pt"

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(4000, 16)
            self.layers = nn.Sequential(
                nn.Linear(12 * 16 + 30, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1),
            )

        def forward(self, ids, numbers):
            return self.layers(torch.cat([self.table(ids).flatten(1), numbers], 1))[:, 0]

    torch.save(Scorer().state_dict(), path)

    def load_model(folder=folder):  # the folder lives as long as the function
        model = Scorer()
        model.load_state_dict(torch.load(path))
        return model.eval()

    ready = load_model() if mended else None
    ids, numbers = torch.randint(4000, (256, 12)), torch.randn(256, 30)

    @torch.inference_mode()
    def answer_request():
        model = ready if mended else load_model()
        return model(ids, numbers).sigmoid()

    return answer_request


@case(
    id="distributed-send-each",
    round=14,
    domain="science",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="An actor sends its 128 transitions to the learner one at a time, each with a blocking send.",
    symptom="gloo:send and gloo:recv of [70] run 128 times a step and lead both ranks.",
    answer="exchange sends each of 128 transitions of 70 numbers with a blocking send and recv of its own; stack them "
    "and send one tensor of [128, 70].",
    names=("gloo:send", "gloo:recv", "exchange", "send", "recv"),
    actions=("one tensor", "stack", "one send", "single send", "one message", "in one", "together", "at once", "batch",
             "larger messages", "fewer, larger", "join"),
)
def distributed_send_each(mended, rank, world):
    count, width = 128, 64

    class Network(nn.Module):
        def __init__(self, outputs):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(width, 160), nn.Tanh(), nn.Linear(160, 160), nn.Tanh(), nn.Linear(160, outputs),
            )

        def forward(self, x):
            return self.layers(x)

    policy, value = Network(5), Network(1)
    optimizer = torch.optim.Adam(value.parameters(), lr=1e-3, fused=True)
    dynamics = torch.randn(5, width) / 10
    start = torch.randn(count // 4, width)

    @torch.no_grad()
    def act():
        seen, state = [], start
        for _ in range(4):
            wish = policy(state).softmax(1)
            reward = state.square().mean(1, keepdim=True)
            seen.append(torch.cat([state, wish, reward], 1))
            state = (state + wish @ dynamics).tanh()
        return torch.cat(seen)

    def exchange(transitions):
        if rank == 1:
            if mended:
                dist.send(transitions, 0)
            else:
                for transition in transitions:
                    dist.send(transition, 0)
            return transitions
        received = torch.empty(count, width + 6)
        if mended:
            dist.recv(received, 1)
        else:
            for row in received:
                dist.recv(row, 1)
        return received

    def learn(transitions):
        state, reward = transitions[:, :width], transitions[:, -1]
        optimizer.zero_grad()
        loss = F.mse_loss(value(state)[:, 0], reward)
        loss.backward()
        optimizer.step()
        return loss

    def train_step():
        if rank == 1:
            return exchange(act()).mean()
        return learn(exchange(None))

    return train_step
