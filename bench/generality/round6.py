# SPDX-License-Identifier: Apache-2.0
"""Round 6: defaults that were kept and forms that a library has better."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-pairwise-cosine",
    round=6,
    domain="vision",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True, steps=3),
    cause="A contrastive loss broadcasts 256 x 256 pairs of 96 numbers through F.cosine_similarity.",
    symptom="mul, div and sum on [256, 256, 96] in forward and backward outweigh the encoder.",
    answer="cosine_similarity of z[:, None] and z[None] makes tensors of six million numbers; normalize the rows and "
    "take one matrix product, z @ z.T.",
    names=("cosine_similarity", "256, 256", "pairs", "contrastive"),
    actions=("z @ z.T", "matrix product", "matmul", "aten::mm", "one product", "normalize the rows", "normalise",
             "F.normalize"),
)
def vision_pairwise_cosine(mended):
    encoder = nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(192, 96),
    )
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01, momentum=0.9, fused=True)
    views = torch.randn(256, 3, 24, 24)
    partner = torch.arange(256).roll(128)
    itself = torch.eye(256, dtype=torch.bool)

    def contrastive(z):
        if mended:
            z = F.normalize(z, dim=1)
            alike = z @ z.T
        else:
            alike = F.cosine_similarity(z[:, None], z[None], dim=2)
        return F.cross_entropy((alike / 0.2).masked_fill(itself, -1e9), partner)

    def train_step():
        optimizer.zero_grad()
        loss = contrastive(encoder(views))
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-merged-adapter",
    round=6,
    domain="language",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True),
    cause="Low-rank adapters are added to the frozen weight in each forward, so each layer makes a full matrix and its "
    "full gradient.",
    symptom="Fine-tuning of few weights costs as much as training all: products of [512, 8] by [8, 512], additions of "
    "whole weights, and weight gradients of frozen layers.",
    answer="weight + up @ down forms a [2048, 512] matrix each time, and backward its full gradient; apply the factors "
    "to the input: F.linear(x, weight) + (x @ down.T) @ up.T.",
    names=("AdapterLinear", "adapter", "low-rank", "low rank", "rank 8", "full matrix", "merged"),
    actions=("factors to the input", "(x @", "two small products", "low-rank product", "without forming",
             "instead of forming", "one factor at a time", "reassociate", "order of the products"),
)
def language_merged_adapter(mended):
    width, rank, heads = 512, 8, 8

    class AdapterLinear(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5, requires_grad=False)
            self.down = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
            self.up = nn.Parameter(torch.randn(outputs, rank) / 10)

        def forward(self, x):
            if mended:
                return F.linear(x, self.weight) + (x @ self.down.T) @ self.up.T
            return F.linear(x, self.weight + self.up @ self.down)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = AdapterLinear(width, 3 * width), AdapterLinear(width, width)
            self.wide, self.narrow = AdapterLinear(width, 4 * width), AdapterLinear(4 * width, width)

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.narrow(F.gelu(self.wide(self.second(x))))

    model = nn.Sequential(Block(), Block(), nn.LayerNorm(width))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    hidden, target = torch.randn(2, 64, width), torch.randn(2, 64, width)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(hidden), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-prime-length",
    round=6,
    domain="audio",
    mode="inference",
    profile=Profile(record_shapes=True, schedule=False),
    cause="Reverberation by FFT transforms exactly samples + taps - 1 = 19,991 numbers, which is a prime.",
    symptom="_fft_r2c and _fft_c2r of 19,991 numbers take a third of the step, far more than usual FFTs of this size.",
    answer="The transforms' length of 19,991 is a prime, which FFTs do many times slower; pad to 20,000 or 20,480.",
    names=("19991", "19,991", "prime", "_fft_r2c", "fft_r2c", "fft_c2r", "rfft"),
    actions=("power of two", "pad to", "pad the", "20480", "20,480", "20000", "32768", "fast length", "next_fast_len",
             "small factors", "round up", "rounded up"),
)
def audio_prime_length(mended):
    taps, samples = 3992, 16_000
    impulse = torch.randn(taps) * torch.exp(-torch.arange(taps) / 800)
    tagger = nn.Sequential(
        nn.Conv1d(1, 64, 64, stride=16), nn.ReLU(), nn.Conv1d(64, 128, 8, stride=2), nn.ReLU(),
        nn.Conv1d(128, 128, 8, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 20),
    ).eval()
    clips = torch.randn(12, 1, samples)

    def reverberate(wave):
        size = 20_480 if mended else samples + taps - 1
        spectrum = torch.fft.rfft(wave, size) * torch.fft.rfft(impulse, size)
        return torch.fft.irfft(spectrum, size)[..., :samples]

    @torch.inference_mode()
    def tag():
        return tagger(reverberate(clips))

    return tag


@case(
    id="graph-integer-product",
    round=6,
    domain="graphs",
    mode="inference",
    profile=Profile(record_shapes=True),
    cause="Common neighbours are counted by a product of int64 matrices, for which no BLAS kernel exists.",
    symptom="One aten::mm of [320, 320] takes most of a step whose other products are as large and take little.",
    answer="The aten::mm of long ints runs a plain loop without BLAS; multiply in float32, which is exact for such "
    "counts.",
    names=("long int", "int64", "integer", "torch.long"),
    actions=("float32", ".float()", "to float", "in float", "floating point", "sparse"),
)
def graph_integer_product(mended):
    nodes = 320
    adjacency = (torch.rand(nodes, nodes) < 0.02).long()
    adjacency = ((adjacency + adjacency.T) > 0).long()
    features = torch.randn(nodes, 128)
    encode = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128)).eval()
    score = nn.Sequential(nn.Linear(130, 128), nn.ReLU(), nn.Linear(128, 1)).eval()
    source, target = torch.randint(nodes, (2, 4000))

    def common_neighbours():
        if mended:
            links = adjacency.float()
            return links @ links
        return (adjacency @ adjacency).float()

    @torch.inference_mode()
    def predict_links():
        common, degree = common_neighbours(), adjacency.sum(1).float()
        h = encode(features)
        shared = common[source, target]
        union = degree[source] + degree[target] - shared
        pairs = torch.cat([h[source] * h[target], shared[:, None], (shared / union.clamp(min=1))[:, None]], 1)
        return score(pairs)

    return predict_links


@case(
    id="recommender-max-norm",
    round=6,
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, steps=2),
    cause="An embedding has max_norm=1: each lookup clips its rows one by one before it reads them.",
    symptom="aten::embedding_renorm_ takes more than the model and its backward.",
    answer="embedding_renorm_ (max_norm of nn.Embedding) works row by row; drop max_norm and renorm the whole table "
    "in one call, or normalize the rows that were looked up.",
    names=("embedding_renorm", "max_norm", "_no_grad_embedding_renorm_"),
    actions=("drop max_norm", "without max_norm", "remove max_norm", "renorm_(", "torch.renorm", "normalize the rows",
             "F.normalize", "whole table", "every few steps", "every N steps", "one call", "max_norm=None"),
)
def recommender_max_norm(mended):
    count, width = 6000, 48
    items = nn.Embedding(count, width, sparse=True, max_norm=None if mended else 1.0)
    user = nn.Sequential(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, width))
    optimizers = [
        torch.optim.SGD(items.parameters(), lr=0.1),
        torch.optim.Adam(user.parameters(), fused=True),
    ]
    people = torch.randn(768, 64)
    liked, other = torch.randint(count, (2, 768))

    def train_step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        if mended:
            with torch.no_grad():
                items.weight.renorm_(2, 0, 1.0)
        who = user(people)
        good, bad = ((who * items(chosen)).sum(1) for chosen in (liked, other))
        loss = -F.logsigmoid(good - bad).mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    return train_step


@case(
    id="science-full-svd",
    round=6,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, schedule=False, steps=3),
    cause="Modes of 24 snapshots come from torch.linalg.svd with its default full_matrices=True: U is square, of the "
    "grid's 1,600 points.",
    symptom="linalg_svd of a thin matrix takes nearly the whole step, far more than its numbers explain.",
    answer="linalg_svd of [1600, 24] also makes the 1,576 columns of U that nobody reads; full_matrices=False.",
    names=("linalg_svd", "linalg.svd", "full_matrices", "_linalg_svd", "1600, 1600"),
    actions=("full_matrices=False", "reduced", "thin", "economy", "svd_lowrank", "eigh", "svdvals"),
)
def science_full_svd(mended):
    points, snapshots, kept = 1600, 24, 6
    fields = torch.randn(4, points, 5) @ torch.randn(4, 5, snapshots) + 0.1 * torch.randn(4, points, snapshots)

    @torch.no_grad()
    def reduce():
        errors = []
        for field in fields:
            field = field - field.mean(1, keepdim=True)
            u, s, vh = torch.linalg.svd(field, full_matrices=not mended)
            modes = u[:, :kept]
            left = field - modes @ (modes.T @ field)
            # The coordinates drive a reduced model, whose operator is the shift between snapshots.
            coordinates = s[:kept, None] * vh[:kept]
            operator = torch.linalg.lstsq(coordinates[:, :-1].T, coordinates[:, 1:].T).solution
            errors.append(left.norm() / field.norm() + 0 * operator.norm())
        return torch.stack(errors)

    return reduce


@case(
    id="generative-anomaly-mode",
    round=6,
    domain="generative",
    mode="training",
    profile=Profile(),
    cause="torch.autograd.set_detect_anomaly(True) stayed on after a hunt for NaN.",
    symptom="Each backward node is followed by isnan, any and item; forward is slow between the ops.",
    answer="Anomaly detection checks each gradient for NaN and keeps a traceback of each forward op; turn it off.",
    names=("anomaly", "aten::isnan", "isnan", "NaN", "_is_any_true"),
    actions=("set_detect_anomaly(False)", "detect_anomaly", "turn it off", "turn off", "switch it off", "disable",
             "only while debugging", "remove the check"),
)
def generative_anomaly_mode(mended):
    latent, batch = 32, 64

    def half_block(inputs, outputs):
        return [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.LeakyReLU(0.2)]

    maker = nn.Sequential(*half_block(latent, 96), *half_block(96, 96), *half_block(96, 96), nn.Linear(96, 64))
    critic = nn.Sequential(*half_block(64, 96), *half_block(96, 96), *half_block(96, 96), nn.Linear(96, 1))
    for_maker = torch.optim.Adam(maker.parameters(), lr=2e-4, fused=True)
    for_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, fused=True)
    real = torch.randn(batch, 64)

    def train_step():
        torch.autograd.set_detect_anomaly(not mended)
        noise = torch.randn(batch, latent)
        for_critic.zero_grad()
        fake = maker(noise)
        loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        loss.backward()
        for_critic.step()
        critic.requires_grad_(False)
        for_maker.zero_grad()
        fooled = F.softplus(-critic(fake)).mean()
        fooled.backward()
        for_maker.step()
        critic.requires_grad_(True)
        torch.autograd.set_detect_anomaly(False)
        return loss

    return train_step


@case(
    id="tabular-table-each",
    round=6,
    domain="tabular",
    mode="training",
    profile=Profile(with_modules=True, with_stack=True, steps=3),
    cause="Each of 90 categorical columns has an nn.Embedding of its own, of 20 rows, looked up in a loop.",
    symptom="Ninety embeddings, ninety embedding_dense_backward and an optimizer of tiny tensors; no op is slow.",
    answer="90 tables of 20 rows are read one after another; put them into one nn.Embedding and add each column's "
    "offset to its ids: one lookup, one gradient.",
    names=("embedding", "Embedding", "columns"),
    actions=("one nn.Embedding", "one table", "single table", "one embedding", "single embedding", "offset",
             "one lookup", "merge the tables", "combine", "EmbeddingBag", "stack the tables"),
)
def tabular_table_each(mended):
    columns, rows, width = 90, 20, 6
    tables = torch.randn(columns, rows, width)

    class Columns(nn.Module):
        def __init__(self):
            super().__init__()
            if mended:
                self.table = nn.Embedding(columns * rows, width)
                self.table.weight.data.copy_(tables.flatten(0, 1))
                self.register_buffer("offset", torch.arange(columns) * rows)
            else:
                self.tables = nn.ModuleList([nn.Embedding(rows, width) for _ in range(columns)])
                for table, start in zip(self.tables, tables):
                    table.weight.data.copy_(start)

        def forward(self, ids):
            if mended:
                return self.table(ids + self.offset).flatten(1)
            return torch.cat([table(ids[:, at]) for at, table in enumerate(self.tables)], 1)

    enter = Columns()
    head = nn.Sequential(nn.Linear(columns * width, 128), nn.ReLU(), nn.Linear(128, 2))
    for layer in (head[0], head[2]):  # the tables above draw a different count of random numbers
        layer.weight.data.copy_(torch.linspace(-1, 1, layer.weight.numel()).sin().view_as(layer.weight) / 10)
        layer.bias.data.zero_()
    model = nn.Sequential(enter, head)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    draw = torch.Generator().manual_seed(3)
    ids, labels = torch.randint(rows, (384, columns), generator=draw), torch.randint(2, (384,), generator=draw)

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-rolling-windows",
    round=6,
    domain="time series",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Rolling mean and deviation over 192 steps reduce all windows of an unfold anew: 192 times the series.",
    symptom="mean and std over [24, 1345, 192] take more than the forecaster.",
    answer="rolling unfolds the series into overlapping windows and reduces each; differences of a cumsum (of x and "
    "of its square) give the same with one pass.",
    names=("rolling", "unfold", "1345, 192", "window", "aten::std", "aten::var"),
    actions=("cumsum", "cumulative sum", "running sum", "prefix sum", "avg_pool1d", "moving sum"),
)
def timeseries_rolling_windows(mended):
    batch, length, window = 24, 1536, 192
    forecaster = nn.Sequential(
        nn.Conv1d(3, 32, 9), nn.ReLU(), nn.Conv1d(32, 32, 9, dilation=4), nn.ReLU(), nn.AdaptiveAvgPool1d(4),
        nn.Flatten(), nn.Linear(128, 12),
    ).eval()
    series = torch.randn(batch, length).cumsum(1) / 20

    def rolling(x):
        if not mended:
            windows = x.unfold(1, window, 1)
            return windows.mean(2), windows.std(2)
        sums = F.pad(torch.stack([x, x.square()]).double().cumsum(2), (1, 0))
        first, second = (sums[..., window:] - sums[..., :-window]) / window
        spread = (second - first.square()).clamp(min=0) * window / (window - 1)
        return first.float(), spread.sqrt().float()

    @torch.inference_mode()
    def forecast():
        mean, deviation = rolling(series)
        now = series[:, window - 1 :]
        return forecaster(torch.stack([mean, deviation, (now - mean) / (deviation + 1e-3)], 1))

    return forecast


@case(
    id="distributed-objects",
    round=6,
    domain="vision",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, steps=2),
    cause="An evaluation gathers its predictions with all_gather_object: lists of small tensors are pickled.",
    symptom="After the forward, both ranks have long stretches of Python in pickle, and short gloo:all_gather.",
    answer="gather_predictions sends dictionaries of tensors by all_gather_object, which pickles and unpickles each; "
    "gather the stacked tensors with dist.all_gather.",
    names=("all_gather_object", "pickle", "gather_predictions", "_object_to_tensor", "_tensor_to_object", "unpickl"),
    actions=("dist.all_gather(", "all_gather_into_tensor", "gather the tensors", "stacked tensors", "as tensors",
             "as one tensor", "tensor collective", "with tensors", "without pickl", "all_gather of tensors",
             "once after the evaluation"),
)
def distributed_objects(mended, rank, world):
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 24),
    ).eval()
    images = torch.randn(16, 3, 48, 48)

    def gather_predictions(boxes, scores):
        if mended:
            mine = torch.cat([boxes, scores[:, None]], 1)
            every = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(every, mine)
            return torch.cat(every)
        mine = [
            {"image": at, "box": box.clone(), "score": score.clone()}
            for at, (box, score) in enumerate(zip(boxes, scores))
        ]
        every = [None] * world
        dist.all_gather_object(every, mine)
        return torch.stack([torch.cat([one["box"], one["score"][None]]) for part in every for one in part])

    @torch.inference_mode()
    def evaluate():
        out = model(images)
        return gather_predictions(out[:, :4], out[:, 4:].softmax(1).amax(1))

    return evaluate
