# SPDX-License-Identifier: Apache-2.0
"""The compiled ops of training, for torch.compile and autograd: fake results and gradients.

    epilogue::mlp_hidden     act(gate) * up, in one pass
    epilogue::mlp_gradients  the same once more, and the gradients of gate and up, in one pass
    epilogue::product        a @ b (+ added), by the engine
"""

import typing

import torch

from . import activations

OptionalTensor = typing.Optional[torch.Tensor]


@torch.library.register_fake("epilogue::mlp_hidden")
def _(gate, up, activation):  # type: ignore[no-untyped-def]
    return gate.new_empty(gate.shape)


@torch.library.register_fake("epilogue::mlp_gradients")
def _(d_hidden, gate, up, activation):  # type: ignore[no-untyped-def]
    return gate.new_empty(gate.shape), gate.new_empty(gate.shape), gate.new_empty((0,) if up is None else gate.shape)


@torch.library.register_fake("epilogue::product")
def _(a, b, added):  # type: ignore[no-untyped-def]
    return a.new_empty((a.shape[0], b.shape[1]))


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
