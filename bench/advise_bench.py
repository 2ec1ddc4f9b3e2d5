#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""advise()'s predictions for transformers models, beside its measurements.

    advise_bench.py [--models llama vit bert] [--layers 4] [--rounds 9] [--seconds 0.2] [--json FILE]

Models are made from their configs, with random weights. The prediction is right enough where at
least 0.9 of it is measured; the exit status is 1 where it is not. Needs torch, transformers and
epilogue.torch (docs/pytorch.md). Leave the machine alone meanwhile.
"""

import argparse
import contextlib
import json
import sys

import torch
import transformers as t

import epilogue.torch

SHARE = 0.9  # of the predicted milliseconds that must be measured


def llama(layers):
    sizes = dict(hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_key_value_heads=4)
    config = t.LlamaConfig(vocab_size=1024, num_hidden_layers=layers, attn_implementation="eager", **sizes)
    return t.LlamaForCausalLM(config).eval(), dict(input_ids=torch.randint(2, 1024, (1, 256)), use_cache=False), {}


def vit(layers):
    config = t.ViTConfig(num_hidden_layers=layers, attn_implementation="eager")
    return t.ViTModel(config).eval(), dict(pixel_values=torch.randn(1, 3, 224, 224)), {}


def bert(layers):
    config = t.BertConfig(vocab_size=1024, hidden_size=512, intermediate_size=2048, num_hidden_layers=layers, num_attention_heads=8)
    model = t.BertForMaskedLM(config).train()
    ids = torch.randint(2, 1024, (4, 128))
    # Dropout draws other numbers where ops are fused: results could not be compared.
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model, dict(input_ids=ids, labels=ids), dict(optimizer=torch.optim.AdamW(model.parameters(), 1e-4))


# Name: model, context of the call, what it is.
CASES = {
    "llama": (llama, contextlib.nullcontext, "prefill of 256 tokens, f32, eager attention"),
    "vit": (vit, lambda: torch.autocast("cpu", dtype=torch.bfloat16), "one image under bf16 autocast"),
    "bert": (bert, contextlib.nullcontext, "a training step with AdamW"),
}


def run(name, options):
    make, context, what = CASES[name]
    torch.manual_seed(0)
    model, inputs, training = make(options.layers)
    with context():
        advice = epilogue.torch.advise(model, rounds=options.rounds, seconds=options.seconds, **inputs, **training)
    print(f"## {name}: {what}\n{advice}\n", flush=True)
    share = advice.measured_ms / advice.predicted_ms if advice.predicted_ms > 0 else None
    return {"name": name, "what": what, "share": share, **advice.to_dict()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    rows = [run(name, options) for name in options.models]
    for row in rows:
        share = "nothing predicted" if row["share"] is None else f"{row['share']:.2f} of the prediction"
        print(f"{row['name']:8} predicted {row['predicted_ms']:9.2f} ms   measured {row['measured_ms']:9.2f} ms   {share}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    return int(any(row["share"] is not None and row["share"] < SHARE for row in rows))


if __name__ == "__main__":
    sys.exit(main())
