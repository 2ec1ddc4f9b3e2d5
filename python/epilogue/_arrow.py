# SPDX-License-Identifier: Apache-2.0
"""A trace as tables, for DuckDB, Polars, pandas and whatever else reads Arrow streams."""

from __future__ import annotations

import functools
import json
import os
import re
import typing

from . import _core
from ._source import Source, TraceLike
from ._trace import _warn

if typing.TYPE_CHECKING:
    import pandas


class TraceTable:
    """One table of a trace: an Arrow stream by the PyCapsule interface.

    ``duckdb.sql("SELECT ... FROM t")``, ``polars.DataFrame(t)`` and ``pyarrow.table(t)`` take it as
    it is, any number of times. Every stream stays valid without this object. A stream is for one
    thread; the table may be used from several.
    """

    def __init__(self, native: "_core.TraceTables | _core.SnapshotTables", name: str):
        self._native = native
        self.name = name

    @functools.cached_property
    def columns(self) -> "dict[str, str]":
        """Type by name: ``int64``, ``float64``, ``bool``, or ``text`` (a dictionary's codes)."""
        return dict(self._native.columns(self.name))

    def __len__(self) -> int:
        return self._native.row_count(self.name)

    def __arrow_c_schema__(self) -> object:
        return self._native.schema(self.name)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        # The protocol lets a producer that cannot convert give its own schema.
        return self._native.stream(self.name)

    def to_pandas(self) -> "pandas.DataFrame":
        """Raises :exc:`ImportError` without pandas or pyarrow."""
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas and pyarrow: pip install pandas pyarrow") from error
        return pyarrow.table(self).to_pandas()

    def __repr__(self) -> str:
        return f"<epilogue.TraceTable {self.name} of {len(self)} rows>"


class TablesByName(typing.Mapping[str, TraceTable]):
    """Tables of one file, by name."""

    def __init__(self, native: "_core.TraceTables | _core.SnapshotTables", names: "list[str]"):
        self._tables = {name: TraceTable(native, name) for name in names}

    def __getitem__(self, name: str) -> TraceTable:
        return self._tables[name]

    def __iter__(self) -> "typing.Iterator[str]":
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return f"<epilogue.{type(self).__name__} " + ", ".join(f"{n}: {len(t)}" for n, t in self.items()) + ">"


class TraceTables(TablesByName):
    """All tables of a trace, by name: what :func:`tables` gives."""

    def __init__(self, native: "_core.TraceTables", path: str):
        super().__init__(native, _core.table_names())
        self._native = native
        self._path = path

    @property
    def ops(self) -> TraceTable:
        """Ops of the host, a row each."""
        return self["ops"]

    @property
    def kernels(self) -> TraceTable:
        """Kernels, copies and fills of devices."""
        return self["kernels"]

    @property
    def launches(self) -> TraceTable:
        """Calls of the runtime and the driver."""
        return self["launches"]

    @property
    def steps(self) -> TraceTable:
        """``ProfilerStep#N``."""
        return self["steps"]

    @property
    def memory(self) -> TraceTable:
        """Allocations and frees, if memory was recorded."""
        return self["memory"]

    @property
    def ranges(self) -> TraceTable:
        """Annotations of the user, on the host and on devices."""
        return self["ranges"]

    @property
    def frames(self) -> TraceTable:
        """Frames of Python, if they were recorded and read (``python_frames=True``)."""
        return self["frames"]

    @property
    def links(self) -> TraceTable:
        """Of each kernel, copy and fill: its launch, op and step."""
        return self["links"]

    @property
    def base_time_ns(self) -> int:
        """Unix time in nanoseconds of ``ts_ns`` 0."""
        return self._native.base_time_ns()

    @functools.cached_property
    def rank(self) -> "int | None":
        """Which rank of a run the trace is of: as it says, else as its file's name says (``rank7``)."""
        for key, text in self._native.metadata():
            if key == "distributedInfo":
                try:
                    rank = json.loads(text).get("rank")
                except (ValueError, AttributeError):
                    continue
                if isinstance(rank, int):
                    return rank
        found = re.search(r"rank[-_]?(\d+)", os.path.basename(self._path))
        return int(found[1]) if found else None


def tables(
    trace: TraceLike,
    *,
    python_frames: bool = False,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> TraceTables:
    """A trace as tables: ops, kernels, launches, steps, memory, ranges, frames, links.

    Times are int64 nanoseconds (``_ns``) since :attr:`TraceTables.base_time_ns`, memory is bytes.
    ``id`` is a row's number in the trace; ``op_id``, ``launch_id``, ``parent_id`` and ``frame_id``
    refer to it. ``docs/query.md`` lists all columns.

    Args:
        trace: As of :func:`explain`, but no folder.
        python_frames: Read Python frames too (slower): without, ``frames`` is empty and ``module``
            and ``frame_id`` are null.
        step, from_ms, to_ms: As of :func:`explain`.

    Raises:
        OSError, TraceError: As of :func:`explain`.

    >>> t = epilogue.tables("trace.json.gz")                                    # doctest: +SKIP
    >>> kernels = t.kernels                                                     # doctest: +SKIP
    >>> duckdb.sql("SELECT name, sum(dur_ns) FROM kernels GROUP BY 1")          # doctest: +SKIP
    """
    source = Source(trace, step, from_ms, to_ms)
    native, warned = _core.tables(source.native, python_frames)
    _warn(warned)
    return TraceTables(native, source.path)
