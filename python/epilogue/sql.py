# SPDX-License-Identifier: Apache-2.0
"""SQL over traces: ``epilogue sql TRACE... "SELECT ..."``. Needs DuckDB: ``pip install 'epilogue[sql]'``."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import sys
import tempfile
import threading
import typing
import warnings

from . import _core
from ._arrow import TraceTables, tables

if typing.TYPE_CHECKING:
    import duckdb

Error = _core.Error

EXTRA = "needs DuckDB: pip install 'epilogue[sql]'"
TEXT_ROWS = 100  # that text and Markdown show by default
_ROWS_AT_ONCE = 10_000

# Tables that a query mentions are read, all where it asks what there is.
_ASKS_WHAT_THERE_IS = re.compile(r"\b(show|information_schema|duckdb_\w+|pragma_\w+|pg_\w+|sqlite_\w+)\b", re.I)
# Python frames are most of a file: they are read if a query mentions what they give.
_ASKS_FRAMES = re.compile(r"\b(frames|frame_id|module)\b", re.I)


def _duckdb() -> typing.Any:
    try:
        import duckdb
    except ImportError as error:
        raise ImportError(f"epilogue sql {EXTRA}") from error
    return duckdb


def trace_files(paths: "typing.Iterable[str | os.PathLike[str]]") -> "list[str]":
    """The files that paths stand for: of a folder its ``.json``, ``.json.gz``, ``.pftrace`` and ``.sqlite``, by name.

    Raises:
        FileNotFoundError: A path is not there, or a folder has no trace.
    """
    files = []
    for path in map(os.fspath, paths):
        if not os.path.isdir(path):
            os.stat(path)
            files.append(path)
            continue
        found = [e.path for e in os.scandir(path) if e.is_file() and e.name.endswith((".json", ".json.gz", ".pftrace", ".pftrace.gz", ".sqlite"))]
        if not found:
            raise FileNotFoundError(f"{path}: expected a folder with traces (.json, .json.gz, .pftrace, .sqlite), it has none")
        # rank10 comes after rank9.
        files += sorted(found, key=lambda f: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", f)])
    return files


def mentioned(query: str) -> "list[str]":
    """The tables that a query may read, by the words in it."""
    words = set(re.findall(r"\w+", query.lower()))
    every = _core.table_names()
    return every if _ASKS_WHAT_THERE_IS.search(query) else [name for name in every if name in words]


class Answer(typing.NamedTuple):
    """Column names, and an iterator over rows as tuples."""

    columns: "list[str]"
    rows: "typing.Iterator[tuple[typing.Any, ...]]"


class Database:
    """Traces as tables of DuckDB, for one query: the tables that it mentions.

    One trace is scanned where it lies in memory. Several are read one after the other into a
    database in a temporary folder, so that one trace at most is in memory beside ``memory_limit``
    of DuckDB. Every table has ``rank`` and ``file`` before its own columns. SQL can neither write nor
    reach files. Use it as a context manager, from one thread.

    Args:
        paths: Traces and folders of them.
        query: One ``SELECT`` (``FROM``, ``WITH``, ``DESCRIBE``, ``SHOW``, ``EXPLAIN``, ...).
        memory_limit_mb: Of DuckDB, in MiB; what exceeds it goes to the temporary folder.
        temporary_limit_mb: Of that folder, in MiB.
        timeout_s: Seconds for the query, reading not included; ``None``: no limit.
        threads: Of DuckDB; ``None``: as many as the machine has.

    Raises:
        ImportError: DuckDB is not installed.
        OSError, TraceError: As of :func:`epilogue.explain`.
        Error: The query is not one statement that reads, or DuckDB refuses it: one line.
    """

    def __init__(
        self,
        paths: "typing.Iterable[str | os.PathLike[str]]",
        query: str,
        *,
        memory_limit_mb: int = 2048,
        temporary_limit_mb: "int | None" = None,
        timeout_s: "float | None" = None,
        threads: "int | None" = None,
    ):
        self._duckdb = _duckdb()
        self._query = query
        self._timeout_s = timeout_s
        self._files = trace_files(paths)
        if not self._files:
            raise Error("sql: expected one or more traces, got none")
        self._wanted = mentioned(query)
        self._columns: "dict[str, list[str]]" = {}
        self._folder = tempfile.TemporaryDirectory(prefix="epilogue-sql-")
        try:
            self._connect(memory_limit_mb, temporary_limit_mb, threads)
            self._check_statement()
            self._load()
            for setting in ("python_enable_replacements=false", "enable_external_access=false"):
                self._connection.execute(f"SET {setting}")
            self._connection.execute("SET lock_configuration=true")
        except BaseException:
            self.close()
            raise

    def _connect(self, memory_limit_mb: int, temporary_limit_mb: "int | None", threads: "int | None") -> None:
        config: "dict[str, typing.Any]" = {"memory_limit": f"{memory_limit_mb}MiB"}
        if threads:
            config["threads"] = threads
        if temporary_limit_mb is not None:
            config["max_temp_directory_size"] = f"{temporary_limit_mb}MiB"
        self._connection: "duckdb.DuckDBPyConnection" = self._duckdb.connect(
            os.path.join(self._folder.name, "traces.duckdb"), config=config
        )

    def _check_statement(self) -> None:
        try:
            statements = self._connection.extract_statements(self._query)
        except self._duckdb.Error as error:
            raise Error(self._line(error)) from None
        reads = (self._duckdb.StatementType.SELECT, self._duckdb.StatementType.EXPLAIN)
        if len(statements) != 1 or statements[0].type not in reads:
            kinds = ", ".join(s.type.name for s in statements) or "nothing"
            raise Error(f"sql: expected one statement that reads (SELECT ...), got {kinds}")

    def _load(self) -> None:
        frames = bool(_ASKS_FRAMES.search(self._query))
        several = len(self._files) > 1
        for position, file in enumerate(self._files):
            trace = tables(file, python_frames=frames)
            rank = position if trace.rank is None else trace.rank
            for name in self._wanted:
                self._add(name, trace, rank, file, several, position == 0)
            if not several:
                self._trace = trace
            del trace

    def _add(self, name: str, trace: TraceTables, rank: int, file: str, several: bool, first: bool) -> None:
        connection = self._connection
        self._columns[name] = ["rank", "file", *trace[name].columns]
        literal = "'" + file.replace("'", "''") + "'"
        select = f"SELECT {rank}::BIGINT AS rank, {literal} AS file, * FROM stream_{name}"
        connection.register(f"stream_{name}", trace[name])
        if not several:
            connection.execute(f"CREATE TEMP VIEW {name} AS {select}")
            return
        connection.execute(f"CREATE TABLE {name} AS {select}" if first else f"INSERT INTO {name} {select}")
        connection.unregister(f"stream_{name}")

    def _line(self, error: Exception) -> str:
        """DuckDB's message in one line, with the names that there are."""
        text = str(error).split("\n\nLINE ")[0]
        text = " ".join(part.strip() for part in text.splitlines() if part.strip())
        line = f"sql: {text.replace('Candidate bindings:', 'Did you mean:')}"
        if isinstance(error, (self._duckdb.CatalogException, self._duckdb.BinderException)):
            line += f"; tables: {', '.join(_core.table_names())}"
            for name, columns in self._columns.items():
                line += f"; columns of {name}: {', '.join(columns)}"
        return line

    def _run(self, body: "typing.Callable[[], typing.Any]") -> typing.Any:
        timer = None
        if self._timeout_s is not None:
            timer = threading.Timer(self._timeout_s, self._connection.interrupt)
            timer.daemon = True
            timer.start()
        try:
            return body()
        except self._duckdb.InterruptException:
            raise Error(f"sql: the query was stopped after {self._timeout_s:g} s, its limit") from None
        except self._duckdb.OutOfMemoryException as error:
            raise Error("sql: the query needs more memory than its limit: " + str(error).splitlines()[0]) from None
        except self._duckdb.Error as error:
            raise Error(self._line(error)) from None
        finally:
            if timer is not None:
                timer.cancel()

    def answer(self) -> Answer:
        """Runs the query; rows come as they are asked for."""
        result = self._run(lambda: self._connection.execute(self._query))
        names = [column[0] for column in result.description]

        def rows() -> "typing.Iterator[tuple[typing.Any, ...]]":
            while batch := self._run(lambda: result.fetchmany(_ROWS_AT_ONCE)):
                yield from batch

        return Answer(names, rows())

    def stream(self) -> typing.Any:
        """The answer as an Arrow stream (PyCapsule interface); valid while this is open."""
        return self._run(lambda: self._connection.sql(self._query))

    def close(self) -> None:
        """Removes the temporary folder."""
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()
        self._trace = None
        self._folder.cleanup()

    def __enter__(self) -> "Database":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


# --- Output ---------------------------------------------------------------------------------------


def _cell(value: typing.Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _one_line(text: str) -> str:
    # Text of foreign traces may hold what a terminal obeys.
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def text_table(columns: "list[str]", rows: "list[tuple[typing.Any, ...]]") -> str:
    """Aligned columns: numbers to the right."""
    cells = [[_one_line(_cell(value)) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells)]
    numeric = [
        all(isinstance(row[i], (int, float, type(None))) for row in rows) and bool(rows)
        for i in range(len(columns))
    ]

    def line(row: "list[str]") -> str:
        padded = (c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric))
        return "  ".join(padded).rstrip()

    return "\n".join(map(line, [columns, *cells])) + "\n"


def markdown_table(columns: "list[str]", rows: "list[tuple[typing.Any, ...]]") -> str:
    def line(cells: "typing.Iterable[str]") -> str:
        return "| " + " | ".join(_one_line(c).replace("|", "\\|") for c in cells) + " |"

    body = [line(map(_cell, row)) for row in rows]
    return "\n".join([line(columns), "|" + "---|" * len(columns), *body]) + "\n"


def _json_value(value: typing.Any) -> typing.Any:
    return value if isinstance(value, (int, float, str, bool, type(None), list, dict)) else str(value)


def _take(rows: "typing.Iterator", limit: "int | None") -> "typing.Iterator":
    for at, row in enumerate(rows):
        if limit is not None and at >= limit:
            return
        yield row


def write_answer(answer: Answer, form: str, limit: "int | None", out: typing.TextIO) -> None:
    """Writes an answer as ``text``, ``markdown``, ``csv`` or ``json``."""
    columns, rows = answer
    if form == "csv":
        writer = csv.writer(out, lineterminator="\r\n")  # RFC 4180
        writer.writerow(columns)
        writer.writerows(_take(rows, limit))
        return
    if form == "json":
        out.write(json.dumps({"schema_version": 1, "columns": columns})[:-1] + ', "rows": [')
        for at, row in enumerate(_take(rows, limit)):
            values = dict(zip(columns, map(_json_value, row)))
            out.write(("," if at else "") + "\n" + json.dumps(values))
        out.write("]}\n")
        return
    limit = TEXT_ROWS if limit is None else limit
    shown = list(_take(rows, limit + 1))
    more = len(shown) > limit
    table = text_table if form == "text" else markdown_table
    out.write(table(columns, shown[:limit]))
    if more:
        out.write(f"and more: --limit N shows N rows, {limit} are shown\n")


def write_arrow(stream: typing.Any, out: typing.BinaryIO) -> None:
    """Writes Arrow's IPC stream. Needs nanoarrow (small, of the Arrow project)."""
    try:
        import nanoarrow.ipc
    except ImportError as error:
        raise ImportError("epilogue sql --format arrow needs nanoarrow: pip install 'epilogue[sql]'") from error
    with nanoarrow.ipc.StreamWriter.from_writable(out) as writer:
        writer.write_stream(stream)


# --- The command ----------------------------------------------------------------------------------

_EXAMPLE = """\
Tables: ops, kernels, launches, steps, memory, ranges, frames, links. Times are nanoseconds (_ns).
Several traces, or a folder of ranks, are one table with the columns rank and file.

Example:
  epilogue sql trace.json.gz "SELECT name, sum(dur_ns)/1e6 AS ms FROM kernels GROUP BY 1 ORDER BY 2 DESC LIMIT 10"
"""


def _whole(least: int) -> "typing.Callable[[str], int]":
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected a whole number of {least} or more, got {text!r}")
        return int(text)

    return parse


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> typing.NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="epilogue sql",
        description="Asks one or more traces in SQL (DuckDB).",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("traces", metavar="TRACE", nargs="+", help="a trace, or a folder with one for each rank")
    parser.add_argument("query", metavar="QUERY", help="one statement that reads")
    parser.add_argument(
        "--format", choices=("text", "csv", "json", "arrow", "markdown"), default="text",
        help="form of the output; arrow is Arrow's IPC stream [text]",
    )
    parser.add_argument("--limit", type=_whole(0), metavar="N", help=f"rows at most [text: {TEXT_ROWS}]")
    parser.add_argument(
        "--memory-limit", type=_whole(64), default=2048, metavar="MIB",
        help="of DuckDB; beyond it lies a temporary folder [2048]",
    )
    return parser


def _fail(line: str) -> int:
    print(line if line.startswith("epilogue ") else f"epilogue {line}", file=sys.stderr)
    return 2


def _print(arguments: argparse.Namespace) -> None:
    with Database(arguments.traces, arguments.query, memory_limit_mb=arguments.memory_limit) as database:
        if arguments.format == "arrow":
            stream = database.stream()
            if arguments.limit is not None:
                stream = stream.limit(arguments.limit)
            write_arrow(stream, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            return
        sys.stdout.reconfigure(encoding="utf-8", errors="replace", newline="")  # type: ignore[union-attr]
        write_answer(database.answer(), arguments.format, arguments.limit, sys.stdout)
        sys.stdout.flush()


def main(arguments: "list[str] | None" = None) -> int:
    """The command. Gives its exit status: 0 fine, 2 misuse or bad input, with one line on stderr."""
    parsed = _parser().parse_args(arguments)
    warnings.showwarning = lambda message, *_: print(f"epilogue sql: warning: {message}", file=sys.stderr)
    try:
        _print(parsed)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: no fault
    except ImportError as error:
        return _fail(str(error))
    except OSError as error:
        name = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _fail(f"sql: {name}")
    except Error as error:
        text = str(error)
        return _fail(text if text.startswith("sql: ") else f"sql: {text}")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
