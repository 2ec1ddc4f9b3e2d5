#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same questions about the same traces, asked of `epilogue explain` and of its peers.

Each peer runs in a process of its own; its seconds are those of the process, imports and reading
included, the least of `--runs` runs. A peer that does not run is named with the reason. Perfetto's
package downloads the program trace_processor when it first runs. TraceLens is not run: its own
published tables are compared in tests/explain/products.

  pip install HolisticTraceAnalysis 'pandas<3' perfetto
  bench/explain_peers.py build/epilogue traces/*.json.gz
"""
import argparse
import json
import os
import subprocess
import sys
import time

HTA = """
import gzip, json, os, shutil, sys, tempfile
import hta
from hta.trace_analysis import TraceAnalysis
with tempfile.TemporaryDirectory() as folder:
    name = os.path.basename(sys.argv[1])
    opener = gzip.open if name.endswith(".gz") else open
    with opener(sys.argv[1], "rt", encoding="utf-8") as f:
        trace = json.load(f)
    if isinstance(trace, list):
        trace = {"traceEvents": trace}
    trace.setdefault("distributedInfo", {"rank": 0, "world_size": 1})  # HTA wants a rank
    path = os.path.join(folder, "rank0.json.gz")
    with gzip.open(path, "wt", compresslevel=1) as f:
        json.dump(trace, f)
    rank = trace["distributedInfo"].get("rank", 0)
    analysis = TraceAnalysis(trace_files={rank: path}, trace_dir=folder)
    said = {}
    def ask(question, answer):
        try:
            said[question] = answer()
        except Exception as error:
            said[question] = f"fails: {type(error).__name__}: {str(error)[:60]}"
    def temporal():
        row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        return "idle %.1f %%, compute %.1f %%, other %.1f %%" % (
            row["idle_time_pctg"], row["compute_time_pctg"], row["non_compute_time_pctg"])
    def kernels():
        kinds, each = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1)
        return ", ".join("%s %.1f ms" % (k, s / 1e3) for k, s in zip(kinds["kernel_type"], kinds["sum"]))
    def overlap():
        frame = analysis.get_comm_comp_overlap(visualize=False)
        share = frame["comp_comm_overlap_pctg"].iloc[0]
        return "none" if share != share else "%.1f %% of communication overlaps" % share
    def path():
        steps = {e["name"] for e in trace["traceEvents"] if str(e.get("name", "")).startswith("ProfilerStep#")}
        if not steps:
            return "needs an annotation; the trace has no steps"
        graph, ok = analysis.critical_path_analysis(rank=rank, annotation="ProfilerStep", instance_id=0)
        if not ok:
            return "no path"
        table = graph.get_critical_path_breakdown()
        parts = table.groupby("type")["duration"].sum().sort_values(ascending=False)
        return "first step, " + ", ".join("%s %.2f ms" % (k, v / 1e3) for k, v in parts.items())
    for question, answer in [("idle", temporal), ("kernels", kernels), ("exposed communication", overlap),
                             ("critical path", path)]:
        ask(question, answer)
sys.stderr.flush()
print("SAID" + json.dumps(said))
"""

PERFETTO = """
import json, sys
from perfetto.trace_processor import TraceProcessor
with TraceProcessor(trace=sys.argv[1]) as processor:
    rows = list(processor.query("select category, count(*) n, sum(dur) / 1e6 ms from slice "
                                "where category in ('kernel', 'gpu_memcpy', 'gpu_memset') "
                                "group by category order by ms desc"))
print("SAID" + json.dumps({"kernels": ", ".join(f"{r.category} {r.n} in {r.ms:.1f} ms" for r in rows) or "none"}))
"""


def of_epilogue(text):
    explained = json.loads(text)
    said = {"idle": "no device", "kernels": "none"}
    if explained["gpu_busy_pct"] is not None:
        causes = {}
        for device in explained["idle"]:
            for cause, us in device["causes"].items():
                causes[cause] = causes.get(cause, 0) + us
        most = max(causes, key=causes.get) if causes else None
        said["idle"] = f"idle {100 - explained['gpu_busy_pct']:.1f} %" + (
            f", mostly {most.removesuffix('_us')}" if most else "")
    said["kernels"] = "of the wall time: " + ", ".join(f"{part} {pct:.1f} %" for part, pct in explained["bound_pct"].items() if pct)
    kinds = explained["collectives"]["kinds"]
    exposed = sum(kind["exposed_us"] for kind in kinds)
    total = sum(kind["total_us"] for kind in kinds)
    said["exposed communication"] = f"{exposed / 1e3:.1f} of {total / 1e3:.1f} ms" if total else "none"
    path = explained["critical_path"]
    if path:
        kinds = sorted(path["kinds"].items(), key=lambda kind: -kind[1])
        said["critical path"] = "whole trace, " + ", ".join(
            f"{name.removesuffix('_us')} {us / 1e3:.2f} ms" for name, us in kinds[:4] if us)
    rated = [row for row in explained["gemms"] if row.get("tflops") is not None]
    said["GEMM rooflines"] = f"{len(explained['gemms'])} shapes" + (
        f", best {max(row['tflops'] for row in rated):.1f} TFLOP/s" if rated else "")
    return said


def run(command, runs, limit_s):
    """The output of one run and the least seconds of all, or why there are none."""
    least, output = None, ""
    for _ in range(runs):
        start = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            return None, None, f"took more than {limit_s} s"
        seconds = time.perf_counter() - start
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            return None, None, f"fails: {lines[-1][:100]}"
        least, output = min(seconds, least or seconds), done.stdout
    return output, least, None


def of_peer(text):
    return json.loads(text[text.rindex("SAID") + len("SAID"):])


def peers(binary, trace):
    yield "epilogue", [binary, "explain", "--format", "json", trace], of_epilogue
    yield "HTA", [sys.executable, "-c", HTA, trace], of_peer
    yield "Perfetto", [sys.executable, "-c", PERFETTO, trace], of_peer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the command epilogue")
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300, help="seconds that a run may take")
    args = parser.parse_args()
    print("| trace | asked | seconds | question | answer |\n|---|---|---:|---|---|")
    for trace in args.traces:
        for name, command, read in peers(args.binary, trace):
            output, seconds, failure = run(command, args.runs, args.limit)
            shown = os.path.basename(trace)
            if failure:
                print(f"| {shown} | {name} | - | - | {failure} |", flush=True)
                continue
            for question, answer in read(output).items():
                print(f"| {shown} | {name} | {seconds:.2f} | {question} | {answer.replace('|', '/')} |", flush=True)


if __name__ == "__main__":
    main()
