# SPDX-License-Identifier: Apache-2.0
"""The roofline of work that reads each weight once: how fast this machine reads memory now."""

import typing

import torch
from torch import nn

_BYTES = 512 << 20  # more than caches hold
_TINY_BYTES = 1 << 20


def reader(tiny: bool = False) -> "typing.Callable[[], torch.Tensor]":
    """Reads memory once, on all of torch's threads. Has the attribute `bytes`."""
    count = _TINY_BYTES if tiny else _BYTES
    memory = torch.ones(count // 4)

    def read() -> torch.Tensor:
        return memory.sum()

    read.bytes = count  # type: ignore[attr-defined]
    return read


def weight_bytes(model: nn.Module) -> int:
    """What a step of one token reads of the parameters. Of an embedding that is one row, unless a
    linear layer shares its weight."""
    looked_up = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    multiplied = {id(p) for m in model.modules() if not isinstance(m, nn.Embedding) for p in m.parameters(recurse=False)}
    return sum(p.numel() * p.element_size() for p in model.parameters() if id(p) not in looked_up - multiplied)


def share(count: int, ms: float, read_ms: float, read_bytes: int) -> "dict[str, float]":
    """Of the roofline that `ms` reaches where `count` bytes must be read."""
    rate = read_bytes / read_ms * 1e-6
    return {"gb_per_s": rate, "roofline": count / (ms * rate) * 1e-6}
