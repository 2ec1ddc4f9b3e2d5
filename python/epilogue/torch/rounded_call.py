# SPDX-License-Identifier: Apache-2.0
"""Linear layers with fewer bits under torch.compile: each becomes an op of its own, with the bits that fuse() was asked for. The
backend "epilogue" joins those of one input, and finds the MLPs that consist of them. torch.export has the modules' own weights.
"""

import typing

import torch
from torch import nn

from .fused_class import class_of, is_compiling, made_once, unfused_class
from .match import DTYPES
from .packed import PackedWeight

BITS = "_epilogue_bits"  # of a linear layer that a fused MLP consists of


def compiled_call(
    own: typing.Callable[..., typing.Any], transposed: bool, module: nn.Module, args: typing.Any, kwargs: typing.Any
) -> typing.Any:
    """What a graph has of the layer. Dynamo reads this function: its branches become guards."""
    state = getattr(module, "_epilogue_linear_state", None)  # of a layer that is fused by itself
    bits = getattr(module, BITS, "") if state is None else state.options.bits
    weight = module.weight
    is_packed = type(weight) is PackedWeight  # rounded already: `bits` is of the rows alone
    if is_packed and not bits:
        bits = "int8"
    if not bits or len(args) != 1 or kwargs or torch.is_autocast_enabled("cpu") or torch.compiler.is_exporting():
        return own(module, *args, **kwargs)
    x, bias = args[0], module.bias
    if not isinstance(x, torch.Tensor) or not (is_packed or type(weight) is nn.Parameter) or x.dtype is not weight.dtype or x.dtype not in DTYPES:
        return own(module, *args, **kwargs)
    if x.device.type != "cpu" or weight.device.type != "cpu" or not 0 < x.dim() <= 8:
        return own(module, *args, **kwargs)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)):
        return own(module, *args, **kwargs)
    return torch.ops.epilogue.linears.default(x, [weight.t() if transposed else weight], [bias], bits)[0]


@made_once
def _marked_class(original: type) -> type:
    own = original.forward
    transposed = original.__name__ == "Conv1D"

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        return compiled_call(own, transposed, self, args, kwargs) if is_compiling() else own(self, *args, **kwargs)

    return class_of(original, _marked_class, call)


def mark(module: nn.Module, bits: str) -> None:
    """A layer of a fused MLP, whose calls without a compiler are the MLP's."""
    if "forward" not in module.__dict__ and type(module._parameters.get("weight")) in (nn.Parameter, PackedWeight):
        module.__dict__[BITS] = bits
        module.__class__ = _marked_class(type(module))


def unmark(module: nn.Module) -> None:
    if module.__dict__.pop(BITS, None) is not None:
        module.__class__ = unfused_class(type(module))
