#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MLPs on a CUDA device beside PyTorch.

Runs bench/cuda_bench (eager, compiled, fused; it checks every result first), then PyTorch in the same
visit where this python has it: eager, torch.compile, reduce-overhead and, while time is left,
max-autotune; then bench/cuda_bench again. Prints a table: median microseconds of blocks of calls, their
quartiles (of both visits, so that a drift shows), share of the measured matrix rate, ratio to PyTorch
eager; below it what was not measured, and why. Exit 1 where a result disagreed, 2 where the
program did not run.

Example, on a GPU machine: make cudabench
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
# The time that one compilation may take; a mode that has less left is left out.
NEEDED_SECONDS = {"pytorch.eager": 5, "pytorch.compile": 25, "pytorch.reduce-overhead": 25,
                  "pytorch.max-autotune": 75}


def key(row):
    return tuple(row[k] for k in ("rows", "dim", "hidden", "layers", "dtype"))


def run_own(program, seconds, limit):
    """Exit code, ceilings and rows; what was printed before a time limit counts."""
    try:
        done = subprocess.run([program, str(seconds)], stdout=subprocess.PIPE, text=True,
                              check=False, timeout=limit)
        status, text = done.returncode, done.stdout
    except OSError as error:
        print(f"{program}: {error.strerror}; build it with -DEPILOGUE_CUDA=ON "
              "-DEPILOGUE_BENCH=ON", file=sys.stderr)
        return 2, [], []
    except subprocess.TimeoutExpired as expired:
        print(f"{program}: stopped after {limit:.0f} s", file=sys.stderr)
        status, text = 1, (expired.stdout or b"").decode()
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    ceilings = [line for line in lines if "ceiling" in line]
    return status, ceilings, [line for line in lines if "name" in line]


def joined(first, second):
    """Rows of two visits: medians' means, and the widest quartiles."""
    again = {(key(r), r["name"]): r for r in second}
    for row in first:
        other = again.get((key(row), row["name"]))
        if other is None or not (row["agrees"] and other["agrees"]):
            continue
        mean = (row["median_us"] + other["median_us"]) / 2
        row["tflops"] *= row["median_us"] / mean
        row["median_us"] = mean
        row["low_us"] = min(row["low_us"], other["low_us"])
        row["high_us"] = max(row["high_us"], other["high_us"])
    return first


def import_torch():
    """The module and "", or None and what is missing."""
    try:
        import torch
    except ImportError:
        return None, f"{sys.executable} has no PyTorch"
    if not torch.cuda.is_available():
        return None, f"PyTorch {torch.__version__} has no CUDA device"
    return torch, ""


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
    low, median, high = statistics.quantiles(times, n=4)
    return median, low, high


def run_pytorch(torch, shapes, seconds, deadline):
    """Rows, and what was left out."""
    rows, left_out = [], []
    for name, mode in MODES.items():
        for shape in shapes:
            if time.monotonic() + NEEDED_SECONDS[name] > deadline:
                left_out.append(f"{name}, {shape_text(shape)}: no time was left")
                continue
            torch._dynamo.reset()
            forward, x = make_model(torch, shape)
            call = forward if mode is None else torch.compile(forward, mode=mode)
            try:
                with torch.inference_mode():
                    us, low, high = time_call(torch, lambda call=call, x=x: call(x), seconds)
            except RuntimeError as error:  # memory, or a compiler that is not there
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                left_out.append(f"{name}, {shape_text(shape)}: {reason}")
                continue
            row = dict(zip(("rows", "dim", "hidden", "layers", "dtype"), shape))
            rows.append({**row, "name": name, "median_us": us, "low_us": low, "high_us": high})
    return rows, left_out


def shape_text(shape):
    rows, dim, hidden, layers, dtype = shape
    return f"{rows} x {dim} x {hidden}" + (f", {layers} layers" if layers else "") + f" {dtype}"


def print_table(ceilings, rows):
    rates = {c["dtype"]: c["value"] for c in ceilings if c["ceiling"] == "tflops"}
    for c in ceilings:
        print(f"ceiling: {c['value']} {c['ceiling']} {c.get('dtype', '')}".rstrip())
    shapes = list(dict.fromkeys(key(r) for r in rows))
    print("\n| shape | dtype | name | median us | quartiles | TFLOP/s | of the ceiling | vs PyTorch eager |"
          "\n|---|---|---|---|---|---|---|---|")
    for shape in shapes:
        group = [r for r in rows if key(r) == shape]
        flops = next((r["tflops"] * r["median_us"] for r in group if r.get("tflops")), 0)
        eager = next((r["median_us"] for r in group if r["name"] == "pytorch.eager"), None)
        text, dtype = shape_text(shape).rsplit(" ", 1)
        for r in group:
            if not r.get("agrees", True):
                print(f"| {text} | {dtype} | {r['name']} | DISAGREES: {r['rel_l2_error']} | | | | |")
                continue
            rate = flops / r["median_us"]
            share = f"{100 * rate / rates[dtype]:.0f} %" if dtype in rates else ""
            ratio = f"{eager / r['median_us']:.2f}x" if eager else ""
            print(f"| {text} | {dtype} | {r['name']} | {r['median_us']:.1f} | "
                  f"{r['low_us']:.1f} to {r['high_us']:.1f} | {rate:.1f} | {share} | {ratio} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="build/bench/cuda_bench")
    parser.add_argument("--seconds", type=float, default=450, help="all of it together [450]")
    parser.add_argument("--each", type=float, default=0.3, help="seconds per measurement [0.3]")
    options = parser.parse_args()
    started = time.monotonic()
    deadline = started + options.seconds
    status, ceilings, rows = run_own(options.program, options.each, options.seconds)
    if not rows:
        return status or 1
    torch, missing = import_torch()
    not_measured = [f"pytorch: {missing}"] if missing else []
    if torch is not None:
        print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}", file=sys.stderr)
        own_seconds = time.monotonic() - started
        peers, left_out = run_pytorch(torch, list(dict.fromkeys(map(key, rows))), options.each,
                                      deadline - own_seconds)
        torch.cuda.empty_cache()
        again, _, second = run_own(options.program, options.each, 2 * own_seconds)
        status = status or again
        rows = joined(rows, second) + peers
        not_measured += left_out
    print_table(ceilings, rows)
    for line in not_measured:
        print(f"not measured: {line}")
    return status


if __name__ == "__main__":
    sys.exit(main())
