# SPDX-License-Identifier: Apache-2.0
"""fuse(), unfuse(), refresh() and why()."""

import dataclasses
import functools
import inspect
import typing

import torch
from torch import fx, nn

from . import inline, tap
from .layer import Call, is_layer, match_inline, match_layer
from .match import Plan, candidate_method, match
from .patterns import NoMatch
from .unmatched import unmatched
from .state import Options, State

_STATE = "_epilogue_state"
_is_compiling = torch.compiler.is_compiling


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
    layer: "str | None" = None  # whose norm and residual are fused with the MLP
    layer_calls: int = 0  # of the fused calls: those with the norm and the residual
    apart: "str | None" = None  # why norm and residual run by themselves, or did in the last such call


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
                with_norm = f" ({row.layer_calls} with norm and residual)" if row.layer else ""
                calls = f"    {row.fused_calls} fused calls{with_norm}, {row.own_calls} as the module's own"
                lines.append(calls + (f" ({row.reason})" if row.own_calls and row.reason else ""))
            if row.is_fused and row.apart:
                lines.append(f"    norm and residual by themselves: {row.apart}")
        return "\n".join(lines)


def _rebuild_fused(original: type, method: str, norm: "str | None" = None, is_inline: bool = False) -> nn.Module:
    """An instance without attributes, as copy and pickle make it."""
    module = original.__new__(original)
    module.__class__ = _fused_class(original, method, norm, is_inline)
    return module


def _reduce(self: nn.Module, protocol: typing.Any) -> typing.Any:
    kind = type(self)
    arguments = (kind._epilogue_original, kind._epilogue_method, kind._epilogue_norm, kind._epilogue_inline)
    # torch.nn.Module has a __setstate__; its state is its __dict__, or what __getstate__ gives.
    state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
    return _rebuild_fused, arguments, state


def _mlp_call(own: typing.Callable[..., typing.Any]) -> typing.Callable[..., typing.Any]:
    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        # torch.compile, torch.export and the matcher see the module's own ops.
        if _is_compiling() or (args and type(args[0]) is not torch.Tensor and isinstance(args[0], fx.Proxy)):
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

    return call


def _layer_call(own: typing.Callable[..., typing.Any], norm: "str | None") -> typing.Callable[..., typing.Any]:
    """Of a layer with that norm; without one, of an MLP in the midst of forward()."""

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if _is_compiling() or self.__dict__[_STATE].declines(self, args, kwargs):
            return own(self, *args, **kwargs)
        if norm is None:
            return inline.run(self, _STATE, args, kwargs)
        return tap.run(self, norm, _STATE, args, kwargs)

    return call


@functools.lru_cache(maxsize=None)
def _fused_class(original: type, method: str, norm: "str | None" = None, is_inline: bool = False) -> type:
    """`original` with one method that runs fused where it may: an MLP's, a layer's forward (with the
    name of its norm), or a forward with an MLP in its midst."""
    own = getattr(original, method)
    call = _layer_call(own, norm) if norm is not None or is_inline else _mlp_call(own)
    functools.update_wrapper(call, own)
    body = {
        method: call,
        "__reduce_ex__": _reduce,
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "_epilogue_original": original,
        "_epilogue_method": method,
        "_epilogue_norm": norm,
        "_epilogue_inline": is_inline,
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
    return None if _is_childs(module, plan) else (method, plan)


def _is_childs(module: nn.Module, plan: Plan) -> bool:
    """Whether the method does no more than call a child that is an MLP by itself, as XLNet's layer."""
    parents = {path.rpartition(".")[0] for path in plan.linears}
    if len(parents) != 1 or "" in parents:
        return False
    child = module.get_submodule(parents.pop())
    return _is_fused(child) or isinstance(_plan_of(child), tuple)


def _fuse_around(
    module: nn.Module, options: Options, match_forward: "typing.Callable[[nn.Module], tuple[Plan, Call]]"
) -> "str | None":
    """Makes an MLP run fused in the module's forward, or says why not."""
    if "forward" in module.__dict__:
        return "forward is set on the instance of the layer (hooks of another library)"
    try:
        plan, call = match_forward(module)
    except NoMatch as reason:
        return str(reason)
    module.__dict__[_STATE] = State(plan, options, call)
    module.__class__ = _fused_class(type(module), "forward", plan.pre_norm, plan.inline)
    return None


def fuse(
    model: nn.Module, *, int8_weights: bool = False, training: "bool | str" = False, tune: str = "model"
) -> nn.Module:
    """Makes the MLPs of `model` run fused, in place, and returns it.

    Parameters, names of the state and hooks stay as they are; a call that the engine cannot make
    runs the module's own forward (see why()). Only inference is fused unless `training`.

    int8_weights: weights of 8 bits with one scale per output channel; changes results.
    training: fuse forward and backward passes too, where that moves less memory than PyTorch's own
        ops; "always" asks for it wherever it can run.
    tune: "model" runs every call fused that can be; "measure" times each shape once against the
        module's own forward, and keeps the faster one on disk.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"fuse() expects an nn.Module, got {type(model).__name__}")
    if tune not in ("model", "measure"):
        raise ValueError(f"tune is 'model' or 'measure', not {tune!r}")
    if training not in (False, True, "always"):
        raise ValueError(f"training is False, True or 'always', not {training!r}")
    options = Options(int8_weights=int8_weights, training=training, tune=tune)
    apart: "dict[nn.Module, str]" = {}  # by MLP
    for module in list(model.modules()):  # a layer comes before its MLP
        if _is_fused(module):
            state: State = module.__dict__[_STATE]
            state.options = options
            state.refresh()
            state.apart = apart.get(module, state.apart)
            continue
        found = _plan_of(module)
        if isinstance(found, tuple):
            method, plan = found
            module.__dict__[_STATE] = State(plan, options, None, apart.get(module))
            module.__class__ = _fused_class(type(module), method)
            continue
        if is_layer(module):
            reason = _fuse_around(module, options, match_layer)
            if reason is not None:
                apart.update((child, reason) for child in module.children())
        if not _is_fused(module) and inline.is_candidate(module):
            _fuse_around(module, options, match_inline)
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


def states_of(model: nn.Module) -> "list[State]":
    """Of all fused modules, in their order."""
    return [module.__dict__[_STATE] for module in model.modules() if _is_fused(module)]


def _layer_states(model: nn.Module) -> "dict[str, tuple[str, State]]":
    """By the name of the module that is the MLP: the fused layer around it."""
    found = {}
    for name, module in model.named_modules():
        if _is_fused(module) and type(module)._epilogue_norm is not None:
            state: State = module.__dict__[_STATE]
            parents = {path.rpartition(".")[0] for path in state.plan.linears}
            inner = parents.pop() if len(parents) == 1 else ""
            found[".".join(p for p in (name, inner) if p)] = (name, state)
    return found


def _row(name: str, module: nn.Module, layer: "tuple[str, State] | None") -> Row:
    state: State = module.__dict__[_STATE]
    kind = type(module)._epilogue_original.__name__
    what = str(state.plan)
    if layer is None:
        return Row(name, kind, True, what, state.fused_calls, state.own_calls, state.reason, None, 0, state.apart)
    outer, around = layer
    if around is state:  # a layer whose linear layers are its own children
        return Row(name, kind, True, what, state.fused_calls, state.own_calls, state.reason, outer, state.fused_calls)
    what += f"; with {around.plan.around()} of {outer or '(the model)'}"
    calls = around.fused_calls
    apart = around.reason if around.own_calls else None
    return Row(name, kind, True, what, state.fused_calls + calls, state.own_calls, state.reason, outer, calls, apart)


def why(model: nn.Module) -> Report:
    """Which MLPs of `model` are fused, how often they ran, and why others are not."""
    rows = []
    layers = _layer_states(model)
    for name, module in model.named_modules():
        if _is_fused(module):
            of_mlp = type(module)._epilogue_norm is None
            if of_mlp or name in layers:
                rows.append(_row(name, module, layers.get(name)))
            continue
        found = _plan_of(module) or unmatched(module)
        if found is not None:
            what = str(found) if isinstance(found, NoMatch) else "fuse() was not called"
            rows.append(Row(name, type(module).__name__, False, what))
    return Report(tuple(rows))
