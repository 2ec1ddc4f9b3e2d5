# SPDX-License-Identifier: Apache-2.0
"""tune="measure": whether a shape runs fused or as PyTorch's own ops, and in training with whose
products, kept on disk.

The file is torch-choices.json in EPILOGUE_CACHE_DIR, or in epilogue/ of the user's cache folder;
EPILOGUE_CACHE_DIR=off keeps nothing.
"""

import json
import os
import pathlib
import platform
import statistics
import tempfile
import threading
import typing

import torch

from .timing import interleaved

_lock = threading.Lock()
_known: "dict[str, bool | str] | None" = None
_ROUNDS = 7


def _file() -> "pathlib.Path | None":
    folder = os.environ.get("EPILOGUE_CACHE_DIR")
    if folder == "off":
        return None
    if folder:
        return pathlib.Path(folder) / "torch-choices.json"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(home) / "epilogue" / "torch-choices.json"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def key(plan: str, shape: str, rows: int, dtype: torch.dtype, bits: str) -> str:
    """Rows count by powers of two: prompts of many lengths share a choice."""
    bucket = 1 << max(rows - 1, 0).bit_length()
    parts = [_processor(), f"torch {torch.__version__}", f"{torch.get_num_threads()} threads"]
    return " | ".join([*parts, plan, shape, f"rows {bucket}", str(dtype), bits or "exact"])


def _load() -> "dict[str, bool | str]":
    global _known
    if _known is None:
        _known = {}
        path = _file()
        try:
            stored = json.loads(path.read_text()) if path else {}
        except (OSError, ValueError):
            stored = {}  # absent, or cut short: measured again
        if isinstance(stored, dict):
            _known = {k: v for k, v in stored.items() if isinstance(k, str) and isinstance(v, (bool, str))}
    return _known


def known(name: str) -> "bool | None":
    with _lock:
        found = _load().get(name)
    return found if isinstance(found, bool) else None


def known_of(name: str, names: "typing.Iterable[str]") -> "str | None":
    """Which of `names` was the fastest."""
    with _lock:
        found = _load().get(name)
    return found if isinstance(found, str) and found in names else None


def _store(name: str, choice: "bool | str") -> None:
    with _lock:
        _load()[name] = choice
        path = _file()
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
                json.dump(_load(), file, indent=1, sort_keys=True)
            os.replace(file.name, path)
        except OSError:
            pass  # a cache folder that cannot be written keeps nothing


def forget() -> None:
    """Reads the file again at the next use."""
    global _known
    with _lock:
        _known = None


def measure(name: str, own: "typing.Callable[[], typing.Any]", fused: "typing.Callable[[], typing.Any]") -> bool:
    """Times both, interleaved, and keeps whether the fused one's median is lower."""
    times = interleaved({"own": own, "fused": fused}, seconds=0, rounds=_ROUNDS)  # one call a round
    faster = statistics.median(times["fused"]) <= statistics.median(times["own"])
    _store(name, faster)
    return faster


def measure_all(name: str, calls: "dict[str, typing.Callable[[], typing.Any]]") -> str:
    """Times all, interleaved, and keeps which has the lowest median."""
    times = interleaved(calls, seconds=0, rounds=_ROUNDS)
    fastest = min(times, key=lambda which: statistics.median(times[which]))
    _store(name, fastest)
    return fastest
