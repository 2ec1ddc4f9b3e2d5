# SPDX-License-Identifier: Apache-2.0
"""What the functions of the trace half give: typed results that print as the command does.

Explanations, tables and checks have modules of their own.
"""

from __future__ import annotations

import functools
import html
import json
import typing

if typing.TYPE_CHECKING:
    import pandas

    from . import _core


def dataframe(rows: "typing.Sequence[typing.Mapping[str, typing.Any]]") -> "pandas.DataFrame":
    try:
        import pandas
    except ImportError as error:
        raise ImportError("to_pandas() needs pandas: pip install pandas") from error
    return pandas.DataFrame(list(rows))


def html_table(columns: "typing.Sequence[str]", rows: "typing.Iterable[typing.Sequence]") -> str:
    """A table of text; cells may hold anything a trace holds, so they are escaped."""
    head = "".join(f"<th>{html.escape(c)}</th>" for c in columns)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(c)}</td>" for c in map(str, row)) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def duration(us: "float | None") -> str:
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

    @property
    def rank_pages(self) -> "tuple[str, ...]":
        """Paths of the pages of ranks, in their order; empty without ``rank_pages=True``."""
        return tuple(page["file"] for page in self._data.get("rank_pages", ()))

    def __repr__(self) -> str:
        return f"<epilogue.Report {self.path!r}>"


class RankPart(Result):
    """The part of a run's ranks that :func:`epilogue.shard` wrote: ``epilogue explain --shard``."""

    @property
    def path(self) -> str:
        """Of the file: ``OUT/part-3-of-64.epart``."""
        return self._data["file"]

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return self._data["bytes"]

    @property
    def part(self) -> int:
        """Which part it is, from 1."""
        return self._data["part"]

    @property
    def parts(self) -> int:
        """How many parts the run has."""
        return self._data["parts"]

    @property
    def traces(self) -> int:
        """Traces that were read for this part."""
        return self._data["traces"]

    @property
    def traces_of_all(self) -> int:
        """Traces in the folder."""
        return self._data["traces_of_all"]

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<epilogue.RankPart {self.part}/{self.parts} {self.path!r}>"


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
