#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fusion savings: predicted from eager traces, measured in compiled ones.

  bench/fusion_truth.py EPILOGUE DIR [--max-median PCT]

DIR holds NAME_eager.ROUND.json.gz and NAME_compile.ROUND.json.gz of PyTorch on a CPU
(bench/collect_fusion_pairs.py makes them). Inductor fuses the pointwise chains and leaves the matrix
products as they are. Measured saving = what the eager trace took beside its products, less Inductor's
kernels and the copies of the compiled trace; predicted = the pointwise-chain findings of
`epilogue explain`, 0 where it has none. In us per step; of the rounds the median, also of the error:
an eager and a compiled trace of one round were recorded one after the other. Exit 1 where the median
of the errors' sizes is above --max-median.
"""
import argparse
import statistics
import sys
from pathlib import Path

from fusion_pairs import error_text, events, explain, inside, per_step, steps

PRODUCTS = ("aten::matmul", "aten::mm", "aten::addmm", "aten::linear")


def chain_us(trace_events):
    """The mean over the steps of what their ops take beside the products."""
    ops = sorted((e for e in trace_events if e.get("cat") == "cpu_op"), key=lambda e: e["ts"])
    windows = steps(trace_events)
    total, end = 0, float("-inf")
    for e in ops:
        if e["ts"] < end:
            continue  # called by the one before
        end = e["ts"] + e["dur"]
        if e["name"] not in PRODUCTS and any(inside(e, s) for s in windows):
            total += e["dur"]
    return total / len(windows)


def fused_us(trace_events):
    return per_step(trace_events,
                    lambda e: "_cpp_fused_" in e["name"] or e["name"] == "aten::copy_")


def predicted_us(epilogue, trace):
    e = explain(epilogue, trace)
    return sum(f["predicted_saving_us"] for f in e["fusions"]
               if f["kind"] == "pointwise-chain") / len(e["steps"])


def measure(args, stem):
    """Chain, fused, predicted and the prediction's error: the median of the rounds each."""
    rounds = []
    for eager in sorted(args.dir.glob(f"{stem}_eager.*.json.gz")):
        compiled = eager.with_name(eager.name.replace("_eager.", "_compile."))
        chain, fused = chain_us(events(eager)), fused_us(events(compiled))
        predicted = predicted_us(args.epilogue, eager)
        rounds.append((chain, fused, predicted, (predicted - (chain - fused)) / chain))
    return (statistics.median(r[i] for r in rounds) for i in range(4))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("epilogue")
    parser.add_argument("dir", type=Path)
    parser.add_argument("--max-median", type=float, help="percent; exit 1 above it")
    args = parser.parse_args()
    print(f"{'workload':<32}{'chain':>12}{'fused':>12}{'saved':>12}{'predicted':>12}{'error':>9}   "
          "(us per step)")
    errors = []
    for stem in sorted({p.name.partition("_eager.")[0] for p in args.dir.glob("*_eager.*")}):
        chain, fused, predicted, error = measure(args, stem)
        errors.append(error)
        print(f"{stem:<32}{chain:>12.1f}{fused:>12.1f}{chain - fused:>12.1f}{predicted:>12.1f}"
              f"{errors[-1] * 100:>8.0f}%", flush=True)
    if not errors:
        print(f"{args.dir}: no NAME_eager.ROUND.json.gz", file=sys.stderr)
        return 2
    print("\n" + error_text(errors, "the chain's time"))
    median_pct = statistics.median(abs(e) for e in errors) * 100
    return 1 if args.max_median is not None and median_pct > args.max_median else 0


if __name__ == "__main__":
    sys.exit(main())
