# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more: made with rounds 17 and 18. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision-matching",
    domain="vision",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="Images are described by a channels_last network and compared with a stored gallery in one product and "
    "topk; convolutions lead.",
)
def clean_vision_matching(mended):
    class Describer(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(inplace=True),
                nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(inplace=True), nn.Conv2d(128, 128, 3, 1, 1),
                nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            )
            self.leave = nn.Linear(128, 64)

        def forward(self, images):
            return F.normalize(self.leave(self.layers(images)))

    model = Describer().eval().to(memory_format=torch.channels_last)
    images = torch.rand(8, 3, 112, 112).to(memory_format=torch.channels_last)
    gallery = F.normalize(torch.randn(5000, 64))

    @torch.inference_mode()
    def match():
        return (model(images) @ gallery.t()).topk(5).values

    return match


@clean(
    id="clean-audio-keywords",
    domain="audio",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False),
    answer="Keywords are found in batches of clips: one stft, one product with the mel filters, and a small network "
    "whose convolutions lead.",
)
def clean_audio_keywords(mended):
    class Spotter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(512))
            self.register_buffer("filters", torch.rand(40, 257) / 257)
            self.layers = nn.Sequential(
                nn.Conv1d(40, 128, 5, 1, 2), nn.ReLU(inplace=True), nn.Conv1d(128, 128, 5, 2, 2),
                nn.ReLU(inplace=True), nn.Conv1d(128, 128, 5, 1, 2), nn.ReLU(inplace=True),
            )
            self.leave = nn.Linear(128, 35)

        def forward(self, sounds):
            spectra = torch.stft(sounds, 512, 256, window=self.window, return_complex=True)
            power = torch.view_as_real(spectra).square().sum(-1)
            return self.leave(self.layers((self.filters @ power).add_(1e-5).log_()).mean(2))

    model, sounds = Spotter().eval(), torch.randn(16, 16_000)

    @torch.inference_mode()
    def spot():
        return model(sounds).softmax(1)

    return spot


@clean(
    id="clean-graph-training",
    domain="graphs",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A graph network projects nodes before it spreads them with a CSR matrix made once; products lead.",
)
def clean_graph_training(mended):
    nodes, edges, width, kinds = 1500, 6000, 160, 7

    class Layer(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.own, self.other = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

        def forward(self, h):
            return self.own(h) + spread @ self.other(h)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.leave = Layer(256, width), Layer(width, width), nn.Linear(width, kinds)

        def forward(self, features):
            return self.leave(F.relu(self.second(F.relu(self.first(features)))))

    pairs = torch.randint(nodes, (2, edges))
    pairs = torch.cat([pairs, pairs.flip(0)], 1)
    degrees = pairs[0].bincount(minlength=nodes).clamp(min=1).float()
    weights = (degrees[pairs[0]] * degrees[pairs[1]]).rsqrt()
    spread = torch.sparse_coo_tensor(pairs, weights, (nodes, nodes)).coalesce().to_sparse_csr()
    model, features = Network(), torch.randn(nodes, 256)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    labels = torch.randint(kinds, (nodes,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-timeseries-recurrent",
    domain="time series",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="Two layers of nn.LSTM read whole series in one call, and the last state alone is mapped to the forecast.",
)
def clean_timeseries_recurrent(mended):
    class Forecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.read = nn.LSTM(12, 192, num_layers=2, batch_first=True)
            self.leave = nn.Linear(192, 24)

        def forward(self, series):
            return self.leave(self.read(series)[1][0][-1])

    model, series = Forecaster().eval(), torch.randn(64, 48, 12)

    @torch.inference_mode()
    def forecast():
        return model(series)

    return forecast


@clean(
    id="clean-tabular-training",
    domain="tabular",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A table's rows come from one index_select, norms see the whole batch, and one fused step updates all; "
    "products lead.",
)
def clean_tabular_training(mended):
    columns, width, batch, rows = 64, 512, 768, 20_000

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(columns, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True),
                nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True),
                nn.Linear(width, width, bias=False), nn.BatchNorm1d(width), nn.ReLU(inplace=True),
                nn.Linear(width, 10),
            )

        def forward(self, table):
            return self.layers(table)

    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    table, labels = torch.randn(rows, columns), torch.randint(10, (rows,))

    def train_step():
        some = torch.randint(rows, (batch,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(table.index_select(0, some)), labels.index_select(0, some))
        loss.backward()
        optimizer.step()
        return loss

    return train_step
