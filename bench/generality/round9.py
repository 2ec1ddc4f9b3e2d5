# SPDX-License-Identifier: Apache-2.0
"""Round 9: work whose result is not used, orders that cost, and arguments that were forgotten."""

import math

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-backward-each-loss",
    round=9,
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="A network with four heads calls backward(retain_graph=True) for each of its four losses.",
    symptom="The trunk's convolution_backward ops run four times a step after one forward.",
    answer="backward runs once for each of four losses, so the shared trunk's gradients are computed four times; add "
    "the losses and call backward once.",
    names=("backward", "retain_graph", "four losses", "each loss", "trunk"),
    actions=("add the losses", "sum the losses", "sum of the losses", "sum(losses)", "total loss", "one backward",
             "single backward", "backward once", "combine the losses", "summed", "backward on the sum"),
)
def vision_backward_each_loss(mended):
    class Scene(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 48, 3, 1, 1), nn.ReLU(),
                nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(),
            )
            self.heads = nn.ModuleDict({
                "labels": nn.Conv2d(64, 20, 1), "depth": nn.Conv2d(64, 1, 1),
                "normals": nn.Conv2d(64, 3, 1), "edges": nn.Conv2d(64, 1, 1),
            })

        def forward(self, images):
            shared = self.trunk(images)
            return {name: head(shared) for name, head in self.heads.items()}

    model = Scene()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images, labels = torch.randn(6, 3, 96, 96), torch.randint(20, (6, 24, 24))
    depth, normals = torch.rand(6, 1, 24, 24), torch.randn(6, 3, 24, 24)
    edges = torch.rand(6, 1, 24, 24).round()

    def train_step():
        optimizer.zero_grad()
        out = model(images)
        losses = [
            F.cross_entropy(out["labels"], labels),
            F.l1_loss(out["depth"], depth),
            (1 - F.cosine_similarity(out["normals"], normals)).mean(),
            F.binary_cross_entropy_with_logits(out["edges"], edges),
        ]
        if mended:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward(retain_graph=True)
        optimizer.step()
        return sum(losses)

    return train_step


@case(
    id="language-smooth-targets",
    round=9,
    domain="language",
    mode="training",
    same_result=False,
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Label smoothing is written by hand: a full distribution over 8,000 words for each token, and KLDivLoss.",
    symptom="Ops on [768, 8000] for the loss (kl_div, xlogy, full_like, scatter_, index_fill_) lead beside the head.",
    answer="LabelSmoothing builds a dense target of [tokens, words] and kl_div goes over it; "
    "F.cross_entropy(label_smoothing=0.1) does it from the indices.",
    names=("kl_div", "KLDiv", "LabelSmoothing", "label smoothing", "smoothed target", "dense target", "xlogy"),
    actions=("label_smoothing=", "cross_entropy", "CrossEntropyLoss", "from the indices", "class indices"),
)
def language_smooth_targets(mended):
    words, width, pad = 8000, 64, 0

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.recur = nn.GRU(width, width, batch_first=True)
            self.head = nn.Linear(width, words)

        def forward(self, ids):
            return self.head(self.recur(self.table(ids))[0])

    class LabelSmoothing(nn.Module):
        def __init__(self, smoothing):
            super().__init__()
            self.smoothing, self.criterion = smoothing, nn.KLDivLoss(reduction="sum")

        def forward(self, logits, target):
            spread = torch.full_like(logits, self.smoothing / (words - 2))
            spread.scatter_(1, target[:, None], 1 - self.smoothing)
            spread[:, pad] = 0
            spread.index_fill_(0, (target == pad).nonzero()[:, 0], 0.0)
            return self.criterion(logits.log_softmax(1), spread)

    model, smooth = Tagger(), LabelSmoothing(0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(1, words, (16, 49))

    def train_step():
        optimizer.zero_grad()
        logits, target = model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
        if mended:
            loss = F.cross_entropy(logits, target, label_smoothing=0.1, ignore_index=pad)
        else:
            loss = smooth(logits, target) / target.numel()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-dft-convolution",
    round=9,
    domain="audio",
    mode="inference",
    profile=Profile(record_shapes=True, with_modules=True, with_stack=True),
    cause="A spectrogram is a conv1d with 1,026 sine and cosine kernels of 1,024 samples.",
    symptom="One aten::conv1d with a weight of [1026, 1, 1024] takes most of the step.",
    answer="Spectrogram computes the DFT as a convolution with 1,026 kernels of 1,024 taps; torch.stft uses an FFT.",
    names=("conv1d", "1026", "1,026", "Spectrogram", "DFT", "Fourier"),
    actions=("stft", "fft", "FFT"),
)
def audio_dft_convolution(mended):
    size, hop = 1024, 160

    class Spectrogram(nn.Module):
        def __init__(self):
            super().__init__()
            window = torch.hann_window(size)
            angle = 2 * math.pi * torch.outer(torch.arange(size // 2 + 1.0), torch.arange(size * 1.0)) / size
            self.register_buffer("window", window)
            self.register_buffer("kernels", (torch.cat([angle.cos(), -angle.sin()]) * window)[:, None])

        def forward(self, waves):
            if mended:
                bins = torch.stft(waves, size, hop, window=self.window, center=False, return_complex=True)
                return bins.real.square() + bins.imag.square()
            real, imaginary = F.conv1d(waves[:, None], self.kernels, stride=hop).chunk(2, 1)
            return real.square() + imaginary.square()

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.spectrogram = Spectrogram()
            self.register_buffer("mel", torch.rand(size // 2 + 1, 64) / 64)
            self.convs = nn.Sequential(
                nn.Conv1d(64, 96, 5, stride=2), nn.ReLU(), nn.Conv1d(96, 96, 5, stride=2), nn.ReLU(),
                nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(96, 50),
            )

        def forward(self, waves):
            power = self.spectrogram(waves)
            return self.convs((self.mel.T @ power + 1e-5).log()).sigmoid()

    model, waves = Tagger().eval(), torch.randn(12, 16_000) / 10

    @torch.inference_mode()
    def tag():
        return model(waves)

    return tag


@case(
    id="graph-propagate-wide",
    round=9,
    domain="graphs",
    mode="training",
    profile=Profile(record_shapes=True),
    cause="The first graph convolution spreads 1,000 features over the edges and then projects them to 32.",
    symptom="A sparse product with a [2000, 1000] matrix leads; the one of the second layer is cheap.",
    answer="(A @ X) @ W spreads 1,000 columns; A @ (X @ W) spreads 32: project before the sparse product.",
    names=("sparse", "addmm", "1000", "1,000", "spmm", "propagat"),
    actions=("project first", "project before", "before the sparse", "before propagat", "X @ W", "linear first",
             "reorder", "order of", "associativ", "narrow", "32 columns", "before spreading", "before aggregat"),
)
def graph_propagate_wide(mended):
    nodes, edges, wide, hidden, classes = 2000, 100_000, 1000, 32, 7

    class Layer(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.linear, self.bias = nn.Linear(inputs, outputs, bias=False), nn.Parameter(torch.zeros(outputs))

        def forward(self, spread, x):
            if mended:
                return spread @ self.linear(x) + self.bias
            return self.linear(spread @ x) + self.bias

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(wide, hidden), Layer(hidden, classes)

        def forward(self, spread, x):
            h = F.relu(self.first(spread, F.dropout(x, 0.5, self.training)))
            return self.second(spread, F.dropout(h, 0.5, self.training))

    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4, fused=True)
    links = torch.randint(nodes, (2, edges))
    spread = torch.sparse_coo_tensor(links, torch.full((edges,), 1 / 50), (nodes, nodes)).coalesce().to_sparse_csr()
    features, labels = torch.rand(nodes, wide), torch.randint(classes, (nodes,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(spread, features), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-bag-by-hand",
    round=9,
    domain="recommenders",
    mode="inference",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="Histories of 200 items are averaged by hand: all vectors are gathered, multiplied by a mask and summed.",
    symptom="aten::embedding, mul and sum over [256, 200, 64] lead; the towers after them are small.",
    answer="History gathers [256, 200, 64] numbers to average them; nn.EmbeddingBag (mode mean, offsets) reads and "
    "adds in one op.",
    names=("embedding", "index_select", "256, 200, 64", "History", "mask"),
    actions=("EmbeddingBag", "embedding_bag", "embedding bag"),
)
def recommender_bag_by_hand(mended):
    class History(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(30_000, 64, padding_idx=0)

        def forward(self, ids):
            if mended:
                return F.embedding_bag(clicked, self.table.weight, begins, mode="mean")
            mask = (ids != 0).unsqueeze(2).float()
            return (self.table(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)

    class Candidates(nn.Module):
        def __init__(self):
            super().__init__()
            self.history = History()
            self.tower = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
            self.items = nn.Parameter(torch.randn(1500, 64))

        def forward(self, ids):
            return self.tower(self.history(ids)) @ self.items.T

    model = Candidates().eval()
    lengths = torch.randint(150, 200, (256, 1))
    ids = torch.randint(1, 30_000, (256, 200)) * (torch.arange(200) < lengths)
    clicked, begins = ids[ids != 0], lengths[:, 0].cumsum(0) - lengths[:, 0]

    @torch.inference_mode()
    def recommend():
        return model(ids).topk(20, 1).values

    return recommend


@case(
    id="science-complex-fft",
    round=9,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False),
    cause="A spectral flow solver transforms real fields with fft2 and ifft2 and takes the real part.",
    symptom="aten::_fft_c2c of 192 x 192 grids leads, with complex products over all frequencies.",
    answer="The fields are real, but fft2 and ifft2().real compute all complex frequencies; rfft2 and irfft2 compute "
    "half of them.",
    names=("_fft_c2c", "fft_c2c", "fft2", "ifft2", "complex"),
    actions=("rfft", "irfft", "real FFT", "real-to-complex", "half of the frequencies", "half the spectrum"),
)
def science_complex_fft(mended):
    size, step_size, viscosity = 192, 1e-3, 1e-3
    waves = torch.fft.fftfreq(size, 1 / size)
    across = torch.fft.rfftfreq(size, 1 / size) if mended else waves
    kx, ky = 2j * math.pi * waves[:, None], 2j * math.pi * across[None]
    square = (kx * kx + ky * ky).real
    inverse = torch.where(square == 0, torch.zeros(()), 1 / square)
    kept = ((waves.abs() < size / 3)[:, None] & (across.abs() < size / 3)[None]).float()
    place = torch.arange(size) / size * 2 * math.pi
    start = (3 * place).sin()[:, None] * place.cos() + 0.3 * (5 * place).cos()[:, None] * (2 * place).sin()
    start = start.expand(3, -1, -1) * torch.tensor([1.0, 0.7, 1.3])[:, None, None]

    def forward(field):
        return torch.fft.rfft2(field) if mended else torch.fft.fft2(field)

    def back(bins):
        return torch.fft.irfft2(bins, s=(size, size)) if mended else torch.fft.ifft2(bins).real

    def slope(vorticity):
        stream = -vorticity * inverse
        advection = back(ky * stream) * back(kx * vorticity) - back(kx * stream) * back(ky * vorticity)
        return viscosity * square * vorticity - kept * forward(advection)

    @torch.inference_mode()
    def advance():
        bins = forward(start)
        for _ in range(3):
            half = bins + step_size / 2 * slope(bins)
            bins = bins + step_size * slope(half)
        return back(bins).square()

    return advance


@case(
    id="generative-features-too-deep",
    round=9,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    cause="A perceptual loss reads two early layers of a frozen network, and the network runs to its last layer.",
    symptom="Later convolutions and the classifier of Features run forward and have no backward.",
    answer="Features runs all its layers though the loss reads the outputs of two early ones; cut the network after "
    "the last layer that is read.",
    names=("Features", "features", "later layers", "deeper layers", "no backward", "classifier", "perceptual"),
    actions=("cut the network", "cut it", "truncate", "stop after", "stop at", "early exit", "only the first",
             "only up to", "drop the layers", "drop the later", "return early", "skip the", "remove the layers",
             "last layer that is read", "slice"),
)
def generative_features_too_deep(mended):
    class Features(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
                nn.MaxPool2d(2), nn.Conv2d(32, 128, 3, padding=1), nn.ReLU(),
                nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(),
                nn.MaxPool2d(2), nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(),
                nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                nn.Flatten(), nn.Linear(256 * 16, 512), nn.ReLU(), nn.Linear(512, 100),
            )
            self.read = (3, 6)

        def forward(self, x):
            layers = self.layers[: self.read[-1] + 1] if mended else self.layers
            outputs = []
            for layer in layers:
                x = layer(x)
                outputs.append(x)
            return [outputs[at] for at in self.read]

    class Enlarge(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
                nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2),
            )

        def forward(self, x):
            return self.layers(x)

    features, model = Features().eval().requires_grad_(False), Enlarge()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    small, large = torch.rand(6, 3, 32, 32), torch.rand(6, 3, 64, 64)

    def train_step():
        optimizer.zero_grad()
        made = model(small)
        with torch.no_grad():
            wanted = features(large)
        loss = F.l1_loss(made, large)
        for ours, theirs in zip(features(made), wanted):
            loss = loss + 0.1 * F.mse_loss(ours, theirs)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-batch-first",
    round=9,
    domain="time series",
    mode="training",
    same_result=False,
    profile=Profile(record_shapes=True, with_modules=True, steps=1),
    cause="nn.GRU lacks batch_first=True: it takes the batch of 256 series as time and recurs 256 times.",
    symptom="The GRU gets [256, 16, 8] in its default order: 256 steps with a batch of 16, each of small ops.",
    answer="The GRU runs over the batch dimension, 256 steps of 16 rows, because batch_first=True is missing; set "
    "it, so that it takes 16 steps of 256 rows (the results are wrong, too).",
    names=("GRU", "gru", "batch dimension", "256 steps", "256 times"),
    actions=("batch_first", "transpose", "permute", "swap"),
)
def timeseries_batch_first(mended):
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.recur = nn.GRU(8, 48, batch_first=mended)
            self.head = nn.Linear(48, 3)

        def forward(self, series):
            states, _ = self.recur(series)
            return self.head(states[:, -1])

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    series, future = torch.randn(256, 16, 8), torch.randn(256, 3)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-next-iter",
    round=9,
    domain="tabular",
    mode="training",
    same_result=False,
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Each step takes next(iter(loader)): a new iterator shuffles all 500,000 rows to give one batch.",
    symptom="aten::randperm of 500,000 and its tolist run in each step, below DataLoader and RandomSampler.",
    answer="next(iter(loader)) makes a new iterator in each step, and its sampler permutes all 500,000 rows "
    "(randperm, tolist); make the iterator once and go through it with a for loop.",
    names=("next(iter", "iter(loader", "randperm", "RandomSampler", "new iterator", "tolist"),
    actions=("once", "for loop", "for batch in", "keep the iterator", "reuse the iterator", "iterate over",
             "out of the step", "outside", "per epoch", "an epoch", "replacement"),
)
def tabular_next_iter(mended):
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self, numbers, labels):
            self.numbers, self.labels = numbers, labels

        def __len__(self):
            return len(self.labels)

        def __getitems__(self, chosen):
            chosen = torch.tensor(chosen)
            return self.numbers[chosen], self.labels[chosen]

    model = nn.Sequential(
        nn.Linear(24, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1), nn.Flatten(0)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    rows = Rows(torch.randn(500_000, 24), torch.rand(500_000).round())
    loader = DataLoader(rows, 512, shuffle=True, collate_fn=lambda batch: batch)
    batches = iter(loader)

    def train_step():
        numbers, labels = next(batches if mended else iter(loader))
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(numbers), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="distributed-rank0-loads",
    round=9,
    domain="vision",
    mode="training",
    scale="distributed",
    same_result=False,
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Rank 0 prepares the images of both ranks and scatters them; rank 1 waits for them in each step.",
    symptom="Rank 1 waits in gloo:scatter while rank 0 resizes twice as many images as it trains on.",
    answer="prepare runs for both ranks' images on rank 0 while rank 1 waits in scatter; let each rank prepare its "
    "own part (DistributedSampler).",
    names=("scatter", "prepare", "rank 0"),
    actions=("each rank", "every rank", "own part", "own share", "own images", "own batch", "DistributedSampler",
             "both ranks prepare", "on rank 1", "own shard", "prefetch", "ahead"),
)
def distributed_rank0_loads(mended, rank, world):
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(nn.Sequential(
        nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 48, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10),
    ))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    pictures = torch.randint(0, 256, (16, 3, 416, 416), dtype=torch.uint8)
    labels = torch.randint(10, (8,))

    def prepare(count):
        pixels = pictures[torch.randint(len(pictures), (count,))].float() / 255
        pixels = F.interpolate(pixels, (112, 112), mode="bicubic", antialias=True)
        return (pixels - 0.45) / 0.225

    def load():
        if mended:
            return prepare(8)
        images = torch.empty(8, 3, 112, 112)
        dist.scatter(images, list(prepare(8 * world).chunk(world)) if rank == 0 else None, src=0)
        return images

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(load()), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
