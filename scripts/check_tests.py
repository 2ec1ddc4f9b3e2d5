#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Finds tests that assert nothing, C++ tests outside their file's namespace, and helpers without a use: check_tests.py [ROOT]

Every TEST of tests/**/*.cpp and every test method of tests/**/*_test.py must assert something that is
no constant, itself or in a helper that it names: a function, lambda or macro of its file, of the
headers of tests/ that this includes, or of the .cpp files beside those. The files of one executable
are compiled together: each has its names in a namespace called like the file (views_test in
views_test.cpp). A compiler does not say which functions of such a namespace nobody calls; this does.
Exit 1 with one line per test, helper or file.
"""
import ast
import re
import sys
from pathlib import Path

ASSERTS = re.compile(r"\b(?:EXPECT|ASSERT)_\w+\s*\(|\b(?:ADD_FAILURE|ADD_FAILURE_AT|FAIL)\s*\(")
# Assertions that hold whatever the code does.
CONSTANT = re.compile(
    r"\b(?:EXPECT|ASSERT)_(?:TRUE\s*\(\s*(?:true|1)|FALSE\s*\(\s*(?:false|0)"
    r"|(?:EQ|LE|GE)\s*\(\s*(\w+)\s*,\s*\1)\s*\)|\b(?:SUCCEED|GTEST_SUCCEED)\s*\(")
TEST = re.compile(r"^[ \t]*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)\s*\{",
                  re.MULTILINE)
# name(...) {, also with a trailing return type, specifiers or initialisers; name = [...](...) {.
FUNCTION = re.compile(
    r"(~?\b\w+)\s*\([^;{}]*\)\s*(?:(?:const|noexcept|override|final)\s*)*(?:->[\w:<>,&* ]+|:[^;{}]*)?\{")
LAMBDA = re.compile(r"\b(\w+)\s*=\s*\[[^\]]*\]\s*(?:\([^;{}]*\)\s*)?(?:mutable|->[\w:<>,&* ]+|\s)*\{")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|.)*)", re.MULTILINE)
NAMESPACE = re.compile(r"^namespace ([\w:]*) ?\{", re.MULTILINE)
HELPER = re.compile(r"^(?!TEST|template|static_assert)[A-Za-z][\w:<>,&* ]*[ &*>](\w+)\([^;{}]*\)(?: const)? \{", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
KEYWORDS = {"if", "for", "while", "switch", "catch", "return", "sizeof", "TEST", "TEST_F", "TEST_P"}
QUOTED = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
                    r"|//[^\n]*|/\*(?:.|\n)*?\*/")


def plain(text):
    """C++ without comments, and with empty strings, on the same lines."""
    return QUOTED.sub(lambda m: ('""' if m[0][0] in "R\"'" else "") + "\n" * m[0].count("\n"), text)


def block(text, start):
    """The text between the brace that ends at `start` and its partner."""
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at]
    return text[start:]


def asserts(body, helpers):
    if ASSERTS.search(CONSTANT.sub("", body)):
        return True
    return any(name in helpers for name in re.findall(r"~?\b\w+", body))


class Sources:
    """The C++ files of tests/."""

    def __init__(self, root):
        self.tests = root / "tests"
        self.texts = {}

    def text(self, file):
        if file not in self.texts:
            self.texts[file] = file.read_text(encoding="utf-8")
        return self.texts[file]

    def reachable(self, file):
        """The file, the headers of tests/ that it includes, and the sources beside those."""
        seen, todo = [], [file]
        while todo:
            current = todo.pop()
            if current in seen or not current.is_file():
                continue
            seen.append(current)
            for name in INCLUDE.findall(self.text(current)):
                for header in (current.parent / name, self.tests / name):
                    if header.is_file():
                        todo += [header.resolve(), header.resolve().with_suffix(".cpp")]
        return seen

    def helpers(self, file):
        """The names of helpers that assert, themselves or in others."""
        bodies = []
        for source in self.reachable(file):
            text = plain(self.text(source))
            bodies += [(m[1], m[2]) for m in MACRO.finditer(text)]
            for pattern in (FUNCTION, LAMBDA):
                bodies += [(m[1], block(text, m.end())) for m in pattern.finditer(text)
                           if m[1] not in KEYWORDS]
        known = set()
        while True:
            # An object whose destructor asserts is named by its class.
            found = {name.lstrip("~") for name, body in bodies if asserts(body, known)}
            if found <= known:
                return known
            known |= found


def check_cpp(sources, file):
    text = plain(sources.text(file))
    helpers = None
    for test in TEST.finditer(text):
        body = block(text, test.end())
        if asserts(body, set()):
            continue
        if helpers is None:
            helpers = sources.helpers(file)
        if not asserts(body, helpers):
            yield text.count("\n", 0, test.start(2)) + 1, f"{test[1]}.{test[2]}"


def outside_namespace(text, file):
    """The lines of tests that are not in a namespace called like the file."""
    own = [(m.end(), m.end() + len(block(text, m.end()))) for m in NAMESPACE.finditer(text)
           if m[1].split("::")[-1] == file.stem]
    for test in TEST.finditer(text):
        if not any(start <= test.start() < end for start, end in own):
            yield text.count("\n", 0, test.start(1)) + 1


def unused_helpers(text):
    """Lines and names of functions that the file defines and never names again."""
    for helper in HELPER.finditer(text):
        if helper[1] not in KEYWORDS | {"PrintTo"} and len(re.findall(rf"\b{helper[1]}\b", text)) == 1:
            yield text.count("\n", 0, helper.start(1)) + 1, helper[1]


def calls(node):
    for child in ast.walk(node):
        if isinstance(child, ast.Call):
            yield child.func.attr if isinstance(child.func, ast.Attribute) else getattr(
                child.func, "id", "")


def check_python(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    tests = [f for f in functions if f.name.startswith("test")]
    for node in ast.walk(tree):
        beside = file.with_name(f"{node.module}.py") if isinstance(node, ast.ImportFrom) else None
        if beside is not None and beside.is_file():
            functions += [n for n in ast.walk(ast.parse(beside.read_text(encoding="utf-8")))
                          if isinstance(n, ast.FunctionDef)]

    def ok(function, known):
        return any(isinstance(n, (ast.Assert, ast.Raise)) for n in ast.walk(function)) or any(
            name.startswith("assert") or name == "fail" or name in known for name in calls(function))

    known = set()
    while found := {f.name for f in functions if f.name not in known and ok(f, known)}:
        known |= found
    for function in tests:
        if function.name not in known:
            yield function.lineno, function.name


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    sources = Sources(root)
    complaints, tests = [], 0
    for file in sorted((root / "tests").rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix == ".cpp":
            text = plain(sources.text(file))
            in_file = len(TEST.findall(text))
            tests += in_file
            found = check_cpp(sources, file)
            if in_file:
                complaints += [f"{path}:{line}: expected the test in a namespace {file.stem}"
                               for line in outside_namespace(text, file)]
                complaints += [f"{path}:{line}: nothing uses {name}" for line, name in unused_helpers(text)]
        elif file.name.endswith("_test.py"):
            tests += 1
            found = check_python(file)
        else:
            continue
        complaints += [f"{path}:{line}: {name} asserts nothing" for line, name in found]
    if tests == 0:
        complaints = [f"{root}: no tests found"]
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
