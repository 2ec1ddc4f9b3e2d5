# SPDX-License-Identifier: Apache-2.0
"""MLPs that none of the matchers took, for why()."""

import typing

from torch import nn

from . import inline
from .layer import match_inline
from .patterns import NoMatch

_EXPERTS = 3  # dimensions of a tensor with a matrix for each expert


def unmatched(module: nn.Module) -> "NoMatch | tuple[typing.Any, ...] | None":
    """Why an MLP in this module's forward is not fused, what it would be fused as, or None where
    there is none."""
    experts = _experts(module)
    if len(experts) > 1:
        return NoMatch(f"experts: {', '.join(experts)} have a matrix for each expert; linear layers alone are fused")
    if not inline.is_candidate(module):
        return None
    try:
        return match_inline(module)
    except NoMatch as reason:
        return reason


def _experts(module: nn.Module) -> "list[str]":
    """Names of the parameters that have a matrix for each of several experts."""
    found = {name: p.shape for name, p in module.named_parameters(recurse=False) if p.dim() == _EXPERTS}
    counts = {shape[0] for shape in found.values()}
    return list(found) if len(counts) == 1 and counts != {1} else []
