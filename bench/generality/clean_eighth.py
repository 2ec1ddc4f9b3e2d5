# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more: made with rounds 15 and 16. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision-super-resolution",
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="Images are enlarged in channels_last: all convolutions run at the small size, and pixel_shuffle comes "
    "last.",
)
def clean_vision_super_resolution(mended):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(48, 48, 3, padding=1), nn.Conv2d(48, 48, 3, padding=1)

        def forward(self, x):
            return self.second(F.relu_(self.first(x))).add_(x)

    class Enlarger(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv2d(3, 48, 3, padding=1), nn.Conv2d(48, 12, 3, padding=1)
            self.blocks = nn.Sequential(*[Block() for _ in range(4)])

        def forward(self, images):
            return F.pixel_shuffle(self.leave(self.blocks(self.enter(images))), 2)

    model = Enlarger().eval().to(memory_format=torch.channels_last)
    images = torch.rand(2, 3, 80, 80).to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def enlarge():
        return model(images)

    return enlarge


@clean(
    id="clean-language-masked",
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="Masked language modelling projects the hidden positions alone to the vocabulary; its products lead.",
)
def clean_language_masked(mended):
    width, heads, words, length, rows = 256, 4, 2000, 64, 12

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

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

        def forward(self, ids, hidden):
            x = self.blocks(self.table(ids) + self.place).flatten(0, 1)
            return self.head(self.norm(x.index_select(0, hidden)))

    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids = torch.randint(1, words, (rows, length))
    hidden = torch.randperm(rows * length)[: rows * length // 7].sort().values
    wanted = ids.flatten()[hidden]
    ids.flatten()[hidden] = 0

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids, hidden), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-science-volume",
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False),
    answer="A network corrects a coarse simulation in three dimensions; its convolutions run at half the size and "
    "lead.",
)
def clean_science_volume(mended):
    class Corrector(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv3d(4, 32, 2, 2)
            self.layers = nn.ModuleList([nn.Conv3d(32, 32, 3, padding=1) for _ in range(4)])
            self.leave = nn.ConvTranspose3d(32, 4, 2, 2)

        def forward(self, fields):
            x = self.enter(fields)
            for layer in self.layers:
                x = F.relu_(layer(x))
            return self.leave(x).add_(fields)

    model, fields = Corrector().eval(), torch.randn(2, 4, 32, 32, 32)

    @torch.inference_mode()
    def correct():
        return model(fields)

    return correct


@clean(
    id="clean-generative-variational",
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A variational autoencoder of convolutions has a diagonal posterior and the divergence in closed form.",
)
def clean_generative_variational(mended):
    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv2d(3, 48, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(48, 96, 4, 2, 1), nn.ReLU(inplace=True),
                nn.Conv2d(96, 128, 4, 2, 1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(128 * 36, 2 * 48),
            )
            self.decoder = nn.Sequential(
                nn.Linear(48, 128 * 36), nn.Unflatten(1, (128, 6, 6)), nn.ReLU(inplace=True),
                nn.ConvTranspose2d(128, 96, 4, 2, 1), nn.ReLU(inplace=True), nn.ConvTranspose2d(96, 48, 4, 2, 1),
                nn.ReLU(inplace=True), nn.ConvTranspose2d(48, 3, 4, 2, 1),
            )

        def forward(self, images):
            mean, spread = self.encoder(images).chunk(2, 1)
            code = mean + (0.5 * spread).exp() * torch.randn_like(mean)
            return self.decoder(code), mean, spread

    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    images = torch.rand(16, 3, 48, 48)

    def train_step():
        optimizer.zero_grad()
        made, mean, spread = model(images)
        divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).sum(1).mean()
        loss = F.mse_loss(made, images) + 1e-3 * divergence
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-tabular-residual",
    domain="tabular",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A table is scored in one batch, with one table for all categories and without norms; its products lead.",
)
def clean_tabular_residual(mended):
    columns, kinds, width, rows = 12, 40, 384, 1024

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return self.down(F.relu_(self.up(x))).add_(x)

    class Scorer(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(columns * kinds, 8)
            self.register_buffer("starts", torch.arange(columns) * kinds)
            self.enter = nn.Linear(columns * 8 + 32, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])
            self.leave = nn.Linear(width, 1)

        def forward(self, ids, numbers):
            known = self.table(ids + self.starts).flatten(1)
            return self.leave(self.blocks(self.enter(torch.cat([known, numbers], 1))))[:, 0]

    model = Scorer().eval()
    ids, numbers = torch.randint(kinds, (rows, columns)), torch.randn(rows, 32)

    @torch.inference_mode()
    def score():
        return model(ids, numbers).sigmoid()

    return score
