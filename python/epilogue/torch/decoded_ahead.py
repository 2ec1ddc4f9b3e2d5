# SPDX-License-Identifier: Apache-2.0
"""Layers of one new token that are computed before their turn: with the first of a model's layers those that follow it.

Between two layers there is Python alone: the model's loop, and the look at all that a record read. Its code and data have left the processor's
caches by the next layer, whose weights passed through them; done for all layers at once, it costs a third. So where transformers' own loop
calls one layer after the other, each with the result of the one before and otherwise the same objects, the first call computes the results of
all. Nobody else's code runs between: layers with hooks, with a forward or a __call__ of somebody's own, or in another kind of list are not
computed ahead. Each later call takes its result if it is the call that was foreseen: with the same objects, x as the layer before gave it, and
the cache's layer where it was. Until then the cache has the new rows where nobody reads, and is not longer. A result that nobody takes was in
vain, and is not computed so again before the layer was seen to follow.
"""

import sys
import threading
import types
import typing
import weakref

import torch
from torch import nn

from . import decoded_reads
from .decoded_plan import CALLS_PER_RECORD, Plan, argument, growing_layer, is_same
from .layer import hooks_of

MOST_OFFERS = 4  # of a layer, and one more for each CALLS_PER_RECORD calls that went by its plans
MOST_DUE = 16  # results of one layer, of as many threads
_MOST_FRAMES = 16  # between a layer and the loop that calls it
_BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}
_Arguments = "tuple[typing.Any, ...]"
_ident = threading.get_ident
_call = nn.Module.__call__


def written(x: torch.Tensor) -> "int | torch.Tensor":
    """x's version; the bits of its elements, if it has none."""
    return x.clone().view(_BITS[x.dtype]) if x.is_inference() else x._version


def is_as_written(x: torch.Tensor, before: "int | torch.Tensor") -> bool:
    """For the tensor that written() was given."""
    return x._version == before if type(before) is int else torch.equal(x.view(before.dtype), before)


class Due(typing.NamedTuple):
    """The result of a layer's call that is to come. It holds nothing of the cache: the call may never come."""

    found: typing.Any  # the layer's plan
    before: "Links"  # of the layer before
    x: torch.Tensor
    written: "int | torch.Tensor"
    others: "tuple[tuple[int | str, typing.Any], ...]"  # arguments, but for x and the cache
    at: int  # address of the buffer of keys
    end: int  # the row of it that was written
    out: torch.Tensor

    def place_in(self, module: nn.Module, args: _Arguments, kwargs: "dict[str, typing.Any]") -> typing.Any:
        """The layer of the cache, if this is the call. None: it is another one."""
        plan: Plan = self.found.plan
        given = plan.arguments
        if plan.module is not module or len(args) != given.places or kwargs.keys() != given.names:
            return None
        if argument(given.x, args, kwargs) is not self.x:
            return None
        for at, value in self.others:
            if argument(at, args, kwargs) is not value:
                return None
        layer = growing_layer(argument(given.cache, args, kwargs), plan.index)
        rows = None if layer is None else layer.place_for(plan.keys, plan.values, plan.dtype)
        if rows is None or rows[3] != self.end or rows[0].data_ptr() != self.at:
            return None
        return layer if is_as_written(self.x, self.written) else None


class _Follower(typing.NamedTuple):
    """The layer behind another one, in a list of a model whose forward calls both."""

    layer: "weakref.ref[nn.Module]"
    loop: types.CodeType  # of the forward
    owner: "weakref.ref[nn.Module]"
    name: str  # of the list
    key: str  # of the layer in it

    def get(self) -> "nn.Module | None":
        """If it is there still."""
        layer, owner = self.layer(), self.owner()
        if layer is None or owner is None:
            return None
        layers = owner._modules.get(self.name)
        if type(layers) is not nn.ModuleList or layers._modules.get(self.key) is not layer:
            return None
        return layer


class _Offer(typing.NamedTuple):
    """A layer's call that went by a plan, for the next layer to compare with its own."""

    links: "Links"
    follower: _Follower
    out: "weakref.ref[torch.Tensor]"
    written: "int | torch.Tensor"
    others: "dict[int | str, int]"  # identities


class Links:
    """Of one layer: which one follows it, and its results that are due."""

    def __init__(self) -> None:
        self.follower: "_Follower | None" = None
        self.offer: "_Offer | None" = None
        self.offers = 0
        self.due: "dict[int, Due]" = {}  # by thread
        self.taken = 0

    def take_due(self) -> "Due | None":
        return self.due.pop(_ident(), None) if self.due else None

    def put_due(self, due: Due) -> None:
        self.due[_ident()] = due
        if len(self.due) > MOST_DUE:  # threads that ended in the midst of a step
            self.due.pop(next(iter(self.due)), None)

    def cut(self, name: str) -> None:
        """Nothing of what follows is due, or computed ahead until it was seen to follow again. name: of the layers' states."""
        links: "Links | None" = self
        self.offers += 1  # the others are given back theirs
        while links is not None:
            follower, links.follower = links.follower, None
            if follower is None:  # another thread cut it
                break
            links.offers -= 1
            layer = follower.layer()
            state = None if layer is None else layer.__dict__.get(name)
            links = None if state is None else state.links
            if links is not None:
                links.take_due()

    def next(self, loop: types.CodeType) -> "nn.Module | None":
        """The layer that follows in this loop, if nobody's code is called between."""
        follower = self.follower
        if follower is None or follower.loop is not loop:
            return None
        layer = follower.get()
        if layer is None:  # the list changed
            self.follower = None
        return None if layer is None or is_watched(layer) else layer

    def learn(self, module: nn.Module, name: str, plan: Plan, fused: int, out: torch.Tensor, args: _Arguments, kwargs: "dict[str, typing.Any]") -> None:
        """After a call that went by the plan."""
        may_offer = self.follower is None and self.offers < MOST_OFFERS + fused // CALLS_PER_RECORD
        if self.offer is None and not may_offer:
            return
        given = plan.arguments
        others = {at: id(value) for at, value in (*enumerate(args), *kwargs.items()) if at != given.x}
        offer, self.offer = self.offer, None
        x = argument(given.x, args, kwargs)
        if offer is not None and offer.out() is x and offer.others == others and is_as_written(x, offer.written):
            offer.links.follower = offer.follower
        if not may_offer:
            return
        self.offers += 1
        follower = None if is_watched(module) else _follower_of(module)
        layer = None if follower is None else follower.get()
        state = None if layer is None else layer.__dict__.get(name)
        if follower is not None and state is not None:
            state.links.offer = _Offer(self, follower, weakref.ref(out), written(out), others)


def is_watched(module: nn.Module) -> bool:
    """Whether somebody's code is called with a layer of fuse()'s, but for its parts: hooks, a forward or a __call__ of his own."""
    kind = type(module)
    if "forward" in module.__dict__ or any(hooks_of(module)) or not decoded_reads.is_fused_as_it_was(module):
        return True
    return kind.__call__ is not _call and not decoded_reads.is_of_library(kind.__call__)


def others_of(plan: Plan, args: _Arguments, kwargs: "dict[str, typing.Any]") -> "tuple[tuple[int | str, typing.Any], ...]":
    given = plan.arguments
    return tuple((at, value) for at, value in (*enumerate(args), *kwargs.items()) if at not in (given.x, given.cache))


def is_like(plan: Plan, other: Plan) -> bool:
    """Whether the other one's call with the same objects, but for such an x, is one of this plan."""
    return (
        plan.arguments == other.arguments and plan.sizes == other.sizes and plan.dtype is other.dtype and plan.heads == other.heads
        and plan.rotary == other.rotary and plan.scale == other.scale
        and all(is_same(x, y) for (_, x), (_, y) in zip(plan.arguments.fixed, other.arguments.fixed))
    )  # fmt: skip


def _callers() -> "typing.Iterator[types.FrameType]":
    frame: "types.FrameType | None" = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def is_running(loop: types.CodeType) -> bool:
    """Whether it calls this."""
    return any(frame.f_code is loop for frame in _callers())


def _follower_of(module: nn.Module) -> "_Follower | None":
    """The next one of a list of a model, where the forward that calls the module is transformers' own."""
    for frame in _callers():
        owner = frame.f_locals.get("self") if decoded_reads.is_code_of_library(frame.f_code) else None
        for name, layers in owner._modules.items() if isinstance(owner, nn.Module) else ():
            if type(layers) is nn.ModuleList:
                found = list(layers._modules.items())
                for (_, layer), (key, follower) in zip(found, found[1:]):
                    if layer is module and follower is not module:
                        return _Follower(weakref.ref(follower), frame.f_code, weakref.ref(owner), name, key)
    return None
