#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `epilogue table` against PyTorch's own key_averages(): torch_averages.py EPILOGUE DIR

For each DIR/NAME.json.gz with a DIR/NAME.averages.json (every row of key_averages() in full
precision, see tests/data/torch/README.md) all rows must be there, no others, with equal counts,
bytes and FLOPs, and with times that are equal after rounding to 1 ns. Exit 1 with one line per
difference.
"""
import json
import subprocess
import sys
from pathlib import Path

# The names of a value in epilogue's JSON and in PyTorch's.
TIMES = {
    "cpu_total_us": "cpu_time_total",
    "self_cpu_us": "self_cpu_time_total",
    "device_total_us": "device_time_total",
    "self_device_us": "self_device_time_total",
}
EXACT = {"count": "count", "flops": "flops"}
BYTES = {
    "cpu_memory_bytes": "cpu_memory_usage",
    "self_cpu_memory_bytes": "self_cpu_memory_usage",
    "device_memory_bytes": "device_memory_usage",
    "self_device_memory_bytes": "self_device_memory_usage",
}


def nanoseconds(us):
    return round(us * 1000)


def compare(name, ours, theirs):
    mine = {(r["name"], r["device_type"] == "CPU", r["is_user_annotation"]): r for r in ours}
    torchs = {
        (r["key"], r["device_type"] == "DeviceType.CPU", r["is_user_annotation"]): r for r in theirs
    }
    for key in torchs.keys() - mine.keys():
        yield f"{name}: row {key} is missing"
    for key in mine.keys() - torchs.keys():
        yield f"{name}: row {key} is not in PyTorch's table"
    for key in mine.keys() & torchs.keys():
        a, b = mine[key], torchs[key]
        for field, theirs_field in TIMES.items():
            if nanoseconds(a[field]) != nanoseconds(b[theirs_field]):
                yield f"{name}: {key[0]} {field}: expected {b[theirs_field]}, got {a[field]}"
        for field, theirs_field in {**EXACT, **BYTES}.items():
            if field in a and a[field] != (b[theirs_field] or 0):
                yield f"{name}: {key[0]} {field}: expected {b[theirs_field]}, got {a[field]}"


def main():
    epilogue, folder = sys.argv[1], Path(sys.argv[2])
    rows = 0
    differences = []
    expectations = sorted(folder.glob("*.averages.json"))
    for expected in expectations:
        trace = expected.with_name(expected.name.replace(".averages.json", ".json.gz"))
        output = subprocess.run([epilogue, "table", trace, "--format", "json"],
                                check=True, capture_output=True).stdout
        ours = json.loads(output)["rows"]
        theirs = json.loads(expected.read_text(encoding="utf-8"))
        rows += len(theirs)
        differences += compare(trace.name, ours, theirs)
    for line in differences:
        print(line)
    print(f"{len(expectations)} traces, {rows} rows, {len(differences)} differences")
    return 1 if differences or not expectations else 0


if __name__ == "__main__":
    sys.exit(main())
