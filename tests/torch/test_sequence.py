# SPDX-License-Identifier: Apache-2.0
"""Sequence parallelism as torch's documents have it: norms of a rank's rows, which the host's memory brings together before products."""

import copy

import models
import pytest
import ranks
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import epilogue.torch
from epilogue.torch.cache import GrowingCaches
from epilogue.torch.timing import relative

DTYPES = (torch.float32, torch.bfloat16)


def _documents(model, mesh):
    """The plan of torch's tutorial for a Llama. One style serves all layers."""
    rows, whole = Shard(1), Replicate()
    plan = {
        "model.embed_tokens": RowwiseParallel(input_layouts=whole, output_layouts=rows),
        "model.norm": SequenceParallel(use_local_output=True),
        "lm_head": ColwiseParallel(input_layouts=rows, output_layouts=whole),
    }
    of_layer = {
        "input_layernorm": SequenceParallel(),
        "self_attn": PrepareModuleInput(input_kwarg_layouts={"hidden_states": rows}, desired_input_kwarg_layouts={"hidden_states": whole}),
        **{f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"},
        "self_attn.o_proj": RowwiseParallel(output_layouts=rows),
        "post_attention_layernorm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(rows,), desired_input_layouts=(whole,)),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=rows),
    }
    for i in range(len(model.model.layers)):
        plan.update({f"model.layers.{i}.{name}": style for name, style in of_layer.items()})
    return parallelize_module(model, mesh, plan)


def _llama(rank, dtype, before, world):
    mesh = init_device_mesh("cpu", (world,))
    dense = models.build("llama", hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=4).to(dtype)
    reference = copy.deepcopy(dense).double()
    own = _documents(copy.deepcopy(dense), mesh)
    fused = copy.deepcopy(dense)
    if before:
        epilogue.torch.fuse(fused, linears="always")
    _documents(fused, mesh)
    hooks = [{k: hook for k, hook in m._forward_pre_hooks.items() if not isinstance(hook, GrowingCaches)} for m in fused.modules()]
    for _ in range(2):
        epilogue.torch.fuse(fused, linears="always")
    errors = [0.0, 0.0]
    layers = len(dense.model.layers)
    with torch.no_grad():
        for rows in (world, 3 * world, 40 * world):
            ids, at = models.ids(rows), torch.arange(rows)[None]
            want = reference(ids).logits
            for i, model in enumerate((own, fused)):
                errors[i] += relative(model(ids, position_ids=at, use_cache=False).logits, want)
        _, ops = models.counted(lambda: fused(ids, position_ids=at, use_cache=False))
    assert ops.get("epilogue::rms_norm") == ops.get("epilogue::host_all_gather") == 2 * layers + 1, ops
    assert not any("all_gather" in name or "allgather" in name for name in ops.keys() - {"epilogue::host_all_gather"}), ops
    report = epilogue.torch.why(fused)
    assert not any(row.own_calls for row in report.norms) and report.norm_calls == 4 * (2 * layers + 1), str(report)
    assert report.fused_calls == 4 * layers, str(report)
    epilogue.torch.unfuse(fused)
    assert hooks == [dict(m._forward_pre_hooks) for m in fused.modules()]
    return errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("before", [False, True])
def test_llama_by_torchs_plan(before, dtype):
    for own, fused in ranks.run(_llama, dtype, before, 2):
        assert 0 < fused <= 1.05 * own, (own, fused)


def test_llama_on_four_ranks():
    for own, fused in ranks.run(_llama, torch.float32, False, 4, world=4):
        assert 0 < fused <= 1.05 * own, (own, fused)


def _arrived(x):
    """What a call gave, and that it is there: a profiler that ends beside a collective of gloo breaks the heap."""
    return x, x.wait() if hasattr(x, "wait") else x


def _embeddings(rank, world, dtype):
    """Rows that the ranks divide and rows that they do not, whole results and parted ones."""
    mesh = init_device_mesh("cpu", (world,))
    for rows, output in ((40, Replicate()), (40, Shard(1)), (37, Replicate()), (37, Shard(-1))):
        dense = nn.Embedding(rows, 24, padding_idx=3).to(dtype)
        own = parallelize_module(copy.deepcopy(dense), mesh, RowwiseParallel(input_layouts=Replicate(), output_layouts=output))
        split = epilogue.torch.fuse(copy.deepcopy(own))
        with torch.no_grad():
            for count in (world, 5, 3 * world):
                ids = torch.randint(0, rows, (2, count))
                want = _arrived(own(ids))[1]
                (got, _), ops = models.counted(lambda: _arrived(split(ids)))  # noqa: B023
                divides = output.is_replicate() or (24 if output.dim == -1 else count) % world == 0
                assert torch.equal(got, want) and (type(got) is torch.Tensor or not divides), (rows, output)
                assert any("c10d" in name for name in ops) != divides, ops
            assert epilogue.torch.why(split).embedding_calls == (2 if output == Shard(1) and 5 % world else 3)
        for module in (own, split):
            module(ids).square().sum().backward()
        assert torch.equal(split.weight.grad.full_tensor(), own.weight.grad.full_tensor())
        (row,) = epilogue.torch.why(split).embeddings
        assert row.is_fused and row.reason == "gradients are wanted" and row.part == f"rank {rank} of {world}", row
        text = str(epilogue.torch.why(split))
        assert "(the model): fused: embedding, rows from" in text and "gradients are wanted" in text, text
        split.register_forward_hook(lambda module, args, out: out * 2)
        with torch.no_grad():
            assert torch.equal(split(ids), 2 * own(ids))
        assert "a hook" in epilogue.torch.why(split).embeddings[0].what
        assert type(epilogue.torch.unfuse(split)) is nn.Embedding
    assert not epilogue.torch.why(epilogue.torch.fuse(nn.Embedding(8, 8))).embeddings
    alone = nn.Embedding(8, 24)
    alone.weight = nn.Parameter(distribute_tensor(alone.weight, mesh, [Shard(0)]))
    assert "by no plan" in epilogue.torch.why(epilogue.torch.fuse(alone)).embeddings[0].what
    # A rank without rows, for which DTensor's way fails.
    few = nn.Embedding(1, 24)
    split = epilogue.torch.fuse(parallelize_module(copy.deepcopy(few), mesh, RowwiseParallel(input_layouts=Replicate())))
    with torch.no_grad():
        assert torch.equal(split(0 * ids), few(0 * ids))
    # Other ends, another forward, a weight that a call writes: as their own.
    columns = epilogue.torch.fuse(parallelize_module(nn.Embedding(8, 24), mesh, ColwiseParallel(output_layouts=Replicate())))
    apart = epilogue.torch.fuse(parallelize_module(nn.Embedding(8, 24), mesh, ColwiseParallel()))
    written = parallelize_module(nn.Embedding(8, 24, max_norm=0.5), mesh, RowwiseParallel(input_layouts=Replicate()))
    epilogue.torch.fuse(written)
    with torch.no_grad():
        assert columns(ids % 8).shape == (2, 3 * world, 24)
        apart(ids % 8)
    assert epilogue.torch.why(columns).embedding_calls == 1
    assert "a result that is Shard(dim=-1)" in epilogue.torch.why(apart).embeddings[0].what


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world", [2, 4])
def test_embeddings(dtype, world):
    ranks.run(_embeddings, world, dtype, world=world)


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(256, eps=1e-5)
        self.mlp = models.build("llama", hidden_size=256, intermediate_size=512).model.layers[0].mlp

    def forward(self, x):
        return self.mlp(self.norm(x))


def _block(mesh, local):
    block = _Block()
    nn.init.normal_(block.norm.weight)
    whole = PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate(), use_local_output=local)
    down = RowwiseParallel(output_layouts=Shard(1), use_local_output=False)
    plan = {"norm": SequenceParallel(), "mlp": whole, "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": down}
    return block, parallelize_module(copy.deepcopy(block), mesh, plan)


def _rows(rank, local):
    """Rows that are DTensors, of which the ranks have as many each or not, and that another plan gives whole."""
    mesh = init_device_mesh("cpu", (2,))
    dense, split = _block(mesh, local)
    epilogue.torch.fuse(split)
    gathers = []
    for rows in (1, 2, 7, 12):
        x = torch.randn(1, rows, 256)
        with torch.no_grad():
            for placement in (Shard(1), Replicate()):
                given = distribute_tensor(x, mesh, [placement])
                got, ops = models.counted(lambda: split(given))  # noqa: B023
                torch.testing.assert_close(got.full_tensor(), dense(x), rtol=1e-4, atol=1e-5)
                gathers.append((rows, ops.get("epilogue::host_all_gather", 0)))
    assert gathers == [(rows, even) for rows, even in ((1, 0), (2, 1), (7, 0), (12, 1)) for _ in range(2)], gathers
    report = epilogue.torch.why(split)
    # A rank that has no row does as the others do.
    assert report.norm_calls == 8 and report.fused_calls == 8, str(report)


@pytest.mark.parametrize("local", [False, True])
def test_rows_of_any_number(local):
    ranks.run(_rows, local)


def _layouts(rank):
    """A norm of rows that do not lie one after the other."""
    mesh = init_device_mesh("cpu", (2,))
    norm = nn.RMSNorm(256, eps=1e-5)
    split = epilogue.torch.fuse(parallelize_module(copy.deepcopy(norm), mesh, SequenceParallel()))
    x = torch.randn(2, 256, 6).transpose(1, 2)
    for given in (distribute_tensor(x, mesh, [Shard(1)]), distribute_tensor(x.contiguous(), mesh, [Shard(1)])):
        with torch.no_grad():
            y = split(given)
            assert y.is_contiguous() and y.to_local().is_contiguous() and y.shape == x.shape
            torch.testing.assert_close(y.view(-1).full_tensor(), norm(x).reshape(-1), rtol=1e-5, atol=1e-5)
    assert epilogue.torch.why(split).norm_calls == 2


def test_layouts():
    ranks.run(_layouts)


def _gradients(rank):
    mesh = init_device_mesh("cpu", (2,))
    _, split = _block(mesh, True)
    own = copy.deepcopy(split)
    epilogue.torch.fuse(split)
    x = torch.randn(1, 6, 256).chunk(2, 1)[rank].contiguous()
    for model in (own, split):
        model(x).to_local().square().sum().backward()
    for (name, a), (_, b) in zip(own.named_parameters(), split.named_parameters()):
        assert isinstance(b.grad, DTensor), name
        torch.testing.assert_close(b.grad.full_tensor(), a.grad.full_tensor(), rtol=1e-4, atol=1e-5, msg=name)
    assert "gradients" in str(epilogue.torch.why(split).norms[0].reason)
    with torch.no_grad():  # and back
        torch.testing.assert_close(split(x).full_tensor(), own(x).full_tensor(), rtol=1e-4, atol=1e-5)
    assert epilogue.torch.why(split).norm_calls == 1


def test_gradients():
    ranks.run(_gradients)


def _layer_norms(rank, dtype):
    mesh = init_device_mesh("cpu", (2,))
    norm = nn.LayerNorm(256).to(dtype)
    for p in norm.parameters():
        nn.init.normal_(p)
    own = parallelize_module(copy.deepcopy(norm), mesh, SequenceParallel())
    split = epilogue.torch.fuse(parallelize_module(copy.deepcopy(norm), mesh, SequenceParallel()))
    with torch.no_grad():
        for rows in (1, 2, 7, 12):  # of one row a rank has none
            given = distribute_tensor(torch.randn(1, rows, 256, dtype=dtype), mesh, [Shard(1)])
            (want, _), (got, ops) = models.counted(lambda: own(given)), models.counted(lambda: split(given))  # noqa: B023
            assert got.placements == want.placements and torch.equal(got.full_tensor(), want.full_tensor())
            assert ops.get("aten::native_layer_norm", 0) == (given.to_local().numel() > 0), ops
        assert epilogue.torch.why(split).norm_calls == 4
        split.eps = own.eps = 1.0
        assert torch.equal(split(given).full_tensor(), own(given).full_tensor())
    x = torch.randn(1, 6, 256, dtype=dtype)
    for module in (own, split):
        module(distribute_tensor(x, mesh, [Shard(1)])).to_local().square().sum().backward()
    for a, b in zip(own.parameters(), split.parameters()):
        assert torch.equal(a.grad.full_tensor(), b.grad.full_tensor())
    (row,) = epilogue.torch.why(split).norms
    assert (row.fused_calls, row.own_calls, row.reason) == (4, 2, "gradients are wanted"), row
    assert not epilogue.torch.why(epilogue.torch.fuse(copy.deepcopy(norm))).norms  # PyTorch's own is one op


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norms(dtype):
    ranks.run(_layer_norms, dtype)


def _wrong(rank):
    """What the hook refuses it refuses fused, too."""
    mesh = init_device_mesh("cpu", (2,))
    _, split = _block(mesh, False)
    epilogue.torch.fuse(split)
    for given, kind in (((torch.zeros(1, 2, 256),) * 2, ValueError), ((None,), AssertionError)):
        with torch.no_grad(), pytest.raises(kind):
            split.mlp(*given)


def test_wrong_inputs():
    ranks.run(_wrong)
