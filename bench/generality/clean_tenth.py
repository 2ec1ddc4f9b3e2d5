# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more: made with rounds 19 and 20. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision-pose",
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A pose network in channels_last goes down and up once and is trained on heat maps "
    "with a fused optimizer; convolutions and their backward lead.",
)
def clean_vision_pose(mended):
    joints = 12

    class Stage(nn.Sequential):
        def __init__(self, inputs, outputs, stride=1):
            super().__init__(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            )

    class PoseNetwork(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.Sequential(Stage(3, 32, 2), Stage(32, 64, 2), Stage(64, 128, 2))
            self.up = nn.ConvTranspose2d(128, 64, 4, 2, 1)
            self.leave = nn.Sequential(Stage(64, 64), nn.Conv2d(64, joints, 1))

        def forward(self, images):
            return self.leave(F.relu(self.up(self.down(images))))

    model = PoseNetwork().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images = torch.rand(6, 3, 96, 96).to(memory_format=torch.channels_last)
    maps = torch.rand(6, joints, 24, 24).to(memory_format=torch.channels_last)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(images), maps)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-language-retrieval",
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="Queries of one length are encoded in one batch and compared with stored passages in "
    "one product and topk; the linear layers lead.",
)
def clean_language_retrieval(mended):
    width, heads, words = 256, 4, 3000

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.second(x))))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.places = nn.Embedding(words, width), nn.Embedding(32, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])
            self.leave = nn.Linear(width, 128)

        def forward(self, ids):
            x = self.blocks(self.table(ids) + self.places.weight)
            return F.normalize(self.leave(x.mean(1)))

    model, queries = Encoder().eval(), torch.randint(words, (20, 32))
    passages = F.normalize(torch.randn(4000, 128))

    @torch.inference_mode()
    def retrieve():
        return (model(queries) @ passages.t()).topk(10).values

    return retrieve


@clean(
    id="clean-audio-separation",
    domain="audio",
    mode="inference",
    profile=Profile(with_modules=True, record_shapes=True, profile_memory=True),
    answer="Two voices are parted by masks on a learnt filter bank: strided convolutions in and "
    "out, dense ones between; the convolutions lead.",
)
def clean_audio_separation(mended):
    filters, width, voices = 128, 128, 2

    class Separator(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv1d(1, filters, 32, 16)
            self.layers = nn.Sequential(
                nn.Conv1d(filters, width, 1), nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 3, padding=1), nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 3, padding=2, dilation=2), nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 3, padding=4, dilation=4), nn.ReLU(inplace=True),
                nn.Conv1d(width, voices * filters, 1), nn.Sigmoid(),
            )
            self.leave = nn.ConvTranspose1d(filters, 1, 32, 16)

        def forward(self, sounds):
            coded = self.enter(sounds[:, None]).relu_()
            masks = self.layers(coded).unflatten(1, (voices, filters))
            parts = (masks * coded[:, None]).flatten(0, 1)
            return self.leave(parts).unflatten(0, (-1, voices))

    model, sounds = Separator().eval(), torch.randn(4, 16_000)

    @torch.inference_mode()
    def separate():
        return model(sounds)

    return separate


@clean(
    id="clean-graph-molecules",
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A batch of molecules of one size is read as [molecules, atoms, width], and the bonds "
    "are applied by a batched product of small matrices; products lead.",
)
def clean_graph_molecules(mended):
    molecules, atoms, width, kinds = 160, 16, 160, 9

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(width, width), nn.Linear(width, width, bias=False)
            self.norm = nn.LayerNorm(width)

        def forward(self, h, bonds):
            return h + F.relu(self.norm(self.own(h) + bonds @ self.other(h)))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Embedding(kinds, width)
            self.layers = nn.ModuleList([Layer() for _ in range(3)])
            self.leave = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

        def forward(self, kinds, bonds):
            h = self.enter(kinds)
            for layer in self.layers:
                h = layer(h, bonds)
            return self.leave(h.sum(1))[:, 0]

    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    present, wanted = torch.randint(kinds, (molecules, atoms)), torch.randn(molecules)
    bonds = (torch.rand(molecules, atoms, atoms) < 0.15).float()
    bonds = torch.maximum(bonds, bonds.transpose(1, 2))
    bonds = bonds / bonds.sum(2, keepdim=True).clamp(min=1)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(present, bonds), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-distributed-forecaster",
    domain="time series",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="Each rank trains on its own half of the series under DistributedDataParallel, with "
    "one bucket of gradients a step; convolutions lead and the all_reduce is short.",
)
def clean_distributed_forecaster(mended, rank, world):
    inputs, width, length, horizon, batch = 8, 96, 96, 12, 48

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(inputs, width, 5, 1, 2), nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 5, 2, 2), nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 5, 2, 2), nn.ReLU(inplace=True),
            )
            self.leave = nn.Linear(width, horizon)

        def forward(self, series):
            return self.leave(self.layers(series).mean(2))

    model = nn.parallel.DistributedDataParallel(Forecaster(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    series = torch.randn(world, batch, inputs, length)[rank]
    future = torch.randn(world, batch, horizon)[rank]

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
