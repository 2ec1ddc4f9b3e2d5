# SPDX-License-Identifier: Apache-2.0
"""What check(), check_baseline() and quantities() give."""

from __future__ import annotations

import dataclasses
import functools
import typing

from ._result import Result, dataframe, duration, html_table

if typing.TYPE_CHECKING:
    import pandas


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
        return dataframe(self._data["expectations"])

    def __repr__(self) -> str:
        held = sum(e.holds for e in self.expectations)
        return f"<epilogue.CheckResult {held} of {len(self.expectations)} hold>"

    def _repr_html_(self) -> str:
        rows = (
            ("holds" if e.holds else "FAILS", e.expr, "unknown" if e.found is None else e.found)
            for e in self.expectations
        )
        return html_table(("", "expected", "found"), rows)


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


@dataclasses.dataclass(frozen=True)
class StepChange:
    """One quantity of the steps, before and after: medians in microseconds."""

    quantity: str
    before_us: float
    after_us: float
    change_pct: float
    p: float
    """Of such ranks by chance alone."""
    superiority: float
    """How often a step of the new version takes longer than one of the earlier; 0.5: no difference."""
    verdict: str
    """"SLOWER", "faster", "within tolerance" or "no change shown"."""


class BaselineResult(Result):
    """Steps beside those of an earlier version: ``epilogue check NEW... --baseline OLD...``.

    True if none of the quantities is slower.
    """

    @functools.cached_property
    def changes(self) -> "tuple[StepChange, ...]":
        fields = [field.name for field in dataclasses.fields(StepChange)]
        return tuple(
            StepChange(**{name: row[name] for name in fields}) for row in self._data["comparisons"]
        )

    @property
    def holds(self) -> bool:
        """No quantity is slower, beyond noise and tolerance."""
        return self._data["holds"]

    def __bool__(self) -> bool:
        return self.holds

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per quantity. Raises :exc:`ImportError` without pandas."""
        return dataframe(self._data["comparisons"])

    def __repr__(self) -> str:
        slower = sum(c.verdict == "SLOWER" for c in self.changes)
        return f"<epilogue.BaselineResult {slower} of {len(self.changes)} slower>"

    def _repr_html_(self) -> str:
        rows = (
            (c.quantity, duration(c.before_us), duration(c.after_us), f"{c.change_pct:+.1f} %",
             f"{c.p:.2g}", c.verdict)
            for c in self.changes
        )
        return html_table(("of each step", "before", "after", "change", "p", "verdict"), rows)


class BaselineFailed(AssertionError):
    """Steps take longer than before. ``result`` is the :class:`BaselineResult`."""

    def __init__(self, result: BaselineResult):
        super().__init__(
            "".join(
                f"\n  {c.quantity}: {duration(c.before_us)} before, {duration(c.after_us)} now "
                f"({c.change_pct:+.1f} %, p = {c.p:.2g})"
                for c in result.changes
                if c.verdict == "SLOWER"
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
        return dataframe(self._data["quantities"])

    def _repr_html_(self) -> str:
        rows = ((q["name"], q["value"], q["doc"]) for q in self._data["quantities"])
        return html_table(("quantity", "here", "meaning"), rows)
