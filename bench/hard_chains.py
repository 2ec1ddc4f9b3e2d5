#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Savings of torch.compile on chains of which bytes alone say too much: norms, random numbers, scans.

  bench/hard_chains.py [NAME ...]

Runs each chain eagerly and compiled on one thread of the CPU, in turns, and prints the medians of
their CPU time, which other work on the machine hardly changes, for two sizes. Below 0 %, Inductor's
kernel takes longer. Needs torch and a C++ compiler.
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as F

ROUNDS = 9
CALLS = 3
SHAPES = ((512, 768), (4096, 1024))


def add_layer_norm(x, y, w, b):
    return F.layer_norm(x + y, (x.shape[-1],), w, b)


def gelu_dropout(x, y, w, b):
    return F.dropout(F.gelu(x), 0.1, True)


def nucleus(x, y, w, b):
    p = torch.softmax(x, -1)
    return (p.cumsum(-1) - p) > 0.9


def add_softmax(x, y, w, b):
    return torch.softmax(x + y, -1)


def add_rms(x, y, w, b):
    h = x + y
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def pointwise(x, y, w, b):
    return torch.relu(x * 0.5 + y) * y


CHAINS = {f.__name__: f
          for f in (add_layer_norm, gelu_dropout, nucleus, add_softmax, add_rms, pointwise)}


def cpu_us(f, args):
    start = time.thread_time()
    for _ in range(CALLS):
        f(*args)
    return (time.thread_time() - start) / CALLS * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CHAINS))
    args = parser.parse_args()
    unknown = [n for n in args.names if n not in CHAINS]
    if unknown:
        parser.error(f"expected {', '.join(CHAINS)}, got {unknown[0]}")
    torch.set_num_threads(1)
    print(f"{'chain':<16}{'shape':>14}{'eager':>10}{'compiled':>10}{'saved':>8}   (us of CPU time)")
    for name in args.names or CHAINS:
        for shape in SHAPES:
            torch._dynamo.reset()
            tensors = (torch.randn(*shape), torch.randn(*shape), torch.randn(shape[-1]),
                       torch.randn(shape[-1]))
            eager, compiled = CHAINS[name], torch.compile(CHAINS[name])
            with torch.no_grad():
                for f in (compiled, compiled, eager):
                    f(*tensors)
                times = [(cpu_us(eager, tensors), cpu_us(compiled, tensors)) for _ in range(ROUNDS)]
            before, after = (statistics.median(t[i] for t in times) for i in range(2))
            print(f"{name:<16}{str(shape):>14}{before:>10.0f}{after:>10.0f}"
                  f"{100 * (1 - after / before):>7.0f}%", flush=True)


if __name__ == "__main__":
    main()
