# SPDX-License-Identifier: Apache-2.0
"""find_installed.py PACKAGE: prints the folder of a package that is installed in this interpreter's environment.

pip builds in isolation: there `import torch` finds nothing, but the interpreter is still the environment's, and its
folders say where the package is. Prints nothing if there is none. Runs nothing of the package.
"""

import importlib.util
import os
import site
import sys
import sysconfig
from pathlib import Path


def folders():
    """Where packages may lie, the likeliest first."""
    for path in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        yield Path(path)
    environment = os.environ.get("VIRTUAL_ENV")  # a build tool's own interpreter is in another place
    if environment:
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        yield Path(environment) / "lib" / name / "site-packages"
    has_system_packages = sys.prefix == sys.base_prefix or (
        "include-system-site-packages = true" in _read(Path(sys.prefix) / "pyvenv.cfg"))
    if has_system_packages:
        yield Path(site.getusersitepackages())
        for scheme in ("posix_prefix", "deb_system"):
            if scheme in sysconfig.get_scheme_names():
                yield Path(sysconfig.get_path("purelib", scheme, {"base": sys.base_prefix}))
        yield Path(sys.base_prefix) / "lib/python3/dist-packages"


def _read(path):
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def find(package):
    """The folder of the package, or None."""
    spec = None
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        spec = importlib.util.find_spec(package)
    if spec and spec.submodule_search_locations:
        return Path(list(spec.submodule_search_locations)[0])
    for folder in folders():
        if (folder / package / "__init__.py").is_file():
            return folder / package
    return None


if __name__ == "__main__":
    found = find(sys.argv[1])
    if found:
        print(found)
