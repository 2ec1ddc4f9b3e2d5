# SPDX-License-Identifier: Apache-2.0
"""Round 8: work that is done twice, on copies, or one at a time."""

import datetime

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-forward-twice",
    round=8,
    domain="vision",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True, with_modules=True),
    cause="Two metrics of the training batch each run the model once more on the images it has just seen.",
    symptom="Three forwards of the same shape in each step and one backward.",
    answer="accuracy calls the model again for top-1 and top-5; take both from the logits that the loss has used.",
    names=("accuracy", "three forward", "forward three times", "forward again", "second forward", "model again",
           "forwards", "3 forward", "extra forward"),
    actions=("the logits", "logits of the loss", "reuse", "same logits", "same output", "outputs of the training",
             "once and", "one forward", "keep the output", "pass the output", "existing output", "its output"),
)
def vision_forward_twice(mended):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.Sequential(
                nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True),
                nn.Conv2d(32, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                nn.Conv2d(64, 96, 3, 2, 1, bias=False), nn.BatchNorm2d(96), nn.ReLU(inplace=True),
                nn.Conv2d(96, 96, 3, 1, 1, bias=False), nn.BatchNorm2d(96), nn.ReLU(inplace=True),
            )
            self.head = nn.Linear(96, 40)

        def forward(self, images):
            return self.head(self.convs(images).mean((2, 3)))

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images, labels = torch.randn(16, 3, 56, 56), torch.randint(40, (16,))
    seen = {"top1": 0.0, "top5": 0.0}

    @torch.no_grad()
    def accuracy(best, logits=None):
        if logits is None:
            logits = model(images)
        return (logits.topk(best, 1).indices == labels[:, None]).any(1).float().mean().item()

    def train_step():
        optimizer.zero_grad()
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        known = logits.detach() if mended else None
        seen["top1"], seen["top5"] = accuracy(1, known), accuracy(5, known)
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-repeat-kv",
    round=8,
    domain="language",
    mode="inference",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="Grouped-query attention repeats the whole cache of keys and values eight times for each new token.",
    symptom="aten::repeat_interleave of [4, 2, 900, 64] copies two caches in each layer; it and attention over 16 "
    "heads take half of the step.",
    answer="repeat_kv copies the cache to 16 heads for each token; let the 8 queries of a group read one head "
    "(enable_gqa=True, or fold the group into the query's rows).",
    names=("repeat_kv", "repeat_interleave", "grouped", "key and value", "keys and values", "KV cache", "kv cache"),
    actions=("enable_gqa", "fold the", "without copying", "without repeating", "group the queries", "reshape the quer",
             "view the quer", "do not repeat", "don't repeat", "broadcast", "expand", "instead of repeating"),
)
def language_repeat_kv(mended):
    width, pairs, group, size, past = 1024, 2, 8, 64, 900

    def repeat_kv(x):
        return x.repeat_interleave(group, 1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * pairs * size, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 2048, bias=False), nn.Linear(2048, width, bias=False)
            self.register_buffer("keys", torch.randn(4, pairs, past + 8, size))
            self.register_buffer("values", torch.randn(4, pairs, past + 8, size))

        def attend(self, x, at):
            q = self.q(x).view(4, pairs * group, 1, size)
            k, v = self.kv(x).view(4, 2, pairs, size).unbind(1)
            self.keys[:, :, at], self.values[:, :, at] = k, v
            keys, values = self.keys[:, :, : at + 1], self.values[:, :, : at + 1]
            if mended:
                mixed = F.scaled_dot_product_attention(q.view(4, pairs, group, size), keys, values)
            else:
                mixed = F.scaled_dot_product_attention(q, repeat_kv(keys), repeat_kv(values))
            return self.out(mixed.reshape(4, 1, width))

        def forward(self, x, at):
            x = x + self.attend(self.first(x), at)
            return x + self.down(F.silu(self.up(self.second(x))))

    table, head = nn.Embedding(3000, width), nn.Linear(width, 3000, bias=False)
    layers = nn.ModuleList([Layer() for _ in range(2)]).eval()
    prompt = torch.randint(3000, (4, 1))

    @torch.inference_mode()
    def generate():
        token = prompt
        for at in range(past, past + 3):
            x = table(token)
            for layer in layers:
                x = layer(x, at)
            logits = head(x)
            token = logits.argmax(2)
        return logits.amax(2)

    return generate


@case(
    id="audio-round-trip",
    round=8,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True),
    same_result=False,  # the second spectrogram of a masked one differs at the mask's edges
    cause="SpecAugment masks a spectrogram, goes back to sound with istft, and the model takes the same stft of it.",
    symptom="Two aten::stft and one aten::istft in each step; they and the passes around them lead.",
    answer="spec_augment ends in istft and the model's stft undoes it; mask the model's own spectrogram.",
    names=("istft", "spec_augment"),
    actions=("mask the", "own spectrogram", "skip the istft", "without istft", "drop the istft", "remove the istft",
             "on the spectrogram", "in the spectrogram", "stay in", "one stft", "same spectrogram", "reuse the",
             "keep the spectrogram", "round trip"),
)
def audio_round_trip(mended):
    bins, hop = 512, 128
    window = torch.hann_window(bins)

    def spectrogram(waves):
        return torch.stft(waves, bins, hop, window=window, return_complex=True)

    def mask(spectrum):
        low, start = torch.randint(200, (1,)).item(), torch.randint(150, (1,)).item()
        kept = torch.ones(spectrum.shape[1:])
        kept[low : low + 20], kept[:, start : start + 15] = 0, 0
        return spectrum * kept

    def spec_augment(waves):
        return torch.istft(mask(spectrogram(waves)), bins, hop, window=window, length=waves.shape[1])

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(257, 64, 5, stride=4), nn.ReLU(), nn.Conv1d(64, 64, 5, stride=2), nn.ReLU(),
                nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 50),
            )

        def forward(self, waves):
            spectrum = spectrogram(waves)
            if mended:
                spectrum = mask(spectrum)
            return self.layers((spectrum.abs() + 1e-3).log())

    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    waves, tags = torch.randn(16, 24_000) / 5, torch.rand(16, 50).round()

    def train_step():
        optimizer.zero_grad()
        heard = waves if mended else spec_augment(waves)
        loss = F.binary_cross_entropy_with_logits(model(heard), tags)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-index-repeat",
    round=8,
    domain="graphs",
    mode="training",
    profile=Profile(record_shapes=True),
    cause="Messages are added with scatter_add and an int64 index that repeat copies to all 64 columns.",
    symptom="aten::repeat makes [30000, 64] indices for each layer; scatter_add and its backward gather lead.",
    answer="index[:, None].repeat(1, 64) copies two million indices for scatter_add; index_add (or expand) takes the "
    "edge's index itself.",
    names=("scatter_add", "aten::repeat", "repeat", "30000, 64"),
    actions=("index_add", "expand", "segment_reduce", "sparse"),
)
def graph_index_repeat(mended):
    nodes, edges, width = 1500, 30_000, 64

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, h, source, target):
            messages = self.other(h)[source]
            total = torch.zeros(nodes, width)
            if mended:
                total = total.index_add(0, target, messages)
            else:
                total = total.scatter_add(0, target[:, None].repeat(1, width), messages)
            return F.relu(self.own(h) + 0.1 * total)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Linear(32, width), nn.Linear(width, 9)
            self.layers = nn.ModuleList([Layer() for _ in range(3)])

        def forward(self, x, source, target):
            h = F.relu(self.enter(x))
            for layer in self.layers:
                h = layer(h, source, target)
            return self.leave(h)

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    features, labels = torch.randn(nodes, 32), torch.randint(9, (nodes,))
    source, target = torch.randint(nodes, (2, edges))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features, source, target), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-transposed-scores",
    round=8,
    domain="recommenders",
    mode="training",
    profile=Profile(record_shapes=True),
    cause="Scores of [16, 50, 5000] are transposed for cross_entropy, so its softmax runs across strided memory.",
    symptom="_log_softmax and its backward over dimension 1 of [16, 5000, 50], and copies to that order, lead.",
    answer="scores.transpose(1, 2) makes log_softmax reduce a dimension that is not the last; flatten scores to "
    "[800, 5000] and targets to [800].",
    names=("transpose", "log_softmax", "cross_entropy", "5000, 50", "strided"),
    actions=("flatten", "reshape", "view(-1", "last dimension", "[800, 5000]", "classes last", "contiguous last"),
)
def recommender_transposed_scores(mended):
    items, width, length = 5000, 64, 50

    class NextItem(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(items, width)
            self.recur = nn.GRU(width, width, batch_first=True)
            self.norm = nn.LayerNorm(width)

        def forward(self, ids):
            h, _ = self.recur(self.table(ids))
            return F.linear(self.norm(h), self.table.weight)

    model = NextItem()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    clicks = torch.randint(items, (16, length + 1))

    def train_step():
        optimizer.zero_grad()
        scores, following = model(clicks[:, :-1]), clicks[:, 1:]
        if mended:
            loss = F.cross_entropy(scores.flatten(0, 1), following.flatten())
        else:
            loss = F.cross_entropy(scores.transpose(1, 2), following)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="science-tight-tolerance",
    round=8,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, schedule=False, steps=2),
    cause="An adaptive Runge-Kutta solver of a learned field has a tolerance of 1e-7 in float32.",
    symptom="The field's network runs 146 times a step, in a solver that takes tiny steps.",
    answer="odeint evaluates the network 146 times because rtol and atol are 1e-7, at float32's limit; loosen "
    "them to 1e-4.",
    names=("odeint", "solver", "Runge-Kutta", "tolerance", "rtol", "runge_kutta"),
    actions=("loosen", "looser", "larger tolerance", "rtol", "1e-4", "1e-3", "relax", "fewer steps", "larger steps",
             "fewer evaluations", "fixed step"),
)
def science_tight_tolerance(mended):
    rows = (
        (1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    )
    errors = (71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 6))

        def forward(self, y):
            return 4 * self.layers(y)

    field = Field().eval()
    begin = torch.randn(192, 6)

    def runge_kutta_step(y, first, size):
        slopes = [first]
        for row in rows:
            slopes.append(field(y + size * sum(c * k for c, k in zip(row, slopes) if c)))
        following = y + size * sum(c * k for c, k in zip(rows[-1], slopes) if c)
        error = size * sum(c * k for c, k in zip(errors, slopes) if c)
        return following, slopes[-1], error

    def odeint(y, until, rtol, atol):
        time, size, slope = 0.0, 0.1, field(y)
        while time < until:
            size = min(size, until - time)
            following, last, error = runge_kutta_step(y, slope, size)
            ratio = (error / (atol + rtol * torch.maximum(y.abs(), following.abs()))).square().mean().sqrt().item()
            if ratio <= 1:
                time, y, slope = time + size, following, last
            size *= min(5.0, max(0.2, 0.9 * (ratio + 1e-9) ** -0.2))
        return y

    @torch.inference_mode()
    def integrate():
        tolerance = 1e-4 if mended else 1e-7
        return odeint(begin, 3.0, rtol=tolerance, atol=tolerance).square().mean(0)

    return integrate


@case(
    id="generative-preview-each",
    round=8,
    domain="generative",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="The sampler decodes its latent into an image for a preview at each of ten steps; only the last is used.",
    symptom="Decoder runs ten times a sample and takes more than the denoiser.",
    answer="on_step calls the Decoder at each denoising step to keep a preview; decode once at the end, or preview "
    "every tenth step or in low resolution.",
    names=("Decoder", "decoder", "preview", "on_step"),
    actions=("once at the end", "after the loop", "last step", "only at the end", "decode once", "every tenth",
             "every few steps", "less often", "drop the preview", "without preview", "out of the loop", "final latent"),
)
def generative_preview_each(mended):
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv2d(4, 64, 3, padding=1), nn.Conv2d(64, 4, 3, padding=1)
            self.middle = nn.Sequential(
                nn.GroupNorm(8, 64), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1),
                nn.GroupNorm(8, 64), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1),
            )
            self.time = nn.Linear(1, 64)

        def forward(self, x, time):
            h = self.enter(x) + self.time(time[:, None])[:, :, None, None]
            return self.leave(h + self.middle(h))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(4, 64, 3, padding=1), nn.SiLU(),
                nn.Upsample(scale_factor=2), nn.Conv2d(64, 48, 3, padding=1), nn.SiLU(),
                nn.Upsample(scale_factor=2), nn.Conv2d(48, 24, 3, padding=1), nn.SiLU(), nn.Conv2d(24, 3, 3, padding=1),
            )

        def forward(self, latent):
            return self.layers(latent).tanh()

    denoiser, decoder = Denoiser().eval(), Decoder().eval()
    start, steps = torch.randn(2, 4, 24, 24), 10
    previews = []

    def on_step(latent):
        previews.append(((decoder(latent) + 1) * 127.5).clamp(0, 255).to(torch.uint8))

    @torch.inference_mode()
    def sample():
        previews.clear()
        x = start
        for at in range(steps):
            x = x - denoiser(x, torch.full((2,), 1 - at / steps)) / steps
            if not mended or at == steps - 1:
                on_step(x)
        return previews[-1].float().mean((1, 2, 3))

    return sample


@case(
    id="tabular-row-predict",
    round=8,
    domain="tabular",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, steps=2),
    cause="A service predicts its table one row at a time: 160 calls of the model with a batch of one.",
    symptom="Hundreds of aten::addmm of one row; each is short, and Python between them leads.",
    answer="predict_all calls the model for each row, [1, 60]; give it the whole table in one batch.",
    names=("row", "batch of one", "batch size 1", "batch of 1", "predict_all", "[1, 60]"),
    actions=("one batch", "whole table", "all rows", "in a batch", "one call", "batch the", "batched", "at once",
             "together", "single call", "larger batch"),
)
def tabular_row_predict(mended):
    class Score(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(60, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2)
            )

        def forward(self, x):
            return self.layers(x).softmax(1)

    model = Score().eval()
    table, mean, deviation = torch.randn(160, 60), torch.randn(60), torch.rand(60) + 0.5

    @torch.inference_mode()
    def predict_all():
        if mended:
            return model((table - mean) / deviation)[:, 1]
        return torch.cat([model((row[None] - mean) / deviation)[:, 1] for row in table])

    return predict_all


@case(
    id="timeseries-datetime-features",
    round=8,
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="Hour and weekday of each of a batch's 3,072 time stamps come from a Python datetime.",
    symptom="calendar_features spends its time in datetime.fromtimestamp between the ops; the model waits.",
    answer="calendar_features makes a datetime of each time stamp in each step; compute hour and weekday with integer "
    "arithmetic on the tensor, or once for the whole data set.",
    names=("calendar_features", "fromtimestamp", "datetime", "time stamp", "timestamp", "weekday"),
    actions=("arithmetic on the tensor", "tensor arithmetic", "integer arithmetic", "on the tensor", "tensor op",
             "vectoriz", "vectoris", "once for", "precompute", "ahead of time", "in advance", "cache", "outside",
             "batched", "before training"),
)
def timeseries_datetime_features(mended):
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(5, 32, 5, padding=2), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2), nn.ReLU(),
                nn.AdaptiveAvgPool1d(8), nn.Flatten(), nn.Linear(256, 12),
            )

        def forward(self, values, calendar):
            return self.layers(torch.cat([values[:, None], calendar], 1))

    def calendar_features(stamps):
        if mended:
            hour = (stamps // 3600 % 24).float()
            day = ((stamps // 86_400 + 3) % 7).float()
        else:
            moments = [
                [datetime.datetime.fromtimestamp(at, datetime.timezone.utc) for at in row] for row in stamps.tolist()
            ]
            hour = torch.tensor([[float(moment.hour) for moment in row] for row in moments])
            day = torch.tensor([[float(moment.weekday()) for moment in row] for row in moments])
        hour, day = hour * (torch.pi / 12), day * (2 * torch.pi / 7)
        return torch.stack([hour.sin(), hour.cos(), day.sin(), day.cos()], 1)

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    start = 1_700_000_000 + 3600 * torch.randint(9000, (32, 1))
    stamps, values, future = start + 3600 * torch.arange(96), torch.randn(32, 96), torch.randn(32, 12)

    def train_step():
        optimizer.zero_grad()
        loss = F.l1_loss(model(values, calendar_features(stamps)), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-average-weights",
    round=8,
    domain="tabular",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="DDP averages the gradients, and the program averages the weights, too, after each step.",
    symptom="A second gloo:all_reduce of all 2.9 million numbers behind the optimizer, with copies before and after.",
    answer="average_weights reduces weights that DDP keeps equal already; drop it.",
    names=("average_weights", "vector_to_parameters", "parameters_to_vector", "second all_reduce", "weights"),
    actions=("drop", "remove", "not needed", "unneeded", "needless", "redundant", "already equal", "equal already",
             "already keeps", "already in sync", "already the same", "only once at", "every few"),
)
def distributed_average_weights(mended, rank, world):
    from torch.nn.parallel import DistributedDataParallel
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    model = DistributedDataParallel(nn.Sequential(
        nn.Linear(200, 1200), nn.ReLU(), nn.Linear(1200, 1200), nn.ReLU(), nn.Linear(1200, 1000), nn.ReLU(),
        nn.Linear(1000, 10),
    ))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    numbers, labels = torch.randn(24, 200), torch.randint(10, (24,))

    @torch.no_grad()
    def average_weights():
        weights = parameters_to_vector(model.parameters())
        dist.all_reduce(weights)
        vector_to_parameters(weights / world, model.parameters())

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(numbers), labels)
        loss.backward()
        optimizer.step()
        if not mended:
            average_weights()
        return loss

    return train_step
