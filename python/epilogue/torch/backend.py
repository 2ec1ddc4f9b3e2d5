# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="epilogue"): MLPs as fused kernels, all else by Inductor.

Dynamo's graph is rewritten before AOTAutograd sees it, so that patterns are whole and training is
covered. torch._dynamo.utils.counters["epilogue"] counts what was replaced, and why not.
"""

import operator
import typing

import torch
import torch.nn.functional as F
from torch import fx

from . import activations
from . import functional  # noqa: F401  (registers the ops)
from .match import arguments_of, half_of

_LINEAR = (F.linear, torch._C._nn.linear)
_MUL = (operator.mul, torch.mul, "mul")
_VIEW = ("view", "reshape", torch.reshape)
_MOST_STEPS = 16  # of an activation that is written as single ops


class _Linear(typing.NamedTuple):
    x: fx.Node
    weight: fx.Node
    bias: "fx.Node | None"
    transposed: bool
    nodes: "tuple[fx.Node, ...]"


def _value(node: typing.Any) -> "torch.Tensor | None":
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _linear(node: typing.Any) -> "_Linear | None":
    """`node` as a linear layer: linear, or GPT-2's addmm between two views."""
    if not isinstance(node, fx.Node):
        return None
    if node.target in _LINEAR:
        a = arguments_of(node, ("input", "weight", "bias"))
        return _Linear(a["input"], a["weight"], a.get("bias"), False, (node,))
    if node.target not in _VIEW or not isinstance(node.args[0], fx.Node):
        return None
    product = node.args[0]
    if product.target is not torch.addmm or len(product.args) != 3 or product.kwargs:
        return None
    bias, rows, weight = product.args
    if not isinstance(rows, fx.Node) or rows.target not in _VIEW or len(product.users) != 1:
        return None
    x = rows.args[0]
    before, after, bias_value = _value(x), _value(node), _value(bias)
    if before is None or after is None or bias_value is None or bias_value.dim() != 1:
        return None
    if tuple(before.shape[:-1]) != tuple(after.shape[:-1]):
        return None
    return _Linear(x, weight, bias, True, (node, product, rows))


def _strip_dropout(node: typing.Any) -> typing.Any:
    while isinstance(node, fx.Node) and node.target is F.dropout:
        a = arguments_of(node, ("input", "p", "training", "inplace"))
        if a.get("training", True) and a.get("p", 0.5) != 0:
            return node
        node = a["input"]
    return node


def _is_source(node: typing.Any) -> bool:
    return _linear(node) is not None or half_of(node) is not None


def _activation(node: typing.Any) -> "tuple[str, fx.Node] | None":
    """Name and input, where `node` is an activation of a linear layer's result: one op or several,
    found by their values."""
    steps: "list[fx.Node]" = []
    sources: "set[fx.Node]" = set()
    todo = [node]
    while todo:
        step = todo.pop()
        if not isinstance(step, fx.Node):
            return None
        if step in steps:
            continue
        if _is_source(step):
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
        values = {source: x}
        for n in ordered:
            args = fx.map_arg(n.args, values.__getitem__)
            kwargs = fx.map_arg(n.kwargs, values.__getitem__)
            values[n] = n.target(*args, **kwargs) if n.op == "call_function" else getattr(args[0], n.target)(*args[1:], **kwargs)
        return values[node]

    name = activations.identify(run)
    return (name, source) if name else None


def _fits(x: fx.Node, linears: "list[_Linear]") -> bool:
    values = [_value(n) for linear in linears for n in (linear.weight, linear.bias) if n is not None]
    values.append(_value(x))
    return all(
        v is not None and v.device.type == "cpu" and v.dtype == values[-1].dtype and type(v).__name__ in ("FakeTensor", "Tensor", "Parameter")
        for v in values
    ) and values[-1].dtype in (torch.float32, torch.bfloat16, torch.float16)


def _weight(graph: fx.Graph, linear: _Linear) -> fx.Node:
    return graph.call_method("t", (linear.weight,)) if linear.transposed else linear.weight


def _replace_plain(graph: fx.Graph, node: fx.Node, down: _Linear, hidden: fx.Node, cache: bool) -> bool:
    act = _activation(hidden)
    first = _linear(act[1]) if act else None
    if first is None or not _fits(first.x, [first, down]):
        return False
    with graph.inserting_before(node):
        weights = [_weight(graph, linear) for linear in (first, down)]
        new = graph.call_function(
            torch.ops.epilogue.mlp.default, (first.x, *weights, first.bias, down.bias, act[0], cache)
        )
    return _put(node, new)


def _replace_gated(graph: fx.Graph, node: fx.Node, down: _Linear, hidden: fx.Node, cache: bool) -> bool:
    if hidden.target not in _MUL or len(hidden.args) != 2:
        return False
    for act_side, other in (hidden.args, hidden.args[::-1]):
        act = _activation(_strip_dropout(act_side))
        if act is not None:
            break
    else:
        return False
    halves = half_of(act[1]), half_of(other)
    if halves[0] is not None and halves[1] is not None:
        packed = _linear(halves[0][0])
        if packed is None or halves[0][0] is not halves[1][0] or (halves[0][1], halves[1][1]) != (0, 1):
            return False
        if packed.transposed or not _fits(packed.x, [packed, down]):
            return False
        with graph.inserting_before(node):
            rows = _value(packed.weight).shape[0] // 2
            cut = lambda t, i: None if t is None else graph.call_method("narrow", (t, 0, i * rows, rows))  # noqa: E731
            first = [cut(packed.weight, 0), cut(packed.weight, 1)]
            biases = [cut(packed.bias, 0), cut(packed.bias, 1)]
            x = packed.x
            weights = [*first, _weight(graph, down)]
    else:
        gate, up = _linear(act[1]), _linear(other)
        if gate is None or up is None or gate.x is not up.x or not _fits(gate.x, [gate, up, down]):
            return False
        with graph.inserting_before(node):
            weights = [_weight(graph, linear) for linear in (gate, up, down)]
        biases, x = [gate.bias, up.bias], gate.x
    with graph.inserting_before(node):
        new = graph.call_function(
            torch.ops.epilogue.gated_mlp.default, (x, *weights, *biases, down.bias, act[0], cache)
        )
    return _put(node, new)


def _put(node: fx.Node, new: fx.Node) -> bool:
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    return True


def rewrite(graph_module: fx.GraphModule) -> int:
    """Replaces the MLPs of Dynamo's graph; how many there were."""
    graph = graph_module.graph
    if torch.is_autocast_enabled("cpu") or any("autocast" in str(n.target) for n in graph.nodes):
        return 0  # each linear layer would be cast; the op would not
    trains = torch.is_grad_enabled() and any(
        v.requires_grad for n in graph.nodes if n.op == "placeholder" and (v := _value(n)) is not None
    )
    count = 0
    for node in list(graph.nodes):
        down = _linear(node)
        hidden = _strip_dropout(down.x) if down else None
        if not isinstance(hidden, fx.Node):
            continue
        if _replace_plain(graph, node, down, hidden, not trains) or _replace_gated(graph, node, down, hidden, not trains):
            count += 1
    if count:
        graph.eliminate_dead_code()
        graph.lint()
        graph_module.recompile()
    return count


def compile(graph_module: fx.GraphModule, example_inputs: "list[typing.Any]", **options: typing.Any) -> typing.Any:
    """The backend: for torch.compile(..., backend="epilogue")."""
    from torch._dynamo.utils import counters
    from torch._inductor.compile_fx import compile_fx

    counters["epilogue"]["mlps"] += rewrite(graph_module)
    counters["epilogue"]["graphs"] += 1
    return compile_fx(graph_module, example_inputs, **options)
