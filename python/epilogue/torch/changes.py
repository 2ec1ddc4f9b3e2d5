# SPDX-License-Identifier: Apache-2.0
"""The changes that advise() tries, in their order."""

import os
import typing

import torch
from torch import nn

from .candidate import Candidate
from .experts_state import is_fused_experts
from .fuse import fuse, why

# Optimizers that have fused=True on the CPU.
_FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)
# Tolerances of at least this let f32 be computed in bf16.
BF16_TOLERANCE = 1e-2


def _to_f32(candidate: Candidate, tolerance: float) -> "tuple[Candidate, str] | None":
    low = {p.dtype for p in candidate.model.parameters()} & {torch.bfloat16, torch.float16}
    is_on = torch.is_autocast_enabled("cpu")
    if not low and not is_on:
        return None
    made = candidate.copy()
    if is_on:
        made.autocast = None
        return made, "without autocast: f32"
    if made.optimizer is not None:
        return None  # its state is of the parameters' dtype
    made.model.float()
    made.input_dtype = torch.float32
    return made, "weights in f32"


def _to_bf16(candidate: Candidate, tolerance: float) -> "tuple[Candidate, str] | None":
    if tolerance < BF16_TOLERANCE or torch.is_autocast_enabled("cpu"):
        return None
    if {p.dtype for p in candidate.model.parameters()} != {torch.float32}:
        return None
    made = candidate.copy()
    made.autocast = torch.bfloat16
    return made, "autocast to bf16"


def _fuse(candidate: Candidate, tolerance: float) -> "tuple[Candidate, str] | None":
    made = candidate.copy()
    fuse(made.model, training=made.optimizer is not None)
    report = why(made.model)
    experts = sum(is_fused_experts(module) for module in made.model.modules())
    counts = {"MLPs": len(report.fused) - experts, "layers' experts": experts, "linear layers": sum(row.is_fused for row in report.linears)}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return (made, " and ".join(parts) + " fused") if parts else None


def _compile(candidate: Candidate, tolerance: float) -> "tuple[Candidate, str] | None":
    if candidate.optimizer is not None:
        return None  # a step's graph is Inductor's, but for products that fuse() makes too
    return candidate.by_backend(), 'torch.compile(model, backend="epilogue")'


def _sdpa(candidate: Candidate, tolerance: float) -> "tuple[Candidate, str] | None":
    config = getattr(candidate.model, "config", None)
    if getattr(config, "_attn_implementation", None) != "eager" or not getattr(candidate.model, "_supports_sdpa", False):
        return None
    made = candidate.copy()
    made.model.set_attn_implementation("sdpa")
    return made, "attention by scaled_dot_product_attention"


def _channels_last(candidate: Candidate, tolerance: float) -> "tuple[Candidate, str] | None":
    if not any(isinstance(m, nn.Conv2d) for m in candidate.model.modules()):
        return None
    made = candidate.copy()
    made.model.to(memory_format=torch.channels_last)
    return made, "convolutions in channels_last"


def _fused_optimizer(candidate: Candidate, tolerance: float) -> "tuple[Candidate, str] | None":
    optimizer = candidate.optimizer
    if type(optimizer) not in _FUSED or all(group.get("fused") for group in optimizer.param_groups):
        return None
    made = candidate.copy(fused=True, foreach=False)
    return made, f"{type(optimizer).__name__}(fused=True)"


def _counted(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def _threads(count: int) -> "typing.Callable[[Candidate, float], tuple[Candidate, str] | None]":
    def change(candidate: Candidate, tolerance: float) -> "tuple[Candidate, str] | None":
        if count == torch.get_num_threads():
            return None
        made = candidate.copy()
        made.num_threads = count
        return made, f"{_counted(count)} instead of {torch.get_num_threads()}"

    return change


class Change(typing.NamedTuple):
    name: str
    make: "typing.Callable[[Candidate, float], tuple[Candidate, str] | None]"
    findings: "tuple[str, ...]" = ()  # ids of what explain() says of it


def all_changes() -> "tuple[Change, ...]":
    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, max(1, cores // 2), cores})
    return (
        Change("f32", _to_f32, ("slow-dtype",)),
        Change("bf16", _to_bf16),
        Change("fuse", _fuse),
        Change("sdpa", _sdpa, ("unfused-attention",)),
        Change("channels_last", _channels_last, ("fallback-convolution",)),
        Change("compile", _compile, ("fusion", "unfused-norm", "unfused-gelu", "unfused-rotary")),
        Change("fused optimizer", _fused_optimizer, ("unfused-optimizer",)),
        *(Change(_counted(n), _threads(n), ("thread-contention",)) for n in counts),
    )
