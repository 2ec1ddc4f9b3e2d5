# SPDX-License-Identifier: Apache-2.0
"""Parameters that FSDP2 (fully_shard, and the replicate() made of it) gathers for a forward pass.

Between its hooks a module has plain parameters, whose version is 0 for ever and whose memory is filled anew for each pass. So
nothing that is packed of them outlives the call, unless they stay gathered (reshard_after_forward=False): then what they were
gathered from says whether they changed.
"""

import sys
import typing
import weakref

import torch
from torch import nn

_loaded = sys.modules


class Gathered(typing.NamedTuple):
    """Of the modules of one call."""

    kept: bool  # after the forward pass
    sources: "tuple[tuple[torch.Tensor, int], ...]"  # this rank's shards, with their versions


_key: "tuple[int, typing.Any]" = (0, None)  # of the states that _owners is of
_owners: "weakref.WeakKeyDictionary[nn.Module, list[tuple[typing.Any, typing.Any]]]" = weakref.WeakKeyDictionary()


def _find(states: typing.Any) -> None:
    """By module: FSDP's parameters, and the group that each is gathered with."""
    _owners.clear()
    for reference in list(states.values()):
        for group in getattr(reference(), "_fsdp_param_groups", None) or ():
            for parameter in group.fsdp_params:
                info = parameter._module_info
                for module in {info.module, *info.shared_modules}:
                    _owners.setdefault(module, []).append((parameter, group))


def _owned(module: nn.Module) -> "list[tuple[typing.Any, typing.Any]]":
    global _key
    known = _loaded.get("torch.distributed._composable_state")
    if known is None:
        return []
    states = known._module_state_mapping
    if len(states) == 0:
        return []
    # States are only added, at the end, and go with their modules.
    key = (len(states), next(reversed(states.data)))
    if key[0] != _key[0] or key[1] is not _key[1]:
        _find(states)
        _key = key
    return _owners.get(module, [])


def is_managed(module: nn.Module) -> bool:
    """Whether FSDP2 gathers parameters of this very module."""
    return bool(_owned(module))


def gathered_of(modules: "typing.Iterable[nn.Module]") -> "Gathered | None":
    """None where none of their parameters is FSDP2's."""
    found = [pair for module in modules for pair in _owned(module)]
    if not found:
        return None
    kept = all(group.post_forward_mesh_info is None for _, group in found)
    return Gathered(kept, tuple((p.sharded_param, p.sharded_param._version) for p, _ in found) if kept else ())
