# SPDX-License-Identifier: Apache-2.0
"""Fused MLPs as functions of tensors, as ops that torch.compile and torch.export keep.

    y = epilogue.torch.functional.gated_mlp(x, gate, up, down, activation="silu")

Weights are [out, in], as nn.Linear holds them. The backward pass computes gate and up again; its
products are PyTorch's.
"""

import typing

import torch

from . import activations
from . import packed_call  # registers its op
from . import pointwise  # noqa: F401  (registers fake results and gradients of the compiled ops)
from .handle import Handle, Kept
from .match import Plan
from .mixture import experts  # noqa: F401  (the same for mixtures of experts)

OptionalTensor = typing.Optional[torch.Tensor]
_GATED = Plan("forward", "x", ("gate", "up", "down"), "silu", None, True)
_PLAIN = Plan("forward", "x", ("fc1", "fc2"), "gelu", None, False)

_kept = Kept(1024)  # handles of calls that name weights alone, by their numbers


def _plan(gated: bool, activation: str) -> Plan:
    names = activations.GATED if gated else activations.KNOWN
    if activation not in names:
        raise ValueError(f"activation is one of {', '.join(sorted(names))}, not {activation!r}")
    base = _GATED if gated else _PLAIN
    return Plan(base.method, base.input, base.linears, activation, None, gated)


def _require_tensors(**given: typing.Any) -> None:
    for name, value in given.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"argument '{name}' must be Tensor, not {type(value).__name__}")


def _require(x: torch.Tensor, weights: "typing.Sequence[torch.Tensor]", biases: "typing.Sequence[OptionalTensor]") -> None:
    """Shapes and dtypes, in the words of torch's own linear."""
    hidden = weights[0].shape[0] if weights[0].dim() == 2 else 0
    for i, w in enumerate(weights):
        if w.dim() != 2:
            raise RuntimeError(f"expected weights of 2 dimensions, but weight {i} is {list(w.shape)}")
        if w.dtype != x.dtype:
            raise RuntimeError(f"expected x and weights to have the same dtype, but got {x.dtype} and {w.dtype}")
        if w.device != x.device:
            raise RuntimeError(f"Expected all tensors to be on the same device, but got {x.device} and {w.device}")
        k = x.shape[-1] if x.dim() and i + 1 < len(weights) else hidden
        if x.dim() == 0 or w.shape[1] != k or (i + 1 < len(weights) and w.shape[0] != hidden):
            shapes = ", ".join(str(list(t.shape)) for t in weights)
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied: x is {list(x.shape)}, the weights are {shapes}")
        b = biases[i]
        if b is None:
            continue
        if b.shape != w.shape[:1] or b.dtype != x.dtype:
            raise RuntimeError(f"expected a bias of {w.shape[0]} and {x.dtype}, but got {list(b.shape)} and {b.dtype}")
        if b.device != x.device:
            raise RuntimeError(f"Expected all tensors to be on the same device, but got {x.device} and {b.device}")


def _require_gradient(dy: torch.Tensor, x: torch.Tensor, last: torch.Tensor) -> None:
    wanted = (*x.shape[:-1], last.shape[0])
    if dy.shape != wanted or dy.dtype != x.dtype or dy.device != x.device:
        raise RuntimeError(
            f"expected a gradient of {list(wanted)}, {x.dtype} on {x.device}, but got {list(dy.shape)}, {dy.dtype} on {dy.device}"
        )


@torch.library.custom_op("epilogue::keep", mutates_args=(), device_types="cpu")
def _keep(weights: typing.List[torch.Tensor], biases: typing.List[OptionalTensor], activation: str, bits: str = "") -> int:
    """The number of a handle for weights that kept_mlp or linears meets for the first time. It packs them once, and goes
    with the first of their storages. activation: the engine's name; "none": linear layers of one input. bits: as bits.py names them."""
    handle = Handle(weights, biases, activation, bits=bits, borrows=True)
    _kept.put(handle.number, handle, [t for t in (*weights, *biases) if t is not None])
    return handle.number


def clear() -> None:
    """Drops the weights that were packed for calls with cache=True, and for torch.compile's backend."""
    _kept.clear()
    packed_call.clear()


def _forward(plan: Plan, x: torch.Tensor, weights: "list[torch.Tensor]", biases: "list[OptionalTensor]", cache: bool) -> torch.Tensor:
    _require(x, weights, biases)
    activation = plan.engine_activation()
    if cache:
        return torch.ops.epilogue.kept_mlp.default(x.detach(), weights, biases, activation)
    out = Handle(weights, biases, activation, parameters=[])(x.detach(), [])
    assert out is not None  # nothing is watched
    return out


def _backward(plan: Plan, dy: torch.Tensor, inputs: "list[OptionalTensor]") -> "list[torch.Tensor]":
    """Gradients of all inputs that are there, in their order. Spelled out: autograd does not see
    what an op does within."""
    half = len(inputs) // 2
    x, weights, biases = inputs[0], inputs[1 : 1 + half], inputs[1 + half :]
    _require(x, weights, biases)
    _require_gradient(dy, x, weights[-1])
    rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    gate = torch.nn.functional.linear(rows, weights[0], biases[0])
    up = torch.nn.functional.linear(rows, weights[1], biases[1]) if plan.gated else None
    middle = torch.ops.epilogue.mlp_gradients.default(dy_rows @ weights[-1], gate, up, plan.activation)
    hidden, branches = middle[0], middle[1 : 3 if plan.gated else 2]
    dx = sum(d @ w for d, w in zip(branches, weights))
    outs = [*branches, dy_rows]
    reads = [*(rows for _ in branches), hidden]
    found = [dx.reshape(x.shape), *(d.t() @ r for d, r in zip(outs, reads))]
    found += [d.sum(0) for d, b in zip(outs, biases) if b is not None]
    return [g.contiguous() for g in found]


def _fake(x: torch.Tensor, weights: "list[torch.Tensor]", biases: "list[OptionalTensor]") -> torch.Tensor:
    _require(x, weights, biases)
    return x.new_empty((*x.shape[:-1], weights[-1].shape[0]))


@torch.library.custom_op("epilogue::gated_mlp", mutates_args=(), device_types="cpu")
def _gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, gate_bias: OptionalTensor,
           up_bias: OptionalTensor, down_bias: OptionalTensor, activation: str, cache: bool) -> torch.Tensor:  # fmt: skip
    return _forward(_plan(True, activation), x, [gate, up, down], [gate_bias, up_bias, down_bias], cache)


@torch.library.custom_op("epilogue::mlp", mutates_args=(), device_types="cpu")
def _mlp(x: torch.Tensor, fc1: torch.Tensor, fc2: torch.Tensor, bias1: OptionalTensor, bias2: OptionalTensor,
         activation: str, cache: bool) -> torch.Tensor:  # fmt: skip
    return _forward(_plan(False, activation), x, [fc1, fc2], [bias1, bias2], cache)


@torch.library.custom_op("epilogue::gated_mlp_backward", mutates_args=(), device_types="cpu")
def _gated_backward(dy: torch.Tensor, x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor,
                    gate_bias: OptionalTensor, up_bias: OptionalTensor, down_bias: OptionalTensor,
                    activation: str) -> typing.List[torch.Tensor]:  # fmt: skip
    return _backward(_plan(True, activation), dy, [x, gate, up, down, gate_bias, up_bias, down_bias])


@torch.library.custom_op("epilogue::mlp_backward", mutates_args=(), device_types="cpu")
def _mlp_backward(dy: torch.Tensor, x: torch.Tensor, fc1: torch.Tensor, fc2: torch.Tensor, bias1: OptionalTensor,
                  bias2: OptionalTensor, activation: str) -> typing.List[torch.Tensor]:  # fmt: skip
    return _backward(_plan(False, activation), dy, [x, fc1, fc2, bias1, bias2])


@_gated.register_fake
def _(x, gate, up, down, gate_bias, up_bias, down_bias, activation, cache):  # type: ignore[no-untyped-def]
    return _fake(x, [gate, up, down], [gate_bias, up_bias, down_bias])


@_mlp.register_fake
def _(x, fc1, fc2, bias1, bias2, activation, cache):  # type: ignore[no-untyped-def]
    return _fake(x, [fc1, fc2], [bias1, bias2])


@torch.library.register_fake("epilogue::kept_mlp")
def _(x, weights, biases, activation, bits=""):  # type: ignore[no-untyped-def]
    return _fake(x, weights, biases)


@torch.library.register_fake("epilogue::linears")
def _(x, weights, biases, bits=""):  # type: ignore[no-untyped-def]
    return [x.new_empty((*x.shape[:-1], w.shape[0])) for w in weights]


@torch.library.register_fake("epilogue::attention")
def _(q, k, v, mask, causal, scale):  # type: ignore[no-untyped-def]
    return q.new_empty((q.shape[0], q.shape[2], q.shape[1], v.shape[3]))


@torch.library.register_fake("epilogue::fused_mlp")
def _(x, handle, parameters):  # type: ignore[no-untyped-def]
    return x.new_empty((*x.shape[:-1], torch.ops.epilogue.columns.default(handle)))


@torch.library.register_fake("epilogue::linear")
def _(x, handle, parameters, residual):  # type: ignore[no-untyped-def]
    return [x.new_empty((*x.shape[:-1], n)) for n in torch.ops.epilogue.widths.default(handle)]


def _fake_gradients(dy: torch.Tensor, *inputs: typing.Any) -> "list[torch.Tensor]":
    half = len(inputs) // 2
    x, weights, biases = inputs[0], inputs[1:half], inputs[half:-1]
    _require(x, weights, biases)
    _require_gradient(dy, x, weights[-1])
    return [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in inputs if isinstance(t, torch.Tensor)]


_gated_backward.register_fake(_fake_gradients)
_mlp_backward.register_fake(_fake_gradients)


def _register_autograd(forward: typing.Any, backward: typing.Any, tensors: int) -> None:
    def setup(ctx: typing.Any, inputs: typing.Any, output: typing.Any) -> None:
        ctx.save_for_backward(*inputs[:tensors])
        ctx.activation = inputs[tensors]

    def gradients(ctx: typing.Any, dy: torch.Tensor) -> typing.Any:
        found = iter(backward(dy, *ctx.saved_tensors, ctx.activation))
        return (*(None if t is None else next(found) for t in ctx.saved_tensors), None, None)

    forward.register_autograd(gradients, setup_context=setup)


_register_autograd(_gated, _gated_backward, 7)
_register_autograd(_mlp, _mlp_backward, 5)


def gated_mlp(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor, *,
              gate_bias: OptionalTensor = None, up_bias: OptionalTensor = None, down_bias: OptionalTensor = None,
              activation: str = "silu", cache: bool = False) -> torch.Tensor:  # fmt: skip
    """down(act(gate x) * (up x)). `activation`: silu, gelu (exact), gelu_tanh, relu,
    quick_gelu or squared_relu.

    cache: keeps the packed weights for later calls with the same memory (inference). Writes are
    noticed as docs/pytorch.md says.
    """
    _require_tensors(x=x, gate=gate, up=up, down=down)
    return _gated(x, gate, up, down, gate_bias, up_bias, down_bias, activation, cache)


def mlp(x: torch.Tensor, fc1: torch.Tensor, fc2: torch.Tensor, *, bias1: OptionalTensor = None,
        bias2: OptionalTensor = None, activation: str = "gelu", cache: bool = False) -> torch.Tensor:  # fmt: skip
    """fc2(act(fc1 x)). `activation`: gelu, gelu_tanh, silu, relu, quick_gelu or squared_relu."""
    _require_tensors(x=x, fc1=fc1, fc2=fc2)
    return _mlp(x, fc1, fc2, bias1, bias2, activation, cache)
