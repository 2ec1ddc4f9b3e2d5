# SPDX-License-Identifier: Apache-2.0
"""Sums and copies between the ranks of a process group that share a host, through its memory, in place of gloo's sockets.

    all_reduce(x)                       # x, f32 or bf16, becomes the sum of all ranks' x; added in f32, in the order of the ranks
    y = all_gather(x, dim=1)            # the x of all ranks, side by side
    y = reduce_scatter(x, dim=1)        # this rank's part of the sum

All ranks get the same bits. Each call takes `group`, by default all ranks. Groups over several hosts, other dtypes and layouts, and
EPILOGUE_HOST_REDUCE=off on any rank go through torch.distributed. Calls with gradients are the caller's business (sharded.py).

The memory (2 MiB a rank) is made by rank 0 at a group's first call, opened by the others, and loses its name before that call
ends: nothing is left behind, whoever ends how. A rank that ended, or that does not come within the group's timeout, is a
RuntimeError on all others; then the group is of no more use.
"""

import contextlib
import os
import secrets
import threading
import typing
import weakref

import torch
import torch.distributed as dist

_lock = threading.Lock()
_made: "weakref.WeakKeyDictionary[typing.Any, typing.Any]" = weakref.WeakKeyDictionary()
_DTYPES = (torch.float32, torch.bfloat16)
_ops = torch.ops.epilogue


class _HostGroup:
    def __init__(self, number: int, ranks: int) -> None:
        self.number, self.ranks = number, ranks
        self._finalizer = weakref.finalize(self, _ops.host_group_close.default, number)
        self._finalizer.atexit = False  # the process gives its memory back by itself


def _timeout_of(group: typing.Any) -> float:
    try:
        return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return 300.0


def _open(group: typing.Any) -> "_HostGroup | None":
    """Asked of all ranks of the group together. None on all of them, or on none."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    timeout = _timeout_of(group)
    wanted = os.environ.get("EPILOGUE_HOST_REDUCE", "on") != "off" and 1 < ranks <= 64 and hasattr(_ops, "host_group_open")  # not in older ops
    name = f"/epilogue-{os.getpid()}-{secrets.token_hex(8)}"
    number = None
    if rank == 0 and wanted:
        number = _tried(name, rank, ranks, timeout)
    names: "list[typing.Any]" = [None] * ranks
    dist.all_gather_object(names, (wanted, name if number is not None else None), group=group)
    name = names[0][1]
    if name is not None and all(want for want, _ in names):
        if rank > 0:
            number = _tried(name, rank, ranks, timeout)
    elif number is not None:
        _ops.host_group_close.default(number)
        number = None
    opened: "list[typing.Any]" = [None] * ranks
    dist.all_gather_object(opened, number is not None, group=group)
    if all(opened):
        _ops.host_group_unlink.default(number)
        return _HostGroup(number, ranks)
    if number is not None:
        _ops.host_group_close.default(number)
    return None


def _tried(name: str, rank: int, ranks: int, timeout: float) -> "int | None":
    try:
        return _ops.host_group_open.default(name, rank, ranks, timeout)
    except RuntimeError:  # no shared memory, too little of it, or another host's
        return None


def host_group(group: typing.Any = None) -> "_HostGroup | None":
    """None where the ranks share no memory. The first call is one of all ranks of the group."""
    group = dist.group.WORLD if group is None else group
    found = _made.get(group, _made)
    if found is _made:
        with _lock:
            found = _made[group] = _open(group)
    return found


@contextlib.contextmanager
def paused(group: typing.Any = None) -> "typing.Iterator[None]":
    """Calls of a group that shares memory go through torch.distributed for a while, on all ranks: for a clock."""
    group = dist.group.WORLD if group is None else group
    found = host_group(group)
    _made[group] = None
    try:
        yield
    finally:
        _made[group] = found


def _fits(x: torch.Tensor) -> bool:
    return type(x) is torch.Tensor and x.dtype in _DTYPES and x.is_cpu and x.is_contiguous() and x.numel() > 0


def all_reduce(
    x: torch.Tensor, group: typing.Any = None, *, bias: "torch.Tensor | None" = None, residual: "torch.Tensor | None" = None
) -> torch.Tensor:
    """Writes the sum into x (contiguous), and returns it. bias (of the last dimension) and residual (like x), the same on all
    ranks, are added once, before the sum is rounded."""
    more = [t for t in (bias, residual) if t is not None]
    found = host_group(group) if _fits(x) else None
    if found is not None and all(_fits(t) and t.dtype is x.dtype for t in more):
        _ops.host_all_reduce.default(x, found.number, bias, residual)
        return x
    dist.all_reduce(x, group=group)
    for t in more:
        x = x.add_(t) if t.dtype is x.dtype else x + t
    return x


def _sizes(x: torch.Tensor, dim: int) -> "tuple[int, int]":
    """The dimension from 0 on, and how many rows stand before it."""
    dim %= x.dim()
    outer = 1
    for size in x.shape[:dim]:
        outer *= size
    return dim, outer


def all_gather(x: torch.Tensor, group: typing.Any = None, *, dim: int = 0) -> torch.Tensor:
    """x of all ranks, which have one shape, side by side along `dim`."""
    dim, outer = _sizes(x, dim)
    ranks = dist.get_world_size(group)
    found = host_group(group) if _fits(x) else None
    if found is None:
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(ranks)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim)
    out = x.new_empty([size * ranks if d == dim else size for d, size in enumerate(x.shape)])
    _ops.host_all_gather.default(x, found.number, out, outer)
    return out


def reduce_scatter(x: torch.Tensor, group: typing.Any = None, *, dim: int = 0) -> torch.Tensor:
    """This rank's part along `dim` of the sum. ValueError where the ranks do not divide the dimension."""
    dim, outer = _sizes(x, dim)
    ranks = dist.get_world_size(group)
    if x.shape[dim] % ranks:
        raise ValueError(f"x: expected a multiple of {ranks} in dimension {dim}, got {list(x.shape)}")
    found = host_group(group) if _fits(x) else None
    if found is None:
        parts = torch.cat(x.chunk(ranks, dim))
        part = torch.empty_like(parts.chunk(ranks)[0])
        dist.reduce_scatter_tensor(part, parts, group=group)
        return part
    out = x.new_empty([size // ranks if d == dim else size for d, size in enumerate(x.shape)])
    _ops.host_reduce_scatter.default(x, found.number, out, outer)
    return out
