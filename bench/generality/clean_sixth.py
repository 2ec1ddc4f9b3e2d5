# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more: made with rounds 11 and 12. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision-autoencoder",
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A convolutional autoencoder learns in channels_last; its convolutions lead, forward and backward.",
)
def clean_vision_autoencoder(mended):
    model = nn.Sequential(
        nn.Conv2d(3, 48, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(48, 96, 4, 2, 1), nn.ReLU(inplace=True),
        nn.Conv2d(96, 128, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(128, 16, 1),
        nn.Conv2d(16, 128, 3, padding=1), nn.ReLU(inplace=True),
        nn.ConvTranspose2d(128, 96, 4, 2, 1), nn.ReLU(inplace=True), nn.ConvTranspose2d(96, 48, 4, 2, 1),
        nn.ReLU(inplace=True), nn.Conv2d(48, 3, 3, padding=1),
    ).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    images = torch.rand(8, 3, 80, 80).to(memory_format=torch.channels_last)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(images), images)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-language-translation",
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, with_modules=True),
    answer="An encoder and a decoder learn with fused attention from sentences of equal length; their products lead.",
)
def clean_language_translation(mended):
    width, heads, words, length = 320, 5, 1500, 40

    def split(x, parts):
        return x.unflatten(2, (parts, heads, -1)).permute(2, 0, 3, 1, 4)

    class Block(nn.Module):
        def __init__(self, crosses):
            super().__init__()
            self.crosses = crosses
            self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3 if crosses else 2)])
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            if crosses:
                self.query, self.read = nn.Linear(width, width), nn.Linear(width, 2 * width)
                self.join = nn.Linear(width, width)

        def forward(self, x, source=None):
            q, k, v = split(self.qkv(self.norms[0](x)), 3)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.crosses)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            if self.crosses:
                (q,), (k, v) = split(self.query(self.norms[1](x)), 1), split(self.read(source), 2)
                x = x + self.join(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.mlp(self.norms[-1](x))

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) / 50)
            self.encoder = nn.ModuleList([Block(False) for _ in range(2)])
            self.decoder = nn.ModuleList([Block(True) for _ in range(2)])
            self.head = nn.Linear(width, words)

        def forward(self, given, wanted):
            source, x = self.table(given) + self.place, self.table(wanted) + self.place
            for block in self.encoder:
                source = block(source)
            for block in self.decoder:
                x = block(x, source)
            return self.head(x)

    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    given, wanted = torch.randint(words, (16, length)), torch.randint(words, (16, length + 1))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(given, wanted[:, :-1]).flatten(0, 1), wanted[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-audio-recogniser",
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    answer="A recogniser of wide convolutions learns with ctc_loss; its convolutions lead, and the loss is one op.",
)
def clean_audio_recogniser(mended):
    letters, batch, frames = 32, 8, 160

    class Recogniser(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.Sequential(
                nn.Conv1d(80, 256, 5, 2, 2), nn.ReLU(inplace=True),
                nn.Conv1d(256, 256, 5, 1, 2), nn.ReLU(inplace=True),
                nn.Conv1d(256, 256, 5, 1, 2), nn.ReLU(inplace=True),
                nn.Conv1d(256, 384, 5, 1, 2), nn.ReLU(inplace=True),
                nn.Conv1d(384, letters, 1),
            )

        def forward(self, mel):
            return self.convs(mel).permute(2, 0, 1).log_softmax(2)

    model = Recogniser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    mel, said = torch.randn(batch, 80, 2 * frames), torch.randint(1, letters, (batch, 25))
    long, short = (frames,) * batch, (25,) * batch

    def train_step():
        optimizer.zero_grad()
        loss = F.ctc_loss(model(mel), said, long, short)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-timeseries-patches",
    domain="time series",
    mode="inference",
    profile=Profile(with_stack=True),
    answer="A transformer forecasts from patches of its series with fused attention; its products lead.",
)
def clean_timeseries_patches(mended):
    width, heads, patch, patches, horizon = 256, 4, 16, 32, 96

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(inplace=True), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.place = nn.Linear(patch, width), nn.Parameter(torch.randn(patches, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])
            self.leave = nn.Linear(patches * width, horizon)

        def forward(self, series):
            x = self.enter(series.unflatten(1, (patches, patch))) + self.place
            return self.leave(self.blocks(x).flatten(1))

    model, series = Forecaster().eval(), torch.randn(32, patches * patch)

    @torch.inference_mode()
    def forecast():
        return model(series)

    return forecast


@clean(
    id="clean-generative-adversarial",
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A GAN learns in channels_last, with made images detached for the discriminator; convolutions lead.",
)
def clean_generative_adversarial(mended):
    generator = nn.Sequential(
        nn.Linear(64, 128 * 64), nn.Unflatten(1, (128, 8, 8)), nn.ReLU(inplace=True),
        nn.ConvTranspose2d(128, 96, 4, 2, 1), nn.ReLU(inplace=True),
        nn.ConvTranspose2d(96, 48, 4, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(48, 3, 3, padding=1), nn.Tanh(),
    )
    discriminator = nn.Sequential(
        nn.Conv2d(3, 48, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(48, 96, 4, 2, 1),
        nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(96, 128, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True),
        nn.Flatten(), nn.Linear(128 * 16, 1), nn.Flatten(0),
    )
    for network in (generator, discriminator):
        network.to(memory_format=torch.channels_last)
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    of_discriminator = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    real = torch.rand(16, 3, 32, 32) * 2 - 1

    def train_step():
        made = generator(torch.randn(16, 64))
        of_discriminator.zero_grad()
        loss = F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(made.detach())).mean()
        loss.backward()
        of_discriminator.step()
        of_generator.zero_grad()
        discriminator.requires_grad_(False)
        F.softplus(-discriminator(made)).mean().backward()
        discriminator.requires_grad_(True)
        of_generator.step()
        return loss

    return train_step
