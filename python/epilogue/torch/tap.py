# SPDX-License-Identifier: Apache-2.0
"""Runs a layer's own forward as far as its norm, where the fused call takes over.

The forward sees a view of the layer: one __dict__, and a class whose norm is a tap. A call of the
tap with the norm's input gives the layer's result, and ends the forward by an exception. Neither
the layer nor the norm is changed, so that calls on other threads and hooks do not notice.
"""

import functools
import typing

import torch
from torch import nn


class _Done(BaseException):
    """The result of the layer whose view this is. No Exception: forward() may catch those."""

    def __init__(self, view: nn.Module, out: torch.Tensor) -> None:
        self.view = view
        self.out = out


class _Tap:
    """Stands for the norm in one call of the layer's forward."""

    __slots__ = ("_view", "_norm", "_run")

    def __init__(self, view: nn.Module, norm: nn.Module, run: typing.Callable[..., typing.Any]) -> None:
        self._view, self._norm, self._run = view, norm, run

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if len(args) == 1 and not kwargs:
            out = self._run(self._view, args[0])
            if out is not None:
                raise _Done(self._view, out)
        return self._norm(*args, **kwargs)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._norm, name)


@functools.lru_cache(maxsize=None)
def _view_class(original: type, norm: str, state: str) -> type:
    def tap(self: nn.Module) -> _Tap:
        return _Tap(self, self.__dict__["_modules"][norm], self.__dict__[state].run)

    return type(original.__name__, (original,), {norm: property(tap), "__module__": original.__module__})


def run(layer: nn.Module, norm: str, state: str, args: typing.Any, kwargs: typing.Any) -> typing.Any:
    """The layer's own forward. At its norm, layer.__dict__[state].run gives the result, or None."""
    kind = type(layer)
    view = object.__new__(_view_class(kind._epilogue_original, norm, state))
    object.__setattr__(view, "__dict__", layer.__dict__)
    try:
        return kind._epilogue_own(view, *args, **kwargs)
    except _Done as done:
        if done.view is not view:
            raise
        return done.out
