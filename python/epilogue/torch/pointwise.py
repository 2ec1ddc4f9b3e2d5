# SPDX-License-Identifier: Apache-2.0
"""The compiled ops of training, for torch.compile and autograd: fake results and gradients.

    epilogue::mlp_hidden     act(gate) * up, in one pass
    epilogue::mlp_gradients  the same once more, and the gradients of gate and up, in one pass
    epilogue::product        a @ b (+ added), by the engine
    epilogue::product_hidden, product_gradients  a product and what follows from it, as above, in one pass
"""

import typing

import torch

from . import activations

OptionalTensor = typing.Optional[torch.Tensor]


def _require_alike(**given: OptionalTensor) -> None:
    """Also of a meta tensor among others, which dispatches here."""
    there = [(name, t) for name, t in given.items() if t is not None]
    (first, a), *others = there
    for name, b in others:
        if (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
            sides = [f"{list(t.shape)}, {t.dtype} on {t.device}" for t in (a, b)]
            raise RuntimeError(f"expected {name} to be like {first}: {sides[0]}, but got {sides[1]}")


@torch.library.register_fake("epilogue::mlp_hidden")
def _(gate, up, activation):  # type: ignore[no-untyped-def]
    _require_alike(gate=gate, up=up)
    return gate.new_empty(gate.shape)


@torch.library.register_fake("epilogue::mlp_gradients")
def _(d_hidden, gate, up, activation):  # type: ignore[no-untyped-def]
    _require_alike(gate=gate, up=up, d_hidden=d_hidden)
    return gate.new_empty(gate.shape), gate.new_empty(gate.shape), gate.new_empty((0,) if up is None else gate.shape)


def _product_of(a: torch.Tensor, b: torch.Tensor, added: OptionalTensor) -> torch.Tensor:
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied: {list(a.shape)} and {list(b.shape)}")
    for other in (b, added):
        if other is not None and (other.dtype != a.dtype or other.device != a.device):
            raise RuntimeError(f"expected one dtype and one device, but got {a.dtype} on {a.device} and {other.dtype} on {other.device}")
    return a.new_empty((a.shape[0], b.shape[1]))


torch.library.register_fake("epilogue::product", _product_of)


@torch.library.register_fake("epilogue::product_hidden")
def _(a, b, added, gate, activation):  # type: ignore[no-untyped-def]
    out = _product_of(a, b, added)
    _require_alike(out=out, gate=gate)
    return out, torch.empty_like(out)


@torch.library.register_fake("epilogue::product_gradients")
def _(a, b, gate, up, activation):  # type: ignore[no-untyped-def]
    _require_alike(gate=gate, up=up, d_hidden=_product_of(a, b, None))
    return gate.new_empty(gate.shape), gate.new_empty(gate.shape), gate.new_empty((0,) if up is None else gate.shape)


def _save_hidden(ctx: typing.Any, inputs: typing.Any, output: typing.Any) -> None:
    gate, up, ctx.activation = inputs
    ctx.save_for_backward(gate, up)


def _hidden_gradients(ctx: typing.Any, dy: torch.Tensor) -> typing.Any:
    gate, up = ctx.saved_tensors
    if torch.is_grad_enabled():  # a second derivative is wanted: by PyTorch's own ops
        act = activations.KNOWN[ctx.activation]
        of_gate, of_up, _ = ctx.needs_input_grad
        inner = dy if up is None else dy * up
        d_gate = torch.autograd.grad(act(gate), gate, inner, create_graph=True)[0] if of_gate else None
        return d_gate, dy * act(gate) if of_up else None, None
    _, d_gate, d_up = torch.ops.epilogue.mlp_gradients.default(dy, gate, up, ctx.activation)
    return d_gate, None if up is None else d_up, None


def _save_product(ctx: typing.Any, inputs: typing.Any, output: typing.Any) -> None:
    a, b, added = inputs
    ctx.save_for_backward(a, b)
    ctx.added = None if added is None else added.shape


def _product_gradients(ctx: typing.Any, dy: torch.Tensor) -> typing.Any:
    a, b = ctx.saved_tensors
    product = torch.ops.epilogue.product.default
    wanted = ctx.needs_input_grad
    da = product(dy, b.t(), None) if wanted[0] else None
    db = product(a.t(), dy, None) if wanted[1] else None
    return da, db, dy.sum_to_size(ctx.added) if wanted[2] else None


torch.library.register_autograd("epilogue::mlp_hidden", _hidden_gradients, setup_context=_save_hidden)
torch.library.register_autograd("epilogue::product", _product_gradients, setup_context=_save_product)
