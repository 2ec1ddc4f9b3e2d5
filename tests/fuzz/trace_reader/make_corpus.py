#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/: one small document per form that the reader knows."""
import json
from pathlib import Path

OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10.125, "dur": 5,
      "args": {"External id": 1, "Input Dims": [[2, 3], [[4], []]], "Input type": ["float", "TensorList"],
               "Input Strides": [[3, 1], [[1], []]], "Concrete Inputs": ["", "1"], "Sequence number": 3,
               "Fwd thread id": 1, "Ev Idx": 2, "Call stack": "f.py(1): f;g"}}
KERNEL = {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": "12.5", "dur": 1e1,
          "args": {"device": 0, "stream": 7, "correlation": 9, "grid": [1, 2, 3], "block": [4, 5, 6],
                   "blocks per SM": 0.5, "occupancy": {"a": [1]}, "bytes": "17"}}
CALL = {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 1, "tid": 2, "ts": 11,
        "dur": 0.5, "args": {"cbid": 211, "correlation": 9, "stream": "0x1f", "kernel": "k"}}
MEMORY = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 2,
          "ts": 10, "args": {"Addr": 1 << 63, "Bytes": -4, "Device Type": 1, "Device Id": 0}}
FLOWS = [{"ph": p, "id": 1, "pid": 1, "tid": 2, "ts": t, "cat": "fwdbwd", "name": "fwdbwd"}
         for p, t in (("s", 10), ("f", 20))]
NAME = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "ts": 0, "args": {"name": "main"}}
SPAN = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans",
        "tid": "PyTorch Profiler", "ts": 1, "dur": 100, "args": {"Op count": 0}}
FRAME = {"ph": "X", "cat": "python_function", "name": "f.py(1): f", "pid": 1, "tid": 2, "ts": 9,
         "dur": 8, "args": {"Python id": 1, "Python parent id": None}}
OLD = {"ph": "X", "cat": "Operator", "name": "ProfilerStep#1", "pid": 1, "tid": "stream 7",
       "ts": 1606910596297023, "dur": 13, "args": {"Input dims": [[]], "external id": 2}}

SEEDS = {
    "all.json": json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}],
                            "record_shapes": 1, "baseTimeNanoseconds": 1000,
                            "traceEvents": [OP, KERNEL, CALL, MEMORY, *FLOWS, NAME, SPAN, FRAME],
                            "traceName": "t"}),
    "array.json": json.dumps([OLD, OP], indent=1),
    "quotes.json": '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a "b", c", "pid": 1, '
                   '"tid": 1, "ts": 1, "dur": inf, "args": {"x": N/A,}},]}',
    "two.json": "\ufeff" + json.dumps([OP]) + "\n" + json.dumps({"traceEvents": [OP]}),
}

if __name__ == "__main__":
    folder = Path(__file__).parent / "corpus"
    folder.mkdir(exist_ok=True)
    for name, text in SEEDS.items():
        (folder / name).write_text(text, encoding="utf-8")
