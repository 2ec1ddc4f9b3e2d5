# SPDX-License-Identifier: Apache-2.0
"""What single nodes of an FX graph compute, whether torch.fx traced it of a module (its leaves are
modules) or Dynamo made it (its leaves are functions of parameters)."""

import operator
import typing

import torch
import torch.nn.functional as F
from torch import fx, nn

from . import activations, norms
from .linears import is_linear
from .norms import Norm

# Layers that do nothing in eval mode.
PASSIVE = (nn.Dropout, nn.Identity)
ADD = (operator.add, torch.add, "add")
MUL = (operator.mul, torch.mul, "mul")
_LINEAR = (F.linear, torch._C._nn.linear)
_MATMUL = (operator.matmul, torch.matmul, "matmul")
_TURNED = (torch.ops.aten.numpy_T, torch.ops.aten.numpy_T.default, torch.t, "t")
_VIEW = ("view", "reshape", torch.reshape)
_MOST_STEPS = 16  # of an activation that is written as single ops


class Linear(typing.NamedTuple):
    x: fx.Node
    path: "str | None" = None  # of the module
    weight: "fx.Node | None" = None  # of Dynamo's graph, as the two below
    bias: "fx.Node | None" = None
    transposed: bool = False
    bits: str = ""  # fewer of them, for which fuse() was asked


class Activation(typing.NamedTuple):
    name: str  # in activations.KNOWN
    source: fx.Node
    path: "str | None" = None  # of the module; None where it is a function
    numbers: "tuple[torch.SymFloat, ...]" = ()  # it is this activation for their values


def arguments_of(node: fx.Node, names: "tuple[str, ...]") -> "dict[str, typing.Any]":
    """By name, whether they were given by place or by name."""
    return dict(zip(names, node.args), **node.kwargs)


def value_of(node: typing.Any) -> "torch.Tensor | None":
    """The fake tensor of a node of Dynamo's."""
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def half_of(node: typing.Any) -> "tuple[fx.Node, int] | None":
    """(source, index) where `node` is source.chunk(2, -1)[index]."""
    if not isinstance(node, fx.Node) or node.target is not operator.getitem:
        return None
    chunk, index = node.args
    if not isinstance(chunk, fx.Node) or chunk.target not in ("chunk", torch.chunk):
        return None
    given = arguments_of(chunk, ("input", "chunks", "dim"))
    if given.get("chunks") != 2 or given.get("dim") != -1 or index not in (0, 1):
        return None
    return given["input"], index


def operands_of(node: typing.Any, targets: "tuple[typing.Any, ...]") -> "tuple[fx.Node, fx.Node] | None":
    """The two nodes that a sum or a product is of."""
    if not isinstance(node, fx.Node) or node.target not in targets or node.kwargs or len(node.args) != 2:
        return None
    a, b = node.args
    return (a, b) if isinstance(a, fx.Node) and isinstance(b, fx.Node) else None


class Nodes:
    """Of one graph. `root`: the module that it was traced of; None: the graph is Dynamo's."""

    def __init__(self, graph: fx.Graph, root: "nn.Module | None" = None) -> None:
        self.graph = graph
        self.root = root

    def module(self, node: typing.Any) -> "nn.Module | None":
        if self.root is not None and isinstance(node, fx.Node) and node.op == "call_module":
            return self.root.get_submodule(str(node.target))
        return None

    def name_of(self, node: typing.Any) -> str:
        module = self.module(node)
        target = getattr(node, "target", node)
        return type(module).__name__ if module is not None else str(getattr(target, "__name__", target))

    def strip(self, node: typing.Any) -> "tuple[typing.Any, tuple[str, ...]]":
        """The node before inactive dropout, and the paths of the modules that were passed."""
        passed: "list[str]" = []
        while isinstance(node, fx.Node):
            if type(self.module(node)) in PASSIVE:
                passed.append(str(node.target))
                node = node.args[0]
                continue
            given = arguments_of(node, ("input", "p", "training", "inplace")) if node.target is F.dropout else {}
            # Dynamo guards the rate; an attribute that is a number may be written.
            if given.get("training", True) is not False and (self.root is not None or given.get("p", 0.5) != 0):
                break
            node = given["input"]
        return node, tuple(passed)

    def linear(self, node: typing.Any) -> "Linear | None":
        if not isinstance(node, fx.Node):
            return None
        if self.root is None:
            return _product(node) or _function(node) or _addmm(node) or _rounded(node)
        module = self.module(node)
        if module is None or not is_linear(module) or len(node.args) != 1 or node.kwargs:
            return None
        return Linear(node.args[0], str(node.target))

    def norm(self, node: typing.Any) -> "Norm | None":
        module = self.module(node)
        if not norms.could_be(module) or len(node.args) != 1 or node.kwargs:
            return None
        return norms.identify(module)

    def activation(self, node: typing.Any) -> "Activation | None":
        """Where `node` is an activation of one tensor: one module or op, in Dynamo's graph several ops of a linear
        layer's result; found by its values."""
        if not isinstance(node, fx.Node) or node.op not in ("call_module", "call_function", "call_method"):
            return None
        if self.root is None:
            return self._written_out(node)
        if not node.args or not isinstance(node.args[0], fx.Node) or len(node.all_input_nodes) != 1:
            return None
        source, rest, kwargs = node.args[0], node.args[1:], node.kwargs
        module = self.module(node)
        if module is not None:
            # One that has parameters is none, and may be costly to call: a compiled module.
            name = None if any(True for _ in module.parameters()) else activations.identify(module)
            return Activation(name, source, str(node.target)) if name else None
        name = activations.identify(lambda t: _call(node, (t, *rest), kwargs))
        return Activation(name, source) if name else None

    def _written_out(self, node: fx.Node) -> "Activation | None":
        steps: "list[fx.Node]" = []
        sources: "set[fx.Node]" = set()
        numbers: "dict[fx.Node, torch.SymFloat]" = {}
        todo = [node]
        while todo:
            step = todo.pop()
            if step in steps:
                continue
            # A number that is an input of the graph, or computed from such ones (math.pi with dynamic=True), and not
            # read from a tensor.
            number = step.meta.get("example_value")
            if isinstance(number, torch.SymFloat) and number.node.has_hint():
                numbers[step] = number
            elif self.linear(step) is not None or half_of(step) is not None:
                sources.add(step)
            elif step.op in ("call_function", "call_method") and len(steps) < _MOST_STEPS:
                steps.append(step)
                todo += step.all_input_nodes
            else:
                return None
        if len(sources) != 1 or not steps or any(u not in steps for s in steps if s is not node for u in s.users):
            return None
        source = sources.pop()
        ordered = [n for n in node.graph.nodes if n in steps]

        def run(x: torch.Tensor) -> typing.Any:
            values: "dict[fx.Node, typing.Any]" = {n: number.node.hint for n, number in numbers.items()}
            values[source] = x
            return run_steps(ordered, values)[node]

        name = activations.identify(run)
        return Activation(name, source, numbers=tuple(numbers.values())) if name else None


def run_steps(steps: "list[fx.Node]", values: "dict[fx.Node, typing.Any]") -> "dict[fx.Node, typing.Any]":
    """The values of some nodes in their order, beside those that they read."""
    values = dict(values)
    for node in steps:
        values[node] = _call(node, *(fx.map_arg(given, values.__getitem__) for given in (node.args, node.kwargs)))
    return values


def _call(node: fx.Node, args: typing.Any, kwargs: typing.Any) -> typing.Any:
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return node.target(*args, **kwargs)


def _function(node: fx.Node) -> "Linear | None":
    if node.target not in _LINEAR:
        return None
    a = arguments_of(node, ("input", "weight", "bias"))
    return Linear(a["input"], None, a["weight"], a.get("bias"))


def _product(node: fx.Node) -> "Linear | None":
    """Falcon's linear layer: x @ weight.T, and a bias added to it."""
    sides = operands_of(node, ADD)
    if sides is not None:
        product, bias = sides
        found = _product(product) if len(product.users) == 1 else None
        of_bias = value_of(bias)
        if found is None or of_bias is None or found.bias is not None or of_bias.shape != value_of(found.weight).shape[:1]:
            return None
        return found._replace(bias=bias)
    sides = operands_of(node, _MATMUL)
    if sides is None or sides[1].target not in _TURNED or len(sides[1].args) != 1:
        return None
    weight = value_of(sides[1].args[0])
    return Linear(sides[0], None, sides[1].args[0]) if weight is not None and weight.dim() == 2 else None


def _addmm(node: fx.Node) -> "Linear | None":
    """GPT-2's linear layer: addmm between two views."""
    product = node.args[0] if node.target in _VIEW and node.args else None
    if not isinstance(product, fx.Node) or product.target is not torch.addmm or len(product.args) != 3 or product.kwargs:
        return None
    bias, rows, weight = product.args
    if not isinstance(rows, fx.Node) or rows.target not in _VIEW or len(product.users) != 1:
        return None
    x = rows.args[0]
    before, after, bias_value = value_of(x), value_of(node), value_of(bias)
    if before is None or after is None or bias_value is None or bias_value.dim() != 1:
        return None
    if tuple(before.shape[:-1]) != tuple(after.shape[:-1]):
        return None
    return Linear(x, None, weight, bias, True)


def _rounded(node: fx.Node) -> "Linear | None":
    """A layer with fewer bits, as rounded_call.py writes it: the op of one linear layer, and its only result."""
    op = node.args[0] if node.target is operator.getitem and node.args[1] == 0 else None
    if not isinstance(op, fx.Node) or op.target is not torch.ops.epilogue.linears.default or len(op.args) != 4 or op.kwargs:
        return None
    x, weights, biases, bits = op.args
    if len(weights) != 1 or not bits or list(op.users) != [node]:
        return None
    weight = weights[0]
    transposed = weight.target == "t" and len(weight.args) == 1
    return Linear(x, None, weight.args[0] if transposed else weight, biases[0], transposed, bits)
