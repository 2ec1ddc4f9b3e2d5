#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the wording of comments, strings and pages: check_words.py [ROOT]

Sentences begin with their subject. Exit 1 with one line per place that a pattern below finds. Folders that are not yet
clean are listed.
"""
import re
import sys
from pathlib import Path

TOPS = ("bench", "cmake", "docs", "examples", "include", "python", "scripts", "src", "tests", "tools")
SUFFIXES = {".cpp", ".cu", ".cuh", ".cmake", ".h", ".inc", ".js", ".md", ".py", ".sh", ".txt"}

# Where a sentence begins: a comment, a docstring, a list's item, behind a full stop. Headings
# below the first are no sentences, and links name them.
BEGIN = r'(?:// |\. |"""|^\s*\* |^\s*# |\| )'
# (pattern, reason)
PATTERNS = [
    (re.compile(BEGIN + r"Of "), "a sentence begins with its subject, not with 'Of'"),
    (re.compile(BEGIN + r"What "), "a sentence begins with its subject, not with 'What'"),
    (re.compile(r"\btold\b"), "'told': name who says what"),
    (re.compile(r"\bas of\b(?! version)"), "'as of': name the thing ('See X', 'X's')"),
    (re.compile(r"\bwhat stands\b", re.I), "'what stands': name the thing"),
]

# Files that quote what they look for, and data.
LEFT_OUT = re.compile(r"(?:^scripts/check_words\.py|^tests/layers/check_words_test\.py|^tests/data/|/golden/|/corpus/)")

# Folders and files that are not yet clean. A commit that mends one takes it off.
NOT_YET = {
    "cmake/EpilogueShared.cmake", "docs/architecture.md", "docs/explain.md", "docs/findings.md", "docs/pytorch.md",
    "include/epilogue/compile.h", "include/epilogue/compile_step.h", "include/epilogue/fused.h",
    "include/epilogue/fusion_choices.h", "include/epilogue/mlp_gradient.h", "include/epilogue/trace",
    "python/epilogue", "python/epilogue_torch", "python/src", "src/backend",
    "src/core/capabilities.h", "src/core/fused_call.h", "src/core/row_chain.h", "src/explain", "src/graph",
    "src/nn/fused.cpp", "src/nn/fused_spec.h", "src/passes", "src/plan", "tests/backend",
    "tests/explain", "tests/nn/fused_test.cpp", "tests/passes", "tests/plan", "tests/python", 
    "tests/torch",
}


def places(text):
    """Yields (line, reason) of one file."""
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, reason in PATTERNS:
            if pattern.search(line):
                yield number, reason


def is_excepted(path):
    return any(path == name or path.startswith(name + "/") for name in NOT_YET)


def check(root):
    """Yields complaints."""
    files = [f for top in TOPS for f in sorted((root / top).rglob("*")) if f.suffix in SUFFIXES]
    if not files:
        yield f"check_words.py: no files under {root}"
    for file in files:
        path = file.relative_to(root).as_posix()
        if not LEFT_OUT.search(path) and not is_excepted(path):
            for number, reason in places(file.read_text(encoding="utf-8")):
                yield f"{path}:{number}: {reason}"


def main():
    complaints = list(check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()))
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
