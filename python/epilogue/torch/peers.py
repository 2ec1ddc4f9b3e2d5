# SPDX-License-Identifier: Apache-2.0
"""The settings that bench compares: eager, torch.compile, and other projects where they are installed."""

import contextlib
import copy
import importlib
import typing

import torch
from torch import nn

from .fuse import fuse

# Of the dtypes asked for; int8 weights are no peer of exact ones, but of fused int8 weights.
EXACT = ("eager", "compile", "autotune", "openvino", "zentorch")
TRAINING = EXACT[:3]  # those that have a backward pass
INT8 = ("torchao",)
MIXTURES = ("grouped_mm",)  # of whole models with experts: transformers' own way
PEERS = (*EXACT, *INT8)
COMPILED = "fused, compiled"  # ours: the fused model by torch.compile with our backend
BACKEND = "backend"  # ours: the model, not fused, by torch.compile with our backend
_AUTOTUNE = {"freezing": True, "max_autotune": True, "cpp.enable_grouped_gemm_template": True}
_INDUCTOR = {"autotune": _AUTOTUNE, "torchao": _AUTOTUNE, COMPILED: {"freezing": True}, BACKEND: {"freezing": True}}  # what settings ask of it
# What a peer's name is to import, and how to get it.
_PACKAGES = {
    "openvino": ("openvino.torch", "pip install openvino"),
    "zentorch": ("zentorch", "pip install zentorch, which wants a torch of its own number"),
    "torchao": ("torchao.quantization", "pip install torchao"),
}


def missing(setting: str) -> "str | None":
    """Why this setting cannot run here, or None."""
    if setting not in _PACKAGES:
        return None
    package, how = _PACKAGES[setting]
    try:
        importlib.import_module(package)
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == package.split(".")[0]
        return f"not installed ({how})" if absent else f"does not load: {str(error).splitlines()[0]}"
    return None


def installed(settings: "typing.Iterable[str]") -> "list[str]":
    """Those that can run here; one line for each other."""
    found = []
    for setting in settings:
        reason = missing(setting)
        if reason is None:
            found.append(setting)
        else:
            print(f"{setting} is left out: {reason}")
    return found


@contextlib.contextmanager
def compiling(setting: str) -> "typing.Iterator[None]":
    """For a module's first call. torch.compile(options=...) does not freeze: Dynamo looks at the
    configuration of the process."""
    patches = _INDUCTOR.get(setting)
    if patches is None:
        yield
        return
    from torch._inductor import config

    with config.patch(patches):
        yield


def _autotune(graph: typing.Any, inputs: typing.Any) -> typing.Any:
    """A backend of its own: Dynamo would run code of torch.compile's default, of the same class, for
    this module too."""
    from torch._inductor.compile_fx import compile_fx

    with compiling("autotune"):
        return compile_fx(graph, inputs)


def _frozen(graph: typing.Any, inputs: typing.Any) -> typing.Any:
    """Our backend, with weights of what stays Inductor's packed as autotune's are."""
    from .backend import compile

    with compiling(COMPILED):
        return compile(graph, inputs)


def prepare(module: nn.Module, setting: str, training: "bool | str" = False, linears: "bool | str" = True) -> nn.Module:
    """A copy of the module that runs by this setting; `training` and `linears` as in fuse()."""
    module = copy.deepcopy(module)
    if setting == "fused":
        return fuse(module, training=training, linears=linears)
    if setting == COMPILED:
        return torch.compile(fuse(module, training=training, linears=linears), backend=_frozen, dynamic=False)
    if setting == BACKEND:
        return torch.compile(module, backend=_frozen, dynamic=False)
    if setting == "fused int8":
        return fuse(module, int8_weights=True)
    if setting == "eager" or setting in MIXTURES:
        if hasattr(module, "set_experts_implementation"):
            module.set_experts_implementation(setting)
        return module
    if setting == "compile":
        return torch.compile(module, dynamic=False)
    if setting == "autotune":
        return torch.compile(module, backend=_autotune, dynamic=False)
    if setting == "openvino":
        # Without the hint it may compute f32 in bf16.
        hint = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}[next(module.parameters()).dtype]
        options = {"device": "CPU", "config": {"INFERENCE_PRECISION_HINT": hint, "PERFORMANCE_HINT": "LATENCY"}}
        return torch.compile(module, backend="openvino", options=options, dynamic=False)
    if setting == "zentorch":
        return torch.compile(module, backend="zentorch", dynamic=False)
    if setting == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        quantize_(module, Int8WeightOnlyConfig())
        return torch.compile(module, backend=_autotune, dynamic=False)
    raise ValueError(f"no setting {setting!r}")
