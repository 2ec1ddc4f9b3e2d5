#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuses one qualified name that two files define: check_definitions.py [ROOT]

A program that has two definitions of one name is ill-formed, and no compiler says so: each file is
compiled with the definition that it sees, and the linker keeps one of them for all. Types count
wherever they are defined, constants, aliases and functions where two headers define them. A name in
an unnamed namespace belongs to its file, but the sources of a library are compiled several at a
time (cmake/EpilogueTargets.cmake): two of them must not give it two meanings, nor two overloads that a
call would choose from. Aliases may repeat. Exit 1 with one line per name.
"""
import re
import sys
from pathlib import Path

HEADERS = {".h", ".cuh"}
SOURCES = {".cpp", ".cu"}
FOLDERS = ("include", "src", "tools")

# Folders that stand for each other: a build compiles one of each row.
ALTERNATIVES = [
    ("src/backend/cuda/", "src/backend/no_cuda/"),
    ("src/profile/cupti/", "src/profile/no_cupti/"),
]

# Sources that are always compiled one by one.
ALONE = "src/backend/cpu/simd/"

SKIPPED = re.compile(
    r"""//[^\n]*|/\*.*?\*/                     # comments
      | R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"   # raw strings
      | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'
      | ^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*         # directives""",
    re.DOTALL | re.MULTILINE | re.VERBOSE)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|::|\[\[|\]\]|->|\S")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*$")
TYPE_KEYS = {"struct", "class", "union", "enum"}
OPEN, CLOSE = {"(", "[", "[["}, {")", "]", "]]"}


def tokens_of(text):
    """The tokens, without comments and directives; a string is one token. Numbers keep their marks."""
    def blank(match):
        return ' "" ' if match.group(0)[0] in "R\"'" else " "
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "", text)
    return TOKEN.findall(SKIPPED.sub(blank, text))


def end_of_block(tokens, i):
    """The index after the brace that closes the one at i."""
    depth = 0
    while i < len(tokens):
        depth += {"{": 1, "}": -1}.get(tokens[i], 0)
        i += 1
        if depth == 0:
            return i
    return i


def without_template(statement):
    """The statement after its template heads; a specialisation keeps its arguments elsewhere."""
    while statement and statement[0] == "template":
        depth, i = 0, 1
        while i < len(statement):
            depth += {"<": 1, ">": -1}.get(statement[i], 0)
            i += 1
            if depth == 0:
                break
        statement = statement[i:]
        if statement and statement[0] == "requires":
            return []  # constraints tell overloads apart
    return statement


def type_name(statement):
    """The name that `struct X : Base` defines, with the arguments of a specialisation."""
    i = next(i for i, token in enumerate(statement) if token in TYPE_KEYS) + 1
    if i < len(statement) and statement[i] in ("class", "struct"):
        i += 1
    while i < len(statement) and statement[i] in ("[[", "alignas"):
        while statement[i] not in ("]]", ")"):
            i += 1
        i += 1
    name = []
    while i < len(statement) and statement[i] not in (":", "final"):
        name.append(statement[i])
        i += 1
    return "".join(name)


def at_depth_zero(statement):
    """(index, token) outside of parentheses, brackets and, roughly, template arguments."""
    depth = 0
    for i, token in enumerate(statement):
        if token in CLOSE:
            depth -= 1
        if depth == 0:
            yield i, token
        if token in OPEN:
            depth += 1


def is_type(statement):
    """Whether it defines a type: a key before any parenthesis or initialiser."""
    for _, token in at_depth_zero(statement):
        if token in ("(", "="):
            return False
        if token in TYPE_KEYS:
            return True
    return False


def name_before(statement, i):
    """The identifier that ends before i, array bounds skipped."""
    i -= 1
    while i >= 0 and statement[i] == "]":
        while i >= 0 and statement[i] != "[":
            i -= 1
        i -= 1
    if i < 0 or not IDENTIFIER.match(statement[i]):
        return None
    if i > 0 and statement[i - 1] == "::":
        return None  # a member that is defined elsewhere
    return statement[i]


def definition(statement, has_body):
    """("type" | "value" | "function", name) of a statement, or None where it defines nothing."""
    statement = without_template(statement)
    if not statement or statement[0] in ("friend", "static_assert", "extern"):
        return None
    if statement[0] == "using":
        return ("value", statement[1]) if len(statement) > 2 and statement[2] == "=" else None
    if has_body and is_type(statement):
        name = type_name(statement)
        return ("type", name) if name and "::" not in name else None
    places = list(at_depth_zero(statement))
    equals = next((i for i, token in places if token == "="), None)
    paren = next((i for i, token in places if token == "(" and
                  statement[:i].count("<") <= statement[:i].count(">")), None)  # not of an argument
    if "operator" in statement:
        return None
    if paren is not None and (equals is None or paren < equals):
        name = name_before(statement, paren)
        if not has_body or name is None:
            return None
        end = next(i for i, token in places if token == ")" and i > paren)
        return "function", f"{name}({' '.join(statement[paren + 1:end])})"
    if equals is None and not has_body:
        return None  # a declaration without a value: rare, and the linker sees it
    name = name_before(statement, equals if equals is not None else len(statement))
    return ("value", name) if name else None


def namespace_of(statement):
    """The names a `namespace a::b` opens; None for an unnamed one."""
    names = [t for t in statement[statement.index("namespace") + 1:] if IDENTIFIER.match(t)]
    return names or None


def qualified(found, statement, scopes):
    """The definitions of one statement, for definitions()."""
    scope = [s for s in scopes if s]
    if None not in scopes:
        if found:
            yield found[0], "::".join(scope + [found[1]])
        return
    if found is None and "(" not in statement and not statement[:1] == ["using"]:
        name = name_before(statement, len(statement)) if len(statement) > 2 else None
        found = ("value", name) if name and statement[0] == "thread_local" else None
    if found and statement[0] != "using":
        yield "unnamed", "::".join(scope + [found[1].split("(")[0]])


def definitions(text):
    """Yields (kind, qualified name) of what a file defines; the kind "unnamed" is that of names in
    unnamed namespaces, without a function's parameters."""
    tokens = tokens_of(text)
    scopes, statement, i = [], [], 0
    while i < len(tokens):
        token = tokens[i]
        if token == "{" and statement and "namespace" in statement[:2]:
            names = namespace_of(statement)
            scopes.append("::".join(names) if names else None)
            statement, i = [], i + 1
        elif token == "{" and statement[:1] == ["extern"]:
            scopes.append("")
            statement, i = [], i + 1
        elif token == "{" and any(t in OPEN for t in statement) and \
                sum(t in OPEN for t in statement) > sum(t in CLOSE for t in statement):
            i = end_of_block(tokens, i)  # an argument: the statement goes on
        elif token == "{":
            found = definition(statement, has_body=True)
            yield from qualified(found, statement, scopes)
            i = end_of_block(tokens, i)
            # `struct X {...};`, `int x{1};` and `int x[] = {...};` end with a semicolon.
            statement = []
            while i < len(tokens) and (found is None or found[0] != "function") and \
                    tokens[i] in (";", ","):
                i += 1
        elif token == "}":
            if scopes:
                scopes.pop()
            statement, i = [], i + 1
        elif token == ";":
            found = definition(statement, has_body=False)
            yield from qualified(found, statement, scopes)
            statement, i = [], i + 1
        else:
            statement.append(token)
            i += 1


def is_alternative(a, b):
    return any(
        any(x in a and y in b for x, y in ((row[0], row[1]), (row[1], row[0])))
        for row in ALTERNATIVES)


def library_of(root, path):
    """The folder of the library that a source belongs to: the nearest with a CMakeLists.txt, or None."""
    folders = [folder for folder in Path(path).parents if (root / folder / "CMakeLists.txt").exists()]
    return folders[0].as_posix() if folders else None


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    places = {}
    files = 0
    for top in FOLDERS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in HEADERS | SOURCES:
                continue
            files += 1
            path = file.relative_to(root).as_posix()
            for kind, name in definitions(file.read_text(encoding="utf-8")):
                if kind == "unnamed":
                    library = library_of(root, path)
                    if file.suffix != ".cpp" or path.startswith(ALONE) or library is None:
                        continue
                    name = f"{name} of {library}"
                if kind in ("type", "unnamed") or file.suffix in HEADERS:
                    known = places.setdefault((kind, name), [])
                    if path not in known:
                        known.append(path)
    if not files:
        print(f"check_definitions.py: no sources under {root}")
        return 1
    complaints = 0
    for (kind, name), known in sorted(places.items()):
        for i, path in enumerate(known[1:], start=1):
            if not is_alternative(known[0], path):
                print(f"{path}: {kind} {name} is defined in {known[0]} too")
                complaints += 1
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
