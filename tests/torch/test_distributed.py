# SPDX-License-Identifier: Apache-2.0
"""Two processes on gloo: data parallelism, fully sharded parameters, tensor parallelism and pipelines of fused models give what
the unfused model gives, in inference and over 20 steps of AdamW."""

import copy
import dataclasses
import json

import models
import pytest
import ranks
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import epilogue.torch
from epilogue.torch import bench, scaling, training

STEPS = 20


def _train(model, batches, fused_optimizer=False):
    """The losses, whose mean over ranks is the loss of all rows."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=fused_optimizer)
    losses = []
    for batch in batches:
        loss = model(batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    return losses / dist.get_world_size()


def _shard(model, **options):
    for layer in model.model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def _tensor_parallel(model):
    mesh = init_device_mesh("cpu", (2,))
    plan = {}
    for i in range(models.LAYERS):
        at = f"model.layers.{i}."
        plan.update({f"{at}self_attn.{n}_proj": ColwiseParallel() for n in "qkv"})
        plan.update({f"{at}mlp.{n}_proj": ColwiseParallel() for n in ("gate", "up")})
        plan.update({f"{at}self_attn.o_proj": RowwiseParallel(), f"{at}mlp.down_proj": RowwiseParallel()})
    return parallelize_module(model, mesh, plan)


WAYS = {"ddp": DistributedDataParallel, "fsdp2": _shard, "tp": _tensor_parallel}


def _steps(rank, way):
    torch.manual_seed(0)
    plain = models.build("llama")
    fused = epilogue.torch.fuse(copy.deepcopy(plain), training="always", linears="always")
    wrapped = WAYS[way](fused)
    batches = torch.randint(2, 96, (STEPS, 2, 1, 7))
    mine = batches[:, 0] if way == "tp" else batches[:, rank]
    whole = batches[:, 0] if way == "tp" else batches.flatten(1, 2)
    got = _train(wrapped, mine)
    want = _train(plain, whole)
    # AdamW divides by the root of a mean square: early steps magnify what the order of sums changes.
    torch.testing.assert_close(got, want, rtol=2e-4, atol=0)
    off, size = 0.0, 0.0
    for p, q in zip(fused.parameters(), plain.parameters()):
        now = p.full_tensor() if isinstance(p, DTensor) else p
        off, size = off + float((now.detach() - q.detach()).square().sum()), size + float(q.detach().square().sum())
    assert off**0.5 < 1e-4 * size**0.5, (off, size)
    report = epilogue.torch.why(fused)
    assert report.fused_calls == STEPS * models.LAYERS, str(report)
    # A root of FSDP2 gives its sharded parameters back: the next pass gathers what the steps wrote.
    probe = models.ids(5)
    with torch.no_grad():
        torch.testing.assert_close(wrapped(probe).logits + 0, plain(probe).logits, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("way", WAYS)
def test_twenty_steps(way):
    ranks.run(_steps, way)


def _buckets(rank):
    """Gradients that DDP averages come by its hooks, bucket after bucket, while the fused backward pass goes on."""
    model = epilogue.torch.fuse(models.build("llama"), training="always")
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.05)
    seen = []

    def hook(state, bucket):
        seen.append(len(bucket.parameters()))
        work = dist.all_reduce(bucket.buffer().div_(2), async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    wrapped.register_comm_hook(None, hook)
    for _ in range(2):
        wrapped.zero_grad()
        batch = models.ids(6) + rank
        wrapped(batch, labels=batch).loss.backward()
    assert len(seen) > 4 and sum(seen) == 2 * len(list(model.parameters())), seen
    assert epilogue.torch.why(model).fused_calls == 2 * models.LAYERS
    for p in model.parameters():
        same = p.grad.clone()
        dist.broadcast(same, 0)
        assert torch.equal(same, p.grad)


def test_ddp_buckets():
    ranks.run(_buckets)


def _gathered(rank, keeps, before, dtype):
    torch.manual_seed(0)
    plain = models.build("llama").to(dtype)
    fused = copy.deepcopy(plain)
    if before:
        epilogue.torch.fuse(fused, linears="always")
    _shard(fused, reshard_after_forward=not keeps)
    if not before:
        epilogue.torch.fuse(fused, linears="always")
    own = copy.deepcopy(plain)
    _shard(own, reshard_after_forward=not keeps)

    def load(model):
        model.load_state_dict({name: p * 1.25 for name, p in model.state_dict().items()})

    def write_shards(model):
        for p in model.parameters():
            p.to_local().data.mul_(1.1)

    def step(model):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
        batch = models.ids(5) * 0 + 7
        model(batch, labels=batch).loss.backward()
        optimizer.step()

    made = torch.ops.epilogue.handles.default()
    for write in (lambda model: None, load, write_shards, step, lambda model: None):
        for model in (own, fused):
            for module in model.modules():
                if hasattr(module, "reshard"):
                    module.reshard()
            write(model)
        for rows in (40, 3):
            probe = models.ids(rows)
            with torch.no_grad():
                a, b = (m(probe).logits for m in (fused, own))
            exact = {"rtol": 1e-4, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 5e-2, "atol": 5e-2}
            torch.testing.assert_close(a, b, **exact)
    report = epilogue.torch.why(fused)
    passes = 5 * models.LAYERS
    # Few rows pay where PyTorch has no fast products of the dtype.
    fewer = keeps or training.packs_in_vain(3, dtype) is None
    assert report.fused_calls == passes * (1 + fewer), str(report)
    assert fewer or "would be packed for one call" in str(report)
    left = torch.ops.epilogue.handles.default() - made
    states = [m.__dict__["_epilogue_state"] for m in fused.modules() if "_epilogue_state" in m.__dict__]
    assert states and all(bool(s.packs()) == keeps for s in states if s.fused_calls), str(report)
    assert keeps or left <= 2, left  # of the root alone, which stays gathered
    epilogue.torch.unfuse(fused)
    assert all(hasattr(layer, "reshard") and "Fused" not in type(layer).__name__ for layer in fused.model.layers)
    with torch.no_grad():
        torch.testing.assert_close(fused(probe).logits, own(probe).logits)


@pytest.mark.parametrize("keeps, before, dtype", [(False, True, torch.float32), (False, False, torch.bfloat16), (True, True, torch.float32)])
def test_gathered_parameters_are_packed_for_their_window(keeps, before, dtype):
    ranks.run(_gathered, keeps, before, dtype)


def _others(rank):
    """A sharded model beside it, and one of other precision, change nothing for a plain model."""
    plain = epilogue.torch.fuse(models.build("llama"))
    mixed = epilogue.torch.fuse(models.build("llama"), training="always")
    _shard(mixed, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    batch = models.ids(6)
    with torch.no_grad():
        plain(batch)
    assert epilogue.torch.why(plain).fused_calls == models.LAYERS
    mixed(batch, labels=batch).loss.backward()
    assert epilogue.torch.why(mixed).fused_calls == models.LAYERS
    assert all(p.grad.dtype is torch.float32 for p in mixed.parameters())


def test_only_what_is_sharded_counts():
    ranks.run(_others)


def _stages(rank):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    torch.manual_seed(0)
    stages = [models.build("llama").model.layers[i].mlp for i in range(2)]
    whole = torch.nn.Sequential(*(copy.deepcopy(s) for s in stages))
    mine = epilogue.torch.fuse(stages[rank], training="always")
    x = torch.randn(4, 3, 48)
    stage = PipelineStage(mine, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda y, t: (y - t).square().sum(), scale_grads=False)
    target = torch.zeros_like(x)
    schedule.step(x) if rank == 0 else schedule.step(target=target)
    (whole(x) - target).square().sum().backward()
    for p, q in zip(mine.parameters(), whole[rank].parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
    report = epilogue.torch.why(mine)
    assert report.fused_calls >= 2 and not report.rows[0].own_calls, str(report)


def test_pipeline_stages():
    ranks.run(_stages)


def test_model_of_scaling():
    """Parts by hand, and what has to hold: more hosts split products and add messages."""
    machine = scaling.Machine(2, 1e11, 1e10, 1e10, 1e10, 1e-4, 1e-5, 1e9, 1e-5, 1e10)
    shape = scaling.Shape(64, 128, 3, 4, 2, 1000, 4)
    assert shape.layer_weights() == 64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128
    one = scaling.pass_seconds(shape, machine, rows=1, cached=9)
    weights = 3 * shape.layer_weights() + 64 * 1000
    assert one.products == pytest.approx(weights / 2 * (4 / 1e10 + 2 / 1e11)) and one.calls == pytest.approx(3e-4)
    assert one.attention == pytest.approx(3 * 4 * 10 * 64 / 2 / 1e10)
    assert one.reduces == pytest.approx(6 * (1e-5 + 64 * 4 / 1e9))
    many = scaling.pass_seconds(shape, machine, rows=100, hosts=4)
    assert many.products == pytest.approx(weights / 8 * 4 / 1e10 + 2 * (100 * 3 * shape.layer_weights() + 64 * 1000) / 8 / 1e11)
    assert many.reduces == pytest.approx(6 * (1e-5 + 25600 / 1e9 + 4e-5 + 1.5 * 25600 / 1e10))
    half = scaling.pass_seconds(dataclasses.replace(shape, element_bytes=2), machine, rows=100, hosts=4)
    assert half.reduces == pytest.approx(6 * (1e-5 + 12800 / 1e9 + 4e-5 + 1.5 * 25600 / 1e10))  # f32 between hosts
    for large in scaling.SHAPES.values():
        products = [scaling.pass_seconds(large, machine, rows=512, hosts=h).products for h in (1, 2, 64)]
        assert products[0] == pytest.approx(2 * products[1]) and products[0] == pytest.approx(64 * products[2])
    assert scaling.fastest(shape, machine, rows=1)[0] == 1 and scaling.fastest(scaling.SHAPES["Llama-70B"], machine, rows=1)[0] == 64
    with pytest.raises(ValueError, match="at least 1"):
        scaling.pass_seconds(shape, machine, rows=0)


def test_bench_of_ranks(tmp_path, capfd):
    file = tmp_path / "rows.json"
    quick = ["--rounds", "2", "--seconds", "0", "--tiny", "--rows", "1", "5", "--layers", "1", "--json", str(file)]
    assert bench.main(["ranks", "--what", "reduce", "blocks", "models", "scaling", *quick]) == 0
    rows = json.loads(file.read_text())
    assert [r["name"] for r in rows][:2] == ["all_reduce 64 KiB float32", "all_reduce 1 MiB float32"] and len(rows) == 6 + 4 + 4 + 4
    assert all(r["ms"]["one process"] > 0 for r in rows[6:14]) and rows[-1]["machine"]["ranks"] == 2
    assert "the model says" in capfd.readouterr().out
