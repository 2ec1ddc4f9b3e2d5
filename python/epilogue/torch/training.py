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
        if not torch.is_grad_enabled():  # no second derivative is wanted
            inputs = [None if t is None else t.detach().requires_grad_(w) for t, w in zip(inputs, wanted)]
        half = len(parameters) // 2
        with torch.enable_grad():
            y = result_of(ctx.plan, ctx.transposed, inputs[0], inputs[1 : 1 + half], inputs[1 + half :])
        asked = [t for t, w in zip(inputs, wanted) if w]
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            found = iter(torch.autograd.grad(y, asked, dy, create_graph=torch.is_grad_enabled()))
        return (None, None, None, None, *(next(found) if w else None for w in wanted))
