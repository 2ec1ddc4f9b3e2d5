# SPDX-License-Identifier: Apache-2.0
"""Experts of a mixture as one op, beside transformers' layers and float64."""

import types

import pytest
import torch

from epilogue.torch import functional
from epilogue.torch.mixture import GATED, PLAIN, Experts
from epilogue.torch.timing import relative

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def config(**more):
    values = dict(
        num_local_experts=6, num_experts=6, n_routed_experts=6, num_experts_per_tok=2, hidden_size=40, intermediate_size=24,
        moe_intermediate_size=24, hidden_act="silu", swiglu_alpha=1.702, swiglu_limit=7.0, _experts_implementation="eager",
    )  # fmt: skip
    return types.SimpleNamespace(**{**values, **more})


def layer_of(name, dtype):
    """The experts of a model of transformers, with random weights."""
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Experts
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts
    from transformers.models.olmoe.modeling_olmoe import OlmoeExperts
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    classes = {c.__name__: c for c in (DeepseekV3Experts, GptOssExperts, MixtralExperts, OlmoeExperts, Qwen3MoeExperts)}
    layer = classes[name](config()).eval().requires_grad_(False)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=p.shape[-1] ** -0.5)
    return layer.to(dtype)


def experts_of(layer):
    if hasattr(layer, "limit"):
        return Experts(layer.gate_up_proj, layer.down_proj, up_bias=layer.gate_up_proj_bias, down_bias=layer.down_proj_bias,
                       activation="clamped_swiglu", interleaved=True, transposed=True, alpha=layer.alpha, limit=layer.limit)  # fmt: skip
    return Experts(layer.gate_up_proj, layer.down_proj)


def routed(rows, experts, choices, dtype, columns=40):
    x = torch.randn(rows, columns).to(dtype)
    weights, index = torch.topk(torch.rand(rows, experts), choices, -1)
    return x, index, weights.to(dtype)


NAMES = ["MixtralExperts", "Qwen3MoeExperts", "OlmoeExperts", "DeepseekV3Experts", "GptOssExperts"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_layers_of_transformers(name, dtype):
    layer, exact = layer_of(name, dtype), layer_of(name, torch.float64)
    exact.load_state_dict(layer.state_dict())
    experts = experts_of(layer)
    for rows in (1, 3, 200):
        x, index, weights = routed(rows, 6, 2, dtype)
        want = exact(x.double(), index, weights.double())
        got, own = experts(x, index, weights), layer(x, index, weights)
        assert got.dtype == dtype and got.shape == own.shape
        floor = 2e-6 if dtype == torch.float32 else 0  # small sums: order is luck
        assert relative(got, want) <= max(1.05 * relative(own, want), floor)
        assert torch.equal(experts(x, index.int(), weights), got)
    assert experts(x[:0], index[:0], weights[:0]).shape == (0, 40)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("activation", sorted(GATED))
def test_a_list_of_layers(activation, gated):
    if not gated and activation not in PLAIN:
        with pytest.raises(ValueError, match="expected an activation of"):
            Experts([torch.randn(8, 4)], [torch.randn(4, 8)], activation=activation, gated=False)
        return
    gates, ups, downs = ([torch.randn(s) * 0.3 for _ in range(3)] for s in ((24, 40), (24, 40), (16, 24)))
    biases = [[torch.randn(n) for _ in range(3)] for n in (24, 24, 16)]

    def act(h):
        names = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu, "relu": torch.relu,
                 "gelu_tanh": lambda v: torch.nn.functional.gelu(v, approximate="tanh"),
                 "quick_gelu": lambda v: v * torch.sigmoid(1.702 * v), "squared_relu": lambda v: torch.relu(v).square()}  # fmt: skip
        return names[activation](h)

    x, index, weights = routed(9, 3, 2, torch.float32)
    want = torch.zeros(9, 16)
    for t in range(9):
        for j in range(2):
            e = index[t, j]
            up = ups[e] @ x[t] + biases[1][e]
            gate = gates[e] @ x[t] + biases[0][e]
            if activation == "clamped_swiglu":
                g, u = gate.clamp(max=7), up.clamp(-7, 7)
                h = g * torch.sigmoid(1.702 * g) * (u + 1)
            else:
                h = act(gate) * up if gated else act(up)
            want[t] += weights[t, j] * (downs[e] @ h + biases[2][e])
    more = {"gate": gates, "gate_bias": biases[0]} if gated else {}
    experts = Experts(ups, downs, up_bias=biases[1], down_bias=biases[2], activation=activation, gated=gated, **more)
    torch.testing.assert_close(experts(x, index, weights), want, rtol=1e-4, atol=1e-4)


def test_writes_and_moves_are_seen():
    layer = layer_of("MixtralExperts", torch.float32)
    experts = experts_of(layer)
    x, index, weights = routed(5, 6, 2, torch.float32)
    experts(x, index, weights)
    for write in (lambda: layer.down_proj.mul_(-2), lambda: layer.gate_up_proj.data.copy_(torch.randn_like(layer.gate_up_proj))):
        write()
        torch.testing.assert_close(experts(x, index, weights), layer(x, index, weights), rtol=1e-4, atol=1e-4)
    layer.down_proj = torch.nn.Parameter(torch.randn_like(layer.down_proj), requires_grad=False)
    assert experts(x, index, weights, list(layer.parameters())) is None


def test_packed_bytes_and_release():
    layer = layer_of("MixtralExperts", torch.float32)
    before = torch.ops.epilogue.packed_bytes()
    experts = experts_of(layer)
    x, index, weights = routed(64, 6, 2, torch.float32)
    experts(x, index, weights)
    assert torch.ops.epilogue.packed_bytes() - before == experts.packed_bytes()
    number = experts.number
    del experts
    assert torch.ops.epilogue.packed_bytes() == before
    with pytest.raises(RuntimeError, match=r"\[epilogue::experts\] expected the number of prepared experts"):
        torch.ops.epilogue.experts_columns(number)


def test_no_expert_and_errors():
    layer = layer_of("MixtralExperts", torch.bfloat16)
    experts = experts_of(layer)
    x, index, weights = routed(4, 6, 2, torch.bfloat16)
    index[1] = 6  # none
    index[2, 1] = 6
    got = experts(x, index, weights.float())
    assert not got[1].any() and got[2].any()
    torch.testing.assert_close(got, layer(x, index, weights), rtol=2e-2, atol=2e-2)
    for wrong in (-1, 7):
        with pytest.raises(RuntimeError, match=f"expected indices of experts from 0 to 5, or 6 for none, got {wrong}"):
            experts(x, torch.full_like(index, wrong), weights)
    for args, message in (
        ((x[:, :39], index, weights), r"expected x \[..., 40\] of bf16, got BFloat16\[4, 39\]"),
        ((x.float(), index, weights), r"expected x \[..., 40\] of bf16, got Float\[4, 40\]"),
        ((x, index[:3], weights), r"expected an index \[4, choices\] of i64, got i64\[3, 2\]"),
        ((x, index.short(), weights), r"expected an index \[tokens, choices\] of Long or Int on the CPU, got Short\[4, 2\]"),
        ((x, index, weights[:, :1]), r"expected weights \[4, 2\] of f32 or x's dtype, got bf16\[4, 1\]"),
    ):
        with pytest.raises(RuntimeError, match=message):
            experts(*args)
    with pytest.raises(RuntimeError, match=r"expected down \[6, out, in\]"):
        Experts(layer.gate_up_proj, layer.down_proj[:5])
    with pytest.raises(RuntimeError, match="expected as many tensors of down as of up"):
        Experts([torch.randn(4, 4)] * 2, [torch.randn(4, 2)])


@pytest.mark.parametrize("cache", [False, True])
def test_functional(cache):
    layer = layer_of("MixtralExperts", torch.float32)
    x, index, weights = routed(7, 6, 2, torch.float32)
    for _ in range(2):
        got = functional.experts(x, index, weights, layer.gate_up_proj, layer.down_proj, cache=cache)
        torch.testing.assert_close(got, layer(x, index, weights), rtol=1e-4, atol=1e-4)
        layer.down_proj.mul_(-1.5)
    with pytest.raises(RuntimeError, match="no backward pass"):
        functional.experts(x.requires_grad_(), index, weights, layer.gate_up_proj, layer.down_proj)


def test_autocast_computes_in_another_dtype():
    layer = layer_of("MixtralExperts", torch.float32)
    experts = Experts(layer.gate_up_proj, layer.down_proj, dtype=torch.bfloat16)
    x, index, weights = routed(7, 6, 2, torch.float32)
    low = layer_of("MixtralExperts", torch.bfloat16)
    for scale in (1, -2):
        layer.down_proj.mul_(scale)
        low.load_state_dict(layer.state_dict())
        torch.testing.assert_close(experts(x.bfloat16(), index, weights), low(x.bfloat16(), index, weights.bfloat16()),
                                   rtol=3e-2, atol=3e-2)  # fmt: skip


def test_compiled_graphs_keep_the_op():
    layer = layer_of("MixtralExperts", torch.float32)
    experts = experts_of(layer)
    x, index, weights = routed(7, 6, 2, torch.float32)
    op, number, parameters = torch.ops.epilogue.experts.default, experts.number, experts.parameters
    with torch.no_grad():
        compiled = torch.compile(lambda *a: op(*a, number, parameters) * 2, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, index, weights), 2 * layer(x, index, weights), rtol=1e-4, atol=1e-4)


def test_writes_to_one_of_many_tensors_are_found_when_it_is_read():
    ups, downs = [torch.randn(24, 16) for _ in range(6)], [torch.randn(16, 12) for _ in range(6)]
    experts = Experts(ups, downs)
    x, weights = torch.randn(3, 16), torch.rand(3, 2)

    def agree(index):
        index = torch.tensor(index)
        fresh = Experts([u.clone() for u in ups], [d.clone() for d in downs])(x, index, weights)
        torch.testing.assert_close(experts(x, index, weights), fresh)

    low, high = [[0, 1], [1, 2], [2, 0]], [[3, 4], [5, 3], [0, 5]]
    agree(low)
    agree(high)
    downs[4].data.mul_(2)  # no version changes
    ups[1].add_(1)
    for index in (low, high, low):
        agree(index)
    ups[5].numpy()[:] *= 3
    agree(low)
    agree(high)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    optimizer.step()
    agree(high)
    ups[2].data = ups[2].data.clone()  # other memory: packed by somebody else
    assert experts(x, torch.tensor(low), weights) is None
    agree([[3, 4], [5, 3], [4, 5]])  # which this call does not read
