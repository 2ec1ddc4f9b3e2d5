# SPDX-License-Identifier: Apache-2.0
"""The ops themselves."""

import pytest
import torch
import torch.nn.functional as F

from epilogue.torch import activations, functional


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

    handle = Handle([torch.randn(40, 24), torch.randn(16, 40)], [None, None], "relu")
    torch.library.opcheck(torch.ops.epilogue.fused_mlp, (torch.randn(5, 24), handle.number, 0),
                          test_utils=("test_schema", "test_faketensor"))  # fmt: skip


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
    with pytest.raises(ValueError, match="gelu, gelu_tanh, relu, silu, not 'tanh'"):
        functional.gated_mlp(x, g, u, d, activation="tanh")
    with pytest.raises(RuntimeError, match="no fused MLP of number 12345"):
        torch.ops.epilogue.fused_mlp(x, 12345, 0)
    assert functional.gated_mlp(*(t.to("meta") for t in (x, g, u, d))).shape == (5, 16)
    with pytest.raises(NotImplementedError, match="meta|Meta"):
        torch.ops.epilogue.prepare([g.to("meta")], [None], "relu", None, False, [None] * 4, ["none"] * 4, [0.0, 0.0], False)
