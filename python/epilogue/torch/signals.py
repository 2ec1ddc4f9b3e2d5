# SPDX-License-Identifier: Apache-2.0
"""What says that a module must run as itself; optimizer steps, which handles are told of."""

import typing

import torch
from torch.nn.modules import module as _module
from torch.optim.optimizer import register_optimizer_step_post_hook

# Every call of a fused module asks foreign(): names of this module, no look-ups by path.
_after, _before = _module._global_forward_hooks, _module._global_forward_pre_hooks
_back, _back_before = _module._global_backward_hooks, _module._global_backward_pre_hooks
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._functorch.peek_interpreter_stack
_jit_state = torch._C._get_tracing_state


def _note_step(*_: typing.Any) -> None:
    """AdamW(fused=True) writes parameters without a new _version. A compiled step gives them one."""
    if not torch.compiler.is_compiling():
        torch.ops.epilogue.note_step.default()


register_optimizer_step_post_hook(_note_step)


def foreign() -> "str | None":
    """Why no module may run fused now, or None."""
    if _after or _before or _back or _back_before:
        return "a hook on all modules"
    if _dispatch_modes() > 0:
        return "a dispatch mode (fake tensors, counting of FLOPs, ...)"
    if _transforms() is not None:
        return "a transform of torch.func"
    if _jit_state() is not None:
        return "torch.jit.trace"
    return None
