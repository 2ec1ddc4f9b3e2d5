# SPDX-License-Identifier: Apache-2.0
"""Made traces of a small model, run eagerly and as replays of a CUDA graph, in Kineto's format. No GPU ran them."""
import json

LAYERS = 4


def kernels(scale=1.0):
    """The kernels of one run: (op, op around it or "", kernel, length in microseconds)."""
    for layer in range(LAYERS):
        yield "aten::addmm", "aten::linear", "cast_kernel", 2.0
        yield "aten::addmm", "aten::linear", f"ampere_sgemm_{32 << layer}x64_tn", 30.0 * scale
        yield "aten::gelu", "", "gelu_kernel", 5.0


def event(cat, name, pid, tid, ts, dur, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def work(name, ts, dur, correlation):
    return event("kernel", name, 0, 7, ts, dur, correlation=correlation, device=0, stream=7, grid=[8, 1, 1], block=[128, 1, 1])


def eager():
    events, id = [], 0
    for i, (op, around, kernel, us) in enumerate(kernels()):
        at, id = 100.0 * i, id + 1
        if around and kernel == "cast_kernel":  # one call with two kernels
            events.append(event("cpu_op", around, 1, 1, at, 160, **{"External id": 1000 + id}))
            events.append(event("cpu_op", op, 1, 1, at + 1, 150,
                                **{"External id": id, "Input Dims": [[8], [4, 16], [16, 8]], "Input type": ["float"] * 3}))
        elif not around:
            events.append(event("cpu_op", op, 1, 1, at, 20, **{"External id": id}))
        events.append(event("cuda_runtime", "cudaLaunchKernel", 1, 1, at + 2, 3, correlation=id))
        events.append(work(kernel, at + 40, us, id))
    return {"deviceProperties": [{"id": 0, "name": "NVIDIA A100"}], "traceEvents": events}


def replays(count, scale=1.0):
    events = []
    for replay in range(count):
        at = 1000.0 * replay
        events.append(event("cuda_runtime", "cudaGraphLaunch", 1, 1, at, 5, correlation=500 + replay))
        for _, _, kernel, us in kernels(scale):
            events.append(work(kernel, at + 10, us, 500 + replay))
            at += us
    return {"deviceProperties": [{"id": 0, "name": "NVIDIA A100"}], "traceEvents": events}


def write(path, trace):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(trace, f)
    return str(path)
