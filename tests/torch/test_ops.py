# SPDX-License-Identifier: Apache-2.0
"""The ops themselves."""

import pytest
import torch
import torch.nn.functional as F

from epilogue.torch import _ops, activations, functional
from epilogue.torch.timing import relative


def tensors(gated, bias, dtype=torch.float32, grad=False):
    shapes = [(5, 24), (40, 24), (40, 24), (16, 40)] if gated else [(5, 24), (40, 24), (16, 40)]
    given = [torch.randn(s) * 0.3 for s in shapes]
    given += [torch.randn(s[0]) if bias else None for s in shapes[1:]]
    return [None if t is None else t.to(dtype).requires_grad_(grad) for t in given]


@pytest.mark.parametrize("cache", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_opcheck(gated, bias, cache):
    op = torch.ops.epilogue.gated_mlp if gated else torch.ops.epilogue.mlp
    torch.library.opcheck(op, (*tensors(gated, bias, grad=True), "silu", cache))
    back = torch.ops.epilogue.gated_mlp_backward if gated else torch.ops.epilogue.mlp_backward
    torch.library.opcheck(back, (torch.randn(5, 16), *tensors(gated, bias), "silu"))


def test_opcheck_of_the_compiled_op():
    from epilogue.torch.handle import Handle

    # opcheck calls with copies of tensors: parameters would have other memory.
    handle = Handle([torch.randn(40, 24), torch.randn(16, 40)], [None, None], "relu", parameters=[])
    torch.library.opcheck(torch.ops.epilogue.fused_mlp, (torch.randn(5, 24), handle.number, []),
                          test_utils=("test_schema", "test_faketensor"))  # fmt: skip


def test_opcheck_of_ops_that_name_weights():
    """Those of compiled graphs, in inference: they have no gradients."""
    x, gate, up, down, *biases = tensors(True, True)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    for op, args in (
        (torch.ops.epilogue.kept_mlp, (x, [gate, up, down], biases, "swiglu")),
        (torch.ops.epilogue.kept_mlp, (x, [gate, down], [None, None], "relu")),
        (torch.ops.epilogue.linears, (x, [gate, up], [biases[0], None])),
    ):
        torch.library.opcheck(op, args, test_utils=tests)
    got = torch.ops.epilogue.linears(x, [gate, up], [biases[0], None])
    for y, weight, bias in zip(got, (gate, up), (biases[0], None)):
        torch.testing.assert_close(y, F.linear(x, weight, bias))


def test_opcheck_of_what_keeps_handles():
    ops = torch.ops.epilogue
    weights = [torch.randn(40, 24), torch.randn(16, 40)]
    given = (weights, weights, [None, None], "relu", None, "", [None] * 4, ["none", "product", "none", "none"], [1e-5, 1e-5], False)
    before = ops.handles()
    number = ops.prepare(*given)
    assert (ops.handles(), ops.columns(number)) == (before + 1, 16)
    schema = ("test_schema",)  # there is no tensor to fake
    for op, args in ((ops.prepare, given), (ops.columns, (number,)), (ops.refresh, (number,)), (ops.handles, ()),
                     (ops.packed_bytes, ()), (ops.note_step, ())):  # fmt: skip
        torch.library.opcheck(op, args, test_utils=schema)
    for _ in range(2):
        _ops.releaser("release")(number)
    with pytest.raises(RuntimeError, match=f"no fused MLP of number {number}"):
        ops.columns(number)


@pytest.mark.parametrize("activation", sorted(activations.KNOWN))
@pytest.mark.parametrize("gated", [False, True])
def test_opcheck_of_the_ops_of_training(gated, activation):
    gate, up, d_hidden = torch.randn(3, 5, 40)
    up = up if gated else None
    torch.library.opcheck(torch.ops.epilogue.mlp_gradients, (d_hidden, gate, up, activation))
    leaves = [None if t is None else t.clone().requires_grad_() for t in (gate, up)]
    torch.library.opcheck(torch.ops.epilogue.mlp_hidden, (*leaves, activation))


@pytest.mark.parametrize("added", [None, (7,), (5, 7)], ids=str)
def test_opcheck_of_the_product(added):
    a, b = torch.randn(5, 9, requires_grad=True), torch.randn(7, 9, requires_grad=True).t()
    c = None if added is None else torch.randn(added, requires_grad=True)
    torch.library.opcheck(torch.ops.epilogue.product, (a, b.detach().requires_grad_(), c))
    want = a @ b if c is None else torch.addmm(c, a, b)
    torch.testing.assert_close(torch.ops.epilogue.product(a, b, c), want)


@pytest.mark.parametrize("gated", [False, True])
def test_a_product_and_what_follows_are_the_ops_one_by_one(gated):
    a, w, bias = (torch.randn(size).bfloat16() for size in ((70, 331), (411, 331), (411,)))
    gate = torch.randn(70, 411).bfloat16() if gated else None
    ops = torch.ops.epilogue
    torch.library.opcheck(ops.product_hidden, (a, w.t(), bias, gate, "silu"))
    out, hidden = ops.product_hidden(a, w.t(), bias, gate, "silu")
    assert torch.equal(out, ops.product(a, w.t(), bias))
    first, up = (gate, out) if gated else (out, None)
    torch.testing.assert_close(hidden, ops.mlp_hidden(first, up, "silu"), rtol=2e-2, atol=2e-2)
    dy, last = torch.randn(70, 331).bfloat16(), torch.randn(331, 411).bfloat16() / 18
    torch.library.opcheck(ops.product_gradients, (dy, last, first, up, "silu"))
    got = ops.product_gradients(dy, last, first, up, "silu")
    for g, want in zip(got, ops.mlp_gradients(ops.product(dy, last, None), first, up, "silu")):
        torch.testing.assert_close(g, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("activation", sorted(activations.KNOWN))
@pytest.mark.parametrize("gated", [False, True])
def test_the_middle_of_an_mlp_is_as_exact_as_eager(gated, activation, dtype):
    act = activations.KNOWN[activation]

    def run(hidden_of, to):
        leaves = [t.to(to).clone().requires_grad_() for t in ((gate, up) if gated else (gate,))]
        hidden = hidden_of(*leaves)
        return [hidden, *torch.autograd.grad(hidden, leaves, dy.to(to))]

    def own(gate, up=None):
        return act(gate) if up is None else act(gate) * up

    gate, up, dy = (3 * torch.randn(3, 37, 129)).to(dtype)
    want = run(own, torch.float64)
    got = run(lambda gate, up=None: torch.ops.epilogue.mlp_hidden(gate, up, activation), dtype)
    for g, w, o in zip(got, want, run(own, dtype)):
        assert g.dtype == dtype
        assert relative(g.detach(), w.detach()) <= 1.05 * relative(o.detach(), w.detach()) + 1e-7
    strided = torch.ops.epilogue.mlp_hidden(gate.t(), up.t() if gated else None, activation)
    assert torch.equal(strided, got[0].t())


def test_second_derivatives_of_the_middle():
    gate, up = torch.randn(2, 3, 5, requires_grad=True)

    def penalty(hidden):
        first = torch.autograd.grad(hidden.square().sum(), (gate, up), create_graph=True)
        return torch.autograd.grad(sum(f.square().sum() for f in first), (gate, up))

    for got, want in zip(penalty(torch.ops.epilogue.mlp_hidden(gate, up, "silu")), penalty(F.silu(gate) * up)):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("activation", sorted(activations.GATED))
def test_values_and_gradients(activation):
    act = activations.KNOWN[activation]
    for bias in (False, True):
        x, g, u, d, *b = tensors(True, bias, grad=True)
        want = F.linear(act(F.linear(x, g, b[0])) * F.linear(x, u, b[1]), d, b[2])
        got = functional.gated_mlp(x, g, u, d, gate_bias=b[0], up_bias=b[1], down_bias=b[2], activation=activation)
        torch.testing.assert_close(got, want)
        leaves = [t for t in (x, g, u, d, *b) if t is not None]
        dy = torch.randn_like(want)
        for a, c in zip(torch.autograd.grad(got, leaves, dy), torch.autograd.grad(want, leaves, dy)):
            torch.testing.assert_close(a, c)


def test_the_exact_gelu_is_not_the_other():
    """Their gated results differ by 1e-4 where values are large: this tells them apart."""
    x, g, u, d, *_ = tensors(True, False)
    x = x * 10
    wide = [t.double() for t in (x, g, u, d)]
    gate, up = F.linear(wide[0], wide[1]), F.linear(wide[0], wide[2])
    got = functional.gated_mlp(x, g, u, d, activation="gelu").double()

    def distance(form):
        want = F.linear(F.gelu(gate, approximate=form) * up, wide[3])
        return ((got - want).norm() / want.norm()).item()

    assert distance("none") < 1e-6 < 1e-5 < distance("tanh")


def test_cached_weights_are_not_stale():
    x, one, two, *_ = tensors(False, False)
    for _ in range(3):
        got = functional.mlp(x, one, two, cache=True)
        torch.testing.assert_close(got, F.linear(F.gelu(F.linear(x, one)), two))
        one.mul_(1.5)
    before = torch.ops.epilogue.handles()
    other = one.clone()  # another tensor, and the old one's memory may be its
    del one
    one = other
    torch.testing.assert_close(functional.mlp(x, one, two, cache=True), F.linear(F.gelu(F.linear(x, one)), two))
    assert torch.ops.epilogue.handles() <= before + 1
    functional.clear()
    assert torch.ops.epilogue.handles() < before


def test_what_is_kept_goes_with_the_memory_or_is_the_newest():
    from epilogue.torch.handle import Kept

    kept = Kept(2)
    tensors = [torch.empty(4) for _ in range(3)]
    for i, t in enumerate(tensors):
        kept.put(i, f"of {i}", [t, t.view(2, 2)])
    del t
    assert [kept.get(i) for i in range(3)] == [None, "of 1", "of 2"]
    del tensors[1]
    assert [kept.get(i) for i in range(3)] == [None, None, "of 2"] and len(kept) == 1
    kept.clear()
    assert len(kept) == 0


def test_tensors_of_inference_mode_in_the_memory_of_known_weights():
    """They have no version, and may be written in ways that no sample shows."""
    x, w = torch.randn(3, 32), torch.randn(64, 32)
    run = torch.ops.epilogue.linears.default
    with torch.no_grad():
        run(x, [w], [None], "")
    with torch.inference_mode():
        alias = torch.from_numpy(w.numpy())
        assert alias.is_inference() and alias.data_ptr() == w.data_ptr()
        for row in (5, 7):
            alias.numpy()[row, 3] = 40
            torch.testing.assert_close(run(x, [alias], [None], "")[0], F.linear(x, w))
    with torch.no_grad():
        torch.testing.assert_close(run(x, [w], [None], "")[0], F.linear(x, w))


def test_errors_name_shapes_and_dtypes():
    x, g, u, d, *_ = tensors(True, False)
    cases = [
        (lambda: functional.gated_mlp(x[:, :7], g, u, d), r"x is \[5, 7\], the weights are \[40, 24\]"),
        (lambda: functional.gated_mlp(x, g, u[:3], d), r"\[3, 24\]"),
        (lambda: functional.gated_mlp(x.double(), g, u, d), "torch.float64 and torch.float32"),
        (lambda: functional.gated_mlp(x, g, u, d, down_bias=torch.ones(3)), r"bias of 16 and torch.float32, but got \[3\]"),
        (lambda: functional.gated_mlp(*(t.double() for t in (x, g, u, d))), "Float, BFloat16 or Half, but got Double"),
        (lambda: functional.gated_mlp(x, g, u, d.to("meta")), "same device, but got cpu and meta"),
    ]
    for call, words in cases:
        with pytest.raises(RuntimeError, match=words):
            call()
    with pytest.raises(ValueError, match="gelu, gelu_tanh, quick_gelu, relu, silu, squared_relu, not 'tanh'"):
        functional.gated_mlp(x, g, u, d, activation="tanh")
    with pytest.raises(TypeError, match="argument 'up' must be Tensor, not NoneType"):
        functional.gated_mlp(x, g, None, d)
    with pytest.raises(RuntimeError, match="no fused MLP of number 12345"):
        torch.ops.epilogue.fused_mlp(x, 12345, [g])
    assert functional.gated_mlp(*(t.to("meta") for t in (x, g, u, d))).shape == (5, 16)
    ops = torch.ops.epilogue
    for call, words in [
        (lambda: ops.product(x, g, None), r"cannot be multiplied: Float\[5, 24\] and Float\[40, 24\]"),
        (lambda: ops.product(x, g.t().bfloat16(), None), "dtype|bf16"),
        (lambda: ops.product(x, g.t(), torch.ones(3)), r"\[3\]"),
        (lambda: ops.mlp_hidden(x, g, "silu"), r"\[5, ?24\].*\[40, ?24\]"),
        (lambda: ops.mlp_hidden(x, x.bfloat16(), "silu"), r"up to be like gate: Float\[5, 24\], but got BFloat16\[5, 24\]"),
        (lambda: ops.mlp_hidden(x, x.to("meta"), "silu"), r"on cpu, but got \[5, 24\], torch.float32 on meta"),
        (lambda: ops.mlp_gradients(x, x.to("meta"), x, "silu"), "on meta, but got .* on cpu"),
        (lambda: ops.mlp_hidden(None, x, "silu"), "gate to be a tensor, but got None"),
        (lambda: ops.product(None, x, None), "a to be a tensor, but got None"),
        (lambda: ops.product(x, g.t().to("meta"), None), "torch.float32 on cpu and torch.float32 on meta"),
        (lambda: ops.product(x.to("meta"), g.to("meta"), None), r"cannot be multiplied: \[5, 24\] and \[40, 24\]"),
        (lambda: ops.mlp_backward(x, x, g, d, None, None, "silu"), r"gradient of \[5, 16\], torch.float32 on cpu, but got \[5, 24\]"),
        (lambda: ops.mlp_backward(x.to("meta"), x, g, d, None, None, "silu"), "torch.float32 on meta"),
        (lambda: functional.mlp(x, g, d, bias1=torch.empty(40, device="meta")), "same device, but got cpu and meta"),
        (lambda: ops.mlp_hidden(x.double(), None, "silu"), "Float, BFloat16 or Half, but got Double"),
        (lambda: ops.mlp_hidden(x, None, "tanh"), 'one of silu, relu, gelu, gelu_tanh, quick_gelu, squared_relu, got "tanh"'),
        (lambda: ops.mlp_gradients(x[:2], x, None, "silu"), r"\[2, ?24\]"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call()
    with pytest.raises(NotImplementedError, match="meta|Meta"):
        torch.ops.epilogue.prepare([], [g.to("meta")], [None], "relu", None, "", [None] * 4, ["none"] * 4, [0.0, 0.0], False)


@pytest.mark.parametrize("gated", [False, True])
def test_opcheck_of_experts(gated):
    from epilogue.torch.mixture import Experts

    up, down = torch.randn(3, 24 if gated else 12, 20), torch.randn(3, 16, 12)
    # opcheck calls with copies of tensors: parameters would have other memory.
    experts = Experts(up, down, gated=gated, parameters=[])
    x, index, weights = torch.randn(5, 20), torch.randint(0, 3, (5, 2)), torch.rand(5, 2)
    torch.library.opcheck(torch.ops.epilogue.experts, (x, index, weights, experts.number, []),
                          test_utils=("test_schema", "test_faketensor"))  # fmt: skip
    mixture = (x, index, weights, up, down, None, None, None, None, "silu", gated, False, False, 1.702, 7.0, "")
    torch.library.opcheck(torch.ops.epilogue.mixture, mixture)
    empty: list = []
    given = ([up, down], empty, [up], [down], empty, empty, empty, "swiglu" if gated else "silu", False, False, None,
             1.702, 7.0, "")  # fmt: skip
    schema = ("test_schema",)  # there is no tensor to fake
    ops = torch.ops.epilogue
    torch.library.opcheck(ops.prepare_experts, given, test_utils=schema)
    for op in (ops.experts_columns, ops.experts_bytes, ops.refresh_experts):
        torch.library.opcheck(op, (ops.prepare_experts(*given),), test_utils=schema)
