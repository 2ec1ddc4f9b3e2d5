# SPDX-License-Identifier: Apache-2.0
"""What table() and diff() give."""

from __future__ import annotations

import dataclasses
import functools
import typing

from ._result import Result, dataframe, duration, html_table

if typing.TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class TableRow:
    """One op, kernel or annotation: sums over its events. Times are microseconds."""

    name: str
    count: int
    self_cpu_us: float
    cpu_total_us: float
    cpu_avg_us: float
    self_device_us: float
    device_total_us: float
    device_avg_us: float
    flops: int
    device_type: str


_ROW_FIELDS = tuple(f.name for f in dataclasses.fields(TableRow))


class Table(Result):
    """Key averages: ``epilogue table TRACE``. A sequence of :class:`TableRow`."""

    @functools.cached_property
    def rows(self) -> "tuple[TableRow, ...]":
        """In the order that was asked for."""
        return tuple(TableRow(*(row[f] for f in _ROW_FIELDS)) for row in self._data["rows"])

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> "typing.Iterator[TableRow]":
        return iter(self.rows)

    def __getitem__(self, index: int) -> TableRow:
        return self.rows[index]

    @property
    def self_cpu_total_us(self) -> float:
        """The host's own time over all rows."""
        return self._data["self_cpu_total_us"]

    @property
    def self_device_total_us(self) -> float:
        """The device's own time over all rows."""
        return self._data["self_device_total_us"]

    @property
    def captured_pct(self) -> "float | None":
        """How much of the time of replayed graphs is booked to the ops that captured it; ``None``
        without ``capture``, or if no graph was replayed. Rows of :meth:`to_dict` have
        ``captured_count`` and ``captured_self_device_us``."""
        return self._data.get("captured_pct")

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per row of :meth:`to_dict`. Raises :exc:`ImportError` without pandas."""
        return dataframe(self._data["rows"])

    def __repr__(self) -> str:
        return f"<epilogue.Table of {len(self)} rows>"

    def _repr_html_(self) -> str:
        columns = ("name", "calls", "self CPU", "CPU total", "self device", "device total")
        rows = (
            (
                r.name,
                r.count,
                *map(duration, (r.self_cpu_us, r.cpu_total_us, r.self_device_us, r.device_total_us)),
            )
            for r in self.rows
        )
        return html_table(columns, rows)


@dataclasses.dataclass(frozen=True)
class DiffPart:
    """One reason for a difference; the deltas of all parts add up. Microseconds."""

    what: str
    why: str
    delta_us: float
    before_us: float
    after_us: float


class Diff(Result):
    """What changed between two traces: ``epilogue diff A B``."""

    @functools.cached_property
    def parts(self) -> "tuple[DiffPart, ...]":
        """The largest change first, whatever its sign."""
        return tuple(
            DiffPart(p["what"], p["why"], p["delta_us"], p["before_us"], p["after_us"])
            for p in self._data["parts"]
        )

    @property
    def wall_us(self) -> "tuple[float, float]":
        """Wall time before and after, in microseconds."""
        before, after = self._data["wall_us"]
        return before, after

    @property
    def captured_pct(self) -> "tuple[float | None, float | None]":
        """Of the time of replayed graphs, how much has the op that captured it, before and after;
        ``None`` without ``capture``, or if no graph was replayed."""
        before, after = self._data["captured_pct"]
        return before, after

    @property
    def delta_us(self) -> float:
        """After less before: negative if it became faster."""
        return self.wall_us[1] - self.wall_us[0]

    @property
    def speedup(self) -> float:
        """Before over after."""
        return self.wall_us[0] / self.wall_us[1] if self.wall_us[1] else float("inf")

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per part. Raises :exc:`ImportError` without pandas."""
        return dataframe([dataclasses.asdict(p) for p in self.parts])

    def __repr__(self) -> str:
        before, after = map(duration, self.wall_us)
        return f"<epilogue.Diff {before} -> {after}>"

    def _repr_html_(self) -> str:
        rows = (
            (p.what, duration(p.before_us), duration(p.after_us), duration(p.delta_us), p.why)
            for p in self.parts
        )
        return html_table(("part", "before", "after", "change", "why"), rows)
