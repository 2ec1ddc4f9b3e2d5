#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `epilogue explain` against what is known of traces of a real GPU: device_truth.py EPILOGUE DIR

Each workload is known, so the verdict and the kernels of a step were written down before the traces were
read. Exit 1 with one line per difference.
"""
import json
import subprocess
import sys
from pathlib import Path

# Verdict, kernels of a step (None: not known), matrix products among them. A product that the library
# cuts along k may bring a kernel that adds the parts up.
COMPUTE, OVERHEAD = "compute-bound", "overhead-bound"
EXPECTED = {
    "linear_1024_32_64_compile": (OVERHEAD, 1, 1),
    "linear_1024_32_64_eager": (OVERHEAD, 1, 1),
    "matmul_add_4096_compile": (COMPUTE, None, 1),
    "matmul_add_4096_eager": (COMPUTE, 2, 1),
    "matmul_add_64_compile": (OVERHEAD, None, 1),
    "matmul_add_64_eager": (OVERHEAD, 2, 1),
    "mlp_geglu_compile": (COMPUTE, 4, 3),
    "mlp_geglu_eager": (COMPUTE, 5, 3),
    "mlp_geglu_rich_compile": (COMPUTE, 4, 3),
    "mlp_graph_replay": (OVERHEAD, None, 3),
    # Without a warm-up the profiler's buffers take longer than the work: no fault of the program.
    "mlp_no_warmup": (COMPUTE, None, None),
    "mlp_swiglu_f32_eager": (COMPUTE, 5, None),  # one product of the step before ends in the trace
    "mlp_tiny_compile": (OVERHEAD, 4, 3),
    "mlp_tiny_eager": (OVERHEAD, 5, 3),
    "own_mlp_geglu_rich_compile": (COMPUTE, 2, None),  # gate, up, gelu and the product: one kernel
    "own_mlp_geglu_rich_eager": (COMPUTE, 5, 3),
    "train_f32_compile": (OVERHEAD, None, None),
    "train_f32_eager": (OVERHEAD, None, None),
}


def run(epilogue, *arguments):
    done = subprocess.run([epilogue, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def differences(epilogue, trace, verdict, kernels, products):
    explained = run(epilogue, "explain", trace, "--format", "json")
    if explained["verdict"] != verdict:
        yield f"expected {verdict}, got {explained['verdict']}"
    steps = explained["steps"]
    if kernels is not None and [s["kernels"] for s in steps] != [kernels] * 3:
        yield f"expected {kernels} kernels in each of 3 steps, got {[s['kernels'] for s in steps]}"
    found = sum(g["time"]["count"] for g in explained["gemms"])
    if products is not None and found != 3 * products:
        yield f"expected {3 * products} matrix products, got {found}"


def main():
    epilogue, folder = sys.argv[1], Path(sys.argv[2])
    wrong = 0
    for name, expected in EXPECTED.items():
        for line in differences(epilogue, folder / f"{name}.json.gz", *expected):
            print(f"{name}: {line}")
            wrong += 1
    memory = run(epilogue, "memory", folder / "train_memory.pickle", "--format", "json")
    peak = {h["name"]: h["bytes"] for h in memory["devices"][0]["at_peak_by_category"]}
    # cuBLAS's workspace of backward's thread (32 MiB on Hopper) and cuBLASLt's (1 MiB).
    if peak.get("workspaces") != 33 << 20:
        print(f"train_memory: expected 33 MiB of workspaces, got {peak}")
        wrong += 1
    print(f"{len(EXPECTED)} traces, 1 memory snapshot, {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
