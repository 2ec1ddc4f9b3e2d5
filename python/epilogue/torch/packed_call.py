# SPDX-License-Identifier: Apache-2.0
"""Linear layers and MLPs of weights that are rounded already, as an op of tensors: what a compiled graph has of PackedWeights
(packed.py), once AOTAutograd has put steps and scales in their place."""

import ctypes
import typing

import torch

from .handle import Handle, Kept
from .packed import Rounded

_library = torch.library.Library("epilogue", "FRAGMENT")
_library.define(
    "packed_call(Tensor x, Tensor[] steps, Tensor[] scales, Tensor?[] zeros, int[] inputs, int[] groups, Tensor?[] biases, "
    "str activation, str bits) -> Tensor[]"
)
_kept = Kept(1024)  # handles by addresses


def _borrowed(t: "torch.Tensor | None") -> "torch.Tensor | None":
    """The same memory, which it does not keep: its handle goes with the first of the storages."""
    if t is None:
        return None
    memory = (ctypes.c_uint8 * (t.numel() * t.element_size())).from_address(t.data_ptr())
    return torch.frombuffer(memory, dtype=t.dtype).view(t.shape)


def clear() -> None:
    _kept.clear()


def _call(handle: Handle, x: torch.Tensor, given: "list[torch.Tensor]", activation: str) -> "list[torch.Tensor]":
    """None where a bias has other memory than it had."""
    if activation == "none":
        return torch.ops.epilogue.linear.default(x, handle.number, given, None)
    out = handle(x, given)
    return [] if out is None else [out]


def _run(x, steps, scales, zeros, inputs, groups, biases, activation, bits):  # type: ignore[no-untyped-def]
    given = [b for b in biases if b is not None]
    key = (activation, bits, x.dtype, *(t.data_ptr() for t in (*steps, *scales, *given)))
    handle = _kept.get(key)
    outs = None if handle is None else _call(handle, x, given, activation)
    if outs:
        return outs
    parts = zip(steps, scales, zeros, inputs, groups)
    weights = [Rounded(*(_borrowed(t) for t in some), k, group, x.dtype, False) for *some, k, group in parts]
    handle = Handle(weights, biases, activation, x.dtype, bits, parameters=given)
    _kept.put(key, handle, (*steps, *scales))
    return _call(handle, x, given, activation)


def _fake(x, steps, scales, zeros, inputs, groups, biases, activation, bits):  # type: ignore[no-untyped-def]
    widths = [s.shape[0] for s in (steps if activation == "none" else steps[-1:])]
    return [x.new_empty((*x.shape[:-1], n)) for n in widths]


_library.impl("packed_call", _run, "CPU")
torch.library.register_fake("epilogue::packed_call", _fake, lib=_library)


def of_weights(func: typing.Any, args: typing.Any, parts: "list[Rounded]") -> typing.Any:
    """The op epilogue::linears or kept_mlp, of weights that are all rounded; None where they are not in one way."""
    first = parts[0]
    if any(r.transposed or (r.group == 0) != (first.group == 0) or r.scales.dtype is not first.scales.dtype for r in parts):
        return None
    x, _, biases, *rest = args
    is_mlp = func is torch.ops.epilogue.kept_mlp.default
    activation, bits = rest if is_mlp else ("none", *rest)
    columns = [[getattr(r, name) for r in parts] for name in ("steps", "scales", "zeros", "inputs", "group")]
    outs = torch.ops.epilogue.packed_call.default(x, *columns, biases, activation, bits)
    return outs[0] if is_mlp else outs
