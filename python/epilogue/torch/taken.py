# SPDX-License-Identifier: Apache-2.0
"""The parameters of some modules as one call finds them, and whether the engine takes them."""

import typing

import torch
from torch import nn

from .gathered import Gathered, own_of
from .match import DTYPES
from .packed import Rounded, rounded_of
from .sharded import is_dtensor

# Of each call: names of this module, no look-ups by path.
_Tensor, _Parameter, _strided = torch.Tensor, nn.Parameter, torch.strided
_is_grad_enabled = torch.is_grad_enabled


def part_of(p: typing.Any, axes: "tuple[int, ...]") -> torch.Tensor:
    """A DTensor's part on this rank, whose gradient is one summand of that of the whole along these dimensions of its mesh."""
    if not axes:
        return p.to_local()
    from torch.distributed.tensor import Partial

    return p.to_local(grad_placements=[Partial() if i in axes else placement for i, placement in enumerate(p.placements)])


class Taken(typing.NamedTuple):
    owner: typing.Any  # whose modules have them
    slots: "list[tuple[dict[str, typing.Any], str, torch.Tensor | None]]"  # where each was found
    weights: "list[torch.Tensor | Rounded]"  # all of them rounded already, or none
    biases: "list[torch.Tensor | None]"
    given: "list[torch.Tensor]"  # all that are there, those of norms too, but for rounded weights
    columns: int  # of x
    whole: "tuple[torch.Tensor, ...]" = ()  # of which `weights` and `biases` are this rank's part
    # What says that the values changed, with its version: the part of a DTensor has none of its own, nor has what was gathered.
    sources: "tuple[tuple[torch.Tensor, int], ...]" = ()

    def holds(self, owner: typing.Any) -> bool:
        if owner is not self.owner:
            return False
        for own, name, p in self.slots:
            if own.get(name) is not p:
                return False
            if p is not None and type(p) is not _Parameter and not self.whole:
                now = rounded_of(p)  # not where the dtype was changed
                if now is None or all(w is not now for w in self.weights):
                    return False
        for p, version in self.sources:
            if p._version != version:
                return False
        return True

    @property
    def is_rounded(self) -> bool:
        return isinstance(self.weights[0], Rounded)

    def wants_gradients(self, x: torch.Tensor) -> bool:
        return _is_grad_enabled() and (x.requires_grad or self.trains())

    def trains(self) -> bool:
        return any(p.requires_grad for p in self.given) or any(p.requires_grad for p in self.whole)

    def live(self, axes: "tuple[int, ...]" = ()) -> "tuple[list[torch.Tensor], list[torch.Tensor | None]]":
        """Weights and biases that gradients reach. axes: of the mesh of DTensors, over which a gradient is summed."""
        if not self.whole:
            return self.weights, self.biases
        parts = {id(p._local_tensor): part_of(p, axes) for p in self.whole}
        weights, biases = ([None if t is None else parts[id(t)] for t in ts] for ts in (self.weights, self.biases))
        return weights, biases


def take(
    owner: typing.Any, linears: "list[nn.Module]", norms: "list[nn.Module | None]", transposed: bool, is_split: bool = False,
    is_partial: bool = False, gathered: "Gathered | None" = None,
) -> "Taken | str":  # fmt: skip
    """Or why not. transposed: whether the first layer's weight is [in, out]. is_split: parameters of linear layers are DTensors,
    of which this rank's part is taken; is_partial: the last one's bias is added later."""
    slots: "list[tuple[dict[str, typing.Any], str, torch.Tensor | None]]" = []
    for linear in linears:
        own = own_of(linear)
        slots += [(own, "weight", own.get("weight")), (own, "bias", own.get("bias"))]
    weights, biases = ([p for _, name, p in slots if name == kind] for kind in ("weight", "bias"))
    for module in norms:
        if module is not None:
            slots += [(module._parameters, name, p) for name, p in module._parameters.items()]
    of_norms = [p for _, _, p in slots[2 * len(weights) :]]
    whole: "list[torch.Tensor]" = []
    sources = () if gathered is None else gathered.sources
    if is_split:
        parts = [p for p in (*weights, *biases) if p is not None]
        if not all(is_dtensor(p) for p in parts) or any(p.is_inference() for p in parts):
            return "some parameters are DTensors with a version, others are not"
        whole = parts
        sources = (*sources, *((p, p._version) for p in parts))
        weights, biases = ([None if p is None else p._local_tensor for p in ps] for ps in (weights, biases))
        if is_partial:
            biases[-1] = None
    rounded = [rounded_of(p) for p in weights]
    is_rounded = rounded[0] is not None
    if any((r is not None) != is_rounded for r in rounded):
        return "some weights are packed, others are not"
    if is_rounded:
        if any((r.group == 0) != (rounded[0].group == 0) or r.scales.dtype is not rounded[0].scales.dtype for r in rounded):
            return "weights are packed in several ways"
        weights = rounded
    for p in [] if is_rounded or is_split else weights:
        if type(p) is not _Parameter:
            return f"a parameter is a {type(p).__name__}"
    for p in [*([] if is_split else biases), *of_norms]:
        if p is not None and type(p) is not _Parameter:
            return f"a parameter is a {type(p).__name__}"
    given = [p for p in (*([] if is_rounded else weights), *biases, *of_norms) if p is not None]
    columns = weights[0].shape[0 if transposed else 1] if len(weights[0].shape) == 2 else -1
    return Taken(owner, slots, weights, biases, given, columns, tuple(whole), sources)


def rows_of(weights: "typing.Sequence[torch.Tensor | Rounded]", transposed: "typing.Sequence[bool]") -> "list[typing.Any]":
    """Weights as nn.Linear holds them, [out, in]: what is rounded already is held so."""
    return [w if isinstance(w, Rounded) else w.detach().t() if t else w.detach() for w, t in zip(weights, transposed)]


def unfit(x: typing.Any) -> "str | None":
    """Why no fused call takes this input."""
    if type(x) is not _Tensor:
        return f"the input is a {type(x).__name__}"
    if not x.is_cpu or x.layout is not _strided:
        return f"the input is on {x.device} ({x.layout})"
    if x.dtype not in DTYPES:
        return f"the input is {x.dtype}"
    return None if 0 < x.dim() <= 8 else f"the input has {x.dim()} dimensions"


def misfit(x: torch.Tensor, taken: Taken, dtype: torch.dtype, autocast: bool) -> "str | None":
    """Why no handle can be made of the parameters, or takes no such x."""
    first = taken.weights[0].dtype
    if any(w.dtype is not first for w in taken.weights):
        return "parameters of several dtypes, or off the CPU"
    for p in taken.given:
        if p.is_inference():
            return "a parameter was made in inference mode"
        if p.dtype is not first or not p.is_cpu or p.layout is not _strided:
            return "parameters of several dtypes, or off the CPU"
        try:
            has_memory = p.data_ptr() != 0
        except RuntimeError:
            has_memory = False
        if not has_memory:
            return "a parameter has no memory"
    if not autocast and first is not dtype:
        return f"x is {x.dtype}, the weights are {first}"
    if dtype not in DTYPES or first not in DTYPES:
        return f"the engine has no {dtype} of weights of {first}"
    if x.shape[-1] != taken.columns:
        return f"x {list(x.shape)} does not fit the weights: the module says how"
    return None
