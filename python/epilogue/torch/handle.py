# SPDX-License-Identifier: Apache-2.0
"""The engine's fused MLP of some weights, released with its owner."""

import collections
import typing
import weakref

import torch

from . import _ops
from .bits import rows_of
from .norms import Norm
from .packed import Rounded

if typing.TYPE_CHECKING:
    from . import sharded

made = 0  # handles, ever: each packs its weights at its first call


class NormWeights(typing.NamedTuple):
    """A norm, with the tensors of a module."""

    norm: Norm
    weight: torch.Tensor
    bias: "torch.Tensor | None"

    def tensors(self) -> "tuple[torch.Tensor | None, torch.Tensor | None]":
        return self.weight.detach(), None if self.bias is None else self.bias.detach()


class Around(typing.NamedTuple):
    """What stands around an MLP."""

    norm: "NormWeights | None" = None  # before
    residual: bool = False
    post: str = "none"  # the engine's PostNorm
    post_norm: "NormWeights | None" = None

    def forms(self) -> "tuple[str, str, str, str]":
        rms = [n.norm.form for n in (self.norm, self.post_norm) if n is not None and n.norm.kind == "rms"]
        kinds = ["none" if n is None else n.norm.kind for n in (self.norm, self.post_norm)]
        return kinds[0], rms[0] if rms else "product", self.post, kinds[1]


class Handle:
    """Packed weights, and the call that uses them. Holds the weights' memory, or goes before it, so that an address
    that is equal is the same memory. It alone finds out whether parameters changed."""

    def __init__(
        self,
        weights: "typing.Sequence[torch.Tensor | Rounded]",
        biases: "typing.Sequence[torch.Tensor | None]",
        activation: str,
        dtype: "torch.dtype | None" = None,
        bits: str = "",
        around: Around = Around(),
        parameters: "typing.Sequence[torch.Tensor] | None" = None,
        borrows: bool = False,
    ) -> None:
        """parameters: those of which the rest are views; by default the weights and biases themselves. Weights that
        are rounded already need a dtype; of `bits` the choice for rows counts. borrows: memory is not held, and the
        handle has to go before it."""
        global made
        made += 1
        if parameters is None:
            parameters = [t for t in (*weights, *biases) if isinstance(t, torch.Tensor)]
        both = (around.norm, around.post_norm)
        norms = [t for n in both for t in ((None, None) if n is None else n.tensors())]
        offsets = [None if b is None else b.detach() for b in biases]
        rest = (norms, around.forms(), [1e-5 if n is None else n.norm.eps for n in both], around.residual)
        ops = torch.ops.epilogue
        with torch.no_grad():
            if isinstance(weights[0], Rounded):
                parts = [[getattr(w, part) for w in weights] for part in ("steps", "scales", "zeros", "inputs", "group")]
                self.number: int = ops.prepare_rounded.default(
                    list(parameters), *parts, offsets, activation, dtype, rows_of(bits), *rest
                )
            else:
                matrices = [w.detach() for w in weights]
                self.number = ops.prepare.default(list(parameters), matrices, offsets, activation, dtype, bits, *rest, borrows)
        self._finalizer = weakref.finalize(self, _ops.releaser("release"), self.number)

    def __call__(
        self, x: torch.Tensor, parameters: "typing.Sequence[torch.Tensor]", join: "sharded.Join | None" = None
    ) -> "torch.Tensor | None":
        """With the parameters as they are now; None if one has other memory than it had. join: with other ranks' parts."""
        if join is not None:
            ops = torch.ops.epilogue
            op = ops.gathered if join.gathers else ops.summed_later if join.later else ops.summed
            return op.default(x, self.number, parameters, *join.given)
        return torch.ops.epilogue.fused_mlp.default(x, self.number, parameters)

    def refresh(self) -> None:
        torch.ops.epilogue.refresh.default(self.number)


class Kept:
    """What calls that name tensors alone have packed of them, by keys. An entry goes with the first of its tensors' storages;
    beyond `most` entries the oldest goes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: "collections.OrderedDict[typing.Any, typing.Any]" = collections.OrderedDict()

    def get(self, key: typing.Any) -> typing.Any:
        return self._entries.get(key)

    def put(self, key: typing.Any, value: typing.Any, tensors: "typing.Iterable[torch.Tensor]") -> None:
        self._entries[key] = value
        for tensor in tensors:
            weakref.finalize(tensor.untyped_storage(), self._entries.pop, key, None).atexit = False
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)
