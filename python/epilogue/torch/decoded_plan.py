# SPDX-License-Identifier: Apache-2.0
"""A call of one new token that was recorded, and which later calls go by it: what decoded.py and decoded_layer.py run."""

import functools
import typing

import torch
from torch import nn, overrides
from torch.utils import _device

from . import linear_state, norm_state, signals
from .decoded_reads import Reads
from .layer import hooks_of
from .patterns import NoMatch

MOST_PLANS = 8  # of a module: batches, dtypes, with a mask or without
MOST_RECORDS = 32  # of a module, and one more for each CALLS_PER_RECORD calls that went by them
MOST_IN_VAIN = 8
CALLS_PER_RECORD = 64
_Tensor = torch.Tensor
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_function_modes = torch._C._len_torch_function_stack
_modes = getattr(overrides, "_get_current_function_mode_stack", None)
_DeviceContext = getattr(_device, "DeviceContext", None)


class Arguments(typing.NamedTuple):
    """The uses of a call's arguments, each by its keyword or by its place."""

    places: int
    names: "frozenset[str]"
    x: "int | str"
    wave: "int | str | None"  # the pair of cosines and sines
    mask: "int | str | None"
    cache: "int | str"
    fixed: "tuple[tuple[int | str, typing.Any], ...]"  # None, booleans, numbers, names: the same in each call
    unread: "tuple[tuple[int | str, type], ...]"  # tensors, and tuples of them, that nothing of the record depends on


class Plan(typing.NamedTuple):
    """A call that was recorded, and what it read."""

    module: nn.Module  # whose call it is: a shallow copy has the same attributes
    arguments: Arguments
    reads: Reads
    first: linear_state.Ready
    last: linear_state.Ready
    norms: "tuple[nn.Module | None, nn.Module | None]"  # of q's heads, of k's
    columns: "tuple[torch.Size | None, ...]"  # of their weights
    form: int
    eps: float
    rotary: "tuple[torch.Size, torch.dtype, bool] | None"  # sizes and dtype of the cosines, is_wide
    index: int  # of the cache's layer
    sizes: torch.Size  # of x
    dtype: torch.dtype
    heads: int
    keys: torch.Size  # of a token
    values: torch.Size
    scale: "float | None"
    tuple_of: "tuple[typing.Any, ...] | None"  # what follows the output in the result; None: nothing, and no tuple

    @property
    def plan(self) -> "Plan":
        """Itself: whatever Records keeps has a plan."""
        return self

    def is_of(self, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> bool:
        """Whether the call has the arguments of the one that was recorded, but for their elements and the length of a mask."""
        given = self.arguments
        if len(args) != given.places or kwargs.keys() != given.names:
            return False
        x = argument(given.x, args, kwargs)
        if type(x) is not _Tensor or x.shape != self.sizes or x.dtype is not self.dtype or not x.is_cpu:
            return False
        for at, wanted in given.fixed:
            if not is_same(argument(at, args, kwargs), wanted):
                return False
        for at, kind in given.unread:
            if type(argument(at, args, kwargs)) is not kind:
                return False
        if given.mask is not None and not self._is_mask(argument(given.mask, args, kwargs)):
            return False
        if self.rotary is None:
            return True
        both, (sizes, dtype, _) = argument(given.wave, args, kwargs), self.rotary
        return type(both) is tuple and len(both) == 2 and is_wave(both[0], sizes, dtype) and is_wave(both[1], sizes, dtype)  # noqa: PLR2004

    def _is_mask(self, mask: typing.Any) -> bool:
        if type(mask) is not _Tensor or not mask.is_cpu or mask.dtype not in (torch.bool, torch.float32, self.dtype):
            return False
        shape = mask.shape
        return len(shape) == 4 and shape[0] in (1, self.sizes[0]) and shape[1] in (1, self.heads) and shape[2] == 1  # noqa: PLR2004

    def place(self, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> "Place | None":
        """Where the token's keys and values come. None: the cache's update has to take them, or somebody else wants to see the modules."""
        if any(self.reads.hooks) or signals.foreign() is not None:
            return None
        given = self.arguments
        layer = growing_layer(argument(given.cache, args, kwargs), self.index)
        found = None if layer is None else layer.place_for(self.keys, self.values, self.dtype)
        if found is None:
            return None
        if given.mask is not None and argument(given.mask, args, kwargs).shape[3] != found[3] + 1 - found[2]:
            return None
        return Place(layer, found)

    def packs(self) -> "tuple[typing.Any, typing.Any] | None":
        """Of both products. Held until the op returns: other threads may pack anew. None: the forward has to run."""
        first, last = self.first.pack(), self.last.pack()
        return None if first is None or last is None else (first, last)

    def weights(self) -> "list[torch.Tensor | None]":
        """Of the norms."""
        return [None if norm is None else norm._parameters["weight"] for norm in self.norms]

    def wave(self, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> "tuple[typing.Any, typing.Any, bool]":
        """Cosines, sines, is_wide: arguments of the ops."""
        return (None, None, False) if self.rotary is None else (*argument(self.arguments.wave, args, kwargs), self.rotary[2])

    def mask(self, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> "torch.Tensor | None":
        return None if self.arguments.mask is None else argument(self.arguments.mask, args, kwargs)

    def count(self, layer: typing.Any) -> None:
        """After a call: the rows of keys and values are in this layer of the cache."""
        layer.put(1)
        self.first.count()
        self.last.count()
        norm_state.count(*self.norms)

    def is_ready(self) -> bool:
        """Whether a later call may go by it."""
        return self.holds() and self.first.pack() is not None and self.last.pack() is not None

    def holds(self) -> bool:
        """Whether all that the record read is as it was."""
        if not self.reads.hold():
            return False
        return all(norm is None or norm_state.given_of(norm, self.dtype, columns) is not None for norm, columns in zip(self.norms, self.columns))


class Place(typing.NamedTuple):
    layer: typing.Any  # of the cache
    rows: "tuple[torch.Tensor, torch.Tensor, int, int]"  # as place_for() gives them


def is_same(value: typing.Any, wanted: typing.Any) -> bool:
    """An equal number may be another object in each call."""
    return value is wanted or (type(value) is type(wanted) and value == wanted)


def argument(at: "int | str | None", args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> typing.Any:
    return kwargs[at] if type(at) is str else args[at]  # type: ignore[index]


def is_wave(x: typing.Any, sizes: torch.Size, dtype: torch.dtype) -> bool:
    return type(x) is _Tensor and x.shape == sizes and x.dtype is dtype and x.is_cpu and x.stride(2) == 1


@functools.lru_cache(maxsize=None)
def _growing() -> "frozenset[type]":
    from .growing import GROWING

    return frozenset(GROWING.values())


@functools.lru_cache(maxsize=None)
def cache_class() -> type:
    from transformers.cache_utils import DynamicCache

    return DynamicCache


def _has_dynamic_cache(args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> bool:
    return any(type(given) is cache_class() for given in (*args, *kwargs.values()))


def growing_layer(cache: typing.Any, index: int) -> typing.Any:
    """A layer that grows in place; None: the cache's update does something else."""
    if type(cache) is not cache_class() or "update" in cache.__dict__ or getattr(cache, "offloading", False):
        return None
    layers = getattr(cache, "layers", ())  # not in older versions
    if not 0 <= index < len(layers):
        return None
    layer = layers[index]
    return layer if type(layer) in _growing() and "update" not in layer.__dict__ else None


class OtherCall(NoMatch):
    """The record is of use, but not with this plan of attention."""


class Records:
    """Calls of one module that were recorded, and later ones that go by them. Copies and pickles learn anew."""

    name = ""  # of the op
    op: typing.Any = None  # its overload, once a call was recorded

    def __init__(self) -> None:
        self.fused = 0  # calls by a plan
        self.plans: "list[typing.Any]" = []
        self.records = 0
        self.in_vain = 0  # the last of these, one after the other
        self.reason: "str | None" = None  # of the last of them

    def __deepcopy__(self, memo: typing.Any) -> "Records":
        return type(self)()

    def __reduce__(self) -> typing.Any:
        return type(self), ()

    def run(self, module: nn.Module, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> typing.Any:
        """The forward's result, by a plan of such a call. None: the forward has to run; it may have been recorded for later calls."""
        if not is_plain_mode():
            return None
        for found in self.plans:
            plan = found.plan
            if plan.module is module and plan.is_of(args, kwargs):
                place = plan.place(args, kwargs)
                if place is None:
                    return None
                out = self._call(found, place, args, kwargs) if plan.holds() else None
                if out is None:
                    self.plans = [f for f in self.plans if f.plan.is_ready()]  # what is packed for others goes too
                    return None
                self._move_up(found)
                self.fused += 1
                return out
        x = args[0] if args else next(iter(kwargs.values()), None)
        if self.may_record(module) and type(x) is _Tensor and x.dim() == 3 and x.shape[1] == 1 and _has_dynamic_cache(args, kwargs):  # noqa: PLR2004
            self._learn(module, x, args, kwargs)
        return None

    def _call(self, found: typing.Any, place: Place, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> typing.Any:
        """The forward's result by this plan, which holds; None: the forward has to run."""
        raise NotImplementedError

    def _learn(self, module: nn.Module, x: torch.Tensor, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> None:
        """Records a call of x, of one token, if it is worth it."""
        raise NotImplementedError

    def may_record(self, module: nn.Module) -> bool:
        """A record takes some milliseconds, as much as fused calls of half a hundred layers save."""
        if module.training or self.in_vain >= MOST_IN_VAIN or self.records >= MOST_RECORDS + self.fused // CALLS_PER_RECORD:
            return False
        return signals.foreign() is None

    def record(self, module: nn.Module, make: "typing.Callable[[], typing.Any]") -> bool:
        """Makes a plan. Not by older ops, nor while a child has hooks, which may go again."""
        kind = type(self)
        if kind.op is None and hasattr(torch.ops.epilogue, kind.name):
            kind.op = getattr(torch.ops.epilogue, kind.name).default  # not in fuse(): another process may have pickled the model
        if kind.op is None or any(h for child in module._modules.values() if child is not None for h in hooks_of(child)):
            return False
        self.records += 1
        try:
            self.plans = [make(), *self.plans[: MOST_PLANS - 1]]
        except NoMatch as reason:
            self.in_vain += not isinstance(reason, OtherCall)
            self.reason = str(reason)
            return False
        self.in_vain, self.reason = 0, None
        return True

    def _move_up(self, plan: typing.Any) -> None:
        """The plan that was used last is asked first, and goes last."""
        plans = self.plans  # which other threads may replace
        if plans and plans[0] is not plan:
            self.plans = [plan, *(p for p in plans if p is not plan)]


def is_plain_mode() -> bool:
    """Whether nothing is on that wants to see the single ops, or gradients. Not asked while torch.compile traces."""
    if _is_grad_enabled() or _is_autocast_enabled("cpu"):
        return False
    # A default device is a mode that changes no call of the forward's.
    return not _function_modes() or (_modes is not None and all(type(mode) is _DeviceContext for mode in _modes()))
