# SPDX-License-Identifier: Apache-2.0
"""Sums and copies through a host's memory, beside gloo's and sums in double; what happens if a rank ends or differs."""

import copy
import datetime
import os
import pickle
import random
import time

import pytest
import ranks
import torch
import torch.distributed as dist

from epilogue.torch import host_reduce
from epilogue.torch.handle import Handle
from epilogue.torch.later import Later
from epilogue.torch.sharded import Join

DTYPES = (torch.float32, torch.bfloat16)
# Of few numbers each rank sums all; of many its share, block by block (524288 numbers of bf16, 262144 of f32).
COUNTS = (1, 2, 3, 63, 511, 513, 8191, 20000, 262144, 262145, 524288, 524291, 1400001)


def _exact(parts, dtype):
    """Sums of f32 in the order of the ranks, rounded once."""
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part.float()
    return total.to(dtype)


def _parts(shape, dtype):
    torch.manual_seed(shape[0] + len(shape))
    return [torch.randn(shape).to(dtype) for _ in range(dist.get_world_size())]


def _reduces(rank, dtype):
    assert host_reduce.host_group() is not None
    for count in COUNTS:
        parts = _parts((count,), dtype)
        got = host_reduce.all_reduce(parts[rank].clone())
        assert torch.equal(got, _exact(parts, dtype)), count
    for rows, columns in ((1, 1), (3, 77), (64, 512), (129, 1031)):
        parts = _parts((rows, columns), dtype)
        bias, residual = torch.randn(columns).to(dtype), torch.randn(rows, columns).to(dtype)
        want = (sum(p.double() for p in parts) + bias.double() + residual.double())
        got = host_reduce.all_reduce(parts[rank].clone(), bias=bias, residual=residual)
        assert (got.double() - want).abs().max() <= want.abs().max() * (2**-22 if dtype is torch.float32 else 2**-8)
        same = got.clone()
        dist.broadcast(same, 0)
        assert torch.equal(same, got)
        only = host_reduce.all_reduce(parts[rank].clone(), bias=bias)
        assert torch.equal(only, (_exact(parts, torch.float32) + bias.float()).to(dtype)) if dtype is torch.bfloat16 else True
    special = torch.tensor([float("inf"), float("nan"), -0.0, 3e38, 1e-40]).to(dtype)
    got = host_reduce.all_reduce(special.clone() if rank == 0 else torch.zeros(5, dtype=dtype))
    assert got[0] == float("inf") and got[1].isnan() and torch.equal(got[3:], special[3:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_reduce(dtype):
    ranks.run(_reduces, dtype)


def _copies(rank, dtype):
    world = dist.get_world_size()
    for shape, dim in (((1,), 0), ((5, 7), 0), ((3, 4, 5), 1), ((2, 3, 129), -1), ((400, 1031), 1), ((3, 70001), 0), ((1, 8, 40000), 1)):
        parts = _parts(shape, dtype)
        assert torch.equal(host_reduce.all_gather(parts[rank], dim=dim), torch.cat(parts, dim)), shape
        wide = [torch.cat([p * (i + 1) for i in range(world)], dim) for p in parts]
        want = _exact(wide, dtype).chunk(world, dim)[rank]
        assert torch.equal(host_reduce.reduce_scatter(wide[rank], dim=dim), want), shape
    with pytest.raises(ValueError, match="multiple"):
        host_reduce.reduce_scatter(torch.ones(world + 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [2, 4])
def test_gather_and_scatter(dtype, world):
    ranks.run(_copies, dtype, world=world)


def _other_ways(rank):
    """What the memory does not take goes through torch.distributed, and gives the same."""
    for x in (torch.arange(6.0).double(), torch.arange(6.0).half(), torch.arange(12.0).view(3, 4).t(), torch.arange(4)):
        want = x * dist.get_world_size()
        assert torch.equal(host_reduce.all_reduce(x.clone(memory_format=torch.preserve_format)), want)
    x = torch.arange(6.0).double() + rank
    assert torch.equal(host_reduce.all_gather(x), torch.cat([torch.arange(6.0).double() + r for r in range(2)]))
    assert torch.equal(host_reduce.reduce_scatter(x), (2 * torch.arange(6.0).double() + 1).chunk(2)[rank])
    os.environ["EPILOGUE_HOST_REDUCE"] = "off" if rank == 1 else "on"
    alone = dist.new_group(backend="gloo")
    assert host_reduce.host_group(alone) is None
    assert torch.equal(host_reduce.all_reduce(torch.ones(3), alone), torch.full((3,), 2.0))
    del os.environ["EPILOGUE_HOST_REDUCE"]


def test_other_tensors_and_groups():
    ranks.run(_other_ways)


def _left():
    return [name for name in os.listdir("/dev/shm") if name.startswith("epilogue-")]


def _nothing_left(rank, fails):
    """At each step of a group's first call, too: it may be the last one of a process. fails: one rank cannot open the memory."""
    seen, gathered, tried = [], host_reduce._gathered, host_reduce._tried
    files = set(os.listdir("/proc/self/fd"))

    def look(value, group):
        seen.append(_left())
        return gathered(value, group)

    group = dist.new_group(backend="gloo")
    dist.barrier(group)
    host_reduce._gathered = look
    if fails and rank == 1:
        host_reduce._tried = lambda path, *rest: tried(path + "0", *rest)
    try:
        assert (host_reduce.host_group(group) is None) == fails
    finally:
        host_reduce._gathered, host_reduce._tried = gathered, tried
    assert torch.equal(host_reduce.all_reduce(torch.ones(3), group), torch.full((3,), 2.0))
    kept = [os.readlink(f"/proc/self/fd/{f}") for f in set(os.listdir("/proc/self/fd")) - files if os.path.exists(f"/proc/self/fd/{f}")]
    assert len(seen) == 3 and not any("/dev/shm" in name for name in kept), (seen, kept)
    return [*seen, _left()]


@pytest.mark.parametrize("fails", [False, True])
def test_no_name_at_any_time(fails):
    assert ranks.run(_nothing_left, fails) == [[[]] * 4] * 2


def _many(rank):
    """Steps of all kinds and sizes, in turn, with ranks that come late."""
    torch.manual_seed(5)
    for i in range(400):
        count = int(torch.randint(1, 3000, ()))
        parts = [torch.randn(count) for _ in range(dist.get_world_size())]
        if i % 97 == rank:
            time.sleep(0.01)
        if i % 3 == 0:
            assert torch.equal(host_reduce.all_gather(parts[rank]), torch.cat(parts))
        else:
            assert torch.equal(host_reduce.all_reduce(parts[rank].clone()), _exact(parts, torch.float32)), i


@pytest.mark.parametrize("world", [2, 4])
def test_many_calls(world):
    ranks.run(_many, world=world)


def _rows(rank, dtype, wide):
    """Products whose rows are summed, or gathered, block by block while the next ones are computed: 256 rows at once. Wide ones have
    rows too long for that, of which 256 are more than a block of 2 MiB holds: where there are more, they are joined after the product."""
    world, columns = dist.get_world_size(), 4100 if wide else 96
    number = host_reduce.host_group().number
    torch.manual_seed(7)
    weights = [torch.randn(columns, 64).to(dtype) / 8 for _ in range(world)]
    handles = [Handle([w], [None], "none") for w in weights]
    bias = torch.randn(columns).to(dtype)
    draw = random.Random(rank)

    def part(r, x, blocks):
        starts = [len(x) * b // blocks for b in range(blocks + 1)]
        return torch.cat([torch.ops.epilogue.linear.default(x[i:j], handles[r].number, [weights[r]], None)[0] for i, j in zip(starts, starts[1:])])

    for rows in (1, 3, 255, 256, 257, 700, 1030, 2, 520):
        x = torch.randn(rows, 64).to(dtype)
        residual = torch.randn(rows, columns).to(dtype)
        blocks = 1 if wide else -(-rows // 256)
        parts = [part(r, x, blocks) for r in range(world)]
        for more in ((None, None), (bias, None), (bias, residual)):
            want = _exact(parts, torch.float32)
            for term in more:
                want = want if term is None else want + term.float()
            for _ in range(3):
                if draw.random() < 0.3:  # one rank is ahead of the others
                    time.sleep(draw.random() * 0.004)
                got = handles[rank](x, [weights[rank]], Join(False, (number, *more)))
                assert torch.equal(got, want.to(dtype)), (rows, blocks)
                if draw.random() < 0.2:
                    time.sleep(draw.random() * 0.002)
                got = handles[rank](x, [weights[rank]], Join(True, (number,)))
                assert torch.equal(got, torch.cat(parts, 1)), (rows, blocks)
            ones = host_reduce.all_reduce(torch.ones(5))  # another kind of call between them
            assert torch.equal(ones, torch.full((5,), float(world)))
    assert handles[rank](x[:0], [weights[rank]], Join(False, (number, None, None))).shape == (0, columns)
    assert handles[rank](x[:0], [weights[rank]], Join(True, (number,))).shape == (0, columns * world)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [2, 4])
def test_rows_of_products(world, dtype, wide):
    ranks.run(_rows, dtype, wide, world=world)


def _later(rank, dtype, wide):
    """Sums whose last pass waits for a residual, on ranks that do different things with them. The longest and the wide rows do not
    fit: their sums are there at once."""
    world, columns = dist.get_world_size(), 4100 if wide else 96
    number = host_reduce.host_group().number
    torch.manual_seed(7)
    weights = [torch.randn(columns, 64).to(dtype) / 8 for _ in range(world)]
    handles = [Handle([w], [None], "none") for w in weights]
    bias, draw, heard = torch.randn(columns).to(dtype), random.Random(rank), []

    def make(x, bias):
        out = handles[rank](x, [weights[rank]], Join(False, (number, bias), True))
        return Later(out, number, heard.append)

    uses = {
        "residual": lambda y, r: (y + r, r + y), "waits": lambda y, r: (y.wait() + r,), "sum": lambda y, r: (torch.sub(y, 0) + r, y + r),
        "copies": lambda y, r: (copy.deepcopy(y) + r, pickle.loads(pickle.dumps(y)) + r, y.clone() + r),
        "broadcast": lambda y, r: (y + r[:1] - r[:1] + r,), "in place": lambda y, r: (y.add_(r) - 0, y - 0),
        "numbers": lambda y, r: (y + r + 0 * float(y.sum()),), "nothing": lambda y, r: (),
    }  # fmt: skip
    names = list(uses)
    near = {"rtol": 1e-5, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 0.1}  # some round several times
    for rows in (1, 255, 257, 520, 1100) if wide else (1, 255, 257, 520, 23000):
        x, residual = torch.randn(rows, 64).to(dtype), torch.randn(rows, columns).to(dtype)
        outs = [torch.ops.epilogue.linear.default(x, handles[r].number, [weights[r]], None)[0] for r in range(world)]
        for more in (None, bias):
            plain = _exact(outs, torch.float32) + (0 if more is None else more.float())
            for name in names if rows < 1000 else names[:2]:
                if draw.random() < 0.3:
                    time.sleep(draw.random() * 0.004)
                y = make(x, more)
                use = draw.choice(names) if name == "sum" else name  # there all ranks do the same
                for got in uses[use](y, residual):
                    assert type(got) is torch.Tensor
                    torch.testing.assert_close(got.float(), plain + residual.float(), **near)
                if draw.random() < 0.5:
                    del y  # nobody wants it, or it is a plain sum after other calls, too
                ones = host_reduce.all_reduce(torch.ones(5))
                assert torch.equal(ones, torch.full((5,), float(world)))
                if use != "in place" and "y" in locals():
                    torch.testing.assert_close((y - 0).float(), plain.to(dtype).float(), rtol=1e-2, atol=1e-5)
    heard.clear()
    x, residual = torch.randn(300, 64).to(dtype), torch.randn(300, columns).to(dtype)
    kept = make(x, bias)
    got = kept + residual
    outs = [torch.cat([torch.ops.epilogue.linear.default(p, handles[r].number, [weights[r]], None)[0] for p in x.chunk(2)]) for r in range(world)]
    exact = _exact(outs, torch.float32) + bias.float()
    if not (wide and dtype is torch.float32):
        assert torch.equal(got, (exact + residual.float()).to(dtype)) and heard == [True]  # rounded once
        assert torch.equal(kept - 0, exact.to(dtype)) and heard == [True, False]  # and kept, the sum alone
    assert make(x[:2], bias).tolist() == make(x[:2], bias).wait().tolist() and make(x, bias).data_ptr() != 0
    assert str(make(x[:2], bias)) == str(make(x[:2], bias).wait())
    before = make(x, bias)
    after = make(x, None)  # the next call ends what waits
    assert torch.equal(before - 0, exact.to(dtype)) and torch.equal(after - 0, _exact(outs, dtype))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [2, 4])
def test_sums_that_wait_for_a_residual(world, dtype, wide):
    ranks.run(_later, dtype, wide, world=world)


def _rows_differ(rank, gathers):
    number = host_reduce.host_group().number
    weight = torch.randn(8, 16)
    handle = Handle([weight], [None], "none")
    try:
        handle(torch.randn(300 + rank, 16), [weight], Join(gathers, (number,) if gathers else (number, None, None)))
    except RuntimeError as error:
        return str(error)
    return "no error"


@pytest.mark.parametrize("gathers", [False, True])
def test_rows_that_differ_are_an_error(gathers):
    errors = ranks.run(_rows_differ, gathers)
    ranks.stop(2)
    assert any(f"a product's all_{'gather' if gathers else 'reduce'} of 2400 f32" in e and "of 2408 f32" in e for e in errors), errors
    assert all("same call on all ranks" in e or "another rank" in e for e in errors), errors


def _differs(rank):
    host_reduce.host_group()
    try:
        host_reduce.all_reduce(torch.ones(4 + rank))
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_calls_that_differ_are_an_error():
    errors = ranks.run(_differs)
    ranks.stop(2)
    assert all("host group" in e and ("same call on all ranks" in e or "another rank" in e) for e in errors), errors
    assert any("all_reduce of 4 f32" in e and "all_reduce of 5 f32" in e for e in errors), errors


def _late(rank):
    group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=2))
    host_reduce.all_reduce(torch.ones(4), group)
    if rank == 1:
        time.sleep(4)
    try:
        host_reduce.all_reduce(torch.ones(4), group)
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_a_rank_that_is_late_is_an_error_on_all():
    first, second = ranks.run(_late)
    ranks.stop(2)
    assert "rank 1" in first and "did not come within 2.0" in first and "another rank of the group failed" in second, (first, second)


def _ends(rank):
    host_reduce.host_group()
    host_reduce.all_reduce(torch.ones(4))
    if rank == 1:
        os.kill(os.getpid(), 9)
    start = time.monotonic()
    try:
        host_reduce.all_reduce(torch.ones(4))
    except RuntimeError as error:
        first = str(error)
    try:
        host_reduce.all_reduce(torch.ones(4))
    except RuntimeError as error:
        second = str(error)
    return first, second, time.monotonic() - start


def _ends_before_the_sum(rank):
    number = host_reduce.host_group().number
    weight = torch.randn(8, 16)
    handle = Handle([weight], [None], "none")
    make = lambda: Later(handle(torch.randn(300, 16), [weight], Join(False, (number, None), True)), number, lambda _: None)  # noqa: E731
    make() + torch.ones(300, 8)
    if rank == 1:
        os.kill(os.getpid(), 9)
    y, errors = make(), []
    for use in (lambda: y + torch.ones(300, 8), lambda: y + torch.ones(300, 8), lambda: y.clone(), lambda: host_reduce.all_reduce(torch.ones(4))):
        try:
            use()
        except RuntimeError as error:
            errors.append(str(error))
    return errors


def _first_of_two(job):
    """What rank 0 reports of a job that rank 1 does not survive."""
    group = ranks.group(2)
    for pipe in group.pipes:
        pipe.send((job, ()))
    assert group.pipes[0].poll(60)
    report = group.pipes[0].recv()
    ranks.stop(2)
    return report


def test_a_rank_that_ends_before_a_sum_that_waits():
    done, errors = _first_of_two(_ends_before_the_sum)
    assert done and len(errors) == 4 and all("rank 1" in e and "ended" in e for e in errors), errors
    assert _left() == []


def test_a_rank_that_ends_is_an_error_on_the_others():
    done, result = _first_of_two(_ends)
    assert done, result
    first, second, seconds = result
    assert "rank 1" in first and "ended" in first and second == first and seconds < 10, result
    assert _left() == []
