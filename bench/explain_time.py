#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time and peak memory of `epilogue explain`, of two builds in turns.

  bench/explain_time.py OLD NEW TRACE ... [--rounds 7] [--make GB]

OLD and NEW are the command of two builds. Prints user + system time (which other work on the machine
hardly changes) and the peak of resident memory of each, medians of rounds in which both take turns,
and NEW's in percent of OLD's. --make writes a trace of about that size beside them first: a training
loop of nested ops on a device, 20 layers a step, with shapes. Exit 1 where NEW takes over 10 % more.
"""
import argparse
import os
import random
import statistics
import sys
import tempfile
from pathlib import Path

ALLOWED = 1.10
LAYER = ("aten::linear", "aten::add", "aten::layer_norm", "aten::gelu", "aten::mul", "aten::softmax",
         "aten::dropout", "aten::cat", "aten::index_select")


def make_trace(path, gigabytes):
    """Ops, launches and kernels of a training loop, until the file is large enough."""
    rng = random.Random(1)
    limit = int(gigabytes * 1e9)
    with open(path, "w", encoding="utf-8") as out:
        out.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"'
                  ', "totalGlobalMem": 85198045184, "numSms": 108}], "traceEvents": [\n')
        at, correlation, step = 1000.0, 1, 0
        while out.tell() < limit:
            lines, start = [], at
            for layer in range(20):
                for name in LAYER:
                    dur = rng.uniform(8, 30)
                    rows = 128 * (1 + layer % 4)
                    args = (f'"External id": {correlation}, "Sequence number": {correlation}, '
                            f'"Input Dims": [[{rows}, 1024], [1024, 1024]], "Input type": '
                            '["float", "float"], "Concrete Inputs": ["", ""]')
                    lines.append(f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1'
                                 f', "ts": {at:.3f}, "dur": {dur:.3f}, "args": {{{args}}}}}')
                    inner = "aten::addmm" if name == "aten::linear" else name.replace("::", "::_", 1)
                    lines.append(f'{{"ph": "X", "cat": "cpu_op", "name": "{inner}", "pid": 1, "tid": '
                                 f'1, "ts": {at + 1:.3f}, "dur": {dur - 2:.3f}, "args": {{{args}}}}}')
                    lines.append('{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", '
                                 f'"pid": 1, "tid": 1, "ts": {at + 2:.3f}, "dur": 3.0, "args": '
                                 f'{{"correlation": {correlation}, "External id": {correlation}}}}}')
                    kernel = f"void {name.partition('::')[2]}_kernel<float, {layer % 4}>(float*)"
                    lines.append(f'{{"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": '
                                 f'7, "ts": {at + 6:.3f}, "dur": {rng.uniform(2, 7):.3f}, "args": '
                                 f'{{"device": 0, "stream": 7, "correlation": {correlation}, "External'
                                 f' id": {correlation}, "grid": [108, 1, 1], "block": [256, 1, 1], '
                                 '"registers per thread": 64, "shared memory": 0}}')
                    at += dur + rng.uniform(1, 4)
                    correlation += 1
            lines.append('{"ph": "X", "cat": "user_annotation", "name": '
                         f'"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": {start - 0.5:.3f}, "dur": '
                         f'{at - start:.3f}}}')
            step += 1
            out.write(",\n".join(lines) + ",\n")
        out.write('{"ph": "i", "name": "end", "pid": 1, "tid": 1, "ts": 0}]}\n')


def run(command, trace):
    """CPU seconds and MiB at most."""
    pid = os.posix_spawn(command, [command, "explain", str(trace), "--format", "json"], os.environ,
                         file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{command} explain {trace}: exit {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="the command before")
    parser.add_argument("new", help="the command after")
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--make", type=float, metavar="GB", help="measures a trace made for it, too")
    args = parser.parse_args()
    if not args.traces and not args.make:
        parser.error("expected a trace, or --make")
    is_slower = False
    with tempfile.TemporaryDirectory() as folder:
        traces = list(args.traces)
        if args.make:
            traces.append(Path(folder) / f"made_{args.make}_GB.json")
            make_trace(traces[-1], args.make)
        print(f"{'trace':<44}{'MB':>8}{'old s':>9}{'new s':>9}{'':>7}{'old MiB':>10}{'new MiB':>10}")
        for trace in traces:
            rounds = [(run(args.old, trace), run(args.new, trace)) for _ in range(args.rounds)]
            times = [statistics.median(r[i][0] for r in rounds) for i in range(2)]
            memory = [statistics.median(r[i][1] for r in rounds) for i in range(2)]
            ratio, more = times[1] / times[0], memory[1] / memory[0]
            is_slower = is_slower or ratio > ALLOWED or more > ALLOWED
            print(f"{trace.name[:43]:<44}{trace.stat().st_size / 1e6:>8.1f}{times[0]:>9.3f}"
                  f"{times[1]:>9.3f}{100 * ratio:>6.0f}%{memory[0]:>10.0f}{memory[1]:>10.0f}"
                  f"{100 * more:>6.0f}%", flush=True)
    return 1 if is_slower else 0


if __name__ == "__main__":
    sys.exit(main())
