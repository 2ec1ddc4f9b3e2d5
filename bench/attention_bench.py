#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attention_bench.py [--dtype bfloat16] [--rounds 31]: attention of torch.ops.epilogue beside scaled_dot_product_attention.

Both run in turn, round after round, on the same tensors as projections leave them ([batch, rows, heads, columns], transposed). A
line has the medians, the ratio of both with its quartiles over rounds, and the errors of both against float64; it fails where ours
is above 1.05 times PyTorch's. With a mask: as transformers gives it under torch.compile, a tensor of booleans.
Needs torch and epilogue.torch. Leave the machine alone meanwhile.
"""

import argparse
import statistics
import sys

import torch
import torch.nn.functional as F

import epilogue.torch  # noqa: F401  (registers the ops)
from epilogue.torch import functional  # noqa: F401
from epilogue.torch.timing import interleaved, quartiles, relative

# name: batch, heads, heads of keys, rows, columns, how queries are limited
SHAPES = {
    "gpt2": (1, 12, 12, 512, 64, "mask"),
    "llama": (1, 32, 8, 512, 64, "causal"),
    "qwen2": (1, 14, 2, 512, 64, "mask"),
    "mixtral": (1, 8, 2, 512, 128, "mask"),
    "bert": (1, 12, 12, 512, 64, "none"),
    "bert, 8 x 128": (8, 12, 12, 128, 64, "none"),
    "vit": (1, 12, 12, 197, 64, "none"),
    "llama, 2048": (1, 32, 8, 2048, 64, "causal"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32", "float16"))
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    torch.manual_seed(0)
    print(f"{options.dtype}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    failed = False
    for name in options.shapes:
        batch, heads, shared, rows, columns, limit = SHAPES[name]
        q, k, v = (torch.randn(batch, rows, h, columns, dtype=dtype).transpose(1, 2) for h in (heads, shared, shared))
        causal = limit == "causal"
        mask = torch.ones(rows, rows, dtype=torch.bool).tril()[None, None] if limit == "mask" else None
        given = {"attn_mask": mask, "is_causal": causal, "enable_gqa": heads != shared}
        calls = {
            "ours": lambda: torch.ops.epilogue.attention(q, k, v, mask, causal, None),  # noqa: B023
            "own": lambda: F.scaled_dot_product_attention(q, k, v, **given),  # noqa: B023
        }
        with torch.inference_mode():
            exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **given)
            errors = relative(calls["ours"]().transpose(1, 2), exact), relative(calls["own"](), exact)
            times = interleaved(calls, 0.005, options.rounds)
        low, middle, high = quartiles(times["own"], times["ours"])
        mine, theirs = (statistics.median(times[name]) for name in calls)
        wrong = errors[0] > 1.05 * errors[1]
        failed |= wrong
        print(
            f"{name:14} {limit:6} ours {mine:7.3f} ms  PyTorch {theirs:7.3f} ms  {middle:5.2f}x [{low:.2f}, {high:.2f}]"
            f"  errors {errors[0]:.2e} {errors[1]:.2e}{'  LESS EXACT' if wrong else ''}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
