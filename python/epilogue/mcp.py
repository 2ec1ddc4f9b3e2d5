# SPDX-License-Identifier: Apache-2.0
"""``epilogue mcp``: traces for assistants, over the Model Context Protocol (stdio).

Needs the protocol's SDK and DuckDB: ``pip install 'epilogue[mcp]'``.
"""

import argparse
import functools
import io
import os
import sys
import threading
import typing
import warnings

from . import _core
from . import _trace as api
from . import sql as sql_module

MAX_BYTES = 4096  # of an answer, with what points on
_POINTER_BYTES = 600  # kept free for it
SQL_SECONDS = 20.0
SQL_MEMORY_MB = 512
SQL_TEMPORARY_MB = 1024
MAX_ROWS = 200


class Refused(Exception):
    """One line for the caller."""


class Roots:
    """The folders below which paths must lie; links are resolved before they are compared."""

    def __init__(self, folders: "typing.Sequence[str]"):
        self.folders = [os.path.realpath(folder) for folder in folders]
        for folder, given in zip(self.folders, folders):
            if not os.path.isdir(folder):
                raise NotADirectoryError(f"--root: expected a folder, got {given}")

    def resolve(self, path: str) -> str:
        """The real path. A relative one is looked up in each folder."""
        if "\0" in path or not path:
            raise Refused("expected a path, got an empty one" if not path else "a path has no NUL")
        for folder in self.folders:
            real = os.path.realpath(os.path.join(folder, path))
            if not self._holds(real):
                continue
            if os.path.exists(real):
                self._check_folder(real)
                return real
        if not any(self._holds(os.path.realpath(os.path.join(f, path))) for f in self.folders):
            raise Refused(f"{path}: lies outside of the folders that were allowed: {', '.join(self.folders)}")
        raise Refused(f"{path}: no such file or folder below {', '.join(self.folders)}")

    def _holds(self, real: str) -> bool:
        return any(os.path.commonpath([real, folder]) == folder for folder in self.folders)

    def _check_folder(self, real: str) -> None:
        # A link in a folder of ranks must not lead outside either.
        if not os.path.isdir(real):
            return
        for entry in os.scandir(real):
            if entry.is_symlink() and not self._holds(os.path.realpath(entry.path)):
                raise Refused(f"{entry.path}: a link that leads outside of the folders that were allowed")


# --- Answers of bounded size ----------------------------------------------------------------------


def _cut(text: str, room: int) -> str:
    """At most so many bytes of UTF-8, to the end of a line where there is one."""
    data = text.encode("utf-8", "replace")
    if len(data) <= room:
        return text
    cut = data[:room].decode("utf-8", "ignore")
    line = cut.rfind("\n")
    return cut[: line + 1] if line > room // 2 else cut


def page(text: str, offset: int, hint: str = "") -> str:
    """What an answer says from `offset` (in characters) on, and how to ask for the rest."""
    if offset < 0 or (offset and offset >= len(text)):
        raise Refused(f"offset: expected 0 to {max(len(text) - 1, 0)}, got {offset}")
    rest = text[offset:]
    hint = _cut(hint, _POINTER_BYTES - 100)
    if len((rest + hint).encode("utf-8", "replace")) <= MAX_BYTES - 1:
        return rest.rstrip("\n") + ("\n" + hint if hint else "")
    part = _cut(rest, MAX_BYTES - _POINTER_BYTES)
    end = offset + len(part)
    more = f"[characters {offset} to {end} of {len(text)}; ask again with offset={end} for the next]"
    return part.rstrip("\n") + "\n" + more + ("\n" + hint if hint else "")


def sections(text: str) -> "dict[str, str]":
    """The parts of an explanation by their headings, the lines behind an empty line. "Summary" is the first."""
    found: "dict[str, str]" = {}
    title, lines = "Summary", []
    before = None
    for line in text.splitlines():
        if before == "" and line and not line.startswith(" "):
            found[title] = "\n".join(lines).strip("\n")
            title, lines = line, []
        lines.append(line)
        before = line
    found[title] = "\n".join(lines).strip("\n")
    return found


def _section(text: str, wanted: "str | None", offset: int) -> str:
    parts = sections(text)
    titles = "; ".join(parts)
    if wanted is None:
        long = len(text.encode("utf-8", "replace")) > MAX_BYTES
        return page(text, offset, f"[sections, each by section=...: {titles}]" if long else "")
    matching = [t for t in parts if t.lower().startswith(wanted.strip().lower())]
    if not matching:
        raise Refused(_cut(f"section: expected one of {titles}; got {wanted!r}", MAX_BYTES - 100))
    return page(parts[matching[0]], offset)


# --- Tools ----------------------------------------------------------------------------------------


class Tools:
    """What the tools do. Texts of the last answers are kept, for pages of them."""

    def __init__(self, roots: Roots):
        self._roots = roots
        self._texts: "dict[typing.Any, str]" = {}
        self._lock = threading.Lock()

    def _text(self, key: "tuple[typing.Any, ...]", paths: "list[str]", make: "typing.Callable[[], str]") -> str:
        # A trace of a folder that is written anew leaves the folder's own time as it was.
        files = [f for p in paths for f in ([p] if os.path.isfile(p) else sorted(e.path for e in os.scandir(p)))]
        stamps = tuple((f, os.stat(f).st_mtime_ns, os.stat(f).st_size) for f in files)
        with self._lock:
            kept = self._texts.get((key, stamps))
        if kept is not None:
            return kept
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", api.TraceWarning)
            text = make()
        text = "".join(f"warning: {w.message}\n" for w in caught) + text
        with self._lock:
            while len(self._texts) >= 8:
                del self._texts[next(iter(self._texts))]
            self._texts[key, stamps] = text
        return text

    def explain(self, path: str, section: "str | None", step: "int | None", offset: int) -> str:
        real = self._roots.resolve(path)
        text = self._text(("explain", step), [real], lambda: api.explain(real, step=step).text())
        return _section(text, section, offset)

    def table(self, path: str, sort_by: "str | None", rows: int, step: "int | None", offset: int) -> str:
        real = self._roots.resolve(path)
        key = ("table", sort_by, rows, step)
        make = lambda: api.table(real, sort_by=sort_by, row_limit=rows, step=step).text()  # noqa: E731
        return page(self._text(key, [real], make), offset)

    def diff(self, before: str, after: str, section: "str | None", offset: int) -> str:
        paths = [self._roots.resolve(before), self._roots.resolve(after)]
        return _section(self._text(("diff",), paths, lambda: api.diff(*paths).text()), section, offset)

    def check(self, path: str, expressions: "list[str]", offset: int) -> str:
        real = self._roots.resolve(path)
        if not expressions:
            make = lambda: api.quantities(real).text()  # noqa: E731
        else:
            make = lambda: api.check(real, *expressions, raises=False).text()  # noqa: E731
        return page(self._text(("check", *expressions), [real], make), offset)

    def name(self, kernel: str) -> str:
        return page(api.name(kernel).text(), 0)

    def sql(self, paths: "list[str]", query: str, limit: int, offset: int) -> str:
        real = [self._roots.resolve(path) for path in paths]
        if not 1 <= limit <= MAX_ROWS:
            raise Refused(f"limit: expected 1 to {MAX_ROWS}, got {limit}; aggregate, or use LIMIT and OFFSET in SQL")

        def make() -> str:
            out = io.StringIO()
            with sql_module.Database(
                real,
                query,
                memory_limit_mb=SQL_MEMORY_MB,
                temporary_limit_mb=SQL_TEMPORARY_MB,
                timeout_s=SQL_SECONDS,
            ) as database:
                sql_module.write_answer(database.answer(), "text", limit, out)
            return out.getvalue()

        return page(self._text(("sql", query, limit), real, make), offset)


_INSTRUCTIONS = """\
Reads traces of PyTorch's profiler (.json, .json.gz; or a folder with one for each rank of a run).
Begin with explain: it says what bounds the run, with evidence and what acting would save. Answers have
at most 4 kB; longer ones say how to ask for the rest (offset, section). sql answers what is left.\
"""

_SQL = """\
Asks traces in SQL (DuckDB, read-only): one SELECT. Times are nanoseconds (_ns), memory is bytes.
ops(id, name, ts_ns, dur_ns, self_ns, device_ns, kernels, tid, parent_id, step, input_shapes, module, ...),
kernels(id, name, ts_ns, dur_ns, kind, device, stream, launch_id, op_id, op, step, module, grid_x, ...),
launches(id, name, ts_ns, dur_ns, op_id, op, step, ...), steps(step, ts_ns, dur_ns, ...), ranges, memory(ts_ns,
bytes, addr, op_id, op, category, frame_id, module, ...), frames(id, name, parent_id, ...), links(kernel_id, launch_id,
op_id, step). All have rank and file; ids are those of a file. DESCRIBE ops lists all columns."""


def server(roots: "typing.Sequence[str]") -> typing.Any:
    """The server, of the official SDK; ``run()`` speaks on stdin and stdout.

    Raises:
        ImportError: The SDK is not installed.
        NotADirectoryError: A root is no folder.
    """
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.types import ToolAnnotations
        from pydantic import Field
    except ImportError as error:
        raise ImportError("epilogue mcp needs the SDK mcp, 2 or newer: pip install 'epilogue[mcp]'") from error

    tools = Tools(Roots(roots))
    made = MCPServer("epilogue", instructions=_INSTRUCTIONS, version=_core.version)
    annotated = typing.Annotated
    Path = annotated[str, Field(description="Trace (.json, .json.gz) below the allowed folders; relative or absolute")]
    Offset = annotated[int, Field(description="Characters to skip: an answer that was cut names the next", ge=0)]
    Step = annotated[typing.Optional[int], Field(description="Only ProfilerStep#N")]
    Section = annotated[typing.Optional[str], Field(description="Only the part with this heading, such as Findings")]

    def tool(function: typing.Any) -> typing.Any:
        @functools.wraps(function)
        def answered(*args: typing.Any, **kwargs: typing.Any) -> str:
            try:
                return function(*args, **kwargs)
            except (Refused, _core.Error, OSError, ImportError, ValueError) as error:
                line = " ".join(str(error).split())
                raise ToolError(_cut(line, MAX_BYTES - 200)) from None

        only_reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return made.tool(annotations=only_reads, structured_output=False)(answered)

    @tool
    def explain(path: Path, section: Section = None, step: Step = None, offset: Offset = 0) -> str:
        """Says what a trace means: what bounds the run, findings with evidence and savings, steps, rates.
        A folder with a trace for each rank of a run: who waits for whom."""
        return tools.explain(path, section, step, offset)

    @tool
    def table(
        path: Path,
        sort_by: annotated[
            typing.Optional[str], Field(description="cpu_time_total, self_device_time_total, count, ... (descending)")
        ] = None,
        rows: annotated[int, Field(description="Rows at most", ge=1, le=MAX_ROWS)] = 20,
        step: Step = None,
        offset: Offset = 0,
    ) -> str:
        """PyTorch's key-averages table: time of each op and kernel, on the host and the device."""
        return tools.table(path, sort_by, rows, step, offset)

    @tool
    def diff(before: Path, after: Path, section: Section = None, offset: Offset = 0) -> str:
        """Says what changed between two traces, in parts that add up to the difference."""
        return tools.diff(before, after, section, offset)

    @tool
    def check(
        path: Path,
        expressions: annotated[
            typing.List[str],
            Field(description="Each 'NAME OP NUMBER', such as 'kernels_per_step <= 5'; none: all names and values"),
        ] = [],  # noqa: B006: the SDK copies it
        offset: Offset = 0,
    ) -> str:
        """Says whether expectations of a trace hold, or lists all quantities with their values."""
        return tools.check(path, expressions, offset)

    @tool
    def name(kernel: annotated[str, Field(description="As a trace has it")]) -> str:
        """Decodes the name of a GPU kernel: library, tile, types, stages, fused ops."""
        return tools.name(kernel)

    def sql(
        paths: annotated[
            typing.List[str], Field(description="Traces, or folders of ranks: one table with a rank column", min_length=1)
        ],
        query: annotated[str, Field(description="One SELECT of DuckDB")],
        limit: annotated[int, Field(description=f"Rows at most, up to {MAX_ROWS}")] = 50,
        offset: Offset = 0,
    ) -> str:
        return tools.sql(paths, query, limit, offset)

    sql.__doc__ = _SQL
    tool(sql)
    return made


def main(arguments: "list[str] | None" = None) -> int:
    """The command. Gives its exit status: 0 when stdin ends, 2 on misuse, with one line on stderr."""
    parser = sql_module._Parser(
        prog="epilogue mcp",
        description="Serves traces to assistants over the Model Context Protocol, on stdin and stdout.",
        epilog="Tools: explain, table, diff, check, name, sql. Answers have at most 4 kB.\n\n"
        "Example:\n  epilogue mcp --root traces/",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--root", action="append", metavar="DIR", help="a folder whose traces may be read; several are fine [.]"
    )
    parsed = parser.parse_args(arguments)
    try:
        made = server(parsed.root or ["."])
    except (ImportError, OSError) as error:
        print(str(error) if str(error).startswith("epilogue ") else f"epilogue mcp: {error}", file=sys.stderr)
        return 2
    try:
        made.run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0
