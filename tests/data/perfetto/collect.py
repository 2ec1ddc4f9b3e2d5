# SPDX-License-Identifier: Apache-2.0
"""Traces of Perfetto by PyTorch's own encoder, beside the JSON of the same run: python collect_pftrace.py FOLDER

mlp_train.json.gz and mlp_train.pftrace.gz are of one run on a CPU. mlp_train_made_gpu.pftrace.gz has kernels, copies and launch
calls beside its addmm ops, whose columns are made here: no GPU ran them. The encoder (torch.profiler._cuspy) asks CUPTI for
names alone, so that a stand-in will do. Needs torch 2.15 and numpy."""
import gzip
import json
import os
import sys
from unittest.mock import MagicMock

for module in ("cupti", "cupti.cupti"):
    sys.modules.setdefault(module, MagicMock(name=module))

import numpy as np
import torch
from torch.profiler._cuspy import trace as encoder


def record(path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    x = torch.randn(16, 32)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, schedule=schedule) as prof:
        for _ in range(4):
            with torch.profiler.record_function('a "quoted" range'):
                model(x).sum().backward()
            prof.step()
    prof.export_chrome_trace(path)
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def whole(values):
    return np.asarray(values, dtype=np.int64)


def made_columns(run, base):
    """A launch and a kernel of 4 us in each addmm, and two copies on another stream."""
    ops = [e for e in run["traceEvents"] if e.get("cat") == "cpu_op" and e["name"] == "aten::addmm"]
    n = len(ops)
    start = whole([base + round(e["ts"] * 1000) for e in ops])
    correlation = whole(range(1, n + 1))
    zeros = {name: whole([0] * n) for name in ("graph_node_id", "graph_id", "priority", "queued", "channel", "channel_type", "device_id")}
    kernel = {"start_ns": start + 5000, "end_ns": start + 9000, "stream_id": whole([7] * n), "context_id": whole([1] * n),
              "correlation_id": correlation, "name": np.asarray([f"ampere_sgemm_{32 << i % 2}x64_tn" for i in range(n)], dtype=object),
              "registers_per_thread": whole([122] * n), "dynamic_shared_memory": whole([4096] * n), **zeros}
    for column, size in zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), (8, 2, 1, 128, 1, 1)):
        kernel[column] = whole([size] * n)
    copy = {"start_ns": start[:2] + 9500, "end_ns": start[:2] + 9900, "stream_id": whole([9, 9]), "context_id": whole([1, 1]),
            "correlation_id": whole([101, 102]), "bytes": whole([4096, 64]), **{k: v[:2] for k, v in zeros.items()}}
    launches = {"start_ns": np.concatenate([start + 1000, start[:2] + 3500]), "end_ns": np.concatenate([start + 3000, start[:2] + 4000]),
                "cbid": whole([1] * n + [2] * 2), "correlation_id": np.concatenate([correlation, whole([101, 102])]),
                "process_id": whole([ops[0]["pid"]] * (n + 2)), "thread_id": whole([ops[0]["tid"]] * (n + 2))}
    ids = {"correlation_id": correlation, "external_id": whole([int(e["args"]["External id"]) for e in ops])}
    return {"cuda_runtime": launches, "kernel": kernel, "gpu_memcpy": copy, "external_correlation": ids}


def main(folder):
    os.makedirs(folder, exist_ok=True)
    os.chdir(folder)  # the trace keeps the path that it was written to
    path = "mlp_train.json"
    run = record(path)
    base = int(run["baseTimeNanoseconds"])
    with open(path, "rb") as plain, gzip.GzipFile(path + ".gz", "wb", 9, mtime=0) as packed:
        packed.write(plain.read())
    os.remove(path)
    encoder._runtime_cbid_name = {1: "cudaLaunchKernel", 2: "cudaMemcpyAsync"}.get
    encoder._runtime_is_registered = lambda name: True
    encoder._runtime_is_launch = lambda name: True
    encoder._gpu_user_annotation_events = lambda *a, **kw: []
    encoder._window_to_pftrace(run, {"columns": {}}, base, "mlp_train.pftrace.gz", 9)
    encoder._window_to_pftrace(run, {"columns": made_columns(run, base)}, base, "mlp_train_made_gpu.pftrace.gz", 9)


if __name__ == "__main__":
    main(sys.argv[1])
