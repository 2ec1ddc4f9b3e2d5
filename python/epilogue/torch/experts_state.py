# SPDX-License-Identifier: Apache-2.0
"""What fused experts of a mixture know beside their weights, and the checks that each call makes."""

import math
import typing

import torch
from torch import fx, nn

from . import activations, choose, gathered, sharded, signals
from .fused_class import class_of, is_compiling, made_once, unfuse_class
from .layer import hooks_of
from .mixture import Experts
from .patterns import NoMatch
from .report import Row
from .routed import ExpertsPlan, implementation_of, is_same_way, match_experts, traits_of
from .taken import Taken, misfit, unfit
from .training import packs_in_vain, trained_experts, untrainable_experts

if typing.TYPE_CHECKING:
    from .released import Store
    from .state import Options

STATE = "_epilogue_experts_state"
LEFT = "_epilogue_experts_left"  # why experts stay PyTorch's
_Parameter, _Tensor, _strided = nn.Parameter, torch.Tensor, torch.strided
_is_autocast_enabled = torch.is_autocast_enabled
_is_grad_enabled = torch.is_grad_enabled
_INDICES = (torch.int64, torch.int32)


class _Pack(typing.NamedTuple):
    taken: Taken
    dtype: torch.dtype
    experts: Experts


class ExpertsState:
    """Of one experts module. Copies and pickles keep the plan and the options, not the weights."""

    def __init__(self, plan: ExpertsPlan, options: "Options") -> None:
        self.plan = plan
        self.options = options
        self.fused_calls = 0
        self.own_calls = 0
        self.reason: "str | None" = None  # of the last call that ran the module's own forward
        self.store: "Store | None" = None  # where the weights are if packed ones replace them
        self._pack: "_Pack | None" = None
        self._split: "tuple[typing.Any, sharded.ExpertsSplit | str]" = (None, "")
        self.is_split_later = False  # ranks share the experts since they were fused
        self._children: "list[tuple[nn.Module, type, list[typing.Any]]] | None" = None

    def __deepcopy__(self, memo: typing.Any) -> "ExpertsState":
        return ExpertsState(self.plan, self.options)

    def __copy__(self) -> "ExpertsState":
        return ExpertsState(self.plan, self.options)

    def __reduce__(self) -> typing.Any:
        return ExpertsState, (self.plan, self.options)

    def refresh(self) -> None:
        """Forgets packed weights: the next call packs what the weights are then."""
        self._pack = None
        self._children = None

    def run(self, module: nn.Module, args: typing.Any, kwargs: typing.Any) -> "torch.Tensor | None":
        """The fused result; None where the module's own forward has to run."""
        given = args
        if kwargs:
            rest = self.plan.inputs[len(args) :]
            given = (*args, *(kwargs[name] for name in rest)) if set(kwargs) == set(rest) else ()
        if len(given) == 3:
            x, index, weights = given
            reason = unfit(x) or signals.foreign() or _unrouted(x, index, weights) or self._changed(module)
            out = self._run(module, x, index, weights) if reason is None else None
            if out is not None:
                self.fused_calls += 1
                if self.store is not None:
                    self.store.settle(self._pack.taken.weights)
                return out
            if reason is not None:
                self.reason = reason
        else:
            self.reason = "called with other arguments than " + ", ".join(self.plan.inputs)
        self.own_calls += 1
        return None

    def split_of(self, module: nn.Module) -> "sharded.ExpertsSplit | str | None":
        """Of experts that ranks share; None: nothing says so."""
        forward = module.__dict__.get("forward")
        if forward is None:
            return None
        marks = [forward, *(id(p) for p in module._parameters.values())]
        if self._split[0] != marks:
            self._split = (marks, sharded.split_of_experts(module))
        return self._split[1]

    def _resplit(self, module: nn.Module) -> None:
        """The plan of this rank's part, where ranks share the experts since they were fused."""
        self.is_split_later, kind = False, type(module)
        module.__class__ = kind._epilogue_original
        try:
            plan = experts_of(module)
        finally:
            module.__class__ = kind
        if isinstance(plan, ExpertsPlan):
            self.plan = plan
            self.refresh()

    def run_split(self, module: nn.Module, args: typing.Any, kwargs: typing.Any) -> "torch.Tensor | None":
        """The result of experts that ranks share; None where nothing says so, or where the plan's forward has to run."""
        split = self.split_of(module)
        names = self.plan.inputs[len(args) :]
        if not isinstance(split, sharded.ExpertsSplit) or tuple(kwargs) != tuple(names):
            return None
        if not split.holds(module):
            self.reason = "its parameters are not gathered"
            self.own_calls += 1
            return None
        if self.is_split_later:
            self._resplit(module)
        return split.call(module, args, kwargs, lambda *a, **k: self.run(module, a, k), type(module)._epilogue_own)

    def _changed(self, module: nn.Module) -> "str | None":
        plan = self.plan
        if "forward" in module.__dict__ and not isinstance(self.split_of(module), sharded.ExpertsSplit):
            return "forward is set on the instance (hooks of another library)"
        if plan.eval_only and module.training:
            return "the experts are in training mode, in which they do more"
        if traits_of(module) != plan.traits:
            return "changed since it was fused: an attribute has another value"
        if not is_same_way(plan, implementation_of(module)):
            return f"changed since it was fused: experts_implementation is {implementation_of(module)!r}"
        for name in plan.names():
            if name not in module._parameters:
                return f"changed since it was fused: {name} is no parameter (a parametrization, LoRA)"
        now = {name: m for name, m in module._modules.items() if m is not None}
        if self._children is None:
            if list(now) != [plan.activation_path] * (plan.activation_path is not None):
                return "changed since it was fused: it has other submodules"
            if any(activations.identify(m) != plan.activation for m in now.values()):
                return "changed since it was fused: it has another activation"
            self._children = [(m, type(m), hooks_of(m)) for m in now.values()]
        if len(now) != len(self._children) or any(m is not child for m, (child, _, _) in zip(now.values(), self._children)):
            self._children = None  # one that gives the same serves too
            return self._changed(module)
        for child, kind, hooks in self._children:
            if any(hooks):
                return f"a hook on {kind.__name__}"
            if type(child) is not kind or "forward" in child.__dict__:
                return f"{kind.__name__} has a forward of its own instance"
        return None

    def _run(self, module: nn.Module, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> "torch.Tensor | None":
        if _is_autocast_enabled("cpu"):
            self.reason = "autocast around experts"
            return None
        if _is_grad_enabled() and (weights.requires_grad or x.requires_grad or any(p.requires_grad for p in module.parameters())):
            return self._trained(module, x, index, weights)
        now = gathered.gathered_of([module])
        if now is not None and not now.kept:
            self._pack = None
        pack = self._pack
        if pack is None or pack.dtype is not x.dtype or x.shape[-1] != pack.taken.columns or not pack.taken.holds(module):
            return self._run_anew(module, x, index, weights)
        if self._measures(module) and not self._is_faster(module, x, index, weights, pack):
            return None
        out = pack.experts(x, index, weights, pack.taken.given)
        return self._run_anew(module, x, index, weights) if out is None else out

    def _measures(self, module: nn.Module) -> bool:
        return self.options.tune == "measure" and self.split_of(module) is None  # ranks must choose alike

    def _trained(self, module: nn.Module, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> "torch.Tensor | None":
        taken = self._take(module)
        reason = taken if isinstance(taken, str) else misfit(x, taken, x.dtype, False)
        reason = reason or untrainable_experts(self.plan, x.dtype, self.options.training)
        if reason is not None or isinstance(taken, str):
            self.reason = str(reason)
            return None
        live = {name: p.to_local() if sharded.is_dtensor(p) else p for _, name, p in taken.slots}
        return trained_experts(self.plan, live, x, index, weights)

    def _run_anew(self, module: nn.Module, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> "torch.Tensor | None":
        """A call that needs weights packed."""
        taken = self._take(module)
        reason = taken if isinstance(taken, str) else misfit(x, taken, x.dtype, False)
        if reason is not None:
            self.reason = reason
            return None
        named = {name: sharded.local_of(p) for _, name, p in taken.slots}
        pack = _Pack(taken, x.dtype, self.plan.make(named, self.options.bits))
        if self._measures(module) and not self._is_faster(module, x, index, weights, pack):
            return None
        now = gathered.gathered_of([module])
        if now is not None and not now.kept:
            self.reason = None if self.options.tune == "measure" else packs_in_vain(x.shape[0], x.dtype)
            return None if self.reason is not None else pack.experts(x, index, weights, taken.given)
        self._pack = pack
        return pack.experts(x, index, weights, taken.given)

    def _take(self, module: nn.Module) -> "Taken | str":
        plan, own = self.plan, module._parameters
        slots = [(own, name, own.get(name)) for name in plan.names()]
        is_split = isinstance(self.split_of(module), sharded.ExpertsSplit)
        for _, name, p in slots:
            if type(p) is not _Parameter and not (is_split and sharded.is_dtensor(p) and not p.is_inference()):
                return f"{name} is a {type(p).__name__}"
        given = [sharded.local_of(p) for _, _, p in slots]
        whole = tuple(p for _, _, p in slots) if is_split else ()
        now = gathered.gathered_of([module])
        sources = tuple((p, p._version) for p in whole) + (() if now is None else now.sources)
        if len([p for p in own.values() if p is not None]) != len(given):
            return "changed since it was fused: it has other parameters"
        up = sharded.local_of(own[plan.up])
        hidden = plan.hidden * (2 if plan.gated and plan.gate is None else 1)
        wanted = (plan.experts, plan.columns, hidden) if plan.transposed else (plan.experts, hidden, plan.columns)
        if tuple(up.shape) != wanted:
            return f"changed since it was fused: {plan.up} is {list(up.shape)}"
        weights = given[: len(plan.weights())]
        return Taken(module, slots, weights, given[len(weights) :], given, plan.columns, whole, sources)

    def _is_faster(self, module: nn.Module, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, pack: _Pack) -> bool:
        rows = x.shape[0]
        shapes = " ".join("x".join(str(n) for n in w.shape) for w in pack.taken.weights)
        key = choose.key(f"{self.plan}; {index.shape[-1]} of a token", shapes, rows, x.dtype, self.options.bits)
        faster = choose.known(key)
        if faster is None:
            own = type(module)._epilogue_own
            with torch.no_grad():
                faster = choose.measure(
                    key, lambda: own(module, x, index, weights), lambda: pack.experts(x, index, weights, pack.taken.given)
                )
        if not faster:
            self.reason = f"PyTorch is faster at {rows} rows (measured)"
        return faster


def _unrouted(x: torch.Tensor, index: typing.Any, weights: typing.Any) -> "str | None":
    """Why this is no routing that the op takes: the module says what it wants."""
    if type(index) is not _Tensor or type(weights) is not _Tensor or not index.is_cpu or not weights.is_cpu:
        return "the routing is no plain tensor on the CPU"
    if index.dtype not in _INDICES or (weights.dtype is not torch.float32 and weights.dtype is not x.dtype):
        return f"the routing is {index.dtype} and {weights.dtype}"
    if x.dim() != 2 or index.dim() != 2 or index.shape != weights.shape or index.shape[0] != x.shape[0] or weights.layout is not _strided:
        return f"x {list(x.shape)} does not fit the routing {list(index.shape)} and {list(weights.shape)}"
    return None


@torch.compiler.assume_constant_result
def _is_unchanged(module: nn.Module) -> bool:
    """While Dynamo traces: it guards what the traced code reads beside."""
    state: ExpertsState = module.__dict__[STATE]
    return "forward" not in module.__dict__ and state.store is None and state._changed(module) is None


def _keeps_op(module: nn.Module, args: typing.Any, kwargs: typing.Any) -> bool:
    """Whether the graph of torch.compile gets one op for the experts. Traced by Dynamo."""
    plan = module._epilogue_experts_state.plan
    if tuple(kwargs) != plan.inputs[len(args) :] or len(args) > 3 or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return False
    x, index, weights = (*args, *kwargs.values())
    if unfit(x) is not None or _unrouted(x, index, weights) is not None or getattr(module, plan.up).dtype != x.dtype:
        return False
    for name, value in plan.traits:
        if value != "a function" and getattr(module, name) != value:
            return False
    return not (plan.eval_only and module.training) and _is_unchanged(module)


def _op_of(module: nn.Module, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    state = module._epilogue_experts_state
    plan = state.plan
    gate = None if plan.gate is None else getattr(module, plan.gate)
    gate_bias, up_bias, down_bias = (None if name is None else getattr(module, name) for name in plan.biases)
    return torch.ops.epilogue.mixture.default(
        x, index, weights, getattr(module, plan.up), getattr(module, plan.down), gate, up_bias, down_bias, gate_bias, plan.activation,
        plan.gated, plan.interleaved, plan.transposed, plan.clamp[0], plan.clamp[1], state.options.bits,
    )  # fmt: skip


@made_once
def _experts_class(original: type) -> type:
    own = original.forward

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if is_compiling():
            if not _keeps_op(self, args, kwargs):
                return own(self, *args, **kwargs)
            return _op_of(self, *args, *kwargs.values())
        state: "ExpertsState | None" = self.__dict__.get(STATE)
        if state is None or (args and isinstance(args[0], fx.Proxy)):
            return own(self, *args, **kwargs)  # not fused any more, but a plan holds this function
        if "forward" in self.__dict__ and type(self) is _experts_class(original) and sharded.is_planned_experts(self):
            self.__class__, state.is_split_later = _split_class(original), True  # from the next call on
        out = state.run(self, args, kwargs)
        return own(self, *args, **kwargs) if out is None else out

    return class_of(original, _experts_class, call)


def _within_hooks(module: nn.Module, original: type) -> nn.Module:
    """A view of the module: FSDP2's hooks gather its parameters around a forward that runs fused."""

    def forward(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        out = module.__dict__[STATE].run_split(module, args, kwargs)
        return module.__dict__["forward"](*args, **kwargs) if out is None else out

    view: nn.Module = object.__new__(original)
    object.__setattr__(view, "__dict__", dict(module.__dict__, forward=forward))
    return view


@made_once
def _split_class(original: type) -> type:
    """Of experts that ranks share: __call__ stands around the plan's forward."""

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        hooks = any(hooks_of(self))
        if hooks and not is_compiling() and gathered.has_own_hooks(self):
            return original.__call__(_within_hooks(self, original), *args, **kwargs)
        out = None if is_compiling() or hooks else self.__dict__[STATE].run_split(self, args, kwargs)
        return original.__call__(self, *args, **kwargs) if out is None else out

    return class_of(original, _split_class, call, "__call__")


def is_fused_experts(module: nn.Module) -> bool:
    return STATE in module.__dict__


def bytes_of(module: nn.Module) -> int:
    """What packed copies of its experts take, about."""
    shapes = gathered.shapes_within(module)
    parts = [(name, sharded.local_of(p)) for name, p in module._parameters.items() if p is not None and p.dim() == 3]
    return sum(math.prod(shapes.get(name, p.shape)) * p.element_size() for name, p in parts)


def experts_of(module: nn.Module) -> "ExpertsPlan | NoMatch | None":
    try:
        return match_experts(module)
    except NoMatch as reason:
        return reason


def fuse_experts(
    model: nn.Module, options: "Options", memory: "int | None", left: "int | None", is_fused: "typing.Callable[[nn.Module], bool]"
) -> "int | None":
    """left: how much of the memory packed weights may still take. Returns the same after it."""
    for module in model.modules():
        unfuse_experts(module)
        plan = None if is_fused(module) else experts_of(module)
        if not isinstance(plan, ExpertsPlan):
            continue
        size = bytes_of(module)
        if left is not None and size > left:
            module.__dict__[LEFT] = f"memory={memory}: the packed weights of its experts take {size} bytes"
            continue
        left = None if left is None else left - size
        module.__dict__[STATE] = ExpertsState(plan, options)
        module.__class__ = (_split_class if "forward" in module.__dict__ else _experts_class)(type(module))
    return left


def unfuse_experts(module: nn.Module) -> None:
    unfuse_class(module, STATE)
    module.__dict__.pop(LEFT, None)


def row_of(name: str, module: nn.Module) -> Row:
    state: ExpertsState = module.__dict__[STATE]
    kind = type(module)._epilogue_original.__name__
    size = bytes_of(module)
    split = state.split_of(module)
    part = str(split) if isinstance(split, sharded.ExpertsSplit) else None
    return Row(name, kind, True, str(state.plan), state.fused_calls, state.own_calls, state.reason, bytes=size, part=part)
