# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more: made with rounds 13 and 14. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision-detector",
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A detector in channels_last finds its 100 likeliest boxes with topk; its convolutions lead.",
)
def clean_vision_detector(mended):
    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(
                nn.Conv2d(3, 48, 3, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(48, 96, 3, 2, 1), nn.ReLU(inplace=True),
                nn.Conv2d(96, 128, 3, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(128, 128, 3, padding=1),
                nn.ReLU(inplace=True),
            )
            self.head = nn.Conv2d(128, 5, 1)

        def forward(self, images):
            found = self.head(self.trunk(images)).permute(0, 2, 3, 1).flatten(1, 2)
            scores, places = found[:, :, 0].topk(100)
            return scores.sigmoid(), found[:, :, 1:].gather(1, places[:, :, None].expand(-1, -1, 4))

    model = Detector().eval().to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 192, 192).to(memory_format=torch.channels_last)

    @torch.inference_mode()
    def detect():
        return model(images)[1]

    return detect


@clean(
    id="clean-language-classifier",
    domain="language",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="An encoder learns to classify texts of one length with fused attention and AdamW; its products lead.",
)
def clean_language_classifier(mended):
    width, heads, words, length = 320, 5, 800, 64

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

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(length, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 9)

        def forward(self, ids):
            return self.head(self.norm(self.blocks(self.table(ids) + self.place).mean(1)))

    model = Classifier()
    groups = [
        {"params": [weight for weight in model.parameters() if weight.dim() > 1], "weight_decay": 0.05},
        {"params": [weight for weight in model.parameters() if weight.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, fused=True)
    ids, labels = torch.randint(words, (12, length)), torch.randint(9, (12,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-audio-vocoder",
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False),
    answer="A vocoder makes sound of a spectrogram with transposed and dilated convolutions, which lead.",
)
def clean_audio_vocoder(mended):
    class Stage(nn.Module):
        def __init__(self, inputs, outputs, rate):
            super().__init__()
            self.enlarge = nn.ConvTranspose1d(inputs, outputs, 2 * rate, rate, rate // 2)
            self.layers = nn.ModuleList([nn.Conv1d(outputs, outputs, 3, 1, far, far) for far in (1, 3, 9)])

        def forward(self, x):
            x = self.enlarge(F.relu_(x))
            for layer in self.layers:
                x = x + layer(F.relu(x))
            return x

    model = nn.Sequential(
        nn.Conv1d(80, 384, 7, padding=3), Stage(384, 192, 4), Stage(192, 128, 4), Stage(128, 96, 4),
        nn.Conv1d(96, 1, 7, padding=3), nn.Tanh(),
    ).eval()
    mel = torch.randn(2, 80, 32)

    @torch.inference_mode()
    def speak():
        return model(mel)

    return speak


@clean(
    id="clean-timeseries-mixer",
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    answer="A mixer forecasts with layers along time and along channels; their products lead.",
)
def clean_timeseries_mixer(mended):
    length, channels, horizon, width = 256, 64, 48, 512

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(length), nn.LayerNorm(length)
            self.times = nn.Sequential(nn.Linear(length, width), nn.ReLU(inplace=True), nn.Linear(width, length))
            self.across = nn.Sequential(
                nn.Conv1d(channels, 4 * channels, 1), nn.ReLU(inplace=True), nn.Conv1d(4 * channels, channels, 1),
            )

        def forward(self, x):
            x = x + self.times(self.first(x))
            return x + self.across(self.second(x))

    model = nn.Sequential(*[Block() for _ in range(3)], nn.Linear(length, horizon))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    series, future = torch.randn(16, channels, length), torch.randn(16, channels, horizon)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-recommender-sequence",
    domain="recommenders",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A sequence recommender learns from the other users' items of its batch, with sparse gradients of its "
    "table; its products lead.",
)
def clean_recommender_sequence(mended):
    items, width, heads, users, length = 20_000, 256, 4, 32, 32

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    class Recommender(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.place = nn.Embedding(items, width, sparse=True), nn.Parameter(torch.randn(length, width))
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])

        def forward(self, history):
            vectors = self.table(history)
            wanted = self.blocks(vectors[:, :-1] + self.place)
            return wanted.flatten(0, 1) @ vectors[:, 1:].flatten(0, 1).T

    model = Recommender()
    dense = [weight for name, weight in model.named_parameters() if name != "table.weight"]
    optimizers = [torch.optim.AdamW(dense, lr=1e-3, fused=True), torch.optim.SGD([model.table.weight], lr=0.1)]
    history, same = torch.randint(items, (users, length + 1)), torch.arange(users * length)

    def train_step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(history), same)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    return train_step
