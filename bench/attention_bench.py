#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attention_bench.py [--decoding] [--dtype bfloat16] [--rounds 31]: torch.ops.epilogue.attention beside scaled_dot_product_attention.

Both run in turn, round after round, on the same tensors as projections leave them ([batch, rows, heads, columns], transposed). A
line has the medians, the ratio of both with its quartiles over rounds, and the errors of both against float64; it fails where ours
is above 1.05 times PyTorch's. With a mask: as transformers gives it under torch.compile, a tensor of booleans.
--decoding: one query after so many keys, as a model decodes. Calls take the caches of several layers by turns, 64 MiB of keys and
values or more, so that they come from memory; the line has the rate at which ours reads them.
Needs torch and epilogue.torch. Leave the machine alone meanwhile.
"""

import argparse
import itertools
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
# name: batch, heads, heads of keys, keys, columns
DECODING = {
    "gpt2, 512": (1, 12, 12, 512, 64),
    "gpt2, 4096": (1, 12, 12, 4096, 64),
    "qwen2, 512": (1, 14, 2, 512, 64),
    "qwen2, 4096": (1, 14, 2, 4096, 64),
    "llama, 512": (1, 32, 8, 512, 64),
    "llama, 4096": (1, 32, 8, 4096, 64),
    "llama 8B, 4096": (1, 32, 8, 4096, 128),
    "llama, 4 x 1024": (4, 32, 8, 1024, 64),
    "gpt2, 64": (1, 12, 12, 64, 64),
}
LEAST_BYTES = 64 << 20  # of all caches


def decode(name, dtype):
    """Calls of both, and their results for the first cache with the exact one."""
    batch, heads, shared, keys, columns = DECODING[name]
    bytes_of_one = 2 * batch * shared * keys * columns * dtype.itemsize
    q = torch.randn(batch, heads, 1, columns).to(dtype)
    count = -(-LEAST_BYTES // bytes_of_one) + 1
    caches = [[torch.randn(batch, shared, keys, columns).to(dtype) for _ in range(2)] for _ in range(count)]
    given = {"enable_gqa": heads != shared}
    own = lambda k, v: F.scaled_dot_product_attention(q, k, v, **given)  # noqa: E731
    ours = lambda k, v: torch.ops.epilogue.attention(q, k, v, None, False, None)  # noqa: E731
    k, v = caches[0]
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **given)
    errors = relative(ours(k, v).transpose(1, 2), exact), relative(own(k, v), exact)
    turns = itertools.cycle(caches)  # both go on with the next one
    return {"ours": lambda: ours(*next(turns)), "own": lambda: own(*next(turns))}, errors, bytes_of_one


def show(name, limit, calls, times, errors, count=None):
    """Prints the line, and says whether ours is less exact."""
    low, middle, high = quartiles(times["own"], times["ours"])
    mine, theirs = (statistics.median(times[name]) for name in calls)
    wrong = errors[0] > 1.05 * errors[1]
    rate = "" if count is None else f"  {count / mine * 1e-6:5.1f} GB/s"
    print(
        f"{name:16} {limit:6} ours {mine:7.3f} ms  PyTorch {theirs:7.3f} ms  {middle:5.2f}x [{low:.2f}, {high:.2f}]{rate}"
        f"  errors {errors[0]:.2e} {errors[1]:.2e}{'  LESS EXACT' if wrong else ''}",
        flush=True,
    )
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32", "float16"))
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--decoding", action="store_true", help="all shapes of one query")
    parser.add_argument("--shapes", nargs="+", choices=[*SHAPES, *DECODING], default=None, help="these alone, of either kind")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    torch.manual_seed(0)
    print(f"{options.dtype}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    failed = False
    for name in options.shapes or (DECODING if options.decoding else SHAPES):
        if name in DECODING:
            with torch.inference_mode():
                calls, errors, count = decode(name, dtype)
                times = interleaved(calls, 0.02, options.rounds)
            failed |= show(name, "", calls, times, errors, count)
            continue
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
        failed |= show(name, limit, calls, times, errors)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
