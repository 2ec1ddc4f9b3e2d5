#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Predict, then prove: what `epilogue explain` says that compile() would save, and what it saves.

  bench/predict_fusion.py EPILOGUE [--out DIR] [--repeat 2] [--threads N] [--only TEXT]
                          [--max-median PCT]

Each workload is profiled eagerly (with shapes, and with the machine's rates, measured once by
`epilogue info --measure`) and compiled, in turns. Measured: the time of a step's range, eager less
compiled, without what recording cost (the trace says it); of all repeats the fastest step of each,
since neighbours on the machine only ever slow it down. Predicted: the row-chain findings on that
eager step; where there are none, the sum of the others. The error is predicted less measured,
relative to the eager time.

Writes machine.json, predict_fusion.md and predict_fusion.svg; exit 1 where the median of the errors'
sizes is above --max-median.
"""
import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from fusion_pairs import (document, error_text, inside, markdown_table, run_json, scatter_svg,
                          steps)

BAND_PCT = 15
MANY, SOME, FEW = 50, 10, 3  # active steps of a workload of micro-, of milliseconds, of more


def mlp(rows, dim, hidden, activation, *more, active=SOME):
    flags = ("mlp", "--batch", "1", "--seq", str(rows), "--dim", str(dim), "--hidden", str(hidden),
             "--activation", activation, *more)
    words = " ".join(m.lstrip("-") for m in more)
    return f"mlp {activation} {rows}, {dim}, {hidden} {words}".strip(), flags, active


def linear(rows, k, n, active=MANY):
    return (f"linear {rows}, {k}, {n}",
            ("linear", "--batch", str(rows), "--in-dim", str(k), "--out-dim", str(n)), active)


def matmul_add(size, active=MANY):
    return f"matmul-add {size}", ("matmul-add", "--size", str(size)), active


CASES = (
    mlp(1, 768, 3072, "geglu", active=MANY),
    mlp(16, 64, 256, "geglu", active=MANY),
    mlp(16, 768, 3072, "swiglu"),
    mlp(64, 64, 256, "geglu", active=MANY),
    mlp(256, 768, 3072, "geglu"),
    mlp(512, 256, 1024, "swiglu", "--norm", "rms", "--residual"),
    mlp(1024, 256, 1024, "gelu", "--bias", "--norm", "layer", "--residual"),
    mlp(2048, 768, 3072, "geglu", "--norm", "rms", "--residual", active=FEW),
    mlp(4096, 128, 512, "relu"),
    mlp(8192, 64, 64, "relu", "--layers", "2", "--bias"),
    mlp(8192, 64, 64, "relu", "--layers", "4", "--bias"),
    mlp(1024, 512, 512, "gelu", "--layers", "3"),
    mlp(8192, 768, 3072, "geglu", active=FEW),
    linear(1024, 32, 64),
    linear(1, 1024, 1024),
    linear(512, 768, 768),
    matmul_add(64),
    matmul_add(256),
    matmul_add(1024, active=SOME),
)
DTYPES = ("f32", "bf16")


def threads(args):
    return ["--threads", str(args.threads)] if args.threads else []


def profile(args, flags, dtype, mode, active):
    out = args.out / "traces"
    command = [args.epilogue, "profile", *flags, "--dtype", dtype, "--mode", mode, "--active",
               str(active), "--machine", args.out / "machine.json", "--out", out, "--format",
               "json", *threads(args)]
    if mode == "eager":
        command.append("--record-shapes")
    return run_json(*command)["trace"]


def fastest_step(trace):
    """The number and the time of the fastest step's range, without the recorder's share."""
    data = document(trace)
    spans = [e for e in data["traceEvents"] if e.get("ph") == "X"]
    ranges = [e for e in spans if e.get("cat") == "user_annotation"
              and not e["name"].startswith("ProfilerStep#")]
    measured = steps(spans)
    # By the costs measured at start: the sum that the recorder timed itself holds interruptions.
    cost = data["epilogue_recorder"]
    overhead = sum(cost[f"ns_per_{kind}"] * cost[f"{kind}s"]
                   for kind in ("op", "kernel", "range")) * 1e-3 / len(measured)
    dur, step = min((e["dur"], step["name"]) for step in measured for e in ranges
                    if inside(e, step))
    return int(step.partition("#")[2]), dur - overhead


def predicted_us(args, trace, step):
    fusions = run_json(args.epilogue, "explain", trace, "--step", str(step), "--format",
                       "json")["fusions"]
    chains = [f for f in fusions if f["kind"] == "row-chain"]
    return sum(f["predicted_saving_us"] for f in chains or fusions)


def measure(args, flags, dtype, active):
    """Eager time, predicted and measured saving, in microseconds per step."""
    best_eager = best_compiled = predicted = None
    for _ in range(args.repeat):
        trace = profile(args, flags, dtype, "eager", active)
        step, eager = fastest_step(trace)
        if best_eager is None or eager < best_eager:
            best_eager, predicted = eager, predicted_us(args, trace, step)
        compiled = fastest_step(profile(args, flags, dtype, "compile", active))[1]
        best_compiled = compiled if best_compiled is None else min(best_compiled, compiled)
    return best_eager, predicted, best_eager - best_compiled


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("epilogue")
    parser.add_argument("--out", type=Path, default=Path("predict-fusion"))
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--threads", type=int, help="all processors")
    parser.add_argument("--only", default="", help="workloads whose name holds this")
    parser.add_argument("--max-median", type=float, help="percent; exit 1 above it")
    return parser.parse_args()


def main():
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    machine = subprocess.run([args.epilogue, "info", "--measure", "--format", "json",
                              *threads(args)], check=True, capture_output=True).stdout
    (args.out / "machine.json").write_bytes(machine)
    rows, points, errors = [], [], []
    for name, flags, active in CASES:
        for dtype in DTYPES:
            if args.only not in f"{name} {dtype}":
                continue
            eager, predicted, saved = measure(args, flags, dtype, active)
            error = (predicted - saved) / eager
            errors.append(error)
            rows.append((f"{name} {dtype}", f"{eager:.1f}", f"{predicted:.1f}", f"{saved:.1f}",
                         f"{error * 100:+.0f} %"))
            points.append((saved / eager * 100, predicted / eager * 100, dtype, f"{name} {dtype}"))
            print(f"{rows[-1][0]:<56}" + "".join(f"{cell:>12}" for cell in rows[-1][1:]),
                  flush=True)
    if not errors:
        print("no workload has that in its name", file=sys.stderr)
        return 2
    summary = error_text(errors, "the eager time")
    head = ("workload", "eager us", "predicted us", "measured us", "error")
    (args.out / "predict_fusion.md").write_text(markdown_table(head, rows) + "\n" + summary + "\n")
    (args.out / "predict_fusion.svg").write_text(
        scatter_svg("Savings of compile(): predicted from the eager trace, and measured", points,
                    BAND_PCT))
    print("\n" + summary)
    median_pct = statistics.median(abs(e) for e in errors) * 100
    return 1 if args.max_median is not None and median_pct > args.max_median else 0


if __name__ == "__main__":
    sys.exit(main())
