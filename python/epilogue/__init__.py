# SPDX-License-Identifier: Apache-2.0
"""Profile it, explain it, fuse it: epilogue from Python.

The trace half reads traces of PyTorch (or of this library) and says what they mean::

    import epilogue
    print(epilogue.explain("trace.json.gz"))

Nothing here needs torch. What needs the compiled extension is loaded when it is first used, so
that the pure Python parts (``epilogue.torch``) can be imported from a source tree too.
"""

import importlib
import typing

# Public name -> the module that defines it.
_HOME: "dict[str, str]" = {}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> typing.Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> "list[str]":
    return sorted({*globals(), *_HOME})
