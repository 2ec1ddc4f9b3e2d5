# SPDX-License-Identifier: Apache-2.0
"""Clean cases: vision, language, audio, graphs, recommenders. Each is written as an expert would."""

import torch
import torch.nn as nn
import torch.nn.functional as F

from case import Profile, clean


@clean(
    id="clean-vision",
    domain="vision",
    mode="training",
    profile=Profile(with_stack=True, record_shapes=True),
    answer="A residual network is bound by its convolutions.",
)
def clean_vision(mended):
    class Residual(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
            )

        def forward(self, x):
            return F.relu(x + self.layers(x))

    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.ReLU(inplace=True), Residual(32),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(inplace=True), Residual(64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    ).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images = torch.randn(16, 3, 48, 48).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (16,))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-language-training",
    domain="language",
    mode="training",
    profile=Profile(record_shapes=True, profile_memory=True),
    answer="A decoder with fused attention, GELU, cross-entropy and AdamW is bound by its products.",
)
def clean_language_training(mended):
    width, heads = 192, 6

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

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.place = nn.Embedding(1000, width), nn.Parameter(torch.zeros(128, width))
            self.blocks = nn.Sequential(*[Block() for _ in range(3)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000, bias=False)

        def forward(self, tokens):
            return self.head(self.norm(self.blocks(self.embed(tokens) + self.place)))

    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens, following = torch.randint(1000, (4, 128)), torch.randint(1000, (4, 128))

    def train_step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return train_step


@clean(
    id="clean-language-encoder",
    domain="language",
    mode="inference",
    profile=Profile(schedule=False, with_stack=True),
    answer="A BERT encoder with fused attention on full batches of one length is bound by its products.",
)
def clean_language_encoder(mended):
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=4000, hidden_size=192, num_hidden_layers=4, num_attention_heads=6,
                        intermediate_size=768, max_position_embeddings=128)
    model = BertModel(config, add_pooling_layer=False).eval()
    tokens = torch.randint(4000, (8, 96))

    @torch.inference_mode()
    def encode():
        return model(input_ids=tokens).last_hidden_state

    return encode


@clean(
    id="clean-audio",
    domain="audio",
    mode="inference",
    profile=Profile(record_shapes=True),
    answer="A batched spectrogram and a convolutional tagger are bound by the convolutions.",
)
def clean_audio(mended):
    bank, window = torch.rand(64, 257), torch.hann_window(512)
    model = nn.Sequential(
        nn.Conv1d(64, 192, 5, padding=2), nn.ReLU(inplace=True), nn.Conv1d(192, 192, 5, padding=2),
        nn.ReLU(inplace=True), nn.Conv1d(192, 192, 5, padding=2), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(192, 30),
    ).eval()
    clips = torch.randn(16, 16_000)

    @torch.inference_mode()
    def tag():
        power = torch.stft(clips, 512, 160, window=window, return_complex=True).abs().square_()
        return model((bank @ power).add_(1e-6).log_())

    return tag


@clean(
    id="clean-recommender",
    domain="recommenders",
    mode="training",
    profile=Profile(with_modules=True, record_shapes=True),
    answer="A deep recommender with sparse EmbeddingBag gradients is bound by the products of its towers.",
)
def clean_recommender(mended):
    class Ranker(nn.Module):
        def __init__(self):
            super().__init__()
            self.bags = nn.ModuleList([nn.EmbeddingBag(50_000, 32, mode="sum", sparse=True) for _ in range(4)])
            self.dense = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 32))
            self.top = nn.Sequential(
                nn.Linear(160, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)
            )

        def forward(self, dense, ids):
            parts = [self.dense(dense)] + [bag(chosen) for bag, chosen in zip(self.bags, ids)]
            return self.top(torch.cat(parts, 1)).squeeze(1)

    model = Ranker()
    products = [*model.dense.parameters(), *model.top.parameters()]
    optimizers = [
        torch.optim.SGD(model.bags.parameters(), lr=0.1),
        torch.optim.Adam(products, lr=1e-3, fused=True),
    ]
    dense, ids = torch.randn(1024, 16), torch.randint(50_000, (4, 1024, 5))
    clicks = torch.rand(1024).round()

    def train_step():
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(dense, ids), clicks)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss

    return train_step
