# SPDX-License-Identifier: Apache-2.0
"""Clean cases, five more. Each is written as an expert would."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-language-ngrams",
    domain="language",
    mode="inference",
    profile=Profile(with_stack=True, with_modules=True, record_shapes=True),
    answer="A language model of dense layers reads the eight words before each word, in one "
    "look-up for all, and rates a text by its cross entropy; the linear layers lead.",
)
def clean_language_ngrams(mended):
    rows, before, words, short, width = 256, 8, 1000, 128, 1024

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(words, short)
            self.layers = nn.Sequential(
                nn.Linear(before * short, width), nn.ReLU(inplace=True),
                nn.Linear(width, width), nn.ReLU(inplace=True),
                nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, words),
            )

        def forward(self, ids):
            return self.layers(self.table(ids).flatten(1))

    model, text = Model().eval(), torch.randint(words, (rows + before,))
    seen, wanted = text.unfold(0, before, 1)[:rows].contiguous(), text[before:]

    @torch.inference_mode()
    def rate():
        return F.cross_entropy(model(seen), wanted)

    return rate


@clean(
    id="clean-audio-speakers",
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A network of dilated convolutions tells speakers apart by the mean and the mean "
    "square of its frames, and trains with a fused optimizer; the convolutions and their backward "
    "lead.",
)
def clean_audio_speakers(mended):
    clips, bands, frames, width, speakers = 20, 40, 160, 192, 64

    class Speakers(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(bands, width, 5, 2), nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 5), nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 3, dilation=2), nn.ReLU(inplace=True),
                nn.Conv1d(width, width, 3, dilation=3),
            )
            self.head = nn.Sequential(
                nn.Linear(2 * width, width), nn.ReLU(inplace=True), nn.Linear(width, speakers)
            )

        def forward(self, spectra):
            heard = self.layers(spectra)
            return self.head(torch.cat([heard.mean(2), heard.square().mean(2)], 1))

    model = Speakers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    spectra = F.normalize(torch.randn(16, clips, bands, frames), dim=2)
    labels = torch.randint(speakers, (16, clips))
    batches = itertools.cycle(range(16))

    def train_step():
        at = next(batches)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(spectra[at]), labels[at])
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-graph-neighbours",
    domain="graphs",
    mode="inference",
    profile=Profile(record_shapes=True, profile_memory=True),
    answer="Each node reads the mean of six sampled neighbours by one embedding_bag, which "
    "writes no message, and two layers of products follow; aten::addmm leads.",
)
def clean_graph_neighbours(mended):
    nodes, degree, width, kinds = 360, 6, 896, 12

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.other = nn.Linear(width, width), nn.Linear(width, width, bias=False)

        def forward(self, h, near):
            pooled = F.embedding_bag(near, h, mode="mean")
            return self.own(h).addmm_(pooled, self.other.weight.t()).relu_()

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer() for _ in range(2)])
            self.leave = nn.Linear(width, kinds)

        def forward(self, h, near):
            for layer in self.layers:
                h = layer(h, near)
            return self.leave(h)

    model, near = Network().eval(), torch.randint(nodes, (nodes, degree))
    features = F.normalize(torch.randn(8, nodes, width), dim=2)
    moments = itertools.cycle(range(8))

    @torch.inference_mode()
    def classify():
        return model(features[next(moments)], near).argmax(1)

    return classify


@clean(
    id="clean-recommender-crosses",
    domain="recommenders",
    mode="inference",
    profile=Profile(with_stack=True, record_shapes=True, schedule=False, steps=5),
    answer="Candidates are rated by cross layers beside deep layers; all fields are read by one "
    "look-up, a cross works in place on its product, and the products lead.",
)
def clean_recommender_crosses(mended):
    rows, fields, values, short, crosses = 224, 16, 120, 64, 2
    width = fields * short

    class Rater(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(fields * values, short)
            self.crosses = nn.ModuleList([nn.Linear(width, width) for _ in range(crosses)])
            self.deep = nn.Sequential(
                nn.Linear(width, width), nn.ReLU(inplace=True),
                nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, 1),
            )
            self.leave = nn.Linear(width, 1, bias=False)

        def forward(self, ids):
            begin = self.table(ids).flatten(1)
            x = begin
            for cross in self.crosses:
                x = cross(x).mul_(begin).add_(x)
            return (self.leave(x) + self.deep(begin))[:, 0]

    model = Rater().eval()
    ids = torch.randint(values, (64, rows, fields)) + torch.arange(fields) * values
    batches = itertools.cycle(range(64))

    @torch.inference_mode()
    def rate():
        return model(ids[next(batches)]).sigmoid_()

    return rate


@clean(
    id="clean-generative-flow-matching",
    domain="generative",
    mode="training",
    profile=Profile(with_stack=True, with_modules=True),
    answer="A flow is learnt by matching velocities between noise and data: one lerp makes the "
    "place, one linear layer reads the time, and the linear layers lead with their backward.",
)
def clean_generative_flow_matching(mended):
    rows, size, width, waves = 896, 96, 448, 32

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

        def forward(self, x):
            return x + self.down(F.relu(self.up(self.norm(x)), inplace=True))

    class Velocity(nn.Module):
        def __init__(self):
            super().__init__()
            self.place, self.time = nn.Linear(size, width), nn.Linear(waves, width, bias=False)
            self.layers = nn.Sequential(Layer(), Layer())
            self.leave = nn.Linear(width, size)
            self.register_buffer("speeds", torch.logspace(0, 2, waves))

        def forward(self, x, moment):
            return self.leave(self.layers(self.place(x) + self.time((moment * self.speeds).cos())))

    model = Velocity()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = F.normalize(torch.randn(64, rows, size), dim=2)
    batches = itertools.cycle(range(64))

    def train_step():
        some = data[next(batches)]
        noise, moment = torch.randn(rows, size), torch.rand(rows, 1)
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(torch.lerp(noise, some, moment), moment), some - noise)
        loss.backward()
        optimizer.step()
        return loss

    return train_step
