# SPDX-License-Identifier: Apache-2.0
"""Round 1: ten cases of ten domains, causes that many users meet."""

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, case


@case(
    id="vision-unfold",
    round=1,
    domain="vision",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True),
    cause="Convolutions are written by hand: F.unfold copies every patch (nine times the input), then a matmul.",
    symptom="A small image classifier trains slowly; im2col, col2im and bmm take the step.",
    answer="F.unfold/im2col with its backward col2im and the bmm replace a convolution; call F.conv2d.",
    names=("im2col", "col2im", "unfold", "PatchConv"),
    actions=("conv2d", "nn.Conv2d", "F.conv2d", "a convolution"),
)
def vision_unfold(mended):
    class PatchConv(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(outputs, inputs, 3, 3) / (inputs * 9) ** 0.5)
            self.bias = nn.Parameter(torch.zeros(outputs))

        def forward(self, x):
            if mended:
                return F.conv2d(x, self.weight, self.bias, padding=1)
            patches = F.unfold(x, 3, padding=1)
            out = self.weight.flatten(1) @ patches + self.bias[:, None]
            return out.unflatten(2, x.shape[2:])

    def block(inputs, outputs):
        return [PatchConv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU()]

    model = nn.Sequential(
        *block(3, 32), *block(32, 32), nn.MaxPool2d(2), *block(32, 64), nn.MaxPool2d(2), *block(64, 128),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images, labels = torch.randn(16, 3, 40, 40), torch.randint(10, (16,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="language-no-cache",
    round=1,
    domain="language",
    mode="inference",
    profile=Profile(record_shapes=True, schedule=False, steps=3),
    cause="Text is generated with use_cache=False: each new token runs the model over the whole prefix again.",
    symptom="Generation takes long per token and grows with the prompt; the products are as large as the prompt's.",
    answer="Each token's forward sees the whole sequence (length grows by one a call); keep keys and values.",
    names=("use_cache", "KV cache", "key/value cache", "past_key_values", "whole prefix", "whole sequence",
           "growing sequence"),
    actions=("use_cache=True", "past_key_values", "KV cache", "cache keys and values", "StaticCache", "DynamicCache"),
)
def language_no_cache(mended):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=4000, n_positions=256, n_embd=192, n_layer=4, n_head=6, bos_token_id=0,
                        eos_token_id=None, pad_token_id=0, activation_function="gelu_pytorch_tanh")
    model = GPT2LMHeadModel(config).eval()
    prompt = torch.randint(4000, (4, 96))
    every = torch.ones_like(prompt)

    def answer():
        out = model.generate(prompt, attention_mask=every, max_new_tokens=10, do_sample=False, use_cache=mended)
        return out.double().mean()

    return answer


@case(
    id="audio-numpy-spectrogram",
    round=1,
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True),
    cause="Log-mel features are computed in NumPy, clip by clip in double precision, inside the training step.",
    symptom="A keyword spotter's step has a long stretch in which no PyTorch op runs.",
    answer="The function log_mel holds the host in NumPy (np.fft) before the model; use a batched torch.stft or "
    "compute the features once.",
    names=("log_mel", "numpy", "NumPy", "rfft"),
    actions=("torch.stft", "torch.fft", "in PyTorch", "whole batch", "vectorise", "vectorize", "precompute",
             "DataLoader", "num_workers", "cache the features", "outside the step", "workers"),
)
def audio_numpy_spectrogram(mended):
    clips, labels = torch.randn(48, 6000), torch.randint(12, (48,))
    bank = torch.rand(40, 129)
    window = torch.hann_window(256)
    mel, hann = bank.numpy(), window.numpy()
    model = nn.Sequential(
        nn.Conv1d(40, 48, 5, stride=2), nn.ReLU(), nn.Conv1d(48, 64, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 12),
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def log_mel(batch):
        if mended:
            power = torch.stft(batch, 256, 64, window=window, center=False, return_complex=True).abs().square()
            return (bank @ power + 1e-6).log()
        found = []
        for clip in batch.numpy().astype(np.float64):
            frames = np.stack([clip[at : at + 256] * hann for at in range(0, len(clip) - 255, 64)])
            power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
            found.append(np.log(mel @ power.T + 1e-6))
        return torch.from_numpy(np.stack(found)).float()

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(log_mel(clips)), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="graph-dense-adjacency",
    round=1,
    domain="graphs",
    mode="training",
    profile=Profile(record_shapes=True),
    cause="A graph network multiplies by a dense adjacency matrix of 2,500 nodes, of which 0.2 percent is not zero.",
    symptom="Two layers of graph convolution take much more than their few edges explain; aten::mm is on top.",
    answer="The [2500, 2500] x [2500, 64] products are by a matrix of zeros; use a sparse CSR matrix or index_add_.",
    names=("2500, 2500", "2500x2500", "2500 x 2500", "adjacency", "mostly zeros"),
    actions=("sparse matrix", "CSR", "index_add", "scatter_add", "torch.sparse"),
)
def graph_dense_adjacency(mended):
    nodes, edges = 2500, 12000
    ends = torch.randint(nodes, (2, edges))
    adjacency = torch.sparse_coo_tensor(ends, torch.full((edges,), 0.2), (nodes, nodes)).coalesce()
    adjacency = adjacency.to_sparse_csr() if mended else adjacency.to_dense()
    if mended:
        back = adjacency.to_dense().t().contiguous().to_sparse_csr()

    class Spread(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return adjacency @ x

        @staticmethod
        def backward(ctx, grad):
            return back @ grad

    class GraphConv(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.project = nn.Linear(inputs, outputs)

        def forward(self, x):
            x = self.project(x)
            return Spread.apply(x) if mended else adjacency @ x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GraphConv(64, 64), GraphConv(64, 64)
            self.out = nn.Linear(64, 7)

        def forward(self, x):
            return self.out(self.second(self.first(x).relu()).relu())

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    x, labels = torch.randn(nodes, 64), torch.randint(7, (nodes,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="recommender-dense-gradient",
    round=1,
    domain="recommenders",
    mode="training",
    profile=Profile(profile_memory=True, record_shapes=True),
    cause="A 250,000-row embedding has dense gradients: each step fills and updates all rows for 2,048 that were read.",
    symptom="The optimizer and embedding_dense_backward take the step though the model is tiny.",
    answer="embedding_dense_backward writes a gradient of the whole table and Adam updates every row; use sparse "
    "gradients with SparseAdam.",
    names=("embedding_dense_backward", "Embedding", "dense gradient", "EmbeddingBackward0", "embedding_backward"),
    actions=("sparse=True", "SparseAdam", "sparse gradient"),
)
def recommender_dense_gradient(mended):
    class TwoTower(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.Embedding(250_000, 32, sparse=mended)
            self.tower = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, pairs):
            return self.tower(self.items(pairs).flatten(1)).squeeze(1)

    model = TwoTower()
    if mended:
        optimizers = [
            torch.optim.SparseAdam(model.items.parameters(), lr=1e-3),
            torch.optim.Adam(model.tower.parameters(), lr=1e-3, fused=True),
        ]
    else:
        optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)]
    pairs, clicks = torch.randint(250_000, (1024, 2)), torch.rand(1024).round()

    def train_step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(pairs), clicks)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    return train_step


@case(
    id="science-inverse",
    round=1,
    domain="science",
    mode="inference",
    profile=Profile(schedule=False, with_stack=True),
    cause="An implicit heat solver inverts its matrix in each step to multiply one vector by the inverse.",
    symptom="aten::linalg_inv_ex takes nearly the whole step.",
    answer="linalg.inv followed by a product solves one system; linalg.solve needs a third of the work.",
    names=("linalg_inv", "linalg.inv", "inverse"),
    actions=("linalg.solve", "linalg_solve", "lu_factor", "lu_solve", "cholesky_solve"),
)
def science_inverse(mended):
    n = 500
    eye = torch.eye(n)
    heat = torch.rand(n)

    def conductivity(u):
        return 0.5 + torch.sigmoid(u)

    def matrix(u):
        k = conductivity(u) * 0.4
        return eye + torch.diag(2 * k) - torch.diag(k[:-1], 1) - torch.diag(k[1:], -1)

    @torch.no_grad()
    def advance():
        u = heat
        for _ in range(3):
            a = matrix(u)
            u = torch.linalg.solve(a, u) if mended else torch.linalg.inv(a) @ u
        return u

    return advance


@case(
    id="generative-frozen-encoder",
    round=1,
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True),
    cause="A latent diffusion model trains its denoiser alone, but gradients are computed for the frozen encoder too.",
    symptom="The backward pass takes twice the time of the trained denoiser's share.",
    answer="The encoder is not trained, yet it runs with gradients on and the backward goes through it; run it under "
    "no_grad or set requires_grad_(False).",
    names=("encoder", "Encoder", "requires_grad", "frozen", "not trained"),
    actions=("no_grad", "requires_grad_(False)", "requires_grad=False", "detach", "inference_mode", "freeze"),
)
def generative_frozen_encoder(mended):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 32, 3, padding=1), nn.SiLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.SiLU(),
                nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 8, 3, stride=2, padding=1),
            )

        def forward(self, images):
            return self.layers(images)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(9, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(),
                nn.Conv2d(64, 8, 3, padding=1),
            )

        def forward(self, noisy, time):
            time = time[:, None, None, None].expand(-1, 1, *noisy.shape[2:])
            return self.layers(torch.cat([noisy, time], 1))

    encoder, denoiser = Encoder(), Denoiser()
    optimizer = torch.optim.AdamW(denoiser.parameters(), fused=True)
    images = torch.randn(8, 3, 64, 64)

    def train_step():
        optimizer.zero_grad()
        with torch.set_grad_enabled(not mended):
            latents = encoder(images)
        time, noise = torch.rand(len(images)), torch.randn_like(latents)
        share = time[:, None, None, None]
        loss = F.mse_loss(denoiser((1 - share) * latents + share * noise, time), noise)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="timeseries-cell-loop",
    round=1,
    domain="time series",
    mode="training",
    profile=Profile(),
    cause="A forecaster steps nn.LSTMCell in a Python loop over 96 time steps.",
    symptom="Thousands of small ops a step; no op is slow, and the overhead of calls is most of the time.",
    answer="The loop calls LSTMCell 96 times (aten::lstm_cell); nn.LSTM takes the sequence in one call.",
    names=("lstm_cell", "LSTMCell", "loop over time"),
    actions=("nn.LSTM", "whole sequence"),
)
def timeseries_cell_loop(mended):
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTM(8, 64, batch_first=True) if mended else nn.LSTMCell(8, 64)
            self.out = nn.Linear(64, 4)

        def forward(self, series):
            if mended:
                return self.out(self.cell(series)[0][:, -1])
            h = c = series.new_zeros(len(series), 64)
            for at in range(series.shape[1]):
                h, c = self.cell(series[:, at], (h, c))
            return self.out(h)

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    series, target = torch.randn(32, 96, 8), torch.randn(32, 4)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@case(
    id="tabular-item-metric",
    round=1,
    domain="tabular",
    mode="inference",
    profile=Profile(with_stack=True, steps=3),
    cause="An evaluation counts its confusion matrix in Python, one row at a time, with two .item() calls each.",
    symptom="Evaluation takes far longer than the model's forward; thousands of aten::item and aten::select.",
    answer="confusion_matrix reads each label and prediction with .item(); count with bincount in one call.",
    names=(".item()", "aten::item", "_local_scalar_dense", "confusion_matrix"),
    actions=("bincount", "vectorise", "vectorize", "index_put", "scatter_add", "tolist", "whole tensor",
             "without a loop"),
)
def tabular_item_metric(mended):
    classes = 10
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, classes))
    model.eval()
    rows, labels = torch.randn(1800, 64), torch.randint(classes, (1800,))

    def confusion_matrix(predicted):
        if mended:
            return torch.bincount(labels * classes + predicted, minlength=classes**2).view(classes, classes)
        matrix = [[0] * classes for _ in range(classes)]
        for i in range(len(labels)):
            matrix[labels[i].item()][predicted[i].item()] += 1
        return torch.tensor(matrix)

    @torch.no_grad()
    def evaluate():
        matrix = confusion_matrix(model(rows).argmax(1))
        return matrix.diagonal().sum() / len(labels)

    return evaluate


@case(
    id="distributed-reduce-each",
    round=1,
    domain="tabular",
    mode="training",
    scale="distributed",
    profile=Profile(record_shapes=True),
    cause="Gradients are averaged with one blocking all_reduce for each of 162 small parameters.",
    symptom="Half of each rank's step is gloo:all_reduce calls of a few kilobytes.",
    answer="Many tiny all_reduce calls pay the latency each; put gradients into one buffer, or use DDP's buckets.",
    names=("all_reduce", "allreduce"),
    actions=("bucket", "flatten", "one buffer", "DistributedDataParallel", "DDP", "coalesce", "async_op"),
)
def distributed_reduce_each(mended, rank, world):
    layers = []
    for _ in range(40):
        layers += [nn.Linear(96, 96), nn.LayerNorm(96), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(96, 1))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
    rows, target = torch.randn(128, 96), torch.randn(128, 1)

    def average_gradients():
        grads = [parameter.grad for parameter in model.parameters()]
        if mended:
            flat = torch.cat([grad.flatten() for grad in grads])
            dist.all_reduce(flat)
            flat /= world
            for grad, mean in zip(grads, flat.split([grad.numel() for grad in grads])):
                grad.copy_(mean.view_as(grad))
            return
        for grad in grads:
            dist.all_reduce(grad)
            grad /= world

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), target)
        loss.backward()
        average_gradients()
        optimizer.step()
        return loss

    return train_step
