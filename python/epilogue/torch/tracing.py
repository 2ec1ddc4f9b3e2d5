# SPDX-License-Identifier: Apache-2.0
"""torch.fx's tracing, beside which other threads call modules."""

import threading
import typing

import torch
from torch import fx

_ONE_AT_A_TIME = threading.RLock()  # a trace puts back what it found, which has to be nn.Module's own


class Tracer(fx.Tracer):
    """While torch.fx traces, nn.Module's __call__ and __getattr__ are the tracer's, for all threads: another one's model, which the tracer
    does not know, would end with an error. Here other threads' modules are called as ever. Functions of math are not traced: torch.fx
    puts wrappers into the globals of each module that is called meanwhile."""

    def __init__(self) -> None:
        super().__init__(autowrap_modules=())
        self._thread = 0

    def trace(self, root: typing.Any, concrete_args: "dict[str, typing.Any] | None" = None) -> fx.Graph:
        with _ONE_AT_A_TIME:
            self._thread = threading.get_ident()
            return super().trace(root, concrete_args)

    def call_module(
        self, m: torch.nn.Module, forward: "typing.Callable[..., typing.Any]", args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]"
    ) -> typing.Any:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: typing.Any, parameter_proxy_cache: "dict[str, typing.Any]") -> typing.Any:
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)
