# SPDX-License-Identifier: Apache-2.0
"""Traces that are kept, and what has become worse since."""

from __future__ import annotations

import dataclasses
import gzip
import os
import pathlib
import shutil
import statistics
import typing

from . import _trace
from ._source import TraceLike

# Numbers that repeat from run to run: one more is a regression.
COUNTS = ("kernels_per_step", "gemm_kernels_per_step", "ops_per_step", "kernels", "launches", "ops")
# With fewer steps nothing is known of the noise.
FEWEST_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Regression:
    """A quantity that became worse: counts grew, or every step is slower than every one before."""

    quantity: str
    before: float
    after: float

    def __str__(self) -> str:
        return f"{self.quantity}: {self.before:g} before, {self.after:g} now"


def _step_times(trace: TraceLike) -> "list[float]":
    return [step["wall_us"] for step in _trace.explain(trace).to_dict().get("steps", ())]


def _slower(before: "list[float]", after: "list[float]", tolerance_pct: float) -> "Regression | None":
    """Beyond noise: the two sets of times do not overlap, and the medians differ by enough."""
    if min(len(before), len(after)) < FEWEST_STEPS or min(after) <= max(before):
        return None
    medians = statistics.median(before), statistics.median(after)
    if medians[1] <= medians[0] * (1 + tolerance_pct / 100):
        return None
    return Regression("median step, us", *medians)


def regressions(
    before: TraceLike, after: TraceLike, *, tolerance_pct: float = 10
) -> "list[Regression]":
    """What became worse from one trace to another.

    Counts of kernels, launches and ops: any growth, per step where both traces have steps, else in
    all. Times: only where both traces have three steps or more, every step of `after` is slower
    than every step of `before`, and the medians differ by more than `tolerance_pct` per cent.
    """
    old, new = _trace.quantities(before), _trace.quantities(after)
    has_steps = bool(old["steps"]) and bool(new["steps"])
    found = []
    for name in COUNTS:
        if name.endswith("_per_step") != has_steps:
            continue
        a, b = old[name], new[name]
        if a is not None and b is not None and b > a:
            found.append(Regression(name, a, b))
    slower = _slower(_step_times(before), _step_times(after), tolerance_pct)
    return found + ([slower] if slower else [])


def keep(trace: TraceLike, path: pathlib.Path) -> None:
    """Puts a trace at `path`, compressed; it appears whole or not at all."""
    from ._source import Source

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        if isinstance(trace, (bytes, bytearray, memoryview)):
            content = bytes(trace)
        else:
            content = pathlib.Path(Source(trace).path).read_bytes()
        if content[:2] == b"\x1f\x8b":
            part.write_bytes(content)
        else:
            with gzip.open(part, "wb", compresslevel=6) as out:
                out.write(content)
        shutil.move(part, path)
    finally:
        part.unlink(missing_ok=True)


def file_name(node_id: str, label: str = "") -> str:
    """Of the trace that a test keeps: letters of its id, unique by what they leave out."""
    import hashlib
    import re

    whole = f"{node_id}/{label}" if label else node_id
    plain = re.sub(r"[^\w.\-\[\]]+", "_", whole)[-120:]
    digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{plain}-{digest}.json.gz"


def describe(found: "typing.Sequence[Regression]", path: pathlib.Path) -> str:
    """The message of a test that fails."""
    lines = "".join(f"\n  {r}" for r in found)
    return (
        f"worse than the baseline {path}:{lines}\n"
        "Accept it as the new baseline with --epilogue-update-baseline."
    )
