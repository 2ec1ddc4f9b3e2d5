# SPDX-License-Identifier: Apache-2.0
"""The profiler: torch.profiler's contract for what this library runs."""

from __future__ import annotations

import typing
import warnings as _warnings

from . import _core, _engine  # noqa: F401  (says so where the engine is not there)

if typing.TYPE_CHECKING:
    import os

    from ._tables import Table


class Schedule(typing.NamedTuple):
    """Which steps are recorded: see :func:`schedule`."""

    wait: int
    warmup: int
    active: int
    repeat: int
    skip_first: int


def schedule(
    *, wait: int = 0, warmup: int = 0, active: int = 1, repeat: int = 0, skip_first: int = 0
) -> Schedule:
    """Which steps :class:`profile` records, in cycles of ``wait + warmup + active`` steps.

    ``repeat=0``: for ever. The arguments are those of ``torch.profiler.schedule``.
    """
    return Schedule(wait, warmup, active, repeat, skip_first)


class profile:
    """Records what the library runs, as ``torch.profiler.profile`` does.

    A CPU is profiled as a device whose launches are synchronous: every kernel is an event. One
    profile records at a time in a process; ops of all threads are recorded. Enter, step and leave
    on one thread.

    Args:
        schedule: Of :func:`schedule`. Default: everything is recorded, without steps.
        on_trace_ready: Called with this object after each cycle.
        record_shapes: Shapes of the ops' inputs: FLOPs and bytes need them.
        profile_memory: Allocations and frees.
        with_flops: FLOPs of products; implies ``record_shapes``.

    >>> with epilogue.profile() as prof:                       # doctest: +SKIP
    ...     mlp(x)
    >>> print(prof.key_averages())                              # doctest: +SKIP
    >>> print(epilogue.explain(prof))                           # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        schedule: "Schedule | None" = None,
        on_trace_ready: "typing.Callable[[profile], typing.Any] | None" = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_flops: bool = False,
    ):
        import weakref

        this = weakref.ref(self)  # the native half holds the callback: no cycle through it

        def ready() -> None:
            on_trace_ready(this())

        self._native = _core.make_profile(
            record_shapes,
            profile_memory,
            with_flops,
            None if schedule is None else list(schedule),
            None if on_trace_ready is None else ready,
        )
        self._warned = 0

    def _warn(self) -> None:
        found = self._native.warnings()
        for text in found[self._warned :]:
            _warnings.warn(text, stacklevel=3)
        self._warned = len(found)

    def start(self) -> None:
        """Begins. Raises :exc:`epilogue.Error` while another profile records."""
        self._native.start()

    def step(self) -> None:
        """Ends a step."""
        self._native.step()
        self._warn()

    def stop(self) -> None:
        """Ends the recording."""
        self._native.stop()
        self._warn()

    def __enter__(self) -> "profile":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def step_num(self) -> int:
        """Steps so far."""
        return self._native.step_num

    def key_averages(self, *, group_by_input_shape: bool = False, **options: typing.Any) -> "Table":
        """The table of the last cycle; ``options`` are those of :func:`epilogue.table`."""
        from . import _trace

        return _trace.table(self, group_by_input_shape=group_by_input_shape, **options)

    def export_chrome_trace(self, path: "str | os.PathLike[str]") -> None:
        """Writes the last cycle as a Chrome trace, for Perfetto; gzip if the path ends in ``.gz``.

        Any number of times. Raises :exc:`epilogue.Error` before a cycle is finished, and
        :exc:`epilogue.TraceError` if the file cannot be written.
        """
        import os

        self._native.export_chrome_trace(os.fspath(path))


profile.__module__ = Schedule.__module__ = "epilogue"
