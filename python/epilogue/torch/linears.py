# SPDX-License-Identifier: Apache-2.0
"""Which modules are linear layers, known by type, or by what torch.fx sees of a forward of their own."""

import functools
import operator
import sys

import torch
import torch.nn.functional as F
from torch import nn

from .tracing import Tracer

# What a class between nn.Linear and the module's own may define.
_HARMLESS = {"__module__", "__doc__", "__init__", "__annotations__", "__firstlineno__", "__static_attributes__",
             "forward", "extra_repr", "reset_parameters"}  # fmt: skip
# What its forward may read, of the module and of torch: attributes of an instance may come later.
_NAMES = {"weight", "bias", "T", "t", "torch", "nn", "functional", "F", "linear", "matmul", "add"}
_PRODUCTS = {operator.matmul, operator.add, torch.matmul, torch.add, torch.t, F.linear, getattr, "t", "matmul", "add"}


def is_conv1d(module: nn.Module) -> bool:
    """GPT-2's linear layer, whose weight is [in, out]."""
    kind = _kind_of(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def _kind_of(module: nn.Module) -> type:
    """Before fuse(), and before FSDP2 wrapped this very module."""
    kind = type(module)
    kind = getattr(kind, "_epilogue_original", kind)
    wrapper = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", None)
    if wrapper is not None and len(kind.__bases__) == 2 and issubclass(kind.__bases__[0], wrapper):
        kind = kind.__bases__[1]
    return kind


def is_linear(module: nn.Module) -> bool:
    return _kind_of(module) is nn.Linear or is_conv1d(module) or _is_respelled(module)


def _is_respelled(module: nn.Module) -> bool:
    """Falcon's: derived of nn.Linear, and its forward spells the product of weight and bias in another way."""
    kind = _kind_of(module)
    if not issubclass(kind, nn.Linear) or module._buffers or module._modules or list(module._parameters) != ["weight", "bias"]:
        return False
    code = getattr(kind.forward, "__code__", None)
    if code is None or {*code.co_names, *code.co_freevars} - _NAMES:
        return False
    return _is_product(kind, module._parameters["bias"] is not None)


def _probe(kind: type, bias: bool) -> nn.Linear:
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        plain = nn.Linear(3, 5, bias, dtype=torch.float64)
    module: nn.Linear = object.__new__(kind)
    object.__setattr__(module, "__dict__", plain.__dict__)
    return module


@functools.lru_cache(maxsize=None)
def _is_product(kind: type, bias: bool) -> bool:
    """Whether the class's forward consists of steps of a product, and gives what nn.Linear's gives."""
    above = kind.__mro__[: kind.__mro__.index(nn.Linear)]
    if any(set(vars(k)) - _HARMLESS for k in above) or not any("forward" in vars(k) for k in above):
        return False
    module = _probe(kind, bias)
    for training in (False, True):
        module.training = training
        try:
            graph = Tracer().trace(module)
            for x in (torch.rand(4, 3, dtype=torch.float64), torch.rand(2, 4, 3, dtype=torch.float64)):
                if not torch.allclose(module.forward(x), F.linear(x, module.weight, module.bias), rtol=1e-12):
                    return False
        except Exception:  # any failure means: another layer
            return False
        if any(n.op.startswith("call") and n.target not in _PRODUCTS for n in graph.nodes):
            return False
    return True
