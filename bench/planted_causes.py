#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does `epilogue explain` find the cause? Makes traces of PyTorch runs on a CPU, each with one planted
cause or with none, and says at which rank of the findings the cause stands.

    bench/planted_causes.py --epilogue build/epilogue --out /tmp/planted [--set first|second] [NAME ...]
    bench/planted_causes.py ... --keep         # judges the traces that are there already

The expected finding stands beside each run. It was written down before explain saw the trace. The
runs of the second set were made after the rules, with other models and sizes (transformers is
needed for some). Findings are ranked by saving, else by cost; the verdict and the profiler's own
cost do not count. A clean run has no finding above 5 % of its time but those that it allows.
Each run is a process of its own, so that threads, instruction sets and allocators differ. It has one
thread unless threads are its cause: other work on the machine would plant that cause everywhere."""
import argparse
import json
import os
import subprocess
import sys

import planted_first  # noqa: F401 (declares its runs)
import planted_second  # noqa: F401
from planted_case import CASES

STEPS = 3


def record(case, path):
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule
    torch.manual_seed(1)
    step = case.make()
    for _ in range(2):
        step()
    options = {"record_shapes": True, **case.profile}
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=STEPS, repeat=1),
                 on_trace_ready=lambda p: p.export_chrome_trace(path), **options) as p:
        for _ in range(STEPS + 1):
            step()
            p.step()


def ranked(explanation):
    wall = explanation["host"]["wall_us"]
    rows = []
    for f in explanation["findings"]:
        if f["id"] in ("verdict", "profiler-cost"):
            continue
        us = f.get("saving_us") if f.get("saving_us") is not None else f.get("cost_us")
        rows.append((f["id"], (us or 0) / wall * 100, f["title"], f.get("evidence", [])))
    return rows


def judge(case, rows):
    """(is it right, one line)"""
    if case.expect:
        for rank, (name, share, title, evidence) in enumerate(rows, 1):
            if name == case.expect and case.says in title + " ".join(evidence):
                return rank == 1, f"rank {rank} of {len(rows)}, {share:.0f} %"
        return False, "not found"
    false = [f"{name} {share:.0f} %" for name, share, _, _ in rows if share > 5 and name not in case.allows]
    return not false, "false: " + ", ".join(false) if false else "clean"


def run(name, case, args):
    path = os.path.join(args.out, name + ".json.gz")
    if not (args.keep and os.path.exists(path)):
        env = {**os.environ, "OMP_NUM_THREADS": "1", **case.env}
        done = subprocess.run([sys.executable, __file__, "--record", name, "--out", path], env=env,
                              capture_output=True, text=True)
        if done.returncode != 0:
            return False, "no trace: " + (done.stderr.strip().splitlines() or ["?"])[-1], []
    text = subprocess.run([args.epilogue, "explain", path, "--format", "json"], capture_output=True, text=True).stdout
    explanation = json.loads(text)
    if not explanation.get("host"):
        return False, "the trace has no ops", []
    rows = ranked(explanation)
    ok, line = judge(case, rows)
    return ok, line, rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--epilogue", default="build/epilogue")
    p.add_argument("--out", required=True)
    p.add_argument("--set", choices=["first", "second"])
    p.add_argument("--keep", action="store_true", help="judge the traces that are there already")
    p.add_argument("--record", help=argparse.SUPPRESS)
    p.add_argument("--top", type=int, default=3, help="findings shown of each run that is wrong")
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    if args.record:
        return record(CASES[args.record], args.out)
    os.makedirs(args.out, exist_ok=True)
    count = {}
    for name, case in CASES.items():
        if (args.names and name not in args.names) or (args.set and case.which != args.set):
            continue
        ok, line, rows = run(name, case, args)
        kind = "planted" if case.expect else "clean"
        right, all_ = count.get((case.which, kind), (0, 0))
        count[case.which, kind] = (right + ok, all_ + 1)
        print(f"{'ok   ' if ok else 'WRONG'} {name:28} {case.expect or 'clean':20} {line}", flush=True)
        if not ok:
            for found, share, title, _ in rows[:args.top]:
                print(f"        {found} {share:.1f} %: {title[:120]}")
    for (which, kind), (right, all_) in count.items():
        print(f"{which} set, {kind}: {right} of {all_}")
    return 0 if all(right == all_ for right, all_ in count.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
