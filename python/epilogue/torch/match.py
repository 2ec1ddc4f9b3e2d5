# SPDX-License-Identifier: Apache-2.0
"""Recognises an MLP by its structure: what torch.fx sees of a module's forward.

    linear, act, linear                  plain
    linear, act, mul by linear, linear   gated; both halves may be chunks of one packed linear
    ..., add of x, layer norm            BERT's output
"""

import dataclasses
import operator
import typing

import torch
import torch.nn.functional as F
from torch import fx, nn

from . import activations, norms
from .linears import is_linear
from .norms import Norm

# Methods that may hold an MLP by themselves: torch.nn.TransformerEncoderLayer has the second,
# BERT's layer of transformers the third, ALBERT's the last.
METHODS = ("forward", "_ff_block", "feed_forward_chunk", "ff_chunk")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Layers that do nothing in eval mode.
PASSIVE = (nn.Dropout, nn.Identity)


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
    post_form: str = "none"  # of_residual: norm(x + result); of_result: x + norm(result)
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


class NoMatch(Exception):
    """Why a module is no MLP that the engine runs."""


def arguments_of(node: fx.Node, names: "tuple[str, ...]") -> "dict[str, typing.Any]":
    """By name, whether they were given by place or by name."""
    return dict(zip(names, node.args), **node.kwargs)


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


def name_of(node: typing.Any) -> str:
    target = getattr(node, "target", node)
    return str(getattr(target, "__name__", target))


class _Tracer(fx.Tracer):
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


ADD = (operator.add, torch.add)


class Matcher:
    def __init__(self, root: nn.Module, method: str, training: bool) -> None:
        self.root = root
        self.method = method
        self.dropouts: "list[str]" = []
        view = shadow(root, training)
        self.graph = trace(_Tracer(method), view, method)
        kept = [name for m in view.modules() for name, value in m.__dict__.items() if isinstance(value, fx.Proxy)]
        if kept:
            raise NoMatch(f"{method}() sets self.{kept[0]}")
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        used = [n for n in inputs if n.users]
        if len(used) != 1 or used[0] is not inputs[0]:
            raise NoMatch(f"{method}() uses {len(used)} inputs, not one")
        self.x = used[0]

    def module(self, node: typing.Any) -> "nn.Module | None":
        if isinstance(node, fx.Node) and node.op == "call_module":
            return self.root.get_submodule(str(node.target))
        return None

    def linear(self, node: typing.Any, what: str) -> "tuple[str, fx.Node]":
        """The path of the linear layer that makes `node`, and its input."""
        node = self.strip_dropout(node)
        module = self.module(node)
        if module is None or not is_linear(module):
            raise NoMatch(f"expected nn.Linear or Conv1D as {what}, found {self.name_of(node)}")
        return str(node.target), node.args[0]

    def strip_dropout(self, node: typing.Any) -> typing.Any:
        while isinstance(node, fx.Node):
            if type(self.module(node)) in PASSIVE:
                self.dropouts.append(str(node.target))
                node = node.args[0]
            elif node.target is F.dropout and self.is_inactive(node):
                node = arguments_of(node, ("input",))["input"]
            else:
                break
        return node

    @staticmethod
    def is_inactive(dropout: fx.Node) -> bool:
        given = arguments_of(dropout, ("input", "p", "training", "inplace"))
        return given.get("training", True) is False

    def name_of(self, node: typing.Any) -> str:
        module = self.module(node)
        return type(module).__name__ if module is not None else name_of(node)

    def activation(self, node: typing.Any) -> "tuple[str, str | None, fx.Node] | None":
        """Name, path and input, where `node` is an activation of one tensor."""
        if not isinstance(node, fx.Node) or node.op not in ("call_module", "call_function", "call_method"):
            return None
        if not node.args or not isinstance(node.args[0], fx.Node) or len(node.all_input_nodes) != 1:
            return None
        source, rest, kwargs = node.args[0], node.args[1:], node.kwargs
        module = self.module(node)
        if module is not None:
            # What has parameters is none, and may be costly to call: a compiled module.
            name = None if any(True for _ in module.parameters()) else activations.identify(module)
            return (name, str(node.target), source) if name else None
        if node.op == "call_method":
            name = activations.identify(lambda t: getattr(t, str(node.target))(*rest, **kwargs))
        else:
            name = activations.identify(lambda t: node.target(t, *rest, **kwargs))
        return (name, None, source) if name else None

    def match(self) -> Plan:
        out = self.strip_dropout(next(n for n in self.graph.nodes if n.op == "output").args[0])
        out, around = self.match_post_norm(out)
        return self.match_mlp(out, dict(around, method=self.method, input=str(self.x.target)))

    def match_mlp(self, out: typing.Any, common: "dict[str, typing.Any]") -> Plan:
        down, hidden = self.linear(out, "the last layer")
        hidden = self.strip_dropout(hidden)
        plain = self.activation(hidden)
        if plain is not None:
            first, x = self.linear(plain[2], "the first layer")
            self.require_input(x)
            return Plan(linears=(first, down), activation=plain[0], activation_path=plain[1], gated=False,
                        dropouts=tuple(self.dropouts), **common)
        return self.match_gated(hidden, down, common)

    def match_gated(self, hidden: typing.Any, down: str, common: "dict[str, typing.Any]") -> Plan:
        if not isinstance(hidden, fx.Node) or hidden.target not in (operator.mul, torch.mul, "mul"):
            raise NoMatch(f"no activation that the engine has before {down}, but {self.name_of(hidden)}")
        for act_side, other in (hidden.args, hidden.args[::-1]):
            act = self.activation(act_side)
            if act is not None:
                break
        else:
            raise NoMatch("neither side of the product is an activation that the engine has")
        gate_half, up_half = half_of(act[2]), half_of(other)
        if gate_half is not None and up_half is not None:
            if gate_half[0] is not up_half[0] or (gate_half[1], up_half[1]) != (0, 1):
                raise NoMatch("the halves of the packed layer are not gate, then up")
            gate_up, x = self.linear(gate_half[0], "the packed layer")
            self.require_input(x)
            linears: "tuple[str, ...]" = (gate_up, down)
        else:
            gate, x = self.linear(act[2], "the gate")
            up, other_x = self.linear(other, "the second branch")
            self.require_input(x)
            self.require_input(other_x)
            linears = (gate, up, down)
        return Plan(linears=linears, activation=act[0], activation_path=act[1], gated=True,
                    packed=len(linears) == 2, dropouts=tuple(self.dropouts), **common)

    def match_post_norm(self, out: typing.Any) -> "tuple[typing.Any, dict[str, typing.Any]]":
        norm = self.module(out)
        if type(norm) is not nn.LayerNorm:
            return out, {}
        added = out.args[0]
        if not isinstance(added, fx.Node) or added.target not in ADD or len(added.args) != 2 or added.kwargs:
            raise NoMatch("the layer norm at the end is not of x + result")
        a, b = added.args
        if b is not self.x:
            a, b = b, a
        if b is not self.x or a is self.x:
            raise NoMatch("what is added before the layer norm is not x")
        post = norms.identify(norm)
        if post is None:
            raise NoMatch("the layer norm at the end has no weight or no bias, or several dimensions")
        around = {"post_norm": str(out.target), "post": post, "post_form": "of_residual", "residual": True}
        return self.strip_dropout(a), around

    def require_input(self, node: typing.Any) -> None:
        if self.strip_dropout(node) is not self.x:
            raise NoMatch("the first layers do not read the module's input")


def match(module: nn.Module, method: str) -> Plan:
    """The plan of one method. Raises NoMatch with the reason."""
    plan = Matcher(module, method, False).match()
    try:
        is_same = Matcher(module, method, True).match() == plan
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
