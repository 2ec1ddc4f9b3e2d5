#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Eager and compiled PyTorch traces of pointwise-rich blocks on a CPU.

  bench/collect_fusion_pairs.py OUT [--set first|second|third] [--rounds 3] [--only TEXT] [--threads N]

For bench/fusion_truth.py: NAME_eager.ROUND.json.gz and NAME_compile.ROUND.json.gz, in turns. Needs
PyTorch; record_shapes is on, inference only, Inductor's kernels are in the trace by name. The model
of `epilogue explain` was made looking at the first two sets; the third was recorded afterwards.
"""
import argparse
import gzip
import shutil
from pathlib import Path

import torch
import torch._inductor.config
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile, schedule


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def gated(act):
    return lambda x, wg, wu, wd: (act(x @ wg) * (x @ wu)) @ wd


def pointwise(act):
    return lambda x, wg, wu, wd: act(x @ wg) @ wd


def residual(x, wg, wu, wd):
    return x + F.relu(x @ wg + 1.0) @ wd


def layernorm(x, wg, wu, wd):
    h = x @ wg + F.gelu(x @ wu)
    return F.layer_norm(h, (h.shape[-1],)) @ wd


def rms(h):
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def norm_of_sum(x, wg, wu, wd):
    h = x @ wg + x @ wu
    return F.layer_norm(h, (h.shape[-1],)) @ wd


def gated_rms(x, wg, wu, wd):
    return (rms(x @ wg) * (x @ wu)) @ wd


FIRST = {"geglu": gated(gelu_tanh), "swiglu": gated(F.silu), "reglu": gated(F.relu),
         "residual": residual, "layernorm": layernorm, "rms": pointwise(rms),
         "chain": pointwise(lambda h: torch.tanh(h * 0.5) + h * 2.0 - 1.0),
         "sqrelu": pointwise(lambda h: torch.square(F.relu(h))),
         "softcap": pointwise(lambda h: 30 * torch.tanh(h / 30))}
SECOND = {"glu": gated(torch.sigmoid), "mish": pointwise(lambda h: F.mish(h) * 0.5),
          "clamp": pointwise(lambda h: torch.clamp(h, -1, 1) + h * 0.1),
          "softmax": pointwise(lambda h: torch.softmax(h * 0.125, -1)),
          "hardswish": gated(F.hardswish),
          "standard": pointwise(lambda h: (h - h.mean(-1, keepdim=True)) * 0.5)}
THIRD = {"quickgelu": pointwise(lambda h: h * torch.sigmoid(1.702 * h)),
         "leaky": pointwise(lambda h: F.leaky_relu(h, 0.1) * 2 + 1),
         "normsum": norm_of_sum, "gatedrms": gated_rms,
         "expmax": pointwise(lambda h: torch.exp(h - h.amax(-1, keepdim=True))),
         "tanhgate": gated(torch.tanh), "softplus": gated(F.softplus)}
SETS = {"first": (FIRST, ((512, 256, 1024), (2048, 256, 2048), (4096, 512, 2048))),
        "second": (SECOND, ((700, 192, 1280), (1536, 384, 3072), (6000, 256, 1500))),
        "third": (THIRD, ((900, 320, 1152), (3072, 320, 1792), (5000, 384, 2304)))}


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
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--set", choices=SETS, default="first")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="blocks whose name holds this")
    parser.add_argument("--threads", type=int, help="of PyTorch; else one per core")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    torch._inductor.config.cpp.enable_kernel_profile = True
    blocks, shapes = SETS[args.set]
    for dtype in (torch.float32, torch.bfloat16):
        for m, k, h in shapes:
            tensors = [torch.randn(s, dtype=dtype) * 0.05
                       for s in ((m, k), (k, h), (k, h), (h, k))]
            for name, block in blocks.items():
                if args.only not in name:
                    continue
                torch._dynamo.reset()
                compiled = torch.compile(block)
                stem = f"{name}_{m}_{k}_{h}_{str(dtype).removeprefix('torch.')}"
                for i in range(args.rounds):
                    record(block, tensors, args.out / f"{stem}_eager.{i}.json.gz")
                    record(compiled, tensors, args.out / f"{stem}_compile.{i}.json.gz")
                print("recorded", stem, flush=True)


if __name__ == "__main__":
    main()
