#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda_bench.py PROGRAM [--seconds 450]: MLPs on a CUDA device beside PyTorch.

Runs bench/cuda_bench (eager, compiled, fused; it checks every result first), then PyTorch in the same
visit where python3 has it: eager, torch.compile, reduce-overhead and, while time is left,
max-autotune. Prints a table: median microseconds, share of the measured matrix rate, ratio to
PyTorch eager. Exit 1 where a result disagreed.

On a GPU machine: make cudabench
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

# Enough calls per block that the wait at its end does not count.
BLOCK_SECONDS = 0.02
MODES = {"pytorch.eager": None, "pytorch.compile": "default",
         "pytorch.reduce-overhead": "reduce-overhead", "pytorch.max-autotune": "max-autotune"}
# What one compilation may take; a mode that has less left is left out.
NEEDED_SECONDS = {"pytorch.eager": 5, "pytorch.compile": 25, "pytorch.reduce-overhead": 25,
                  "pytorch.max-autotune": 75}


def key(row):
    return tuple(row[k] for k in ("rows", "dim", "hidden", "layers", "dtype"))


def run_own(program, seconds):
    done = subprocess.run([program, str(seconds)], stdout=subprocess.PIPE, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    ceilings = [line for line in lines if "ceiling" in line]
    return done.returncode, ceilings, [line for line in lines if "name" in line]


def make_model(torch, shape):
    rows, dim, hidden, layers, dtype = shape
    kind = {"bf16": torch.bfloat16, "f16": torch.float16}[dtype]
    options = {"device": "cuda", "dtype": kind}
    if layers == 0:
        gate = torch.nn.Linear(dim, hidden, bias=False, **options)
        up = torch.nn.Linear(dim, hidden, bias=False, **options)
        down = torch.nn.Linear(hidden, dim, bias=False, **options)

        def forward(x):
            return down(torch.nn.functional.gelu(gate(x), approximate="tanh") * up(x))
    else:
        sizes = [dim] + [hidden] * layers + [dim]
        linears = [torch.nn.Linear(a, b, bias=False, **options) for a, b in zip(sizes, sizes[1:])]

        def forward(x):
            for linear in linears[:-1]:
                x = torch.relu(linear(x))
            return linears[-1](x)
    return forward, torch.randn(rows, dim, **options)


def time_call(torch, call, seconds):
    def block(calls):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) / calls

    block(3)
    calls = max(1, int(BLOCK_SECONDS / max(block(3), 1e-6)))
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        times.append(block(calls) * 1e6)
    return statistics.median(times)


def run_pytorch(torch, shapes, seconds, deadline):
    rows = []
    for name, mode in MODES.items():
        for shape in shapes:
            if time.monotonic() + NEEDED_SECONDS[name] > deadline:
                print(f"left out for time: {name} {shape}", file=sys.stderr)
                continue
            torch._dynamo.reset()
            forward, x = make_model(torch, shape)
            call = forward if mode is None else torch.compile(forward, mode=mode)
            with torch.inference_mode():
                us = time_call(torch, lambda call=call, x=x: call(x), seconds)
            row = dict(zip(("rows", "dim", "hidden", "layers", "dtype"), shape))
            rows.append({**row, "name": name, "median_us": us})
    return rows


def print_table(ceilings, rows):
    rates = {c["dtype"]: c["value"] for c in ceilings if c["ceiling"] == "tflops"}
    for c in ceilings:
        print(f"ceiling: {c['value']} {c['ceiling']} {c.get('dtype', '')}".rstrip())
    shapes = list(dict.fromkeys(key(r) for r in rows))
    print("\n| shape | dtype | name | median us | TFLOP/s | of the ceiling | vs PyTorch eager |"
          "\n|---|---|---|---|---|---|---|")
    for shape in shapes:
        group = [r for r in rows if key(r) == shape]
        flops = next((r["tflops"] * r["median_us"] for r in group if r.get("tflops")), 0)
        eager = next((r["median_us"] for r in group if r["name"] == "pytorch.eager"), None)
        count, dim, hidden, layers, dtype = shape
        text = f"{count} x {dim} x {hidden}" + (f", {layers} layers" if layers else "")
        for r in group:
            if not r.get("agrees", True):
                print(f"| {text} | {dtype} | {r['name']} | DISAGREES: {r['rel_l2_error']} | | | |")
                continue
            rate = flops / r["median_us"]
            share = f"{100 * rate / rates[dtype]:.0f} %" if dtype in rates else ""
            ratio = f"{eager / r['median_us']:.2f}x" if eager else ""
            print(f"| {text} | {dtype} | {r['name']} | {r['median_us']:.1f} | {rate:.1f} | "
                  f"{share} | {ratio} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=450, help="all of it together")
    parser.add_argument("--each", type=float, default=0.3, help="seconds per measurement")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    status, ceilings, rows = run_own(options.program, options.each)
    if not rows:
        return status or 1
    try:
        import torch
        if torch.cuda.is_available():
            print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}", file=sys.stderr)
            rows += run_pytorch(torch, list(dict.fromkeys(map(key, rows))), options.each, deadline)
    except ImportError:
        print("PyTorch is not there: only epilogue is measured", file=sys.stderr)
    print_table(ceilings, rows)
    return status


if __name__ == "__main__":
    sys.exit(main())
