#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests whose name or file matches a regular expression: test_one.py PATTERN [--list] [--root ROOT]

Names are Suite.Name of GoogleTest and Class.test_name of Python, behind their file: 'tests/ops/gelu_test.cpp Gelu.Edges'.
Builds only the targets that hold them. --list prints the commands and runs none. Exit 2 if nothing matches.
"""
import argparse
import difflib
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", re.M)
PY_CLASS = re.compile(r"^class (\w+)|^( *)def (test_\w+)", re.M)
EPI_TEST = re.compile(r"epi_test\(\s*(\w+)\s([^)]*)\)")


def python_tests(text):
    """Class.test_name, or test_name of a function."""
    current = ""
    for match in PY_CLASS.finditer(text):
        if match.group(1):
            current = match.group(1) + "."
        else:
            if not match.group(2):
                current = ""
            if not match.group(2) or (current and len(match.group(2)) == 4):
                yield current + match.group(3)


def tests_of(root):
    """Yields (path from the root, name) of all tests."""
    for file in sorted((root / "tests").rglob("*.cpp")):
        for suite, name in CPP_TEST.findall(file.read_text(encoding="utf-8")):
            yield file.relative_to(root), f"{suite}.{name}"
    for file in sorted((root / "tests").rglob("*.py")):
        if file.stem.endswith("_test") or file.stem.startswith("test_"):
            for name in python_tests(file.read_text(encoding="utf-8")):
                yield file.relative_to(root), name


def target_of(root, path):
    """(target, folder of its executable) of a C++ test: the epi_test() that lists it."""
    for folder in path.parents:
        lists = root / folder / "CMakeLists.txt"
        if lists.exists():
            for name, arguments in EPI_TEST.findall(lists.read_text(encoding="utf-8")):
                if path.relative_to(folder).as_posix() in arguments.split():
                    return name, folder
    return None


def commands_of(root, found):
    """(targets to build, commands to run) for {path: [names]}."""
    targets, runs, filters = set(), [], defaultdict(list)
    for path, names in found.items():
        where = path.parts[1]
        if path.suffix == ".cpp":
            target = target_of(root, path)
            if target is None:
                raise SystemExit(f"test_one.py: expected an epi_test() that lists {path}, got none")
            targets.add(target[0])
            for name in names:
                suite, test = name.split(".")
                filters[target] += [name, f"*/{name}/*", f"{suite}/*.{test}"]
        elif where == "cli":
            targets |= {"epilogue", "epilogue_bench"}
            runs.append([sys.executable, str(path), "build/epilogue", *names])
        elif where == "python":
            targets |= {"epilogue", "epilogue_python"}
            runs.append(["build/python-environment/bin/python", "-m", "pytest", "-q",
                         *(f"{path}::{name.replace('.', '::')}" for name in names)])
        elif where == "torch":
            targets.add("epilogue_shared")
            runs.append(["sh", "scripts/torch_tests.sh", *(f"{path}::{name.replace('.', '::')}" for name in names)])
        else:
            runs.append([sys.executable, str(path), *names])
    for (target, folder), names in filters.items():
        runs.append([f"build/{folder.as_posix()}/{target}", "--gtest_brief=1", "--gtest_filter=" + ":".join(names)])
    return sorted(targets), runs


def nothing(pattern, tests):
    """The line for a pattern without tests."""
    names = sorted({name for _, name in tests})
    near = difflib.get_close_matches(pattern, names, 3, 0.4)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return (f"test_one.py: expected a regular expression that matches one of {len(names)} tests (Suite.Name, "
            f"Class.test_name or a file under tests/), got '{pattern}'{hint}")


def main():
    parser = argparse.ArgumentParser(description="Runs the tests that match.")
    parser.add_argument("pattern", help="a regular expression, e.g. Gelu or tests/io")
    parser.add_argument("--list", action="store_true", help="print the commands, run none")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    options = parser.parse_args()
    tests = list(tests_of(options.root))
    try:
        pattern = re.compile(options.pattern)
    except re.error as error:
        parser.error(f"expected a regular expression, got '{options.pattern}': {error}")
    found = defaultdict(list)
    for path, name in tests:
        if options.pattern and pattern.search(f"{path.as_posix()} {name}"):
            found[path].append(name)
    if not found:
        print(nothing(options.pattern, tests), file=sys.stderr)
        return 2
    targets, runs = commands_of(options.root, found)
    if targets:
        runs.insert(0, ["cmake", "--build", "build", "-j", os.environ.get("JOBS", str(os.cpu_count())), "--target",
                        *targets])
    failed = 0
    environment = {**os.environ, "EPILOGUE_CACHE_DIR": "off", "PYTHONPATH": "build/python",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    for command in runs:
        print("$", " ".join(command), flush=True)
        if options.list:
            continue
        try:
            code = subprocess.run(command, cwd=options.root, env=environment, check=False).returncode
        except FileNotFoundError:
            print(f"test_one.py: expected {command[0]}, got none: `make test` makes it", file=sys.stderr)
            code = 1
        if code != 0 and command[0] == "cmake":
            return 1
        failed += code != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
