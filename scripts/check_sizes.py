#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists long source files: check_sizes.py [ROOT]

Prints files above 400 lines; exit 1 if one is above 800 and not excepted below.
"""
import sys
from pathlib import Path

ASK_LINES = 400
FAIL_LINES = 800
FOLDERS = ("include", "src", "tools", "tests", "bench", "examples", "scripts")
SUFFIXES = {".h", ".inc", ".cpp", ".cu", ".cuh", ".py"}

# path -> why it may be longer
EXCEPTIONS = {}


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    failed = False
    for file in sorted(file for top in FOLDERS for file in (root / top).rglob("*")):
        if file.suffix not in SUFFIXES:
            continue
        path = file.relative_to(root).as_posix()
        lines = len(file.read_text(encoding="utf-8").splitlines())
        too_long = lines > FAIL_LINES and path not in EXCEPTIONS
        if lines > ASK_LINES:
            print(f"{path}: {lines} lines{f', the limit is {FAIL_LINES}' if too_long else ''}")
        failed = failed or too_long
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
