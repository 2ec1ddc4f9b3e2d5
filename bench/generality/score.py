#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores what `epilogue explain` says of recorded cases; a reader decides what words alone cannot."""

import argparse
import json
import pathlib
import re
import subprocess
import sys

EXAMPLE = """example:
  python bench/generality/record.py --round 1 --out traces/generality
  python bench/generality/score.py traces/generality --round 1 --epilogue build/epilogue
  python bench/generality/score.py traces/generality --round 1 --epilogue build/epilogue --verdicts judged.json

The score of words takes a finding for the answer if it holds one of the case's `names` or `actions`. --show prints the
findings for a reader, whose verdicts (a file {id: {"first": bool, "three": bool, "action": bool}}) take precedence."""

# Neither claims a cause.
NO_CAUSE = ("verdict", "profiler-cost", "memory-peak")
FALSE_SHARE = 0.10  # of the step, in a clean case
FALSE_FROM = 0.05  # listed, so that a reader sees it


def findings_of(epilogue, folder):
    traces = sorted(folder.glob("rank*.json")) or [folder / "trace.json"]
    target = folder if len(traces) > 1 else traces[0]
    run = subprocess.run(
        [epilogue, "explain", str(target), "--format", "json"], capture_output=True, text=True, check=False
    )
    if run.returncode != 0:
        sys.exit(f"{target}: {run.stderr.strip() or 'explain failed'}")
    answer = json.loads(run.stdout)
    found = [f for f in answer["findings"] if f["id"] not in NO_CAUSE and f["id"] != "left-out-files"]
    wall = (answer.get("host") or {}).get("wall_us") or answer.get("span_us") or 0
    if not wall:  # a folder of ranks
        wall = sum(step["span_us"] for step in answer.get("steps") or [])
    return found, wall


def text_of(finding):
    return "\n".join([finding["title"], *finding["evidence"], finding.get("action") or ""])


def holds(text, words):
    return any(re.search(r"(?<!\w)" + re.escape(word) + r"(?!\w)", text, re.IGNORECASE) for word in words)


def by_words(case, found):
    texts = [text_of(f) for f in found[:3]]
    answers = [holds(t, case["names"]) or holds(t, case["actions"]) for t in texts]
    usable = any(holds(t, case["names"]) and holds(t, case["actions"]) for t in map(text_of, found))
    return {"first": bool(answers) and answers[0], "three": any(answers), "action": usable}


def show(case, found, wall):
    print(f"\n== {case['id']}: {case['cause']}\n   expected: {case['answer']}")
    for rank, f in enumerate(found[:5], 1):
        cost = f.get("saving_us") or f.get("cost_us") or 0
        print(f"  {rank}. [{f['id']}, {100 * cost / wall if wall else 0:.0f} %] {f['title']}")
        for line in f["evidence"][:4]:
            print(f"       {line}")
        print(f"       To do: {f.get('action') or '-'}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=pathlib.Path, help="the folder that record.py wrote")
    parser.add_argument("--epilogue", default="build/epilogue", metavar="PROGRAM")
    parser.add_argument("--round", type=int, action="append", help="may be repeated; default: all; 0: clean")
    parser.add_argument("--verdicts", type=pathlib.Path, metavar="FILE", help="what a reader decided")
    parser.add_argument("--show", action="store_true", help="print the findings beside the expected answers")
    options = parser.parse_args()
    verdicts = json.loads(options.verdicts.read_text()) if options.verdicts else {}
    rounds = {}
    for file in sorted(options.traces.glob("*/expected.json")):
        case = json.loads(file.read_text())
        if not options.round or case["round"] in options.round:
            rounds.setdefault(case["round"], []).append((case, file.parent))
    if not rounds:
        sys.exit(f"{options.traces}: expected folders with expected.json, found none")
    for number, cases in sorted(rounds.items()):
        total = {"first": 0, "three": 0, "action": 0}
        for case, folder in cases:
            found, wall = findings_of(options.epilogue, folder)
            if options.show:
                show(case, found, wall)
            if number == 0:
                large = [f for f in found if (f.get("saving_us") or f.get("cost_us") or 0) > FALSE_FROM * wall]
                false = [f for f in large if (f.get("saving_us") or 0) > FALSE_SHARE * wall]
                total["first"] += not false
                print(f"{case['id']:32s} {'clean' if not false else 'FALSE'}  {', '.join(f['id'] for f in large)}")
                continue
            score = {**by_words(case, found), **verdicts.get(case["id"], {})}
            for key in total:
                total[key] += score[key]
            marks = " ".join(f"{key if score[key] else '-':7s}" for key in total)
            print(f"{case['id']:32s} {marks} {found[0]['id'] if found else 'no finding'}")
        if number == 0:
            print(f"clean: {total['first']} of {len(cases)} without a saving above {FALSE_SHARE:.0%}")
        else:
            print(f"round {number}: first {total['first']}, in the first three {total['three']}, "
                  f"usable action {total['action']} of {len(cases)}")


if __name__ == "__main__":
    main()
