# SPDX-License-Identifier: Apache-2.0
"""What the tests share: the command beside which the package is tested, and the traces."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "torch"
REAL = pathlib.Path(os.environ.get("EPILOGUE_TRACES", ROOT / ".." / "shared" / "traces"))

pytest_plugins = ["pytester"]


def traces(folder: pathlib.Path) -> "list[pathlib.Path]":
    return sorted(
        path
        for path in folder.rglob("*.json*")
        if path.name.endswith((".json", ".json.gz"))
        and ".averages." not in path.name
        and "expected" not in str(path.parent)
    )


def trace_params():
    """Every trace at hand; one skipped test says where real ones are missing."""
    params = [pytest.param(path, id=path.name) for path in traces(DATA)]
    if REAL.is_dir():
        params += [pytest.param(p, id=str(p.relative_to(REAL))) for p in traces(REAL)]
    else:
        skip = pytest.mark.skip(reason=f"no real traces at {REAL}")
        params.append(pytest.param(None, id="real", marks=skip))
    return params


@pytest.fixture(scope="session")
def command():
    """Runs the command: command("explain", path) -> CompletedProcess."""
    program = os.environ.get("EPILOGUE_COMMAND", str(ROOT / "build" / "epilogue"))

    def run(*arguments):
        return subprocess.run(
            [program, *map(str, arguments)], capture_output=True, text=True, errors="replace"
        )

    return run


@pytest.fixture
def eager():
    return str(DATA / "mlp_geglu_eager.json.gz")


@pytest.fixture
def compiled():
    return str(DATA / "mlp_geglu_compile.json.gz")
