# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="epilogue") of models with experts that fuse() did not change."""

import copy

import pytest
import torch
import zoo
from test_mixtures import MODELS, build, experts_of, layer_of, routed, run
from torch import nn
from torch._dynamo.utils import counters

import epilogue.torch
from epilogue.torch.timing import relative

pytestmark = pytest.mark.usefixtures("one_thread")


def compiled(model, **options):
    """The backend's graph as it is: Inductor takes a minute for it."""
    torch._dynamo.reset()
    counters.clear()
    return torch.compile(model, backend="epilogue", options=options or None)


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **_: graph.forward)


@pytest.mark.parametrize("way", ["grouped_mm", "batched_mm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_compiled_experts_become_one_op(name, dtype, way, uncompiled):
    layer = layer_of(name, dtype)
    layer.config._experts_implementation = way
    exact = layer_of(name, torch.float64)
    exact.config._experts_implementation = "eager"
    exact.load_state_dict(layer.state_dict())
    fast = compiled(layer)
    for rows in (6, 9, 40):  # a graph of these rows, and one of any
        x, index, weights = routed(rows, dtype)
        own, got = run(layer, x, index, weights), run(fast, x, index, weights)
        want = run(exact, x.double(), index, weights.double())
        assert got.dtype == dtype and relative(got, want) <= max(1.05 * relative(own, want), 5e-7)
        fused = run(epilogue.torch.fuse(copy.deepcopy(layer)), x, index, weights)
        assert torch.equal(got, fused)  # the same op, with the same numbers
    assert counters["epilogue"]["experts"] == counters["epilogue"]["graphs"] == 2


@pytest.mark.parametrize("name", sorted(MODELS))
def test_compiled_models_that_were_not_fused(name, uncompiled):
    _, _, layers, _ = MODELS[name]
    model = build(name)
    given = torch.randint(3, zoo.V, (1, 9))
    with torch.no_grad():
        want = model(given).logits
        fast = compiled(model)
        assert relative(fast(given).logits, want) < 1e-5
        assert counters["epilogue"]["experts"] == layers
        for p in experts_of(model)[0].parameters():
            p.mul_(1.5)  # not stale
        assert relative(fast(given).logits, model(given).logits) < 1e-5


class Model(nn.Module):
    """A table of words, a router, and experts."""

    def __init__(self, layer):
        super().__init__()
        self.table = nn.Parameter(torch.randn(50, zoo.H).to(layer.down_proj.dtype), False)
        self.layer = layer

    def forward(self, ids):
        x = self.table[ids]
        weights, index = torch.topk(torch.softmax(x[:, :4].float(), -1), 2, -1)
        return self.layer(x, index, weights)


@pytest.mark.parametrize("way", ["grouped_mm", "batched_mm"])
@pytest.mark.parametrize("frozen", [False, True])
def test_compiled_experts_of_any_number_of_rows(frozen, way, uncompiled):
    from torch._inductor import config

    model = Model(layer_of("gpt_oss", torch.bfloat16))
    model.layer.limit = 0.5  # rows are clamped
    model.layer.config._experts_implementation = way
    torch._dynamo.reset()
    counters.clear()
    with config.patch(freezing=frozen):
        fast = torch.compile(model, backend="epilogue", dynamic=True)
        for rows, limit, graphs in ((6, 0.5, 1), (20, 0.5, 1), (6, 0.25, 2)):
            model.layer.limit = limit
            ids = torch.randint(50, (rows,))
            got, want = run(fast, ids), run(epilogue.torch.fuse(copy.deepcopy(model)), ids)
            assert counters["epilogue"]["experts"] == counters["epilogue"]["graphs"] == graphs, counters["epilogue"]
            assert torch.equal(got, want)


def test_other_activations_compiled(uncompiled):
    for activation in ("gelu", "gelu_pytorch_tanh", "relu", "quick_gelu", "relu2"):
        layer = layer_of("mixtral", hidden_act=activation)
        layer.config._experts_implementation = "grouped_mm"
        given = routed(11)
        torch.testing.assert_close(run(compiled(layer), *given), run(layer, *given), rtol=1e-4, atol=1e-5)
        assert counters["epilogue"]["experts"] == 1, activation


def _loop(layer):
    layer.config._experts_implementation = "eager"


def _leaky(layer):
    layer.act_fn = nn.LeakyReLU()


def _parallel(layer):
    layer._is_expert_parallel = True  # rows without an expert are filled


def _normed(layer):
    layer.has_post_expert_norm, layer.post_expert_norm = True, nn.Tanh()


def _computed(layer):
    nn.utils.parametrize.register_parametrization(layer, "down_proj", nn.Tanh())


LEFT = {
    _loop: "experts: a loop over them (set_experts_implementation('grouped_mm'), or fuse(), makes them one op)",
    _leaky: "experts: the engine lacks what stands between their products",
    _parallel: "experts: not as transformers' grouped_mm or batched_mm",
    _normed: "experts: not as transformers' grouped_mm or batched_mm",
    _computed: "experts: their weights are computed in the graph",
}


@pytest.mark.parametrize("way", ["grouped_mm", "batched_mm"])
@pytest.mark.parametrize("change", LEFT, ids=lambda f: f.__name__[1:])
def test_compiled_experts_that_stay_inductors(change, way, uncompiled):
    layer = layer_of()
    layer.config._experts_implementation = way
    change(layer)
    given = routed(7)
    want = run(layer, *given)
    torch.testing.assert_close(run(compiled(layer), *given), want, rtol=1e-4, atol=1e-5)
    (reason,) = [key for key in counters["epilogue"] if key.startswith("experts")]  # not "experts" itself
    assert reason.startswith(LEFT[change]) and counters["epilogue"][reason] == 1, counters["epilogue"]


def test_compiled_experts_with_gradients_or_not_asked_for(uncompiled):
    layer = layer_of()
    layer.config._experts_implementation = "grouped_mm"
    given = routed(7)
    compiled(layer)(*given).sum().backward()
    assert not counters["epilogue"]["experts"]
    assert counters["epilogue"]["experts: gradients are wanted: fuse(model, training=True)"] == 1
    run(compiled(layer, experts=False), *given)
    assert set(counters["epilogue"]) == {"mlps", "graphs"}
    with pytest.raises(Exception, match="experts is False or True"):
        run(compiled(layer, experts="often"), *given)


def test_compiled_experts_whose_parts_others_read(uncompiled):
    """What others read stays, with what is written to it; a write between the steps leaves all."""
    layer = layer_of()
    up_bias, down_bias = (torch.randn(4, p.shape[1]) for p in (layer.gate_up_proj, layer.down_proj))
    biases = nn.ParameterList([up_bias, down_bias]).requires_grad_(False)

    def experts(x, index, weights, twist):
        ids, order = torch.sort(index.reshape(-1))
        ends = torch.cumsum(torch.histc(ids.float(), bins=4, min=0, max=3), dim=0, dtype=torch.int32)
        grouped = lambda rows, w: torch.ops.transformers.grouped_mm_fallback(rows, w.transpose(-2, -1), ends)  # noqa: E731
        both = grouped(x[order // 2], layer.gate_up_proj)
        both.add_(biases[0][ids])
        gate, up = both.chunk(2, -1)
        hidden = torch.nn.functional.silu(gate) * up
        if twist == "write":
            x.add_(1)
        out = grouped(hidden, layer.down_proj)
        out = out + biases[1][ids]
        rows = out * weights.reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        off = int(twist == "off by one")
        back[order] = torch.arange(off, order.size(0) + off)
        rows_again = rows[back.remainder(len(ids))] if twist == "off by one" else rows[back]
        out = rows_again.view(x.shape[0], 2, x.shape[1])
        return (out.sum(dim=1), *{"hidden": (hidden,), "rows": (rows,), "order": (back,)}.get(twist, ()))

    for twist, made in (("", 1), ("hidden", 1), ("rows", 1), ("order", 0), ("write", 0), ("off by one", 0)):
        x, index, weights = routed(7)
        want = run(experts, x.clone(), index, weights, twist)
        got = run(compiled(experts), x.clone(), index, weights, twist)
        for a, b in zip(got, want):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert counters["epilogue"]["experts"] == made, twist
