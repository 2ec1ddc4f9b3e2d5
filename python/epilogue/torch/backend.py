# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="epilogue"): MLPs and experts as fused kernels, linear layers with packed weights, attention
by tiles, all else by Inductor.

Dynamo's graph is rewritten before AOTAutograd sees it, so that patterns are whole and training is
covered. torch._dynamo.utils.counters["epilogue"] counts what was replaced, and why not.
"""

import collections
import functools
import math
import operator
import typing

import torch
import torch.nn.functional as F
from torch import fx

from . import attention, choose, graph_experts, neighbours, patches
from . import functional  # noqa: F401  (registers the ops)
from .dynamo import GraphMlp, alike, is_written_between, mlp_at, steps_of
from .linear_state import GAINS, LEAST_ELEMENTS, gains_always, loses
from .match import Plan
from .nodes import Linear, Nodes, value_of
from .training import FusedFunction, LinearFunction, apart, products_of, result_of, train_once, unprofitable


# What `counters["epilogue"]` counts beside reasons: ops that it made, and of these with fewer bits.
MADE = ("mlps", "experts", "linears", "patches", "attention", "masks", "computed once")


class Options(typing.NamedTuple):
    """As those of fuse(). training=False leaves graphs with gradients to Inductor; attention=False leaves attention to
    PyTorch, "always" takes it where PyTorch's is as fast too; experts=False leaves experts that fuse() did not change."""

    training: "bool | str" = True
    tune: str = "model"
    linears: "bool | str" = True
    attention: "bool | str" = True
    experts: bool = True


def _options(given: "dict[str, typing.Any]") -> "tuple[Options, dict[str, typing.Any]]":
    """Ours, and Inductor's."""
    rest = dict(given)
    options = Options(**{name: rest.pop(name) for name in Options._fields if name in rest})
    if options.training not in (False, True, "always"):
        raise ValueError(f"training is False, True or 'always', not {options.training!r}")
    if options.tune not in ("model", "measure"):
        raise ValueError(f"tune is 'model' or 'measure', not {options.tune!r}")
    if options.linears not in (False, True, "always"):
        raise ValueError(f"linears is False, True or 'always', not {options.linears!r}")
    if options.attention not in (False, True, "always"):
        raise ValueError(f"attention is False, True or 'always', not {options.attention!r}")
    if options.experts not in (False, True):
        raise ValueError(f"experts is False or True, not {options.experts!r}")
    return options, rest


def trained_linear_node(x: torch.Tensor, weight: torch.Tensor, bias: "torch.Tensor | None", transposed: bool) -> torch.Tensor:
    """The node of a linear layer with gradients."""
    return LinearFunction.apply(transposed, x, weight, bias)


def _linear_at(nodes: Nodes, node: fx.Node) -> "Linear | None":
    """A linear layer of parameters that the engine takes."""
    linear = nodes.linear(node)
    if linear is None or any(n is not None and n.op not in ("placeholder", "get_attr") for n in (linear.weight, linear.bias)):
        return None
    values = alike(linear.x, linear.weight, linear.bias)
    return linear if values is not None and values[1].dim() == 2 and values[0].dim() > 0 else None


def _why_left(linear: Linear, elements: int, trains: bool, options: Options) -> "str | None":
    """Why Inductor runs this linear layer. elements: of the weights of all layers of its input."""
    x = value_of(linear.x)
    if linear.bits:  # asked for at any number of rows
        return "gradients are wanted: layers with fewer bits stay apart" if trains else None
    if trains and not options.training:
        return "gradients: training=False"
    if options.linears == "always" or (trains and options.training == "always"):
        return None
    if trains:
        return unprofitable(x.dtype)
    if gains_always(x.dtype, elements):
        return None
    if any(user.target is F.embedding for user in linear.weight.users):
        return "linear layers: the weight is an embedding's"  # a packed copy would hold it twice
    rows = _rows_of(x)
    if rows is None:
        return "linear layers: PyTorch's own product is as fast, or the number of rows is unknown"
    return None if loses(rows, x.dtype, elements, is_packed=True) is None else "linear layers: PyTorch's own product is as fast"


def _rows_of(x: torch.Tensor) -> "int | None":
    """None: it may change from call to call."""
    sizes = x.shape[:-1]
    return math.prod(sizes) if all(isinstance(n, int) for n in sizes) else None


def _read_here(graph: fx.Graph, linear: Linear) -> Linear:
    """Parameters of a frozen graph are attributes, each read right before its layer: of later ones, behind the op."""
    parts = ((name, getattr(linear, name)) for name in ("weight", "bias"))
    return linear._replace(**{name: graph.node_copy(n) for name, n in parts if n is not None and n.op == "get_attr"})


def _rewrite_linears(graph: fx.Graph, trains: bool, options: Options, counts: "collections.Counter[str]") -> None:
    """Layers of one input become one op, at the place of the first."""
    nodes = Nodes(graph)
    groups: "dict[typing.Any, list[tuple[fx.Node, Linear]]]" = {}
    found: "list[tuple[fx.Node, Linear]]" = []
    elements: "collections.Counter[fx.Node]" = collections.Counter()
    for node in graph.nodes:
        linear = _linear_at(nodes, node)
        if linear is None or any(user.target is operator.add and nodes.linear(user) is not None for user in node.users):
            continue  # of a product and its bias, the sum
        count = value_of(linear.weight).numel()
        if count < LEAST_ELEMENTS and options.linears != "always" and not linear.bits:
            continue
        found.append((node, linear))
        elements[linear.x] += count
    for node, linear in found:
        reason = _why_left(linear, elements[linear.x], trains, options)
        if reason is None:
            groups.setdefault((linear.x, linear.bits), []).append((node, linear))
        else:
            counts[reason] += 1
    for group in groups.values():
        alone = trains or is_written_between(group[0][0], group[-1][0])
        for some in [[one] for one in group] if alone else [group]:
            with graph.inserting_before(some[0][0]):
                some = [(node, _read_here(graph, linear)) for node, linear in some]
                if trains:
                    ((_, one),) = some
                    made = [graph.call_function(trained_linear_node, (one.x, one.weight, one.bias, one.transposed))]
                else:
                    weights = [graph.call_method("t", (one.weight,)) if one.transposed else one.weight for _, one in some]
                    given = (some[0][1].x, weights, [one.bias for _, one in some], some[0][1].bits)
                    op = graph.call_function(torch.ops.epilogue.linears.default, given)
                    made = [graph.call_function(operator.getitem, (op, i)) for i in range(len(some))]
            for (node, _), new in zip(some, made):
                new.meta = dict(node.meta)
                node.replace_all_uses_with(new)
                todo = [node]
                while todo:  # what it consisted of
                    step = todo.pop()
                    if not step.users and (step is node or step.target in _PARTS):
                        todo += [n for n in step.all_input_nodes if n not in todo]
                        graph.erase_node(step)
                counts["linears"] += 1
                counts["fewer bits"] += bool(some[0][1].bits)


def _rewrite_patches(graph: fx.Graph, options: Options, counts: "collections.Counter[str]") -> None:
    for node in list(graph.nodes):
        found = patches.patches_at(node)
        if found is None:
            continue
        x, weight, _ = found
        # No elements: PyTorch's convolutions of f32 are oneDNN's, not MKL's.
        if options.linears == "always" or (gains_always(value_of(x).dtype, 0) and patches.gains(weight)):
            patches.insert(graph, node, *found)
            counts["patches"] += 1


def _rewrite_attention(graph: fx.Graph, options: Options, counts: "collections.Counter[str]") -> None:
    masks = []
    for node in list(graph.nodes):
        found = attention.attention_at(node)
        if found is None or (options.attention is True and not attention.may_gain(found)):
            continue
        reason = None if options.attention == "always" else attention.why_left(found)
        if reason is None:
            attention.insert(graph, node, found)
            counts["attention"] += 1
            if found.mask is not None:
                masks.append(found.mask)
        else:
            counts[reason] += 1
    counts["masks"] = neighbours.make_masks(graph, masks)


# Of a linear layer that is written as several ops.
_PARTS = (torch.addmm, "view", "reshape", torch.reshape, operator.matmul, torch.matmul, "matmul", torch.t, "t",
          torch.ops.aten.numpy_T, torch.ops.aten.numpy_T.default, torch.ops.epilogue.linears.default)  # fmt: skip


def _plan(mlp: GraphMlp) -> Plan:
    names = tuple(f"linear {i}" for i in range(len(mlp.linears)))
    return Plan("forward", "x", names, mlp.activation, None, mlp.gated, mlp.packed)


def trained_mlp(x: torch.Tensor, weights: "list[torch.Tensor]", biases: "list[torch.Tensor | None]",
                transposed: "list[bool]", activation: str, gated: bool, packed: bool, products: str) -> torch.Tensor:  # fmt: skip
    """The node of an MLP with gradients; AOTAutograd sees the ops within."""
    plan = Plan("forward", "x", ("linear",) * len(weights), activation, None, gated, packed)
    return FusedFunction.apply(plan, tuple(transposed), products, x, *weights, *biases)


def _insert_trained(graph: fx.Graph, mlp: GraphMlp, products: str) -> fx.Node:
    values = (mlp.x, mlp.weights, mlp.biases, list(mlp.transposed), mlp.activation, mlp.gated, mlp.packed, products)
    return graph.call_function(trained_mlp, values)


def _insert(graph: fx.Graph, mlp: GraphMlp) -> fx.Node:
    """For inference: the op keeps packed weights."""
    weights: "list[typing.Any]" = [
        graph.call_method("t", (w,)) if t else w for w, t in zip(mlp.weights, mlp.transposed)
    ]
    biases: "list[typing.Any]" = list(mlp.biases)
    if mlp.packed:
        rows = value_of(weights[0]).shape[0] // 2
        cut = lambda t, i: None if t is None else graph.call_method("narrow", (t, 0, i * rows, rows))  # noqa: E731
        weights[:1] = [cut(weights[0], 0), cut(weights[0], 1)]
        biases[:1] = [cut(biases[0], 0), cut(biases[0], 1)]
    given = (mlp.x, weights, biases, _plan(mlp).engine_activation(), mlp.bits)
    return graph.call_function(torch.ops.epilogue.kept_mlp.default, given)


def _like(node: "fx.Node | None") -> "torch.Tensor | None":
    """A tensor of the node's sizes, for the clock."""
    value = value_of(node)
    if value is None:
        return None
    sizes = [int(n) if isinstance(n, int) else n.node.hint for n in value.shape]
    return torch.randn(sizes).to(value.dtype).requires_grad_(value.requires_grad)


def _measured(mlp: GraphMlp, trains: bool, frozen: bool) -> str:
    """"own" (PyTorch's own ops, frozen as Inductor's) or "engine", whichever is faster; known from earlier, or timed now."""
    with torch.utils._python_dispatch._disable_current_modes():
        x, weights, biases = _like(mlp.x), [_like(w) for w in mlp.weights], [_like(b) for b in mlp.biases]
        rows = x.numel() // max(x.shape[-1], 1)
        shapes = " ".join("x".join(str(n) for n in w.shape) for w in weights)
        key = choose.key(str(mlp), shapes, rows, x.dtype, False) + (" | training" if trains else " | frozen" if frozen else "")
        names = ("own", "engine")
        found = choose.known_of(key, names)
        if found is not None:
            return found
        if trains:
            step = functools.partial(train_once, _plan(mlp), mlp.transposed, x.dtype, x, weights, biases)
            return choose.measure_all(key, {name: functools.partial(step, name) for name in names})
        with torch.no_grad():
            plan = _plan(mlp)
            parts = apart(plan, mlp.transposed, [*weights, *biases])
            own = functools.partial(result_of, plan, mlp.transposed, x, weights, biases)
            engine = functools.partial(torch.ops.epilogue.kept_mlp.default, x, *parts, plan.engine_activation())
            return choose.measure_all(key, {"own": _frozen_call(mlp, x, *parts) if frozen else own, "engine": engine})


def _is_packed_by_inductor(mlp: GraphMlp) -> bool:
    """Whether Inductor would run its products of f32 with weights that MKL packed. These, of more rows than memory bounds,
    are the only ones that are as fast as the engine's, on some CPUs and for some sizes."""
    from torch._inductor import config

    x = value_of(mlp.x)
    if x.dtype is not torch.float32 or not config.freezing or not torch._C.has_mkl or products_of(x.dtype) != "torch":
        return False
    rows = _rows_of(x)
    return rows is not None and rows >= GAINS[x.dtype].stop


def _frozen_call(mlp: GraphMlp, x: torch.Tensor, weights: "list[torch.Tensor]",
                 biases: "list[torch.Tensor | None]") -> "typing.Callable[[], torch.Tensor]":  # fmt: skip
    """What Inductor makes of a frozen MLP, in its kernels' number of passes: to compile it would take seconds."""
    rows = x.numel() // x.shape[-1]
    dense = [w.contiguous() for w in weights]
    packed = [torch.ops.mkl._mkl_reorder_linear_weight(w, rows) for w in dense]

    def product(i: int, of: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkl._mkl_linear(of, packed[i], dense[i], biases[i], rows)

    def call() -> torch.Tensor:
        first = product(0, flat)
        up = product(1, flat) if mlp.gated else None
        return product(-1, torch.ops.epilogue.mlp_hidden.default(first, up, mlp.activation))

    flat = x.reshape(rows, -1)
    return call


def _refusal(mlp: GraphMlp, trains: bool, options: Options) -> "str | None":
    """Why Inductor runs this MLP."""
    if mlp.bits:  # asked for
        return "gradients are wanted: layers with fewer bits stay apart" if trains else None
    if trains and not options.training:
        return "gradients: training=False"
    if trains and options.training == "always":
        return None
    frozen = not trains and _is_packed_by_inductor(mlp)
    if options.tune == "measure" or frozen:
        return "PyTorch is faster (measured)" if _measured(mlp, trains, frozen) == "own" else None
    return unprofitable(value_of(mlp.x).dtype) if trains else None


def _rewrite_experts(graph: fx.Graph, trains: bool, options: Options, counts: "collections.Counter[str]") -> int:
    """How many became an op."""
    made = 0
    reasons: "collections.Counter[str]" = collections.Counter()
    for node in list(graph.nodes):
        try:
            found = graph_experts.experts_at(node)
        except graph_experts.Other as reason:
            reasons[str(reason)] += 1
            continue
        if found is not None and trains:
            reasons["experts: gradients are wanted: fuse(model, training=True)"] += 1
        elif found is not None:
            found.guard()
            graph_experts.insert(graph, node, found)
            made += 1
    left = None if made or reasons else graph_experts.why_left(graph)
    counts.update(reasons if left is None else {left: 1})
    return made


def rewrite(graph_module: fx.GraphModule, options: Options = Options()) -> "collections.Counter[str]":
    """Replaces the MLPs of Dynamo's graph; how many it replaced ("mlps"), and how many not, by reason. "experts": those that
    are ops, of a fused model before; "fewer bits": how many linear layers of one, of its MLPs too, have them."""
    counts: "collections.Counter[str]" = collections.Counter(mlps=0)
    graph = graph_module.graph
    if torch.is_autocast_enabled("cpu") or any("autocast" in str(n.target) for n in graph.nodes):
        return counts  # each linear layer would be cast; the op would not
    trains = torch.is_grad_enabled() and any(
        v.requires_grad for n in graph.nodes if n.op == "placeholder" and (v := value_of(n)) is not None
    )
    experts = _rewrite_experts(graph, trains, options, counts) if options.experts else 0
    for node in list(graph.nodes):
        mlp = mlp_at(node)
        if mlp is None:
            continue
        reason = _refusal(mlp, trains, options)
        if reason is not None:
            counts[reason] += 1
            continue
        mlp.guard()
        with graph.inserting_before(node):
            if trains:
                measured = options.tune == "measure" and options.training != "always"
                new = _insert_trained(graph, mlp, "engine" if measured else products_of(value_of(mlp.x).dtype))
            else:
                new = _insert(graph, mlp)
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        for step in steps_of(mlp, node):
            if not step.users:  # not all dead code: a node without users may write in place
                graph.erase_node(step)
        counts["mlps"] += 1
        counts["fewer bits"] += len(mlp.linears) if mlp.bits else 0
    if options.linears:
        _rewrite_linears(graph, trains, options, counts)
    if not trains:
        if options.linears:
            _rewrite_patches(graph, options, counts)
        if options.attention:
            _rewrite_attention(graph, options, counts)
        counts["computed once"] = neighbours.compute_once(graph)
    if experts or any(counts[name] for name in ("mlps", "linears", "patches", "attention", "computed once")):
        graph.lint()
        graph_module.recompile()
    counts["experts"] = sum(node.target is torch.ops.epilogue.mixture.default for node in graph.nodes)
    return collections.Counter({name: n for name, n in counts.items() if n or name == "mlps"})


def compile(
    graph_module: fx.GraphModule,
    example_inputs: "list[typing.Any]",
    *,
    mode: "str | None" = None,
    options: "dict[str, typing.Any] | None" = None,
    name: "str | None" = None,  # of the region, for logs
) -> typing.Any:
    """The backend: for torch.compile(..., backend="epilogue"). `options` are those of Options, and
    Inductor's own; `mode` is Inductor's."""
    from torch._dynamo.utils import counters
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx

    ours, patches = _options(options or {})
    if mode is not None:
        patches = {**list_mode_options(mode), **patches}
    counts = rewrite(graph_module, ours)
    compiled = compile_fx(graph_module, example_inputs, config_patches=patches or None)
    counters["epilogue"].update(counts)  # once: where Inductor makes Dynamo begin again, it raises
    counters["epilogue"]["graphs"] += 1
    return compiled
