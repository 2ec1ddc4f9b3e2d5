# SPDX-License-Identifier: Apache-2.0
"""What a plan of sequence parallelism puts before modules: it gathers the rows of an MLP, or of attention with its q, k and v
(PrepareModuleInput), and says which rows a norm has (SequenceParallel).

The plan's hooks send rows by DTensor, through the group's backend, and make each DTensor anew. Without gradients rows come through the
host's memory, and a DTensor is made like the last one: hooks in their places do so, and call them for all else.
"""

import typing

import torch
from torch import nn

from . import signals
from .fused_class import is_compiling
from .sharded import dtensor_class, gathered_rows, is_dtensor, is_sequence_input, placed_as, prepared_input, settled

_Tensor = torch.Tensor
_is_grad_enabled = torch.is_grad_enabled
_Hook = typing.Callable[..., typing.Any]


class _Placing:
    """Makes DTensors of this rank's parts, like the last one where that had a part of the same shape and dtype."""

    def __init__(self) -> None:
        self._last: typing.Any = None  # shape and dtype of the part, and what says the rest of the DTensor

    def __call__(self, part: torch.Tensor, make: "typing.Callable[[], typing.Any]") -> typing.Any:
        last = self._last
        if last is not None and last[0] == part.shape and last[1] is part.dtype:
            return placed_as(last[2], part)
        made = make()
        self._last = (part.shape, part.dtype, made._spec)
        return made


class _Gather:
    """What a hook of PrepareModuleInput makes of an argument."""

    def __init__(self, style: typing.Any, mesh: typing.Any) -> None:
        self.style, self.mesh, self.group = style, mesh, mesh.get_group()
        self.placing = _Placing()

    def __call__(self, x: typing.Any, given: typing.Any, wanted: typing.Any) -> typing.Any:
        rows = self._gathered(x, given, wanted)
        if rows is None:
            return self.style._prepare_input_arg(x, self.mesh, given, wanted)
        if self.style.use_local_output:
            return rows
        return self.placing(rows, lambda: dtensor_class().from_local(rows, self.mesh, [wanted], run_check=False))

    def _gathered(self, x: typing.Any, given: typing.Any, wanted: typing.Any) -> "torch.Tensor | None":
        """None where that is no gather, or not ours."""
        if given is None or wanted is None or given == wanted or not wanted.is_replicate():
            return None
        x = settled(x)
        if not isinstance(x, _Tensor) or (_is_grad_enabled() and x.requires_grad) or (is_dtensor(x) and x.device_mesh != self.mesh):
            return None
        return gathered_rows(x, given, self.group)


def _gathering(hook: _Hook, style: typing.Any, mesh: typing.Any) -> _Hook:
    of = _Gather(style, mesh)

    def gather(module: nn.Module, args: typing.Any, kwargs: "dict[str, typing.Any] | None" = None) -> typing.Any:
        layouts = style.input_layouts
        if is_compiling() or signals.foreign() is not None or (layouts is not None and len(args) != len(layouts)):
            return hook(module, args) if kwargs is None else hook(module, args, kwargs)
        if layouts is not None:
            args = tuple(of(x, *ends) for x, *ends in zip(args, layouts, style.desired_input_layouts))
        if kwargs is None:
            return args
        given, wanted = style.input_kwarg_layouts, style.desired_input_kwarg_layouts
        return args, {name: of(x, given.get(name), wanted.get(name)) for name, x in kwargs.items()}

    gather._epilogue_hook = hook  # type: ignore[attr-defined]
    return gather


def _naming(hook: _Hook) -> _Hook:
    """What SequenceParallel's hook does: it says which rows of all a rank's are."""
    placing = _Placing()

    def place(module: nn.Module, args: typing.Any) -> typing.Any:
        x = settled(args[0]) if len(args) == 1 and not is_compiling() else None
        if type(x) is not _Tensor or not x.is_contiguous() or signals.foreign() is not None:
            return hook(module, args)
        if _is_grad_enabled() and x.requires_grad:
            return hook(module, args)
        return placing(x, lambda: hook(module, args))

    place._epilogue_hook = hook  # type: ignore[attr-defined]
    return place


def is_prepared(module: nn.Module) -> bool:
    return any(hasattr(hook, "_epilogue_hook") for hook in module._forward_pre_hooks.values())


def fuse_inputs(model: nn.Module) -> None:
    for module in model.modules():
        for key, hook in module._forward_pre_hooks.items():
            found = prepared_input(hook)
            if found is not None:
                module._forward_pre_hooks[key] = _gathering(hook, *found)
            elif is_sequence_input(hook):
                module._forward_pre_hooks[key] = _naming(hook)


def unfuse_inputs(module: nn.Module) -> None:
    for key, hook in module._forward_pre_hooks.items():
        if hasattr(hook, "_epilogue_hook"):
            module._forward_pre_hooks[key] = hook._epilogue_hook
