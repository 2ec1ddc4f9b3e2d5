# SPDX-License-Identifier: Apache-2.0
"""Clean cases, a second five: made with rounds 5 and 6. Each is written as an expert would."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision-transformer",
    domain="vision",
    mode="inference",
    profile=Profile(with_modules=True, record_shapes=True),
    answer="A vision transformer with fused attention on a full batch is bound by its products.",
)
def clean_vision_transformer(mended):
    width, heads = 256, 8

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            q, k, v = self.qkv(self.first(x)).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.mlp(self.second(x))

    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, 16, stride=16)
            self.place = nn.Parameter(torch.randn(1, 64, width) / 50)
            self.blocks = nn.Sequential(*[Block() for _ in range(4)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

        def forward(self, images):
            x = self.patches(images).flatten(2).transpose(1, 2) + self.place
            return self.head(self.norm(self.blocks(x)).mean(1))

    model = Vit().eval()
    images = torch.randn(8, 3, 128, 128)

    @torch.inference_mode()
    def classify():
        return model(images)

    return classify


@clean(
    id="clean-audio-training",
    domain="audio",
    mode="training",
    profile=Profile(with_stack=True, profile_memory=True),
    answer="A speech model of strided convolutions and a GRU over whole sequences is bound by their kernels.",
)
def clean_audio_training(mended):
    class Speech(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.Sequential(
                nn.Conv1d(64, 192, 5, stride=2, padding=2), nn.ReLU(inplace=True),
                nn.Conv1d(192, 192, 5, stride=2, padding=2), nn.ReLU(inplace=True),
            )
            self.recur = nn.GRU(192, 192, batch_first=True)
            self.out = nn.Linear(192, 30)

        def forward(self, mel):
            return self.out(self.recur(self.convs(mel).transpose(1, 2))[0])

    model = Speech()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    mel, letters = torch.randn(12, 64, 240), torch.randint(1, 30, (12, 20))
    frames, lengths = torch.full((12,), 60), torch.full((12,), 20)

    def train_step():
        optimizer.zero_grad()
        scores = model(mel).log_softmax(2).transpose(0, 1)
        loss = F.ctc_loss(scores, letters, frames, lengths)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-graph-inference",
    domain="graphs",
    mode="inference",
    profile=Profile(schedule=False),
    answer="A graph network spreads features with a sparse CSR matrix made once; its products lead.",
)
def clean_graph_inference(mended):
    nodes, edges, width = 6000, 30_000, 128
    ends = torch.randint(nodes, (2, edges))
    spread = torch.sparse_coo_tensor(ends, torch.full((edges,), 0.2), (nodes, nodes)).coalesce().to_sparse_csr()
    first, second, out = nn.Linear(64, width), nn.Linear(width, width), nn.Linear(width, 10)
    features = torch.randn(nodes, 64)

    @torch.inference_mode()
    def classify():
        h = (spread @ first(features)).relu_()
        h = (spread @ second(h)).relu_()
        return out(h)

    return classify


@clean(
    id="clean-tabular",
    domain="tabular",
    mode="training",
    profile=Profile(record_shapes=True, with_stack=True),
    answer="One table for all categorical columns, wide layers and a fused optimizer: the layers' products lead.",
)
def clean_tabular(mended):
    columns, rows, width = 40, 30, 8

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(columns * rows, width)
            self.register_buffer("offset", torch.arange(columns) * rows)
            self.layers = nn.Sequential(
                nn.Linear(columns * width + 24, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3)
            )

        def forward(self, ids, numbers):
            return self.layers(torch.cat([self.table(ids + self.offset).flatten(1), numbers], 1))

    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids, numbers, labels = torch.randint(rows, (1024, columns)), torch.randn(1024, 24), torch.randint(3, (1024,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids, numbers), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-distributed-inference",
    domain="language",
    mode="inference",
    scale="distributed",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="Two ranks encode batches of one size and gather their vectors in one call; the layers' products lead.",
)
def clean_distributed_inference(mended, rank, world):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(3000, 192)
            layer = nn.TransformerEncoderLayer(192, 6, 768, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

        def forward(self, tokens):
            return self.layers(self.embed(tokens)).mean(1)

    model = Encoder().eval()
    tokens = torch.randint(3000, (8, 80))

    @torch.inference_mode()
    def encode():
        vectors = model(tokens)
        every = vectors.new_empty(world * len(vectors), vectors.shape[1])
        dist.all_gather_into_tensor(every, vectors)
        return every

    return encode
