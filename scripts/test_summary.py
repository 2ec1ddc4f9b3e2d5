#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up a test run: test_summary.py FOLDER

FOLDER holds ctest.junit (from ctest --output-junit) and, for each GoogleTest executable and each run
of pytest that came to its end, NAME.xml (from GTEST_OUTPUT, --junitxml). These count with their
single tests, any other test as one. The last line reads "N passed, N failed, N skipped"; exit 1 if
any failed or if there was none.
"""
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []


def last_line(text):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def add_gtest(name, path, totals):
    """Counts the single tests of one executable; returns how many failed."""
    failures = 0
    for case in ElementTree.parse(path).iter("testcase"):
        title = f"{name}: {case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failures += 1
            totals.failed.append(title)
        elif skipped is not None or case.get("result") == "skipped":
            reason = "" if skipped is None else last_line(skipped.get("message"))
            totals.skipped.append(f"{title}: {reason}" if reason else title)
        elif case.get("status", "run") == "run":
            totals.passed += 1
    return failures


def add_ctest(case, folder, totals):
    name = case.get("name")
    status = case.get("status")
    details = folder / f"{name}.xml"
    if status in ("run", "fail") and case.find("skipped") is None and details.exists():
        failures = add_gtest(name, details, totals)
        # A crash or a leak report after the last test has no single test to blame.
        if status == "fail" and failures == 0:
            totals.failed.append(f"{name}: ended badly after its tests")
    elif status == "run":
        totals.passed += 1
    elif status == "disabled" or case.find("skipped") is not None:
        said = last_line(case.findtext("system-out"))  # "skipped: WHY", or anything
        totals.skipped.append(f"{name}: {said[9:]}" if said.startswith("skipped: ") else name)
    else:
        reason = case.find("failure")
        totals.failed.append(f"{name}: {'' if reason is None else reason.get('message', '')}")


def main():
    folder = Path(sys.argv[1])
    totals = Totals()
    junit = folder / "ctest.junit"
    if junit.exists():
        for case in ElementTree.parse(junit).iter("testcase"):
            add_ctest(case, folder, totals)
    for title in totals.skipped:
        print(f"skipped: {title}")
    for title in totals.failed:
        print(f"failed: {title}")
    print(f"{totals.passed} passed, {len(totals.failed)} failed, {len(totals.skipped)} skipped")
    return 1 if totals.failed or totals.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
