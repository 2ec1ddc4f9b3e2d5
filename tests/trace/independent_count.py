#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what matters in traces with nothing but Python's json and exact decimals.

  independent_count.py COUNTER TRACE...

COUNTER is a program that prints, for a trace, the lines "name value" of the library's numbers. Exit 1
with one line per disagreement.
"""
import gzip
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

WORK = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
KERNELS = {"kernel", "Kernel"}
CALLS = {"cuda_runtime", "cuda_driver", "Runtime"}
OPS = {"cpu_op", "Operator"}
ANNOTATIONS = {"user_annotation", "gpu_user_annotation"}


def load(path):
    data = Path(path).read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    document = json.loads(text, parse_float=Decimal)
    return document["traceEvents"] if isinstance(document, dict) else document


def ns(value):
    return int((Decimal(value) * 1000).to_integral_value())


def union(intervals):
    total, reach = 0, None
    for begin, end in sorted(intervals):
        if reach is None or begin > reach:
            total, reach = total + end - begin, end
        elif end > reach:
            total, reach = total + end - reach, end
    return total


def margin(event):
    """Kineto widens annotations on the device by 1 ns on both sides."""
    is_wide = event["cat"] == "gpu_user_annotation" and "." in str(event["ts"])
    return 1 if is_wide and ns(event["dur"]) >= 2 else 0


def count(events):
    spans = [e for e in events if e.get("ph") == "X"]
    kernels = [e for e in spans if e.get("cat") in KERNELS]
    launched = {e["args"]["correlation"] for e in spans
                if e.get("cat") in CALLS and "correlation" in e.get("args", {})}
    unlaunched = [e for e in kernels if e.get("args", {}).get("correlation", 0) not in launched]
    steps = [e for e in spans if e["name"].startswith("ProfilerStep#")
             and e.get("cat") in OPS | {"user_annotation"}]
    work = [(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in spans if e.get("cat") in WORK]
    inside = [e for e in spans if e.get("cat") in WORK | CALLS | OPS | ANNOTATIONS
              | {"cuda_sync", "cuda_event", "collective_comm"}]
    begin = min((ns(e["ts"]) + margin(e) for e in inside), default=0)
    end = max((ns(e["ts"]) + ns(e["dur"]) - margin(e) for e in inside), default=0)
    return {
        "kernels": len(kernels),
        "distinct_kernels": len({e["name"] for e in kernels}),
        "kernels_without_launch": len(unlaunched),
        "steps": len(steps),
        # A trace without device work gives no busy time.
        "gpu_busy_us": Decimal(union(work)) / 1000 if work else None,
        "span_us": Decimal(end - begin) / 1000,
    }


def main():
    counter, *paths = sys.argv[1:]
    wrong = 0
    for path in paths:
        out = subprocess.run([counter, path], check=True, capture_output=True, text=True).stdout
        found = {name: Decimal(value) for name, value in map(str.split, out.splitlines())}
        for name, expected in count(load(path)).items():
            if found.get(name) != expected:
                print(f"{path}: {name}: counted {expected}, the library says {found.get(name)}")
                wrong += 1
    print(f"{len(paths)} traces, {wrong} disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
