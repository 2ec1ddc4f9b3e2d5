# SPDX-License-Identifier: Apache-2.0
"""Attention of transformers' models while they decode, from its projections to its output, as one call: torch.ops.epilogue.decoded_attention.

For one new token the products are short, and most of the time between them is Python's: views, the rotary embedding, the cache's update,
the look-up of attention's function, each with its checks. When a call of one token comes whose layers are packed, the module's forward is
recorded (recorded.py). If the record is q, k and v of x, norms and rotary embeddings of their heads, the cache's update, attention and one
linear layer, later calls of the same arguments run as the op. Whatever the record read is looked at again in each call: attributes, globals,
hooks. The op does what the steps do, in their order: the same bits.
"""

import typing

import torch
from torch import nn

from . import linear_state, rotary, sdpa
from .decoded_match import plan_of
from .decoded_plan import Plan, Records, argument
from .decoded_reads import STATE
from .fused_class import class_of, is_compiling, made_once, unfuse_class


class Decoded(Records):
    """Those of a module of attention."""

    name = "decoded_attention"

    def _call(self, plan: Plan, place: typing.Any, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> typing.Any:
        packs = plan.packs()
        if packs is None:
            return None
        first, last = packs
        out = self.op(argument(plan.arguments.x, args, kwargs), first.handle.number, first.taken.given, plan.weights(), plan.form, plan.eps,
                      *plan.wave(args, kwargs), *place.rows, plan.mask(args, kwargs), plan.scale, last.handle.number, last.taken.given)  # fmt: skip
        if not out:
            return None
        plan.count(place.layer)
        count(plan, plan.module)
        return out[0] if plan.tuple_of is None else (out[0], *plan.tuple_of)

    def _learn(self, module: nn.Module, x: torch.Tensor, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> None:
        """Once its layers ran packed."""
        linears = [m for m in module._modules.values() if m is not None and linear_state.is_fused_linear(m)]
        if linears and all(linear_state.ran_packed(m, x.shape[0], x.dtype) for m in linears) and is_decoded(module):
            self.record(module, lambda: plan_of(module, args, kwargs))


def count(plan: Plan, attention: nn.Module) -> None:
    """The parts of a call of attention."""
    if plan.rotary is not None:
        attention.__dict__[rotary.STATE].fused += 1
    attention.__dict__[sdpa.STATE].fused += 1


@made_once
def _decoded_class(original: type) -> type:
    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        state: "Decoded | None" = None if is_compiling() else self.__dict__.get(STATE)
        out = None if state is None else state.run(self, args, kwargs)
        return original.forward(self, *args, **kwargs) if out is None else out  # which may be another one than when fuse() was called

    return class_of(original, _decoded_class, call)


def is_decoded(module: nn.Module) -> bool:
    """Whether its class is the one that fuse_decoded() gave it."""
    kind = type(module)
    return STATE in module.__dict__ and "_epilogue_original" in vars(kind) and kind is _decoded_class(kind._epilogue_original)


def fuse_decoded(model: nn.Module) -> None:
    """For modules of attention that sdpa.py marked."""
    for module in model.modules():
        if sdpa.STATE in module.__dict__ and "forward" not in module.__dict__ and STATE not in module.__dict__:
            if any(linear_state.is_fused_linear(m) for m in module.children()):
                module.__dict__[STATE] = Decoded()
                module.__class__ = _decoded_class(type(module))


def unfuse_decoded(module: nn.Module) -> None:
    unfuse_class(module, STATE)


def decoded_calls(model: nn.Module) -> int:
    """Calls of attention of one token that were one op, from the projections to the output."""
    return sum(m.__dict__[STATE].fused for m in model.modules() if STATE in m.__dict__)


def decoded_reasons(model: nn.Module) -> "tuple[str, ...]":
    """Why attention of one token runs as its modules, where it was recorded in vain."""
    states = [m.__dict__[STATE] for m in model.modules() if STATE in m.__dict__]
    return tuple(dict.fromkeys(s.reason for s in states if s.reason is not None and not s.plans))
