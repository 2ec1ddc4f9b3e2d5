# SPDX-License-Identifier: Apache-2.0
"""The examples run, and say what they found; the notebook's outputs are those of runs."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import ROOT

import epilogue
from epilogue import _core

pytest.importorskip("numpy")
EXAMPLES = ROOT / "examples" / "python"
SCRIPTS = sorted(EXAMPLES.glob("0[1-3]_*.py"))  # what follows needs torch: tests/torch


@pytest.mark.skipif(not _core.has_engine, reason="this build holds the trace half only")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_an_example_finds_what_it_expects(script, tmp_path):
    package = pathlib.Path(epilogue.__file__).absolute().parents[1]
    environment = os.environ | {"PYTHONPATH": str(package)}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    expected, _, found = done.stdout.partition("Expected before it runs:")
    assert expected and "What to know about this trace first" in found


def test_there_are_three():
    assert len(SCRIPTS) == 3


def test_the_notebook_was_run_to_its_end():
    (path,) = EXAMPLES.glob("*.ipynb")
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert len(outputs) >= 4
    assert all(output["output_type"] != "error" for output in outputs)
    assert any("text/html" in output.get("data", {}) for output in outputs)
