# SPDX-License-Identifier: Apache-2.0
"""What a fused module knows beside its weights: its plan, its packed weights, and the checks that
each call makes."""

import dataclasses
import typing

import torch
from torch import nn

from . import activations, choose, signals
from .handle import Handle
from .match import Plan, is_conv1d, is_linear
from .training import FusedFunction

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_run = None  # torch.ops.epilogue.fused_mlp.default, once the ops are loaded


@dataclasses.dataclass(frozen=True)
class Options:
    int8_weights: bool = False
    training: bool = False
    tune: str = "model"


def _hooks(module: nn.Module) -> "list[typing.Any]":
    return [module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks]


class _Bound:
    """The plan on the modules of one instance: objects to compare, no look-ups by path."""

    def __init__(self, root: nn.Module, plan: Plan) -> None:
        self.root_modules = root._modules
        self.steps: "list[tuple[dict[str, typing.Any], str, nn.Module]]" = []
        self.children: "list[tuple[nn.Module, type]]" = []
        self.hooks: "list[typing.Any]" = []
        found = {path: self._resolve(root, path) for path in plan.paths()}
        self.linears = [found[path] for path in plan.linears]
        self.dropouts = [found[path] for path in plan.dropouts]
        self.norm = found[plan.post_norm] if plan.post_norm else None
        for module in self.linears:
            if not is_linear(module):
                raise TypeError(f"{type(module).__name__} in place of a linear layer")
        self.transposed = [is_conv1d(module) for module in self.linears]
        for module in self.dropouts:
            if type(module) is not nn.Dropout:
                raise TypeError(f"{type(module).__name__} in place of nn.Dropout")
        if self.norm is not None and type(self.norm) is not nn.LayerNorm:
            raise TypeError(f"{type(self.norm).__name__} in place of nn.LayerNorm")
        if plan.activation_path is not None:
            activation = found[plan.activation_path]
            if activations.identify(activation) != plan.activation:
                raise TypeError(f"{type(activation).__name__} is not the activation {plan.activation}")

    def _resolve(self, root: nn.Module, path: str) -> nn.Module:
        module = root
        for name in path.split("."):
            if name not in module._modules:
                raise TypeError(f"no submodule {path}")
            self.steps.append((module._modules, name, module._modules[name]))
            module = module._modules[name]
            self.children.append((module, type(module)))
            self.hooks += _hooks(module)
        return module

    def holds(self, root: nn.Module) -> bool:
        if root._modules is not self.root_modules:
            return False
        for names, name, child in self.steps:
            if names.get(name) is not child:
                return False
        return True

    def obstacle(self) -> "str | None":
        """Why the modules must run as themselves now."""
        for hooks in self.hooks:
            if hooks:
                return "a hook on a layer of the MLP"
        for child, kind in self.children:
            if type(child) is not kind:
                return f"a layer of the MLP became {type(child).__name__}"
            if "forward" in child.__dict__:
                return f"{kind.__name__} has a forward of its own instance"
        for dropout in self.dropouts:
            if dropout.training and dropout.p > 0:
                return "dropout is active"
        return None


class State:
    """Of one fused module. Copies and pickles keep the plan and the options, not the weights."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan = plan
        self.options = options
        self.fused_calls = 0
        self.own_calls = 0
        self.reason: "str | None" = None  # of the last call that ran the module's own forward
        self._bound: "_Bound | None" = None
        # By dtype of the computation: key of memory, key of contents, version, handle.
        self._packs: "dict[torch.dtype, tuple[typing.Any, typing.Any, int, Handle]]" = {}

    def __deepcopy__(self, memo: typing.Any) -> "State":
        return State(self.plan, self.options)

    def __copy__(self) -> "State":
        return State(self.plan, self.options)

    def __reduce__(self) -> typing.Any:
        return State, (self.plan, self.options)

    def refresh(self) -> None:
        """Forgets packed weights: the next call packs what the weights are then."""
        self._packs.clear()
        self._bound = None

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        """The fused result; None where the module's own forward has to run."""
        reason = self._refuse(module, x)
        if reason is None:
            out = self._run(module, x)
            if out is not None:
                self.fused_calls += 1
                return out
        else:
            self.reason = reason
        self.own_calls += 1
        return None

    def _refuse(self, module: nn.Module, x: typing.Any) -> "str | None":
        if type(x) is not torch.Tensor:
            return f"the input is a {type(x).__name__}"
        if not x.is_cpu or x.layout is not torch.strided:
            return f"the input is on {x.device} ({x.layout})"
        if x.dim() == 0 or x.dim() > 8:
            return f"the input has {x.dim()} dimensions"
        reason = signals.foreign()
        if reason is not None:
            return reason
        if self._bound is None or not self._bound.holds(module):
            try:
                self._bound = _Bound(module, self.plan)
            except TypeError as error:
                self._bound = None
                return f"changed since it was fused: {error}"
        return self._bound.obstacle()

    def _parameters(self) -> "tuple[list[torch.Tensor], list[torch.Tensor | None]] | None":
        assert self._bound is not None
        weights: "list[torch.Tensor]" = []
        biases: "list[torch.Tensor | None]" = []
        for linear in self._bound.linears:
            own = linear._parameters
            weight = own.get("weight")
            bias = own.get("bias")
            if type(weight) is not nn.Parameter or not (bias is None or type(bias) is nn.Parameter):
                self.reason = f"a parameter is a {type(weight if type(weight) is not nn.Parameter else bias).__name__}"
                return None
            weights.append(weight)
            biases.append(bias)
        return weights, biases

    def _run(self, module: nn.Module, x: torch.Tensor) -> "torch.Tensor | None":
        global _run
        if _run is None:
            _run = torch.ops.epilogue.fused_mlp.default
        found = self._parameters()
        if found is None:
            return None
        weights, biases = found
        norm = self._bound.norm
        given = [*weights, *(b for b in biases if b is not None)]
        if norm is not None:
            given += [norm.weight, norm.bias]
        dtype = weights[0].dtype
        for p in given:
            if p.dtype is not dtype or not p.is_cpu or p.is_inference() or p.layout is not torch.strided:
                self.reason = f"parameters of several dtypes, off the CPU, or made in inference mode: {p.dtype}"
                return None
        if torch.is_autocast_enabled("cpu"):
            if norm is not None:
                self.reason = "autocast around a residual and a norm"
                return None
            dtype = torch.get_autocast_dtype("cpu")
        elif x.dtype is not dtype:
            self.reason = f"x is {x.dtype}, the weights are {dtype}"
            return None
        if dtype not in DTYPES or weights[0].dtype not in DTYPES or x.dtype not in DTYPES:
            self.reason = f"dtype {dtype}"
            return None
        if not self._fits(x, weights):
            self.reason = f"x {list(x.shape)} does not fit the weights: the module says how"
            return None
        if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in given)):
            return self._train(x, dtype, weights, biases)
        if self.options.tune == "measure" and not self._is_faster(module, x, dtype, weights):
            return None
        return self._infer(x, dtype, weights, biases)

    def _fits(self, x: torch.Tensor, weights: "list[torch.Tensor]") -> bool:
        assert self._bound is not None
        return x.shape[-1] == weights[0].shape[0 if self._bound.transposed[0] else 1]

    def _infer(
        self, x: torch.Tensor, dtype: torch.dtype, weights: "list[torch.Tensor]", biases: "list[torch.Tensor | None]"
    ) -> "torch.Tensor | None":
        pack = self._pack(dtype, weights, biases, always=False)
        if pack is None:
            return None
        return _run(x if x.dtype is dtype else x.to(dtype), pack[3].number, pack[2])

    def _train(
        self, x: torch.Tensor, dtype: torch.dtype, weights: "list[torch.Tensor]", biases: "list[torch.Tensor | None]"
    ) -> "torch.Tensor | None":
        if not self.options.training:
            self.reason = "gradients are wanted: fuse(model, training=True)"
        elif torch.is_autocast_enabled("cpu"):
            self.reason = "gradients under autocast"
        elif self._bound.norm is not None or self.options.int8_weights:
            self.reason = "gradients of a residual and a norm, or of int8 weights"
        else:
            # Each step writes the weights: they are packed at every call.
            pack = self._pack(dtype, weights, biases, always=True)
            if pack is not None:
                return FusedFunction.apply(self.plan, tuple(self._bound.transposed), pack[3], pack[2], x, *weights, *biases)
        return None

    def _pack(
        self,
        dtype: torch.dtype,
        weights: "list[torch.Tensor]",
        biases: "list[torch.Tensor | None]",
        always: bool,
    ) -> "tuple[typing.Any, typing.Any, int, Handle] | None":
        norm = self._bound.norm
        rest = [b for b in biases if b is not None]
        if norm is not None:
            rest += [norm.weight, norm.bias]
        memory = [(p.data_ptr(), p.dtype, p.stride()) for p in (*weights, *rest)]
        contents = [p._version for p in (*weights, *rest)]
        contents.append(signals.steps())
        pack = self._packs.get(dtype)
        if pack is not None and pack[0] == memory:
            if pack[1] == contents and not always:
                return pack
            pack = (memory, contents, pack[2] + 1, pack[3])
        else:
            if not all(address for address, _, _ in memory):
                self.reason = "a parameter has no memory"
                return None
            self._packs.pop(dtype, None)
            pack = (memory, contents, 0, self._make(dtype, weights, biases))
        self._packs[dtype] = pack
        return pack

    def _make(
        self, dtype: torch.dtype, weights: "list[torch.Tensor]", biases: "list[torch.Tensor | None]"
    ) -> Handle:
        bound = self._bound
        rows = [w.detach().t() if t else w.detach() for w, t in zip(weights, bound.transposed)]
        offsets = list(biases)
        if self.plan.packed:
            half = rows[0].shape[0] // 2
            rows[:1] = [rows[0][:half], rows[0][half:]]
            offsets[:1] = [None, None] if offsets[0] is None else [offsets[0][:half], offsets[0][half:]]
        norm = None if bound.norm is None else (bound.norm.weight, bound.norm.bias, bound.norm.eps)
        return Handle(rows, offsets, self.plan.engine_activation(), dtype, self.options.int8_weights, norm)

    def _is_faster(
        self, module: nn.Module, x: torch.Tensor, dtype: torch.dtype, weights: "list[torch.Tensor]"
    ) -> bool:
        own = getattr(type(module), "_epilogue_own")
        shape = "x".join(str(n) for w in weights for n in w.shape)
        rows = x.numel() // max(x.shape[-1], 1)
        key = choose.key(str(self.plan), shape, rows, dtype, self.options.int8_weights)
        faster = choose.known(key)
        if faster is None:
            found = self._parameters()
            faster = choose.measure(key, lambda: own(module, x), lambda: self._infer(x, dtype, *found))
        if not faster:
            self.reason = f"PyTorch is faster at {rows} rows (measured)"
        return faster
