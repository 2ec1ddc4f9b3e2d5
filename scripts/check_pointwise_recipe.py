#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds CONTRIBUTING.md's recipe of a pointwise function to the sources: check_pointwise_recipe.py [ROOT]

The files that the recipe lists must be those of src/ and include/ that name its example, and every
line of the diff that it quotes must stand in its file. Exit 1 with one line per difference.
"""
import re
import sys
from pathlib import Path

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
START = "**A pointwise function.**"


def recipe_of(text):
    """The recipe's text, up to the next one."""
    rest = text[text.index(START) + len(START) :]
    return rest[: re.search(r"^\*\*", rest, re.M).start()]


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


def check(root):
    """Yields complaints."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    if START not in text:
        yield f'CONTRIBUTING.md: no recipe "{START}"'
        return
    recipe = recipe_of(text)
    example = re.search(r"For\s+`(\w+)`", recipe)
    if not example:
        yield "CONTRIBUTING.md: the recipe names no example"
        return
    listed = listed_files(recipe)
    naming = files_naming(root, example.group(1))
    for file in sorted(naming - listed):
        yield f"{file}: names {example.group(1)}, but the recipe does not list it"
    for file in sorted(listed - naming):
        yield f"{file}: listed by the recipe, but does not name {example.group(1)}"
    quoted = set()
    for file, line in quoted_lines(recipe):
        quoted.add(file)
        if file not in listed:
            yield f"{file}: quoted by the recipe, but not listed"
        elif line not in (root / file).read_text(encoding="utf-8").splitlines():
            yield f"{file}: has no line that the recipe quotes: {line.strip()}"
    for file in sorted(listed - quoted):
        yield f"{file}: listed by the recipe, but its diff does not quote it"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    complaints = list(check(root))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
