# SPDX-License-Identifier: Apache-2.0
"""What stands for a trace: a path, bytes, or a profiler that exports one."""

from __future__ import annotations

import errno
import inspect
import os
import tempfile
import threading
import typing
import weakref

from . import _core


@typing.runtime_checkable
class Exporter(typing.Protocol):
    """A profiler: ``torch.profiler.profile``, :class:`epilogue.profile`, or alike."""

    def export_chrome_trace(self, path: str) -> typing.Any: ...


TraceLike = typing.Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, Exporter]
"""A path (of a ``.json`` or ``.json.gz`` file, of a ``.pftrace`` of Perfetto, or of an ``.sqlite`` export of Nsight Systems), what such a file holds, or a profiler."""

# PyTorch's own export works once per recording. Its file stays as long as the recording does.
_exported: "weakref.WeakKeyDictionary[typing.Any, str]" = weakref.WeakKeyDictionary()
_exporting = threading.Lock()


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        pass


def _write(profiler: Exporter, path: str) -> None:
    """Exports natively; where that was used up, with PyTorch's export in Python."""
    try:
        profiler.export_chrome_trace(path)
    except RuntimeError as error:
        has_python_export = (
            "use_python_export" in inspect.signature(profiler.export_chrome_trace).parameters
        )
        if "already saved" not in str(error) or not has_python_export:
            raise
        profiler.export_chrome_trace(path, use_python_export=True)  # type: ignore[call-arg]


def _export(profiler: Exporter, owner: typing.Any) -> str:
    """A new file with the profiler's trace. It is removed with `owner`."""
    handle, path = tempfile.mkstemp(prefix="epilogue-", suffix=".json")
    os.close(handle)
    try:
        _write(profiler, path)
    except BaseException:
        _remove(path)
        raise
    weakref.finalize(owner, _remove, path)
    return path


def _file_of(profiler: Exporter, holder: "_Holder") -> str:
    recording = getattr(profiler, "profiler", None)
    if recording is None:
        return _export(profiler, holder)
    with _exporting:
        path = _exported.get(recording)
        if path is None:
            path = _exported[recording] = _export(profiler, recording)
        return path


class _Holder:
    """Lives as long as one call."""


class Source:
    """A trace as the native half takes it, for the time of one call."""

    def __init__(
        self,
        trace: TraceLike,
        step: "int | None" = None,
        from_ms: "float | None" = None,
        to_ms: "float | None" = None,
    ):
        self._holder = _Holder()
        path, content, name = "", None, ""
        if isinstance(trace, (str, os.PathLike)):
            path = os.fspath(trace)
            if not isinstance(path, str):
                raise TypeError(f"expected a path of text, got {type(path).__name__}")
            if path == "-":
                raise FileNotFoundError(errno.ENOENT, "expected a file, not stdin", path)
            os.stat(path)  # FileNotFoundError and its kin, as open() raises them
        elif isinstance(trace, (bytes, bytearray, memoryview)):
            content, name = bytes(trace), "<bytes>"
        elif isinstance(trace, Exporter):
            path = _file_of(trace, self._holder)
            name = f"<{type(trace).__module__}.{type(trace).__qualname__}>"
        else:
            raise TypeError(
                "expected a path, bytes, or a profiler with export_chrome_trace(), "
                f"got {type(trace).__name__}"
            )
        self.path = path
        self.native = _core.source(path, content, name, step, from_ms, to_ms)
