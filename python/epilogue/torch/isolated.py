# SPDX-License-Identifier: Apache-2.0
"""The fused calls of a model: what they take, and what the modules' own ops take, by themselves on
the inputs that they had, or within a run."""

import contextlib
import dataclasses
import time
import typing

import torch
from torch import nn

from .experts_state import ExpertsState
from .fuse import packing_states, states_of
from .linear_state import LEARNING_CALLS, LinearState
from .state import State

AnyState = typing.Union[State, ExpertsState, LinearState]


@dataclasses.dataclass(frozen=True)
class _Call:
    state: AnyState
    module: nn.Module
    given: "tuple[typing.Any, ...]"
    is_fused: bool
    grad: bool

    def run(self, fused: bool) -> "torch.Tensor | None":
        """Of a call that runs as the module's own: what it takes to find that out."""
        if fused:
            given = (self.given, {}) if isinstance(self.state, ExpertsState) else self.given
            return self.state.run(self.module, *given)
        return _own(self.state, self.module, self.given) if self.is_fused else None

    @property
    def wanted(self) -> "list[torch.Tensor]":
        """Whose gradients a step wants."""
        tensors = [t for t in (*self.given, *self.module.parameters()) if isinstance(t, torch.Tensor)]
        return [t for t in tensors if t.requires_grad]


def _own(state: AnyState, module: nn.Module, given: "tuple[typing.Any, ...]") -> torch.Tensor:
    if isinstance(state, State):
        return state.run_own(module, *given)
    return type(module)._epilogue_own(module, *given)


@contextlib.contextmanager
def _watched(
    states: "typing.Sequence[AnyState]", kinds: "dict[type, type]", name: str, value: typing.Any
) -> "typing.Iterator[None]":
    """Makes the states kinds that watch calls, by their own kinds, with one attribute, for a while."""
    own = [type(state) for state in states]
    for state in states:
        state.__class__ = kinds[type(state)]
        setattr(state, name, value)
    try:
        yield
    finally:
        for state, kind in zip(states, own):
            state.__class__ = kind
            delattr(state, name)


class _Record:
    """The calls of a run, in its order. Layers that were given one tensor are given one."""

    def __init__(self) -> None:
        self.calls: "list[_Call]" = []
        self._held: "dict[int, tuple[torch.Tensor, torch.Tensor]]" = {}

    def add(self, state: AnyState, module: nn.Module, given: "tuple[typing.Any, ...]", out: typing.Any) -> None:
        if all(type(t) is torch.Tensor for t in given):
            held = tuple(map(self._hold, given))
            self.calls.append(_Call(state, module, held, out is not None, torch.is_grad_enabled()))

    def _hold(self, x: torch.Tensor) -> torch.Tensor:
        if x.is_inference():
            return x
        if id(x) not in self._held:
            self._held[id(x)] = (x, x.detach().requires_grad_(x.requires_grad))
        return self._held[id(x)][1]


class _Recording(State):
    record: _Record

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        out = super().run(module, x)
        self.record.add(self, module, (x,), out)
        return out


class _RecordingLinear(LinearState):
    record: _Record

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        out = super().run(module, x)
        self.record.add(self, module, (x,), out)
        return out


class _RecordingExperts(ExpertsState):
    record: _Record

    def run(self, module: nn.Module, args: typing.Any, kwargs: typing.Any) -> "torch.Tensor | None":
        out = super().run(module, args, kwargs)
        self.record.add(self, module, (*args, *kwargs.values()), out)
        return out


_RECORDING = {State: _Recording, LinearState: _RecordingLinear, ExpertsState: _RecordingExperts}


def _wanted(out: "torch.Tensor | None") -> "torch.Tensor | None":
    return out if out is not None and out.requires_grad else None


class Blocks:
    """The MLPs that one run of a fused model calls, in its order, so that weights come from where
    they come from in the run. `settings` gives the context (autocast, threads) of one pass. states: of others too."""

    def __init__(
        self, model: nn.Module, run: "typing.Callable[[], typing.Any]",
        settings: "typing.Callable[[], typing.ContextManager[None]]" = contextlib.nullcontext,
        states: "typing.Sequence[AnyState] | None" = None,
    ) -> None:  # fmt: skip
        record = _Record()
        self.settings = settings
        with _watched(states_of(model) if states is None else states, _RECORDING, "record", record):
            run()
        self.calls = record.calls

    @property
    def fused_calls(self) -> int:
        return sum(call.is_fused for call in self.calls)

    def fused(self) -> None:
        self._pass(True)

    def own(self) -> None:
        self._pass(False)

    def _pass(self, fused: bool) -> None:
        """Forward, and backward where a result wants gradients: as a step does, all the one, then
        all the other. A result that wants none is let go at once, as a model does: its memory serves
        the next call, and no page of it is new."""
        with self.settings(), torch.set_grad_enabled(any(call.grad for call in self.calls)):
            outs = [_wanted(call.run(fused)) for call in self.calls]
            for call, out in zip(reversed(self.calls), reversed(outs)):
                if out is not None:
                    torch.autograd.grad(out, call.wanted, torch.ones_like(out), allow_unused=True)


class _Timed(State):
    clock: "InPlace"

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        return self.clock.run(lambda: super(_Timed, self).run(module, x), lambda: self.run_own(module, x))


class _TimedLinear(LinearState):
    clock: "InPlace"

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        own = type(module)._epilogue_own
        return self.clock.run(lambda: super(_TimedLinear, self).run(module, x), lambda: own(module, x))


class _TimedExperts(ExpertsState):
    clock: "InPlace"

    def run(self, module: nn.Module, args: typing.Any, kwargs: typing.Any) -> "torch.Tensor | None":
        own = type(module)._epilogue_own
        return self.clock.run(lambda: super(_TimedExperts, self).run(module, args, kwargs), lambda: own(module, *args, **kwargs))


_TIMED = {State: _Timed, LinearState: _TimedLinear, ExpertsState: _TimedExperts}


class InPlace:
    """The MLPs, experts and linear layers that one run of a fused model calls, timed where they run: caches and the heap are as the rest of the
    model leaves them, which by itself takes an MLP a tenth more or less. Without gradients."""

    def __init__(self, model: nn.Module, run: "typing.Callable[[], typing.Any]") -> None:
        self._states = packing_states(model)
        self._run = run
        self._runs_own = False
        self._results: "list[bool]" = []  # of a run, by call: whether it gave one
        self._seconds = 0.0
        for _ in range(LEARNING_CALLS):  # which linear layers share an input
            self.fused_ms()
        self._is_fused = self._results

    def own_ms(self) -> float:
        """What the modules' own ops take in one run, in place of the fused calls."""
        return self._timed(True)

    def fused_ms(self) -> float:
        """What fused calls take in one run; of those that fall back, the checks."""
        return self._timed(False)

    def _timed(self, runs_own: bool) -> float:
        self._runs_own, self._results, self._seconds = runs_own, [], 0.0
        with _watched(self._states, _TIMED, "clock", self):
            self._run()
        return self._seconds * 1e3

    def run(
        self, fused: "typing.Callable[[], torch.Tensor | None]", own: "typing.Callable[[], torch.Tensor]"
    ) -> "torch.Tensor | None":
        call = len(self._results)
        if self._runs_own and not (call < len(self._is_fused) and self._is_fused[call]):
            self._results.append(False)
            return None
        start = time.perf_counter()
        out = own() if self._runs_own else fused()
        self._seconds += time.perf_counter() - start
        self._results.append(out is not None)
        return out
