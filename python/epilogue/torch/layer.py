# SPDX-License-Identifier: Apache-2.0
"""An MLP within a layer's forward, which torch.fx traces. With the norm and the residual around it:

    x + mlp(norm(x))                     Llama's, GPT-2's, ViT's
    x + norm(mlp(norm(x)))               Gemma 2's

The layer's own forward runs as far as the norm. There the fused call gives the layer's result, and
the forward ends: torch.fx showed that nothing but the MLP and the residual follows the norm. Or linear,
act, linear in its midst, of which nothing else reads a part (inline.py runs it).
"""

import dataclasses
import dis
import inspect
import typing

import torch
from torch import fx, nn

from . import norms, signals
from .linears import is_linear
from .match import DTYPES, Plan, candidate_method, match, output_of, plan_of, shadow, trace
from .nodes import Nodes
from .patterns import LAYER, PLAIN, NoMatch, match_at
from .tracing import Tracer

_TRACED = "_epilogue_traced"
_OTHER = "epilogue_other"  # stands for arguments that forward() does not name


@dataclasses.dataclass(frozen=True)
class Call:
    """Which calls of a layer's forward the trace speaks of. Plain data: pickles."""

    names: "tuple[str, ...]"
    # (place, name, default): another value may lead to another path through forward().
    fixed: "tuple[tuple[int, str, typing.Any], ...]" = ()
    takes_more: bool = False  # arguments of other names are handed on, not read

    def obstacle(self, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> "str | None":
        for place, name, default in self.fixed:
            value = args[place] if place < len(args) else kwargs.get(name, default)
            if value is not default:
                return f"called with {name}: the layer may do something else then"
        if not self.takes_more:
            for name in kwargs:
                if name not in self.names:
                    return f"called with {name}, which the layer may read"
        return None


def hooks_of(module: nn.Module) -> "list[typing.Any]":
    return [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks]


def _is_mlp(module: nn.Module) -> bool:
    if candidate_method(module) != "forward":
        return False
    try:
        match(module, "forward")
    except NoMatch:
        return False
    return True


class _OfDtype(fx.Proxy):
    """Says its dtype, so that forward() may ask. What it is asked of is checked later."""

    @property
    def dtype(self) -> torch.dtype:
        self.tracer.asked.add(self.node)
        return self.tracer.dtype


class LayerTracer(Tracer):
    """Looks into what the MLP consists of, and not into attention. Takes results to be of one dtype."""

    def __init__(self, inner: "set[nn.Module]", dtype: torch.dtype) -> None:
        super().__init__()
        self.traced_func_name = _TRACED
        self.inner = inner
        self.dtype = dtype
        self.asked: "set[fx.Node]" = set()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _OfDtype(node, self)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return m not in self.inner


def inner_of(layer: nn.Module) -> "set[nn.Module]":
    """The modules of the layer that an MLP may consist of."""
    found = set()
    for module in layer.modules():
        if module is layer or is_linear(module) or any(hooks_of(module)) or not any(True for _ in module.children()):
            continue
        if sum(is_linear(m) for m in module.modules()) == 1 or _is_mlp(module):
            found.add(module)
    return found


class TracedCall(typing.NamedTuple):
    """How a layer is traced: in eval mode, as this call."""

    layer: nn.Module
    shadow: nn.Module
    inner: "set[nn.Module]"
    first: str  # argument
    others: "dict[str, typing.Any]"
    dtype: torch.dtype
    asked: "set[fx.Node]"  # for their dtypes, in any trace


class _Graph(Nodes):
    """What a layer's forward does."""

    def __init__(self, call: TracedCall) -> None:
        self.view = _traced_view(call.shadow, call.first, call.others)
        self.tracer = LayerTracer(call.inner, call.dtype)
        super().__init__(trace(self.tracer, self.view, "forward"), call.layer)
        call.asked.update(self.tracer.asked)

    def require_dtypes(self, known: "set[fx.Node]") -> None:
        """forward() asked no other nodes for their dtypes than these."""
        if self.tracer.asked - known:
            raise NoMatch("forward() reads a dtype that need not be that of x")

    def kept(self) -> "dict[fx.Node, str]":
        """What modules keep as attributes."""
        found = {}
        for module in self.view.modules():
            for key, value in module.__dict__.items():
                while isinstance(value, fx.proxy.Attribute):  # x.shape makes its node when it is used
                    value = value.root
                if isinstance(value, fx.Proxy):
                    found[value.node] = key
        return found


def _layer_plan(call: TracedCall) -> Plan:
    graph = _Graph(call)
    out = output_of(graph.graph)
    if not isinstance(out, fx.Node):
        raise NoMatch("forward() gives several values")
    description, found = match_at(LAYER, graph, out)
    plan = plan_of(description, found, "forward", eval_only=True)
    if plan.post is not None and "rms" == plan.pre.kind == plan.post.kind and plan.pre.form != plan.post.form:
        raise NoMatch("its norms round in different places")
    _require_nothing_else(graph, found.x, found.norms["pre"][0], out)
    return plan


def _require_nothing_else(graph: _Graph, x: fx.Node, norm: fx.Node, out: fx.Node) -> None:
    """The norm is called once, as a child of the layer, and all that comes after it makes the result."""
    name = str(norm.target)
    of_this = [n for n, m in graph.root.named_modules(remove_duplicate=False) if m is graph.module(norm)]
    calls = [n for n in graph.graph.nodes if n.op == "call_module" and n.target == name]
    if "." in name or len(of_this) != 1 or len(calls) != 1:
        raise NoMatch(f"{name} is used more than once, or is no child of the layer")
    tail, todo = {x, norm}, [out]
    while todo:
        node = todo.pop()
        if node not in tail:
            tail.add(node)
            todo += node.all_input_nodes
    graph.require_dtypes(tail)
    kept = graph.kept()
    is_after = False
    for node in graph.graph.nodes:
        is_after = is_after or node is norm
        if is_after and node in kept:
            raise NoMatch(f"after {name} it sets self.{kept[node]}")
        if is_after and node.op not in ("output", "get_attr") and node not in tail:
            raise NoMatch(f"after {name} it does more than the MLP: {graph.name_of(node)}")


def _inline_plan(call: TracedCall) -> Plan:
    graph = _Graph(call)
    plans = [plan for node in graph.graph.nodes if (plan := _inline_plan_at(graph, node)) is not None]
    if not plans:
        raise NoMatch("forward() has no linear, activation, linear of which nothing else reads a part")
    if len(plans) > 1:
        raise NoMatch(f"forward() has {len(plans)} MLPs; one can be fused")
    return plans[0]


def _inline_plan_at(graph: _Graph, down: fx.Node) -> "Plan | None":
    if graph.linear(down) is None:
        return None
    try:
        description, found = match_at(PLAIN, graph, down)
    except NoMatch:
        return None
    plan = plan_of(description, found, "forward", eval_only=True, inline=True)
    if plan.activation_path is None or not _is_apart(graph, down, plan):
        return None
    after = {down}  # what is computed from the result
    after.update(n for n in graph.graph.nodes if any(i in after for i in n.all_input_nodes))
    graph.require_dtypes(after)
    return plan


def _is_apart(graph: _Graph, down: fx.Node, plan: Plan) -> bool:
    """The modules are called once, and each result between them has one reader."""
    names = (plan.linears[0], str(plan.activation_path), plan.linears[1])
    node, seen = down, [down]
    while str(node.target) != names[0]:
        node = node.args[0] if node.args else node.kwargs["input"]
        if len(node.users) != 1:
            return False
        seen.append(node)
    if graph.kept().keys() & set(seen[1:]):
        return False
    used = [str(n.target) for n in graph.graph.nodes if n not in seen and n.op in ("call_module", "get_attr")]
    modules = [graph.root.get_submodule(name) for name in names]
    shared = [n for n, m in graph.root.named_modules(remove_duplicate=False) if any(m is o for o in modules)]
    is_called_again = any(u == name or u.startswith(name + ".") for u in used for name in names)
    return sorted(shared) == sorted(names) and not is_called_again


def is_layer(module: nn.Module) -> bool:
    """Whether an MLP and a norm are among its children: worth a look."""
    children = list(module.children())
    if isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
        return False
    if any(_is_mlp(child) for child in children):
        return True
    parts = [c for c in children if sum(is_linear(m) for m in c.modules()) == 1]
    return len(parts) >= 2 and any(norms.could_be(c) for c in children)


def _traced_view(layer: nn.Module, first: str, others: "dict[str, typing.Any]") -> nn.Module:
    """The layer in eval mode, with a method of one argument: forward() with the `others`, of which
    those that are Ellipsis are anything."""
    own = own_forward(layer)

    def traced(self: nn.Module, x: fx.Proxy) -> typing.Any:
        given = {
            name: x.tracer.create_proxy("placeholder", name, (), {}) if value is ... else value
            for name, value in others.items()
        }
        return own(self, **{first: x}, **given)

    view = object.__new__(type("Traced", (type(layer),), {_TRACED: traced}))
    object.__setattr__(view, "__dict__", dict(layer.__dict__, training=False))
    return view


def own_forward(layer: nn.Module) -> typing.Callable[..., typing.Any]:
    return getattr(type(layer), "_epilogue_own", type(layer).forward)


def _hands_on(function: typing.Callable[..., typing.Any], name: str) -> bool:
    """Whether a function's **kwargs go to other calls and are not read."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return False
    steps = list(dis.get_instructions(code))
    uses = [i for i, step in enumerate(steps) if step.argval == name or (isinstance(step.argval, tuple) and name in step.argval)]
    return all(steps[i].opname.startswith("LOAD_FAST") and steps[i + 1].opname == "DICT_MERGE" for i in uses)


def match_layer(layer: nn.Module) -> "tuple[Plan, Call]":
    """The plan of a layer with its norm and residual, and of which calls. Raises NoMatch with the reason."""
    return _match_calls(layer, _layer_plan)


def match_inline(module: nn.Module) -> "tuple[Plan, Call]":
    """The plan of linear, activation, linear in forward(), and of which calls. Raises NoMatch."""
    return _match_calls(module, _inline_plan)


def _match_calls(layer: nn.Module, plan_of: "typing.Callable[[TracedCall], Plan]") -> "tuple[Plan, Call]":
    """The plan of a layer's forward, the dtypes and the calls that it holds for."""
    reason = signals.foreign()
    if reason is not None:
        raise NoMatch(reason)
    own = own_forward(layer)
    named = [p for p in inspect.signature(own).parameters.values()][1:]
    more = [p.name for p in named if p.kind is p.VAR_KEYWORD]
    named = [p for p in named if p.kind is not p.VAR_KEYWORD]
    if not named or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in named):
        raise NoMatch("forward() takes arguments that have no names")
    # Ellipsis: anything.
    usual = {p.name: ... if p.default is p.empty else p.default for p in named[1:]}
    traced = TracedCall(layer, shadow(layer, False), set(), named[0].name, usual, torch.float32, set())
    traced = traced._replace(inner=inner_of(traced.shadow))

    def plan_with(free: "typing.Iterable[str]", dtype: torch.dtype = torch.float32) -> Plan:
        return plan_of(traced._replace(others={**usual, **dict.fromkeys(free, ...)}, dtype=dtype))

    def holds(plan: Plan, names: "list[str]", dtype: torch.dtype = torch.float32) -> bool:
        try:
            return plan_with(names, dtype) == plan
        except NoMatch:
            return False

    plan = plan_with(())
    free = [n for n, value in usual.items() if value is not ...]
    if more and _hands_on(own, more[0]):
        free.append(_OTHER)
    if not holds(plan, free):
        free = [n for n in free if holds(plan, [n])]
        free = free if holds(plan, free) else []
    fixed = [(i, p.name, p.default) for i, p in enumerate(named) if i and p.name not in free and p.default is not p.empty]
    dtypes = tuple(d for d in DTYPES if not traced.asked or holds(plan, free, d))
    call = Call(tuple(p.name for p in named), tuple(fixed), _OTHER in free)
    return dataclasses.replace(plan, dtypes=dtypes), call
