# SPDX-License-Identifier: Apache-2.0
"""What a fused module knows beside its weights: its plan, its packed weights, and the checks that
each call makes."""

import dataclasses
import functools
import typing

import torch
from torch import nn

from . import choose, signals
from .bound import Bound
from .handle import Around, Handle, NormWeights
from .layer import Call
from .match import DTYPES, Plan
from .training import products_of, train_once, trained, unprofitable

# Of each call: names of this module, no look-ups by path.
_Tensor, _Parameter, _strided = torch.Tensor, nn.Parameter, torch.strided
_is_autocast_enabled, _is_grad_enabled = torch.is_autocast_enabled, torch.is_grad_enabled
_run = None  # torch.ops.epilogue.fused_mlp.default, once the ops are loaded


@dataclasses.dataclass(frozen=True)
class Options:
    int8_weights: bool = False
    training: "bool | str" = False  # "always": whether it gains or not
    tune: str = "model"


class _Taken(typing.NamedTuple):
    """The parameters of an MLP."""

    bound: Bound  # whose modules have them
    slots: "list[tuple[dict[str, typing.Any], str, torch.Tensor | None]]"  # where each was found
    weights: "list[torch.Tensor]"
    biases: "list[torch.Tensor | None]"
    given: "list[torch.Tensor]"  # all that are there, those of norms too
    columns: int  # of x

    def holds(self, bound: Bound) -> bool:
        if bound is not self.bound:
            return False
        for own, name, p in self.slots:
            if own.get(name) is not p or (p is not None and type(p) is not _Parameter):
                return False
        return True


class _Pack(typing.NamedTuple):
    taken: _Taken
    memory: typing.Any  # where the weights are, and as what
    contents: typing.Any  # what tells of writes
    version: int
    handle: Handle


def _unfit(x: typing.Any) -> str:
    """Why no fused call takes this input."""
    if type(x) is not torch.Tensor:
        return f"the input is a {type(x).__name__}"
    if not x.is_cpu or x.layout is not torch.strided:
        return f"the input is on {x.device} ({x.layout})"
    if x.dtype not in DTYPES:
        return f"the input is {x.dtype}"
    return f"the input has {x.dim()} dimensions"


class State:
    """Of one fused module. Copies and pickles keep the plan and the options, not the weights."""

    def __init__(self, plan: Plan, options: Options, call: "Call | None" = None, apart: "str | None" = None) -> None:
        self.plan = plan
        self.options = options
        self.call = call  # of a layer: the calls that the plan speaks of
        self.apart = apart  # of an MLP: why the norm and the residual around it run by themselves
        self.fused_calls = 0
        self.own_calls = 0
        self.reason: "str | None" = None  # of the last call that ran the module's own forward
        self._bound: "Bound | None" = None
        self._packs: "dict[torch.dtype, _Pack]" = {}  # by dtype of the computation

    def __deepcopy__(self, memo: typing.Any) -> "State":
        return self.__copy__()

    def __copy__(self) -> "State":
        return State(self.plan, self.options, self.call, self.apart)

    def __reduce__(self) -> typing.Any:
        return State, (self.plan, self.options, self.call, self.apart)

    def refresh(self) -> None:
        """Forgets packed weights: the next call packs what the weights are then."""
        self._packs.clear()
        self._bound = None

    def packs(self) -> "tuple[_Pack, ...]":
        """What is packed now."""
        return tuple(self._packs.values())

    def declines(self, layer: nn.Module, args: typing.Any, kwargs: typing.Any) -> bool:
        """Whether a layer's forward has to run to its end, as its own."""
        reason = "the layer is in training mode" if layer.training else self.call.obstacle(args, kwargs)
        if reason is None:
            return False
        self.reason = reason
        self.own_calls += 1
        return True

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        """The fused result; None where the module's own forward has to run."""
        reason = self._refuse(module, x)
        if reason is None:
            out = self._run(module, x)
            if out is not None:
                self.fused_calls += 1
                return out
        else:
            self.reason = reason
        self.own_calls += 1
        return None

    def _refuse(self, module: nn.Module, x: typing.Any) -> "str | None":
        if type(x) is not _Tensor or not x.is_cpu or x.layout is not _strided or x.dtype not in DTYPES or not 0 < x.dim() <= 8:
            return _unfit(x)
        reason = signals.foreign()
        if reason is not None:
            return reason
        if self._bound is None or not self._bound.holds(module):
            try:
                self._bound = Bound(module, self.plan)
            except TypeError as error:
                self._bound = None
                return f"changed since it was fused: {error}"
        return self._bound.obstacle()

    def _take(self) -> "_Taken | None":
        assert self._bound is not None
        slots: "list[tuple[dict[str, typing.Any], str, torch.Tensor | None]]" = []
        for linear in self._bound.linears:
            own = linear._parameters
            slots += [(own, "weight", own.get("weight")), (own, "bias", own.get("bias"))]
        weights, biases = ([p for _, name, p in slots if name == kind] for kind in ("weight", "bias"))
        for module in self._bound.norms:
            if module is not None:
                slots += [(module._parameters, name, p) for name, p in module._parameters.items()]
        for _, name, p in slots:
            if type(p) is not _Parameter and not (p is None and name != "weight"):
                self.reason = f"a parameter is a {type(p).__name__}"
                return None
        norms_own = [p for _, _, p in slots[2 * len(weights) :]]
        given = [p for p in (*weights, *biases, *norms_own) if p is not None]
        columns = self._bound.columns(weights[0]) if weights[0].dim() == 2 else -1
        return _Taken(self._bound, slots, weights, biases, given, columns)

    def _run(self, module: nn.Module, x: torch.Tensor) -> "torch.Tensor | None":
        global _run
        if _run is None:
            _run = torch.ops.epilogue.fused_mlp.default
        autocast = _is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if autocast else x.dtype
        if autocast and self._bound.sizes:
            self.reason = "autocast around a residual and a norm"
            return None
        pack = self._packs.get(dtype)
        taken = pack.taken if pack is not None and pack.taken.holds(self._bound) else self._take()
        if taken is None:
            return None
        try:
            memory = [(p.data_ptr(), p.dtype, p.stride(), p.requires_grad) for p in taken.given]
            contents = [p._version for p in taken.given]
        except RuntimeError:  # of inference mode (no version), or without memory of its own
            self.reason = "a parameter was made in inference mode, or has no memory"
            return None
        contents.append(signals.steps())
        if pack is None or pack.memory != memory:
            taken = self._take()
            reason = self._misfit(x, taken.given, dtype, autocast) or self._misfit_around(taken.weights)
            if reason is not None:
                self.reason = reason
                return None
            self._packs.pop(dtype, None)
            pack = None
        if dtype not in self.plan.dtypes:
            self.reason = f"with {dtype} the layer does something else"
            return None
        if x.shape[-1] != taken.columns:
            self.reason = f"x {list(x.shape)} does not fit the weights: the module says how"
            return None
        if _is_grad_enabled() and (x.requires_grad or any(m[3] for m in memory)):
            reason = self._untrainable()
            if reason is not None:
                self.reason = reason
                return None
            return self._trained(x, dtype, taken)

        def call() -> torch.Tensor:
            now = self._packed(pack, dtype, memory, contents, taken)
            return _run(x if x.dtype is dtype else x.to(dtype), now.handle.number, now.version)

        if self.options.tune == "measure" and not self._is_faster(module, x, dtype, taken.weights, call):
            return None
        if pack is not None and pack.contents == contents and x.dtype is dtype:
            return _run(x, pack.handle.number, pack.version)
        return call()

    def _misfit(
        self, x: torch.Tensor, given: "list[torch.Tensor]", dtype: torch.dtype, autocast: bool
    ) -> "str | None":
        """What no handle can be made of."""
        first = given[0].dtype
        for p in given:
            if p.dtype is not first or not p.is_cpu or p.is_inference() or p.layout is not torch.strided:
                return "parameters of several dtypes, off the CPU, or made in inference mode"
            if p.data_ptr() == 0:
                return "a parameter has no memory"
        if not autocast and first is not dtype:
            return f"x is {x.dtype}, the weights are {first}"
        if dtype not in DTYPES or first not in DTYPES:
            return f"the engine has no {dtype} of weights of {first}"
        return None

    def _misfit_around(self, weights: "list[torch.Tensor]") -> "str | None":
        """Norms and a residual take as many columns as x has."""
        bound = self._bound
        columns = bound.columns(weights[0])
        of_result = weights[-1].shape[1 if bound.transposed[-1] else 0]
        if (self.plan.residual and of_result != columns) or any(m.weight.shape != (columns,) for m, _ in bound.sizes):
            return "the sizes of the norms and of the result are not that of x"
        return None

    def _trained(self, x: torch.Tensor, dtype: torch.dtype, taken: _Taken) -> "torch.Tensor | None":
        """The result of a call with gradients; None where PyTorch's own ops are as fast."""
        products = self._products(x, dtype, taken)
        if products is None:
            return None
        plan, transposed = self.plan, tuple(self._bound.transposed)
        return trained(plan, transposed, products, dtype, x, taken.weights, taken.biases)

    def _untrainable(self) -> "str | None":
        if self.plan.inline:
            return "gradients are wanted: a part of a layer has no fused backward pass"
        if self.call is not None:
            return "gradients are wanted: the norm and the residual run by themselves"
        if not self.options.training:
            return "gradients are wanted: fuse(model, training=True)"
        if self._bound.sizes or self.options.int8_weights:
            return "gradients of a residual and a norm, or of int8 weights"
        return None

    def _products(self, x: torch.Tensor, dtype: torch.dtype, taken: _Taken) -> "str | None":
        """Whose products a call with gradients takes; None where PyTorch's own ops are as fast."""
        weights = taken.weights
        rows = x.numel() // max(x.shape[-1], 1)
        if self.options.training == "always":
            return products_of(dtype)
        if self.options.tune != "measure":
            reason = unprofitable(dtype)
            if reason is None:
                return products_of(dtype)
            self.reason = reason
            return None
        names = ("own", "torch", "engine")
        cast = " of f32" if weights[0].dtype is not dtype else ""  # under autocast
        key = choose.key(str(self.plan), self._shapes(weights), rows, dtype, False) + cast + " | training"
        fastest = choose.known_of(key, names)
        if fastest is None:
            step = functools.partial(train_once, self.plan, tuple(self._bound.transposed), dtype, x, weights, taken.biases)
            fastest = choose.measure_all(key, {name: functools.partial(step, name) for name in names})
        if fastest == "own":
            self.reason = f"PyTorch is faster at {rows} rows with gradients (measured)"
            return None
        return fastest

    @staticmethod
    def _shapes(weights: "list[torch.Tensor]") -> str:
        return " ".join("x".join(str(n) for n in w.shape) for w in weights)

    def _packed(
        self, pack: "_Pack | None", dtype: torch.dtype, memory: typing.Any, contents: typing.Any, taken: _Taken
    ) -> "_Pack":
        """The pack as the weights are now."""
        if pack is not None and pack.contents == contents:
            return pack
        if pack is None:
            pack = self._packs.get(dtype)  # made by the first of two calls of tune="measure"
        if pack is None or pack.memory != memory:
            pack = _Pack(taken, memory, contents, 0, self._make(dtype, taken.weights, taken.biases))
        elif pack.contents != contents:
            pack = _Pack(taken, memory, contents, pack.version + 1, pack.handle)
        self._packs[dtype] = pack
        return pack

    def _make(
        self, dtype: torch.dtype, weights: "list[torch.Tensor]", biases: "list[torch.Tensor | None]"
    ) -> Handle:
        bound = self._bound
        rows = [w.detach().t() if t else w.detach() for w, t in zip(weights, bound.transposed)]
        offsets = list(biases)
        if self.plan.packed:
            half = rows[0].shape[0] // 2
            rows[:1] = [rows[0][:half], rows[0][half:]]
            offsets[:1] = [None, None] if offsets[0] is None else [offsets[0][:half], offsets[0][half:]]
        return Handle(rows, offsets, self.plan.engine_activation(), dtype, self.options.int8_weights, self._around())

    def _around(self) -> Around:
        plan = self.plan
        pre, post = (
            None if module is None else NormWeights(norm, module.weight, getattr(module, "bias", None))
            for module, norm in zip(self._bound.norms, (plan.pre, plan.post))
        )
        return Around(pre, plan.residual, plan.post_form, post)

    def _is_faster(
        self, module: nn.Module, x: torch.Tensor, dtype: torch.dtype, weights: "list[torch.Tensor]",
        fused: "typing.Callable[[], torch.Tensor]",
    ) -> bool:  # fmt: skip
        rows = x.numel() // max(x.shape[-1], 1)
        key = choose.key(str(self.plan), self._shapes(weights), rows, dtype, self.options.int8_weights)
        faster = choose.known(key)
        if faster is None:
            faster = choose.measure(key, lambda: self.run_own(module, x), fused)
        if not faster:
            self.reason = f"PyTorch is faster at {rows} rows (measured)"
        return faster

    def run_own(self, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """What the fused call stands for, by the modules themselves."""
        if self.call is None:
            return getattr(type(module), "_epilogue_own")(module, x)
        bound, plan = self._bound, self.plan
        pre, post = bound.norms
        first, last = bound.linears[0], bound.linears[-1]
        normed = x if pre is None else pre(x)
        hidden = first(normed)
        if plan.packed:
            gate, up = hidden.chunk(2, dim=-1)
            hidden = bound.activation(gate) * up
        elif plan.gated:
            hidden = bound.activation(hidden) * bound.linears[1](normed)
        else:
            hidden = bound.activation(hidden)
        out = last(hidden)
        out = out if post is None else post(out)
        return x + out if plan.residual else out
