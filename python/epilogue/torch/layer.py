# SPDX-License-Identifier: Apache-2.0
"""An MLP with the norm and the residual of the layer around it:

    x + mlp(norm(x))                     Llama's, GPT-2's, ViT's
    x + norm(mlp(norm(x)))               Gemma 2's

The layer's own forward runs as far as the norm. There the fused call gives the layer's result, and
the forward ends: torch.fx showed that nothing but the MLP and the residual follows the norm.
"""

import dataclasses
import dis
import inspect
import typing

import torch
from torch import fx, nn

from . import norms, signals
from .linears import is_linear
from .match import ADD, DTYPES, Matcher, NoMatch, Plan, candidate_method, match, shadow, trace

_TRACED = "_epilogue_traced"
_OTHER = "epilogue_other"  # stands for arguments that forward() does not name
_NO_SUM = "its result is not x + mlp(norm(x))"


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


class LayerTracer(fx.Tracer):
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


class LayerGraph(Matcher):
    """What a layer's forward does."""

    def __init__(self, call: TracedCall) -> None:
        self.root = call.layer
        self.method = "forward"
        self.dropouts: "list[str]" = []
        self.view = _traced_view(call.shadow, call.first, call.others)
        self.tracer = LayerTracer(call.inner, call.dtype)
        self.graph = trace(self.tracer, self.view, "forward")
        call.asked.update(self.tracer.asked)

    def require_dtypes(self, known: "set[fx.Node]") -> None:
        """forward() asked no other nodes for their dtypes than these."""
        if self.tracer.asked - known:
            raise NoMatch("forward() reads a dtype that need not be that of x")


class _LayerMatcher(LayerGraph):
    def __init__(self, call: TracedCall) -> None:
        super().__init__(call)
        self.norm: "fx.Node | None" = None

    def match(self) -> Plan:
        out = next(n for n in self.graph.nodes if n.op == "output").args[0]
        if not isinstance(out, fx.Node):
            raise NoMatch("forward() gives several values")
        if out.target not in ADD or len(out.args) != 2 or out.kwargs:
            raise NoMatch(f"{_NO_SUM}: it ends with {self.name_of(out)}")
        sides = [n for n in out.args if isinstance(n, fx.Node)]
        used_again = [n for n in sides if len(n.users) > 1]
        if len(sides) != 2 or len(used_again) != 1:
            raise NoMatch(_NO_SUM)
        self.x = used_again[0]
        result = sides[1] if sides[0] is self.x else sides[0]
        result, around = self.match_post(self.strip_dropout(result))
        module = self.module(result)
        if module is None or not is_linear(module):
            raise NoMatch(f"{_NO_SUM}: before the sum stands {self.name_of(result)}")
        plan = self.match_mlp(result, dict(around, method="forward", input="", residual=True))
        assert self.norm is not None
        pre = norms.identify(self.module(self.norm))
        if around and "rms" == pre.kind == around["post"].kind and pre.form != around["post"].form:
            raise NoMatch("its norms round in different places")
        self.require_nothing_else(out)
        dropouts = tuple(dict.fromkeys(self.dropouts))
        return dataclasses.replace(plan, pre_norm=str(self.norm.target), pre=pre, dropouts=dropouts, eval_only=True)

    def match_post(self, result: fx.Node) -> "tuple[fx.Node, dict[str, typing.Any]]":
        module = self.module(result)
        post = norms.identify(module) if module is not None and not is_linear(module) else None
        if post is None:
            return result, {}
        return self.strip_dropout(result.args[0]), {"post_norm": str(result.target), "post": post, "post_form": "of_result"}

    def require_input(self, node: typing.Any) -> None:
        node = self.strip_dropout(node)
        module = self.module(node)
        if self.norm is None:
            if not norms.could_be(module) or node.args != (self.x,) or node.kwargs:
                raise NoMatch("the MLP does not read a norm of what is added to its result")
            if norms.identify(module) is None:
                raise NoMatch(norms.reason_against(module))
            self.norm = node
        if node is not self.norm:
            raise NoMatch("the first layers do not read one norm")

    def require_nothing_else(self, out: fx.Node) -> None:
        """The norm is called once, as a child of the layer, and all that comes after it makes the
        result."""
        name = str(self.norm.target)
        of_this = [n for n, m in self.root.named_modules(remove_duplicate=False) if m is self.module(self.norm)]
        calls = [n for n in self.graph.nodes if n.op == "call_module" and n.target == name]
        if "." in name or len(of_this) != 1 or len(calls) != 1:
            raise NoMatch(f"{name} is used more than once, or is no child of the layer")
        tail, todo = {self.x, self.norm}, [out]
        while todo:
            node = todo.pop()
            if node not in tail:
                tail.add(node)
                todo += node.all_input_nodes
        self.require_dtypes(tail)
        kept = {}
        for key, value in self.view.__dict__.items():
            while isinstance(value, fx.proxy.Attribute):  # x.shape makes its node when it is used
                value = value.root
            if isinstance(value, fx.Proxy):
                kept[value.node] = key
        is_after = False
        for node in self.graph.nodes:
            is_after = is_after or node is self.norm
            if is_after and node in kept:
                raise NoMatch(f"after {name} it sets self.{kept[node]}")
            if is_after and node.op not in ("output", "get_attr") and node not in tail:
                raise NoMatch(f"after {name} it does more than the MLP: {self.name_of(node)}")


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
    return match_calls(layer, lambda call: _LayerMatcher(call).match())


def match_calls(layer: nn.Module, plan_of: "typing.Callable[[TracedCall], Plan]") -> "tuple[Plan, Call]":
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
