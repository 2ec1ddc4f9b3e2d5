# SPDX-License-Identifier: Apache-2.0
"""The fused calls of a model by themselves: what they take, and what the modules' own ops take, on
the inputs that they had."""

import contextlib
import dataclasses
import typing

import torch
from torch import nn

from .fuse import states_of
from .state import State


@dataclasses.dataclass(frozen=True)
class _Call:
    state: State
    module: nn.Module
    x: torch.Tensor
    is_fused: bool
    grad: bool

    def run(self, fused: bool) -> "torch.Tensor | None":
        """Of a call that runs as the module's own: what it takes to find that out."""
        if fused or not self.is_fused:
            return self.state.run(self.module, self.x) if fused else None
        return self.state.run_own(self.module, self.x)


class _Recording(State):
    calls: "list[_Call]"

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        out = super().run(module, x)
        if type(x) is torch.Tensor:
            held = x.detach().requires_grad_(x.requires_grad) if not x.is_inference() else x
            self.calls.append(_Call(self, module, held, out is not None, torch.is_grad_enabled()))
        return out


class Blocks:
    """The MLPs that one run of a fused model calls, in its order, so that weights come from where
    they come from in the run. `settings` gives the context (autocast, threads) of one pass."""

    def __init__(
        self, model: nn.Module, run: "typing.Callable[[], typing.Any]",
        settings: "typing.Callable[[], typing.ContextManager[None]]" = contextlib.nullcontext,
    ) -> None:  # fmt: skip
        self.calls: "list[_Call]" = []
        self.settings = settings
        states = states_of(model)
        for state in states:
            state.__class__, state.calls = _Recording, self.calls
        try:
            run()
        finally:
            for state in states:
                state.__class__ = State
                del state.calls

    @property
    def fused_calls(self) -> int:
        return sum(call.is_fused for call in self.calls)

    def fused(self) -> None:
        self._pass(True)

    def own(self) -> None:
        self._pass(False)

    def _pass(self, fused: bool) -> None:
        """Forward, and backward where a result wants gradients: as a step does, all the one, then
        all the other. Without gradients a result is let go at once, as a model does: its memory serves
        the next call, and no page of it is new."""
        if not any(call.grad for call in self.calls):
            with self.settings(), torch.no_grad():
                for call in self.calls:
                    call.run(fused)
            return
        with self.settings(), torch.enable_grad():
            outs = [call.run(fused) for call in self.calls]
            for call, out in zip(reversed(self.calls), reversed(outs)):
                if out is not None and out.requires_grad:
                    asked = [t for t in (call.x, *call.module.parameters()) if t.requires_grad]
                    torch.autograd.grad(out, asked, torch.ones_like(out), allow_unused=True)
