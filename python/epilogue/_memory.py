# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots: what ``torch.cuda.memory._dump_snapshot()`` wrote, as typed results and tables."""

from __future__ import annotations

import dataclasses
import functools
import os
import typing

from . import _core
from ._arrow import TablesByName, TraceTable
from ._result import Result, dataframe, html_table
from ._source import Source
from ._trace import _warn

if typing.TYPE_CHECKING:
    import pandas

SnapshotLike = typing.Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]
"""A path (of a pickle, plain or ``.gz``), or what such a file holds."""


@dataclasses.dataclass(frozen=True)
class MemoryFinding:
    """One thing worth knowing of a device's memory.

    Attributes:
        id: Stable, for scripts: ``"fragmentation"``. docs/memory.md has all, with their thresholds.
        severity: ``"info"``, ``"warning"`` or ``"error"``.
        title: One line.
        evidence: Sentences with numbers.
        remedy: What to do, one sentence.
        saving_bytes: How much acting on it would free at most; ``None`` where that cannot be known.
    """

    id: str
    severity: str
    title: str
    evidence: "tuple[str, ...]"
    remedy: str
    saving_bytes: "int | None" = None


@dataclasses.dataclass(frozen=True)
class DeviceMemory:
    """One device of a snapshot. Sizes are bytes.

    Attributes:
        device: Its number; -1: pinned memory of the host.
        peak_bytes: Allocated at the peak of the history; at the end where there is none.
        peak_reserved_bytes: The most that the allocator held.
        at_peak_by_frame, at_peak_by_module, at_peak_by_category: Bytes by name, the largest first.
        at_end: ``reserved_bytes``, ``allocated_bytes``, ``inactive_split_bytes``, ...
        findings: Failures first.
    """

    device: int
    peak_bytes: int
    peak_reserved_bytes: int
    at_peak_by_frame: "dict[str, int]"
    at_peak_by_module: "dict[str, int]"
    at_peak_by_category: "dict[str, int]"
    at_end: "dict[str, int]"
    findings: "tuple[MemoryFinding, ...]"


def _device(data: "dict[str, typing.Any]") -> DeviceMemory:
    def sums(key: str) -> "dict[str, int]":
        return {row["name"]: row["bytes"] for row in data[key]}

    return DeviceMemory(
        data["device"],
        data["peak_bytes"],
        data["peak_reserved_bytes"],
        sums("at_peak_by_frame"),
        sums("at_peak_by_module"),
        sums("at_peak_by_category"),
        data["at_end"],
        tuple(MemoryFinding(**(f | {"evidence": tuple(f["evidence"])})) for f in data["findings"]),
    )


class MemoryReport(Result):
    """What a memory snapshot says: ``epilogue memory SNAPSHOT``."""

    @functools.cached_property
    def devices(self) -> "tuple[DeviceMemory, ...]":
        """By number."""
        return tuple(_device(d) for d in self._data["devices"])

    @property
    def findings(self) -> "tuple[MemoryFinding, ...]":
        """Those of all devices."""
        return tuple(f for d in self.devices for f in d.findings)

    @property
    def peak_bytes(self) -> int:
        """The largest peak of a device; 0 without one."""
        return max((d.peak_bytes for d in self.devices), default=0)

    def finding(self, id: str) -> "MemoryFinding | None":
        """The first finding of this id, or ``None``."""
        return next((f for f in self.findings if f.id == id), None)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per device and frame at the peak. Raises :exc:`ImportError` without pandas."""
        return dataframe(
            [{"device": d["device"]} | row for d in self._data["devices"] for row in d["at_peak_by_frame"]]
        )

    def __repr__(self) -> str:
        return f"<epilogue.MemoryReport {self.peak_bytes} bytes at the peak: {len(self.findings)} findings>"

    def _repr_html_(self) -> str:
        rows = ((f.severity, f.title, " ".join(f.evidence), f.remedy) for f in self.findings)
        return html_table(("", "finding", "evidence", "remedy"), rows)


class MemoryTables(TablesByName):
    """The tables of a snapshot, by name: what :func:`memory_tables` gives."""

    def __init__(self, native: "_core.SnapshotTables"):
        super().__init__(native, _core.memory_table_names())

    @property
    def allocations(self) -> TraceTable:
        """Each allocation's life, category, frame and module."""
        return self["allocations"]

    @property
    def events(self) -> TraceTable:
        """What the allocator recorded, a row each."""
        return self["events"]

    @property
    def blocks(self) -> TraceTable:
        """Blocks of segments, at the end."""
        return self["blocks"]

    @property
    def segments(self) -> TraceTable:
        """Segments, at the end."""
        return self["segments"]

    @property
    def frames(self) -> TraceTable:
        """The frames of each stack, the innermost at depth 0."""
        return self["frames"]


def _source(snapshot: SnapshotLike) -> Source:
    if not isinstance(snapshot, (str, os.PathLike, bytes, bytearray, memoryview)):
        raise TypeError(f"expected a path or bytes of a snapshot, got {type(snapshot).__name__}")
    return Source(snapshot)


def memory(
    snapshot: SnapshotLike,
    *,
    against: "SnapshotLike | None" = None,
    device: "int | None" = None,
    top: int = 10,
    page: "str | os.PathLike[str] | None" = None,
) -> MemoryReport:
    """Says who held a device's memory, from a snapshot of ``torch.cuda.memory._dump_snapshot()``.

    The pickle is read as data: nothing in it is imported or called.

    Args:
        snapshot: A path (plain or ``.gz``), or what such a file holds.
        against: An earlier snapshot to compare with.
        device: This one alone; -1: pinned memory of the host.
        top: Rows of each list in text and Markdown; -1: all.
        page: Also write the HTML page here.

    Raises:
        OSError: A file cannot be read or written.
        TraceError: It is no snapshot, is cut, or would run code; the message names the opcode and its place.
        Error: The snapshot does not have the device.

    >>> epilogue.memory("snapshot.pickle").devices[0].at_peak_by_category       # doctest: +SKIP
    """
    source = _source(snapshot)
    before = None if against is None else _source(against)
    answer, warned = _core.memory(
        source.native, before.native if before else None, device, top, "" if page is None else os.fspath(page)
    )
    _warn(warned)
    return MemoryReport(answer)


def memory_tables(snapshot: SnapshotLike) -> MemoryTables:
    """A memory snapshot as tables: allocations, events, blocks, segments, frames.

    ``docs/memory.md`` lists all columns; sizes are bytes, times microseconds of Unix time.

    Args:
        snapshot: As :func:`memory` takes it.

    Raises:
        OSError, TraceError: As of :func:`memory`.

    >>> allocations = epilogue.memory_tables("snapshot.pickle").allocations     # doctest: +SKIP
    >>> duckdb.sql("SELECT frame, sum(bytes) FROM allocations WHERE is_alive_at_peak GROUP BY 1")  # doctest: +SKIP
    """
    native, warned = _core.memory_tables(_source(snapshot).native)
    _warn(warned)
    return MemoryTables(native)
