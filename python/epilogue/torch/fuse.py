# SPDX-License-Identifier: Apache-2.0
"""fuse(), unfuse(), refresh() and why()."""

import dataclasses
import functools
import inspect
import typing

import torch
from torch import nn

from .match import NoMatch, Plan, candidate_method, match
from .state import Options, State

_STATE = "_epilogue_state"


@dataclasses.dataclass(frozen=True)
class Row:
    """What happened to one module."""

    name: str
    module: str
    is_fused: bool
    what: str  # the plan, or why it is not fused
    fused_calls: int = 0
    own_calls: int = 0
    reason: "str | None" = None  # of the last call that ran the module's own forward


@dataclasses.dataclass(frozen=True)
class Report:
    rows: "tuple[Row, ...]"

    @property
    def fused(self) -> "tuple[Row, ...]":
        return tuple(row for row in self.rows if row.is_fused)

    @property
    def fused_calls(self) -> int:
        return sum(row.fused_calls for row in self.rows)

    def to_dict(self) -> "dict[str, typing.Any]":
        return {"modules": [dataclasses.asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        lines = [f"{len(self.fused)} of {len(self.rows)} MLPs are fused"]
        for row in self.rows:
            mark = "fused" if row.is_fused else "not fused"
            lines.append(f"  {row.name or '(the model)'}: {mark}: {row.what}")
            if row.is_fused and (row.fused_calls or row.own_calls):
                calls = f"    {row.fused_calls} fused calls, {row.own_calls} as the module's own"
                lines.append(calls + (f" ({row.reason})" if row.own_calls and row.reason else ""))
        return "\n".join(lines)


def _rebuild_fused(original: type, method: str) -> nn.Module:
    """An instance without attributes, as copy and pickle make it."""
    module = original.__new__(original)
    module.__class__ = _fused_class(original, method)
    return module


def _reduce(self: nn.Module, protocol: typing.Any) -> typing.Any:
    kind = type(self)
    arguments = (kind._epilogue_original, kind._epilogue_method)
    # torch.nn.Module has a __setstate__; its state is its __dict__, or what __getstate__ gives.
    state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
    return _rebuild_fused, arguments, state


@functools.lru_cache(maxsize=None)
def _fused_class(original: type, method: str) -> type:
    """`original` with one method that runs fused where it may."""
    own = getattr(original, method)

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        # torch.compile and torch.export see the module's own ops.
        if torch.compiler.is_compiling():
            return own(self, *args, **kwargs)
        state: State = self.__dict__[_STATE]
        if len(args) == 1 and not kwargs:
            out = state.run(self, args[0])
        elif not args and len(kwargs) == 1 and state.plan.input in kwargs:
            out = state.run(self, kwargs[state.plan.input])
        else:
            out = None
            state.own_calls += 1
            state.reason = "called with more than one argument"
        return own(self, *args, **kwargs) if out is None else out

    functools.update_wrapper(call, own)
    body = {
        method: call,
        "__reduce_ex__": _reduce,
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "_epilogue_original": original,
        "_epilogue_method": method,
        "_epilogue_own": own,
    }
    return type("Fused" + original.__name__, (original,), body)


def _is_fused(module: nn.Module) -> bool:
    return hasattr(type(module), "_epilogue_original")


def _plan_of(module: nn.Module) -> "tuple[str, Plan] | NoMatch | None":
    method = candidate_method(module)
    if method is None:
        return None
    if method in module.__dict__:
        return NoMatch(f"{method} is set on the instance (hooks of another library)")
    if not all(type(p) is nn.Parameter for p in module.parameters()):
        return NoMatch("parameters of a type of their own (DTensor, quantised, ...)")
    try:
        plan = match(module, method)
    except NoMatch as reason:
        # What takes several inputs (attention) and is no MLP needs no line in why().
        several = len(inspect.signature(getattr(type(module), method)).parameters) > 2
        return None if several and method == "forward" else reason
    return method, plan


def fuse(
    model: nn.Module, *, int8_weights: bool = False, training: bool = False, tune: str = "model"
) -> nn.Module:
    """Makes the MLPs of `model` run fused, in place, and returns it.

    Parameters, names of the state and hooks stay as they are; a call that the engine cannot make
    runs the module's own forward (see why()). Only inference is fused unless `training`.

    int8_weights: weights of 8 bits with one scale per output channel; changes results.
    training: fuse the forward pass where gradients are wanted too.
    tune: "model" runs every call fused that can be; "measure" times each shape once against the
        module's own forward, and keeps the faster one on disk.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"fuse() expects an nn.Module, got {type(model).__name__}")
    if tune not in ("model", "measure"):
        raise ValueError(f"tune is 'model' or 'measure', not {tune!r}")
    options = Options(int8_weights=int8_weights, training=training, tune=tune)
    for module in list(model.modules()):
        if _is_fused(module):
            state: State = module.__dict__[_STATE]
            state.options = options
            state.refresh()
            continue
        found = _plan_of(module)
        if isinstance(found, tuple):
            method, plan = found
            module.__dict__[_STATE] = State(plan, options)
            module.__class__ = _fused_class(type(module), method)
    return model


def unfuse(model: nn.Module) -> nn.Module:
    """Undoes fuse(), in place."""
    for module in model.modules():
        if _is_fused(module):
            module.__class__ = type(module)._epilogue_original
            module.__dict__.pop(_STATE, None)
    return model


def refresh(model: nn.Module) -> None:
    """Packs all weights anew at the next call: after writes that nothing tells of (an element
    through .data or NumPy)."""
    for module in model.modules():
        if _is_fused(module):
            module.__dict__[_STATE].refresh()


def why(model: nn.Module) -> Report:
    """Which MLPs of `model` are fused, how often they ran, and why others are not."""
    rows = []
    for name, module in model.named_modules():
        if _is_fused(module):
            state: State = module.__dict__[_STATE]
            original = type(module)._epilogue_original.__name__
            rows.append(Row(name, original, True, str(state.plan), state.fused_calls, state.own_calls, state.reason))
            continue
        found = _plan_of(module)
        if found is not None:
            what = str(found) if isinstance(found, NoMatch) else "fuse() was not called"
            rows.append(Row(name, type(module).__name__, False, what))
    return Report(tuple(rows))
