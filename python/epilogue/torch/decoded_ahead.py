# SPDX-License-Identifier: Apache-2.0
"""Layers of one new token that are computed before their turn: with the first of a model's layers those that follow it.

Between two layers there is Python alone: the model's loop, and the look at all that a record read. Its code and data have left the processor's
caches by the next layer, whose weights passed through them; done for all layers at once, it costs a third. So where a model's own loop calls
one layer after the other, each with the result of the one before and otherwise the same objects, the first call computes the results of
all. Each later call takes its result if it is that call: the same objects, which nobody wrote to, and a cache whose place is as it was. Until
then the cache has the new rows where nobody reads, and is not longer. A result that nobody takes was in vain, and is not computed so again.
"""

import sys
import threading
import types
import typing
import weakref

import torch
from torch import nn

from . import decoded_reads
from .decoded_plan import CALLS_PER_RECORD, Plan, argument, growing_layer
from .layer import hooks_of

MOST_OFFERS = 4  # of a layer, and one more for each CALLS_PER_RECORD calls that went by its plans
_MOST_FRAMES = 16  # between a layer and the loop that calls it
_Arguments = "tuple[typing.Any, ...]"
_ident = threading.get_ident


def written(x: torch.Tensor) -> "int | torch.Tensor":
    """Its version; its elements, if it has none."""
    return x.clone() if x.is_inference() else x._version


def is_as_written(x: torch.Tensor, before: "int | torch.Tensor") -> bool:
    return x._version == before if type(before) is int else torch.equal(x, before)


class Due(typing.NamedTuple):
    """The result of a layer's call that is to come. Of the cache it holds nothing: the call may never come."""

    found: typing.Any  # the layer's plan
    before: "Links"  # of the layer before
    x: torch.Tensor
    written: "int | torch.Tensor"
    others: "tuple[tuple[int | str, typing.Any], ...]"  # arguments, but for x and the cache
    cache: "weakref.ref[typing.Any]"
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
        cache = argument(given.cache, args, kwargs)
        layer = growing_layer(cache, plan.index) if cache is self.cache() else None
        rows = None if layer is None else layer.place_for(plan.keys, plan.values, plan.dtype)
        if rows is None or rows[3] != self.end or rows[0].data_ptr() != self.at:
            return None
        return layer if is_as_written(self.x, self.written) else None


class _Offer(typing.NamedTuple):
    """A layer's call that went by a plan, for the next layer to compare with its own. Identities: the objects live as long as the loop."""

    links: "Links"
    loop: types.CodeType
    out: int
    written: "int | torch.Tensor"
    others: "dict[int | str, int]"


class Links:
    """Of one layer: which one follows it, and its results that are due."""

    def __init__(self) -> None:
        self.follower: "weakref.ref[nn.Module] | None" = None
        self.loop: "types.CodeType | None" = None  # of the model's forward, which calls both
        self.offer: "_Offer | None" = None
        self.offers = 0
        self.due: "dict[int, Due]" = {}  # by thread
        self.taken = 0

    def take_due(self) -> "Due | None":
        return self.due.pop(_ident(), None) if self.due else None

    def put_due(self, due: Due) -> None:
        self.due[_ident()] = due

    def is_left(self) -> bool:
        """Whether nobody took this thread's last result."""
        return self.due.pop(_ident(), None) is not None

    def cut(self, name: str) -> None:
        """Nothing of what follows is computed ahead until it was seen to follow again. name: of the layers' states."""
        links: "Links | None" = self
        self.offers += 1  # the others are given back theirs
        while links is not None and links.follower is not None:
            follower, links.follower = links.follower(), None
            links.offers -= 1
            state = None if follower is None else follower.__dict__.get(name)
            links = None if state is None else state.links

    def next(self) -> "nn.Module | None":
        """The layer that follows in the loop that runs now, if nothing is called between."""
        follower = None if self.follower is None else self.follower()
        if follower is None or is_watched(follower) or not _is_in(self.loop):
            return None
        return follower

    def learn(self, module: nn.Module, name: str, plan: Plan, fused: int, out: torch.Tensor, args: _Arguments, kwargs: "dict[str, typing.Any]") -> None:
        """After a call that went by the plan."""
        may_learn = self.follower is None and self.offers < MOST_OFFERS + fused // CALLS_PER_RECORD
        if self.offer is None and not may_learn:
            return
        given = plan.arguments
        others = {at: id(value) for at, value in (*enumerate(args), *kwargs.items()) if at != given.x}
        offer, self.offer = self.offer, None
        x = argument(given.x, args, kwargs)
        if offer is not None and offer.out == id(x) and offer.others == others and is_as_written(x, offer.written):
            offer.links.follower, offer.links.loop = weakref.ref(module), offer.loop
        if not may_learn:
            return
        self.offers += 1
        loop, follower = _loop_around(module)
        state = None if follower is None else follower.__dict__.get(name)
        if loop is not None and state is not None:
            state.links.offer = _Offer(self, loop, id(out), written(out), others)


def is_watched(module: nn.Module) -> bool:
    """Whether others are called with the module."""
    return "forward" in module.__dict__ or any(hooks_of(module))


def others_of(plan: Plan, args: _Arguments, kwargs: "dict[str, typing.Any]") -> "tuple[tuple[int | str, typing.Any], ...]":
    given = plan.arguments
    return tuple((at, value) for at, value in (*enumerate(args), *kwargs.items()) if at not in (given.x, given.cache))


def is_like(plan: Plan, other: Plan) -> bool:
    """Whether the other one's call with the same objects, but for such an x, is one of this plan."""
    return (
        plan.arguments == other.arguments and plan.sizes == other.sizes and plan.dtype is other.dtype and plan.heads == other.heads
        and plan.rotary == other.rotary and plan.scale == other.scale
    )  # fmt: skip


def _is_in(loop: "types.CodeType | None") -> bool:
    frame: "types.FrameType | None" = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_code is loop:
            return True
        frame = frame.f_back
    return False


def _loop_around(module: nn.Module) -> "tuple[types.CodeType | None, nn.Module | None]":
    """The forward of transformers' own that calls the module, as one of a list; and the next one of the list."""
    frame: "types.FrameType | None" = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        owner = frame.f_locals.get("self") if decoded_reads.is_code_of_library(frame.f_code) else None
        for children in owner._modules.values() if isinstance(owner, nn.Module) else ():
            if isinstance(children, nn.ModuleList):
                layers = list(children._modules.values())
                for layer, follower in zip(layers, layers[1:]):
                    if layer is module:
                        return frame.f_code, follower
        frame = frame.f_back
    return None, None
