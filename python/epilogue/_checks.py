# SPDX-License-Identifier: Apache-2.0
"""What check() and quantities() give."""

from __future__ import annotations

import dataclasses
import functools
import typing

from ._result import Result, dataframe, html_table

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
