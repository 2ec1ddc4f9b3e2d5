# SPDX-License-Identifier: Apache-2.0
"""torch.compile of models whose weights are rounded already (load_packed()): graphs compute with these, without the originals."""

import copy
import gc

import models
import pytest
import torch
from test_compiled_bits import OPTIONS, Projections, count, fresh, without_inductor  # noqa: F401  (fixtures)
from torch import nn

import epilogue.torch
from epilogue.torch.packed import PackedWeight
from epilogue.torch.timing import relative

pytestmark = pytest.mark.usefixtures("one_thread")


def loaded(module, other, folder, **options):
    """The results of `module` with fewer bits, and `other` with its packed weights."""
    epilogue.torch.save_packed(epilogue.torch.fuse(module, linears="always", **options), folder / "packed.safetensors")
    return epilogue.torch.load_packed(other, folder / "packed.safetensors")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_an_mlp_gives_the_bits_of_the_module(name, options, rows, dtype, without_inductor, tmp_path):  # noqa: F811
    mlp, other = (models.mlp_of(models.build(name), name)[0].to(dtype).requires_grad_(False) for _ in range(2))
    packed = loaded(mlp, other, tmp_path, **options)
    x = torch.randn(rows, 48).to(dtype)
    want = mlp(x)
    assert torch.equal(packed(x), want)
    compiled = torch.compile(packed, backend="epilogue", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x), want)
    assert (count("mlps"), count("fewer bits"), count("linears")) == (1, 2 if name in ("gpt2", "phi3") else 3, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_linear_layers_give_the_bits_of_the_module(options, dtype, without_inductor, tmp_path):  # noqa: F811
    module, other = (Projections(dtype).eval().requires_grad_(False) for _ in range(2))
    packed = loaded(module, other, tmp_path, **options)
    x = torch.randn(40, 264).to(dtype)
    want = module(x)
    assert torch.equal(torch.compile(packed, backend="epilogue", fullgraph=True)(x), want)
    assert count("fewer bits") >= 3
    # Weights in place of others are seen.
    packed.k.weight = copy.deepcopy(packed.k.weight)
    packed.q.weight = copy.deepcopy(module.q).weight if options["weights"] == "int8" else packed.q.weight
    assert torch.equal(torch.compile(packed, backend="epilogue")(x), packed(x))


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi3"])
def test_whole_models_by_inductor(name, tmp_path):
    model = models.build(name).requires_grad_(False)
    ids = models.ids(9)
    plain = model(input_ids=ids)[0]
    packed = loaded(model, models.build(name).requires_grad_(False), tmp_path, weights="int4", group=32)
    want = packed(input_ids=ids)[0]
    with torch.profiler.profile() as profile:
        got = torch.compile(packed, backend="epilogue")(input_ids=ids)[0]
    # Of a fused layer the norm is in the call; the rows of 4-bit weights become integers of 16 bits or not.
    assert relative(got, want) < min(2e-3, relative(got, plain) / 4)
    assert count("mlps") == models.LAYERS and count("fewer bits") > 4 * models.LAYERS
    assert any(e.key == "epilogue::packed_call" for e in profile.key_averages())
    assert all(type(m.weight) is PackedWeight for m in packed.modules() if isinstance(m, nn.Linear))


def test_layers_without_the_backend_and_with_all_bits_of_rows(tmp_path):
    """Inductor alone; options that fuse() was not given; another dtype."""
    make = lambda: nn.Sequential(nn.Linear(256, 300), nn.ReLU(), nn.Linear(300, 256)).eval().requires_grad_(False)  # noqa: E731
    packed = loaded(make(), make(), tmp_path, weights="int8")
    x = torch.randn(3, 256)
    want = packed(x)
    assert relative(torch.compile(packed)(x), want) < 1e-3
    epilogue.torch.unfuse(packed)
    assert relative(torch.compile(packed)(x), want) < 1e-3
    epilogue.torch.fuse(packed, linears="always")
    assert torch.equal(torch.compile(packed, backend="epilogue")(x), packed(x))
    packed.bfloat16()
    half = x.bfloat16()
    assert torch.equal(torch.compile(packed, backend="epilogue")(half), packed(half))


def test_packed_copies_go_with_the_model(without_inductor, tmp_path):  # noqa: F811
    make = lambda: nn.Sequential(nn.Linear(512, 512)).eval().requires_grad_(False)  # noqa: E731
    handles = torch.ops.epilogue.handles.default
    with torch.no_grad():
        gc.collect()
        before = handles()
        packed = loaded(make(), make(), tmp_path, weights="int8")
        torch.compile(packed, backend="epilogue")(torch.randn(2, 512))
        assert handles() > before
        del packed
        torch._dynamo.reset()
        gc.collect()
        assert handles() == before
