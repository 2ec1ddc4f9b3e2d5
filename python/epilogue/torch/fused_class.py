# SPDX-License-Identifier: Apache-2.0
"""Classes that a module gets by fuse(): derived of its own, with one method that runs fused where it may."""

import functools
import threading
import typing

import torch
from torch import fx, nn

from . import inline, tap

if typing.TYPE_CHECKING:
    from .state import State

STATE = "_epilogue_state"  # of an MLP, or of the layer around one: its attribute
DECODED = "_epilogue_decoded_layer"  # of a decoder's layer (decoded_layer.py)
is_compiling = torch.compiler.is_compiling
_MAKING = threading.RLock()


def _rebuild_fused(original: type, method: str, norm: "str | None" = None, is_inline: bool = False) -> nn.Module:
    """An instance without attributes, as copy and pickle make it."""
    module = original.__new__(original)
    module.__class__ = fused_class(original, method, norm, is_inline)
    return module


def _reduce(self: nn.Module, protocol: typing.Any) -> typing.Any:
    kind = type(self)
    arguments = (kind._epilogue_original, kind._epilogue_method, kind._epilogue_norm, kind._epilogue_inline)
    # torch.nn.Module has a __setstate__; its state is its __dict__, or what __getstate__ gives.
    state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
    return _rebuild_fused, arguments, state


def _mlp_call(own: typing.Callable[..., typing.Any]) -> typing.Callable[..., typing.Any]:
    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        # torch.compile, torch.export and the matcher see the module's own ops.
        if is_compiling() or (args and type(args[0]) is not torch.Tensor and isinstance(args[0], fx.Proxy)):
            return own(self, *args, **kwargs)
        state: State = self.__dict__[STATE]
        if len(args) == 1 and not kwargs:
            out = state.run(self, args[0])
        elif not args and len(kwargs) == 1 and state.plan.input in kwargs:
            out = state.run(self, kwargs[state.plan.input])
        else:
            out = None
            state.own_calls += 1
            state.reason = "called with more than one argument"
        return own(self, *args, **kwargs) if out is None else out

    return call


def _layer_call(own: typing.Callable[..., typing.Any], norm: "str | None") -> typing.Callable[..., typing.Any]:
    """Of a layer with that norm; without one, of an MLP in the midst of forward()."""

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if is_compiling():
            return own(self, *args, **kwargs)
        decoded = self.__dict__.get(DECODED)
        if decoded is not None:
            out = decoded.run(self, args, kwargs)
            if out is not None:
                return out
        if self.__dict__[STATE].declines(self, args, kwargs):
            return own(self, *args, **kwargs)
        if norm is None:
            return inline.run(self, STATE, args, kwargs)
        return tap.run(self, norm, STATE, args, kwargs)

    return call


def made_once(make: "typing.Callable[..., type]") -> "typing.Callable[..., type]":
    """Of the same arguments the same class, in all threads."""
    cached = functools.lru_cache(maxsize=None)(make)

    @functools.wraps(make)
    def of(*args: typing.Any) -> type:
        with _MAKING:
            return cached(*args)

    return of


@made_once
def fused_class(original: type, method: str, norm: "str | None" = None, is_inline: bool = False) -> type:
    """`original` with one method that runs fused where it may: an MLP's, a layer's forward (with the
    name of its norm), or a forward with an MLP in its midst."""
    own = getattr(original, method)
    call = _layer_call(own, norm) if norm is not None or is_inline else _mlp_call(own)
    functools.update_wrapper(call, own)
    body = {
        method: call,
        "__reduce_ex__": _reduce,
        "__doc__": original.__doc__,
        "__module__": original.__module__,
        "_epilogue_original": original,
        "_epilogue_method": method,
        "_epilogue_norm": norm,
        "_epilogue_inline": is_inline,
        "_epilogue_own": own,
    }
    return type("Fused" + original.__name__, (original,), body)


def unfused_class(kind: type) -> type:
    """The class without what fuse() gave it; of one that another library derived of it (FSDP2's), the same of the original."""
    if "_epilogue_original" in vars(kind):
        return kind._epilogue_original
    bases = tuple(unfused_class(b) if hasattr(b, "_epilogue_original") else b for b in kind.__bases__)
    # A class that wraps its subclasses' forward (transformers' layers) does so again.
    body = {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__", "forward", "__call__")}
    return type(kind.__name__.replace("Fused", "", 1), bases, body)


def unfuse_class(module: nn.Module, state: str) -> None:
    """Gives a module its class back, if it has that attribute of fuse(), which goes."""
    if state in module.__dict__:
        module.__class__ = unfused_class(type(module))
        del module.__dict__[state]


def call_around(
    original: type, run: "typing.Callable[[nn.Module, typing.Any], torch.Tensor | None]"
) -> "typing.Callable[..., typing.Any]":
    """A __call__ around the hooks and the forward of a plan: what run(module, x) gives, or, if it gives None, what they do."""

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        out = run(self, args[0]) if len(args) == 1 and not kwargs and not is_compiling() else None
        return original.__call__(self, *args, **kwargs) if out is None else out

    return call


def _rebuild(original: type, make: "typing.Callable[[type], type]") -> nn.Module:
    module = original.__new__(original)
    module.__class__ = make(original)
    return module


def class_of(
    original: type, make: "typing.Callable[[type], type]", call: typing.Callable[..., typing.Any], method: str = "forward"
) -> type:
    """`original` with a forward (or, around hooks and a forward of the instance, a __call__) that runs fused where it may.
    `make` gives the same class again."""

    def reduce(self: nn.Module, protocol: typing.Any) -> typing.Any:
        state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
        return _rebuild, (original, make), state

    own = original.forward
    if method == "forward":
        functools.update_wrapper(call, own)
    call._epilogue_call_of = original  # type: ignore[attr-defined]  # a plan that comes later holds it as the module's forward
    body = {method: call, "__reduce_ex__": reduce, "__doc__": original.__doc__, "__module__": original.__module__,
            "_epilogue_original": original, "_epilogue_own": own, "_epilogue_fused": call}  # fmt: skip
    return type("Fused" + original.__name__, (original,), body)
