# SPDX-License-Identifier: Apache-2.0
"""What explain() gives: typed results."""

from __future__ import annotations

import dataclasses
import functools
import typing

from ._result import Result, dataframe, duration, html_table

if typing.TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing worth knowing, with what it rests on.

    Attributes:
        id: Stable, for scripts: ``"fusion"``. docs/findings.md has all.
        severity: ``"info"``, ``"warning"`` or ``"error"``.
        title: One line.
        evidence: Sentences with numbers.
        saving_us: Estimated time that acting on it would save over the whole trace, in
            microseconds; ``None`` if it is no advice. Savings of several findings may be the same
            time.
        cost_us: What it costs now, where a saving cannot be told.
        remains_us: What is left of it after acting, where that can be told.
        confidence: Of the saving: ``"low"``, ``"medium"`` or ``"high"``; ``None`` without one.
        action: What to do, one sentence; ``""`` if there is no advice.
        where: Whose time it is about: ``"host"`` or ``"device"``.
        sources: Of Triton kernels that it names, where the trace recorded it: ``kernel``,
            ``kernel_file``, ``kernel_files`` (different ones of that name), ``fused_ops``.
    """

    id: str
    severity: str
    title: str
    evidence: "tuple[str, ...]"
    saving_us: "float | None" = None
    cost_us: "float | None" = None
    remains_us: "float | None" = None
    confidence: "str | None" = None
    action: str = ""
    where: "str | None" = None
    sources: "tuple[dict[str, typing.Any], ...]" = ()


_FINDING_FIELDS = {f.name for f in dataclasses.fields(Finding)}


def _findings(data: "dict[str, typing.Any]") -> "tuple[Finding, ...]":
    return tuple(
        Finding(
            **{k: v for k, v in f.items() if k in _FINDING_FIELDS}
            | {"evidence": tuple(f["evidence"]), "sources": tuple(f.get("sources", ()))}
        )
        for f in data["findings"]
    )


class _WithFindings(Result):
    @functools.cached_property
    def findings(self) -> "tuple[Finding, ...]":
        """The verdict first, errors next, then by saving or cost: the largest first."""
        return _findings(self._data)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per finding. Raises :exc:`ImportError` without pandas."""
        return dataframe([dataclasses.asdict(f) for f in self.findings])

    def _repr_html_(self) -> str:
        rows = (
            (f.severity, f.title, duration(f.saving_us), duration(f.cost_us), " ".join(f.evidence))
            for f in self.findings
        )
        return html_table(("", "finding", "saves", "costs", "evidence"), rows)


class Explanation(_WithFindings):
    """What one trace means: ``epilogue explain TRACE``."""

    @property
    def verdict(self) -> str:
        """What bounds the run: ``"compute-bound"``, ``"overhead-bound"``, ``"cpu-only"``, ..."""
        return self._data["verdict"]

    @property
    def device(self) -> str:
        """``"NVIDIA H100 80GB HBM3"``; ``""`` where the trace does not say."""
        return self._data["device"]

    @property
    def kernels(self) -> int:
        """Kernels that ran on devices."""
        return self._data["kernels"]

    @property
    def ops(self) -> int:
        """ATen ops of the host."""
        return self._data["ops"]

    @property
    def span_us(self) -> float:
        """First start to last end, in microseconds."""
        return self._data["span_us"]

    @property
    def gpu_busy_pct(self) -> "float | None":
        """Share of the span in which the busiest device worked; ``None`` without one."""
        return self._data["gpu_busy_pct"]

    def finding(self, id: str) -> "Finding | None":
        """The first finding of this id, or ``None``."""
        return next((f for f in self.findings if f.id == id), None)

    def __repr__(self) -> str:
        return f"<epilogue.Explanation {self.verdict}: {len(self.findings)} findings>"


class RanksExplanation(_WithFindings):
    """The ranks of one run side by side: ``epilogue explain DIR``."""

    @property
    def ranks(self) -> "list[dict[str, typing.Any]]":
        """One entry per rank; the caller must not change it."""
        return self._data["ranks"]
