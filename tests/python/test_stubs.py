# SPDX-License-Identifier: Apache-2.0
"""The stubs of the extension say what it has: names by mypy's stubtest, parameters by the signatures that
nanobind keeps."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

import epilogue
from epilogue import _core

pytestmark = pytest.mark.skipif(not _core.has_engine, reason="the stubs describe the engine too")

# What stubtest cannot see through, of every class and function of nanobind.
NANOBINDS_OWN = re.compile(
    r"is not a function$|metaclass differs$|disjoint base at runtime"
    r"|\.__init__ is inconsistent, stub does not have \*args parameter"
)


def test_the_stubs_have_the_names_of_the_extension(tmp_path):
    pytest.importorskip("mypy.stubtest", reason="mypy is not installed")
    result = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--concise", "epilogue._core"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    lines = [line for line in result.stdout.splitlines() if not NANOBINDS_OWN.search(line)]
    assert (lines, result.stderr) == ([], "")


def parameters(function):
    """["x", "dtype"] and the class of what is returned."""
    a = function.args
    named = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return named, function.returns and ast.unparse(function.returns).partition("[")[0]


def kept(function):
    """The signatures of a function of nanobind, one for each overload."""
    found = []
    for signature, *_ in function.__nb_signature__:
        # Defaults are numbered, and classes of this module are named in full.
        text = re.sub(r"\\(\d+)", "...", signature).replace("epilogue._core.", "").replace("epilogue.", "")
        text = re.sub(r"ndarray\[[^\]]*\]", "NDArray", text)
        text = re.sub(r"collections\.abc\.|typing\.|numpy\.typing\.", "", text)
        found.append(parameters(ast.parse(f"{text}: ...").body[0]))
    return found


def stubbed(body):
    """{"zeros": [signature of each overload]} of the functions of a module or class."""
    found = {}
    for node in body:
        is_property = any(
            ast.unparse(d) == "property" or ast.unparse(d).endswith(".setter")
            for d in getattr(node, "decorator_list", [])
        )
        if isinstance(node, ast.FunctionDef) and not is_property:
            found.setdefault(node.name, []).append(parameters(node))
    return found


def names_of(signatures):
    return sorted(names for names, _ in signatures)


def test_the_stubs_have_the_parameters_of_the_extension():
    stub = ast.parse(pathlib.Path(epilogue.__path__[0], "_core.pyi").read_text(encoding="utf-8"))
    compared = 0
    scopes = [(_core, stub.body)]
    scopes += [(getattr(_core, c.name), c.body) for c in stub.body if isinstance(c, ast.ClassDef)]
    for owner, body in scopes:
        for name, signatures in stubbed(body).items():
            function = getattr(owner, name)
            if not hasattr(function, "__nb_signature__"):
                continue
            actual = kept(function)
            if name == "from_dlpack":  # two overloads of one type
                actual = actual[:1]
            assert names_of(signatures) == names_of(actual), (owner, name)
            # Below Python 3.13 nanobind takes the type of capsules from typing_extensions.
            results = {r.removeprefix("typing_extensions.").removeprefix("types.") for _, r in actual}
            assert {r for _, r in signatures} == results, (owner, name)
            compared += 1
    assert compared > 40
