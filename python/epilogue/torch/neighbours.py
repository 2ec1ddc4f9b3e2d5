# SPDX-License-Identifier: Apache-2.0
"""What stands beside attention in Dynamo's graph, and what Inductor makes slow of it on CPUs.

Masks: Inductor's loops over booleans and 64-bit integers take 10 ns an element, 2.7 of the 32 ms of a Qwen2-shaped model of
four layers and 512 tokens; PyTorch's own ops take 0.5 ns. Cosines and sines of rotary embeddings: Inductor computes them
again for each head that reads them. Behind an op that it does not know, a value is memory, which readers load."""

import math
import operator
import typing

import torch
from torch import fx

from .dynamo import is_written_between
from .nodes import value_of

_COMPARES = {operator.le: "le", operator.lt: "lt", operator.ge: "ge", operator.gt: "gt", operator.eq: "eq", operator.ne: "ne"}
_ALL_OF = (operator.and_, torch.logical_and, torch.bitwise_and)
_SAME = ("expand", "to", "contiguous")  # of a mask, which stays what it is
_VIEWS = (*_SAME, "unsqueeze")
_LEAST_MASK = 1 << 14  # elements: of fewer, Inductor takes as long as an op's call

_WAVES = (torch.cos, torch.sin, "cos", "sin")
# What may follow before a wave is read: one element of one.
_SINGLE = (operator.mul, operator.truediv, torch.mul, "mul", "to", "float", "bfloat16", "half", "type_as", "unsqueeze",
           torch.unsqueeze, "contiguous")  # fmt: skip
_LEAST_READERS = 4  # elements that read each: a copy costs less than three more cosines


@torch.library.custom_op("epilogue::mask", mutates_args=(), device_types="cpu")
def mask(pairs: typing.List[torch.Tensor], compares: str, masks: typing.List[torch.Tensor]) -> torch.Tensor:
    """Where each pair of tensors compares so, and all masks are true. compares: names of torch's functions, a space between them."""
    made = [getattr(torch, name)(pairs[2 * i], pairs[2 * i + 1]) for i, name in enumerate(compares.split())]
    size = torch.broadcast_shapes(*(part.shape for part in (*made, *masks)))
    whole = next((part for part in made if part.shape == size), None)
    result = torch.ones(size, dtype=torch.bool) if whole is None else whole
    for part in (*made, *masks):
        if part is not whole:
            result &= part
    return result


@mask.register_fake
def _(pairs, compares, masks):  # type: ignore[no-untyped-def]
    shapes = [t.shape for t in (*pairs, *masks)]
    return (pairs or masks)[0].new_empty(torch.broadcast_shapes(*shapes), dtype=torch.bool)


@torch.library.custom_op("epilogue::once", mutates_args=(), device_types="cpu")
def once(x: torch.Tensor) -> torch.Tensor:
    """A copy."""
    return x.clone()


@once.register_fake
def _(x):  # type: ignore[no-untyped-def]
    return torch.empty_like(x)


def _elements(node: fx.Node) -> int:
    """Without guards on sizes that vary: those of the graph's first inputs."""
    value = value_of(node)
    return 0 if value is None else math.prod(int(n) if isinstance(n, int) else n.node.hint or 0 for n in value.shape)


def _is_mask(value: "torch.Tensor | None") -> bool:
    return value is not None and value.dtype == torch.bool and value.device.type == "cpu"


class _Conjunction:
    """Comparisons and masks that must all hold, read from the nodes that combine them."""

    def __init__(self, node: fx.Node) -> None:
        self.pairs: "list[fx.Node]" = []
        self.compares: "list[str]" = []
        self.masks: "list[fx.Node]" = []
        self.steps: "list[fx.Node]" = []
        self._read(node)

    def _read(self, node: fx.Node) -> None:
        given = node.args
        values = [value_of(n) for n in given]
        if node.target in _ALL_OF and len(given) == 2 and all(map(_is_mask, values)):
            parts = given
        elif _is_kept(node):
            parts = given[:1]
        else:
            parts = ()
            if node.target in _COMPARES and all(v is not None and v.device.type == "cpu" for v in values):
                self.pairs += given  # type: ignore[arg-type]
                self.compares.append(_COMPARES[node.target])  # type: ignore[index]
                self.steps.append(node)
            else:
                self.masks.append(node)
        for part in parts:
            self._read(part)  # type: ignore[arg-type]


def _is_kept(node: fx.Node) -> bool:
    """Whether a mask stays what it is, size and all."""
    if node.op != "call_method" or node.target not in _SAME:
        return False
    before, after = value_of(node.args[0]), value_of(node)
    return _is_mask(before) and _is_mask(after) and (node.target != "expand" or before.shape == after.shape)  # type: ignore[union-attr]


def _is_view(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _VIEWS
    cut = node.args[1] if node.target is operator.getitem else None
    return isinstance(cut, tuple) and not any(isinstance(n, (int, fx.Node)) for n in cut)


def _viewed(node: fx.Node) -> fx.Node:
    """The mask that `node` is a view of."""
    while _is_view(node) and _is_mask(value_of(node.args[0])):
        node = node.args[0]  # type: ignore[assignment]
    return node


def make_masks(graph: fx.Graph, masks: "typing.Iterable[fx.Node]") -> int:
    """How many of these masks PyTorch's own ops make now."""
    count = 0
    for node in dict.fromkeys(map(_viewed, masks)):
        if not _is_mask(value_of(node)) or _elements(node) < _LEAST_MASK:
            continue
        found = _Conjunction(node)
        # Without comparisons it is memory already.
        if not found.compares or any(is_written_between(step, node) for step in found.steps if step is not node):
            continue
        with graph.inserting_before(node):
            new = graph.call_function(torch.ops.epilogue.mask.default, (found.pairs, " ".join(found.compares), found.masks))
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        count += 1
    return count


def _last_of(node: fx.Node) -> fx.Node:
    """The last of those that make one element of one, each read by the next alone."""
    while len(node.users) == 1:
        (user,) = node.users
        if user.target not in _SINGLE or _elements(user) != _elements(node) or user.args[0] is not node:
            break
        node = user
    return node


def compute_once(graph: fx.Graph) -> int:
    """How many cosines and sines are computed once now."""
    count = 0
    for node in list(graph.nodes):
        value = value_of(node)
        if node.target not in _WAVES or value is None or value.device.type != "cpu":
            continue
        last = _last_of(node)
        same = [u for u in last.users if u.target in _SINGLE and _elements(u) == _elements(last)]
        readers = [u for u in last.users if u not in same] + [r for u in same for r in u.users]
        if sum(map(_elements, readers)) < _LEAST_READERS * _elements(last):
            continue
        with graph.inserting_after(last):
            new = graph.call_function(torch.ops.epilogue.once.default, (last,))
        new.meta = dict(last.meta)
        last.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
        count += 1
    return count
