#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reading speed on large traces, beside Python's json and gunzip on the same files.

  bench/trace_bench.py build/epilogue TRACE.json.gz [--megabytes 100 1000] [--rounds 5] [--dir DIR]

Repeats the events of a real trace, with times and ids moved on, until the text has the wanted size;
then runs, in an order that rotates from round to round,

  table        epilogue table TRACE.json      file to finished table
  table .gz    epilogue table TRACE.json.gz
  explain      epilogue explain TRACE.json    file to all that it says
  json.load    Python's json.load of the text, where it is not too large for that
  gunzip       gunzip -c TRACE.json.gz > /dev/null
  igzip        igzip -dc TRACE.json.gz > /dev/null, where it is installed (Debian: isal)

and prints the median seconds, MB of text per second, the peak resident memory in percent of the text,
and ratios. Checks that the table counts every event as often as it was repeated.
"""
import argparse
import gzip
import json
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The numbers that must differ from copy to copy: times, and ids that join events.
NUMBER = re.compile(
    r'("(?:ts|id|External id|external id|correlation|Ev Idx|Python id|Python parent id)": "?)'
    r"(\d+)")
JSON_LOAD_LIMIT_MB = 300


def read_text(path):
    data = Path(path).read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8")


def split_document(text):
    """Head up to the opening bracket of the event list, its elements, the rest."""
    match = re.search(r'"traceEvents"\s*:\s*\[', text)
    start = match.end() if match else text.index("[") + 1
    events, end = json.JSONDecoder().raw_decode(text, start - 1)
    return text[:start], text[start : end - 1].rstrip().rstrip(","), text[end - 1 :], events


class Repeater:
    """Copies of the event list with shifted numbers."""

    def __init__(self, body, events):
        parts = NUMBER.split(body)
        self.texts = parts[0::3]  # text, key, number, text, key, number, ...
        self.keys = parts[1::3]
        self.numbers = [int(n) for n in parts[2::3]]
        self.is_time = [key.startswith('"ts"') for key in self.keys]
        times = [n for n, is_time in zip(self.numbers, self.is_time) if is_time]
        # Beyond the last end; marks far outside the recording (window ends) do not count.
        spans = [e for e in events if e.get("ph") == "X"]
        ends = [float(e["ts"]) + float(e.get("dur") or 0) for e in spans]
        self.time_step = int(max(ends) - min(float(e["ts"]) for e in spans)) + 1000
        ids = [n for n, is_time in zip(self.numbers, self.is_time) if not is_time and n < 1 << 40]
        self.id_step = max(ids, default=0) + 1
        assert times, "the trace has no times"

    def copy(self, index):
        out = []
        for text, key, number, is_time in zip(self.texts, self.keys, self.numbers, self.is_time):
            step = self.time_step if is_time else self.id_step if number > 0 else 0
            out += (text, key, str(number + index * step))
        out.append(self.texts[-1])
        return "".join(out)


def make_trace(source_path, megabytes, path):
    """Writes about that many MB of text; returns how many copies it holds."""
    head, body, tail, events = split_document(read_text(source_path))
    repeater = Repeater(body, events)
    copies = max(1, round(megabytes * 1e6 / len(body)))
    with open(path, "w", encoding="utf-8") as out:
        out.write(head)
        for i in range(copies):
            out.write(repeater.copy(i) + ("" if i == copies - 1 else ","))
        out.write(tail)
    return copies


def run(command, **options):
    """Seconds and the peak resident bytes of a command."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, **options)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"trace_bench.py: {command[0]} ended with {process.returncode}")
    return seconds, usage.ru_maxrss * 1024


def table_counts(epilogue, path):
    out = subprocess.run([epilogue, "table", path, "--format", "json"], check=True,
                         capture_output=True).stdout
    return {(r["name"], r["device_type"]): r["count"] for r in json.loads(out)["rows"]}


def check_counts(epilogue, source_path, big_path, copies):
    """Rows agree; collapsing ops and window edges may differ where copies meet."""
    one = table_counts(epilogue, source_path)
    many = table_counts(epilogue, big_path)
    if one.keys() != many.keys():
        sys.exit(f"trace_bench.py: rows differ: {sorted(one.keys() ^ many.keys())[:5]}")
    wrong = [k for k in one if many[k] != copies * one[k]]
    if wrong:
        sys.exit(f"trace_bench.py: {len(wrong)} rows are not counted {copies} times: "
                 f"{[(k, one[k], many[k]) for k in wrong[:5]]}")


def measure(epilogue, path, gz_path, rounds, with_json_load):
    quiet = {"stdout": subprocess.DEVNULL}
    load = f"import json; json.load(open({str(path)!r}))"
    contestants = {
        "table": [epilogue, "table", str(path)],
        "table .gz": [epilogue, "table", str(gz_path)],
        "explain": [epilogue, "explain", str(path)],
        "gunzip": ["gunzip", "-c", str(gz_path)],
    }
    if shutil.which("igzip"):
        contestants["igzip"] = ["igzip", "-dc", str(gz_path)]
    if with_json_load:
        contestants["json.load"] = [sys.executable, "-c", load]
    names = list(contestants)
    results = {name: [] for name in names}
    for r in range(rounds):
        for name in names[r % len(names) :] + names[: r % len(names)]:
            results[name].append(run(contestants[name], **quiet))
    return results


def report(results, text_bytes):
    print(f"  {'':<12}{'median s':>10}{'min s':>8}{'MB/s':>8}{'memory / text':>15}")
    medians = {}
    for name, runs in results.items():
        seconds = [s for s, _ in runs]
        medians[name] = statistics.median(seconds)
        memory = max(m for _, m in runs) / text_bytes * 100
        print(f"  {name:<12}{medians[name]:>10.3f}{min(seconds):>8.3f}"
              f"{text_bytes / 1e6 / medians[name]:>8.0f}{memory:>13.0f} %")
    ratio = medians["gunzip"] / medians["table .gz"]
    print(f"  table .gz is {ratio:.2f} times as fast as gunzip alone")
    if "json.load" in medians:
        print(f"  table is {medians['json.load'] / medians['table']:.1f} times as fast as json.load")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("epilogue")
    parser.add_argument("trace")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="where the large files go (default: a temporary folder)")
    args = parser.parse_args()
    # In a process of its own: a child's peak memory starts with that of the process that forks it.
    maker = multiprocessing.get_context("spawn").Pool(1)
    folder = Path(args.dir) if args.dir else Path(tempfile.mkdtemp(prefix="trace_bench."))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for megabytes in args.megabytes:
            path = folder / f"{megabytes}.json"
            gz_path = folder / f"{megabytes}.json.gz"
            copies = maker.apply(make_trace, (args.trace, megabytes, path))
            with open(gz_path, "wb") as out:
                subprocess.run(["gzip", "-c", "-6", str(path)], stdout=out, check=True)
            check_counts(args.epilogue, args.trace, path, copies)
            text_bytes = path.stat().st_size
            print(f"{Path(args.trace).name} x {copies}: {text_bytes / 1e6:.0f} MB of text, "
                  f"{gz_path.stat().st_size / 1e6:.0f} MB compressed")
            report(measure(args.epilogue, path, gz_path, args.rounds,
                           megabytes <= JSON_LOAD_LIMIT_MB), text_bytes)
    finally:
        if not args.dir:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
