#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Did a change make anything slower? compare_binaries.py OLD NEW [--levels avx2 amx] [--pairs 20]

Runs `bench portability` of two builds of the command, each beside its
`bench/epilogue_bench` (if it is that new), in turns and prints, for each cell and
contender, the median of the ratios old time / new time over the pairs (above 1: the new one is
faster) with the 95 % interval of that median, by order statistics. Exit 1 if the median over all
ratios of a contender lies below --least, or if the interval of one cell lies wholly below --cell.
`bench portability` itself checks that results agree. Example:

  python3 bench/compare_binaries.py /tmp/before/epilogue build/epilogue --levels avx2 avx512
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys


def run(binary, level, options):
    """{(cell, contender): median us} of one run."""
    command = [binary, "bench", "portability", "--levels", level, "--quiet-only", "--format", "json",
               "--seconds", str(options.seconds), "--rounds", "3", "--dtypes", *options.dtypes]
    if not options.all:
        command.append("--quick")
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "EPILOGUE_CACHE_DIR": "off"})
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    if answer["disagreements"]:
        sys.exit(f"{binary}: results disagree: {answer['disagreements']}")
    return {(f"{cell['isa']} {cell['dtype']} {cell['shape']}", row["name"]): row["median_us"]
            for cell in answer["cells"] for row in cell["rows"]
            if row["name"].startswith("epilogue.")}


def interval(values):
    """The 95 % interval of the median: order statistics by the normal form of the binomial."""
    ordered, n = sorted(values), len(values)
    low = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    return ordered[low], ordered[n - 1 - low]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--levels", nargs="+", default=["avx2", "avx512"])
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.1, help="of timing per cell and run")
    parser.add_argument("--all", action="store_true", help="the larger shapes too")
    parser.add_argument("--least", type=float, default=0.98)
    parser.add_argument("--cell", type=float, default=0.95)
    options = parser.parse_args()
    ratios = {}
    for level in options.levels:
        for pair in range(options.pairs):
            binaries = [("old", options.old), ("new", options.new)]
            times = {name: run(path, level, options)
                     for name, path in (binaries if pair % 2 == 0 else binaries[::-1])}
            for key in times["old"].keys() & times["new"].keys():
                ratios.setdefault(key, []).append(times["old"][key] / times["new"][key])
            if sys.stderr.isatty():
                print(f"\r{level}: pair {pair + 1} of {options.pairs}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    slow = 0
    for (cell, contender), values in sorted(ratios.items()):
        low, high = interval(values)
        mark = " SLOWER" if high < options.cell else ""
        slow += bool(mark)
        print(f"{cell:36}{contender:20}{statistics.median(values):7.3f} [{low:.3f}, {high:.3f}]{mark}")
    print()
    for contender in sorted({key[1] for key in ratios}):
        medians = [statistics.median(v) for key, v in ratios.items() if key[1] == contender]
        whole = statistics.median(medians)
        slow += whole < options.least
        print(f"{contender:20} median of {len(medians)} cells {whole:.3f}, least {min(medians):.3f}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
