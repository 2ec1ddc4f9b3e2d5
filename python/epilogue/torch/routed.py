# SPDX-License-Identifier: Apache-2.0
"""Which modules are the experts of a mixture: f(x, index, weights), whose parameters have a matrix for each expert.

Shapes say which layouts are possible; values say which one it is: a small module of the same class and the same
attributes runs its own forward beside the op, on rows of sizes from small to far, so that clipped forms differ.
"""

import dataclasses
import inspect
import itertools
import types
import typing

import torch
from torch import nn

from . import activations
from .mixture import PLAIN, Experts
from .gathered import is_managed, shapes_within
from .patterns import NoMatch
from .sharded import is_dtensor, local_of, split_of_experts

_SMALL = (8, 24)  # hidden columns and columns of the module that is tried: multiples of 8, as grouped products want
_SCALES = (0.1, 1.0, 10.0, 1e3)  # of rows
_TOLERANCE = 1e-5  # of a row's norm, in f32
# transformers' own ways to run experts. They give one result: which one is asked for may change.
_SAME = ("eager", "grouped_mm", "batched_mm")
_CLAMP = (1.702, 7.0)
_PLAIN_TYPES = (bool, int, float, str, type(None))
_FUNCTIONS = (types.FunctionType, types.MethodType)


@dataclasses.dataclass(frozen=True)
class ExpertsPlan:
    """What an experts module computes. Plain data: pickles."""

    inputs: "tuple[str, str, str]"  # the arguments' names: x, index, weights
    gate: "str | None"  # names of parameters; None: up has the gate's rows too, or nothing gates
    up: str
    down: str
    biases: "tuple[str | None, str | None, str | None]"  # of gate, up and down
    experts: int
    columns: int  # of x
    hidden: int
    activation: str
    gated: bool
    interleaved: bool = False
    transposed: bool = False
    clamp: "tuple[float, float]" = _CLAMP  # alpha and limit
    eval_only: bool = False
    activation_path: "str | None" = None  # of the one child; None: there is no child
    traits: "tuple[tuple[str, typing.Any], ...]" = ()  # of the module
    implementation: typing.Any = None  # of transformers

    def weights(self) -> "tuple[str, ...]":
        """gate, up, down."""
        return tuple(name for name in (self.gate, self.up, self.down) if name is not None)

    def names(self) -> "tuple[str, ...]":
        """Of all parameters."""
        return (*self.weights(), *(name for name in self.biases if name is not None))

    def make(self, parameters: "typing.Mapping[str, torch.Tensor]", bits: str = "") -> Experts:
        def of(name: "str | None") -> "torch.Tensor | None":
            return None if name is None else parameters[name]

        gate_bias, up_bias, down_bias = (of(name) for name in self.biases)
        alpha, limit = self.clamp
        return Experts(parameters[self.up], parameters[self.down], gate=of(self.gate), up_bias=up_bias, down_bias=down_bias,
                       gate_bias=gate_bias, activation=self.activation, gated=self.gated, interleaved=self.interleaved,
                       transposed=self.transposed, alpha=alpha, limit=limit, bits=bits)  # fmt: skip

    def __str__(self) -> str:
        form = "gated" if self.gated else "plain"
        parts = [f"{self.experts} experts, {form}, {self.activation}: {', '.join(self.weights())}"]
        parts += ["gate and up in turn"] * self.interleaved + ["with biases"] * any(self.biases)
        return "; ".join(parts)


def own_parameters(module: nn.Module) -> "dict[str, torch.Tensor]":
    """A matrix, or a bias, for each of several experts, or nothing. Where ranks share them, this rank's part."""
    found = {name: local_of(p) for name, p in module._parameters.items() if p is not None}
    if is_managed(module):
        shapes = shapes_within(module)
        found = {name: torch.empty(shapes.get(name, p.shape), device="meta") for name, p in found.items()}
    counts = {p.shape[0] for p in found.values() if p.dim() in (2, 3)}
    matrices = [p for p in found.values() if p.dim() == 3]
    several = counts != {1} or ("forward" in module.__dict__ and not isinstance(split_of_experts(module), str))  # a rank may have one
    return found if len(matrices) in (2, 3) and len(counts) == 1 and several else {}


def implementation_of(module: nn.Module) -> typing.Any:
    """Which of transformers' ways to run experts is asked for."""
    return getattr(module.__dict__.get("config"), "_experts_implementation", None)


def traits_of(module: nn.Module) -> "tuple[tuple[str, typing.Any], ...]":
    """Attributes that may say what forward() does: plain ones, and which methods are the instance's own."""
    found: "list[tuple[str, typing.Any]]" = []
    for name, value in module.__dict__.items():
        kind = type(value)
        if kind in _PLAIN_TYPES:
            if name[0] != "_" and name != "training":
                found.append((name, value))
        elif kind in _FUNCTIONS:
            found.append((name, "a function"))
    return tuple(found)


def is_same_way(plan: ExpertsPlan, now: typing.Any) -> bool:
    return now == plan.implementation or (now in _SAME and plan.implementation in _SAME)


def match_experts(module: nn.Module) -> "ExpertsPlan | None":
    """The plan of an experts module; None where it is none. Raises NoMatch with the reason."""
    parameters = own_parameters(module)
    if not parameters:
        return None
    names = ", ".join(name for name, p in parameters.items() if p.dim() == 3)
    about = f"experts: {names} have a matrix for each expert"
    is_split = False
    if "forward" in module.__dict__:
        split = split_of_experts(module)
        if isinstance(split, str):
            raise NoMatch(split)
        is_split = True
    if not all(type(p) is nn.Parameter or (is_dtensor(p) and (is_split or is_managed(module))) for p in module.parameters()):
        raise NoMatch("parameters of a type of their own (DTensor, quantised, ...)")
    inputs = list(inspect.signature(type(module).forward).parameters)[1:]
    if len(inputs) != 3:
        raise NoMatch(f"{about}; expected forward(x, index, weights), found forward({', '.join(inputs)})")
    if len(parameters) != len([p for p in module.parameters()]) or any(True for _ in module.buffers()):
        raise NoMatch(f"{about}; it has other parameters or buffers too")
    reason = f"{about}, in no layout that the engine has"
    for plan in _candidates(module, parameters, (inputs[0], inputs[1], inputs[2])):
        if is_split and any(plan.biases):
            raise NoMatch(f"{about}; biases of experts that ranks share are added by the module")
        error = _tried(module, plan, False)
        if error is None:
            return plan if _tried(module, plan, True) is None else dataclasses.replace(plan, eval_only=True)
        reason = f"{about}; {error}"
    raise NoMatch(reason)


def _candidates(
    module: nn.Module, parameters: "dict[str, torch.Tensor]", inputs: "tuple[str, str, str]"
) -> "typing.Iterator[ExpertsPlan]":
    """Plans whose shapes are those of the parameters."""
    matrices = {name: p.shape for name, p in parameters.items() if p.dim() == 3}
    biases = {name: p.shape for name, p in parameters.items() if p.dim() == 2}
    if len(biases) not in (0, len(matrices)) or len(biases) + len(matrices) != len(parameters):
        return
    traits, way = traits_of(module), implementation_of(module)
    child = next((name for name, m in module._modules.items() if m is not None), None)
    for order in itertools.permutations(matrices):
        for transposed in (False, True):
            shapes = [(s[2], s[1]) if transposed else (s[1], s[2]) for s in map(matrices.__getitem__, order)]
            rows, columns = shapes[-2]
            hidden = shapes[-1][1]
            gated = len(order) == 3 or rows == 2 * hidden
            if shapes[-1][0] != columns or shapes[0] != shapes[-2] or rows != hidden * (2 if gated and len(order) == 2 else 1):
                continue
            gate, up, down = (None, *order) if len(order) == 2 else order
            for some in itertools.permutations(biases):
                of = (None, *some) if len(some) == 2 else some or (None, None, None)
                if any(b is not None and biases[b][1] != n for b, n in zip(of, (rows, rows, columns))):
                    continue
                plan = ExpertsPlan(inputs, gate, up, down, of, next(iter(parameters.values())).shape[0], columns, hidden, "",
                                   gated, False, transposed, _CLAMP, False, child, traits, way)  # fmt: skip
                for interleaved in (False, True) if gated and gate is None else (False,):
                    for name, clamp in _activations(module, gated):
                        yield dataclasses.replace(plan, activation=name, clamp=clamp, interleaved=interleaved)


def _activations(module: nn.Module, gated: bool) -> "list[tuple[str, tuple[float, float]]]":
    """That of a child, found by its values; or, without a child, all."""
    children = list(module.children())
    if children:
        names = [activations.identify(c) for c in children]
        return [(name, _CLAMP) for name in names if name is not None] if len(children) == 1 else []
    numbers = [v for v in module.__dict__.values() if type(v) is float]
    clamps = [*itertools.permutations(numbers, 2), _CLAMP] if gated else []
    return [*(("clamped_swiglu", c) for c in dict.fromkeys(clamps)), *((name, _CLAMP) for name in PLAIN)]


def _small(plan: ExpertsPlan) -> "dict[int, int]":
    """Sizes of the module that is tried, by those of the module. Equal ones stay equal, and twice one twice it."""
    hidden, columns = _SMALL
    if plan.columns == plan.hidden:
        columns = hidden
    elif plan.columns == 2 * plan.hidden:
        columns = 2 * hidden
    elif plan.hidden == 2 * plan.columns:
        hidden, columns = 2 * hidden, hidden
    sizes = {plan.hidden: hidden, 2 * plan.hidden: 2 * hidden, plan.columns: columns}
    return {size: size for size in sizes} if plan.experts in sizes else sizes


def _tried(module: nn.Module, plan: ExpertsPlan, training: bool) -> "str | None":
    """What keeps the module's forward from giving what the op gives."""
    sizes = _small(plan)
    random = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, device="cpu", dtype=torch.float32)

    small = {
        name: nn.Parameter(normal(plan.experts, *(sizes[n] for n in p.shape[1:])), False)
        for name, p in own_parameters(module).items()
    }
    own = {k: sizes.get(v, v) if type(v) is int else v for k, v in module.__dict__.items()}
    tried: nn.Module = object.__new__(type(module))
    object.__setattr__(tried, "__dict__", dict(own, _parameters={**module._parameters, **small}, training=training))
    choices, rows = min(2, plan.experts), 16
    x = normal(rows, sizes[plan.columns]) * torch.tensor(_SCALES, device="cpu", dtype=torch.float32).repeat(rows // len(_SCALES))[:, None]
    index = torch.rand(rows, plan.experts, generator=random, device="cpu").topk(choices, -1).indices
    weights = normal(rows, choices)
    try:
        with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.random.fork_rng(devices=[]):
            want = type(module).forward(tried, x.clone(), index.clone(), weights.clone())
            got = plan.make(small)(x, index, weights)
    except Exception as error:  # whatever a forward raises that wants other things
        text = (str(error).splitlines() or [""])[0]
        return f"its forward cannot be tried on {rows} rows: {type(error).__name__}: {text}"[:200]
    if type(want) is not torch.Tensor or got is None or want.shape != got.shape or want.dtype != got.dtype:
        return "its result is not a row for each row of x"
    off = (got.double() - want.double()).norm(dim=-1)
    if bool((off <= _TOLERANCE * want.double().norm(dim=-1)).all()):
        return None
    return "its forward gives something else than gate and up, activation, down and the weighted sum"
