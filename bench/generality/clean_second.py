# SPDX-License-Identifier: Apache-2.0
"""Clean cases: graphs, science, generative, tabular data, time series; one of two ranks."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-graph",
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True),
    answer="A graph network projects nodes, gathers rows and adds them with index_add; its products lead.",
)
def clean_graph(mended):
    nodes, edges, width = 4000, 12_000, 128
    source, target = torch.randint(nodes, (2, edges))

    class Conv(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(width, width), nn.Linear(width, width, bias=False)

        def forward(self, h):
            return self.own(h).index_add(0, target, self.other(h).index_select(0, source)).relu()

    model = nn.Sequential(Conv(), Conv(), nn.Linear(width, 5))
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    features, labels = torch.randn(nodes, width), torch.randint(5, (nodes,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-science",
    domain="science",
    mode="inference",
    profile=Profile(),
    answer="A spectral Navier-Stokes step uses real FFTs of a power of two; the transforms lead.",
)
def clean_science(mended):
    n = 256
    along = torch.fft.fftfreq(n, 1 / n)[:, None]
    across = torch.fft.rfftfreq(n, 1 / n)[None]
    laplace = -(along**2 + across**2)
    poisson = torch.where(laplace == 0, 0.0, -1 / laplace)
    decay = torch.exp(1e-4 * laplace)
    i_along, i_across = 1j * along, 1j * across
    velocity_along, velocity_across = i_across * poisson, -i_along * poisson
    start = torch.fft.rfft2(torch.randn(n, n)) * torch.exp(0.01 * laplace)

    @torch.inference_mode()
    def advance():
        vortex = start
        for _ in range(10):
            fields = torch.stack(
                [velocity_along * vortex, velocity_across * vortex, i_along * vortex, i_across * vortex]
            )
            v, u, d_along, d_across = torch.fft.irfft2(fields, s=(n, n))
            moved = torch.fft.rfft2(v * d_along + u * d_across)
            vortex = (vortex - 1e-3 * moved) * decay
        return vortex.abs()

    return advance


@clean(
    id="clean-generative",
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True),
    answer="A diffusion model's U-Net is bound by its convolutions.",
)
def clean_generative(mended):
    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter = nn.Conv2d(3, 48, 3, padding=1)
            self.down = nn.Conv2d(48, 96, 3, stride=2, padding=1)
            self.middle = nn.Conv2d(96, 96, 3, padding=1)
            self.up = nn.ConvTranspose2d(96, 48, 2, stride=2)
            self.leave = nn.Conv2d(48, 3, 3, padding=1)
            self.time = nn.Linear(64, 96)

        def forward(self, x, time):
            top = F.silu(self.enter(x), inplace=True)
            low = self.down(top) + self.time(time)[:, :, None, None]
            low = F.silu(self.middle(F.silu(low)))
            return self.leave(F.silu(self.up(low) + top))

    model = Unet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    images = torch.randn(8, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    waves = torch.exp(-torch.arange(32) / 4)
    signal = torch.linspace(1, 0.01, 1000).sqrt()
    blur = (1 - signal.square()).sqrt()

    def train_step():
        optimizer.zero_grad()
        at, noise = torch.randint(1000, (8,)), torch.randn_like(images)
        angle = at[:, None] * waves
        time = torch.cat([angle.sin(), angle.cos()], 1)
        noisy = signal[at, None, None, None] * images + blur[at, None, None, None] * noise
        loss = F.mse_loss(model(noisy, time), noise)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-timeseries",
    domain="time series",
    mode="inference",
    profile=Profile(schedule=False),
    answer="A two-layer LSTM takes whole sequences; the time is in its one op.",
)
def clean_timeseries(mended):
    lstm, out = nn.LSTM(12, 128, num_layers=2, batch_first=True).eval(), nn.Linear(128, 4).eval()
    series = torch.randn(64, 48, 12)

    @torch.inference_mode()
    def predict():
        return out(lstm(series)[0][:, -1])

    return predict


@clean(
    id="clean-distributed",
    domain="tabular",
    mode="training",
    scale="distributed",
    profile=Profile(record_shapes=True),
    answer="DDP of two equal ranks; large batches make the reduction of a small model a small share.",
)
def clean_distributed(mended, rank, world):
    model = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    rows, target = torch.randn(4096, 64), torch.randn(4096, 1)

    def train_step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(rows), target)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
