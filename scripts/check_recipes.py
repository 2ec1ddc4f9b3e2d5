#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the recipes of CONTRIBUTING.md to the sources: check_recipes.py [ROOT]

Every line that a recipe's diff adds must stand in the file that the diff names, and the diff must
touch no more files than the table below allows: a recipe that has grown is a design that has. The
files that the recipe of a pointwise function lists, and those that the diffs of a fused pattern and of a
finding touch, must be those of src/ and include/ that name the example. Exit 1 with one line per difference.
"""
import re
import sys
from pathlib import Path

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
POINTWISE = "A pointwise function"
PATTERN = "A fused pattern"
FINDING = "A finding"
# Recipe -> the most files that its diff may touch, tests and CMake lists apart.
MOST_FILES = {"An op": 3, POINTWISE: 5, "A pass": 2, PATTERN: 5, FINDING: 2, "A section": 2, "A subcommand": 3}


def recipe_of(text, name):
    """The recipe's text, up to the next one; None where there is none."""
    start = text.find(f"**{name}.**")
    if start < 0:
        return None
    rest = text[start + len(name) + 5 :]
    end = re.search(r"^(?:\*\*|## )", rest, re.M)
    return rest[: end.start()] if end else rest


def listed_files(recipe):
    return set(re.findall(r"^\* `((?:src|include)/[^`]+)`", recipe, re.M))


def files_naming(root, name):
    return {
        file.relative_to(root).as_posix()
        for top in ("src", "include")
        for file in (root / top).rglob("*")
        if file.suffix in SUFFIXES and name in file.read_text(encoding="utf-8").lower()
    }


def quoted_lines(recipe):
    """(file, line) for every added line of the diff."""
    diff = re.search(r"```diff\n(.*?)```", recipe, re.S)
    file = None
    for line in diff.group(1).splitlines() if diff else []:
        if line.startswith("+"):
            yield file, line[1:]
        else:
            file = line.strip()


def check_diff(root, name, recipe):
    """Yields complaints about what a recipe's diff quotes."""
    quoted = {}
    for file, line in quoted_lines(recipe):
        quoted.setdefault(file, []).append(line)
    if not quoted:
        yield f"CONTRIBUTING.md: the recipe {name!r} quotes no diff"
    if len(quoted) > MOST_FILES[name]:
        yield (f"CONTRIBUTING.md: the recipe {name!r} touches {len(quoted)} files, "
               f"the limit is {MOST_FILES[name]}")
    for file, lines in quoted.items():
        have = (root / file).read_text(encoding="utf-8").splitlines() if (root / file).is_file() else []
        for line in lines:
            if line not in have:
                yield f"{file}: has no line that the recipe {name!r} quotes: {line.strip()}"


def check_listed(root, recipe):
    """Yields complaints about the list of files of the recipe of a pointwise function."""
    example = re.search(r"For\s+`(\w+)`", recipe)
    if not example:
        yield f"CONTRIBUTING.md: the recipe {POINTWISE!r} names no example"
        return
    name = example.group(1)
    listed = listed_files(recipe)
    naming = files_naming(root, name)
    quoted = {file for file, _ in quoted_lines(recipe)}
    for file in sorted(naming - listed):
        yield f"{file}: names {name}, but the recipe does not list it"
    for file in sorted(listed - naming):
        yield f"{file}: listed by the recipe, but does not name {name}"
    for file in sorted(quoted ^ listed):
        yield f"{file}: either listed by the recipe or quoted by its diff, not both"


def check_finding(root, recipe):
    """Yields complaints about the files that name the finding of the recipe's diff in any spelling."""
    quoted = list(quoted_lines(recipe))
    ids = [m.group(1) for _, line in quoted if (m := re.search(r'\.id = "([\w-]+)"', line))]
    if not ids:
        yield f"CONTRIBUTING.md: the recipe {FINDING!r} quotes no id"
        return
    # plain-attention, plain_attention, kPlainAttentionRule
    naming = set().union(*(files_naming(root, ids[0].replace("-", joint)) for joint in ("-", "_", "")))
    for file in sorted(naming ^ {file for file, _ in quoted}):
        yield f"{file}: either names {ids[0]} or is quoted by the recipe, not both"


def check_pattern(root, recipe):
    """Yields complaints about the engine's files that name the pattern of the recipe's diff."""
    quoted = list(quoted_lines(recipe))
    names = [m.group(1) for _, line in quoted if (m := re.search(r'\.name = "epilogue::(\w+)"', line))]
    if not names:
        yield f"CONTRIBUTING.md: the recipe {PATTERN!r} quotes no name"
        return
    # The folders that read traces know patterns of their own; a pattern's kernels, and what calls one by name, have as many
    # files as they need.
    others = ("src/explain/", "src/trace/", "include/epilogue/trace/", f"src/backend/cpu/{names[0]}/", "src/backend/cpu/simd/",
              "src/nn/", "include/epilogue/fused.h")  # fmt: skip
    naming = {file for file in files_naming(root, names[0]) if not file.startswith(others)}
    for file in sorted(naming ^ {file for file, _ in quoted if not file.startswith(others)}):
        yield f"{file}: either names {names[0]} or is quoted by the recipe, not both"


def check(root):
    """Yields complaints."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for name in MOST_FILES:
        recipe = recipe_of(text, name)
        if recipe is None:
            yield f"CONTRIBUTING.md: no recipe {name!r}"
            continue
        yield from check_diff(root, name, recipe)
        if name == POINTWISE:
            yield from check_listed(root, recipe)
        if name == PATTERN:
            yield from check_pattern(root, recipe)
        if name == FINDING:
            yield from check_finding(root, recipe)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    complaints = list(check(root))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
