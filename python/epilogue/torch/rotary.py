# SPDX-License-Identifier: Apache-2.0
"""Rotary position embeddings in transformers' models that fuse() changed, by torch.ops.epilogue.rotary: one op, where the models' own
functions make eleven tensors and some five views.

A model's attention calls `apply_rotary_pos_emb`, a function of its module of Python. In its place stands a function here, which asks
who calls: for modules that fuse() marked it runs the op, for all else the function that was there. The function is known by its values:
on probes of each dtype and size of heads the op gives its very bits, and torch.fx sees no step in it that depends on other sizes or on
values. If a global that it reads becomes another object (`rotate_half`), it runs itself.
"""

import functools
import operator
import sys
import types
import typing

import torch
from torch import fx, nn

from . import signals
from .fused_class import is_compiling
from .recorded import Recorded
from .tracing import Tracer

_NAME = "apply_rotary_pos_emb"
_PARAMETERS = ("q", "k", "cos", "sin")
# Behind them, and their defaults: of transformers 5, and of 4, which hands no position_ids on.
_MORE = {("unsqueeze_dim",): (1,), ("position_ids", "unsqueeze_dim"): (None, 1)}
STATE = "_epilogue_rotary"
DTYPES = (torch.float32, torch.bfloat16)
_DIMS = 4  # of q and k: [batch, heads, rows, columns], or rows before heads
_Tensor = torch.Tensor
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled

# Of a function's steps: nothing that asks for values, and nothing that writes.
_STEPS = {operator.add, operator.sub, operator.mul, operator.neg, operator.floordiv, operator.getitem, getattr, torch.cat, torch.neg,
          "unsqueeze", "to", "float", "type_as", "size", "chunk", torch.chunk, torch.unsqueeze}  # fmt: skip

_op = None  # torch.ops.epilogue.rotary.default, once the ops are loaded


class Calls:
    """Of one module. file: the module of Python whose function it calls."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.fused = 0

    def __setstate__(self, state: "dict[str, typing.Any]") -> None:
        """Of a model that another process pickled."""
        self.__dict__.update(state)
        _register(self.file)


Read = typing.Tuple["dict[str, typing.Any]", str, typing.Any]  # a dictionary, a name, and what it has there


def reads_of(function: types.FunctionType, found: "list[Read] | None" = None) -> "list[Read]":
    """The globals that a function and those that it calls read: where each is, and what it is."""
    found = [] if found is None else found
    for name in function.__code__.co_names:
        space = function.__globals__
        if name in space and not any(space is s and name == n for s, n, _ in found):
            found.append((space, name, space[name]))
            if type(space[name]) is types.FunctionType:
                reads_of(space[name], found)
    return found


def _is_inner_cut(node: fx.Node) -> bool:
    """Whether a tensor is cut along its last dimension alone: probes are of the call's own columns, but of few rows, heads and batches."""
    whole, cut = node.args
    if isinstance(cut, int):
        return isinstance(whole, fx.Node) and whole.target in (getattr, "size", "chunk", torch.chunk)  # of a shape, of parts
    return isinstance(cut, tuple) and len(cut) == 2 and cut[0] is Ellipsis and isinstance(cut[1], slice)  # noqa: PLR2004


@functools.lru_cache(maxsize=None)
def _has_known_steps(own: types.FunctionType) -> bool:
    """Whether torch.fx sees all of the function: steps of _STEPS, and no choice by values."""
    code = own.__code__
    names, count = code.co_varnames[: code.co_argcount], len(_PARAMETERS)
    if names[:count] != _PARAMETERS or names[count:] not in _MORE or own.__defaults__ != _MORE[names[count:]]:
        return False
    if code.co_kwonlyargcount or code.co_flags & 0xC or own.__closure__:
        return False
    try:
        graphs = [Tracer().trace(lambda q, k, cos, sin: own(q, k, cos, sin, unsqueeze_dim=heads)) for heads in (1, 2)]  # noqa: B023
    except Exception:  # any failure means: another function
        return False
    steps = [n for graph in graphs for n in graph.nodes if n.op.startswith("call") or n.op == "get_attr"]
    return all(n.target in _STEPS and (n.target is not operator.getitem or _is_inner_cut(n)) for n in steps)


@functools.lru_cache(maxsize=None)
def is_wide(own: types.FunctionType, dtype: torch.dtype, wave: torch.dtype, columns: int, turned: int) -> "bool | None":
    """How the op computes what the function does of q and k of `dtype`, cos and sin of `wave`: bits are compared. None: it does not.
    turned: of the columns, those that cos and sin have."""
    if not _has_known_steps(own):
        return None
    with torch.device("cpu"), torch.no_grad(), torch.inference_mode(False):
        draws = torch.Generator().manual_seed(1)  # not the generators of others
        q, k = (torch.randn(2, heads, 5, columns, generator=draws).to(dtype) for heads in (3, 1))
        cos, sin = (torch.randn(2, 5, turned, generator=draws).to(wave) for _ in range(2))
        for wide in (False, True) if wave is dtype else (True,):
            if all(_is_same(own, q, k, cos, sin, heads, wide) for heads in (1, 2)):
                return wide
    return None


def _is_same(own: types.FunctionType, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, heads: int, wide: bool) -> bool:
    given = [x.transpose(1, 2).contiguous() if heads == 2 else x for x in (q, k)]
    try:
        outs = own(*given, cos, sin, unsqueeze_dim=heads)
    except Exception:
        return False
    if not isinstance(outs, tuple) or len(outs) != 2:  # noqa: PLR2004
        return False
    mine = torch.ops.epilogue.rotary.default(*given, cos, sin, heads, wide)
    return all(type(a) is _Tensor and a.dtype is b.dtype and torch.equal(a, b) for a, b in zip(outs, mine))


def _run(own: types.FunctionType, reads: "list[Read]", q: typing.Any, k: typing.Any, cos: typing.Any, sin: typing.Any, heads: int) -> typing.Any:
    """What the function gives; None where it has to run."""
    if not (type(q) is _Tensor and type(k) is _Tensor and type(cos) is _Tensor and type(sin) is _Tensor):  # DTensors, fake ones
        return None
    dtype, wave = q.dtype, cos.dtype
    if dtype not in DTYPES or k.dtype is not dtype or sin.dtype is not wave or (wave is not dtype and wave is not torch.float32):
        return None
    shape, keys, waves = q.shape, k.shape, cos.shape
    if len(shape) != _DIMS or len(keys) != _DIMS or len(waves) != _DIMS - 1 or sin.shape != waves or heads not in (1, 2):
        return None
    batch, rows, columns = shape[0], shape[3 - heads], shape[3]
    if keys[0] != batch or keys[3 - heads] != rows or keys[3] != columns:
        return None
    if (waves[0] != batch and waves[0] != 1) or waves[1] != rows or waves[2] > columns or waves[2] % 2 or 0 in shape or 0 in keys:
        return None
    if not (q.stride(3) == k.stride(3) == cos.stride(2) == sin.stride(2) == 1):
        return None
    if not (q.is_cpu and k.is_cpu and cos.is_cpu and sin.is_cpu) or _is_autocast_enabled("cpu") or signals.foreign() is not None:
        return None
    if _is_grad_enabled() and (q.requires_grad or k.requires_grad or cos.requires_grad or sin.requires_grad):
        return None
    for space, name, value in reads:
        if space.get(name) is not value:
            return None
    wide = is_wide(own, dtype, wave, columns, waves[2])
    return None if wide is None else _op(q, k, cos, sin, heads, wide)


def _around(own: types.FunctionType) -> typing.Callable[..., typing.Any]:
    reads = reads_of(own)

    @functools.wraps(own)
    def rotate(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if is_compiling():
            return own(*args, **kwargs)
        caller = sys._getframe(1).f_locals.get("self")
        calls = caller.__dict__.get(STATE) if isinstance(caller, nn.Module) else None
        if calls is None or len(args) != len(_PARAMETERS) or kwargs.keys() - {"unsqueeze_dim"}:
            return own(*args, **kwargs)
        if type(args[0]) is Recorded:
            return args[0].tracer.turn(rotate, *args, kwargs.get("unsqueeze_dim", 1))
        out = _run(own, reads, *args, kwargs.get("unsqueeze_dim", 1))
        if out is None:
            return own(*args, **kwargs)
        calls.fused += 1
        return out

    rotate._epilogue_own = own  # type: ignore[attr-defined]
    rotate._epilogue_reads = reads  # type: ignore[attr-defined]
    return rotate


def _register(name: str) -> bool:
    """Puts the function here in the place of the one in the module of Python, once. False: it has none that the op computes."""
    global _op
    if not hasattr(torch.ops.epilogue, "rotary"):  # older ops
        return False
    _op = torch.ops.epilogue.rotary.default
    file = sys.modules.get(name)
    own = None if file is None else vars(file).get(_NAME)
    if hasattr(own, "_epilogue_own"):
        return True
    if type(own) is not types.FunctionType or all(is_wide(own, dtype, dtype, 12, turned) is None for dtype in DTYPES for turned in (12, 8)):
        return False
    setattr(file, _NAME, _around(own))
    return True


def fuse_rotary(callers: "typing.Iterable[nn.Module]") -> None:
    """Marks modules of attention that call a function which the op computes."""
    for module in callers:
        kind = type(module)
        file = getattr(kind, "_epilogue_original", kind).__module__
        if _register(file):
            module.__dict__.setdefault(STATE, Calls(file))


def unfuse_rotary(module: nn.Module) -> None:
    module.__dict__.pop(STATE, None)


def rotary_calls(model: nn.Module) -> "int | None":
    """By the op, outside torch.compile; None: no module calls a function that it computes."""
    calls = [m.__dict__[STATE].fused for m in model.modules() if STATE in m.__dict__]
    return sum(calls) if calls else None
