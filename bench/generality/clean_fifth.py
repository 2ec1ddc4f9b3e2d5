# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more: made with rounds 9 and 10. Each is written as an expert would."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision-segmentation",
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A U-Net learns in channels_last with skip connections; its convolutions lead, forward and backward.",
)
def clean_vision_segmentation(mended):
    def stage(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(inplace=True),
        )

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([stage(3, 32), stage(32, 64)])
            self.middle = stage(64, 128)
            self.rise = nn.ModuleList([nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)])
            self.up = nn.ModuleList([stage(128, 64), stage(64, 32)])
            self.head = nn.Conv2d(32, 8, 1)

        def forward(self, x):
            kept = []
            for layer in self.down:
                x = layer(x)
                kept.append(x)
                x = F.max_pool2d(x, 2)
            x = self.middle(x)
            for rise, layer in zip(self.rise, self.up):
                x = layer(torch.cat([rise(x), kept.pop()], 1))
            return self.head(x)

    model = UNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images = torch.randn(6, 3, 64, 64).to(memory_format=torch.channels_last)
    labels = torch.randint(8, (6, 64, 64))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-language-contrastive",
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    answer="Questions and answers of equal length go through one encoder in one batch; its products lead.",
)
def clean_language_contrastive(mended):
    width, heads, length, pairs = 256, 4, 32, 24

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(3000, width), nn.Parameter(torch.randn(length, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])

        def forward(self, ids):
            return F.normalize(self.blocks(self.table(ids) + self.place).mean(1), dim=1)

    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    texts, same = torch.randint(3000, (2 * pairs, length)), torch.arange(pairs)

    def train_step():
        optimizer.zero_grad()
        questions, answers = model(texts).chunk(2)
        scores = 20 * questions @ answers.T
        loss = (F.cross_entropy(scores, same) + F.cross_entropy(scores.T, same)) / 2
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-audio-enhancement",
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True),
    answer="A mask for a spectrogram comes from wide convolutions; they lead, and stft and istft are one op each.",
)
def clean_audio_enhancement(mended):
    class Enhance(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(512))
            self.mask = nn.Sequential(
                nn.Conv1d(257, 256, 5, padding=2), nn.ReLU(), nn.Conv1d(256, 256, 5, padding=2), nn.ReLU(),
                nn.Conv1d(256, 256, 5, padding=2), nn.ReLU(), nn.Conv1d(256, 257, 1), nn.Sigmoid(),
            )

        def forward(self, waves):
            bins = torch.stft(waves, 512, 128, window=self.window, return_complex=True)
            mask = self.mask((bins.abs() + 1e-4).log())
            return torch.istft(bins * mask, 512, 128, window=self.window, length=waves.shape[1])

    model, waves = Enhance().eval(), torch.randn(6, 16_000) / 10

    @torch.inference_mode()
    def enhance():
        return model(waves)

    return enhance


@clean(
    id="clean-recommender-training",
    domain="recommenders",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True),
    answer="A wide cross network learns from one shared table with offsets; its products lead.",
)
def clean_recommender_training(mended):
    fields, rows, width = 24, 100, 16
    inputs = fields * width

    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(fields * rows, width)
            self.register_buffer("begins", torch.arange(fields) * rows)
            self.crosses = nn.ModuleList([nn.Linear(inputs, inputs) for _ in range(2)])
            self.deep = nn.Sequential(nn.Linear(inputs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU())
            self.head = nn.Linear(inputs + 256, 1)

        def forward(self, ids):
            x = first = self.table(ids + self.begins).flatten(1)
            for cross in self.crosses:
                x = torch.addcmul(x, first, cross(x))
            return self.head(torch.cat([x, self.deep(first)], 1))[:, 0]

    model = Cross()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    ids, clicked = torch.randint(rows, (1024, fields)), torch.rand(1024).round()

    def train_step():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(ids), clicked)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-science-operator",
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False),
    answer="A Fourier neural operator uses real transforms of few modes; its pointwise products lead.",
)
def clean_science_operator(mended):
    width, modes, size = 96, 12, 64

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            scale = 1 / width
            self.weight = nn.Parameter(scale * torch.randn(modes, modes, width, width, dtype=torch.cfloat))
            self.point = nn.Conv2d(width, width, 1)

        def forward(self, x):
            bins = torch.fft.rfft2(x, norm="ortho")
            low = bins[:, :, :modes, :modes].permute(2, 3, 0, 1)
            mixed = torch.zeros_like(bins)
            mixed[:, :, :modes, :modes] = (low @ self.weight).permute(2, 3, 0, 1)
            return F.gelu(torch.fft.irfft2(mixed, s=x.shape[2:], norm="ortho") + self.point(x))

    model = nn.Sequential(
        nn.Conv2d(3, width, 1), *[Spectral() for _ in range(3)], nn.Conv2d(width, 256, 1), nn.GELU(),
        nn.Conv2d(256, 1, 1),
    ).eval()
    place = torch.linspace(0, 2 * math.pi, size)
    fields = torch.stack([
        place.sin()[:, None].expand(size, size), place.cos().expand(size, size), torch.outer(place.sin(), place.cos())
    ]).expand(4, -1, -1, -1).contiguous()

    @torch.inference_mode()
    def solve():
        return model(fields)

    return solve
