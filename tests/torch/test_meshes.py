# SPDX-License-Identifier: Apache-2.0
"""Four processes as meshes of two dimensions: tensor parallelism beside data parallelism, within FSDP2, and weights on the whole
mesh. Each rank runs its part fused, and the parts give what one process gives, in inference and over 20 steps of AdamW."""

import copy

import models
import pytest
import ranks
import torch
import torch.distributed as dist
import transformers
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import epilogue.torch

STEPS = 20
WAYS = ("alone", "ddp", "replicate", "fsdp2", "kept", "hsdp")
DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(scope="module", autouse=True)
def processes():
    yield
    ranks.stop(4)


def _plan():
    plan = {}
    for i in range(models.LAYERS):
        at = f"model.layers.{i}."
        plan.update({f"{at}self_attn.{n}_proj": ColwiseParallel() for n in "qkv"})
        plan.update({f"{at}mlp.{n}_proj": ColwiseParallel() for n in ("gate", "up")})
        plan.update({f"{at}self_attn.o_proj": RowwiseParallel(), f"{at}mlp.down_proj": RowwiseParallel()})
    return plan


def _wrapped(model, way):
    """Over two by two ranks, and which part of the rows is this rank's."""
    if way == "hsdp":  # groups of two ranks share parameters; both groups have all of them
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh), dist.get_rank(), 4
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], _plan())
    part = mesh["data"].get_local_rank(), 2
    if way == "ddp":
        return DistributedDataParallel(model, device_mesh=mesh["data"]), *part
    if way == "replicate":
        for layer in model.model.layers:
            replicate(layer, mesh=mesh["data"])
        return replicate(model, mesh=mesh["data"]), *part
    if way in ("fsdp2", "kept"):
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh["data"], reshard_after_forward=way != "kept")
        return fully_shard(model, mesh=mesh["data"], reshard_after_forward=way != "kept"), *part
    return model, *part


def _fused(plain, way, before, **options):
    model = copy.deepcopy(plain)
    if before:
        epilogue.torch.fuse(model, **options)
    wrapped, part, parts = _wrapped(model, way)
    if not before or way in ("alone", "ddp"):
        epilogue.torch.fuse(model, **options)
    return model, wrapped, part, parts


def _learning_calls(way, before):
    """Of a layer that was fused before it was split: one as its own. DDP puts DTensors in their place in the first pass."""
    return int(way == "ddp" or (before and way in ("replicate", "fsdp2", "kept")))


def _error(y, want):
    return float((y.double() - want).norm() / want.norm())


def _wrapped_head(rank):
    """A head of a plan that FSDP2 wraps by itself runs as its own, and says why."""
    torch.manual_seed(0)
    plain = models.build("llama", tie_word_embeddings=False)
    model = copy.deepcopy(plain)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    parallelize_module(model, mesh["tensor"], {**_plan(), "lm_head": ColwiseParallel(output_layouts=Replicate())})
    for module in (*model.model.layers, model.lm_head, model):
        fully_shard(module, mesh=mesh["data"])
    epilogue.torch.fuse(model, linears="always")
    ids = models.ids(40)
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits + 0, plain(ids).logits, rtol=1e-3, atol=1e-4)
    report = epilogue.torch.why(model)
    head = next((row for row in report.linears if row.name == "lm_head"), None)
    assert head is not None, str(report)
    reason = head.reason or head.what
    assert "fully_shard() was called on the layer itself" in reason, str(report)
    assert report.fused_calls == models.LAYERS, str(report)
    return True


def test_a_head_that_fsdp2_wraps_by_itself_says_so():
    assert all(ranks.run(_wrapped_head, world=4))


def _passes(rank, way, dtype, before):
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 512}
    plain = models.build("llama", **sizes).to(dtype)
    reference = copy.deepcopy(plain).double()
    fused, wrapped, _, _ = _fused(plain, way, before, linears="always")
    _, own, _, _ = (None, *_wrapped(copy.deepcopy(plain), way))
    one = epilogue.torch.fuse(copy.deepcopy(plain), linears="always")
    errors = [0.0, 0.0, 0.0]
    with torch.no_grad():
        for rows in (40, 33, 64, 40):
            ids = models.ids(rows)
            want = reference(ids).logits
            for i, model in enumerate((own, wrapped, one)):
                errors[i] += _error(model(ids).logits + 0, want)
    report = epilogue.torch.why(fused)
    assert report.fused_calls == 4 * models.LAYERS and not any(row.own_calls for row in report.rows), str(report)
    if way != "hsdp":
        assert all(row.part == f"rank {rank % 2} of 2" for row in report.rows), str(report)
        split = [row for row in report.linears if "self_attn" in row.name]
        assert all(row.part == f"rank {rank % 2} of 2" and row.own_calls == _learning_calls(way, before) for row in split), str(report)
    assert report.linear_calls == 4 * (4 * models.LAYERS + 1) - 4 * models.LAYERS * _learning_calls(way, before), str(report)
    return errors


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_passes_are_as_exact_as_one_process(way, dtype, before):
    for own, fused, one in ranks.run(_passes, way, dtype, before, world=4):
        assert 0 < fused <= 1.05 * max(own, one), (own, fused, one)


def _steps(rank, way):
    torch.manual_seed(0)
    plain = models.build("llama")
    fused, wrapped, part, parts = _fused(plain, way, False, training="always", linears="always")
    batches = torch.randint(2, 96, (STEPS, 4, 1, 7))
    parameters = list(fused.parameters())
    losses = []
    for model, of in ((wrapped, batches.chunk(parts, 1)[part]), (plain, batches)):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=False)
        found = []
        for batch in of.flatten(1, 2):
            loss = model(batch, labels=batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.detach() + 0)
        losses.append(torch.stack(found))
        dist.all_reduce(losses[-1])
    # AdamW divides by the root of a mean square: early steps magnify what the order of sums changes.
    torch.testing.assert_close(*losses, rtol=2e-4, atol=0)
    off, size = 0.0, 0.0
    for p, q in zip(parameters, plain.parameters()):
        now = p.full_tensor() if isinstance(p, DTensor) else p
        if hasattr(p, "_st_info"):  # DDP holds parts as plain tensors
            info = p._st_info
            now = DTensor.from_local(p.detach(), info.mesh, info.placements, run_check=False).full_tensor()
        off, size = off + float((now.detach() - q.detach()).square().sum()), size + float(q.detach().square().sum())
    assert off**0.5 < 1e-4 * size**0.5, (off, size)
    report = epilogue.torch.why(fused)
    assert report.fused_calls == STEPS * models.LAYERS, str(report)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "alone"])
def test_twenty_steps(way):
    ranks.run(_steps, way, world=4)


def _differing(rank):
    """Within FSDP2 too, ranks of one mesh of tensor parallelism have to fuse the same."""
    model = models.build("llama")
    wrapped, _, _ = _wrapped(model, "fsdp2")
    if rank == 3:
        model.model.layers[1].mlp.up_proj.register_forward_hook(lambda *_: None)
    try:
        epilogue.torch.fuse(model)
    except RuntimeError as error:
        return str(error)
    return ""


def test_ranks_that_differ_say_so():
    messages = ranks.run(_differing, world=4)
    assert messages[:2] == ["", ""] and all("expected all ranks to fuse the same" in m for m in messages[2:]), messages


class _Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(64, 96), nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def _spread(module, mesh, columns, rows):
    """Linear layers' weights become DTensors on all of the mesh: the same along "data", split along "tensor"."""
    for names, dim in ((columns, 0), (rows, 1)):
        for name in names:
            linear = getattr(module, name)
            linear.weight = nn.Parameter(distribute_tensor(linear.weight.data, mesh, [Replicate(), Shard(dim)]))
            linear.bias = nn.Parameter(distribute_tensor(linear.bias.data, mesh, [Replicate(), Replicate() if dim else Shard(0)]))
    return module


def _whole(rank):
    """Weights that are DTensors on both dimensions."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plain = _Mlp()
    split = _spread(copy.deepcopy(plain), mesh, ("gate", "up"), ("down",))
    epilogue.torch.fuse(split)
    for placement in (Replicate(), Shard(0)):
        x = torch.randn(4, 5, 64)
        given = distribute_tensor(x, mesh, [placement, Replicate()])
        with torch.no_grad():
            y = split(given)
            assert y.placements[0] == placement and y.shape == (4, 5, 64)
            torch.testing.assert_close(y.full_tensor(), plain(x), rtol=1e-5, atol=1e-5)
    report = epilogue.torch.why(split)
    assert report.fused_calls == 2 and report.rows[0].part == f"rank {rank % 2} of 2", str(report)
    with torch.no_grad():
        split(distribute_tensor(x, mesh, [Shard(2), Replicate()]).redistribute(placements=[Replicate(), Replicate()]))
    split(given)
    assert "gradients" in str(epilogue.torch.why(split))
    other = copy.deepcopy(plain)
    for name, dim in (("gate", 0), ("up", 0), ("down", 1)):
        for p in ("weight", "bias"):
            dims = [Replicate()] * 2 if p == "bias" else [Shard(dim)] * 2
            setattr(getattr(other, name), p, nn.Parameter(distribute_tensor(getattr(getattr(other, name), p).data, mesh, dims)))
    epilogue.torch.fuse(other)
    with torch.no_grad():
        torch.testing.assert_close(other(distribute_tensor(x, mesh, [Replicate()] * 2)).full_tensor(), plain(x), rtol=1e-4, atol=1e-4)
    assert "on a mesh of 2" in str(epilogue.torch.why(other)), str(epilogue.torch.why(other))


def test_weights_on_both_dimensions():
    ranks.run(_whole, world=4)


class _Pair(nn.Module):
    """Linear layers alone."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 64)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def _gradients(rank, kind):
    """Gradients of weights on both dimensions, with rows that all have, and rows that are split along "data"."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    plain = kind()
    columns, rows = (("gate", "up"), ("down",)) if kind is _Mlp else (("first",), ("second",))
    split = _spread(copy.deepcopy(plain), mesh, columns, rows)
    epilogue.torch.fuse(split, training="always", linears="always")
    placements = (Replicate(), Shard(0), Shard(1))
    for placement in placements:
        x = torch.randn(4, 6, 64, requires_grad=True)
        given = distribute_tensor(x.detach(), mesh, [placement, Replicate()]).requires_grad_()
        weights = torch.randn(4, 6, 64)
        y = split(given)
        assert y.placements[0] == placement
        y.redistribute(placements=[placement, Replicate()]).mul(distribute_tensor(weights, mesh, [placement, Replicate()])).sum().backward()
        plain(x).mul(weights).sum().backward()
        torch.testing.assert_close(given.grad.full_tensor(), x.grad, rtol=1e-4, atol=1e-5)
        for (name, p), q in zip(split.named_parameters(), plain.parameters()):
            torch.testing.assert_close(p.grad.full_tensor(), q.grad, rtol=1e-4, atol=1e-4, msg=lambda m, n=name: f"{n}: {m}")
            assert p.grad.placements == p.placements or all(g == w or g.is_partial() for g, w in zip(p.grad.placements, p.placements))
            p.grad, q.grad = None, None
    report = epilogue.torch.why(split)
    calls = report.fused_calls if kind is _Mlp else report.linear_calls
    assert calls == len(placements) * (1 if kind is _Mlp else 2), str(report)


@pytest.mark.parametrize("kind", [_Mlp, _Pair])
def test_gradients_of_weights_on_both_dimensions(kind):
    ranks.run(_gradients, kind, world=4)


EXPERTS = {  # of transformers' own plans; experts that are split over ranks run within FSDP2's hooks
    "columns": {"tp_size": 2, "tp_plan": "auto", "fsdp_size": 2},
    "ranks": {"tp_size": 2, "tp_plan": "auto", "fsdp_size": 2, "ep_size": 2},
    "all ranks": {"tp_size": 2, "tp_plan": "auto", "fsdp_size": 2, "ep_size": 4},
    "ranks alone": {"tp_size": 1, "fsdp_size": 4, "ep_size": 2},
}
ROWS = 40  # fewer f32 rows are packed in vain within FSDP2


def _mixtral(folder):
    sizes = {"hidden_size": 256, "intermediate_size": 512}
    model = models.varied(transformers.MixtralForCausalLM(transformers.MixtralConfig(**{**models.SIZES, **sizes}, num_local_experts=4)))
    model.save_pretrained(folder)


def _loaded(folder, way, dtype):
    load = transformers.AutoModelForCausalLM.from_pretrained
    config = transformers.distributed.DistributedConfig(**EXPERTS[way])
    own, fused = (load(folder, dtype=dtype, distributed_config=config) for _ in range(2))
    reference = load(folder, dtype=dtype)
    reference.set_experts_implementation("eager")
    return own, fused, reference


def _experts(rank, folder, way, dtype):
    own, fused, reference = _loaded(folder, way, dtype)
    reference = reference.double()
    epilogue.torch.fuse(fused, linears="always")
    errors = [0.0, 0.0]
    with torch.no_grad():
        for _ in range(4):
            ids = models.ids(ROWS)
            want = reference(ids).logits
            for i, model in enumerate((own, fused)):
                # A token between two experts may go to the other one: not the error of all rows, but the middle one of each row.
                errors[i] += float(((model(ids).logits - want).norm(dim=-1) / want.norm(dim=-1)).median())
    report = epilogue.torch.why(fused)
    layers = len(reference.model.layers)
    few = sum(row.own_calls for row in report.rows)  # calls of too few rows to pack for
    assert report.fused_calls + few == 4 * layers and len(report.fused) == layers, str(report)
    assert few == 0 or way == "all ranks", str(report)
    heads = 4 if way == "ranks alone" else 0  # FSDP2 wraps the head by itself: fused where no plan split it
    assert report.linear_calls == 4 * 4 * layers + heads, str(report)
    return errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", EXPERTS)
def test_experts_are_as_exact_as_their_plan(tmp_path, way, dtype):
    _mixtral(tmp_path)
    for own, fused in ranks.run(_experts, str(tmp_path), way, dtype, world=4):
        assert 0 < fused <= 1.05 * own, (own, fused)


def _gradients_of_experts(rank, folder, way):
    """Gradients of all parameters, beside one process."""
    _, fused, reference = _loaded(folder, way, torch.float32)
    epilogue.torch.fuse(fused, training="always", linears="always")
    ids = models.ids(ROWS)  # the same on all ranks, so that means over ranks are those of one
    for model in (fused, reference):
        model(ids, labels=ids).loss.backward()
    for (name, p), q in zip(fused.named_parameters(), reference.parameters()):
        grad = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
        assert _error(grad, q.grad.double()) < 1e-4, name
    report = epilogue.torch.why(fused)
    assert report.fused_calls == len(reference.model.layers), str(report)


@pytest.mark.parametrize("way", EXPERTS)
def test_gradients_of_experts(tmp_path, way):
    _mixtral(tmp_path)
    ranks.run(_gradients_of_experts, str(tmp_path), way, world=4)
