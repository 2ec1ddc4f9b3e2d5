# SPDX-License-Identifier: Apache-2.0
"""What the functions of the trace half give: typed results that print as the command does."""

from __future__ import annotations

import dataclasses
import functools
import html
import json
import typing

if typing.TYPE_CHECKING:
    import pandas

    from . import _core


def _dataframe(rows: "typing.Sequence[typing.Mapping[str, typing.Any]]") -> "pandas.DataFrame":
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: pip install pandas") from error
    return pandas.DataFrame(list(rows))


def _html_table(columns: "typing.Sequence[str]", rows: "typing.Iterable[typing.Sequence]") -> str:
    """A table of text; cells may hold anything a trace holds, so they are escaped."""
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(c)}</td>" for c in map(str, row)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _duration(us: "float | None") -> str:
    """Microseconds for people: ``1.24 ms``."""
    if us is None:
        return ""
    for limit, divisor, unit in ((1e3, 1, "us"), (1e6, 1e3, "ms")):
        if abs(us) < limit:
            return f"{us / divisor:.3g} {unit}"
    return f"{us / 1e6:.3g} s"


class Result:
    """What a command prints, as an object.

    ``print(result)`` prints what ``epilogue`` prints; :meth:`to_dict` is its ``--format json``.
    Immutable, and safe to use from several threads. It holds no trace: those may be large.
    """

    def __init__(self, answer: "_core.Answer"):
        self._answer = answer

    def _parse(self) -> typing.Any:
        return json.loads(self._answer.json())

    @functools.cached_property
    def _data(self) -> typing.Any:
        return self._parse()

    def to_dict(self) -> "dict[str, typing.Any]":
        """The command's JSON. Times end in ``_us``: microseconds. The caller may change it."""
        return self._parse()

    def to_json(self) -> str:
        """The text of the command's JSON, with its last newline."""
        return self._answer.json()

    def text(self, *, bold: bool = False) -> str:
        """What the command prints, with its last newline; headings bold for a terminal if asked."""
        return self._answer.text(bold)

    def markdown(self) -> str:
        """The command's ``--format markdown``."""
        return self._answer.markdown()

    def __str__(self) -> str:
        return self.text().removesuffix("\n")

    def __repr__(self) -> str:
        return f"<epilogue.{type(self).__name__}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"


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


_FINDING_FIELDS = {f.name for f in dataclasses.fields(Finding)}


def _findings(data: "dict[str, typing.Any]") -> "tuple[Finding, ...]":
    return tuple(
        Finding(**{k: v for k, v in f.items() if k in _FINDING_FIELDS} | {"evidence": tuple(f["evidence"])})
        for f in data["findings"]
    )


class _WithFindings(Result):
    @functools.cached_property
    def findings(self) -> "tuple[Finding, ...]":
        """The verdict first, errors next, then by saving or cost: the largest first."""
        return _findings(self._data)

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per finding. Raises :exc:`ImportError` without pandas."""
        return _dataframe([dataclasses.asdict(f) for f in self.findings])

    def _repr_html_(self) -> str:
        rows = (
            (f.severity, f.title, _duration(f.saving_us), _duration(f.cost_us), " ".join(f.evidence))
            for f in self.findings
        )
        return _html_table(("", "finding", "saves", "costs", "evidence"), rows)


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

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per row of :meth:`to_dict`. Raises :exc:`ImportError` without pandas."""
        return _dataframe(self._data["rows"])

    def __repr__(self) -> str:
        return f"<epilogue.Table of {len(self)} rows>"

    def _repr_html_(self) -> str:
        columns = ("name", "calls", "self CPU", "CPU total", "self device", "device total")
        rows = (
            (
                r.name,
                r.count,
                *map(_duration, (r.self_cpu_us, r.cpu_total_us, r.self_device_us, r.device_total_us)),
            )
            for r in self.rows
        )
        return _html_table(columns, rows)


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
    def delta_us(self) -> float:
        """After less before: negative if it became faster."""
        return self.wall_us[1] - self.wall_us[0]

    @property
    def speedup(self) -> float:
        """Before over after."""
        return self.wall_us[0] / self.wall_us[1] if self.wall_us[1] else float("inf")

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per part. Raises :exc:`ImportError` without pandas."""
        return _dataframe([dataclasses.asdict(p) for p in self.parts])

    def __repr__(self) -> str:
        before, after = map(_duration, self.wall_us)
        return f"<epilogue.Diff {before} -> {after}>"

    def _repr_html_(self) -> str:
        rows = (
            (p.what, _duration(p.before_us), _duration(p.after_us), _duration(p.delta_us), p.why)
            for p in self.parts
        )
        return _html_table(("part", "before", "after", "change", "why"), rows)


@dataclasses.dataclass(frozen=True)
class Expectation:
    """One expectation of :func:`epilogue.check`, and what was found.

    ``found`` is ``None`` where the trace cannot give it; that never holds.
    """

    expr: str
    expected: float
    found: "float | None"
    holds: bool


class CheckResult(Result):
    """Expectations and what was found: ``epilogue check TRACE EXPR...``. True if all hold."""

    @functools.cached_property
    def expectations(self) -> "tuple[Expectation, ...]":
        """In the order given."""
        return tuple(
            Expectation(e["expr"], e["expected"], e["found"], e["holds"])
            for e in self._data["expectations"]
        )

    @property
    def holds(self) -> bool:
        """All hold."""
        return self._data["holds"]

    def __bool__(self) -> bool:
        return self.holds

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per expectation. Raises :exc:`ImportError` without pandas."""
        return _dataframe(self._data["expectations"])

    def __repr__(self) -> str:
        held = sum(e.holds for e in self.expectations)
        return f"<epilogue.CheckResult {held} of {len(self.expectations)} hold>"

    def _repr_html_(self) -> str:
        rows = (
            ("holds" if e.holds else "FAILS", e.expr, "unknown" if e.found is None else e.found)
            for e in self.expectations
        )
        return _html_table(("", "expected", "found"), rows)


class CheckFailed(AssertionError):
    """An expectation about a trace does not hold. ``result`` is the :class:`CheckResult`."""

    def __init__(self, result: CheckResult):
        super().__init__(
            "".join(
                f"\n  expected {e.expr}, found "
                + ("nothing: this trace cannot give it" if e.found is None else f"{e.found:g}")
                for e in result.expectations
                if not e.holds
            ).lstrip("\n ")
        )
        self.result = result


class Quantities(Result, typing.Mapping[str, "float | None"]):
    """Named numbers of a trace: ``epilogue check TRACE --list``. Names carry their unit."""

    @functools.cached_property
    def _values(self) -> "dict[str, float | None]":
        return {q["name"]: q["value"] for q in self._data["quantities"]}

    def __getitem__(self, name: str) -> "float | None":
        return self._values[name]

    def __iter__(self) -> "typing.Iterator[str]":
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def to_pandas(self) -> "pandas.DataFrame":
        """Columns name, doc, value. Raises :exc:`ImportError` without pandas."""
        return _dataframe(self._data["quantities"])

    def _repr_html_(self) -> str:
        rows = ((q["name"], q["value"], q["doc"]) for q in self._data["quantities"])
        return _html_table(("quantity", "here", "meaning"), rows)


class Report(Result):
    """The page that ``epilogue report`` wrote."""

    @property
    def path(self) -> str:
        """Of the page."""
        return self._data["file"]

    @property
    def bytes(self) -> int:
        """Size of the page."""
        return self._data["bytes"]

    @property
    def has_trace(self) -> bool:
        """The page holds the trace."""
        return self._data["has_trace"]

    def __repr__(self) -> str:
        return f"<epilogue.Report {self.path!r}>"


class KernelName(Result):
    """What a kernel's name says: ``epilogue name NAME``. Of the command's JSON, which is a list,
    :meth:`to_dict` gives the entry of this name."""

    def _parse(self) -> typing.Any:
        return super()._parse()[0]

    @property
    def name(self) -> str:
        """As given."""
        return self._data["name"]

    @property
    def family(self) -> str:
        """``"cuBLAS nvjet"``, ``"ATen elementwise"``, ...; ``"unknown"``."""
        return self._data["family"]

    @property
    def kind(self) -> str:
        """The kind of work: ``"gemm"``, ``"elementwise"``, ..., ``"unknown"``."""
        return self._data["kind"]

    @property
    def fields(self) -> "dict[str, str]":
        """What the name says, field by field; the caller must not change it."""
        return self._data["fields"]

    @property
    def inferred(self) -> "tuple[str, ...]":
        """Fields that are a reading which the name's author has not documented."""
        return tuple(self._data["inferred"])

    @property
    def summary(self) -> str:
        """One line."""
        return self._data["summary"]

    def __repr__(self) -> str:
        return f"<epilogue.KernelName {self.summary}>"
