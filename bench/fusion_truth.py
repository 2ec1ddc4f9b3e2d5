#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fusion savings: predicted from eager traces, measured in compiled ones.

  bench/fusion_truth.py EPILOGUE DIR [--markdown]

DIR holds pairs NAME_eager.json.gz and NAME_compile.json.gz of PyTorch on a CPU
(bench/collect_fusion_pairs.py makes thirty). Inductor fuses the pointwise chains and leaves the matrix
products as they are. Measured saving = time of the chains' ops in the eager trace, less what the
compiled graph takes beside its products; predicted = the pointwise-chain findings of
`epilogue explain`. Both per step; medians over the steps, for a loaded machine's sake.
"""
import argparse
import sys
from pathlib import Path

from fusion_pairs import error_text, events, explain, per_step, steps

GRAPH = "## Call CompiledFxGraph"


def measure(eager, compiled, chain_ops):
    chain = per_step(eager, lambda e: e["name"] in chain_ops)
    graph = per_step(compiled, lambda e: e["name"].startswith(GRAPH))
    products = per_step(compiled, lambda e: e["name"] in ("aten::mm", "aten::addmm"))
    return chain, graph - products


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("epilogue")
    parser.add_argument("dir", type=Path)
    args = parser.parse_args()
    print(f"{'workload':<28}{'chain':>12}{'fused':>12}{'saved':>12}{'predicted':>12}{'error':>9}   "
          "(us per step)")
    errors = []
    for eager_path in sorted(args.dir.glob("*_eager.json.gz")):
        compiled_path = eager_path.with_name(eager_path.name.replace("_eager", "_compile"))
        if not compiled_path.exists():
            continue
        e = explain(args.epilogue, eager_path)
        chains = [f for f in e["fusions"] if f["kind"] == "pointwise-chain"]
        count = len(e["steps"])
        eager, compiled = events(eager_path), events(compiled_path)
        graphs = sum(e["name"].startswith(GRAPH) for e in compiled)
        if not chains or not count or graphs != len(steps(compiled)):
            continue  # nothing predicted, or a backward graph beside the forward one
        ops = {op for f in chains for op in f["ops"]}
        chain, fused = measure(eager, compiled, ops)
        predicted = sum(f["predicted_saving_us"] for f in chains) / count
        saved = chain - fused
        error = (predicted - saved) / chain
        errors.append(error)
        print(f"{eager_path.name.removesuffix('_eager.json.gz'):<28}{chain:>12.1f}{fused:>12.1f}"
              f"{saved:>12.1f}{predicted:>12.1f}{error * 100:>8.0f}%")
    if not errors:
        print("no pairs with a pointwise chain found")
        return 1
    print("\n" + error_text(errors, "the chain's time"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
