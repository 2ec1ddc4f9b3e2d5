#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recomputes torch.profiler's key averages from a written trace and compares them with a table.

Usage: independent_table.py TRACE.json[.gz] TABLE.json
TABLE.json is what `epilogue table --format json` prints (or any object with its "rows").
Written from the description of PyTorch's semantics, on purpose without a look at the C++, and with
the standard library only. Exit 0: equal (times to 1 ns); 1: not, with the differences; 2: misuse.
"""

import bisect
import gzip
import itertools
import json
import sys
from decimal import Decimal

DROPPED = {
    "[memory]", "[OutOfMemory]", "profiler::_record_function_enter",
    "profiler::_record_function_enter_new", "profiler::_record_function_exit", "aten::is_leaf",
    "aten::output_nr", "aten::_version",
}
OPS = {"cpu_op", "user_annotation"}
HOST = OPS | {"cuda_runtime", "cuda_driver", "overhead"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation"}
CPU_MEMORY = {0, 2, 5}  # CPU, MKLDNN, IDEEP
DEVICE_MEMORY = {1, 6, 20}  # CUDA, HIP, PrivateUse1


def nanoseconds(us):
    ns = Decimal(us) * 1000
    if ns != int(ns):
        sys.exit(f"error: {us} us is no whole number of nanoseconds")
    return int(ns)


class Node:
    def __init__(self, event, start, end, lane):
        self.event = event
        self.name = event["name"]
        self.category = event.get("cat", "")
        self.args = event.get("args", {})
        self.start, self.end, self.lane = start, end, lane
        self.is_device = self.category in DEVICE
        self.is_annotation = self.category in ("user_annotation", "gpu_user_annotation")
        self.is_async = bool(self.args.get("Async", False))
        self.parent, self.children, self.kernels = None, [], []
        self.cpu_memory = self.device_memory = 0

    # The metrics, as sums over children.
    def cpu_total(self):
        return 0 if self.is_device else self.end - self.start

    def self_cpu(self):
        if self.is_device or self.is_async:
            return 0
        return self.cpu_total() - sum(c.cpu_total() for c in self.children)

    def device_total(self):
        if self.is_async:
            return 0
        if self.is_device:
            return self.end - self.start
        return sum(self.kernels) + sum(c.device_total() for c in self.children)

    def self_device(self):
        if self.is_async or self.is_device:
            return self.device_total()
        return sum(self.kernels)

    def self_memory(self, which):
        if self.is_async or self.is_device:
            return 0
        return getattr(self, which) - sum(getattr(c, which) for c in self.children)

    def flops(self):
        dims = self.args.get("Input Dims")
        if dims is None:
            return 0
        first = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}.get(self.name)
        if first is not None:
            if len(dims) < first + 2 or not dims[first] or dims[first][-1] == 0:
                return 0
            a, b = dims[first], dims[first + 1]
            batch = a[0] if len(a) == 3 else 1
            return 2 * (product(a) // a[-1] // batch) * product(b) if batch else 0
        if self.name in ("aten::mul", "aten::add") and dims:
            return product(dims[0])
        return 0


def product(sizes):
    n = 1
    for size in sizes:
        n *= size
    return n


def read(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return json.load(file, parse_float=str)


def nodes_of(trace):
    nodes = []
    for event in trace["traceEvents"]:
        category = event.get("cat", "")
        if event["ph"] != "X" or category not in HOST | DEVICE or event["name"] in DROPPED:
            continue
        start, length = nanoseconds(event["ts"]), nanoseconds(event["dur"])
        if category == "gpu_user_annotation":  # written with a margin of 1 ns on both sides
            start, length = start + 1, length - 2
        nodes.append(Node(event, start, start + length, (event["pid"], event["tid"])))
    return nodes


def link(nodes):
    by_id = {n.args["External id"]: n for n in nodes if n.category in OPS and "External id" in n.args}
    for node in nodes:
        op = by_id.get(node.args.get("External id"))
        if node.category in OPS or node.category in ("gpu_user_annotation", "cuda_sync") or op is None or op.is_async:
            continue
        if node.is_device:
            op.kernels.append(node.end - node.start)
        else:
            node.lane = op.lane


def count_memory(trace, nodes):
    """Gives each host event the bytes of its interval; returns nodes for what no event covers."""
    records = []
    for event in trace["traceEvents"]:
        if event.get("cat") == "cpu_instant_event" and event["name"] in ("[memory]", "[OutOfMemory]"):
            records.append((nanoseconds(event["ts"]), event))
    normal = sorted((r for r in records if r[1]["name"] == "[memory]"), key=lambda r: r[0])
    times = [time for time, _ in normal]

    def running(kinds):
        values = (e["args"]["Bytes"] if e["args"]["Device Type"] in kinds else 0 for _, e in normal)
        return [0] + list(itertools.accumulate(values))

    cpu, device = running(CPU_MEMORY), running(DEVICE_MEMORY)
    covered = [0] * (len(normal) + 1)
    for node in nodes:
        if node.is_device:
            continue
        first, last = bisect.bisect_left(times, node.start), bisect.bisect_right(times, node.end)
        node.cpu_memory = cpu[last] - cpu[first]
        node.device_memory = device[last] - device[first]
        covered[first] += 1
        covered[last] -= 1
    depth = list(itertools.accumulate(covered))
    rest = [r for i, r in enumerate(normal) if depth[i] == 0]
    rest += [r for r in records if r[1]["name"] == "[OutOfMemory]"]
    extra = []
    for time, event in rest:
        node = Node(event, time, time, (event["pid"], event["tid"]))
        kind, size = event["args"]["Device Type"], event["args"]["Bytes"]
        node.cpu_memory = size if kind in CPU_MEMORY else 0
        node.device_memory = size if kind in DEVICE_MEMORY else 0
        extra.append(node)
    return extra


def build_tree(nodes):
    open_nodes = {}
    for node in nodes:
        if node.is_device or node.is_async:
            continue
        stack = open_nodes.setdefault(node.lane, [])
        while stack and (node.start >= stack[-1].end or node.end > stack[-1].end):
            stack.pop()
        if stack:
            node.parent = stack[-1]
            stack[-1].children.append(node)
        stack.append(node)


def collapse(nodes):
    while True:
        gone = set()
        for node in nodes:
            parent = node.parent
            if parent is None or parent.name != node.name or len(parent.children) != 1:
                continue
            parent.children = node.children
            parent.kernels = parent.kernels + node.kernels
            for child in node.children:
                child.parent = parent
            gone.add(id(node))
        if not gone:
            return nodes
        nodes = [n for n in nodes if id(n) not in gone]


def key_averages(trace, by_shape):
    nodes = nodes_of(trace)
    link(nodes)
    nodes += count_memory(trace, nodes)
    nodes.sort(key=lambda n: (n.start, -n.end))
    build_tree(nodes)
    rows = {}
    with_flops = trace.get("with_flops") == 1
    for node in collapse(nodes):
        name = "ProfilerStep*" if node.name.startswith("ProfilerStep#") else node.name
        key = (name, node.is_device, node.is_annotation)
        if by_shape:
            # A tensor list shows as [].
            dims = [[] if d and isinstance(d[0], list) else d for d in node.args.get("Input Dims", [])]
            key += (str(dims),)
        row = rows.setdefault(key, dict.fromkeys(FIELDS, 0))
        row["count"] += 1
        row["self_cpu_us"] += node.self_cpu()
        row["cpu_total_us"] += node.cpu_total()
        row["self_device_us"] += node.self_device()
        row["device_total_us"] += node.device_total()
        row["cpu_memory_bytes"] += node.cpu_memory if not node.is_device else 0
        row["self_cpu_memory_bytes"] += node.self_memory("cpu_memory")
        row["device_memory_bytes"] += node.device_memory if not node.is_device else 0
        row["self_device_memory_bytes"] += node.self_memory("device_memory")
        row["flops"] += node.flops() if with_flops else 0
    return rows


FIELDS = ["count", "self_cpu_us", "cpu_total_us", "self_device_us", "device_total_us",
          "cpu_memory_bytes", "self_cpu_memory_bytes", "device_memory_bytes",
          "self_device_memory_bytes", "flops"]


def table_value(row, field):
    return round(Decimal(row[field]) * 1000) if field.endswith("_us") else int(row[field])


def compare(expected, table, by_shape):
    differences, seen = [], set()
    for row in table["rows"]:
        key = (row["name"], row["device_type"] != "CPU", row["is_user_annotation"])
        if by_shape:
            key += (row["input_shapes"],)
        if key in seen:
            differences.append(f"{key}: twice in the table")
        seen.add(key)
        if key not in expected:
            differences.append(f"{key}: not in the trace")
            continue
        for field in FIELDS:
            if field not in row:
                continue  # memory columns exist only with profile_memory
            found, want = table_value(row, field), expected[key][field]
            if abs(found - want) > (1 if field.endswith("_us") else 0):
                unit = " ns" if field.endswith("_us") else ""
                differences.append(f"{key} {field}: trace {want}{unit}, table {found}{unit}")
    differences += [f"{key}: not in the table" for key in expected if key not in seen]

    totals = {
        "self_cpu_total_us": sum(r["self_cpu_us"] for r in expected.values()),
        "self_device_total_us": sum(r["self_device_us"] for k, r in expected.items() if k[1] and not k[2]),
    }
    for field, want in totals.items():
        if field in table and abs(table_value(table, field) - want) > 1:
            differences.append(f"{field}: trace {want} ns, table {table_value(table, field)} ns")
    return differences


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    trace, table = read(sys.argv[1]), read(sys.argv[2])
    sys.setrecursionlimit(100000)
    by_shape = any("input_shapes" in row for row in table["rows"])
    expected = key_averages(trace, by_shape)
    differences = compare(expected, table, by_shape)
    for difference in differences:
        print(difference)
    if not differences:
        print(f"{len(expected)} rows agree")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
