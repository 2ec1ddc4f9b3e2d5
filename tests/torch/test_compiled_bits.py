# SPDX-License-Identifier: Apache-2.0
"""torch.compile of models that fuse() gave fewer bits: graphs compute with them, and give what the fused modules give."""

import copy

import models
import pytest
import torch
import transformers
from torch._dynamo.utils import counters

import epilogue.torch
from epilogue.torch.timing import relative

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = [
    {"weights": "int8"}, {"weights": "int8", "activations": "int8"}, {"weights": "int4"},
    {"weights": "int4", "group": 32, "zero_points": True}, {"weights": "int4", "group": 32, "activations": "int8"},
]  # fmt: skip


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()


@pytest.fixture
def without_inductor(monkeypatch):
    """Runs the graphs as they are."""
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **_: graph.forward)


def count(what):
    return counters["epilogue"][what]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_an_mlp_gives_the_bits_of_the_fused_module(name, options, rows, dtype, without_inductor):
    mlp = models.mlp_of(models.build(name), name)[0].to(dtype).requires_grad_(False)
    x = torch.randn(rows, 48).to(dtype)
    plain = mlp(x)
    epilogue.torch.fuse(mlp, **options)
    want = mlp(x)
    assert epilogue.torch.why(mlp).fused_calls == 1
    got = torch.compile(mlp, backend="epilogue", fullgraph=True)(x)
    assert torch.equal(got, want) and relative(got, plain) > 1e-4
    assert (count("mlps"), count("fewer bits"), count("linears")) == (1, 2 if name in ("gpt2", "phi3") else 3, 0)


class Projections(torch.nn.Module):
    """Two layers of one input, one of what they give, and Conv1D."""

    def __init__(self, dtype):
        super().__init__()
        self.q, self.k = torch.nn.Linear(264, 264, dtype=dtype), torch.nn.Linear(264, 256, bias=False, dtype=dtype)
        self.out = transformers.pytorch_utils.Conv1D(264, 264).to(dtype)
        self.small = torch.nn.Linear(264, 8, dtype=dtype)

    def forward(self, x):
        q = self.q(x)
        return torch.cat((self.out(torch.cos(q)), self.k(x), self.small(x)), -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_linear_layers_give_the_bits_of_the_fused_module(options, dtype, without_inductor):
    module = Projections(dtype).eval().requires_grad_(False)
    plain = copy.deepcopy(module)
    x = torch.randn(40, 264).to(dtype)
    want = epilogue.torch.fuse(module, **options)(x)
    compiled = torch.compile(module, backend="epilogue", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(x), want)
    assert relative(want, plain(x)) > 1e-4
    assert count("fewer bits") == 3 and count("linears") >= 3  # the small one stays as it is
    assert torch.equal(want[:, -8:], plain.small(x))
    for p in module.parameters():
        p.mul_(1.5)  # not stale
    assert torch.equal(compiled(x), module(x))


def test_layers_of_one_input_are_one_call(without_inductor):
    module = epilogue.torch.fuse(Projections(torch.float32).eval().requires_grad_(False), weights="int8")
    compiled = torch.compile(module, backend="epilogue")
    x = torch.randn(3, 264)
    compiled(x)
    with torch.profiler.profile() as profile:
        compiled(x)
    assert {e.key: e.count for e in profile.key_averages()}["epilogue::linears"] == 2


@pytest.mark.parametrize("name", ["llama", "gpt2", "bert", "gemma", "phi3"])
def test_whole_models(name, without_inductor):
    model = models.build(name).requires_grad_(False)
    ids = models.ids(9)
    plain = model(input_ids=ids)[0]
    epilogue.torch.fuse(model, weights="int4", linears="always")
    want = model(input_ids=ids)[0]
    got = torch.compile(copy.deepcopy(model), backend="epilogue")(input_ids=ids)[0]
    # Of a fused layer the norm is in the call; the rows of 4-bit weights become integers of 16 bits or not.
    assert relative(got, want) < min(2e-3, relative(got, plain) / 4)
    assert count("mlps") == models.LAYERS and count("fewer bits") > 4 * models.LAYERS


def test_by_inductor():
    mlp = models.mlp_of(models.build("llama"), "llama")[0].requires_grad_(False)
    x = torch.randn(5, 48)
    want = epilogue.torch.fuse(mlp, weights="int4")(x)
    assert torch.equal(torch.compile(mlp, backend="epilogue", fullgraph=True)(x), want)
    # Without the backend the layers are ops of their own, with the same weights.
    assert relative(torch.compile(mlp, fullgraph=True)(x), want) < 1e-3
    for strict in (False, True):  # what is exported needs none of this library's ops
        graph = torch.export.export(mlp, (x,), strict=strict).graph
        assert not any("epilogue" in str(node.target) for node in graph.nodes)
    with torch._inductor.config.patch(freezing=True):
        torch._dynamo.reset()
        assert torch.equal(torch.compile(mlp, backend="epilogue", fullgraph=True)(x), want)


def test_other_bits_make_another_graph(without_inductor):
    mlp = models.mlp_of(models.build("llama"), "llama")[0].requires_grad_(False)
    x = torch.randn(5, 48)
    plain = mlp(x)
    compiled = torch.compile(mlp, backend="epilogue")
    for options in ({"weights": "int4"}, {"weights": "int8"}, {"weights": "int4", "group": 32}):
        epilogue.torch.fuse(mlp, **options)
        assert torch.equal(compiled(x), mlp(x))
    epilogue.torch.unfuse(mlp)
    torch.testing.assert_close(compiled(x), plain)
    assert "Fused" not in str([type(m).__name__ for m in mlp.modules()])


def test_where_fewer_bits_do_not_serve(without_inductor):
    """Gradients and autocast: the modules' own weights."""
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    plain = copy.deepcopy(mlp)
    epilogue.torch.fuse(mlp, weights="int4")
    compiled = torch.compile(mlp, backend="epilogue")
    x = torch.randn(5, 48, requires_grad=True)
    torch.testing.assert_close(compiled(x), plain(x))
    for a, b in zip(*(torch.autograd.grad(m(x).square().sum(), [x, *m.parameters()]) for m in (compiled, plain))):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert count("fewer bits") == 0
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(compiled(x), plain(x), rtol=2e-2, atol=2e-2)
        assert torch.equal(compiled(x), mlp(x))
    assert count("fewer bits") == 3


def test_frozen_layers_of_a_graph_with_gradients(without_inductor):
    """The layers before what trains need no gradients: they keep their bits."""
    module = Projections(torch.float32).eval().requires_grad_(False)
    head = torch.nn.Linear(528, 4)
    x = torch.randn(3, 264)
    epilogue.torch.fuse(module, weights="int8")
    both = torch.nn.Sequential(module, head)
    with torch.no_grad():
        want = both(x)
    got = torch.compile(both, backend="epilogue")(x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    got.sum().backward()
    assert head.weight.grad is not None
