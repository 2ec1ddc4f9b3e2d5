# SPDX-License-Identifier: Apache-2.0
"""Attention in transformers' models that fuse() changed, in inference, by torch.ops.epilogue.attention where that gains: of few queries,
as when a model decodes, and of many by the rules of compiled models (attention.py).

transformers looks the function of attention up by name, and hands it the module that calls: in place of the one named "sdpa" stands a
function here, which calls the engine's kernel for modules that fuse() marked, and for all else the function that was there.
"""

import functools
import sys
import typing

import torch
from torch import nn

from . import functional, signals  # noqa: F401  (functional registers the op's fake results)
from .attention import LEAST_QUERIES, MOST_DECODED, gains, gains_decoding
from .fused_class import is_compiling
from .recorded import Recorded
from .rotary import fuse_rotary, unfuse_rotary

STATE = "_epilogue_attention"
NAME = "sdpa"
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_Tensor = torch.Tensor
# Of transformers' functions: what changes the result, where it is given.
_OTHERS = ("softcap", "output_attentions", "s_aux", "head_mask")


class Calls:
    """Of one module."""

    def __init__(self) -> None:
        self.fused = 0

    def __setstate__(self, state: "dict[str, typing.Any]") -> None:
        """Of a model that another process pickled."""
        self.__dict__.update(state)
        _register()


def _has_mask_of(mask: typing.Any, query: torch.Tensor, keys: int) -> bool:
    if type(mask) is not _Tensor or mask.dim() != 4 or mask.dtype not in (torch.bool, torch.float32, query.dtype):
        return False
    if mask.requires_grad and torch.is_grad_enabled():
        return False
    return all(n in (1, whole) for n, whole in zip(mask.shape, (*query.shape[:3], keys))) and mask.shape[3] == keys


def _takes(query: typing.Any, key: typing.Any, value: typing.Any, mask: typing.Any) -> bool:
    if not (type(query) is _Tensor and type(key) is _Tensor and type(value) is _Tensor):  # DTensors, fake ones
        return False
    shape, keys, values = query.shape, key.shape, value.shape
    if not len(shape) == len(keys) == len(values) == 4:
        return False
    if 0 in shape or 0 in keys or 0 in values or shape[1] % keys[1] or shape[0] != keys[0] or shape[3] != keys[3] or values[:3] != keys[:3]:
        return False
    dtype = query.dtype
    if dtype not in _DTYPES or key.dtype is not dtype or value.dtype is not dtype:
        return False
    queries = shape[2]
    if queries <= MOST_DECODED:
        # transformers' function asks for causal attention of several queries where there is no mask.
        if (queries != 1 and mask is None) or not gains_decoding(dtype):
            return False
    elif queries < LEAST_QUERIES or shape[3] != values[3] or not gains(dtype):
        return False
    if not (query.is_cpu and key.is_cpu and value.is_cpu):
        return False
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return False
    return mask is None or _has_mask_of(mask, query, keys[2])


def is_plain(given: "dict[str, typing.Any]") -> bool:
    """Whether nothing else is asked for, and nothing else looks on."""
    if given.get("dropout") or given.get("position_bias") is not None or not isinstance(given.get("scaling"), (float, int, type(None))):
        return False
    # By identity: a tensor says no truth, and a number that is 0 may be an error of the caller's.
    if any(given.get(name) is not None and given[name] is not False for name in _OTHERS):
        return False
    if not isinstance(given.get("is_causal"), (bool, type(None))):
        return False
    return signals.foreign() is None and not torch.is_autocast_enabled("cpu")


def _is_causal(module: nn.Module, given: "bool | None") -> bool:
    return bool(getattr(module, "is_causal", True) if given is None else given)


def _around(own: typing.Callable[..., typing.Any]) -> typing.Callable[..., typing.Any]:
    @functools.wraps(own)
    def attend(module: nn.Module, query: typing.Any, key: typing.Any, value: typing.Any, attention_mask: typing.Any = None,
               *args: typing.Any, **kwargs: typing.Any) -> typing.Any:  # fmt: skip
        if is_compiling() or args:
            return own(module, query, key, value, attention_mask, *args, **kwargs)
        if type(query) is Recorded:
            return query.tracer.attend(attend, module, query, key, value, attention_mask, kwargs), None
        calls = module.__dict__.get(STATE)
        if calls is None or not is_plain(kwargs) or not _takes(query, key, value, attention_mask):
            return own(module, query, key, value, attention_mask, **kwargs)
        calls.fused += 1
        # As transformers' function: one query sees all keys, and where there is a mask it says all.
        causal = query.shape[2] > 1 and attention_mask is None and _is_causal(module, kwargs.get("is_causal"))
        return torch.ops.epilogue.attention.default(query, key, value, attention_mask, causal, kwargs.get("scaling")), None

    attend._epilogue_own = own  # type: ignore[attr-defined]
    return attend


def _register() -> bool:
    """Puts the function here in the place of the library's, once. False: the library has none."""
    library = sys.modules.get("transformers.modeling_utils")
    interface = getattr(library, "AttentionInterface", None)
    known = getattr(interface, "_global_mapping", None)
    if not isinstance(known, dict) or NAME not in known:
        return False
    if not hasattr(known[NAME], "_epilogue_own"):
        interface.register(NAME, _around(known[NAME]))
    return True


def fuse_attention(model: nn.Module) -> None:
    """Marks modules that may call a function of attention: those that say whether it is causal."""
    if not hasattr(torch.ops.epilogue, "attention") or "transformers.modeling_utils" not in sys.modules:  # older ops
        return
    callers = [module for module in model.modules() if hasattr(module, "is_causal")]
    fuse_rotary(callers)
    if callers and _register():
        for module in callers:
            module.__dict__.setdefault(STATE, Calls())


def unfuse_attention(module: nn.Module) -> None:
    module.__dict__.pop(STATE, None)
    unfuse_rotary(module)


def attention_calls(model: nn.Module) -> int:
    """By the engine's kernel, outside torch.compile."""
    return sum(m.__dict__[STATE].fused for m in model.modules() if STATE in m.__dict__)
