# SPDX-License-Identifier: Apache-2.0
"""What advise() gives: the changes that it tried, what each was predicted to save and what it saved."""

import dataclasses
import html
import typing

from torch import nn


@dataclasses.dataclass(frozen=True)
class Step:
    """One change, on top of those before it that were kept. Times are milliseconds of one run."""

    name: str
    what: str
    is_kept: bool
    reason: str  # why it was kept or not
    before_ms: "float | None" = None
    after_ms: "float | None" = None
    predicted_ms: "float | None" = None  # saved: by the trace, or by measuring the changed parts alone
    speedup: "tuple[float, float, float] | None" = None  # and its 95 % interval
    difference: "float | None" = None  # relative L2 of what is compared

    @property
    def saved_ms(self) -> "float | None":
        return None if self.before_ms is None or self.after_ms is None else self.before_ms - self.after_ms


@dataclasses.dataclass(frozen=True)
class Advice:
    """``print`` shows it as a table, :meth:`to_html` as a page, :meth:`to_dict` for programs."""

    eager_ms: float
    best_ms: float
    steps: "tuple[Step, ...]"
    by_hand: "tuple[str, ...]"  # what the trace says beside
    notes: "tuple[str, ...]" = ()
    #: How the copy is to be run: ``num_threads``, ``autocast`` (a dtype's name, or None for off).
    settings: "dict[str, typing.Any]" = dataclasses.field(default_factory=dict)
    model: "nn.Module | None" = dataclasses.field(default=None, repr=False)  # the copy with what was kept
    optimizer: typing.Any = dataclasses.field(default=None, repr=False)  # of a training step: the copy's

    @property
    def predicted_ms(self) -> float:
        """Saved by the kept steps that have a prediction, as predicted."""
        return sum(s.predicted_ms for s in self.steps if s.is_kept and s.predicted_ms is not None)

    @property
    def measured_ms(self) -> float:
        """Saved by the same steps, as measured."""
        return sum(s.saved_ms or 0.0 for s in self.steps if s.is_kept and s.predicted_ms is not None)

    def to_dict(self) -> "dict[str, typing.Any]":
        return {
            "eager_ms": self.eager_ms,
            "best_ms": self.best_ms,
            "predicted_ms": self.predicted_ms,
            "measured_ms": self.measured_ms,
            "steps": [{**dataclasses.asdict(s), "saved_ms": s.saved_ms} for s in self.steps],
            "settings": dict(self.settings),
            "by_hand": list(self.by_hand),
            "notes": list(self.notes),
        }

    def _rows(self) -> "list[tuple[str, ...]]":
        def number(value: "float | None", form: str = ".2f") -> str:
            return "-" if value is None else format(value, form)

        rows = []
        for s in self.steps:
            speed = "-" if s.speedup is None else "{:.2f}x [{:.2f}, {:.2f}]".format(*s.speedup)
            rows.append((s.name, "kept" if s.is_kept else "left out", number(s.predicted_ms), number(s.saved_ms), speed,
                         number(s.difference, ".1e"), s.reason))  # fmt: skip
        return rows

    _HEADER = ("step", "", "predicted ms", "saved ms", "speed", "difference", "why")

    def _head(self) -> str:
        head = f"{self.eager_ms:.2f} ms as it is, {self.best_ms:.2f} ms with what was kept"
        if self.predicted_ms > 0:
            head += f"; {self.predicted_ms:.2f} ms less predicted, {self.measured_ms:.2f} ms measured, of steps with a prediction"
        return head

    def _ending(self) -> "list[str]":
        lines = [f"run it with {name} = {value}" for name, value in self.settings.items()]
        return [*lines, *(f"note: {n}" for n in self.notes)]

    def __str__(self) -> str:
        rows = [self._HEADER, *self._rows()]
        widths = [max(len(r[i]) for r in rows) for i in range(len(self._HEADER))]
        table = ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows]
        left = ["left to do by hand:", *(f"  {line}" for line in self.by_hand)] if self.by_hand else []
        return "\n".join([self._head(), *table, *self._ending(), *left])

    def to_markdown(self) -> str:
        cell = lambda text: text.replace("|", "\\|")  # noqa: E731
        line = lambda row: f"| {' | '.join(map(cell, row))} |"  # noqa: E731
        table = [line(self._HEADER), line(["---"] * len(self._HEADER)), *map(line, self._rows())]
        ending = [f"* {text}" for text in self._ending()]
        left = ["", "## Left to do by hand", "", *(f"* {text}" for text in self.by_hand)] if self.by_hand else []
        return "\n".join([self._head(), "", *table, "", *ending, *left])

    def to_html(self) -> str:
        cells = lambda row, tag: "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row)  # noqa: E731
        items = lambda lines: "".join(f"<li>{html.escape(line)}</li>" for line in lines)  # noqa: E731
        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in self._rows())
        return (
            "<!doctype html><meta charset=utf-8><title>epilogue advise</title>"
            "<style>body{font-family:sans-serif}td,th{padding:.2em .8em;text-align:left}</style>"
            f"<h1>{html.escape(self._head())}</h1><table><tr>{cells(self._HEADER, 'th')}</tr>{body}</table>"
            f"<ul>{items(self._ending())}</ul><h2>Left to do by hand</h2><ul>{items(self.by_hand)}</ul>"
        )

    def _repr_html_(self) -> str:
        return self.to_html()
