# SPDX-License-Identifier: Apache-2.0
"""Sums and copies between the ranks of a process group that share a host, through its memory, in place of gloo's sockets.

    all_reduce(x)                       # x, f32 or bf16, becomes the sum of all ranks' x; added in f32, in the order of the ranks
    y = all_gather(x, dim=1)            # the x of all ranks, side by side
    y = reduce_scatter(x, dim=1)        # this rank's part of the sum

All ranks get the same bits. Each call takes `group`, by default all ranks. Other dtypes and layouts, and EPILOGUE_HOST_REDUCE=off on
any rank go through torch.distributed, as gathers and scatters of groups over several hosts do. all_reduce of such a group adds up within
each host, then over gloo between the first ranks of the hosts (f32), and rounds once. Calls with gradients are the caller's business
(sharded.py).

The memory (2 MiB a rank, and 8 MiB more where products give their rows block by block) is made by the first rank of a host at a
group's first call, and opened by the others of that host. It has no name: nothing is left behind, whoever ends when. A rank that ended,
or that does not come within the group's timeout, is a RuntimeError on all others; then the group is of no more use.
"""

import contextlib
import datetime
import os
import secrets
import threading
import typing
import weakref

import torch
import torch.distributed as dist

from . import _ops as _library

_lock = threading.Lock()
_made: "weakref.WeakKeyDictionary[typing.Any, typing.Any]" = weakref.WeakKeyDictionary()
_BLOCK = 1 << 20  # numbers that are sent between hosts at once
_DTYPES = (torch.float32, torch.bfloat16)
_ops = torch.ops.epilogue


class _HostGroup:
    """Ranks that share memory."""

    def __init__(self, number: int, ranks: int) -> None:
        self.number, self.ranks = number, ranks
        self._finalizer = weakref.finalize(self, _library.releaser("host_group_close"), number)
        self._finalizer.atexit = False  # the process gives its memory back by itself

    def all_reduce(self, x: torch.Tensor, bias: "torch.Tensor | None", residual: "torch.Tensor | None") -> None:
        _ops.host_all_reduce.default(x, self.number, bias, residual)


class _Hosts:
    """A group over several hosts: this host's memory, and on its first rank the group of all first ranks."""

    def __init__(self, local: _HostGroup, hosts: "list[list[int]]", firsts: typing.Any) -> None:
        self.local, self.hosts, self.firsts = local, hosts, firsts
        self.alone = max(map(len, hosts)) == 1
        self.broken = ""
        self._sums = [torch.empty(0), torch.empty(0)]  # in turn; kept, because fresh memory is slow
        self._parts: "dict[torch.dtype, list[torch.Tensor]]" = {}  # of the other hosts, in turn

    def all_reduce(self, x: torch.Tensor, bias: "torch.Tensor | None", residual: "torch.Tensor | None") -> None:
        """Block by block: one is under way between hosts while the next one is added up within them."""
        if self.broken:
            raise RuntimeError(self.broken)
        number = self.local.number
        if self.alone and len(self.hosts) > 3 and x.dtype is torch.float32:  # nothing to add up before, no other rank that may fail
            self._wait(self._start(self.firsts.allreduce, [x]))
            if bias is not None or residual is not None:
                _ops.host_broadcast.default(x, number, x, bias, residual)
            return
        rows = x.view(-1, 1 if bias is None else bias.numel())
        step = max(1, _BLOCK // rows.shape[1])
        more = None if residual is None else residual.view_as(rows)
        before: "tuple[int, typing.Any, typing.Any] | None" = None
        for begin in range(0, len(rows) + step, step):
            now = None
            if begin < len(rows):
                now = (begin, *self._begin(rows[begin : begin + step], begin // step % 2))
            if before is not None:
                at, sums, works = before
                for work in works:
                    self._wait(work)
                block, added = rows[at : at + step], None if more is None else more[at : at + step]
                if isinstance(sums, list):
                    _ops.host_add.default(sums, block, bias, added)
                else:
                    if works and float(sums[-1]) != 0.0:
                        self._end("[host group] a rank of another host ended, or failed", None)
                    _ops.host_broadcast.default(sums, number, block, bias, added)
            before = now

    def _exchange(self, x: torch.Tensor, turn: int) -> "tuple[list[torch.Tensor], list[typing.Any]]":
        """What becomes the hosts' parts, in their order, and what says when: each host sends its own to every other."""
        parts, works = [], []
        rank = self.firsts.rank()
        kept = self._kept(x, turn)
        for host in range(len(self.hosts)):
            parts.append(x if host == rank else kept[host * x.numel() : (host + 1) * x.numel()].view_as(x))
            if host != rank:
                works.append(self._start(self.firsts.recv, [parts[host]], host, turn))
                works.append(self._start(self.firsts.send, [x], host, turn))
        return parts, works

    def _kept(self, x: torch.Tensor, turn: int) -> torch.Tensor:
        kept = self._parts.setdefault(x.dtype, [torch.empty(0), torch.empty(0)])
        count = len(self.hosts) * x.numel()
        if kept[turn].numel() < count:
            with torch.inference_mode(False):
                kept[turn] = torch.empty(count, dtype=x.dtype)
        return kept[turn]

    def _begin(self, x: torch.Tensor, turn: int) -> "tuple[typing.Any, list[typing.Any]]":
        """This host's sums, which become those of all hosts, or what becomes each host's; and what says when. None on other than the
        host's first rank."""
        if self.firsts is None:
            _ops.host_reduce.default(x, self.local.number, None)
            return None, []
        if self.alone and len(self.hosts) <= 3:  # one message each; every other host's bf16 is fewer bytes than the sums in f32
            return self._exchange(x, turn)
        count = x.numel()
        if self._sums[turn].numel() <= count:
            with torch.inference_mode(False):
                self._sums[turn] = torch.empty(count + 1)
        sums = self._sums[turn][: count + 1]
        sums[count:] = 0.0  # how many hosts failed: those that did still come, so that no host waits for its timeout
        try:
            _ops.host_reduce.default(x, self.local.number, sums)
        except RuntimeError as error:
            sums[count:] = 1.0
            self._wait(self._start(self.firsts.allreduce, [sums]))
            self._end(str(error), error)
        return sums, [self._start(self.firsts.allreduce, [sums])]

    def _start(self, call: "typing.Callable[..., typing.Any]", *args: typing.Any) -> typing.Any:
        try:
            return call(*args)
        except RuntimeError as error:
            self._end(f"[host group] between hosts: {error}", error)

    def _wait(self, work: typing.Any) -> None:
        self._start(work.wait)

    def _end(self, reason: str, cause: "RuntimeError | None") -> typing.NoReturn:
        self.broken = reason
        _ops.host_group_fail.default(self.local.number, reason)
        raise RuntimeError(reason) from cause


def _timeout_of(group: typing.Any) -> float:
    try:
        return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return 300.0


def _host() -> "tuple[typing.Any, ...]":
    """Alike on ranks that may share memory: of one machine, in one /dev/shm, and each sees whether the other lives."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return boot.read(), os.stat("/dev/shm").st_dev, os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return (secrets.token_hex(16),)


def _gathered(value: typing.Any, group: typing.Any) -> "list[typing.Any]":
    values: "list[typing.Any]" = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def _open(group: typing.Any) -> "_HostGroup | _Hosts | None":
    """Asked of all ranks of the group together. None on all of them, or on none."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    timeout = _timeout_of(group)
    wanted = os.environ.get("EPILOGUE_HOST_REDUCE", "on") != "off" and ranks > 1 and hasattr(_ops, "gathered")  # not in older ops
    wishes = _gathered((wanted, _host()), group)
    by_host: "dict[typing.Any, list[int]]" = {}
    for r, (_, host) in enumerate(wishes):
        by_host.setdefault(host, []).append(r)
    hosts = list(by_host.values())
    if not all(want for want, _ in wishes) or max(map(len, hosts)) > 64 or not _has_gloo(group, hosts):
        return None
    mine = by_host[wishes[rank][1]]
    place, number, path = mine.index(rank), None, None
    try:
        if place == 0:
            number = _tried("", place, len(mine), timeout)
            path = number if number is None else f"/proc/{os.getpid()}/fd/{_ops.host_group_file.default(number)}"
        answers = _gathered((path, secrets.token_hex(8)), group)
        path, name = answers[mine[0]][0], answers[0][1]
        if place > 0 and path is not None:
            number = _tried(path, place, len(mine), timeout)
        opened = all(_gathered(number is not None, group))
    except BaseException:
        opened = False
        raise
    finally:
        if number is not None and not opened:
            _library.releaser("host_group_close")(number)
    if not opened:
        return None
    _ops.host_group_seal.default(number)
    local = _HostGroup(number, len(mine))
    if len(hosts) == 1:
        return local
    try:
        return _Hosts(local, hosts, _firsts(name, [host[0] for host in hosts].index(rank), len(hosts), timeout) if place == 0 else None)
    except RuntimeError as error:
        _ops.host_group_fail.default(number, f"[host group] between hosts: {error}")
        raise


def _firsts(name: str, rank: int, ranks: int, timeout: float) -> typing.Any:
    """A group that torch does not count: names that new_group() gives later depend on how many groups each rank made."""
    store = dist.PrefixStore(f"epilogue/{name}", dist.distributed_c10d._get_default_store())
    return dist.ProcessGroupGloo(store, rank, ranks, datetime.timedelta(seconds=timeout))


def _has_gloo(group: typing.Any, hosts: "list[list[int]]") -> bool:
    return len(hosts) == 1 or (dist.is_gloo_available() and "gloo" in str(dist.get_backend_config(group)))


def _tried(path: str, rank: int, ranks: int, timeout: float) -> "int | None":
    try:
        return _ops.host_group_open.default(path, rank, ranks, timeout)
    except RuntimeError:  # no shared memory, too little of it, or another user's
        return None


def _way(group: typing.Any) -> "_HostGroup | _Hosts | None":
    group = dist.group.WORLD if group is None else group
    found = _made.get(group, _made)
    if found is _made:
        with _lock:
            found = _made[group] = _open(group)
    return found


def host_group(group: typing.Any = None) -> "_HostGroup | None":
    """None where the ranks do not all share memory. The first call is one of all ranks of the group."""
    found = _way(group)
    return found if isinstance(found, _HostGroup) else None


def number_for(group: typing.Any, dtype: torch.dtype, more: "typing.Iterable[torch.Tensor | None]") -> "int | None":
    """Of the memory through which a product's rows are joined as they come, plus `more`; None where all_reduce() or all_gather() does
    it after it."""
    found = host_group(group) if dtype in _DTYPES else None
    if found is None or any(t is not None and not (_fits(t) and t.dtype is dtype) for t in more):
        return None
    return found.number


def hosts_of(group: typing.Any = None) -> "list[list[int]]":
    """The ranks of each host, between which all_reduce goes over gloo; empty where all calls go through torch.distributed. The first
    call is one of all ranks of the group."""
    found = _way(group)
    if found is None:
        return []
    return found.hosts if isinstance(found, _Hosts) else [list(range(found.ranks))]


@contextlib.contextmanager
def paused(group: typing.Any = None) -> "typing.Iterator[None]":
    """Calls of a group go through torch.distributed for a while, on all ranks: for a clock."""
    group = dist.group.WORLD if group is None else group
    found = _way(group)
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
    found = _way(group) if _fits(x) else None
    if found is not None and all(_fits(t) and t.dtype is x.dtype for t in more):
        found.all_reduce(x, bias, residual)
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
