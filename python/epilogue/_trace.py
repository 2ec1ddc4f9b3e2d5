# SPDX-License-Identifier: Apache-2.0
"""The trace half: what a trace of PyTorch's profiler means.

All functions release the interpreter's lock while they work, answer Ctrl-C, and may be called from
several threads. What a trace has that is broken is skipped, with a :class:`TraceWarning`.
"""

from __future__ import annotations

import os
import typing
import warnings as _warnings

from . import _core
from ._checks import BaselineFailed, BaselineResult, CheckFailed, CheckResult, Quantities
from ._explanation import Explanation, RanksExplanation
from ._result import KernelName, RankPart, Report
from ._source import Source, TraceLike
from ._tables import Diff, Table

Error = _core.Error
TraceError = _core.TraceError


class TraceWarning(UserWarning):
    """Part of a trace had to be skipped, or is doubtful."""


def _warn(texts: "typing.Iterable[str]") -> None:
    for text in texts:
        _warnings.warn(text, TraceWarning, stacklevel=3)


def _capture(capture: "TraceLike | None") -> "Source | None":
    return None if capture is None else Source(capture)


def explain(
    trace: TraceLike,
    *,
    top: int = 10,
    modules: bool = False,
    cpu: "str | None" = None,
    cpu_threads: "int | None" = None,
    capture: "TraceLike | None" = None,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> "Explanation | RanksExplanation":
    """Says what a trace means, with evidence and savings.

    Args:
        trace: A path of a ``.json`` or ``.json.gz`` file, what such a file holds, a profiler, or
            the path of a folder with one trace for each rank of a run.
        top: Rows of each list in text and Markdown; -1: all. :meth:`Result.to_dict` has all.
        modules: Time per ``nn.Module``, if the trace was recorded ``with_stack`` (slower).
        cpu: The CPU that recorded a trace without a device: its products are compared with its
            peak. A name as in ``/proc/cpuinfo`` (``"AMD EPYC 7763"``) or a family (``"Zen 3 @
            3.1GHz"``) gives an estimate; ``"here"``: this machine, as ``epilogue info --measure``
            measured it.
        cpu_threads: Threads that the run had. Default: all of ``"here"``, else one.
        capture: A trace of the capture, or of an eager run of the same model: kernels of replayed
            CUDA graphs get the op, module and frame that captured them. Of a folder none is used.
        step: Only ``ProfilerStep#step``: what it launched, and what ran during it.
        from_ms, to_ms: Only what happens in this stretch, in milliseconds after the start.

    Returns:
        An :class:`Explanation`; of a folder with several ranks a :class:`RanksExplanation`.

    Raises:
        OSError: The file cannot be read (:exc:`FileNotFoundError` and others).
        TraceError: It holds no trace, or not that step. ``code`` is a stable name.
        Error: A folder's traces are of different runs; a CPU whose peak is not known; a capture
            beside a folder.

    >>> print(epilogue.explain("trace.json.gz"))            # doctest: +SKIP
    >>> epilogue.explain(prof).findings[0].title            # doctest: +SKIP
    """
    source = Source(trace, step, from_ms, to_ms)
    beside = _capture(capture)
    answer, warned = _core.explain(
        source.native, top, modules, cpu or "", cpu_threads or 0, beside and beside.native
    )
    _warn(warned)
    is_folder = isinstance(trace, (str, os.PathLike)) and os.path.isdir(trace)
    result = Explanation(answer)
    return RanksExplanation(answer) if is_folder and "ranks" in result._data else result


def shard(
    folder: "str | os.PathLike[str]",
    index: int,
    count: int,
    out: "str | os.PathLike[str]" = "parts",
    *,
    modules: bool = False,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> RankPart:
    """Reads part ``index`` of ``count`` of a run's ranks, anywhere, and writes what :func:`merge` joins.

    The traces ``index``, ``index + count``, ... of the folder are read, by name, one after the
    other; memory holds one trace and what is kept of each.

    Args:
        folder: With one trace for each rank of a run, the same on every machine.
        index: The part, from 1 to ``count``.
        count: Parts in all.
        out: Folder of the file that is written, ``part-INDEX-of-COUNT.epart``; made if missing.
        modules, step, from_ms, to_ms: As of :func:`explain`; the same for all parts.

    Returns:
        A :class:`RankPart`, which :func:`merge` takes as a path.

    Raises:
        OSError, TraceError: As of :func:`explain`; TraceError too if the file cannot be written.
        Error: ``folder`` is none, or holds no traces; no such part.

    >>> parts = [epilogue.shard("run", i, 4) for i in range(1, 5)]      # doctest: +SKIP
    >>> print(epilogue.merge(parts))                                    # doctest: +SKIP
    """
    source = Source(folder, step, from_ms, to_ms)
    answer, warned = _core.shard(source.native, index, count, os.fspath(out), modules)
    _warn(warned)
    return RankPart(answer)


def merge(
    parts: "str | os.PathLike[str] | typing.Sequence[str | os.PathLike[str]]",
    *,
    top: int = 10,
    page: "str | os.PathLike[str] | None" = None,
    title: str = "",
) -> RanksExplanation:
    """Joins all parts of one run that :func:`shard` wrote: what :func:`explain` gives of the folder.

    Args:
        parts: Paths of the parts, in any order, or of folders with them.
        top: Rows of each list in text and Markdown; -1: all. :meth:`Result.to_dict` has all.
        page: One HTML page of all ranks is written here too, as :func:`report` of the folder does.
        title: Heading of the page; default: "ranks".

    Returns:
        A :class:`RanksExplanation`, bit for bit that of the folder.

    Raises:
        OSError: A path is not there.
        TraceError: A file is no part, or damaged; the page cannot be written.
        Error: A part is missing or there twice, or parts are of different runs or options.
    """
    several = [parts] if isinstance(parts, (str, os.PathLike)) else list(parts)
    if not several:
        raise TypeError("merge() expected one part or more, got none")
    paths = [os.fspath(part) for part in several]
    for path in paths:
        os.stat(path)  # FileNotFoundError and its kin, as open() raises them
    answer, warned = _core.merge(paths, top, "" if page is None else os.fspath(page), title)
    _warn(warned)
    return RanksExplanation(answer)


def table(
    trace: TraceLike,
    *,
    sort_by: "str | None" = None,
    row_limit: "int | None" = None,
    group_by_input_shape: bool = False,
    capture: "TraceLike | None" = None,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> Table:
    """The key-averages table of any trace, as ``prof.key_averages().table()`` prints it.

    Args:
        trace: As of :func:`explain`, but no folder.
        sort_by: ``"cpu_time_total"``, ``"self_device_time_total"``, ``"count"``, ... (descending).
            Default: the device's own time where there is any, else the host's.
        row_limit: Rows; -1: all. Default: 100 in text, all in :meth:`Result.to_dict`.
        group_by_input_shape: One row per op and shapes (recorded with ``record_shapes``).
        capture: As of :func:`explain`: the time of replayed graphs, in microseconds as all times of
            rows, is booked to the ops that captured it; :attr:`Table.captured_pct` says how much.
        step, from_ms, to_ms: As of :func:`explain`.

    Raises:
        OSError, TraceError: As of :func:`explain`.
        Error: An unknown key; the message names those there are.
    """
    source = Source(trace, step, from_ms, to_ms)
    beside = _capture(capture)
    answer, warned = _core.table(
        source.native, sort_by or "", row_limit, group_by_input_shape, beside and beside.native
    )
    _warn(warned)
    return Table(answer)


def diff(
    before: TraceLike,
    after: TraceLike,
    *,
    top: int = 15,
    capture: "TraceLike | tuple[TraceLike, TraceLike] | None" = None,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> Diff:
    """Says what changed between two traces, in parts that add up.

    Args:
        before, after: As of :func:`explain`, but no folders.
        top: Rows of each list in text and Markdown; -1: all.
        capture: As of :func:`explain`, of both traces, or a pair of one for each: kernels of
            replayed graphs are compared by the ops that captured them.
        step, from_ms, to_ms: Of both traces, as of :func:`explain`.

    Raises:
        OSError, TraceError: As of :func:`explain`.
    """
    sources = Source(before, step, from_ms, to_ms), Source(after, step, from_ms, to_ms)
    pair = capture if isinstance(capture, tuple) else () if capture is None else (capture,)
    captures = [Source(trace) for trace in pair]
    answer, warned = _core.diff(
        sources[0].native, sources[1].native, top, [source.native for source in captures]
    )
    _warn(warned)
    return Diff(answer)


def check(
    trace: TraceLike,
    *expressions: str,
    raises: bool = True,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> CheckResult:
    """Asserts what a trace should show.

    Args:
        trace: As of :func:`explain`, but no folder.
        expressions: ``"NAME OP NUMBER"`` with OP one of ``== != < <= > >=``;
            :func:`quantities` has the names. A quantity that the trace cannot give fails.
        raises: ``False``: return the result also where an expectation fails.
        step, from_ms, to_ms: As of :func:`explain`.

    Raises:
        CheckFailed: An :exc:`AssertionError` with what was expected and what was found.
        Error: An expression is none, or names no quantity; the message has the nearest.
        OSError, TraceError: As of :func:`explain`.

    >>> epilogue.check(prof, "kernels_per_step <= 5", "gpu_idle_pct < 20")  # doctest: +SKIP
    """
    if not expressions:
        raise TypeError("check() expected one or more such as 'kernels_per_step <= 5', got none")
    source = Source(trace, step, from_ms, to_ms)
    answer, holds, warned = _core.check(source.native, list(expressions))
    _warn(warned)
    result = CheckResult(answer)
    if raises and not holds:
        raise CheckFailed(result)
    return result


def check_baseline(
    after: "TraceLike | typing.Sequence[TraceLike]",
    before: "TraceLike | typing.Sequence[TraceLike]",
    *,
    tolerance_pct: float = 2.0,
    raises: bool = True,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> BaselineResult:
    """Asserts that the steps of some traces take no longer than those of an earlier version.

    The test is Mann and Whitney's, over all steps; take several traces of each version, for the
    steps of one process share its luck.

    Args:
        after, before: One trace or a list of them, each as of :func:`explain`, but no folder.
        tolerance_pct: Smaller changes of the median do not count, in per cent.
        raises: ``False``: return the result also where something is slower.
        step, from_ms, to_ms: Of each trace, as of :func:`explain`.

    Raises:
        BaselineFailed: An :exc:`AssertionError` with what is slower, and by how much.
        Error: A trace has no steps (``profiler.step()``), or there are too few to decide.
        OSError, TraceError: As of :func:`explain`.

    >>> epilogue.check_baseline(["new1.json", "new2.json"], ["old1.json", "old2.json"])  # doctest: +SKIP
    """
    if tolerance_pct < 0:
        raise ValueError(f"check_baseline() expected a tolerance of 0 or more, got {tolerance_pct}")
    sides = []
    for traces in (after, before):
        several = traces if isinstance(traces, (list, tuple)) else [traces]
        if not several:
            raise TypeError("check_baseline() expected one or more traces of each version, got none")
        sides.append([Source(trace, step, from_ms, to_ms) for trace in several])
    natives = [[source.native for source in side] for side in sides]
    answer, holds, warned = _core.check_baseline(natives[0], natives[1], tolerance_pct)
    _warn(warned)
    result = BaselineResult(answer)
    if raises and not holds:
        raise BaselineFailed(result)
    return result


def quantities(
    trace: TraceLike,
    *,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> Quantities:
    """Named numbers of a trace: what :func:`check` compares. ``None`` where it cannot give one.

    Raises:
        OSError, TraceError: As of :func:`explain`.
    """
    source = Source(trace, step, from_ms, to_ms)
    answer, warned = _core.quantities(source.native)
    _warn(warned)
    return Quantities(answer)


def report(
    trace: TraceLike,
    out: "str | os.PathLike[str]",
    *,
    against: "TraceLike | None" = None,
    title: str = "",
    embed_trace: bool = True,
    modules: bool = False,
    rank_pages: bool = False,
    cpu: "str | None" = None,
    cpu_threads: "int | None" = None,
    capture: "TraceLike | None" = None,
    step: "int | None" = None,
    from_ms: "float | None" = None,
    to_ms: "float | None" = None,
) -> Report:
    """Writes one HTML page that explains a trace and holds it.

    Args:
        trace: As of :func:`explain`; the page of a folder holds no trace.
        out: The page; its folder is made if missing.
        against: An earlier trace to compare with.
        title: Heading of the page; default: the trace's name.
        embed_trace: The page holds the trace as it is, metadata included; a
            :class:`TraceWarning` names metadata that looks like credentials.
        modules: Python frames and time per ``nn.Module``, if they were recorded (slower).
        rank_pages: Of a folder of ranks: also a page for each rank, with its trace unless
            ``embed_trace`` is false, in ``OUT_ranks/rank_0003.html`` beside ``OUT.html``, which
            links to them. :attr:`Report.rank_pages` has their paths. One trace is held at a time.
        cpu, cpu_threads: As of :func:`explain`.
        capture: As of :func:`explain` and :func:`table`, and of both traces of a comparison.
        step, from_ms, to_ms: As of :func:`explain`.

    Raises:
        OSError, TraceError: As of :func:`explain`; TraceError too if a page cannot be written.
        Error: As of :func:`explain`; ``rank_pages`` of one trace.
    """
    source = Source(trace, step, from_ms, to_ms)
    earlier = None if against is None else Source(against, step, from_ms, to_ms)
    beside = _capture(capture)
    answer, credentials, warned = _core.report(
        source.native,
        os.fspath(out),
        None if earlier is None else earlier.native,
        title,
        embed_trace,
        modules,
        rank_pages,
        cpu or "",
        cpu_threads or 0,
        beside and beside.native,
    )
    if credentials:
        warned.append(
            "the trace in the page holds metadata that may be credentials: "
            f"{', '.join(credentials)}; embed_trace=False leaves the trace out"
        )
    _warn(warned)
    return Report(answer)


def name(kernel_name: str) -> KernelName:
    """Decodes a kernel's name, field by field. Never fails: what is unknown says so.

    >>> epilogue.name("nvjet_sm103_tst_512x8_64x3_2x1_v_bz_NNT").fields["tile"]
    '512x8'
    """
    return KernelName(_core.names([kernel_name]))


def sort_keys() -> "list[str]":
    """What ``sort_by`` of :func:`table` takes."""
    return _core.sort_keys()
