# SPDX-License-Identifier: Apache-2.0
"""The compiled ops of epilogue.torch: torch.ops.epilogue.prepare, fused_mlp and what releases them.

Nothing here is for users: ``import epilogue.torch``.
"""

import ctypes
import functools
import importlib.util
import pathlib
import typing

import torch


def _load_engine() -> None:
    """Loads the libepilogue.so that the package epilogue carries, if it does: one engine in the
    process. Else the ops find the one that they were built with."""
    spec = importlib.util.find_spec("epilogue")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for name in ("libepilogue_trace.so", "libepilogue.so"):
            for path in sorted(pathlib.Path(folder).glob(f"**/{name}.*.*"))[:1]:
                ctypes.CDLL(str(path))


def _load_ops() -> pathlib.Path:
    path = pathlib.Path(__file__).parent / "epilogue_torch_ops.so"
    if not path.exists():
        raise ImportError(f"the ops were not built: no {path}")
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(f"{path.name} does not load: {error}") from error
    return path


_load_engine()
library = _load_ops()


@functools.lru_cache(maxsize=None)
def releaser(name: str) -> "typing.Callable[[int], None]":
    """What gives back what has a number ("release", "release_experts", "host_group_close"): a function of the library, and no op. An op
    would go through whatever dispatch modes are on when the garbage collector runs, and torch.export fails if one comes while it
    enters a mode."""
    function = getattr(ctypes.CDLL(str(library)), f"epilogue_{name}")
    function.argtypes, function.restype = [ctypes.c_int64], None
    return typing.cast("typing.Callable[[int], None]", function)
