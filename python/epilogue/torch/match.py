# SPDX-License-Identifier: Apache-2.0
"""Modules that are MLPs by themselves: torch.fx traces one of their methods, patterns.MODULE describes it."""

import dataclasses
import typing

import torch
from torch import fx, nn

from . import activations, patterns
from .linears import is_linear
from .nodes import Nodes
from .norms import Norm
from .patterns import Description, Found, NoMatch
from .tracing import Tracer

# Methods that may hold an MLP by themselves: torch.nn.TransformerEncoderLayer has the second,
# BERT's layer of transformers the third, ALBERT's the last.
METHODS = ("forward", "_ff_block", "feed_forward_chunk", "ff_chunk")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a module's method computes. Paths are relative to the module. Plain data: pickles."""

    method: str
    input: str  # the argument's name
    linears: "tuple[str, ...]"  # gate, up, down; or gate_up, down; or fc1, fc2
    activation: str  # a name in activations.KNOWN
    activation_path: "str | None"  # None where it is a function
    gated: bool
    packed: bool = False  # one linear makes gate and up, gate first
    dropouts: "tuple[str, ...]" = ()
    post_norm: "str | None" = None  # the path of `post`
    post: "Norm | None" = None  # after the last layer
    post_form: str = "none"  # as of Description
    pre_norm: "str | None" = None  # the path of `pre`
    pre: "Norm | None" = None  # of x, before the first layer
    residual: bool = False  # adds x
    eval_only: bool = False  # in training mode the method does something else, such as F.dropout
    inline: bool = False  # the method does more than this: the first layer gives the last one's result
    dtypes: "tuple[torch.dtype, ...]" = DTYPES  # of x; with others the method may do something else

    def engine_activation(self) -> str:
        return activations.GATED[self.activation] if self.gated else self.activation

    def paths(self) -> "tuple[str, ...]":
        """Of all modules that the method calls."""
        extra = [p for p in (self.activation_path, self.pre_norm, self.post_norm) if p is not None]
        return (*self.linears, *extra, *self.dropouts)

    def __str__(self) -> str:
        form = "gated" if self.gated else "plain"
        parts = [f"{form} MLP, {self.activation}: {', '.join(self.linears)}"]
        if self.packed:
            parts.append("packed gate and up")
        if self.pre_norm or self.post_norm:
            parts.append(self.around())
        return "; ".join(parts)

    def around(self) -> str:
        """The norms and the residual."""
        return " and ".join([p for p in (self.pre_norm, self.post_norm) if p] + ["residual"] * self.residual)


def plan_of(description: Description, found: Found, method: str, input: str = "", **more: typing.Any) -> Plan:
    """Of what was found in a module's graph."""
    act = found.activation
    assert act is not None
    (pre, pre_norm), (post, post_norm) = (
        (found.norms[name][1], str(found.norms[name][0].target)) if name in found.norms else (None, None) for name in ("pre", "post")
    )
    linears = tuple(str(linear.path) for linear in found.chain())
    return Plan(method, input, linears, act.name, act.path, found.gated, found.packed, found.passed, post_norm, post,
                description.post_form, pre_norm, pre, description.residual, **more)  # fmt: skip


def shadow(root: nn.Module, training: bool) -> nn.Module:
    """The module in that mode, to be traced: with its parameters, and modules of its own."""
    made: "dict[nn.Module, nn.Module]" = {}

    def of(module: nn.Module) -> nn.Module:
        if module not in made:
            made[module] = object.__new__(type(module))
            children = {k: m if m is None else of(m) for k, m in module._modules.items()}
            object.__setattr__(made[module], "__dict__", dict(module.__dict__, _modules=children, training=training))
        return made[module]

    return of(root)


class _Tracer(Tracer):
    def __init__(self, method: str) -> None:
        super().__init__()
        self.traced_func_name = method

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_linear(m) or isinstance(m, nn.LayerNorm) or not any(True for _ in m.children())


def trace(tracer: fx.Tracer, root: nn.Module, method: str) -> fx.Graph:
    try:
        return tracer.trace(root)
    except Exception as error:
        text = str(error).splitlines()[0].split(". ")[0] if str(error) else type(error).__name__
        raise NoMatch(f"torch.fx cannot trace {method}(): {text}") from None


def output_of(graph: fx.Graph) -> typing.Any:
    return next(n for n in graph.nodes if n.op == "output").args[0]


def _match(module: nn.Module, method: str, training: bool) -> Plan:
    view = shadow(module, training)
    graph = trace(_Tracer(method), view, method)
    kept = [name for m in view.modules() for name, value in m.__dict__.items() if isinstance(value, fx.Proxy)]
    if kept:
        raise NoMatch(f"{method}() sets self.{kept[0]}")
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    used = [n for n in inputs if n.users]
    if len(used) != 1 or used[0] is not inputs[0]:
        raise NoMatch(f"{method}() uses {len(used)} inputs, not one")
    return plan_of(*patterns.match_at(patterns.MODULE, Nodes(graph, module), output_of(graph), used[0]), method, str(used[0].target))


def match(module: nn.Module, method: str) -> Plan:
    """The plan of one method. Raises NoMatch with the reason."""
    plan = _match(module, method, False)
    try:
        is_same = _match(module, method, True) == plan
    except NoMatch:
        is_same = False
    return plan if is_same else dataclasses.replace(plan, eval_only=True)


def candidate_method(module: nn.Module) -> "str | None":
    """The method that may be an MLP: forward() of a module with two or three linear layers, or one
    of the other METHODS."""
    for method in METHODS[1:]:
        if callable(getattr(type(module), method, None)):
            return method
    if is_linear(module) or type(module) in (nn.ModuleList, nn.ModuleDict):
        return None
    children = list(module.children())
    linears = sum(is_linear(m) for m in module.modules())
    direct = sum(is_linear(m) for m in children)
    return "forward" if linears in (2, 3) and direct >= 2 else None
