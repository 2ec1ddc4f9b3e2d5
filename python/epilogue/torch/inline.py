# SPDX-License-Identifier: Apache-2.0
"""linear, act, linear in the midst of a forward that does more: OPT's, BART's and Whisper's layers,
DeBERTa's, which has them in two modules, Bloom's MLP, which adds its residual.

The forward runs as its own, on a view of the module: the first linear layer gives the fused result,
and the activation and the last layer give what they get, as inactive dropout does. torch.fx shows
that nothing else reads what is between the layers.
"""

import functools
import typing

from torch import nn

from . import activations, norms
from .linears import is_conv1d, is_linear
from .match import Plan, candidate_method
from .nodes import PASSIVE

_CALL = "_epilogue_call"


def is_candidate(module: nn.Module) -> bool:
    """Whether linear layers and an activation are among its children, or two of its children make an
    MLP together: worth a look."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict, nn.Sequential)):
        return False
    children = list(module.children())
    direct = [c for c in children if is_linear(c)]
    if len(direct) >= 2:
        return any(_is_undone(first, direct) for first in direct) and any(_is_activation(c) for c in children)
    parts = [c for c in children if candidate_method(c) is None and sum(is_linear(m) for m in c.modules()) == 1]
    linears = [next(m for m in part.modules() if is_linear(m)) for part in parts]
    for part, first in zip(parts, linears):
        if _is_undone(first, linears) and any(_is_activation(m) for m in part.modules() if m is not part):
            return True
    return False


def _is_undone(first: nn.Module, linears: "list[nn.Module]") -> bool:
    """Whether another one reads what `first` gives, and gives what it reads."""
    return any(_sizes(last) == _sizes(first)[::-1] for last in linears if last is not first)


def _sizes(linear: nn.Module) -> "tuple[int, int]":
    """Of what it gives, and of what it reads."""
    shape = linear.weight.shape
    return (shape[1], shape[0]) if is_conv1d(linear) else (shape[0], shape[1])


def _is_activation(module: nn.Module) -> bool:
    if type(module) in PASSIVE or is_linear(module) or norms.could_be(module) or any(True for _ in module.parameters()):
        return False
    return not any(True for _ in module.children()) and activations.identify(module) is not None


class _Call:
    """One call of forward()."""

    __slots__ = ("view", "run", "first", "others", "made")

    def __init__(self, plan: Plan, run: typing.Callable[..., typing.Any]) -> None:
        self.view: "nn.Module | None" = None  # of the module
        self.run = run
        self.first, last = plan.linears
        self.others = (plan.activation_path, last)
        self.made: typing.Any = None  # the fused result


class _Step:
    """Stands for one of the modules in one call of forward()."""

    __slots__ = ("_call", "_module", "_is_first")

    def __init__(self, call: _Call, module: typing.Any, is_first: bool) -> None:
        self._call, self._module, self._is_first = call, module, is_first

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        call = self._call
        if self._is_first:
            call.made = call.run(call.view, args[0]) if len(args) == 1 and not kwargs else None
        if call.made is None:
            return self._module(*args, **kwargs)
        if not self._is_first and (*args, *kwargs.values())[0] is not call.made:  # the trace says that this cannot be
            raise RuntimeError(f"{type(self._module).__name__} does not get what it got when it was fused")
        return call.made

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._module, name)


@functools.lru_cache(maxsize=None)
def _view_class(original: type, within: str, names: "frozenset[str]") -> type:
    """`original` with some children replaced: by steps, or by views of themselves."""

    def child(name: str) -> property:
        path = f"{within}{name}"

        def get(self: nn.Module) -> typing.Any:
            call: _Call = getattr(self, _CALL)
            module = self.__dict__["_modules"][name]
            is_first = path == call.first
            if is_first or path in call.others:
                return _Step(call, module, is_first)
            return _view(module, type(module), path + ".", call)

        return property(get)

    body: "dict[str, typing.Any]" = {name: child(name) for name in names}
    return type(original.__name__, (original,), {**body, "__slots__": (_CALL,), "__module__": original.__module__})


def _view(module: nn.Module, kind: type, within: str, call: _Call) -> nn.Module:
    paths = [p[len(within) :] for p in (call.first, *call.others) if p.startswith(within)]
    view = object.__new__(_view_class(kind, within, frozenset(p.partition(".")[0] for p in paths)))
    object.__setattr__(view, "__dict__", module.__dict__)
    object.__setattr__(view, _CALL, call)
    return view


def run(module: nn.Module, state: str, args: typing.Any, kwargs: typing.Any) -> typing.Any:
    """The module's own forward, with one fused call for the layers of module.__dict__[state].plan."""
    kind, of_module = type(module), module.__dict__[state]
    call = _Call(of_module.plan, of_module.run)
    call.view = _view(module, kind._epilogue_original, "", call)
    return kind._epilogue_own(call.view, *args, **kwargs)
