# SPDX-License-Identifier: Apache-2.0
"""MLPs in Dynamo's graph, by their structure."""

import operator
import typing

import torch
import torch.nn.functional as F
from torch import fx

from . import activations
from .match import arguments_of, half_of

_LINEAR = (F.linear, torch._C._nn.linear)
_MUL = (operator.mul, torch.mul, "mul")
_ADD = (operator.add, torch.add, "add")
_MATMUL = (operator.matmul, torch.matmul, "matmul")
_TURNED = (torch.ops.aten.numpy_T, torch.ops.aten.numpy_T.default, torch.t, "t")
_VIEW = ("view", "reshape", torch.reshape)
_IN_PLACE = {"setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior",
             "ipow", "irshift", "isub", "itruediv", "ixor"}  # fmt: skip
_MOST_STEPS = 16  # of an activation that is written as single ops


class Linear(typing.NamedTuple):
    x: fx.Node
    weight: fx.Node
    bias: "fx.Node | None"
    transposed: bool


class GraphMlp(typing.NamedTuple):
    linears: "tuple[Linear, ...]"  # gate, up, down; or gate_up, down; or fc1, fc2
    activation: str  # a name in activations.KNOWN
    gated: bool
    packed: bool = False  # one linear makes gate and up, gate first
    numbers: "tuple[torch.SymFloat, ...]" = ()  # of the activation: it is this one for their values

    @property
    def x(self) -> fx.Node:
        return self.linears[0].x

    @property
    def weights(self) -> "list[fx.Node]":
        return [linear.weight for linear in self.linears]

    @property
    def biases(self) -> "list[fx.Node | None]":
        return [linear.bias for linear in self.linears]

    @property
    def transposed(self) -> "tuple[bool, ...]":
        return tuple(linear.transposed for linear in self.linears)

    def guard(self) -> None:
        """Lets Dynamo check the numbers' values at each call: with others the graph is made anew."""
        for number in self.numbers:
            number.node.guard_float(__file__, 0)

    def __str__(self) -> str:
        form = "packed" if self.packed else "gated" if self.gated else "plain"
        return f"compiled {form} MLP, {self.activation}"


def value_of(node: typing.Any) -> "torch.Tensor | None":
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _product(node: typing.Any) -> "Linear | None":
    """Falcon's linear layer: x @ weight.T, and a bias added to it."""
    if node.target in _ADD and len(node.args) == 2 and not node.kwargs:
        product, bias = node.args
        found = _product(product) if isinstance(product, fx.Node) and len(product.users) == 1 else None
        of_bias = value_of(bias)
        if found is None or of_bias is None or found.bias is not None or of_bias.shape != value_of(found.weight).shape[:1]:
            return None
        return found._replace(bias=bias)
    if node.target not in _MATMUL or len(node.args) != 2 or node.kwargs:
        return None
    x, turned = node.args
    if not isinstance(turned, fx.Node) or turned.target not in _TURNED or len(turned.args) != 1:
        return None
    weight = value_of(turned.args[0])
    return Linear(x, turned.args[0], None, False) if weight is not None and weight.dim() == 2 else None


def _linear(node: typing.Any) -> "Linear | None":
    """`node` as a linear layer: linear, a product, or GPT-2's addmm between two views."""
    if not isinstance(node, fx.Node):
        return None
    product = _product(node)
    if product is not None:
        return product
    if node.target in _LINEAR:
        a = arguments_of(node, ("input", "weight", "bias"))
        return Linear(a["input"], a["weight"], a.get("bias"), False)
    if node.target not in _VIEW or not isinstance(node.args[0], fx.Node):
        return None
    product = node.args[0]
    if product.target is not torch.addmm or len(product.args) != 3 or product.kwargs:
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
    return Linear(x, weight, bias, True)


def _strip_dropout(node: typing.Any) -> typing.Any:
    while isinstance(node, fx.Node) and node.target is F.dropout:
        a = arguments_of(node, ("input", "p", "training", "inplace"))
        if a.get("training", True) and a.get("p", 0.5) != 0:
            return node
        node = a["input"]
    return node


def _is_source(node: typing.Any) -> bool:
    return _linear(node) is not None or half_of(node) is not None


class _Activation(typing.NamedTuple):
    name: str
    source: fx.Node
    numbers: "tuple[torch.SymFloat, ...]"


def _number_of(node: fx.Node) -> "torch.SymFloat | None":
    """A number that is an input of the graph, or computed from such ones (math.pi with dynamic=True),
    and not read from a tensor."""
    value = node.meta.get("example_value")
    return value if isinstance(value, torch.SymFloat) and value.node.has_hint() else None


def _activation(node: typing.Any) -> "_Activation | None":
    """Where `node` is an activation of a linear layer's result: one op or several, found by their
    values."""
    steps: "list[fx.Node]" = []
    sources: "set[fx.Node]" = set()
    numbers: "dict[fx.Node, torch.SymFloat]" = {}
    todo = [node]
    while todo:
        step = todo.pop()
        if not isinstance(step, fx.Node):
            return None
        if step in steps:
            continue
        number = _number_of(step)
        if number is not None:
            numbers[step] = number
        elif _is_source(step):
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
        for n in ordered:
            args = fx.map_arg(n.args, values.__getitem__)
            kwargs = fx.map_arg(n.kwargs, values.__getitem__)
            values[n] = n.target(*args, **kwargs) if n.op == "call_function" else getattr(args[0], n.target)(*args[1:], **kwargs)
        return values[node]

    name = activations.identify(run)
    return _Activation(name, source, tuple(numbers.values())) if name else None


def _fits(x: fx.Node, linears: "list[Linear]") -> bool:
    values = [value_of(n) for linear in linears for n in (linear.weight, linear.bias) if n is not None]
    values.append(value_of(x))
    return all(
        v is not None and v.device.type == "cpu" and v.dtype == values[-1].dtype and type(v).__name__ in ("FakeTensor", "Tensor", "Parameter")
        for v in values
    ) and values[-1].dtype in (torch.float32, torch.bfloat16, torch.float16)


def _plain(down: Linear, hidden: fx.Node) -> "GraphMlp | None":
    act = _activation(hidden)
    first = _linear(act.source) if act else None
    if act is None or first is None or not _fits(first.x, [first, down]):
        return None
    return GraphMlp((first, down), act.name, False, numbers=act.numbers)


def _gated(down: Linear, hidden: fx.Node) -> "GraphMlp | None":
    if hidden.target not in _MUL or len(hidden.args) != 2:
        return None
    for act_side, other in (hidden.args, hidden.args[::-1]):
        act = _activation(_strip_dropout(act_side))
        if act is not None:
            break
    else:
        return None
    halves = half_of(act.source), half_of(other)
    if halves[0] is not None and halves[1] is not None:
        packed = _linear(halves[0][0])
        if packed is None or halves[0][0] is not halves[1][0] or (halves[0][1], halves[1][1]) != (0, 1):
            return None
        if packed.transposed or not _fits(packed.x, [packed, down]):
            return None
        return GraphMlp((packed, down), act.name, True, True, act.numbers)
    gate, up = _linear(act.source), _linear(other)
    if gate is None or up is None or gate.x is not up.x or not _fits(gate.x, [gate, up, down]):
        return None
    return GraphMlp((gate, up, down), act.name, True, numbers=act.numbers)


def mlp_at(node: fx.Node) -> "GraphMlp | None":
    """The MLP whose result `node` is."""
    down = _linear(node)
    hidden = _strip_dropout(down.x) if down else None
    if not isinstance(hidden, fx.Node):
        return None
    mlp = _plain(down, hidden) or _gated(down, hidden)
    if mlp is None or _is_written_meanwhile(node, steps_of(mlp, node)):
        return None
    return mlp


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


def _is_written_meanwhile(node: fx.Node, steps: "list[fx.Node]") -> bool:
    """Whether another node writes memory between the MLP's first and last: one op for all of it would
    read what was written."""
    own, at = set(steps), node
    while at is not steps[-1]:
        at = at.prev
        if at not in own and _writes(at):
            return True
    return False


def _writes(node: fx.Node) -> bool:
    if node.op not in ("call_function", "call_method"):
        return node.op == "call_module"
    schema = getattr(node.target, "_schema", None)
    name = str(getattr(node.target, "__name__", node.target))
    in_place = getattr(node.target, "__module__", "") == "_operator" and name in _IN_PLACE
    return (
        in_place or (name.endswith("_") and not name.endswith("__")) or (schema is not None and schema.is_mutable)
        or node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True
    )  # fmt: skip
