#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records small transformers with Python frames, shapes and memory: collect_models.py OUT

Llama, BERT, ViT and GPT-2 from their configurations (needs transformers), eager and compiled, in
inference and in training. `tests/golden/torch_averages.py EPILOGUE OUT` then compares the tables."""
import sys
from pathlib import Path

import torch
import transformers
from collect import record

TEXT = {"vocab_size": 200}
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
MODELS = {
    "llama": ("Llama", {**SIZES, **TEXT}),
    "bert": ("Bert", {**SIZES, **TEXT}),
    "vit": ("ViT", {**SIZES, "image_size": 32, "patch_size": 8}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 4, **TEXT}),
}


def make(name, train):
    kind, fields = MODELS[name]
    model = transformers.AutoModel.from_config(getattr(transformers, kind + "Config")(**fields))
    x = torch.randn(2, 3, 32, 32) if name == "vit" else torch.randint(0, 200, (2, 16))
    if not train:
        return model.eval(), (x,)
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        model(x).last_hidden_state.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, (x,)


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        for train in (False, True):
            for compiled in (False, True):
                label = f"{name}_{'train' if train else 'infer'}_{'compile' if compiled else 'eager'}"
                record(out / label, lambda name=name, train=train: make(name, train), label, compiled,
                       train=train, rich=True, stack=True)


if __name__ == "__main__":
    main()
