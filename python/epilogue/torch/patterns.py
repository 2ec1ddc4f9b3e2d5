# SPDX-License-Identifier: Apache-2.0
"""Descriptions of what runs as one kernel, and the matcher that finds them in an FX graph.

    linear, act, linear                  MLP, plain
    linear, act, mul by linear, linear   gated; both halves may be chunks of one packed linear
    norm(x + mlp(x))                     BERT's result
    x + mlp(norm(x)), x + norm(mlp(norm(x)))   a layer's end: Llama's, GPT-2's, ViT's; Gemma 2's

A description is a tree of patterns, from the result down to the input. Each pattern says what it
expected where it does not match; the reason of the alternative that got furthest is the reason.
"""

import dataclasses
import operator
import typing

from torch import fx

from . import norms
from .nodes import ADD, MUL, Activation, Linear, Nodes, half_of, operands_of
from .norms import Norm


class NoMatch(Exception):
    """Why no description matches."""

    depth = 0.0  # how much had matched


_depth = operator.attrgetter("depth")


@dataclasses.dataclass(frozen=True)
class Found:
    """What a description's names stand for."""

    x: "fx.Node | None" = None
    linears: "dict[str, tuple[fx.Node, Linear]]" = dataclasses.field(default_factory=dict)
    norms: "dict[str, tuple[fx.Node, Norm]]" = dataclasses.field(default_factory=dict)
    activation: "Activation | None" = None
    passed: "tuple[str, ...]" = ()  # paths of dropout that does nothing

    def fail(self, reason: str, further: float = 0.0) -> NoMatch:
        error = NoMatch(reason)
        error.depth = len(self.linears) + len(self.norms) + (self.activation is not None) + further
        return error

    def chain(self) -> "list[Linear]":
        """gate, up, down; or gate_up, down; or fc1, fc2."""
        return [linear for _, (_, linear) in sorted(self.linears.items())]

    @property
    def packed(self) -> bool:
        return PACKED in self.linears

    @property
    def gated(self) -> bool:
        return self.packed or GATE in self.linears


# Names of linear layers, in the order in which kernels take them.
FIRST, PACKED, GATE, UP, DOWN = "0 first", "0 gate and up", "0 gate", "1 up", "2 down"


class Pattern:
    def at(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        """`found`, with what matches at the node. Raises NoMatch."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Input(Pattern):
    """One node, wherever the description has it."""

    def at(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        if found.x is None and isinstance(node, fx.Node):
            return dataclasses.replace(found, x=node)
        stripped, passed = (node, ()) if node is found.x else nodes.strip(node)
        if stripped is not found.x:
            raise found.fail("the first layers do not read the input")
        return dataclasses.replace(found, passed=found.passed + passed)


@dataclasses.dataclass(frozen=True)
class Of(Pattern):
    """A pattern of one operand, after dropout that does nothing."""

    of: Pattern

    def at(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        node, passed = nodes.strip(node)
        return self.step(nodes, node, dataclasses.replace(found, passed=found.passed + passed))

    def step(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Product(Of):
    """A linear layer."""

    name: str = FIRST
    what: str = "the first layer"

    def step(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        linear = nodes.linear(node)
        if linear is None:
            raise found.fail(f"expected nn.Linear or Conv1D as {self.what}, found {nodes.name_of(node)}")
        if found.linears.get(self.name, (node,))[0] is not node:
            raise found.fail(f"{self.what} is not one layer")
        found = dataclasses.replace(found, linears={**found.linears, self.name: (node, linear)})
        return self.of.at(nodes, linear.x, found)


@dataclasses.dataclass(frozen=True)
class Act(Of):
    def step(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        act = nodes.activation(node)
        if act is None:
            last = found.linears[DOWN][1].path or "the last layer"
            raise found.fail(f"no activation that the engine has before {last}, but {nodes.name_of(node)}")
        return self.of.at(nodes, act.source, dataclasses.replace(found, activation=act))


@dataclasses.dataclass(frozen=True)
class Half(Of):
    """Of a tensor that is cut in two; gate first."""

    index: int = 0

    def step(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        half = half_of(node)
        if half is None or half[1] != self.index:
            raise found.fail("the halves of the packed layer are not gate, then up", 0.5 if half is not None else 0.0)
        return self.of.at(nodes, half[0], found)


@dataclasses.dataclass(frozen=True)
class Normed(Of):
    name: str = "pre"
    kinds: "tuple[str, ...]" = ("rms", "layer")

    def step(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        norm = nodes.norm(node)
        if norm is None or norm.kind not in self.kinds:
            module = nodes.module(node)
            known = norm is None and norms.could_be(module)
            raise found.fail(norms.reason_against(module) if known else f"expected a norm, found {nodes.name_of(node)}", known)
        if found.norms.get(self.name, (node,))[0] is not node:
            raise found.fail("the first layers do not read one norm")
        found = dataclasses.replace(found, norms={**found.norms, self.name: (node, norm)})
        return self.of.at(nodes, node.args[0], found)


@dataclasses.dataclass(frozen=True)
class Two(Pattern):
    """A sum or a product of two, in either order."""

    targets: "tuple[typing.Any, ...]"
    a: Pattern
    b: Pattern
    what: str

    def at(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        node, passed = nodes.strip(node)
        found = dataclasses.replace(found, passed=found.passed + passed)
        sides = operands_of(node, self.targets)
        if sides is None:
            raise found.fail(f"{self.what}, but {nodes.name_of(node)}")
        furthest = found.fail(f"{self.what} alone", 0.5)
        for left, right in (sides, sides[::-1]):
            try:
                return self.b.at(nodes, right, self.a.at(nodes, left, found))
            except NoMatch as reason:
                furthest = max(furthest, reason, key=_depth)
        raise furthest


@dataclasses.dataclass(frozen=True)
class AnyOf(Pattern):
    patterns: "tuple[Pattern, ...]"

    def at(self, nodes: Nodes, node: typing.Any, found: Found) -> Found:
        reasons = []
        for pattern in self.patterns:
            try:
                return pattern.at(nodes, node, found)
            except NoMatch as reason:
                reasons.append(reason)
        raise max(reasons, key=_depth)


@dataclasses.dataclass(frozen=True)
class Description:
    pattern: Pattern
    post_form: str = "none"  # of_residual: norm(x + result); of_result: x + norm(result)
    residual: bool = False  # adds x


def _mlp(x: Pattern) -> "tuple[Pattern, Pattern]":
    """The plain form, and any."""
    packed = Product(x, PACKED, "the packed layer")
    what = "neither side of the product is an activation that the engine has"
    plain = Act(Product(x, FIRST, "the first layer"))
    gated = Two(MUL, Act(Product(x, GATE, "the gate")), Product(x, UP, "the second branch"), what)
    chunked = Two(MUL, Act(Half(packed, 0)), Half(packed, 1), what)
    last = "the last layer"
    return Product(plain, DOWN, last), Product(AnyOf((plain, gated, chunked)), DOWN, last)


_X = Input()
_PLAIN, _ANY = _mlp(_X)
_NORMED = _mlp(Normed(_X))[1]
_NO_SUM = "its result is not x + mlp(norm(x))"

PLAIN = (Description(_PLAIN),)
MLP = (Description(_ANY),)
MODULE = (*MLP, Description(Normed(Two(ADD, _X, _ANY, "the norm at the end is not of x + result"), "post", ("layer",)), "of_residual", True))
LAYER = (
    Description(Two(ADD, _X, _NORMED, _NO_SUM), residual=True),
    Description(Two(ADD, _X, Normed(_NORMED, "post"), _NO_SUM), "of_result", True),
)


def match_at(
    descriptions: "tuple[Description, ...]", nodes: Nodes, node: typing.Any, x: "fx.Node | None" = None
) -> "tuple[Description, Found]":
    """The first description whose result `node` is. `x`: the input, if it is known. Raises NoMatch."""
    reasons = []
    for description in descriptions:
        try:
            found = description.pattern.at(nodes, node, Found(x))
            return description, dataclasses.replace(found, passed=tuple(dict.fromkeys(found.passed)))
        except NoMatch as reason:
            reasons.append(reason)
    raise max(reasons, key=_depth)
