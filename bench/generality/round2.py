# SPDX-License-Identifier: Apache-2.0
"""Round 2: work of the right kind, done at the wrong place, in the wrong shape or too often."""

import pathlib
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-blur",
    round=2,
    domain="vision",
    mode="training",
    profile=Profile(record_shapes=True),
    cause="Augmentation in the step blurs with a two-dimensional 31 x 31 Gaussian kernel, which is separable.",
    symptom="A convolution of three channels outweighs the network that is trained.",
    answer="The depthwise convolution with a [3, 1, 31, 31] kernel is a Gaussian blur; two passes with 31 x 1 and "
    "1 x 31 do the same with a fifteenth of the work, or augment outside the step.",
    names=("31, 31", "31x31", "31 x 31", "blur", "depthwise", "3, 1, 31"),
    actions=("separable", "1-D", "1D", "one-dimensional", "two passes", "smaller kernel", "FFT", "DataLoader",
             "outside the step"),
)
def vision_blur(mended):
    line = torch.exp(-(torch.arange(31.0) - 15).square() / 50)
    line = line / line.sum()
    wide, tall = line.expand(3, 1, 1, 31), line[:, None].expand(3, 1, 31, 1)
    square = (tall * wide).contiguous()

    def blur(images):
        if mended:
            rows = F.conv2d(images, wide.contiguous(), padding=(0, 15), groups=3)
            return F.conv2d(rows, tall.contiguous(), padding=(15, 0), groups=3)
        return F.conv2d(images, square, padding=15, groups=3)

    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    images, labels = torch.randn(8, 3, 96, 96), torch.randint(10, (8,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(blur(images)), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-all-logits",
    round=2,
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Masked language modelling projects all positions to the vocabulary; the loss reads 15 percent of them.",
    symptom="The vocabulary head and its loss take most of the step.",
    answer="The head's Linear to 12,000 words and cross_entropy run on every position though ignore_index drops 85 "
    "percent; select the masked positions before the head.",
    names=("head", "vocabulary", "12000", "12,000", "logits", "cross_entropy"),
    actions=("masked positions", "before the head", "only the positions", "fewer positions",
             "positions that the loss reads"),
)
def language_all_logits(mended):
    vocabulary, width = 12_000, 128

    class MaskedModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, width)
            nn.init.normal_(self.embed.weight, std=0.02)
            layer = nn.TransformerEncoderLayer(width, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(width, vocabulary, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens, targets):
            hidden = self.encoder(self.embed(tokens))
            if mended:
                chosen = targets != -100
                return F.cross_entropy(self.head(hidden[chosen]), targets[chosen])
            return F.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten(), ignore_index=-100)

    model = MaskedModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(vocabulary, (4, 128))
    chosen = torch.rand(tokens.shape) < 0.15
    targets = torch.where(chosen, tokens, -100)
    tokens[chosen] = 0  # the mask's token

    def train_step():
        optimizer.zero_grad()
        loss = model(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="audio-long-filter",
    round=2,
    domain="audio",
    mode="inference",
    profile=Profile(record_shapes=True, schedule=False),
    cause="Reverberation is a direct conv1d with an impulse response of 8,000 samples.",
    symptom="One convolution of one channel takes the step; the tagger behind it is small.",
    answer="conv1d with an 8,000-tap kernel costs samples times taps; convolve by FFT (rfft, product, irfft).",
    names=("conv1d", "8000", "8,000", "reverberate", "aten::convolution", "mkldnn_convolution"),
    actions=("FFT", "rfft", "fftconvolve", "frequency domain", "shorter kernel"),
)
def audio_long_filter(mended):
    taps = 8000
    impulse = torch.randn(taps) * torch.exp(-torch.arange(taps) / 1500)
    tagger = nn.Sequential(
        nn.Conv1d(1, 32, 64, stride=16), nn.ReLU(), nn.Conv1d(32, 64, 8, stride=4), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 20),
    ).eval()
    clips = torch.randn(2, 1, 12_000)

    def reverberate(wave):
        if mended:
            size = 20_000
            spectrum = torch.fft.rfft(wave, size) * torch.fft.rfft(impulse, size)
            return torch.fft.irfft(spectrum, size)[..., : wave.shape[2]]
        return F.conv1d(F.pad(wave, (taps - 1, 0)), impulse.flip(0)[None, None])

    @torch.inference_mode()
    def tag():
        return tagger(reverberate(clips))

    return tag


@case(
    id="graph-edge-projection",
    round=2,
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    cause="Messages project cat(source, target) for each of 30,000 edges; the projection could be of the 1,500 nodes.",
    symptom="Linear layers on edges, with the gathers and the cat before them, take the step.",
    answer="Linear of cat(h[src], h[dst]) is the sum of two Linears of nodes: project nodes first and gather then.",
    names=("message", "30000", "30,000", "EdgeConv", "aten::cat", "torch.cat"),
    actions=("project nodes", "before the gather", "nodes first", "per node", "split the weight", "gather after",
             "without cat"),
)
def graph_edge_projection(mended):
    nodes, edges, width = 1500, 30_000, 64
    source, target = torch.randint(nodes, (2, edges))

    class EdgeConv(nn.Module):
        def __init__(self):
            super().__init__()
            self.message = nn.Linear(2 * width, width)

        def forward(self, h):
            if mended:
                ours, theirs = self.message.weight.split(width, 1)
                messages = F.linear(h, ours)[source] + F.linear(h, theirs, self.message.bias)[target]
            else:
                messages = self.message(torch.cat([h[source], h[target]], 1))
            return h.new_zeros(nodes, width).index_add_(0, target, messages.relu()) / 20

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([EdgeConv(), EdgeConv()])
            self.out = nn.Linear(width, 5)

        def forward(self, h):
            for conv in self.convs:
                h = h + conv(h)
            return self.out(h)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    features, labels = torch.randn(nodes, width), torch.randint(5, (nodes,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-full-sort",
    round=2,
    domain="recommenders",
    mode="inference",
    profile=Profile(),
    cause="The 20 best of 40,000 items are found by sorting all scores of each user.",
    symptom="aten::sort takes several times the scoring.",
    answer="sort orders 40,000 scores to read 20; torch.topk finds them.",
    names=("sort", "argsort"),
    actions=("topk", "top-k"),
)
def recommender_full_sort(mended):
    users, items = torch.randn(24, 48), torch.randn(40_000, 48)
    tower = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 48)).eval()

    @torch.no_grad()
    def recommend():
        scores = tower(users) @ items.T
        if mended:
            best = scores.topk(20, dim=1).values
        else:
            best = scores.sort(dim=1, descending=True).values[:, :20]
        return best

    return recommend


@case(
    id="science-row-loop",
    round=2,
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, steps=3),
    cause="A wave equation's stencil goes over the grid's rows in a Python loop.",
    symptom="Thousands of ops on vectors of 254 numbers; each takes microseconds, the step many milliseconds.",
    answer="advance loops over rows: slices, additions and copies of one row each; write the stencil on whole slices.",
    names=("advance", "loop over rows", "aten::select", "aten::slice", "Python loop"),
    actions=("whole slices", "slices", "vectorise", "vectorize", "conv2d", "torch.roll", "whole grid",
             "without a loop"),
)
def science_row_loop(mended):
    n = 256
    old = torch.zeros(n, n)
    now = torch.randn(n, n)

    @torch.no_grad()
    def advance():
        new = torch.zeros_like(now)
        if mended:
            middle = now[1:-1, 1:-1]
            around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:] - 4 * middle
            new[1:-1, 1:-1] = 2 * middle - old[1:-1, 1:-1] + 0.2 * around
            return new
        for i in range(1, n - 1):
            row = now[i, 1:-1]
            around = now[i - 1, 1:-1] + now[i + 1, 1:-1] + now[i, :-2] + now[i, 2:] - 4 * row
            new[i, 1:-1] = 2 * row - old[i, 1:-1] + 0.2 * around
        return new

    return advance


@case(
    id="generative-full-covariance",
    round=2,
    domain="generative",
    mode="training",
    profile=Profile(with_modules=True),
    cause="A VAE's diagonal posterior is a MultivariateNormal with a full covariance matrix.",
    symptom="Cholesky factors and triangular solves take the step of a small VAE.",
    answer="MultivariateNormal(mean, diag_embed(variance)) factors a 48 x 48 matrix for each sample; use "
    "Independent(Normal).",
    names=("MultivariateNormal", "cholesky", "linalg_cholesky_ex", "triangular_solve", "linalg_solve_triangular"),
    actions=("Independent", "Normal(", "diagonal"),
)
def generative_full_covariance(mended):
    from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

    latent = 48

    class Vae(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 2 * latent))
            self.decode = nn.Sequential(nn.Linear(latent, 256), nn.ReLU(), nn.Linear(256, 784))

        def forward(self, x):
            mean, log_variance = self.encode(x).chunk(2, 1)
            variance = log_variance.exp()
            if mended:
                posterior = Independent(Normal(mean, variance.sqrt(), validate_args=False), 1)
                prior = Independent(Normal(torch.zeros(latent), torch.ones(latent), validate_args=False), 1)
            else:
                posterior = MultivariateNormal(mean, torch.diag_embed(variance), validate_args=False)
                prior = MultivariateNormal(torch.zeros(latent), torch.eye(latent), validate_args=False)
            z = posterior.rsample()
            reconstruction = F.mse_loss(self.decode(z), x, reduction="none").sum(1)
            return (reconstruction + kl_divergence(posterior, prior)).mean()

    model = Vae()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    digits = torch.rand(128, 784)

    def train_step():
        optimizer.zero_grad()
        loss = model(digits)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-own-adam",
    round=2,
    domain="tabular",
    mode="training",
    profile=Profile(record_shapes=True, profile_memory=True),
    cause="Adam is written by hand: about ten ops with new tensors for each parameter.",
    symptom="mul, add, div and sqrt of weight-sized tensors take more than forward and backward.",
    answer="The update is a chain of element-wise ops that each pass over the weights; torch.optim.Adam(fused=True) "
    "is one pass.",
    names=("optimizer", "Adam", "aten::sqrt", "element-wise", "elementwise"),
    actions=("fused=True", "torch.optim", "foreach", "in-place", "in place", "torch.compile", "addcdiv"),
)
def tabular_own_adam(mended):
    model = nn.Sequential(nn.Linear(200, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    rows, target = torch.randn(64, 200), torch.randn(64, 1)

    class OwnAdam:
        def __init__(self, parameters):
            self.parameters = list(parameters)
            self.first = [torch.zeros_like(p) for p in self.parameters]
            self.second = [torch.zeros_like(p) for p in self.parameters]
            self.count = 0

        def zero_grad(self):
            for p in self.parameters:
                p.grad = None

        @torch.no_grad()
        def step(self):
            self.count += 1
            for i, p in enumerate(self.parameters):
                self.first[i] = 0.9 * self.first[i] + 0.1 * p.grad
                self.second[i] = 0.999 * self.second[i] + 0.001 * p.grad**2
                mean = self.first[i] / (1 - 0.9**self.count)
                square = self.second[i] / (1 - 0.999**self.count)
                p.data = p.data - 1e-3 * mean / (torch.sqrt(square) + 1e-8)

    optimizer = torch.optim.Adam(model.parameters(), fused=True) if mended else OwnAdam(model.parameters())

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-train-mode",
    round=2,
    domain="time series",
    mode="inference",
    profile=Profile(with_stack=True),
    same_result=False,  # dropout changes it
    cause="A forecaster predicts in training mode: eval() was forgotten, so dropout runs and fused layers do not.",
    symptom="Dropout's random numbers are among the costliest ops of a prediction.",
    answer="aten::dropout (bernoulli_) in inference says that the model is in training mode; call model.eval().",
    names=("dropout", "bernoulli_", "training mode", "train mode"),
    actions=("eval()", "model.eval"),
)
def timeseries_train_mode(mended):
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(6, 96)
            layer = nn.TransformerEncoderLayer(96, 4, 384, dropout=0.2, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
            self.out = nn.Linear(96, 6)

        def forward(self, window):
            return self.out(self.encoder(self.embed(window))[:, -1])

    model = Forecaster()
    if mended:
        model.eval()
    window = torch.randn(16, 96, 6)

    @torch.no_grad()
    def predict():
        return model(window)

    return predict


@case(
    id="distributed-rank0-saves",
    round=2,
    domain="vision",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True),
    cause="Rank 0 writes a checkpoint in every step; rank 1 waits for it in the next all_reduce.",
    symptom="Rank 1's gradients wait long in gloo:all_reduce; rank 0 has a stretch in which no op runs.",
    answer="Rank 0 is late: save_checkpoint (torch.save) holds it each step and rank 1 waits; save rarely, or in the "
    "background.",
    names=("save_checkpoint", "torch.save", "rank 0 is", "rank 0's", "serialization"),
    actions=("less often", "every N steps", "rarely", "asynchronous", "async_save", "background", "outside the step"),
)
def distributed_rank0_saves(mended, rank, world):
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 10),
    )
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    images, labels = torch.randn(16, 3, 48, 48), torch.randint(10, (16,))
    folder = tempfile.TemporaryDirectory()
    done = 0

    def save_checkpoint():
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": done}
        torch.save(state, pathlib.Path(folder.name) / "last.pt")

    def train_step():
        nonlocal done
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        done += 1
        if rank == 0 and (not mended or done % 500 == 0):
            save_checkpoint()
        return loss

    return train_step
