# SPDX-License-Identifier: Apache-2.0
"""RMS norms by themselves, in inference: one op, where a module's forward makes five to seven tensors.

A norm is known by its values and by where it rounds (norms.py). Nothing is packed: each call reads the weight as it is. A norm of
whole rows that are split over ranks (SequenceParallel) is one of this rank's rows; so is a layer norm: PyTorch has it as one op, but a
call by DTensor's dispatch takes twice as long (99 us for 46, eight rows of 1024).
"""

import typing

import torch
import torch.nn.functional as F
from torch import fx, nn

from . import norms, sharded, signals
from .fused_class import class_of, is_compiling, made_once, unfuse_class
from .later import plain
from .report import Row
from .taken import unfit

STATE = "_epilogue_norm_state"
_DTYPES = (torch.float32, torch.bfloat16)
_PLAIN = (int, float, bool, str, type(None))
_Parameter = nn.Parameter
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_op = None  # torch.ops.epilogue.rms_norm.default, once the ops are loaded


class NormState:
    """Of one norm. Plain data: pickles."""

    def __init__(self, norm: norms.Norm) -> None:
        self.norm = norm
        self.form = norms.FORMS.index(norm.form)
        self.fused_calls = 0
        self.own_calls = 0
        self.reason: "str | None" = None  # of the last call that ran the module's own forward

    def __deepcopy__(self, memo: typing.Any) -> "NormState":
        return NormState(self.norm)

    def __reduce__(self) -> typing.Any:
        return NormState, (self.norm,)

    def what(self) -> str:
        return "layer norm of this rank's rows" if self.norm.kind == "layer" else f"RMS norm ({self.norm.form})"

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        """The norm of x; None where the module's own forward has to run."""
        global _op
        x = plain(x)
        parameters = list(module._parameters.values())
        rows, given = x, parameters
        if sharded.is_dtensor(x) and all(sharded.has_whole_rows(x, p) for p in parameters):
            # Ranks have to do alike, those without a row too: DTensor's way takes all of them.
            rows, given = sharded.settled(x._local_tensor).contiguous(), [p._local_tensor for p in parameters]
        reason = unfit(rows) or signals.foreign() or self._obstacle(rows, given, rows is not x)
        if reason is None and _is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in parameters)):
            reason = "gradients are wanted"
        if reason is None and not self.norm.is_same(module):
            reason = "it has another eps"
        if reason is not None:
            self.reason = reason
            self.own_calls += 1
            return None
        if _op is None:
            _op = torch.ops.epilogue.rms_norm.default
        self.fused_calls += 1
        if rows.numel() == 0:
            out = torch.empty_like(rows)
        elif self.norm.kind == "layer":
            out = F.layer_norm(rows, rows.shape[-1:], *given, self.norm.eps)
        else:
            out = _op(rows, *given, self.form, self.norm.eps)
        return out if rows is x else sharded.rows_like(x, out)

    def _obstacle(self, x: torch.Tensor, parameters: "list[typing.Any]", is_split: bool) -> "str | None":
        if not is_split and self.norm.kind == "layer":
            return "its rows are no DTensor: PyTorch has it as one op"
        if _is_autocast_enabled("cpu"):
            return "autocast"
        if len(parameters) != (1 if self.norm.kind == "rms" else 2):
            return "it has other parameters than it had"
        for p in parameters:
            if not is_split and type(p) is not _Parameter:
                return f"its weight is a {type(p).__name__}"
            if x.dtype not in _DTYPES or p.dtype is not x.dtype or not p.is_cpu:
                return f"x is {x.dtype}, the weight {p.dtype}"
            if x.shape[-1:] != p.shape or not p.is_contiguous():
                return "its rows do not fit the weight, or that is not contiguous"
        if (x.numel() == 0 and not is_split) or not x.is_contiguous():
            return "its rows are not contiguous"
        return None


def given_of(norm: nn.Module, dtype: torch.dtype, columns: torch.Size) -> "tuple[torch.Tensor, int, float] | None":
    """A fused RMS norm of rows of that dtype and size as the ops take it: weight, form, eps. None: it has to run as itself."""
    state: NormState = norm.__dict__[STATE]
    weight = norm._parameters.get("weight")
    if type(weight) is not _Parameter or weight.dtype is not dtype or weight.shape != columns or not weight.is_contiguous():
        return None
    return (weight, state.form, state.norm.eps) if state.norm.is_same(norm) else None


def count(*norms: "nn.Module | None") -> None:
    """Calls of these, where they are fused, that an op made with others."""
    for norm in norms:
        state = None if norm is None else norm.__dict__.get(STATE)
        if state is not None:
            state.fused_calls += 1


@made_once
def _norm_class(original: type) -> type:
    own = original.forward

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if is_compiling() or len(args) != 1 or kwargs or isinstance(args[0], fx.Proxy):
            return own(self, *args, **kwargs)
        out = self.__dict__[STATE].run(self, args[0])
        return own(self, *args) if out is None else out

    return class_of(original, _norm_class, call)


def is_fused_norm(module: nn.Module) -> bool:
    return STATE in module.__dict__


def unfuse_norm(module: nn.Module) -> None:
    unfuse_class(module, STATE)


def fuse_norms(model: nn.Module, of_mlps: "set[nn.Module]") -> None:
    """of_mlps: norms that are part of a fused layer."""
    if not hasattr(torch.ops.epilogue, "rms_norm"):  # older ops
        return
    known: "dict[typing.Any, norms.Norm | None]" = {}  # a model has many of a kind
    for module in model.modules():
        if module in of_mlps or not norms.could_be(module) or "forward" in module.__dict__:
            continue
        key = (type(module), *((name, value) for name, value in module.__dict__.items() if type(value) in _PLAIN))
        if key not in known:
            known[key] = norms.identify(module)
        norm = known[key]
        names = ["weight"] if norm is not None and norm.kind == "rms" else ["weight", "bias"]
        if norm is None or list(module._parameters) != names:
            continue
        if norm.kind == "rms" or sharded.is_dtensor(module.weight):
            module.__dict__[STATE] = NormState(norm)
            module.__class__ = _norm_class(type(module))


def rows_of(model: nn.Module) -> "list[Row]":
    found = [(name, module, module.__dict__[STATE]) for name, module in model.named_modules() if is_fused_norm(module)]
    return [
        Row(name, type(module)._epilogue_original.__name__, True, state.what(), state.fused_calls, state.own_calls, state.reason)
        for name, module, state in found
    ]
