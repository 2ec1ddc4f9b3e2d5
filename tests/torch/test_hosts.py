# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces as two hosts: sums within a host go through its memory and between hosts over gloo, and a Llama under
tensor parallelism over both is as exact as the fused model of one process."""

import inspect
import os
import socket
import time

import models
import pytest
import ranks
import torch
import torch.distributed as dist
import transformers

import epilogue.torch
from epilogue.torch import host_reduce

DTYPES = (torch.float32, torch.bfloat16)
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}


@pytest.fixture(scope="module", autouse=True)
def hosts():
    try:
        ranks.group(2, hosts=2)
    except ranks.Unavailable as error:
        pytest.skip(f"two hosts need namespaces: {error}")
    yield
    for world in (2, 4):
        ranks.stop(world, 2)


def _where():
    """The ranks of each host. Two hosts share neither a network nor memory."""
    assert {name for _, name in socket.if_nameindex()} == {"lo", ranks.CABLE}
    world = dist.get_world_size()
    return [list(range(world // 2)), list(range(world // 2, world))]


def _sums(rank, dtype):
    hosts = _where()
    assert host_reduce.hosts_of() == hosts and host_reduce.host_group() is None
    # Of few numbers the first rank of a host sums all; of many each its share, in blocks of 262144.
    # 2 ** 20 of them are sent between hosts at once.
    for shape in ((1,), (5,), (3, 77), (16, 512), (129, 1031), (262144,), (262145,), (3, 250001), (1025, 1024), (2, 1 << 20), (3000001,)):
        torch.manual_seed(len(shape) + shape[0])
        parts = [torch.randn(shape).to(dtype) for _ in range(dist.get_world_size())]
        bias, residual = torch.randn(shape[-1]).to(dtype), torch.randn(shape).to(dtype)
        of_hosts = []
        for host in hosts:
            total = parts[host[0]].float()
            for r in host[1:]:
                total = total + parts[r].float()
            of_hosts.append(total)
        total = of_hosts[0] + of_hosts[1]
        for more in ({}, {"bias": bias}, {"residual": residual}, {"bias": bias, "residual": residual}):
            want = total
            for term in more.values():
                want = want + term.float()
            got = host_reduce.all_reduce(parts[rank].clone(), **more)
            assert torch.equal(got, want.to(dtype)), (shape, list(more))
    # A subgroup of one host has its memory, one over both hosts its own way.
    for members in ([0, 1], [0, dist.get_world_size() - 1], [1, dist.get_world_size() - 1]):
        if members[0] == members[1]:
            continue
        group = dist.new_group(members)
        if rank in members:
            one = members[1] < dist.get_world_size() // 2
            assert (host_reduce.host_group(group) is not None) == one
            assert host_reduce.hosts_of(group) == ([[0, 1]] if one else [[0], [1]])
            x = torch.full((7,), float(rank + 1))
            assert torch.equal(host_reduce.all_reduce(x, group), torch.full((7,), float(sum(members) + 2)))
    with host_reduce.paused():
        assert host_reduce.hosts_of() == []
        assert torch.equal(host_reduce.all_reduce(torch.ones(3, dtype=dtype)), torch.full((3,), float(dist.get_world_size()), dtype=dtype))
    assert host_reduce.hosts_of() == hosts
    x = torch.arange(8.0).to(dtype) + rank
    whole = [torch.arange(8.0).to(dtype) + r for r in range(dist.get_world_size())]
    assert torch.equal(host_reduce.all_gather(x), torch.cat(whole))
    assert torch.equal(host_reduce.reduce_scatter(x), sum(whole).chunk(dist.get_world_size())[rank])
    return os.listdir("/dev/shm")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [2, 4])
def test_sums(dtype, world):
    assert ranks.run(_sums, dtype, world=world, hosts=2) == [[]] * world


def _copies(rank, dtype):
    """Along each dimension, of few numbers and many, of odd counts; in groups whose ranks stand in any order over the hosts."""
    world = dist.get_world_size()
    groups = [(None, list(range(world)))]
    if world == 4:
        groups += [(dist.new_group(m), m) for m in ([0, 2, 3], [1, 2])]
        groups += [(dist.new_group([0, 2, 1, 3], sort_ranks=False), [0, 2, 1, 3])] if _keeps_order() else []
    for group, members in groups:
        if rank not in members:
            continue
        ranks, mine = len(members), members.index(rank)
        for shape in ((1,), (3, 5), (2, 7, 9), (129, 1031), (3, 250001)):
            for dim in range(len(shape)):
                torch.manual_seed(len(shape) + shape[0])
                parts = [torch.randn(shape).to(dtype) for _ in range(ranks)]
                got = host_reduce.all_gather(parts[mine], group, dim=dim)
                assert torch.equal(got, torch.cat(parts, dim)), (members, shape, dim)
                whole = [torch.cat([p * (i + 1) for i in range(ranks)], dim) for p in parts]
                total = None
                for host in host_reduce.hosts_of(group):
                    one = whole[host[0]].float()
                    for r in host[1:]:
                        one = one + whole[r].float()
                    total = one if total is None else total + one
                got = host_reduce.reduce_scatter(whole[mine], group, dim=dim)
                assert torch.equal(got, total.to(dtype).chunk(ranks, dim)[mine]), (members, shape, dim)
    with torch.inference_mode():
        assert torch.equal(host_reduce.all_gather(torch.ones(3).to(dtype)), torch.ones(3 * world).to(dtype))
    x = torch.full((2, world), float("nan")).to(dtype)  # bits go as they are
    assert torch.equal(host_reduce.all_gather(x).view(torch.int16), torch.cat([x] * world).view(torch.int16))
    ids = torch.arange(3) + rank  # other dtypes: by torch.distributed
    assert torch.equal(host_reduce.all_gather(ids), torch.cat([torch.arange(3) + r for r in range(world)]))


def _keeps_order():
    return "sort_ranks" in inspect.signature(dist.new_group).parameters


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [2, 4])
def test_gathers_and_scatters(dtype, world):
    ranks.run(_copies, dtype, world=world, hosts=2)


def _fails(rank, how):
    """On one rank alone, however it fails, the others learn of it at once; a call whose arguments are wrong breaks nothing."""
    with pytest.raises(RuntimeError, match="expected a bias of 4"):
        host_reduce.all_reduce(torch.ones(3, 4), bias=torch.ones(5))
    x = torch.ones(4, 6)
    assert torch.equal(host_reduce.all_reduce(x.clone()), 4 * x)
    way = host_reduce._way(None)
    if rank == 0:
        kind = KeyboardInterrupt if how == "interrupted" else MemoryError

        def stop(*_):
            raise kind

        way._slots = stop
    start = time.monotonic()
    for _ in range(2):
        with pytest.raises((RuntimeError, KeyboardInterrupt, MemoryError)):
            host_reduce.all_gather(x)
    assert way.broken
    return time.monotonic() - start


@pytest.mark.parametrize("how", ["interrupted", "no memory"])
def test_a_rank_that_fails_ends_the_others_waits(how):
    try:
        assert max(ranks.run(_fails, how, world=4, hosts=2)) < 10
    finally:
        ranks.stop(4, 2)


def _keeps_little(rank):
    host_reduce.all_gather(torch.ones(1 << 22))
    assert host_reduce._way(None)._room.numel() <= host_reduce._MOST_KEPT


def test_large_messages_keep_no_memory():
    ranks.run(_keeps_little, world=4, hosts=2)


def _without_gloo(rank):
    """The collectives are the hosts' own: none of torch.distributed's."""
    x = torch.ones(4, 6)
    host_reduce.all_gather(x)
    _, ops = models.counted(lambda: (host_reduce.all_gather(x, dim=1), host_reduce.reduce_scatter(x)))
    assert not any(name.startswith(("c10d::", "gloo:all_gather", "gloo:reduce_scatter")) for name in ops), ops
    assert "epilogue::host_all_gather" in ops and "epilogue::host_reduce" in ops, ops


def test_gathers_and_scatters_are_not_gloos():
    ranks.run(_without_gloo, world=4, hosts=2)


def _off(rank):
    os.environ["EPILOGUE_HOST_REDUCE"] = "off" if rank == 1 else "on"
    group = dist.new_group(backend="gloo")
    assert host_reduce.hosts_of(group) == []
    assert torch.equal(host_reduce.all_reduce(torch.ones(3), group), torch.full((3,), 2.0))
    del os.environ["EPILOGUE_HOST_REDUCE"]


def test_off_on_one_host_is_off_on_both():
    ranks.run(_off, hosts=2)


def _error(y, want):
    return float((y.double() - want).norm() / want.norm())


def _llama(rank, folder, dtype, calls):
    hosts = _where()
    world = dist.get_world_size()
    config = transformers.distributed.DistributedConfig(tp_size=world, tp_plan="auto")
    split = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, distributed_config=config)
    plan = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, distributed_config=config)
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).double()
    for model in (split, whole):
        epilogue.torch.fuse(model, linears="always")
    errors = [0.0, 0.0, 0.0]
    with torch.no_grad():
        for i in range(calls):
            ids = models.ids(1 + 3 * i)
            want = reference(ids).logits
            for which, model in enumerate((split, whole, plan)):
                errors[which] += _error(model(ids).logits, want)
        made = [m.generate(ids, max_new_tokens=4, do_sample=False) for m in (split, whole)]
    report = epilogue.torch.why(split)
    layers = reference.config.num_hidden_layers
    assert report.fused_calls == (calls + 4) * layers and all(r.part == f"rank {rank} of {world}" for r in report.rows), str(report)
    assert report.linear_calls == (calls + 4) * (4 * layers + 1) and not any(r.own_calls for r in report.linears), str(report)
    assert dtype is not torch.float32 or torch.equal(*made)
    assert host_reduce.hosts_of(split.model.layers[0].mlp.up_proj.weight.device_mesh.get_group()) == hosts
    return errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [2, 4])
def test_a_llama_over_two_hosts(tmp_path, dtype, world):
    models.build("llama", **SIZES).save_pretrained(tmp_path)
    results = ranks.run(_llama, str(tmp_path), dtype, 6, world=world, hosts=2)
    assert all(r == results[0] for r in results), results  # the same bits on all ranks
    split, whole, plan = results[0]
    print(f"{world} ranks, {dtype}: relative error {split:.3g} split, {whole:.3g} in one process, {plan:.3g} by the plan unfused")
    # Sums of bf16 parts: each part is rounded once more than in one process.
    assert 0 < split <= (1.05 if dtype is torch.float32 else 1.3) * whole and split <= 1.05 * plan, (split, whole, plan)
