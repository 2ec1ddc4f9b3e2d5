# SPDX-License-Identifier: Apache-2.0
"""The engine's fused MLP of some weights, released with its owner."""

import typing
import weakref

import torch

_NO_NORMS = (None, None, None, None)
_NO_FORMS = ("none", "product", "none", "none")


class Handle:
    """Packed weights, and the call that uses them. Holds the weights' memory, so that an address
    that is equal is the same memory."""

    def __init__(
        self,
        weights: "typing.Sequence[torch.Tensor]",
        biases: "typing.Sequence[torch.Tensor | None]",
        activation: str,
        dtype: "torch.dtype | None" = None,
        int8_weights: bool = False,
        post_norm: "tuple[torch.Tensor, torch.Tensor, float] | None" = None,
    ) -> None:
        norms: "typing.Sequence[torch.Tensor | None]" = _NO_NORMS
        forms: "typing.Sequence[str]" = _NO_FORMS
        eps = 0.0
        if post_norm is not None:
            norms = (None, None, post_norm[0].detach(), post_norm[1].detach())
            forms = ("none", "product", "of_residual", "layer")
            eps = post_norm[2]
        with torch.no_grad():
            self.number: int = torch.ops.epilogue.prepare.default(
                [w.detach() for w in weights],
                [None if b is None else b.detach() for b in biases],
                activation,
                dtype,
                int8_weights,
                norms,
                forms,
                [1e-5, eps],
                post_norm is not None,
            )
        self._finalizer = weakref.finalize(self, torch.ops.epilogue.release.default, self.number)

    def refresh(self) -> None:
        torch.ops.epilogue.refresh.default(self.number)
