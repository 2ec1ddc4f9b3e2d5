# SPDX-License-Identifier: Apache-2.0
"""The build finds the torch that the package is for (python/epilogue_torch/find_torch.cmake), or says why it takes none."""

import os
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT

FIND_TORCH = ROOT / "python" / "epilogue_torch" / "find_torch.cmake"

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")


@pytest.fixture
def environment(tmp_path):
    """A virtual environment of its own, and its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    return tmp_path / "env", next((tmp_path / "env" / "lib").glob("python*")) / "site-packages"


def add_package(folder, name, version, with_headers=True):
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text("raise RuntimeError('a search must not run the package')\n")
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if with_headers:
        header = folder / name / "include" / "torch" / "csrc" / "stable" / "library.h"
        header.parent.mkdir(parents=True)
        header.touch()


def find(tmp_path, python, **variables):
    """(torch_missing, torch_folder, epilogue_folder) as the build sees them."""
    script = tmp_path / "find.cmake"
    script.write_text(
        f'include("{FIND_TORCH}")\nepi_find_packages()\n'
        'message("missing=${torch_missing}\ntorch=${torch_folder}\nepilogue=${epilogue_folder}")\n'
    )
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")}
    done = subprocess.run(
        ["cmake", f"-DPython_EXECUTABLE={python}", "-P", str(script)],
        capture_output=True,
        text=True,
        env={**env, **variables},
        check=True,
    )
    lines = dict(line.split("=", 1) for line in done.stderr.splitlines() if "=" in line)
    return lines["missing"], lines["torch"], lines["epilogue"]


def test_without_torch_it_says_so(tmp_path, environment):
    missing, torch, epilogue = find(tmp_path, environment[0] / "bin" / "python")
    assert missing == "expected torch 2.11 or later in the environment, got none"
    assert (torch, epilogue) == ("", "")


@pytest.mark.parametrize("version", ["1.13.1", "2.9.1", "2.10.0+cpu"])
def test_an_older_torch_is_named(tmp_path, environment, version):
    add_package(environment[1], "torch", version)
    missing, _, _ = find(tmp_path, environment[0] / "bin" / "python")
    assert missing == f"expected torch 2.11 or later in the environment, got {version.split('+')[0]}"


@pytest.mark.parametrize("version", ["2.11.0", "2.15.0+cu130", "3.0"])
def test_a_newer_one_is_taken(tmp_path, environment, version):
    add_package(environment[1], "torch", version)
    missing, torch, _ = find(tmp_path, environment[0] / "bin" / "python")
    assert (missing, torch) == ("", str(environment[1] / "torch"))


def test_a_torch_without_headers(tmp_path, environment):
    add_package(environment[1], "torch", "2.15.0", with_headers=False)
    missing, torch, _ = find(tmp_path, environment[0] / "bin" / "python")
    assert missing == f"expected the headers of torch 2.15.0 in {torch}/include, got none"


def test_it_looks_through_the_isolation_of_pip(tmp_path, environment):
    """pip shows a build its requirements alone, by PYTHONPATH and a sitecustomize that takes site-packages away."""
    add_package(environment[1], "torch", "2.15.0")
    add_package(environment[1], "epilogue", "0.1.0", with_headers=False)
    hidden = tmp_path / "isolation"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.path[:] = [p for p in sys.path if 'site-packages' not in p]\n")
    python = environment[0] / "bin" / "python"
    seen = subprocess.run([python, "-c", "import torch"], capture_output=True, text=True, env={"PYTHONPATH": str(hidden)})
    assert "No module named 'torch'" in seen.stderr
    missing, torch, epilogue = find(tmp_path, python, PYTHONPATH=str(hidden))
    assert (missing, torch, epilogue) == ("", str(environment[1] / "torch"), str(environment[1] / "epilogue"))


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_it_asks_the_environment_of_the_user(tmp_path, environment, variable):
    """Other installers build in an environment of their own, and leave the name of the user's."""
    add_package(environment[1], "torch", "2.15.0")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "build"], check=True)
    python = tmp_path / "build" / "bin" / "python"
    assert find(tmp_path, python)[0] == "expected torch 2.11 or later in the environment, got none"
    missing, torch, _ = find(tmp_path, python, **{variable: str(environment[0])})
    assert (missing, torch) == ("", str(environment[1] / "torch"))
