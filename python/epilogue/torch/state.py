# SPDX-License-Identifier: Apache-2.0
"""What a fused module knows beside its weights: its plan, its packed weights, and the checks that
each call makes."""

import dataclasses
import functools
import typing

import torch
from torch import nn

from . import choose, gathered, sharded, signals
from .bound import Bound
from .handle import Around, Handle, NormWeights
from .layer import Call
from .later import plain
from .match import Plan
from .packed import Rounded
from .taken import Taken, misfit, rows_of, take, unfit
from .training import packs_in_vain, products_of, tiles_pay, train_once, trained, unprofitable

if typing.TYPE_CHECKING:
    from .released import Store

_is_autocast_enabled = torch.is_autocast_enabled
_is_grad_enabled = torch.is_grad_enabled
_run = None  # torch.ops.epilogue.fused_mlp.default, once the ops are loaded


@dataclasses.dataclass(frozen=True)
class Options:
    bits: str = ""  # fewer of them, by their name (bits.py)
    training: "bool | str" = False  # "always": whether it gains or not
    tune: str = "model"
    linears: "bool | str" = True  # "always": whether they gain or not
    release: bool = False  # originals are in a file


class _Pack(typing.NamedTuple):
    taken: Taken
    handle: Handle


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
        self.store: "Store | None" = None  # where the weights are if packed ones replace them
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

    def part(self) -> "str | None":
        """Which rank's, under tensor parallelism."""
        return None if self._bound is None or self._bound.split is None else str(self._bound.split)

    def check(self, module: nn.Module) -> "str | None":
        """Why a call now would run the modules themselves, whatever it is given."""
        return self._bind(module) or self._bound.obstacle()

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
        x = plain(x)
        out = self._run_again(module, x)
        if out is not None:
            self.fused_calls += 1
            return out
        reason = self._refuse(module, x)
        if reason is None:
            out = self._run(module, x) if self._bound.split is None else self._run_split(module, x, self._bound.split)
            if out is not None:
                self.fused_calls += 1
                self.settle()
                return out
        else:
            self.reason = reason
        self.own_calls += 1
        return None

    def settle(self) -> None:
        """After a call: weights that packed ones replace need no memory."""
        if self.store is not None:
            self.store.settle(m.weight for m in self._bound.linears)

    def _run_again(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        """run(), where the parameters are those that are packed and gathered or split by nobody; None: there may be more to do."""
        if self.store is not None or _is_grad_enabled() or _is_autocast_enabled("cpu") or unfit(x) is not None or signals.foreign() is not None:
            return None
        pack = self.ready(module, x.dtype, x.shape[-1])
        return None if pack is None else _run(x, pack.handle.number, pack.taken.given)

    def ready(self, module: nn.Module, dtype: torch.dtype, columns: int) -> "_Pack | None":
        """For a call in inference; whoever calls by its handle holds it so long. None: there may be more to do than to call it."""
        bound = self._bound
        if bound is None or self.options.tune == "measure":
            return None
        pack = self._packs.get(dtype)
        if pack is None or pack.taken.whole or pack.taken.sources or columns != pack.taken.columns:
            return None
        if not bound.holds(module) or not pack.taken.holds(bound) or any(bound.hooks) or bound.changed() is not None:
            return None
        return pack

    def _refuse(self, module: nn.Module, x: typing.Any) -> "str | None":
        reason = signals.foreign()
        if reason is not None:
            return reason
        reason = self._bind(module) or self._bound.obstacle()
        return unfit(x) if reason is None and self._bound.split is None else reason

    def _bind(self, module: nn.Module) -> "str | None":
        if self._bound is None or not self._bound.holds(module):
            try:
                self._bound = Bound(module, self.plan)
            except TypeError as error:
                self._bound = None
                return f"changed since it was fused: {error}"
        return None

    def _run_split(self, module: nn.Module, x: typing.Any, split: sharded.Split) -> "torch.Tensor | None":
        """This rank's part of the call, and what joins it with the others."""
        bound, plan = self._bound, self.plan
        last = bound.linears[-1]
        if plan.post is not None:
            self.reason = "the norm of the result follows the sum over ranks"
            return None
        if plan.residual and not (split.local and type(x) is torch.Tensor and split.given == split.output):
            self.reason = "the residual is laid out otherwise than the result"
            return None
        gradients = torch.is_grad_enabled() and (x.requires_grad or any(map(gathered.trains, bound.linears)))
        if gradients and (reason := self._untrainable()) is not None:
            self.reason = reason
            return None
        rows = split.enter(x, gradients)
        reason = rows if isinstance(rows, str) else unfit(rows)
        if reason is not None:
            self.reason = reason
            return None
        bias, residual = gathered.own_of(last).get("bias"), x if plan.residual else None
        return split.run(x, rows, gradients, bound.columns, bias, residual, functools.partial(self._run, module, axes=split.axes_of_rows(x)))

    def _run(
        self, module: nn.Module, x: torch.Tensor, join: "sharded.Join | None" = None, axes: "tuple[int, ...]" = ()
    ) -> "torch.Tensor | None":
        """join: with the other ranks' parts. axes: of a mesh, over which gradients of the weights are summed."""
        global _run
        if _run is None:
            _run = torch.ops.epilogue.fused_mlp.default
        autocast = _is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if autocast else x.dtype
        pack = self._packs.get(dtype)
        now = self._bound.gathered
        if now is not None and not now.kept:
            pack = None
        if pack is not None and pack.taken.holds(self._bound) and x.shape[-1] == pack.taken.columns:
            if (self.options.tune != "measure" or self._bound.split is not None) and not pack.taken.wants_gradients(x):
                given = x if x.dtype is dtype else x.to(dtype)
                out = _run(given, pack.handle.number, pack.taken.given) if join is None else pack.handle(given, pack.taken.given, join)
                if out is not None:
                    return out
        return self._run_anew(module, x, dtype, autocast, join, axes)

    def _run_anew(
        self, module: nn.Module, x: torch.Tensor, dtype: torch.dtype, autocast: bool,
        join: "sharded.Join | None", axes: "tuple[int, ...]",
    ) -> "torch.Tensor | None":  # fmt: skip
        """A call that trains or measures, or that needs weights packed."""
        if autocast and self._bound.sizes:
            self.reason = "autocast around a residual and a norm"
            return None
        bound = self._bound
        is_split = bound.split is not None
        taken = take(bound, bound.linears, bound.norms, bound.transposed[0], is_split, is_split, bound.gathered)
        if isinstance(taken, str):
            self.reason = taken
            return None
        trains = taken.wants_gradients(x)
        reason = self._misfit(x, taken, dtype, autocast) or (self._untrainable() if trains else None)
        if reason is not None:
            self.reason = reason
            return None
        if trains:
            if taken.is_rounded:
                self.reason = "gradients with packed weights"
                return None
            return self._trained(x, dtype, taken, axes)

        once = bound.gathered is not None and not bound.gathered.kept
        if once and self.options.tune != "measure":
            self.reason = packs_in_vain(x.numel() // max(x.shape[-1], 1), dtype)
            if self.reason is not None:
                return None

        def call() -> torch.Tensor:
            given = x if x.dtype is dtype else x.to(dtype)
            pack = None if once else self._packs.get(dtype)
            out = pack.handle(given, taken.given, join) if pack is not None and pack.taken.holds(self._bound) else None
            if out is None:
                pack = _Pack(taken, self._make(dtype, taken))
                out = pack.handle(given, taken.given, join)
                if once:
                    self._packs.clear()
                else:
                    self._packs[dtype] = pack
            return out

        if self.options.tune == "measure" and not is_split and not self._is_faster(module, x, dtype, taken.weights, call):
            return None
        return call()

    def _misfit(self, x: torch.Tensor, taken: Taken, dtype: torch.dtype, autocast: bool) -> "str | None":
        reason = misfit(x, taken, dtype, autocast)
        if reason is not None:
            return reason
        # Norms and a residual take as many columns as x has.
        bound = self._bound
        of_result = taken.weights[-1].shape[1 if bound.transposed[-1] else 0]
        if (self.plan.residual and of_result != taken.columns) or any(m.weight.shape != (taken.columns,) for m, _ in bound.sizes):
            return "the sizes of the norms and of the result are not that of x"
        return None if dtype in self.plan.dtypes else f"with {dtype} the layer does something else"

    def _trained(self, x: torch.Tensor, dtype: torch.dtype, taken: Taken, axes: "tuple[int, ...]") -> "torch.Tensor | None":
        """The result of a call with gradients; None where PyTorch's own ops are as fast."""
        products = self._products(x, dtype, taken)
        if products is None:
            return None
        plan, transposed = self.plan, tuple(self._bound.transposed)
        return trained(plan, transposed, products, dtype, x, *taken.live(axes))

    def _untrainable(self) -> "str | None":
        if self.plan.inline:
            return "gradients are wanted: a part of a layer has no fused backward pass"
        if self.call is not None:
            return "gradients are wanted: the norm and the residual run by themselves"
        if not self.options.training:
            return "gradients are wanted: fuse(model, training=True)"
        if self._bound.sizes or self.options.bits:
            return "gradients of a residual and a norm, or of fewer bits"
        return None

    def _products(self, x: torch.Tensor, dtype: torch.dtype, taken: Taken) -> "str | None":
        """Whose products a call with gradients takes; None where PyTorch's own ops are as fast."""
        weights = taken.weights
        rows = x.numel() // max(x.shape[-1], 1)
        if self.options.training == "always":
            return "engine" if tiles_pay(dtype, rows) else products_of(dtype)
        if self.options.tune != "measure" or self._bound.split is not None:  # ranks must choose alike
            reason = unprofitable(dtype)
            if reason is None:
                return products_of(dtype)
            if tiles_pay(dtype, rows):
                return "engine"
            self.reason = reason
            return None
        names = ("own", "torch", "engine")
        cast = " of f32" if weights[0].dtype is not dtype else ""  # under autocast
        key = choose.key(str(self.plan), self._shapes(weights), rows, dtype, "") + cast + " | training"
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

    def _make(self, dtype: torch.dtype, taken: Taken) -> Handle:
        bound = self._bound
        rows = rows_of(taken.weights, bound.transposed)
        offsets = list(taken.biases)
        if self.plan.packed:
            first = rows[0]
            if isinstance(first, Rounded):
                half = first.steps.shape[0] // 2
                rows[:1] = [first.outputs(0, half), first.outputs(half, 2 * half)]
            else:
                half = first.shape[0] // 2
                rows[:1] = [first[:half], first[half:]]
            offsets[:1] = [None, None] if offsets[0] is None else [offsets[0][:half], offsets[0][half:]]
        options = self.options
        return Handle(rows, offsets, self.plan.engine_activation(), dtype, options.bits, self._around(), taken.given)

    def _around(self) -> Around:
        plan = self.plan
        pre, post = (
            None if module is None else NormWeights(norm, module.weight, getattr(module, "bias", None))
            for module, norm in zip(self._bound.norms, (plan.pre, plan.post))
        )
        return Around(pre, plan.residual and self._bound.split is None, plan.post_form, post)

    def _is_faster(
        self, module: nn.Module, x: torch.Tensor, dtype: torch.dtype, weights: "list[torch.Tensor]",
        fused: "typing.Callable[[], torch.Tensor]",
    ) -> bool:  # fmt: skip
        rows = x.numel() // max(x.shape[-1], 1)
        key = choose.key(str(self.plan), self._shapes(weights), rows, dtype, self.options.bits)
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
