# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism on two processes: each rank's part runs fused, and the parts give what the unfused plan gives."""

import copy

import models
import pytest
import ranks
import torch
import transformers
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import epilogue.torch

DTYPES = (torch.float32, torch.bfloat16)
FORMS = ("plain", "sequence", "before", "prepared", "dtensor", "partial")


def _plan(form):
    if form == "sequence":
        column = {"input_layouts": Shard(1)}
        return {"gate_proj": ColwiseParallel(**column), "up_proj": ColwiseParallel(**column), "down_proj": RowwiseParallel(output_layouts=Shard(1))}
    if form == "prepared":
        whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        return {"": whole, "gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel(), "down_proj": RowwiseParallel(output_layouts=Shard(1))}
    kept = {"use_local_output": False} if form == "dtensor" else {}
    return {"gate_proj": ColwiseParallel(**kept), "up_proj": ColwiseParallel(**kept), "down_proj": RowwiseParallel(**kept)}


def _by_hand(mlp, mesh):
    """Weights alone are DTensors: the result is a sum that the caller reduces."""
    for name, dim in (("gate_proj", 0), ("up_proj", 0), ("down_proj", 1)):
        linear = getattr(mlp, name)
        linear.weight = nn.Parameter(torch.distributed.tensor.distribute_tensor(linear.weight.data, mesh, [Shard(dim)]))
        placement = [Shard(0)] if dim == 0 else [Replicate()]
        linear.bias = nn.Parameter(torch.distributed.tensor.distribute_tensor(linear.bias.data, mesh, placement))


def _whole(y, dim):
    y = y.full_tensor() if isinstance(y, DTensor) else y + 0
    if dim is None:
        return y
    parts = [torch.empty_like(y) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, y.contiguous())
    return torch.cat(parts, dim)


def _error(y, want):
    return float((y.double() - want).norm() / want.norm())


def _mlp(rank, form, dtype, world):
    mesh = init_device_mesh("cpu", (world,))
    mlp = models.build("llama_bias", **models.WIDE).model.layers[0].mlp.to(dtype)
    reference = copy.deepcopy(mlp).double()
    own = copy.deepcopy(mlp)
    if form == "before":
        epilogue.torch.fuse(mlp)
    for module in (own, mlp):
        if form == "partial":
            _by_hand(module, mesh)
        else:
            parallelize_module(module, mesh, _plan(form))
    parameters = dict(mlp.named_parameters())
    if form != "before":
        epilogue.torch.fuse(mlp)
    split = form in ("sequence", "prepared")
    errors = [[], []]
    for rows in (1, 2, 5, 16):
        x = torch.randn(rows, 2 * world, 768).to(dtype)
        given = x.chunk(world, 1)[rank].contiguous() if split else x
        if form == "partial":
            given = DTensor.from_local(given, mesh, [Replicate()], run_check=False)
        with torch.no_grad():
            want = reference(x.double())
            results = [own(given), mlp(given)]
        assert (results[0].placements == results[1].placements) if isinstance(results[0], DTensor) else type(results[1]) is torch.Tensor
        for y, errors_of in zip(results, errors):
            errors_of.append(_error(_whole(y, 1 if split else None), want))
    report = epilogue.torch.why(mlp)
    assert report.fused_calls == 4 and report.rows[0].part == f"rank {rank} of {world}", str(report)
    now = mlp.state_dict()
    assert list(now) == list(own.state_dict()) and all(isinstance(p, DTensor) for p in now.values())
    assert all(p is parameters[name] for name, p in mlp.named_parameters())
    return [sum(e) for e in errors]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_mlp_is_as_exact_as_its_plan(form, dtype):
    for own, fused in ranks.run(_mlp, form, dtype, 2):
        assert 0 < fused <= 1.05 * own, (own, fused)


def test_mlp_on_four_ranks():
    for own, fused in ranks.run(_mlp, "plain", torch.float32, 4, world=4):
        assert 0 < fused <= 1.05 * own, (own, fused)


class _Attention(nn.Module):
    """Its linear layers alone, with biases."""

    def __init__(self, n=256, k=320):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(k, n) for _ in range(3))
        self.o = nn.Linear(n, k)
        self.head = nn.Linear(k, 96)

    def forward(self, x):
        return self.head(self.o(torch.tanh(self.q(x)) * self.k(x) + self.v(x)))


def _linears(rank, before):
    mesh = init_device_mesh("cpu", (2,))
    dense = _Attention()
    split = copy.deepcopy(dense)
    if before:
        epilogue.torch.fuse(split, linears="always")
    plan = {name: ColwiseParallel() for name in "qkv"}
    parallelize_module(split, mesh, {**plan, "o": RowwiseParallel(), "head": ColwiseParallel(output_layouts=Replicate())})
    if not before:
        epilogue.torch.fuse(split, linears="always")
    calls = 8
    for _ in range(calls):
        x = torch.randn(3, 4, 320)
        with torch.no_grad():
            torch.testing.assert_close(split(x) + 0, dense(x), rtol=1e-5, atol=1e-5)
    report = epilogue.torch.why(split)
    assert report.linear_calls == 5 * (calls - before), str(report)
    if not before:
        assert all("one of 3 of one input" in row.what for row in report.linears if row.name in "qkv"), str(report)
    x.requires_grad_()
    split(x).sum().backward()
    grad = x.grad.clone()
    x.grad = None
    dense(x).sum().backward()
    torch.testing.assert_close(grad, x.grad, rtol=1e-4, atol=1e-4)
    assert "gradients" in str(epilogue.torch.why(split))


@pytest.mark.parametrize("before", [False, True])
def test_projections(before):
    ranks.run(_linears, before)


def _by_default(rank, dtype):
    """Layers of a plan run fused at any size and number of rows: their own way is DTensor's and gloo's."""
    mesh = init_device_mesh("cpu", (2,))
    split = _Attention().to(dtype)
    plan = {name: ColwiseParallel() for name in "qkv"}
    parallelize_module(split, mesh, {**plan, "o": RowwiseParallel(), "head": ColwiseParallel(output_layouts=Replicate())})
    own = copy.deepcopy(split)
    epilogue.torch.fuse(split)
    for rows in (1, 7, 64, 300):
        x = torch.randn(1, rows, 320).to(dtype)
        with torch.no_grad():
            exact = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 3e-2, "atol": 3e-2}
            torch.testing.assert_close(split(x) + 0, own(x) + 0, **exact)
        with torch.no_grad():
            _, ops = models.counted(lambda: split(x))  # noqa: B023
        assert ops.get("epilogue::summed") == 1 and ops.get("epilogue::gathered") == 1, ops  # o's sum, the head's columns
        assert not any("all_gather" in name or "allgather" in name for name in ops), ops
    report = epilogue.torch.why(split)
    assert report.linear_calls == 5 * 8 and not any(row.own_calls for row in report.linears), str(report)


@pytest.mark.parametrize("dtype", DTYPES)
def test_projections_by_default(dtype):
    ranks.run(_by_default, dtype)


def _mixtral(**sizes):
    config = transformers.MixtralConfig(**{**models.SIZES, **sizes}, num_local_experts=4)
    return models.varied(transformers.MixtralForCausalLM(config))


def _model(rank, folder, dtype, way, calls):
    sharing = {"tp_plan": "auto"}
    if way == "experts":
        sharing["ep_size"] = 2
        del sharing["tp_plan"]
    config = transformers.distributed.DistributedConfig(tp_size=2, **sharing)
    own, fused = (transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, distributed_config=config) for _ in range(2))
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).double()
    if hasattr(reference.model.layers[0].mlp, "experts"):
        reference.set_experts_implementation("eager")
    epilogue.torch.fuse(fused, linears="always")
    errors = [0.0, 0.0]
    with torch.no_grad():
        for _ in range(calls):
            ids = models.ids(9)
            want = reference(ids).logits
            for i, model in enumerate((own, fused)):
                errors[i] += _error(model(ids).logits, want)
    report = epilogue.torch.why(fused)
    layers = reference.config.num_hidden_layers
    assert report.fused_calls == calls * layers and all(row.part == f"rank {rank} of 2" for row in report.rows), str(report)
    assert report.linear_calls == calls * (4 * layers + 1) and not any(row.own_calls for row in report.linears), str(report)
    if way == "columns":
        assert report.embedding_calls == calls and not report.embeddings[0].own_calls, str(report)
        with torch.no_grad():
            made = [m.generate(ids, max_new_tokens=4, do_sample=False) for m in (own, fused)]
        assert dtype is not torch.float32 or torch.equal(*made)
    return errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name, way", [("llama", "columns"), ("qwen2", "columns"), ("mixtral", "columns"), ("mixtral", "experts")])
def test_models_by_their_own_plans(tmp_path, name, way, dtype):
    sizes = {"hidden_size": 256, "intermediate_size": 512}
    model = _mixtral(**sizes) if name == "mixtral" else models.build(name, **sizes)
    model.save_pretrained(tmp_path)
    for own, fused in ranks.run(_model, str(tmp_path), dtype, way, 8):
        assert 0 < fused <= 1.05 * own, (own, fused)


def _residuals(rank, folder, dtype):
    """Of 300 rows: the residual behind attention is added in o's sum. A hook on one rank that keeps attention's result changes
    nothing, and one that reads it ends the wait: on that rank alone, and after some calls without trying."""
    config = transformers.distributed.DistributedConfig(tp_size=2, tp_plan="auto")
    own, fused = (transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, distributed_config=config) for _ in range(2))
    dense, reference = (transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=d) for d in (dtype, torch.float64))
    epilogue.torch.fuse(fused, linears="always")
    epilogue.torch.fuse(dense, linears="always")
    ids = models.ids(300)
    ops = []

    def run(model):
        with torch.no_grad():
            out, counts = models.counted(lambda: model(ids).logits)
        ops.append([counts.get(f"epilogue::{name}", 0) for name in ("summed_later", "host_take")])
        return out

    with torch.no_grad():
        want = reference(ids).logits
    plain = run(fused)
    errors = [_error(run(model), want) for model in (own, dense)] + [_error(plain, want)]
    layers = reference.config.num_hidden_layers
    assert ops == [[layers, layers], [0, 0], [0, 0]], ops
    kept = []
    attention = fused.model.layers[0].self_attn
    hook = attention.register_forward_hook(lambda module, args, out: kept.append(out[0]) if rank == 0 else None)
    assert torch.equal(run(fused), plain)
    hook.remove()
    with torch.no_grad():
        assert all(torch.isfinite(out).all() for out in kept)  # later, on one rank alone
    hook = attention.register_forward_hook(lambda module, args, out: kept.append(float(out[0].abs().max())) if rank == 0 else None)
    for _ in range(5):
        errors.append(_error(run(fused), want))
    hook.remove()
    assert ops[-1] == [layers, layers - (rank == 0)], ops
    state = fused.state_dict()
    assert list(state) == list(own.state_dict()) and torch.equal(state["model.layers.0.self_attn.o_proj.weight"].to_local(), own.state_dict()["model.layers.0.self_attn.o_proj.weight"].to_local())
    return errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_residuals_in_sums(tmp_path, name, dtype):
    models.build(name, hidden_size=256, intermediate_size=512).save_pretrained(tmp_path)
    for own, dense, *fused in ranks.run(_residuals, str(tmp_path), dtype):
        assert all(0 < error <= 1.05 * max(own, dense) for error in fused), (own, dense, fused)


def _split_later(rank, folder, dtype, again):
    """Fused as one model, then split by transformers' plan: its experts run as their own once, then as this rank's part."""
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    reference, model = (transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype) for _ in range(2))
    epilogue.torch.fuse(model, linears="always")
    with torch.no_grad():
        model(models.ids(9))
    plan, _, _ = model._resolve_parallel_plans(transformers.distributed.DistributedConfig(tp_size=2, tp_plan="auto"))
    apply_tensor_parallelism(model, init_device_mesh("cpu", (2,)), plan)
    if again:
        epilogue.torch.fuse(model, linears="always")
    calls, reference = 5, reference.double()
    reference.set_experts_implementation("eager")
    before = epilogue.torch.why(model)
    with torch.no_grad():
        ids = models.ids(9)
        errors = [_error(model(ids).logits, reference(ids).logits) for _ in range(calls)]
    report = epilogue.torch.why(model)
    assert all(row.part == f"rank {rank} of 2" for row in report.rows), str(report)
    assert report.fused_calls - before.fused_calls == len(report.rows) * (calls - (not again)), str(report)
    epilogue.torch.unfuse(model)
    with torch.no_grad():
        errors.append(_error(model(ids).logits, reference(ids).logits))
    return errors


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_experts_that_are_split_after_they_are_fused(tmp_path, dtype, again):
    _mixtral(hidden_size=256, intermediate_size=512).save_pretrained(tmp_path)
    for errors in ranks.run(_split_later, str(tmp_path), dtype, again):
        assert all(0 < e <= 1.05 * errors[-1] or e < 1e-5 for e in errors), errors


def _differing(rank):
    mesh = init_device_mesh("cpu", (2,))
    model = models.build("llama")
    plan = {f"model.layers.{i}.mlp.{name}": style for i in range(2) for name, style in _plan("plain").items()}
    parallelize_module(model, mesh, plan)
    if rank == 1:
        model.model.layers[1].mlp.up_proj.register_forward_hook(lambda *_: None)
    message = ""
    try:
        epilogue.torch.fuse(model)
    except RuntimeError as error:
        message = str(error)
    assert not any(hasattr(type(m), "_epilogue_original") for m in model.modules())
    return message


def test_ranks_that_differ_say_so():
    for message in ranks.run(_differing):
        assert "expected all ranks to fuse the same, got model.layers.1" in message and "rank 1: not fused: a hook" in message, message


def _norms(rank):
    """Norms by SequenceParallel: the layers run as their own, and the MLPs within them fused."""
    mesh = init_device_mesh("cpu", (2,))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(48)
            self.mlp = models.build("llama").model.layers[0].mlp

        def forward(self, x):
            return x + self.mlp(self.norm(x))

    dense = Block()
    split = copy.deepcopy(dense)
    parallelize_module(split, mesh, {"norm": SequenceParallel(use_local_output=True), **{f"mlp.{k}": v for k, v in _plan("sequence").items()}})
    epilogue.torch.fuse(split)
    x = torch.randn(2, 6, 48)
    with torch.no_grad():
        y = split(x.chunk(2, 1)[rank])
        torch.testing.assert_close(_whole(y, 1), dense(x), rtol=1e-4, atol=1e-5)
    report = epilogue.torch.why(split)
    assert report.rows[0].fused_calls == 1, str(report)


def test_sequence_parallel_norms():
    ranks.run(_norms)


def _written(rank):
    mesh = init_device_mesh("cpu", (2,))
    own = models.build("llama").model.layers[0].mlp
    fused = copy.deepcopy(own)
    for module in (own, fused):
        parallelize_module(module, mesh, _plan("plain"))
    epilogue.torch.fuse(fused)
    x = torch.randn(3, 48)

    def add(model):
        with torch.no_grad():
            model.up_proj.weight.add_(0.01)

    def add_to_one_element(model):
        with torch.no_grad():
            model.down_proj.weight[:, 3:4].mul_(2.0)

    def step(model):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
        model(x).pow(2).sum().backward()
        optimizer.step()

    def load(model):
        model.load_state_dict({name: p * 1.5 for name, p in model.state_dict().items()})

    def replace(model):
        model.gate_proj.weight = nn.Parameter(model.gate_proj.weight.detach() * 0.5)

    def through_data(model):
        model.gate_proj.weight.to_local().data.mul_(-1.0)

    for write in (lambda model: None, add, add_to_one_element, step, load, replace, through_data):
        for model in (own, fused):
            write(model)
        with torch.no_grad():
            torch.testing.assert_close(fused(x), own(x) + 0, rtol=1e-4, atol=1e-5)
    report = epilogue.torch.why(fused)
    assert report.rows[0].fused_calls == 7 and report.rows[0].own_calls == 1, str(report)


def test_packed_parts_are_never_stale():
    ranks.run(_written)


def _others(rank):
    """What fuse() does not know stays as it is, with a reason."""
    mesh = init_device_mesh("cpu", (2,))
    mlp = models.build("llama").model.layers[0].mlp
    x = torch.randn(3, 48)
    with torch.no_grad():
        want = mlp(x)
    parallelize_module(mlp, mesh, _plan("plain"))
    epilogue.torch.fuse(mlp)
    seen = []
    hook = mlp.up_proj.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad():
        torch.testing.assert_close(mlp(x) + 0, want)
        assert seen and "a hook on a layer of the MLP" in str(epilogue.torch.why(mlp))
        hook.remove()
        mlp(x)
    assert epilogue.torch.why(mlp).rows[0].fused_calls == 1
    wrong = models.build("llama").model.layers[0].mlp
    parallelize_module(wrong, mesh, {**_plan("plain"), "up_proj": ColwiseParallel(input_layouts=Shard(0))})
    epilogue.torch.fuse(wrong)
    with torch.no_grad(), pytest.raises(RuntimeError):  # the module's own error
        wrong(x)
    assert "no split by columns, then by rows" in str(epilogue.torch.why(wrong))
    for call in (lambda: epilogue.torch.fuse(mlp, release=True), lambda: epilogue.torch.save_packed(epilogue.torch.fuse(mlp, weights="int8"), "x")):
        with pytest.raises(ValueError, match="DTensor"):
            call()


def test_what_is_not_known_runs_as_its_own():
    ranks.run(_others)
