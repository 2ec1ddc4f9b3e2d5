# SPDX-License-Identifier: Apache-2.0
"""fuse(), unfuse(), refresh() and why()."""

import dataclasses
import functools
import inspect
import typing

import torch
from torch import fx, nn

from . import inline, tap
from .bits import bits_of
from .layer import Call, is_layer, match_inline, match_layer
from .match import Plan, candidate_method, match
from .patterns import NoMatch
from .routed import ExpertsPlan, match_experts
from .unmatched import unmatched
from .experts_state import ExpertsState
from .linear_state import LinearState, Siblings, why_left
from .linears import is_conv1d, is_linear
from .shares import shares_of
from .state import Options, State

_STATE = "_epilogue_state"
_LINEAR = "_epilogue_linear_state"
_EXPERTS = "_epilogue_experts_state"
_LEFT = "_epilogue_left"  # why a linear layer stays PyTorch's
_EXPERTS_LEFT = "_epilogue_experts_left"  # why experts do
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
    bytes: int = 0  # of its packed weights, about


@dataclasses.dataclass(frozen=True)
class Report:
    rows: "tuple[Row, ...]"  # of MLPs, and of mixtures' experts, which count as one
    linears: "tuple[Row, ...]" = ()  # of linear layers that are no part of a fused MLP
    shares: "tuple[tuple[str, float], ...]" = ()  # of the time, where a profile was given

    @property
    def fused(self) -> "tuple[Row, ...]":
        return tuple(row for row in self.rows if row.is_fused)

    @property
    def fused_calls(self) -> int:
        """Of MLPs."""
        return sum(row.fused_calls for row in self.rows)

    @property
    def linear_calls(self) -> int:
        """Fused calls of linear layers by themselves."""
        return sum(row.fused_calls for row in self.linears)

    @property
    def packed_bytes(self) -> int:
        """What packed weights take, beside the weights themselves, once all have run."""
        return sum(row.bytes for row in (*self.rows, *self.linears))

    def to_dict(self) -> "dict[str, typing.Any]":
        rows = {"modules": self.rows, "linears": self.linears}
        return {**{k: [dataclasses.asdict(row) for row in v] for k, v in rows.items()}, "packed_bytes": self.packed_bytes,
                "shares": dict(self.shares)}  # fmt: skip

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
        if self.linears:
            fused = [row for row in self.linears if row.is_fused]
            own = sum(row.own_calls for row in fused)
            calls = f": {self.linear_calls} fused calls, {own} as their own" if self.linear_calls or own else ""
            lines.append(f"{len(fused)} of {len(self.linears)} other linear layers are fused{calls}")
            reasons = [(row.what if not row.is_fused else row.reason, row) for row in self.linears]
            for reason in dict.fromkeys(text for text, row in reasons if text and (row.own_calls or not row.is_fused)):
                names = [row.name or "(the model)" for text, row in reasons if text == reason]
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                lines.append(f"  {', '.join(names[:3])}{more}: {reason}")
        lines.append(f"packed weights take {self.packed_bytes / 2**20:.1f} MiB beside the weights")
        for kind, share in self.shares:
            lines.append(f"  {kind} {100 * share:.0f} %" + ("" if kind.startswith("fused") else ": PyTorch's"))
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


def _rebuild(original: type, make: "typing.Callable[[type], type]") -> nn.Module:
    module = original.__new__(original)
    module.__class__ = make(original)
    return module


def _class_of(original: type, make: "typing.Callable[[type], type]", call: typing.Callable[..., typing.Any]) -> type:
    """`original` with a forward that runs fused where it may. `make` gives the same class again."""

    def reduce(self: nn.Module, protocol: typing.Any) -> typing.Any:
        state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
        return _rebuild, (original, make), state

    own = original.forward
    functools.update_wrapper(call, own)
    body = {"forward": call, "__reduce_ex__": reduce, "__doc__": original.__doc__, "__module__": original.__module__,
            "_epilogue_original": original, "_epilogue_own": own}  # fmt: skip
    return type("Fused" + original.__name__, (original,), body)


@functools.lru_cache(maxsize=None)
def _linear_class(original: type) -> type:
    own = original.forward

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if _is_compiling() or len(args) != 1 or kwargs:
            return own(self, *args, **kwargs)
        out = self.__dict__[_LINEAR].run(self, args[0])
        return own(self, *args) if out is None else out

    return _class_of(original, _linear_class, call)


@functools.lru_cache(maxsize=None)
def _experts_class(original: type) -> type:
    own = original.forward

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if _is_compiling() or (args and isinstance(args[0], fx.Proxy)):
            return own(self, *args, **kwargs)
        out = self.__dict__[_EXPERTS].run(self, args, kwargs)
        return own(self, *args, **kwargs) if out is None else out

    return _class_of(original, _experts_class, call)


def _is_fused(module: nn.Module) -> bool:
    """As an MLP, or the layer around one."""
    return hasattr(type(module), "_epilogue_method")


def _is_fused_linear(module: nn.Module) -> bool:
    return _LINEAR in module.__dict__


def _is_fused_experts(module: nn.Module) -> bool:
    return _EXPERTS in module.__dict__


def _of_mlps(model: nn.Module) -> "set[nn.Module]":
    """The linear layers of fused MLPs."""
    fused = [m for m in model.modules() if _is_fused(m)]
    return {m.get_submodule(path) for m in fused for path in m.__dict__[_STATE].plan.linears}


def _bytes_of(linears: "typing.Iterable[nn.Module]") -> int:
    """What packed copies take, about: panels are filled up to their width."""
    return sum(p.numel() * p.element_size() for m in linears for p in (m._parameters.get("weight"),) if p is not None)


def _bytes_of_experts(module: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in module._parameters.values() if p is not None and p.dim() == 3)


def _experts_of(module: nn.Module) -> "ExpertsPlan | NoMatch | None":
    try:
        return match_experts(module)
    except NoMatch as reason:
        return reason


def _fuse_experts(model: nn.Module, options: Options, memory: "int | None") -> "int | None":
    """Returns how much of the memory is left."""
    left = None if memory is None else memory - _bytes_of(_of_mlps(model))
    for module in model.modules():
        _unfuse_experts(module)
        plan = None if _is_fused(module) else _experts_of(module)
        if not isinstance(plan, ExpertsPlan):
            continue
        size = _bytes_of_experts(module)
        if left is not None and size > left:
            module.__dict__[_EXPERTS_LEFT] = f"memory={memory}: the packed weights of its experts take {size} bytes"
            continue
        left = None if left is None else left - size
        module.__dict__[_EXPERTS] = ExpertsState(plan, options)
        module.__class__ = _experts_class(type(module))
    return left


def _unfuse_experts(module: nn.Module) -> None:
    if _is_fused_experts(module):
        module.__class__ = type(module)._epilogue_original
        del module.__dict__[_EXPERTS]
    module.__dict__.pop(_EXPERTS_LEFT, None)


def _fuse_linears(model: nn.Module, options: Options, memory: "int | None", left: "int | None") -> None:
    of_mlps = _of_mlps(model)
    tied = {p for m in model.modules() if not is_linear(m) for p in m._parameters.values() if p is not None and p.dim() == 2}
    for parent in model.modules():
        siblings: "dict[int, Siblings]" = {}
        for child in parent.children() if not is_linear(parent) else ():
            if not is_linear(child) or child in of_mlps or not options.linears:
                _unfuse_linear(child)
                continue
            reason = why_left(child, options, tied)
            if reason is None and left is not None:
                left -= _bytes_of([child])
                if left < 0:
                    left += _bytes_of([child])
                    reason = f"memory={memory}: its packed weights take {_bytes_of([child])} bytes"
            _unfuse_linear(child)
            if reason is not None:
                child.__dict__[_LEFT] = reason
                continue
            columns = child.weight.shape[0 if is_conv1d(child) else 1]
            child.__dict__[_LINEAR] = LinearState(options, siblings.setdefault(columns, Siblings()))
            child.__class__ = _linear_class(type(child))


def _unfuse_linear(module: nn.Module) -> None:
    if _is_fused_linear(module):
        module.__class__ = type(module)._epilogue_original
    for name in (_LINEAR, _LEFT):
        module.__dict__.pop(name, None)


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
    model: nn.Module, *, weights: "str | None" = None, activations: "str | None" = None, group: int = 128,
    zero_points: bool = False, int8_weights: bool = False, training: "bool | str" = False, tune: str = "model",
    linears: "bool | str" = True, memory: "int | None" = None,
) -> nn.Module:  # fmt: skip
    """Makes the MLPs, the experts and the linear layers of `model` run fused, in place, and returns it.

    Parameters, names of the state and hooks stay as they are; a call that the engine cannot make
    runs the module's own forward (see why()). Only inference is fused unless `training`.

    weights: "int8" (one scale per output channel) or "int4" (one per output channel and `group` of
        inputs, 32 or 128, with a zero point where `zero_points`) for the packed copies; changes
        results. The parameters and the state_dict keep theirs; experts are packed as they are.
    activations: "int8" with int8 weights: rows become integers too before each product.
    int8_weights: the same as weights="int8".
    training: fuse forward and backward passes too, where that moves less memory than PyTorch's own
        ops; "always" asks for it wherever it can run. Experts train as their own.
    tune: "model" runs every call fused that can be; "measure" times each shape once against the
        module's own forward, and keeps the faster one on disk.
    linears: linear layers beside MLPs too, where that gains in inference; False: MLPs alone; "always":
        whether they gain or not.
    memory: the most bytes that packed weights may take. MLPs come first and are all packed; experts of a
        mixture, then linear layers, stay PyTorch's if they do not fit.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"fuse() expects an nn.Module, got {type(model).__name__}")
    if tune not in ("model", "measure"):
        raise ValueError(f"tune is 'model' or 'measure', not {tune!r}")
    if training not in (False, True, "always"):
        raise ValueError(f"training is False, True or 'always', not {training!r}")
    if linears not in (False, True, "always"):
        raise ValueError(f"linears is False, True or 'always', not {linears!r}")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < 0):
        raise ValueError(f"memory is a number of bytes, not {memory!r}")
    bits = bits_of(weights, activations, group, zero_points, int8_weights)
    options = Options(bits=bits, training=training, tune=tune, linears=linears)
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
    _fuse_linears(model, options, memory, _fuse_experts(model, options, memory))
    return model


def unfuse(model: nn.Module) -> nn.Module:
    """Undoes fuse(), in place."""
    for module in model.modules():
        if _is_fused(module):
            module.__class__ = type(module)._epilogue_original
            module.__dict__.pop(_STATE, None)
        _unfuse_experts(module)
        _unfuse_linear(module)
    return model


def refresh(model: nn.Module) -> None:
    """Packs all weights anew at the next call: after writes that nothing tells of (an element
    through .data or NumPy)."""
    for module in model.modules():
        if _is_fused(module):
            module.__dict__[_STATE].refresh()
        elif _is_fused_linear(module):
            module.__dict__[_LINEAR].refresh()
        elif _is_fused_experts(module):
            module.__dict__[_EXPERTS].refresh()


def states_of(model: nn.Module) -> "list[State]":
    """Of all fused MLPs, in their order."""
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
    size = _bytes_of(module.get_submodule(path) for path in state.plan.linears)
    if layer is None:
        return Row(name, kind, True, what, state.fused_calls, state.own_calls, state.reason, None, 0, state.apart, size)
    outer, around = layer
    if around is state:  # a layer whose linear layers are its own children
        return Row(name, kind, True, what, state.fused_calls, state.own_calls, state.reason, outer, state.fused_calls, None, size)
    what += f"; with {around.plan.around()} of {outer or '(the model)'}"
    calls = around.fused_calls
    apart = around.reason if around.own_calls else None
    return Row(name, kind, True, what, state.fused_calls + calls, state.own_calls, state.reason, outer, calls, apart, size)


def _experts_row(name: str, module: nn.Module) -> Row:
    state: ExpertsState = module.__dict__[_EXPERTS]
    kind = type(module)._epilogue_original.__name__
    size = _bytes_of_experts(module)
    return Row(name, kind, True, str(state.plan), state.fused_calls, state.own_calls, state.reason, bytes=size)


def _linear_rows(model: nn.Module) -> "list[Row]":
    rows, of_mlps = [], _of_mlps(model)
    for name, module in model.named_modules():
        if _is_fused_linear(module):
            state: LinearState = module.__dict__[_LINEAR]
            kind = type(module)._epilogue_original.__name__
            what = "linear layer" if state.together is None else f"linear layer, one of {len(state.together.members)} of one input"
            rows.append(Row(name, kind, True, what, state.fused_calls, state.own_calls, state.reason, bytes=_bytes_of([module])))
        elif _LEFT in module.__dict__ and module not in of_mlps:
            rows.append(Row(name, type(module).__name__, False, module.__dict__[_LEFT]))
    return rows


def why(model: nn.Module, profile: typing.Any = None) -> Report:
    """Which MLPs (experts too) and linear layers of `model` are fused, how often they ran, why others are not, and what packing costs.

    profile: a torch.profiler.profile of a run, for the shares of the time that the rest has.
    """
    rows = []
    layers = _layer_states(model)
    for name, module in model.named_modules():
        if _is_fused(module):
            of_mlp = type(module)._epilogue_norm is None
            if of_mlp or name in layers:
                rows.append(_row(name, module, layers.get(name)))
            continue
        if _is_fused_experts(module):
            rows.append(_experts_row(name, module))
            continue
        found = _experts_of(module) or _plan_of(module) or unmatched(module)
        if found is not None:
            what = str(found) if isinstance(found, NoMatch) else module.__dict__.get(_EXPERTS_LEFT, "fuse() was not called")
            rows.append(Row(name, type(module).__name__, False, what))
    return Report(tuple(rows), tuple(_linear_rows(model)), () if profile is None else shares_of(profile))
