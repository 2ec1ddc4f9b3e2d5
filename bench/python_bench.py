#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time that Python adds to the command's own: python_bench.py [--command build/epilogue] TRACE...

Run it with the package on the path, on a machine that does nothing else:
PYTHONPATH=build/python build/python-environment/bin/python bench/python_bench.py TRACE...

Each trace is explained and tabled in pairs, the command and the package in turn, in the form of JSON.
Of the command the start of its process is taken off, and of Python that of the interpreter is not
counted: what is compared is the work. The median of the pairs' ratios and their quartiles are printed.
"""
import argparse
import os
import statistics
import subprocess
import time

import epilogue

PAIRS = 15


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def run(command, *arguments):
    subprocess.run([command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def ratios(command, name, path):
    function = getattr(epilogue, name)
    found = []
    for _ in range(PAIRS + 1):
        start = seconds(lambda: run(command, "--version"))
        theirs = seconds(lambda: run(command, name, path, "--format", "json")) - start
        ours = seconds(lambda: function(path).to_json())
        found.append(ours / theirs)
    return found[1:]  # the first pair finds cold caches


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", default="build/epilogue")
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    arguments = parser.parse_args()
    for path in arguments.traces:
        for name in ("explain", "table"):
            low, middle, high = statistics.quantiles(ratios(arguments.command, name, path), n=4)
            print(f"{name:8} {os.path.basename(path)}: Python takes {middle:.2f} times as long "
                  f"as the command ({low:.2f} to {high:.2f}, {PAIRS} pairs)")


if __name__ == "__main__":
    main()
