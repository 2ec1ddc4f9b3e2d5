#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records cases as Chrome traces, with the answer expected of a reader beside each."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

EXAMPLE = """example:
  python bench/generality/record.py --round 1 --out traces/generality
  python bench/generality/record.py --case vision-unfold --out traces/generality

Each case gets a folder OUT/ID: trace.json, or rank0.json and rank1.json, and expected.json."""

MODULES = (
    "round1", "round2", "round3", "round4", "round5", "round6", "round7", "round8",
    "round9", "round10", "round11", "round12", "round13", "round14", "round15",
    "round16", "round17", "round18", "round19", "round20", "round21", "round22",
    "round23", "round24",
    "clean_first", "clean_second", "clean_third", "clean_fourth", "clean_fifth",
    "clean_sixth", "clean_seventh", "clean_eighth", "clean_ninth", "clean_tenth",
    "clean_eleventh", "clean_twelfth", "clean_thirteenth", "clean_fourteenth",
)
WORLD = 2


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--round", type=int, help="the cases of one round; 0: the clean ones")
    parser.add_argument("--case", action="append", metavar="ID", help="one case; may be repeated")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="where the folders go")
    parser.add_argument("--mended", action="store_true", help="record the mended steps instead")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch, in each process (1)")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    options = parser.parse_args()
    cases = load_cases()
    if unknown := set(options.case or ()) - set(cases):
        parser.error(f"no case is called {', '.join(sorted(unknown))}; --list lists them")
    if not options.list and not options.out:
        parser.error("--out says where the folders go")
    return options, cases


def load_cases():
    from case import CASES
    import importlib

    for name in MODULES:
        importlib.import_module(name)

    return CASES


def profile_steps(case, step, path):
    from torch.profiler import ProfilerActivity, profile, schedule

    options = dict(case.profile.options(), activities=[ProfilerActivity.CPU])
    if not case.profile.schedule:
        for _ in range(2):
            step()
        with profile(**options) as prof:
            for _ in range(case.profile.steps):
                step()
        prof.export_chrome_trace(str(path))
        return
    with profile(
        schedule=schedule(wait=1, warmup=1, active=case.profile.steps, repeat=1),
        on_trace_ready=lambda prof: prof.export_chrome_trace(str(path)),
        **options,
    ) as prof:
        for _ in range(2 + case.profile.steps):
            step()
            prof.step()


def record_here(case, folder, options, arguments=(), name="trace.json"):
    import torch
    from measure import measured

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    profile_steps(case, case.build(options.mended, *arguments), folder / name)
    return None if options.mended else measured(case, arguments)


def record_rank(rank, case_id, folder, options, meeting):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    case = load_cases()[case_id]
    numbers = record_here(case, folder, options, (rank, WORLD), f"rank{rank}.json")
    if rank == 0 and numbers:
        write_expected(case, folder, numbers)
    dist.barrier()
    dist.destroy_process_group()


def write_expected(case, folder, numbers):
    expected = dict(case.expected(), measured=numbers)
    (folder / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")


def record(case, folder, options):
    folder.mkdir(parents=True, exist_ok=True)
    if case.scale == "distributed":
        import torch.multiprocessing as mp

        with tempfile.TemporaryDirectory() as meeting:
            mp.spawn(record_rank, (case.id, folder, options, f"{meeting}/ranks"), WORLD)
    elif numbers := record_here(case, folder, options):
        write_expected(case, folder, numbers)


def report(case, folder):
    """One line on what was recorded; true when the numbers bear the case out."""
    from measure import objections

    numbers = json.loads((folder / "expected.json").read_text())["measured"]
    size = sum(trace.stat().st_size for trace in folder.glob("*.json")) / 1e6
    said = objections(case, numbers)
    if size > 20:
        said.append("the trace is large")
    times = f"{numbers['step_ms']} ms" if case.clean else (
        f"{numbers['slow_ms']} ms, mended {numbers['mended_ms']} ms, ratio {numbers['ratio']}"
    )
    print(f"{case.id}: {times}, {size:.1f} MB{''.join('; ' + s for s in said)}", flush=True)
    return not said


def chosen(options, cases):
    return [
        case
        for case in cases.values()
        if (options.round is None or case.round == options.round)
        and (not options.case or case.id in options.case)
    ]


def main():
    options, cases = parse()
    selected = chosen(options, cases)
    if options.list:
        for case in selected:
            print(f"{case.round}  {case.id:28} {case.domain:12} {case.mode:10} {case.scale}")
        return 0
    if len(selected) == 1:
        folder = (options.out / selected[0].id).resolve()
        record(selected[0], folder, options)
        return 0 if options.mended or report(selected[0], folder) else 1
    # One process a case: what a case sets stays its own.
    failed = 0
    for case in selected:
        command = [sys.executable, __file__, "--case", case.id, "--out", str(options.out),
                   "--threads", str(options.threads)] + ["--mended"] * options.mended
        failed += bool(subprocess.run(command).returncode)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
