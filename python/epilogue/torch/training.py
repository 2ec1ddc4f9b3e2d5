# SPDX-License-Identifier: Apache-2.0
"""Gradients of a fused MLP: the forward pass fused, the backward pass by PyTorch's own ops.

The backward pass computes the hidden activations again from x, as activation checkpointing does:
what is kept between the two is x and the weights.
"""

import typing

import torch
import torch.nn.functional as F

from . import activations
from .match import Plan


def hidden_of(
    plan: Plan,
    transposed: "tuple[bool, ...]",
    x: torch.Tensor,
    weights: "typing.Sequence[torch.Tensor]",
    biases: "typing.Sequence[torch.Tensor | None]",
) -> torch.Tensor:
    """What the last linear layer reads, by the ops that the modules run."""
    act = activations.KNOWN[plan.activation]

    def linear(i: int) -> torch.Tensor:
        return F.linear(x, weights[i].t() if transposed[i] else weights[i], biases[i])

    if not plan.gated:
        return act(linear(0))
    if plan.packed:
        gate, up = linear(0).chunk(2, dim=-1)
        return act(gate) * up
    return act(linear(0)) * linear(1)


def result_of(
    plan: Plan,
    transposed: "tuple[bool, ...]",
    x: torch.Tensor,
    weights: "typing.Sequence[torch.Tensor]",
    biases: "typing.Sequence[torch.Tensor | None]",
) -> torch.Tensor:
    hidden = hidden_of(plan, transposed, x, weights, biases)
    return F.linear(hidden, weights[-1].t() if transposed[-1] else weights[-1], biases[-1])


class FusedFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: typing.Any, plan: Plan, transposed: "tuple[bool, ...]", handle: typing.Any, version: int,
                x: torch.Tensor, *parameters: "torch.Tensor | None") -> torch.Tensor:  # fmt: skip
        ctx.plan, ctx.transposed = plan, transposed
        ctx.save_for_backward(x, *parameters)
        return torch.ops.epilogue.fused_mlp.default(x, handle.number, version)

    @staticmethod
    def backward(ctx: typing.Any, dy: torch.Tensor) -> typing.Any:
        x, *parameters = ctx.saved_tensors
        wanted = ctx.needs_input_grad[4:]
        inputs = [x, *parameters]
        if torch.is_grad_enabled():  # a second derivative is wanted: recorded from x on
            found = _recorded(ctx, inputs, wanted, dy)
        else:
            found = _gradients(ctx, inputs, wanted, dy)
        return (None, None, None, None, *found)


def _recorded(ctx: typing.Any, inputs: "list[typing.Any]", wanted: "tuple[bool, ...]", dy: torch.Tensor) -> "list[typing.Any]":
    half = len(inputs) // 2
    y = result_of(ctx.plan, ctx.transposed, inputs[0], inputs[1 : 1 + half], inputs[1 + half :])
    asked = [t for t, w in zip(inputs, wanted) if w]
    found = iter(torch.autograd.grad(y, asked, dy, create_graph=True))
    return [next(found) if w else None for w in wanted]


def _gradients(ctx: typing.Any, inputs: "list[typing.Any]", wanted: "tuple[bool, ...]", dy: torch.Tensor) -> "list[typing.Any]":
    """The hidden activations once more; the last layer's result is not needed again."""
    half = len(inputs) // 2
    leaves = [None if t is None else t.detach().requires_grad_(w) for t, w in zip(inputs, wanted)]
    last, last_bias = half, len(inputs) - 1
    with torch.enable_grad():
        hidden = hidden_of(ctx.plan, ctx.transposed, leaves[0], leaves[1 : 1 + half], leaves[1 + half :])
    weight = inputs[last].t() if ctx.transposed[-1] else inputs[last]
    dy_rows, hidden_rows = dy.reshape(-1, dy.shape[-1]), hidden.detach().reshape(-1, hidden.shape[-1])
    out: "list[typing.Any]" = [None] * len(inputs)
    if wanted[last]:
        out[last] = hidden_rows.t() @ dy_rows if ctx.transposed[-1] else dy_rows.t() @ hidden_rows
    if wanted[last_bias]:
        out[last_bias] = dy_rows.sum(0)
    asked = [i for i, w in enumerate(wanted) if w and i not in (last, last_bias)]
    if asked:
        for i, g in zip(asked, torch.autograd.grad(hidden, [leaves[i] for i in asked], dy @ weight)):
            out[i] = g
    return out
