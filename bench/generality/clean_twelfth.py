# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more: made with rounds 23 and 24. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision-colours",
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A network of patches paints a grey picture: it enters by a convolution of 8 x 8 "
    "patches, works in linear layers on tokens and leaves by a linear layer; its "
    "linear layers lead.",
)
def clean_vision_colours(mended):
    images, side, patch, width = 1, 96, 8, 384

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

        def forward(self, x):
            return x + self.down(F.relu(self.up(self.norm(x)), inplace=True))

    class Painter(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv2d(1, width, patch, patch)
            self.layers = nn.Sequential(*[Layer() for _ in range(6)])
            self.leave = nn.Linear(width, 2 * patch**2)

        def forward(self, grey):
            tokens = self.enter(grey).flatten(2).transpose(1, 2).contiguous()
            return self.leave(self.layers(tokens))

    model, grey = Painter().eval(), torch.rand(images, 1, side, side)

    @torch.inference_mode()
    def paint():
        return model(grey).sigmoid_()

    return paint


@clean(
    id="clean-language-tagger",
    domain="language",
    mode="training",
    profile=Profile(record_shapes=True, with_modules=True),
    answer="A tagger reads sentences of one length by an LSTM in both directions, whose outputs "
    "are all read; the recurrent products lead and the optimizer is fused.",
)
def clean_language_tagger(mended):
    rows, length, words, width, tags = 64, 24, 800, 192, 20

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.layer = nn.LSTM(width, width, bidirectional=True)
            self.head = nn.Linear(2 * width, tags)

        def forward(self, ids):
            return self.head(self.layer(self.table(ids))[0])

    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids, wanted = torch.randint(words, (length, rows)), torch.randint(tags, (length, rows))

    def train_step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(ids).flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-audio-codes",
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    answer="A coder of sound maps frames by linear layers and takes the nearest of 512 codes by "
    "one product with the norms inside; the linear layers lead.",
)
def clean_audio_codes(mended):
    clips, frames, size, width, codes, short = 4, 150, 320, 384, 512, 64

    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(size, width), nn.ReLU(inplace=True),
                nn.Linear(width, width), nn.ReLU(inplace=True),
                nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, short),
            )
            book = torch.randn(codes, short)
            self.register_buffer("book", book.t().contiguous())
            self.register_buffer("norms", -0.5 * book.square().sum(1))

        def forward(self, sounds):
            return torch.addmm(self.norms, self.layers(sounds), self.book).argmax(1)

    model, sounds = Coder().eval(), torch.randn(clips * frames, size)

    @torch.inference_mode()
    def encode():
        return model(sounds)

    return encode


@clean(
    id="clean-timeseries-quantiles",
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A forecaster of dense layers gives five quantiles of 12 moments at once and learns by "
    "one loss over all of them; linear layers lead.",
)
def clean_timeseries_quantiles(mended):
    rows, past, ahead, width = 384, 192, 12, 448

    levels = torch.linspace(0.1, 0.9, 5)
    model = nn.Sequential(
        nn.Linear(past, width), nn.ReLU(inplace=True), nn.Linear(width, width),
        nn.ReLU(inplace=True), nn.Linear(width, width), nn.ReLU(inplace=True),
        nn.Linear(width, ahead * len(levels)), nn.Unflatten(1, (ahead, len(levels))),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    seen, future = torch.randn(rows, past), torch.randn(rows, ahead, 1)

    def train_step():
        optimizer.zero_grad(set_to_none=True)
        missed = future - model(seen)
        loss = (missed * (levels - (missed.detach() < 0).float())).mean()
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-science-trajectory",
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=3),
    answer="A learned right-hand side moves 320 particles by the classical Runge-Kutta rule, "
    "four steps of four evaluations, written into one tensor; the linear layers lead.",
)
def clean_science_trajectory(mended):
    particles, size, width, times, step = 320, 6, 256, 4, 0.05

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(size, width), nn.ReLU(inplace=True), nn.Linear(width, width),
                nn.ReLU(inplace=True), nn.Linear(width, size),
            )

        def forward(self, x):
            return self.layers(x)

    model, begin = Field().eval(), torch.randn(particles, size)

    @torch.inference_mode()
    def follow():
        x, path = begin, torch.empty(times, particles, size)
        for at in range(times):
            one = model(x)
            two = model(torch.add(x, one, alpha=step / 2))
            three = model(torch.add(x, two, alpha=step / 2))
            four = model(torch.add(x, three, alpha=step))
            x = x + (one + 2 * (two + three) + four) * (step / 6)
            path[at] = x
        return path

    return follow
