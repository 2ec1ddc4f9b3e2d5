# SPDX-License-Identifier: Apache-2.0
"""Prints where torch and epilogue are installed, for CMake: "NAME;FOLDER;VERSION" a line.

A build by pip runs in an environment of its own, which hides the user's packages: its PYTHONPATH leads to build
requirements. Python's -I ignores that variable, so that the interpreter shows the environment that the package is for.
Other installers make the build another environment; there VIRTUAL_ENV or CONDA_PREFIX names the user's.
"""

import json
import os
import subprocess
import sys

ASK = """
import importlib.metadata, importlib.util, json
found = {}
for name in ("torch", "epilogue"):
    spec = importlib.util.find_spec(name)
    if spec and spec.submodule_search_locations:
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found[name] = spec.submodule_search_locations[0], version.split("+")[0]
print(json.dumps(found))
"""


def interpreters():
    yield [sys.executable]
    yield [sys.executable, "-I"]
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        python = os.path.join(os.environ.get(variable, ""), "bin", "python")
        if os.environ.get(variable) and os.path.exists(python):
            yield [python, "-I"]


def main():
    found = {}
    for python in interpreters():
        answer = subprocess.run([*python, "-c", ASK], capture_output=True, text=True, cwd="/", check=False)
        if answer.returncode == 0:
            found = {**json.loads(answer.stdout), **found}
    for name, (folder, version) in found.items():
        print(f"{name};{folder};{version}")


if __name__ == "__main__":
    main()
