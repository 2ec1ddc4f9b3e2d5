# SPDX-License-Identifier: Apache-2.0
"""Processes that are killed, or stop, while all are inside calls of a fused model: the others have an error within the group's
timeout, end, and leave no shared memory."""

import os
import signal
import time

import models
import pytest
import ranks
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import epilogue.torch
from epilogue.torch import host_reduce

SIZES = {"hidden_size": 128, "intermediate_size": 512, "num_key_value_heads": 4}


def _tensor_parallel(model, world):
    plan = {}
    for i in range(models.LAYERS):
        at = f"model.layers.{i}."
        plan.update({f"{at}self_attn.{n}_proj": ColwiseParallel() for n in "qkv"})
        plan.update({f"{at}mlp.{n}_proj": ColwiseParallel() for n in ("gate", "up")})
        plan.update({f"{at}self_attn.o_proj": RowwiseParallel(), f"{at}mlp.down_proj": RowwiseParallel()})
    return epilogue.torch.fuse(parallelize_module(model, init_device_mesh("cpu", (world,)), plan), linears="always")


def _sharded(model):
    model = epilogue.torch.fuse(model, training="always")
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def _copies(rank, world, way, ready):
    """Gathers and scatters until one fails."""
    x = torch.ones(world, 1 << 16)

    def call():
        host_reduce.all_gather(x, dim=1)
        host_reduce.reduce_scatter(x)

    for _ in range(4):
        call()
    assert len(host_reduce.hosts_of()) == 2
    return _until_one_fails(call, f"{ready}.{rank}")


def _calls(rank, world, way, ready):
    """Calls until one fails: the error, and the clock that all processes share."""
    if way == "gloo":
        os.environ["EPILOGUE_HOST_REDUCE"] = "off"
    model = models.build("llama", **SIZES)
    sharded = way == "fsdp2"
    model = _sharded(model) if sharded else _tensor_parallel(model, world)
    ids = models.ids(520)  # sums that wait for a residual are of 64 Ki elements and more

    def call():
        with torch.set_grad_enabled(sharded):
            out = model(ids, labels=ids, use_cache=False)
            if sharded:
                out.loss.backward()

    for _ in range(4):
        call()
    report = epilogue.torch.why(model)
    assert report.fused_calls == 4 * models.LAYERS, str(report)
    if not sharded:
        mesh = model.model.layers[0].mlp.up_proj.weight.device_mesh
        assert bool(host_reduce.hosts_of(mesh.get_group())) == (way != "gloo")
    return _until_one_fails(call, f"{ready}.{rank}")


def _until_one_fails(call, ready):
    with open(ready, "w"):
        pass
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            call()
        except RuntimeError as error:
            return f"{error}", time.monotonic()
    return "no error", time.monotonic()


def _left(hosts):
    folders = [f"/proc/{h.pid}/root/dev/shm" for h in hosts.holders] if hosts else ["/dev/shm"]
    return [name for folder in folders for name in os.listdir(folder) if hosts or "epilogue" in name]


def _end_one(tmp_path, way, world, victim, how=signal.SIGKILL, hosts=1, timeout=20, calls=_calls):
    """The others' errors, and the seconds after which they came."""
    try:
        group = ranks.Group(world, hosts, timeout)
    except ranks.Unavailable as error:
        pytest.skip(f"two hosts need namespaces: {error}")
    try:
        ready = tmp_path / "ready"
        for pipe in group.pipes:
            pipe.send((calls, (world, way, str(ready))))
        others = [r for r in range(world) if r != victim]
        start = time.monotonic()
        while not all(os.path.exists(f"{ready}.{r}") for r in range(world)):
            assert time.monotonic() - start < 120 and not any(p.poll(0) for p in group.pipes), [p.recv() for p in group.pipes if p.poll(0)]
            time.sleep(0.02)
        time.sleep(0.25)  # all are inside calls
        at = time.monotonic()
        os.kill(group.processes[victim].pid, how)
        results = []
        for r in others:
            assert group.pipes[r].poll(timeout + 10 - (time.monotonic() - at)), f"rank {r} still waits"
            done, result = group.pipes[r].recv()
            assert done, result
            results.append((result[0], result[1] - at))
        assert _left(group.hosts) == []
        for r in others:  # their work is over: they end by themselves
            group.pipes[r].close()
            group.processes[r].join(20)
            assert group.processes[r].exitcode == 0, r
        assert _left(group.hosts) == []
    finally:
        group.close()
    return results


@pytest.mark.parametrize("world, victim", [(2, 0), (2, 1), (4, 2)])
def test_a_rank_is_killed_inside_a_sum_through_memory(tmp_path, world, victim):
    for error, seconds in _end_one(tmp_path, "memory", world, victim):
        assert "[host group]" in error and ("ended" in error or "another rank" in error) and seconds < 5, (error, seconds)


@pytest.mark.parametrize("way", ["gloo", "fsdp2"])
def test_a_rank_is_killed_under_gloo(tmp_path, way):
    for error, seconds in _end_one(tmp_path, way, 2, 1):
        assert error != "no error" and seconds < 20, (error, seconds)


def test_a_rank_stops(tmp_path):
    """It lives, and does not come: only the timeout says so."""
    for error, seconds in _end_one(tmp_path, "memory", 4, 1, signal.SIGSTOP, timeout=4):
        assert "did not come within 4" in error or "another rank" in error, error
        assert 3 < seconds < 10, seconds


# Of two ranks on a host one speaks to the other host, and one does not.
@pytest.mark.parametrize("world, victim", [(2, 1), (4, 2), (4, 3)])
def test_a_rank_is_killed_on_another_host(tmp_path, world, victim):
    for error, seconds in _end_one(tmp_path, "memory", world, victim, hosts=2):
        assert "[host group]" in error and seconds < 10, (error, seconds)


@pytest.mark.parametrize("world, victim", [(2, 1), (4, 2), (4, 3)])
def test_a_rank_is_killed_beside_gathers_and_scatters_over_hosts(tmp_path, world, victim):
    for error, seconds in _end_one(tmp_path, "copies", world, victim, hosts=2, calls=_copies):
        assert "[host group]" in error and seconds < 10, (error, seconds)
