# SPDX-License-Identifier: Apache-2.0
"""Embeddings that tensor parallelism split, in inference: this rank's rows by one look-up, and the ranks' sum through the host's memory.

transformers' plans split `embed_tokens` of each model, and so does the plan of torch's tutorial, where DTensor's way to two tokens' rows
took 4 ms of a pass of 12 (two ranks, gloo). An embedding that no plan is on stays PyTorch's, which has it as one op.
"""

import typing

import torch
from torch import nn

from . import gathered, sharded, signals
from .fused_class import call_around, class_of, made_once, unfuse_class
from .later import plain
from .report import Row

STATE = "_epilogue_embedding_state"
_is_grad_enabled = torch.is_grad_enabled


class EmbeddingState:
    """Of one embedding. Copies and pickles begin anew."""

    def __init__(self) -> None:
        self.fused_calls = 0
        self.own_calls = 0
        self.reason: "str | None" = None  # of the last call that ran the module's own forward
        self._marks: "list[typing.Any]" = []
        self._split: "sharded.EmbeddingSplit | str" = "it did not run yet"

    def __deepcopy__(self, memo: typing.Any) -> "EmbeddingState":
        return EmbeddingState()

    def __reduce__(self) -> typing.Any:
        return EmbeddingState, ()

    def split_of(self, module: nn.Module) -> "sharded.EmbeddingSplit | str":
        marks = sharded.marks_of(module)
        if marks != self._marks:
            self._marks, self._split = marks, sharded.split_of_embedding(module)
        return self._split

    def run(self, module: nn.Module, ids: typing.Any) -> "torch.Tensor | None":
        """The rows of ids, as the plan wants them; None where the hooks and the forward of the plan have to run."""
        ids = sharded.settled(plain(ids))
        split = self.split_of(module)
        reason = split if isinstance(split, str) else signals.foreign() or _obstacle(module, ids)
        out = None if reason is not None else split.run(module._parameters["weight"]._local_tensor, ids)
        if out is None:
            self.reason = reason or "the ranks do not divide its result"
            self.own_calls += 1
        else:
            self.fused_calls += 1
        return out


def _obstacle(module: nn.Module, ids: typing.Any) -> "str | None":
    if type(ids) is not torch.Tensor or not ids.is_cpu or ids.dtype not in (torch.int64, torch.int32):
        return f"its input is a {type(ids).__name__}, not integers on the CPU"
    if _is_grad_enabled() and module._parameters["weight"].requires_grad:
        return "gradients are wanted"
    return "max_norm, by which a call writes the weight" if module.max_norm is not None else None


@made_once
def _embedding_class(original: type) -> type:
    def run(module: nn.Module, ids: typing.Any) -> "torch.Tensor | None":
        return module.__dict__[STATE].run(module, ids)

    return class_of(original, _embedding_class, call_around(original, run), "__call__")


def is_fused_embedding(module: nn.Module) -> bool:
    return STATE in module.__dict__


def unfuse_embedding(module: nn.Module) -> None:
    unfuse_class(module, STATE)


def fuse_embeddings(model: nn.Module) -> None:
    """Those that a plan split, and whose forward is nn.Embedding's own."""
    for module in model.modules():
        if type(module) is nn.Embedding and sharded.is_dtensor(module.weight) and not gathered.is_managed(module):
            module.__dict__[STATE] = EmbeddingState()
            module.__class__ = _embedding_class(nn.Embedding)


def rows_of(model: nn.Module) -> "list[Row]":
    rows = []
    for name, module in model.named_modules():
        if not is_fused_embedding(module):
            continue
        state: EmbeddingState = module.__dict__[STATE]
        split = state.split_of(module)
        what, part = (split, None) if isinstance(split, str) else (f"embedding, {split.of()}", str(split))
        rows.append(Row(name, "Embedding", part is not None, what, state.fused_calls, state.own_calls, state.reason, part=part))
    return rows
