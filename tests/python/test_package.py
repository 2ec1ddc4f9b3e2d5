# SPDX-License-Identifier: Apache-2.0
"""The package itself: what it says it has, its stubs, what needs no extension."""

import ast
import pathlib
import subprocess
import sys

import epilogue
from epilogue import _core

SOURCES = pathlib.Path(epilogue.__file__).resolve().parent


def names_in(stub):
    tree = ast.parse(stub.read_text(encoding="utf-8"))
    names = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = set()
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = set()
    return names


def test_the_stubs_have_all_that_the_extension_has():
    stubs = names_in(SOURCES / "_core.pyi")
    native = {n for n in dir(_core) if not n.startswith("_")}
    assert len(native) > 10
    assert native - set(stubs) == set()
    if _core.has_engine:
        assert set(stubs) - native == set()
    for name in native:
        value = getattr(_core, name)
        if isinstance(value, type) and not issubclass(value, Exception):
            members = {n for n in vars(value) if not n.startswith("__")}
            assert members - stubs[name] == set(), name


def test_the_package_is_typed():
    assert (SOURCES / "py.typed").exists()


def test_public_names_are_documented_and_there():
    skipped = {"TraceLike"}
    if not _core.has_engine:
        skipped |= {n for n, home in epilogue._HOME.items() if home in ("._engine", "._profile")}
    for name in set(epilogue.__all__) - skipped:
        assert getattr(epilogue, name).__doc__, name
    assert set(epilogue.__all__) <= set(dir(epilogue))
    assert epilogue.__version__ == _core.version


def test_the_root_loads_no_extension():
    code = "import epilogue, sys; print('epilogue._core' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False False\n", done.stderr
