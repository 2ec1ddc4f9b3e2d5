# SPDX-License-Identifier: Apache-2.0
"""A plan on the modules of one instance, and what about them each call checks."""

import typing

import torch
from torch import nn

from . import activations, gathered, norms, sharded
from .layer import hooks_of
from .linears import is_conv1d, is_linear
from .match import Plan
from .nodes import PASSIVE


class Bound:
    """Objects to compare, no look-ups by path."""

    def __init__(self, root: nn.Module, plan: Plan) -> None:
        self.root_modules = root._modules
        self.steps: "list[tuple[dict[str, typing.Any], str, nn.Module]]" = []
        self.children: "list[tuple[nn.Module, type, dict[str, typing.Any]]]" = []
        self.hooks: "list[typing.Any]" = []
        self.split: "sharded.Split | None" = None  # over ranks, as obstacle() found it last
        self.gathered: "gathered.Gathered | None" = None  # by FSDP2, as obstacle() found it last
        self._marks: "list[typing.Any]" = []
        self._found: "sharded.Split | str" = ""
        self._others: "list[dict[int, typing.Any]] | None" = None  # hooks of what is no linear layer
        self.columns = 0  # of the whole result, where it is split
        found = {path: self._resolve(root, path) for path in plan.paths()}
        self.linears = [found[path] for path in plan.linears]
        self.dropouts = [found[path] for path in plan.dropouts]
        self.norms = [None if p is None else found[p] for p in (plan.pre_norm, plan.post_norm)]
        for module in self.linears:
            if not is_linear(module):
                raise TypeError(f"{type(module).__name__} in place of a linear layer")
        self.transposed = [is_conv1d(module) for module in self.linears]
        for module in self.dropouts:
            if type(module) not in PASSIVE:
                raise TypeError(f"{type(module).__name__} in place of nn.Dropout")
        self.modes = [own for _, _, own in self.children] + [root.__dict__] if plan.eval_only else []
        # Their eps may be written at any time.
        self.sizes = [(m, n) for m, n in zip(self.norms, (plan.pre, plan.post)) if m is not None]
        for module, norm in self.sizes:
            if norms.identify(module) != norm:
                raise TypeError(f"{type(module).__name__} is not the {norm.kind} norm that it was")
        self.activation: "typing.Callable[[torch.Tensor], torch.Tensor]" = activations.KNOWN[plan.activation]
        if plan.activation_path is not None:
            self.activation = found[plan.activation_path]
            if activations.identify(self.activation) != plan.activation:
                raise TypeError(f"{type(self.activation).__name__} is not the activation {plan.activation}")

    def _resolve(self, root: nn.Module, path: str) -> nn.Module:
        module = root
        for name in path.split("."):
            if name not in module._modules:
                raise TypeError(f"no submodule {path}")
            self.steps.append((module._modules, name, module._modules[name]))
            module = module._modules[name]
            self.children.append((module, type(module), module.__dict__))
            self.hooks += hooks_of(module)
        return module

    def holds(self, root: nn.Module) -> bool:
        if root._modules is not self.root_modules:
            return False
        for names, name, child in self.steps:
            if names.get(name) is not child:
                return False
        return True

    def _split(self) -> "str | None":
        """Finds out whether hooks and weights are those of a plan of tensor parallelism, or says why not."""
        if self._others is None:
            self._others = [hooks for child, _, _ in self.children if child not in self.linears for hooks in hooks_of(child)]
        if any(self._others):
            return "a hook on a layer of the MLP"
        marks = [mark for linear in self.linears for mark in sharded.marks_of(linear)]
        if marks != self._marks:
            self._marks, self._found = marks, sharded.split_of_mlp(self.linears)
            self.columns = sharded.columns_of(self.linears[-1]) if isinstance(self._found, sharded.Split) else 0
        if isinstance(self._found, str):
            return "a hook on a layer of the MLP" if self._found == "a hook on a layer" else self._found
        self.split = self._found
        return None

    def obstacle(self) -> "str | None":
        """Why the modules must run as themselves now."""
        self.split = None
        self.gathered = gathered.gathered_of(self.linears)
        if any(sharded.is_marked(linear) for linear in self.linears):
            reason = self._split()
            if reason is not None:
                return reason
        elif any(self.hooks):
            return "a hook on a layer of the MLP"
        return self.changed()

    def changed(self) -> "str | None":
        """Why they must, of what neither hooks nor parameters say."""
        for child, kind, own in self.children:
            if type(child) is not kind:
                return f"a layer of the MLP became {type(child).__name__}"
            if "forward" in own and (self.split is None or child not in self.linears):
                return f"{kind.__name__} has a forward of its own instance"
        for dropout in self.dropouts:
            if dropout.training and getattr(dropout, "p", 0) > 0:
                return "dropout is active"
        for own in self.modes:
            if own["training"]:
                return "the MLP is in training mode, in which it does more"
        for module, norm in self.sizes:
            if not norm.is_same(module):
                return f"{type(module).__name__} has another eps"
        return None
