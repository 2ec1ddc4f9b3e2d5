# SPDX-License-Identifier: Apache-2.0
"""Runs a script of scripts/ on a tree of a few files, made for one test."""
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def run(script, files):
    """(exit code, standard output) of the script on {path: text}."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, SCRIPTS / script, folder], capture_output=True,
                              text=True, check=False)
    return done.returncode, done.stdout
