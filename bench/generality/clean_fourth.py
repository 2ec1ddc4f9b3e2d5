# SPDX-License-Identifier: Apache-2.0
"""Clean cases, another five: made with rounds 7 and 8. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-language-decode",
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A decoder writes into a cache made once and reads its weights for each token; the products lead.",
)
def clean_language_decode(mended):
    width, heads, size, past, batch = 768, 12, 64, 128, 16

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.RMSNorm(width), nn.RMSNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
            self.register_buffer("cache", torch.randn(2, batch, heads, past + 8, size))

        def forward(self, x, at):
            q, k, v = self.qkv(self.first(x)).view(batch, 3, heads, 1, size).unbind(1)
            keys, values = self.cache
            keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
            mixed = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(F.silu(self.up(self.second(x))))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(6000, width)
            self.layers = nn.ModuleList([Layer() for _ in range(3)])
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 6000, bias=False)

        def forward(self, token, at):
            x = self.table(token)
            for layer in self.layers:
                x = layer(x, at)
            return self.head(self.norm(x))

    model = Decoder().eval()
    prompt = torch.randint(6000, (batch, 1))

    @torch.inference_mode()
    def generate():
        token = prompt
        for at in range(past, past + 3):
            token = model(token, at).argmax(2)
        return token.float()

    return generate


@clean(
    id="clean-generative-sampling",
    domain="generative",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A sampler runs its network on a batch and decodes once; the convolutions lead.",
)
def clean_generative_sampling(mended):
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.time = nn.GroupNorm(8, width), nn.Linear(64, width)
            self.first, self.second = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

        def forward(self, x, time):
            h = self.first(F.silu(self.norm(x))) + self.time(time)[:, :, None, None]
            return x + self.second(F.silu(h))

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv2d(4, 96, 3, padding=1), nn.Conv2d(96, 4, 3, padding=1)
            self.blocks = nn.ModuleList([Block(96) for _ in range(3)])

        def forward(self, x, time):
            h = self.enter(x)
            for block in self.blocks:
                h = block(h, time)
            return self.leave(h)

    denoiser = Denoiser().eval()
    decoder = nn.Sequential(
        nn.Conv2d(4, 64, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=2), nn.Conv2d(64, 3, 3, padding=1)
    ).eval()
    start, steps = torch.randn(6, 4, 20, 20), 4
    times = torch.linspace(1, 0, steps + 1)
    waves = torch.exp(torch.linspace(0, 6, 32)) * times[:, None]
    places = torch.cat([waves.sin(), waves.cos()], 1)

    @torch.inference_mode()
    def sample():
        x = start
        for at in range(steps):
            x = x - denoiser(x, places[at : at + 1]) / steps
        return decoder(x).tanh()

    return sample


@clean(
    id="clean-recommender-retrieval",
    domain="recommenders",
    mode="inference",
    profile=Profile(record_shapes=True),
    answer="Retrieval multiplies the users' vectors by item vectors that were made before; the product and topk lead.",
)
def clean_recommender_retrieval(mended):
    users, items, width = 128, 10_000, 192
    tower = nn.Sequential(
        nn.Linear(512, 768), nn.ReLU(), nn.Linear(768, 512), nn.ReLU(), nn.Linear(512, width)
    ).eval()
    vectors = F.normalize(torch.randn(items, width), dim=1)
    history = torch.randn(users, 512)

    @torch.inference_mode()
    def retrieve():
        who = F.normalize(tower(history), dim=1)
        return (who @ vectors.T).topk(50, 1).values

    return retrieve


@clean(
    id="clean-science-surrogate",
    domain="science",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True),
    answer="A surrogate of wide layers learns from large batches with a fused optimizer; its products lead.",
)
def clean_science_surrogate(mended):
    model = nn.Sequential(
        nn.Linear(16, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 8),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    inputs, outputs = torch.rand(40_000, 16), torch.randn(40_000, 8)

    def train_step():
        chosen = torch.randint(40_000, (1024,))
        optimizer.zero_grad()
        loss = F.mse_loss(model(inputs[chosen]), outputs[chosen])
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-timeseries-convolutions",
    domain="time series",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True, profile_memory=True),
    answer="A temporal convolutional network on whole series is bound by its convolutions.",
)
def clean_timeseries_convolutions(mended):
    width = 96

    class Block(nn.Module):
        def __init__(self, dilation):
            super().__init__()
            self.reach = 2 * dilation
            self.first = nn.Conv1d(width, width, 3, dilation=dilation)
            self.second = nn.Conv1d(width, width, 1)

        def forward(self, x):
            h = F.relu(self.first(F.pad(x, (self.reach, 0))))
            return x + self.second(h)

    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.leave = nn.Conv1d(8, width, 1), nn.Linear(width, 24)
            self.blocks = nn.Sequential(*[Block(2**depth) for depth in range(5)])

        def forward(self, series):
            return self.leave(self.blocks(self.enter(series))[..., -1])

    model = Forecaster()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    series, future = torch.randn(16, 8, 256), torch.randn(16, 24)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(series), future)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
