#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Eager and compiled PyTorch traces of pointwise-rich blocks on a CPU: collect_fusion_pairs.py OUT

For bench/fusion_truth.py. Needs PyTorch; record_shapes is on, inference only.
"""
import gzip
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def gated(act):
    return lambda x, wg, wu, wd: (act(x @ wg) * (x @ wu)) @ wd


def residual(x, wg, wu, wd):
    return x + F.relu(x @ wg + 1.0) @ wd


def chain(x, wg, wu, wd):
    h = x @ wg
    return (torch.tanh(h * 0.5) + h * 2.0 - 1.0) @ wd


BLOCKS = {"geglu": gated(gelu_tanh), "swiglu": gated(F.silu), "reglu": gated(F.relu),
          "residual": residual, "chain": chain}
SHAPES = ((512, 256, 1024), (2048, 256, 2048), (4096, 512, 2048))


def record(fn, args, path):
    with torch.no_grad():
        for _ in range(5):
            fn(*args)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                     schedule=schedule(wait=1, warmup=2, active=7, repeat=1)) as prof:
            for _ in range(10):
                fn(*args)
                prof.step()
    text = path.with_suffix("")
    prof.export_chrome_trace(str(text))
    with open(text, "rb") as source, gzip.open(path, "wb") as target:
        shutil.copyfileobj(source, target)
    text.unlink()


def main():
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for dtype in (torch.float32, torch.bfloat16):
        for m, k, h in SHAPES:
            args = [torch.randn(s, dtype=dtype) * 0.05 for s in ((m, k), (k, h), (k, h), (h, k))]
            for name, block in BLOCKS.items():
                torch._dynamo.reset()
                stem = f"{name}_{m}_{k}_{h}_{str(dtype).removeprefix('torch.')}"
                record(block, args, out / f"{stem}_eager.json.gz")
                record(torch.compile(block), args, out / f"{stem}_compile.json.gz")
                print("recorded", stem, flush=True)


if __name__ == "__main__":
    main()
