# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more: made with rounds 21 and 22. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


@clean(
    id="clean-vision-tokens-training",
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A vision transformer reads patches that were cut beforehand and averages its tokens; "
    "it trains with a fused optimizer, and its linear layers lead.",
)
def clean_vision_tokens_training(mended):
    images, patches, pixels, width, kinds = 16, 64, 192, 256, 50

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(pixels, width)
            self.places = nn.Parameter(torch.randn(patches, width) * 0.02)
            self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(3)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, kinds)

        def forward(self, cut):
            return self.head(self.norm(self.blocks(self.enter(cut) + self.places).mean(1)))

    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    cut, labels = torch.rand(images, patches, pixels), torch.randint(kinds, (images,))

    def train_step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(cut), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-recommender-two-towers",
    domain="recommenders",
    mode="training",
    profile=Profile(record_shapes=True, with_modules=True),
    answer="Two towers read small tables with shared look-ups and learn from the other items of "
    "the batch; the linear layers and one product of scores lead.",
)
def clean_recommender_two_towers(mended):
    rows, fields, values, width, codes = 768, 6, 200, 32, 64

    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(fields * values, width)
            self.layers = nn.Sequential(
                nn.Linear(fields * width, 384), nn.ReLU(inplace=True),
                nn.Linear(384, 384), nn.ReLU(inplace=True), nn.Linear(384, codes),
            )

        def forward(self, ids):
            return F.normalize(self.layers(self.table(ids).flatten(1)))

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.users, self.items = Tower(), Tower()

        def forward(self, users, items):
            return (self.users(users) * 20) @ self.items(items).t()

    model = Towers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    users, items = torch.randint(values, (2, rows, fields)) + torch.arange(fields) * values
    pairs = torch.arange(rows)

    def train_step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(users, items), pairs)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-science-ensemble",
    domain="science",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    answer="Eight surrogates of one shape run together as batched products with the bias inside; "
    "aten::baddbmm leads.",
)
def clean_science_ensemble(mended):
    members, points, inputs, width, outputs = 8, 1500, 12, 192, 4

    class Ensemble(nn.Module):
        def __init__(self):
            super().__init__()
            sizes = [inputs, width, width, width, outputs]
            self.weights = nn.ParameterList(
                [torch.randn(members, one, other) / one**0.5
                 for one, other in zip(sizes, sizes[1:])]
            )
            self.biases = nn.ParameterList([torch.zeros(members, 1, size) for size in sizes[1:]])

        def forward(self, x):
            h = x.expand(members, -1, -1)
            *inner, (bias, weight) = zip(self.biases, self.weights)
            for inner_bias, inner_weight in inner:
                h = torch.baddbmm(inner_bias, h, inner_weight).relu_()
            return torch.baddbmm(bias, h, weight)

    model, places = Ensemble().eval(), torch.randn(points, inputs)

    @torch.inference_mode()
    def predict():
        spread, mean = torch.var_mean(model(places), 0)
        return mean + spread

    return predict


@clean(
    id="clean-audio-transcriber",
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A transcriber in bfloat16 reads four frames as one token; its weights are in bfloat16 "
    "too, nothing is cast, and the linear layers lead.",
)
def clean_audio_transcriber(mended):
    clips, frames, bands, width, letters = 8, 512, 80, 256, 40

    class Transcriber(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Linear(4 * bands, width)
            self.places = nn.Parameter(torch.randn(frames // 4, width) * 0.02)
            self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(4)])
            self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, letters)

        def forward(self, spectra):
            x = self.enter(spectra.view(clips, frames // 4, 4 * bands)) + self.places
            return self.leave(self.norm(self.blocks(x)))

    model = Transcriber().eval().bfloat16()
    spectra = torch.randn(clips, frames, bands).bfloat16()

    @torch.inference_mode()
    def transcribe():
        return model(spectra).argmax(2)

    return transcribe


@clean(
    id="clean-distributed-classifier",
    domain="language",
    mode="training",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="Each rank trains on its own texts of one length under DistributedDataParallel, with "
    "one bucket of gradients a step; linear layers lead and the all_reduce is short.",
)
def clean_distributed_classifier(mended, rank, world):
    rows, length, words, width, kinds = 24, 64, 600, 128, 8

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, width)
            self.places = nn.Parameter(torch.randn(length, width) * 0.02)
            self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(2)])
            self.head = nn.Linear(width, kinds)

        def forward(self, ids):
            return self.head(self.blocks(self.table(ids) + self.places).mean(1))

    model = nn.parallel.DistributedDataParallel(Classifier(), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(words, (world, rows, length))[rank]
    labels = torch.randint(kinds, (world, rows))[rank]

    def train_step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
