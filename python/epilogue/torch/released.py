# SPDX-License-Identifier: Apache-2.0
"""fuse(release=True): packed weights in place of the originals. The parameters stay parameters, and their values go to a
file without a name that they map. Pages of it take memory while somebody reads them: once a layer has packed its
weights, they are given back.

So nothing that reads or writes a parameter has to know of it: state_dict(), load_state_dict(), a copy, a module's own
forward, the samples that find writes. They are slower at the first read.
"""

import ctypes
import mmap
import os
import tempfile
import typing

import torch
from torch import nn

from . import handle

_PAGE = mmap.PAGESIZE
# Files there are memory.
_IN_MEMORY = {"tmpfs", "ramfs", "devtmpfs"}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def folder_of(release: "bool | str") -> "str | None":
    """Where the file goes; None: nothing is released. Raises ValueError where the folder serves not."""
    if release is False:
        return None
    if release is not True and not isinstance(release, (str, os.PathLike)):
        raise ValueError(f"release is False, True or a folder, not {release!r}")
    folder = tempfile.gettempdir() if release is True else os.fspath(release)
    if not os.path.isdir(folder):
        raise ValueError(f"release: expected a folder, got {folder}, which is none")
    kind = _file_system(os.path.realpath(folder))
    if kind in _IN_MEMORY:
        raise ValueError(f"release: expected a folder on a disk, got {folder}, whose files are memory ({kind}): release='/var/tmp'")
    return folder


def _file_system(path: str) -> "str | None":
    try:
        with open("/proc/self/mounts") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return None
    inside = [(len(point), i, kind) for i, (point, kind) in enumerate(mounts) if path == point or path.startswith(point.rstrip("/") + "/")]
    return max(inside)[2] if inside else None


class Store:
    """The values of some parameters, in a file."""

    def __init__(self, parameters: "typing.Sequence[nn.Parameter]", folder: str) -> None:
        """Moves them. Raises OSError where the folder has no room for them."""
        starts, size = [], 0
        for p in parameters:
            starts.append(size)
            size += -(-p.untyped_storage().nbytes() // _PAGE) * _PAGE
        self.bytes = sum(p.numel() * p.element_size() for p in parameters)
        self._packed = (0, 0)  # handles and bytes of packed weights of the process, when this looked last
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, max(size, _PAGE))  # no room: an error here, no signal later
            self._map = mmap.mmap(file.fileno(), max(size, _PAGE))
            self._file = os.dup(file.fileno())
        with torch.no_grad():
            for p, start in zip(parameters, starts):
                flat = torch.frombuffer(self._map, dtype=p.dtype, count=p.numel(), offset=start)
                moved = flat.as_strided(p.shape, p.stride())
                moved.copy_(p.data)
                p.data = moved
        first = torch.frombuffer(self._map, dtype=torch.uint8, count=1)
        self._begin = first.data_ptr()
        self._end = self._begin + max(size, _PAGE)
        os.fsync(self._file)
        self._give_back(self._begin, self._end)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def holds(self, parameter: torch.Tensor) -> bool:
        return self._begin <= parameter.data_ptr() < self._end

    def settle(self, parameters: "typing.Iterable[torch.Tensor]") -> None:
        """After a call: if weights were packed since the last one, these need no memory any more."""
        packed = (handle.made, torch.ops.epilogue.packed_bytes.default())
        if packed == self._packed:
            return
        self._packed = packed
        for p in parameters:
            if type(p) is nn.Parameter and self.holds(p):  # a weight that is rounded already has no memory of its own
                begin = p.data_ptr()
                end = begin + -(-p.numel() * p.element_size() // _PAGE) * _PAGE
                _libc.madvise(begin, end - begin, mmap.MADV_RANDOM)  # samples shall bring no neighbours
                self._give_back(begin, end)

    def _give_back(self, begin: int, end: int) -> None:
        _libc.madvise(begin, end - begin, mmap.MADV_DONTNEED)
        os.posix_fadvise(self._file, begin - self._begin, end - begin, os.POSIX_FADV_DONTNEED)

    def restore(self, parameter: nn.Parameter) -> None:
        """Into memory again, if it still is here."""
        if self.holds(parameter):
            parameter.data = parameter.data.clone(memory_format=torch.preserve_format)


def releasable(model: nn.Module, weights: "typing.Sequence[tuple[nn.Module, str]]") -> "list[nn.Parameter]":
    """Of the weights (a module and the name of its parameter) those that only these modules read."""
    fused = {(id(module), name) for module, name in weights}
    others = set()
    storages: "dict[int, set[int]]" = {}
    for module in model.modules():
        for name, p in module._parameters.items():
            if p is None:
                continue
            if type(p) is nn.Parameter and p.is_cpu and p.layout is torch.strided:
                storages.setdefault(p.untyped_storage().data_ptr(), set()).add(id(p))
            if (id(module), name) not in fused:
                others.add(id(p))
    found: "dict[int, nn.Parameter]" = {}
    for module, name in weights:
        p = module._parameters[name]
        if type(p) is not nn.Parameter or id(p) in others or not p.is_cpu or p.layout is not torch.strided or p.is_inference():
            continue
        whole = p.untyped_storage().nbytes() == p.numel() * p.element_size() and p.numel() > 0
        if whole and len(storages[p.untyped_storage().data_ptr()]) == 1:
            found[id(p)] = p
    return list(found.values())
