# SPDX-License-Identifier: Apache-2.0
"""Times one call that takes the RMSNorm before q, k and v, or the residual behind the output projection, beside the same by
themselves; and rotary embeddings, beside a copy of what they read. CPU time of one thread, interleaved pairs, medians.

    python bench/attention_neighbours.py [--hidden 1024] [--rows 1 16 128] [--dtype bfloat16]

Needs torch, transformers and the ops of epilogue.torch.
"""

import argparse
import statistics
import time

import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb

import epilogue.torch  # noqa: F401  (loads the ops)
from epilogue.torch import norms
from epilogue.torch.handle import Around, Handle, NormWeights
from epilogue.torch.timing import relative


def medians(calls, rounds):
    times = {name: [] for name in calls}
    for name, call in calls.items():
        for _ in range(3):
            call()
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.thread_time()
            call()
            times[name].append((time.thread_time() - begin) * 1e6)
    return {name: statistics.median(t) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hidden, op = options.hidden, torch.ops.epilogue.linear.default
    for name in options.dtype:
        dtype = getattr(torch, name)
        norm = LlamaRMSNorm(hidden).to(dtype)
        weights = [torch.randn(n, hidden).mul_(hidden**-0.5).to(dtype) for n in (hidden, hidden // 4, hidden // 4)]
        out = torch.randn(hidden, hidden).mul_(hidden**-0.5).to(dtype)
        with torch.no_grad():
            alone = Handle(weights, [None] * 3, "none")
            fused = Handle(weights, [None] * 3, "none", around=Around(NormWeights(norms.identify(norm), norm.weight, None)),
                           parameters=[*weights, norm.weight])  # fmt: skip
            behind = Handle([out], [None], "none", around=Around(residual=True))
            output = Handle([out], [None], "none")
            for rows in options.rows:
                x, residual = torch.randn(2, rows, hidden).to(dtype)
                head = min(64, hidden)
                q = torch.randn(1, hidden // head, rows, head).to(dtype)
                k = q[:, : max(hidden // head // 4, 1)].clone()
                angles = torch.randn(1, rows, head).to(dtype)
                calls = {
                    "norm, qkv": lambda: op(norm(x), alone.number, weights, None),
                    "norm + qkv": lambda: op(x, fused.number, [*weights, norm.weight], None),
                    "out, residual": lambda: residual + op(x, output.number, [out], None)[0],
                    "out + residual": lambda: op(x, behind.number, [out], residual)[0],
                    "rotary": lambda: apply_rotary_pos_emb(q, k, angles, angles),
                    "read twice": lambda: (q.clone(), k.clone()),  # the least that one pass would take
                }
                off = [relative(a, b) for a, b in zip(calls["norm, qkv"](), calls["norm + qkv"]())]
                off.append(relative(calls["out, residual"](), calls["out + residual"]()))
                took = medians(calls, options.rounds)
                ratios = [took["norm, qkv"] / took["norm + qkv"], took["out, residual"] / took["out + residual"]]
                print(f"{name} {rows} x {hidden}: norm with q, k, v {ratios[0]:.2f}x, residual with the output {ratios[1]:.2f}x   us: "
                      + ", ".join(f"{k} {v:.0f}" for k, v in took.items()) + f"   largest difference {max(off):.1e}")  # fmt: skip


if __name__ == "__main__":
    main()
