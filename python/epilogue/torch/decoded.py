# SPDX-License-Identifier: Apache-2.0
"""Attention of transformers' models while they decode, from its projections to its output, as one call: torch.ops.epilogue.decoded_attention.

For one new token the products are short, and most of the time between them is Python's: views, the rotary embedding, the cache's update,
the look-up of attention's function, each with its checks. When a call of one token comes whose layers are packed, the module's forward is
recorded (recorded.py). If the record is q, k and v of x, norms and rotary embeddings of their heads, the cache's update, attention and one
linear layer, later calls of the same arguments run as the op. Whatever the record read is looked at again in each call: attributes, globals,
hooks. The op does what the steps do, in their order: the same bits.
"""

import functools
import typing

import torch
from torch import nn

from . import linear_state, rotary, sdpa, signals
from .decoded_match import STATE, plan_of
from .decoded_plan import MOST_PLANS, Plan, argument
from .fused_class import class_of, is_compiling, unfuse_class
from .linears import is_linear
from .patterns import NoMatch

MOST_RECORDS = 32  # of a module: each takes some milliseconds
MOST_IN_VAIN = 8  # of these
_Tensor = torch.Tensor
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_op = None  # torch.ops.epilogue.decoded_attention.default, once the ops are loaded


class Decoded:
    """Of one module. Copies and pickles learn anew."""

    def __init__(self) -> None:
        self.fused = 0  # calls
        self.plans: "list[Plan]" = []
        self.reason: "str | None" = None  # why the last record was of no use
        self.records = 0
        self.in_vain = 0

    def __deepcopy__(self, memo: typing.Any) -> "Decoded":
        return Decoded()

    def __reduce__(self) -> typing.Any:
        return Decoded, ()

    def run(self, module: nn.Module, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> typing.Any:
        """What the forward gives; None: it has to run. Not while torch.compile traces."""
        if _is_grad_enabled() or _is_autocast_enabled("cpu"):
            return None
        for plan in self.plans:
            if plan.is_of(args, kwargs):
                is_clear = plan.holds() and not any(plan.hooks) and signals.foreign() is None
                out = plan.call(_op, (argument(plan.arguments.x, args, kwargs),), (), args, kwargs) if is_clear else None
                if out is None:
                    self.plans = [p for p in self.plans if p is not plan or p.is_ready()]
                    return None
                self.count(plan, module)
                return out if plan.tuple_of is None else (out, *plan.tuple_of)
        self._learn(module, args, kwargs)
        return None

    def count(self, plan: Plan, module: nn.Module) -> None:
        self.fused += 1
        if plan.rotary is not None:
            module.__dict__[rotary.STATE].fused += 1
        module.__dict__[sdpa.STATE].fused += 1

    def _learn(self, module: nn.Module, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> None:
        """Records the call, if it is of one token and its layers are packed."""
        given = args[0] if args else next(iter(kwargs.values()), None)
        if type(given) is not _Tensor or given.dim() != 3 or given.shape[1] != 1:
            return
        if self.records >= MOST_RECORDS or self.in_vain >= MOST_IN_VAIN:
            return
        linears = [m for m in module._modules.values() if m is not None and is_linear(m)]
        if not linears or not all(linear_state.ran_packed(m, given.shape[0], given.dtype) for m in linears):
            return
        if signals.foreign() is not None or module.training:
            return
        self.records += 1
        try:
            self.plans = [plan_of(module, args, kwargs), *self.plans[: MOST_PLANS - 1]]
            self.reason = None
        except NoMatch as reason:
            self.in_vain += 1
            self.reason = str(reason)


@functools.lru_cache(maxsize=None)
def _decoded_class(original: type) -> type:
    own = original.forward

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if is_compiling():
            return own(self, *args, **kwargs)
        state: "Decoded | None" = self.__dict__.get(STATE)
        out = None if state is None else state.run(self, args, kwargs)
        return own(self, *args, **kwargs) if out is None else out

    return class_of(original, _decoded_class, call)


def fuse_decoded(model: nn.Module) -> None:
    """For modules of attention that sdpa.py marked."""
    global _op
    if not hasattr(torch.ops.epilogue, "decoded_attention"):  # older ops
        return
    _op = torch.ops.epilogue.decoded_attention.default
    for module in model.modules():
        if sdpa.STATE in module.__dict__ and "forward" not in module.__dict__ and STATE not in module.__dict__:
            if any(linear_state.is_fused_linear(m) for m in module.children()):
                module.__dict__[STATE] = Decoded()
                module.__class__ = _decoded_class(type(module))


def unfuse_decoded(module: nn.Module) -> None:
    unfuse_class(module, STATE)


def decoded_calls(model: nn.Module) -> int:
    """Of one token, from the projections to the output as one op."""
    return sum(m.__dict__[STATE].fused for m in model.modules() if STATE in m.__dict__)
