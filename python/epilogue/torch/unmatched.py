# SPDX-License-Identifier: Apache-2.0
"""MLPs that none of the matchers took, for why()."""

import typing

from torch import nn

from . import inline
from .layer import match_inline
from .patterns import NoMatch


def unmatched(module: nn.Module) -> "NoMatch | tuple[typing.Any, ...] | None":
    """Why an MLP in this module's forward is not fused, what it would be fused as, or None where
    there is none."""
    if not inline.is_candidate(module):
        return None
    try:
        return match_inline(module)
    except NoMatch as reason:
        return reason
