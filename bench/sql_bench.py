#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From file to answer in SQL, in MB of the trace's text per second.

  bench/sql_bench.py TRACE.json.gz [--megabytes 100 1000] [--rounds 3] [--dir DIR]

Repeats the events of a real trace (as bench/trace_bench.py does), then runs `python -m epilogue sql` in a process
of its own for each query; prints median seconds, MB/s, peak resident memory, and the ratio to the 29.4 MB/s at
which Perfetto's trace processor loads such a file (pytorch/pytorch#138360: 458 MB in 15.58 s). Checks that the
queries count every kernel as often as it was repeated. PYTHONPATH must lead to the package.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import trace_bench

PERFETTO_MB_PER_S = 458 / 15.58
QUERIES = {
    "count": "SELECT count(*) AS n FROM kernels",
    "top kernels": "SELECT name, sum(dur_ns) AS ns FROM kernels GROUP BY 1 ORDER BY 2 DESC LIMIT 10",
    "launch latency": "SELECT median(k.ts_ns - l.ts_ns) AS ns FROM kernels k JOIN launches l ON k.launch_id = l.id",
    "ops by kernels": "SELECT name, sum(kernels) AS n FROM ops GROUP BY 1 ORDER BY 2 DESC LIMIT 10",
}


def command(path, query):
    return [sys.executable, "-m", "epilogue", "sql", str(path), query, "--format", "json"]


def count(path):
    out = subprocess.run(command(path, QUERIES["count"]), check=True, capture_output=True).stdout
    return json.loads(out)["rows"][0]["n"]


def measure(source, megabytes, rounds, folder):
    path = Path(folder) / f"sql_bench_{megabytes}.json"
    copies = trace_bench.make_trace(source, megabytes, path)
    text_mb = path.stat().st_size / 1e6
    if count(path) != copies * count(source):
        sys.exit(f"sql_bench.py: {path}: kernels are not counted {copies} times")
    print(f"{text_mb:.0f} MB of text, {copies} copies")
    print(f"  {'query':<16}{'median s':>10}{'MB/s':>8}{'memory MB':>11}{'x Perfetto':>12}")
    for name, query in QUERIES.items():
        runs = [trace_bench.run(command(path, query), stdout=subprocess.DEVNULL) for _ in range(rounds)]
        seconds = statistics.median(s for s, _ in runs)
        memory = max(m for _, m in runs) / 1e6
        rate = text_mb / seconds
        print(f"  {name:<16}{seconds:>10.2f}{rate:>8.0f}{memory:>11.0f}{rate / PERFETTO_MB_PER_S:>12.1f}")
    path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="TRACE.json.gz")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        for megabytes in arguments.megabytes:
            measure(arguments.source, megabytes, arguments.rounds, folder)


if __name__ == "__main__":
    main()
