# SPDX-License-Identifier: Apache-2.0
"""Parameters that FSDP2 (fully_shard, and the replicate() made of it) gathers for a forward pass, or DDP makes for one.

Between its hooks a module has plain parameters, whose version is 0 for ever and whose memory is filled anew for each pass. So
nothing that is packed of them outlives the call, unless they stay gathered (reshard_after_forward=False): then what they were
gathered from says whether they changed. DDP keeps what tensor parallelism split as plain parameters, and puts DTensors in their
place for each pass, as attributes that are no parameters.
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


def own_of(linear: nn.Module) -> "dict[str, typing.Any]":
    """Where the weight and the bias of a linear layer are now."""
    own = linear.__dict__
    return own if "weight" in own else linear._parameters


def trains(linear: nn.Module) -> bool:
    own = own_of(linear)
    weight, bias = own.get("weight"), own.get("bias")
    return weight is not None and (weight.requires_grad or (bias is not None and bias.requires_grad))


def mesh_within(module: nn.Module) -> typing.Any:
    """The mesh that parameters of this very module are split over while they are gathered: that of tensor parallelism within FSDP2.
    None where they are plain then, or not FSDP2's."""
    for parameter, _ in _owned(module):
        if parameter.is_dtensor:
            spec = getattr(parameter, "_unsharded_dtensor_spec", None) or getattr(parameter, "_tp_spec", None)
            if spec is not None:
                return spec.mesh
    return None


def shapes_within(module: nn.Module) -> "dict[str, tuple[int, ...]]":
    """By name, what this rank has of each parameter of this very module while it is gathered."""
    found = {}
    for parameter, _ in _owned(module):
        info = parameter._module_info
        names = [info.param_name] * (info.module is module)
        names += [name for shared, name in zip(info.shared_modules, info.shared_param_names) if shared is module]
        found.update(dict.fromkeys(names, tuple(parameter._orig_size)))
    return found


def _handles(module: nn.Module) -> "list[typing.Any]":
    """Of FSDP2's hooks on this very module, None where there are none."""
    known = _loaded.get("torch.distributed._composable_state")
    state = None if known is None else known._get_module_state(module)
    return [getattr(state, f"_{when}_forward_hook_handle", None) for when in ("pre", "post")]


def is_wrapped(module: nn.Module) -> bool:
    """Whether FSDP2's hooks are on this very module, beside others or not."""
    return any(handle is not None for handle in _handles(module))


def has_own_hooks(module: nn.Module) -> bool:
    """Whether FSDP2's hooks are on this very module, and no others."""
    handles = _handles(module)
    if None in handles or module._backward_hooks or module._backward_pre_hooks:
        return False
    return [*module._forward_pre_hooks, *module._forward_hooks] == [handle.id for handle in handles]


def gathered_of(modules: "typing.Iterable[nn.Module]") -> "Gathered | None":
    """None where none of their parameters is made for a pass."""
    modules = list(modules)
    if any("weight" in module.__dict__ for module in modules):
        return Gathered(False, ())
    found = [pair for module in modules for pair in _owned(module)]
    if not found:
        return None
    kept = all(group.post_forward_mesh_info is None for _, group in found)
    return Gathered(kept, tuple((p.sharded_param, p.sharded_param._version) for p, _ in found) if kept else ())
