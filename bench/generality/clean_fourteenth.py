# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more. Each is written as an expert would."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-science-koopman",
    domain="science",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    answer="States now and next are coded in one batch, one linear layer moves the codes by one "
    "moment, and a decoder reads them back; the linear layers lead with their backward.",
)
def clean_science_koopman(mended):
    rows, size, width, codes = 448, 64, 768, 128

    class Coder(nn.Sequential):
        def __init__(self, inputs, outputs):
            super().__init__(
                nn.Linear(inputs, width), nn.ReLU(inplace=True),
                nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, outputs),
            )

    class Koopman(nn.Module):
        def __init__(self):
            super().__init__()
            self.code, self.decode = Coder(size, codes), Coder(codes, size)
            self.move = nn.Linear(codes, codes, bias=False)

        def forward(self, states):
            now, after = self.code(states).chunk(2)
            moved = self.move(now)
            return moved, after, self.decode(moved)

    model = Koopman()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    # The rows of a batch: first the states now, then the states that follow.
    states = F.normalize(torch.randn(64, 2 * rows, size), dim=2)
    batches = itertools.cycle(range(64))

    def train_step():
        some = states[next(batches)]
        optimizer.zero_grad(set_to_none=True)
        moved, after, decoded = model(some)
        loss = F.mse_loss(moved, after) + F.mse_loss(decoded, some[rows:])
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-timeseries-blocks",
    domain="time series",
    mode="inference",
    profile=Profile(with_modules=True, record_shapes=True, profile_memory=True),
    answer="Three blocks of dense layers each explain a part of the past and add to the forecast; "
    "one layer gives both parts, the sums are in place, and the linear layers lead.",
)
def clean_timeseries_blocks(mended):
    rows, past, ahead, width = 448, 128, 24, 576

    class Block(nn.Sequential):
        def __init__(self):
            super().__init__(
                nn.Linear(past, width), nn.ReLU(inplace=True),
                nn.Linear(width, width), nn.ReLU(inplace=True),
                nn.Linear(width, width), nn.ReLU(inplace=True),
                nn.Linear(width, past + ahead),
            )

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block() for _ in range(3)])

        def forward(self, seen):
            forecast = seen.new_zeros(len(seen), ahead)
            *blocks, last = self.blocks
            for block in blocks:
                explained, part = block(seen).split([past, ahead], 1)
                seen, forecast = seen - explained, forecast.add_(part)
            return forecast.add_(last(seen)[:, past:])

    model, seen = Forecaster().eval(), F.layer_norm(torch.randn(32, rows, past), [past])
    batches = itertools.cycle(range(32))

    @torch.inference_mode()
    def predict():
        return model(seen[next(batches)])

    return predict


@clean(
    id="clean-tabular-anomalies",
    domain="tabular",
    mode="inference",
    profile=Profile(record_shapes=True, steps=6),
    answer="Rows are put through an autoencoder of dense layers and rated by how far they come "
    "out from where they went in; the linear layers lead.",
)
def clean_tabular_anomalies(mended):
    rows, columns, width, codes = 224, 512, 1024, 256

    model = nn.Sequential(
        nn.Linear(columns, width), nn.ReLU(inplace=True),
        nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, codes),
        nn.Linear(codes, width), nn.ReLU(inplace=True),
        nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, columns),
    ).eval()
    table = F.normalize(torch.randn(32, rows, columns), dim=2)
    batches = itertools.cycle(range(32))

    @torch.inference_mode()
    def rate():
        some = table[next(batches)]
        return torch.linalg.vector_norm(model(some).sub_(some), dim=1)

    return rate


@clean(
    id="clean-vision-twins",
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True, profile_memory=True),
    answer="Two views of each picture pass a channels_last network in one batch, and the product "
    "of their codes is drawn to the identity; the convolutions and their backward lead.",
)
def clean_vision_twins(mended):
    pictures, side, codes = 12, 48, 128

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 96, 4, 4), nn.ReLU(inplace=True),
                nn.Conv2d(96, 128, 3, 1, 1), nn.ReLU(inplace=True),
                nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU(inplace=True),
                nn.Conv2d(128, 64, 3, 2, 1), nn.ReLU(inplace=True),
            )
            self.project = nn.Sequential(
                nn.Linear(64 * (side // 8) ** 2, codes), nn.ReLU(inplace=True),
                nn.Linear(codes, codes),
                nn.BatchNorm1d(codes, affine=False),
            )

        def forward(self, views):
            # In channels_last, this order of the axes needs no copy.
            features = self.layers(views).permute(0, 2, 3, 1).flatten(1)
            return self.project(features).chunk(2)

    model = Network().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    views = torch.rand(32 * 2 * pictures, 3, side, side).to(memory_format=torch.channels_last)
    batches = itertools.cycle(views.split(2 * pictures))
    wanted, weights = torch.eye(codes), torch.full((codes, codes), 0.01).fill_diagonal_(1)

    def train_step():
        optimizer.zero_grad(set_to_none=True)
        one, other = model(next(batches))
        alike = one.t() @ other / pictures
        loss = ((alike - wanted).square() * weights).sum()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-distributed-denoiser",
    domain="vision",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="Each rank trains a denoiser on its own pictures under DistributedDataParallel, with "
    "one small bucket of gradients a step; convolutions lead and the all_reduce is short.",
)
def clean_distributed_denoiser(mended, rank, world):
    batches, pictures, side, width = 48, 12, 32, 48

    model = nn.Sequential(
        nn.Conv2d(3, width, 5, padding=2), nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 5, padding=2), nn.ReLU(inplace=True),
        nn.Conv2d(width, width, 5, padding=2), nn.ReLU(inplace=True),
        nn.Conv2d(width, 3, 5, padding=2),
    ).to(memory_format=torch.channels_last)
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    whole = torch.rand(world, batches * pictures, 3, side, side)
    clear = whole[rank].to(memory_format=torch.channels_last)
    noise = torch.randn_like(clear).mul_(0.1)
    pairs = itertools.cycle(list(zip((clear + noise).split(pictures), noise.split(pictures))))
    del whole, clear

    def train_step():
        noisy, wanted = next(pairs)
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(noisy), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
