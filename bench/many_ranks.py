#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many ranks: seconds and memory of `epilogue explain DIR`, of its parts (--shard) and of `epilogue merge`, on made traces.

  bench/many_ranks.py build/epilogue                       16 ranks of 4 MB, in 4 parts
  bench/many_ranks.py build/epilogue --ranks 64 --mb 100 --shards 8 --folder /data/ranks

The traces (tests/cli/rank_traces.py) have products, collectives with sizes, tensor, pipeline and data parallel groups. They stay
in --folder, if one is named, and are made once. Times are of the processor (user and system of all threads) and of the wall;
memory is the largest that a process held (ru_maxrss). Exit 1 if the parts joined are not the run in one piece.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MAKER = os.path.join(ROOT, "tests", "cli", "rank_traces.py")


def measured(*command):
    """The stdout of a command, its seconds of CPU and of the wall, and its largest memory in MiB."""
    with tempfile.TemporaryFile() as out:
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"many_ranks.py: expected exit 0 of {' '.join(command)}, got {process.returncode}")
        out.seek(0)
        return out.read(), usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("epilogue")
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--mb", type=float, default=4)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or os.path.join(scratch, "ranks")
        if not os.path.isdir(folder) or not os.listdir(folder):
            subprocess.run([sys.executable, MAKER, folder, str(options.ranks), "--mb", str(options.mb)], check=True)
        sizes = [os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)]
        total = sum(sizes)
        print(f"{len(sizes)} ranks, {total / 1e6:.0f} MB, the largest {max(sizes) / 1e6:.1f} MB; {options.shards} parts")
        print(f"{'':24}{'CPU s':>9}{'wall s':>9}{'MB/s':>8}{'MiB':>8}")

        def row(name, cpu, wall, memory, rate=True):
            print(f"{name:24}{cpu:9.2f}{wall:9.2f}{total / 1e6 / wall if rate else 0:8.0f}{memory:8.0f}"
                  if rate else f"{name:24}{cpu:9.2f}{wall:9.2f}{'':8}{memory:8.0f}")

        one = os.path.join(folder, sorted(os.listdir(folder))[0])
        _, cpu, wall, memory = measured(options.epilogue, "explain", one, "--format", "json")
        row("one trace by itself", cpu, wall, memory, rate=False)
        whole, whole_cpu, wall, memory = measured(options.epilogue, "explain", folder, "--format", "json")
        row("all in one piece", whole_cpu, wall, memory)
        parts = os.path.join(scratch, "parts")
        shards = [measured(options.epilogue, "explain", folder, "--shard", f"{i + 1}/{options.shards}", "--parts", parts)
                  for i in range(options.shards)]
        parts_cpu = sum(s[1] for s in shards)
        row("parts, sum (memory: most)", parts_cpu, sum(s[2] for s in shards), max(s[3] for s in shards))
        merged, cpu, wall, memory = measured(options.epilogue, "merge", parts, "--format", "json")
        row("merge", cpu, wall, memory, rate=False)
        bytes_of_parts = sum(os.path.getsize(os.path.join(parts, name)) for name in os.listdir(parts))
        print(f"parts have {bytes_of_parts / 1e3:.0f} kB; one piece takes {whole_cpu / (parts_cpu + cpu):.2f} times the CPU seconds of "
              f"parts and merge; results are {'equal' if merged == whole else 'DIFFERENT'}")
        sys.exit(0 if merged == whole else 1)


if __name__ == "__main__":
    main()
