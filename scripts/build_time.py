#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a build from nothing costs: build_time.py [--source ROOT] [--jobs N] [--units N] [-- cmake arguments]

Builds the checkout ROOT (default: this one) in a temporary folder, without ccache, as `make demo` does (the command
alone), and then the rest of what `make test` builds. Prints CPU seconds, user and system, which other work on the
machine hardly changes, and the compiled units of both. --units lists the N units and links that cost most. The
progress of the build goes to stderr.
"""
import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def run(command, environment):
    """Runs a command; the CPU seconds of it and of all its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode
    if code != 0:
        sys.exit(f"build_time.py: status {code} of {' '.join(command)}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def launch(log, command):
    """The compiler launcher of --units: runs it and notes its CPU seconds."""
    code = subprocess.run(command, check=False).returncode
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = command[command.index("-o") + 1] if "-o" in command else "?"
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{usage.ru_utime + usage.ru_stime:.2f}\t{output}\n")
    return code


def built_units(folder):
    """The units that were compiled."""
    return sum(1 for file in folder.rglob("*.o") if file.is_file())


def costliest(log, count):
    rows = [line.split("\t") for line in log.read_text(encoding="utf-8").splitlines()]
    return sorted(((float(seconds), output) for seconds, output in rows), reverse=True)[:count]


def main():
    if sys.argv[1:2] == ["--launch"]:
        return launch(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--units", type=int, default=0, metavar="N")
    parser.add_argument("cmake", nargs="*", help="arguments for cmake, after --")
    args = parser.parse_args()

    environment = dict(os.environ, CCACHE_DISABLE="1")
    for name in ("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER"):
        environment.pop(name, None)
    folder = Path(tempfile.mkdtemp(prefix="epilogue_build_time_"))
    try:
        log = folder / "units.txt"
        configure = ["cmake", "-G", "Ninja", "-S", str(args.source.resolve()), "-B", str(folder / "build"),
                     "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *args.cmake]
        if args.units:
            launcher = f"{sys.executable};{Path(__file__).resolve()};--launch;{log}"
            configure += [f"-DCMAKE_CXX_COMPILER_LAUNCHER={launcher}", f"-DCMAKE_CXX_LINKER_LAUNCHER={launcher}"]
        build = ["cmake", "--build", str(folder / "build"), "-j", str(args.jobs)]
        phases = [("make demo", "OFF", ["--target", "epilogue"]), ("make test, after it", "ON", [])]
        rows, known = [], 0
        for name, tests, target in phases:
            seconds = run([*configure, f"-DEPILOGUE_TESTS={tests}"], environment)
            seconds += run([*build, *target], environment)
            units = built_units(folder / "build")
            rows.append((name, seconds, units - known))
            known = units
        rows.append(("both", sum(row[1] for row in rows), known))
        print(f"{'build of':<22}{'CPU s':>8}{'units':>8}")
        for name, seconds, units in rows:
            print(f"{name:<22}{seconds:>8.0f}{units:>8}")
        if args.units:
            print(f"\n{'CPU s':>8}  unit or link")
            for seconds, output in costliest(log, args.units):
                print(f"{seconds:>8.1f}  {output}")
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
