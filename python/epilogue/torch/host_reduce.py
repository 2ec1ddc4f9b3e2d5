# SPDX-License-Identifier: Apache-2.0
"""Sums and copies between the ranks of a process group that share a host, through its memory, in place of gloo's sockets.

    all_reduce(x)                       # x, f32 or bf16, becomes the sum of all ranks' x; added in f32, in the order of the ranks
    y = all_gather(x, dim=1)            # the x of all ranks, side by side
    y = reduce_scatter(x, dim=1)        # this rank's part of the sum

All ranks get the same bits. Each call takes `group`, by default all ranks. Other dtypes and layouts, and EPILOGUE_HOST_REDUCE=off on
any rank go through torch.distributed. A group over several hosts adds up within each host, then over gloo between the first ranks of the
hosts (f32), and rounds once; what it gathers goes between the first ranks as one message for each other host. Calls with gradients are the
caller's business (sharded.py).

The memory (2 MiB a rank, and 8 MiB more where products give their rows block by block) is made by the first rank of a host at a
group's first call, and opened by the others of that host. It has no name: nothing is left behind, whoever ends when. A rank that ended,
or that does not come within the group's timeout, is a RuntimeError on all others; then the group is of no more use. Over several hosts
so is a rank where a call fails in any other way (no memory, an interrupt).
"""

import contextlib
import datetime
import functools
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
_WORD = 4  # bytes of a number of a message
_MOST_KEPT = 1 << 22  # such numbers, between calls
_ELSEWHERE = "[host group] a rank of another host ended, or failed"
_TAG = 2  # of a message between hosts; all_reduce takes 0 and 1 in turn
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

    def all_gather(self, x: torch.Tensor, out: torch.Tensor, outer: int) -> None:
        _ops.host_all_gather.default(x, self.number, out, outer)

    def reduce_scatter(self, x: torch.Tensor, out: torch.Tensor, outer: int) -> None:
        _ops.host_reduce_scatter.default(x, self.number, out, outer)


def _ends_all(method: "typing.Callable[..., None]") -> "typing.Callable[..., None]":
    """A call of all ranks of several hosts, whose arguments are right: the first that fails, however it does, is the last, and all others
    learn of it."""

    @functools.wraps(method)
    def call(self: "_Hosts", *args: typing.Any) -> None:
        if self.broken:
            raise RuntimeError(self.broken)
        try:
            method(self, *args)
        except BaseException as error:
            self.broken = str(error) or type(error).__name__
            _ops.host_group_fail.default(self.local.number, self.broken)
            if self.firsts is not None:  # which closes the connections: who waits for this host does so no more
                with contextlib.suppress(AttributeError, RuntimeError):  # older torch: they close with the group
                    self.firsts.abort()
                self.firsts = None
            raise
        finally:
            if self._room.numel() > _MOST_KEPT:
                self._room = torch.empty(0)

    return call


class _Hosts:
    """A group over several hosts: this host's memory, and on its first rank the group of all first ranks."""

    def __init__(self, local: _HostGroup, hosts: "list[list[int]]", rank: int, firsts: typing.Any) -> None:
        self.local, self.hosts, self.firsts = local, hosts, firsts
        self.host = next(i for i, members in enumerate(hosts) if rank in members)
        self.place = hosts[self.host].index(rank)
        self.alone = max(map(len, hosts)) == 1
        self.broken = ""
        self._sums = [torch.empty(0), torch.empty(0)]  # in turn; kept, because fresh memory is slow
        self._room = torch.empty(0)  # what a call of all hosts sends, and what comes, host by host
        self._parts: "dict[torch.dtype, list[torch.Tensor]]" = {}  # of the other hosts, in turn

    def all_reduce(self, x: torch.Tensor, bias: "torch.Tensor | None", residual: "torch.Tensor | None") -> None:
        columns = x.shape[-1] if x.dim() else 1
        if (bias is not None and bias.shape != (columns,)) or (residual is not None and residual.numel() != x.numel()):
            shapes = ", ".join(str(list(t.shape)) for t in (bias, residual) if t is not None)
            raise RuntimeError(f"x {list(x.shape)}: expected a bias of {columns} and a residual like x, got {shapes}")
        self._all_reduce(x, bias, residual)

    @_ends_all
    def _all_reduce(self, x: torch.Tensor, bias: "torch.Tensor | None", residual: "torch.Tensor | None") -> None:
        """Block by block: one is under way between hosts while the next one is added up within them."""
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
                        raise RuntimeError(_ELSEWHERE)
                    _ops.host_broadcast.default(sums, number, block, bias, added)
            before = now

    @_ends_all
    def all_gather(self, x: torch.Tensor, out: torch.Tensor, outer: int) -> None:
        """out [outer, ranks, inner], of each rank's x [outer, inner]. Bits go as they are, as words of 4 bytes."""
        count = x.numel()
        slots = self._slots([_words(x, len(members) * count) for members in self.hosts])
        parts = [slot.view(x.dtype)[: len(members) * count] for slot, members in zip(slots, self.hosts)]
        with _Messages(self, [slots[self.host]] * len(slots), slots) as messages:
            _ops.host_all_gather.default(x, self.local.number, parts[self.host], 1)
            for host in range(len(slots)):
                messages.send(host)
        for host, slot in enumerate(slots):
            if host != self.host:
                self._spread(slot[:-1], slot[:-1])
        rows = out.view(outer, -1, count // outer)
        for part, members in zip(parts, self.hosts):
            rows[:, _index(members)] = part.view(len(members), outer, -1).transpose(0, 1)

    @_ends_all
    def reduce_scatter(self, x: torch.Tensor, out: torch.Tensor, outer: int) -> None:
        """out [outer, inner], this rank's of the sum of all ranks' x [outer, ranks, inner]. The hosts' sums are added in their order."""
        count, members = out.numel(), self.hosts[self.host]
        dtype = x.dtype if self.alone else torch.float32  # no sums within hosts: each other host's bf16 is fewer bytes
        sizes = [_words(x, count) if self.alone else len(theirs) * count for theirs in self.hosts]
        slots = self._slots(sizes + [sizes[self.host]] * len(sizes))
        gives, takes = slots[: len(sizes)], slots[len(sizes) :]
        takes[self.host] = gives[self.host]
        rows = x.view(outer, -1, count // outer)
        with _Messages(self, gives, takes) as messages:
            for host, theirs in enumerate(self.hosts):
                given = rows[:, _index(theirs)].transpose(0, 1).contiguous()
                if self.alone:
                    gives[host].view(dtype)[:count].copy_(given.view(-1))
                else:
                    _ops.host_reduce.default(given, self.local.number, None if self.firsts is None else gives[host])
                messages.send(host)
        parts = [slot.view(dtype)[: len(members) * count] for slot in takes]
        if self.alone:
            _ops.host_add.default(parts, out.view(-1), None, None)
            return
        if self.firsts is not None:
            for part in parts[1:]:
                parts[0] += part
        mine = out.new_empty((len(members), count))
        self._spread(parts[0], mine)
        out.view(-1).copy_(mine[self.place])

    def _spread(self, sums: torch.Tensor, x: torch.Tensor) -> None:
        """x of each rank of the host = its first rank's sums, rounded."""
        if len(self.hosts[self.host]) > 1 or sums.data_ptr() != x.data_ptr():
            _ops.host_broadcast.default(None if self.firsts is None else sums, self.local.number, x, None, None)

    def _slots(self, words: "list[int]") -> "list[torch.Tensor]":
        """Memory for messages, of so many words and one more, which says that a host failed."""
        sizes = [count + 1 for count in words]
        if self._room.numel() < sum(sizes):
            with torch.inference_mode(False):
                self._room = torch.empty(sum(sizes))
        return list(self._room[: sum(sizes)].split(sizes))

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
        except RuntimeError:
            sums[count:] = 1.0
            self._wait(self._start(self.firsts.allreduce, [sums]))
            raise
        return sums, [self._start(self.firsts.allreduce, [sums])]

    def _start(self, call: "typing.Callable[..., typing.Any]", *args: typing.Any) -> typing.Any:
        try:
            return call(*args)
        except RuntimeError as error:
            raise RuntimeError(f"[host group] between hosts: {error}") from error

    def _wait(self, work: typing.Any) -> None:
        self._start(work.wait)


class _Messages:
    """Of one call, between the first ranks of the hosts: gives[host] goes to that host once it is filled, and takes[host] comes from it.
    The body fills them. A host where it failed says so to all others, so that none waits for it."""

    def __init__(self, way: _Hosts, gives: "list[torch.Tensor]", takes: "list[torch.Tensor]") -> None:
        self.way, self.gives, self.takes = way, gives, takes
        self.others = [] if way.firsts is None else [host for host in range(len(way.hosts)) if host != way.host]
        self._left = set(self.others)
        self._works: "list[typing.Any]" = []

    def __enter__(self) -> "_Messages":
        for host in self.others:
            self._works.append(self.way._start(self.way.firsts.recv, [self.takes[host]], host, _TAG))
        return self

    def send(self, host: int, failed: bool = False) -> None:
        if host in self._left:
            self._left.remove(host)
            self.gives[host][-1] = float(failed)
            self._works.append(self.way._start(self.way.firsts.send, [self.gives[host]], host, _TAG))

    def __exit__(self, kind: typing.Any, error: typing.Any, trace: typing.Any) -> None:
        if error is not None and not isinstance(error, RuntimeError):
            return
        for host in sorted(self._left):
            self.send(host, failed=True)
        for work in self._works:
            self.way._wait(work)
        if error is None and any(float(self.takes[host][-1]) != 0.0 for host in self.others):
            raise RuntimeError(_ELSEWHERE)


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
        firsts = _firsts(name, [host[0] for host in hosts].index(rank), len(hosts), timeout) if place == 0 else None
        return _Hosts(local, hosts, rank, firsts)
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


def _words(x: torch.Tensor, count: int) -> int:
    """For so many elements of x's dtype."""
    return -(-count * x.element_size() // _WORD)


def _index(ranks: "list[int]") -> "slice | list[int]":
    """Of a dimension of ranks: a view, where they are neighbours."""
    return slice(ranks[0], ranks[-1] + 1) if ranks == list(range(ranks[0], ranks[-1] + 1)) else ranks


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
    found = _way(group) if _fits(x) else None
    if found is None:
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(ranks)]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts, dim)
    out = x.new_empty([size * ranks if d == dim else size for d, size in enumerate(x.shape)])
    found.all_gather(x, out, outer)
    return out


def reduce_scatter(x: torch.Tensor, group: typing.Any = None, *, dim: int = 0) -> torch.Tensor:
    """This rank's part along `dim` of the sum. ValueError where the ranks do not divide the dimension."""
    dim, outer = _sizes(x, dim)
    ranks = dist.get_world_size(group)
    if x.shape[dim] % ranks:
        raise ValueError(f"x: expected a multiple of {ranks} in dimension {dim}, got {list(x.shape)}")
    found = _way(group) if _fits(x) else None
    if found is None:
        parts = torch.cat(x.chunk(ranks, dim))
        part = torch.empty_like(parts.chunk(ranks)[0])
        dist.reduce_scatter_tensor(part, parts, group=group)
        return part
    out = x.new_empty([size // ranks if d == dim else size for d, size in enumerate(x.shape)])
    found.reduce_scatter(x, out, outer)
    return out
