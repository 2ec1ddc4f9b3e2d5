# SPDX-License-Identifier: Apache-2.0
"""MLPs in Dynamo's graph: what patterns.MLP describes, of tensors that the engine takes."""

import typing

import torch
from torch import fx

from .match import DTYPES
from .nodes import Linear, Nodes, value_of
from .patterns import MLP, Found, NoMatch, match_at

_IN_PLACE = {"setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior",
             "ipow", "irshift", "isub", "itruediv", "ixor"}  # fmt: skip
_PLAIN = ("FakeTensor", "Tensor", "Parameter", "PackedWeight")  # not a DTensor, say


def alike(*nodes: "fx.Node | None") -> "list[torch.Tensor] | None":
    """The values of nodes that are there, if the engine takes them together: plain tensors on the CPU, of one of its dtypes."""
    values = [value_of(n) for n in nodes if n is not None]
    fits = all(
        v is not None and type(v).__name__ in _PLAIN and v.device.type == "cpu" and v.dtype == values[0].dtype for v in values
    )
    return values if fits and values[0].dtype in DTYPES else None


class GraphMlp:
    def __init__(self, found: Found) -> None:
        self.linears: "list[Linear]" = found.chain()
        self.activation = found.activation.name
        self.gated, self.packed = found.gated, found.packed
        self.x = self.linears[0].x
        self.weights = [linear.weight for linear in self.linears]
        self.biases = [linear.bias for linear in self.linears]
        self.transposed = tuple(linear.transposed for linear in self.linears)
        self.bits = self.linears[0].bits
        self._numbers = found.activation.numbers

    def guard(self) -> None:
        """Lets Dynamo check the numbers' values at each call: with others the graph is made anew."""
        for number in self._numbers:
            number.node.guard_float(__file__, 0)

    def __str__(self) -> str:
        form = "packed" if self.packed else "gated" if self.gated else "plain"
        return f"compiled {form} MLP, {self.activation}"

    def fits(self) -> bool:
        if any(linear.bits != self.bits for linear in self.linears):
            return False
        return alike(self.x, *self.weights, *self.biases) is not None and not (self.packed and self.transposed[0])


def mlp_at(node: fx.Node) -> "GraphMlp | None":
    """The MLP whose result `node` is."""
    nodes = Nodes(node.graph)
    if nodes.linear(node) is None:
        return None
    try:
        mlp = GraphMlp(match_at(MLP, nodes, node)[1])
    except NoMatch:
        return None
    return mlp if mlp.fits() and not is_written_meanwhile(node, steps_of(mlp, node)) else None


def steps_of(mlp: GraphMlp, node: fx.Node) -> "list[fx.Node]":
    """The nodes that make the MLP's result, each after those that read it."""
    given = {mlp.x, *mlp.weights, *mlp.biases}
    found, todo = set(), [node]
    while todo:
        step = todo.pop()
        if step not in found and step not in given and step.op != "placeholder":
            found.add(step)
            todo += step.all_input_nodes
    return [n for n in reversed(node.graph.nodes) if n in found]


def is_written_meanwhile(node: fx.Node, steps: "typing.Sequence[fx.Node]") -> bool:
    """Whether another node writes memory between the last of `steps` and `node`, the first: one op for all of it would
    read what was written."""
    own, at = set(steps), node
    while at is not steps[-1]:
        at = at.prev
        if at not in own and _writes(at):
            return True
    return False


def is_written_between(first: fx.Node, last: fx.Node) -> bool:
    """Whether a node between these writes memory."""
    at = last
    while at is not first:
        at = at.prev
        if at is not first and _writes(at):
            return True
    return False


def _writes(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method"):
        return node.op == "call_module"
    schema = getattr(node.target, "_schema", None)
    name = str(getattr(node.target, "__name__", node.target))
    if getattr(node.target, "__module__", "") == "_operator":
        return name in _IN_PLACE  # and_ and or_ make new tensors
    return (
        (name.endswith("_") and not name.endswith("__")) or (schema is not None and schema.is_mutable)
        or node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True
    )  # fmt: skip
