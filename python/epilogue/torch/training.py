# SPDX-License-Identifier: Apache-2.0
"""Gradients of a fused MLP: as many products as PyTorch's own ops make, and one pass over memory
between them, forward and backward.

What is kept for the backward pass is x, gate and up: PyTorch keeps the activated gate and its product
with up besides. Products are PyTorch's ("torch") or the engine's ("engine").
"""

import functools
import os
import typing

import torch
import torch.nn.functional as F

from . import activations
from . import pointwise  # noqa: F401  (registers fake results of the compiled ops)
from .match import Plan

# By what torch.cpu.get_capabilities() calls them; x86 alone.
_INSTRUCTIONS = {
    torch.bfloat16: ("avx512_bf16", "amx_bf16"),
    torch.float16: ("avx512_fp16", "amx_fp16"),
}


def _capabilities() -> "dict[str, typing.Any]":
    try:
        return torch.cpu.get_capabilities()
    except AttributeError:  # an older torch
        return {}


def _engine_isa() -> str:
    """The level that the engine's kernels are limited to."""
    return os.environ.get("EPILOGUE_ISA", "amx")


@functools.lru_cache(maxsize=None)
def mkl_is_slow() -> bool:
    """Whether PyTorch's products of f32 are those of MKL on a CPU of another vendor than Intel, which the engine has vectors for.
    There MKL (2024.2) takes 1.1 to 2.5 times as long as the engine (`python -m epilogue.torch.bench linears`), and its sums are
    shorter (f32_sum_depth in the engine)."""
    has = _capabilities()
    # Only AMD's CPUs and their kin have SSE4a; a virtual machine may hide it.
    is_amd = has.get("sse4a", False) or str(has.get("cpu_name", "")).startswith("AMD")
    return is_amd and has.get("avx2", False) and torch.backends.mkl.is_available() and _engine_isa() != "baseline"


def _lacks_instructions(dtype: torch.dtype) -> bool:
    """Whether the CPU has none for products of the dtype, which PyTorch computes slowly then."""
    wanted = _INSTRUCTIONS.get(dtype)
    has = _capabilities()
    return wanted is not None and has.get("architecture") == "x86_64" and not any(has.get(name, True) for name in wanted)


@functools.lru_cache(maxsize=None)
def products_of(dtype: torch.dtype) -> str:
    """Whose products a call takes if none were measured: the engine's where the CPU has no
    instructions for the dtype, and of f32 where MKL is slow."""
    is_slow = mkl_is_slow() if dtype is torch.float32 else _lacks_instructions(dtype)
    return "engine" if is_slow else "torch"


# Rows from which the engine's products of bf16 on AMX's tiles take less time, forward and backward together, though
# both operands are tiled at each call (`bench blocks --training always`: 0.94 to 1.07 times as fast as PyTorch's best at
# 256 rows, 1.19 to 1.46 at 512).
LEAST_ROWS_OF_TILES = 512


@functools.lru_cache(maxsize=None)
def has_tiles() -> bool:
    return _capabilities().get("amx_bf16", False) and _engine_isa() == "amx"


@functools.lru_cache(maxsize=None)
def has_dots_alone() -> bool:
    """Whether the CPU has dot products of bf16 and no tiles, and the engine uses them."""
    has = _capabilities()
    has_dots = has.get("avx512_bf16", False) and not has.get("amx_bf16", False)
    return has_dots and _engine_isa() in ("avx512_bf16", "amx")


@functools.lru_cache(maxsize=None)
def computes_as_wide() -> bool:
    """Whether the engine computes f32 in vectors of 256 bits or more, and of 512 where PyTorch's MKL does."""
    has = _capabilities()
    limits = os.environ.get("MKL_ENABLE_INSTRUCTIONS", "").upper()
    is_wide = has.get("avx512_f", False) and limits in ("", "AVX512")
    engine = _engine_isa()
    return has.get("avx2", False) and (engine in ("avx512", "avx512_bf16", "amx") or (engine == "avx2" and not is_wide))


def tiles_pay(dtype: torch.dtype, rows: int) -> bool:
    """Whether a call of so many rows takes the engine's products if none were measured, though PyTorch has fast ones."""
    return dtype is torch.bfloat16 and rows >= LEAST_ROWS_OF_TILES and has_tiles()


def unprofitable(dtype: torch.dtype) -> "str | None":
    """Why PyTorch's own ops are as fast. The products are the same and have nearly all of the time; what
    fewer passes over the hidden activations save (in a gated MLP 9 of PyTorch's 14) is 1 or 2 % of it,
    and torch.compile saves as much. The bench's `blocks --training always` measures it."""
    if products_of(dtype) == "engine":
        return None
    return "gradients: PyTorch's own ops are as fast here; tune='measure' times both"


# Rows from which products of f32 hide what packing their weights takes.
LEAST_ROWS_TO_PACK = 32


def packs_in_vain(rows: int, dtype: torch.dtype) -> "str | None":
    """Why weights that FSDP2 gathers for one pass are not packed for one call."""
    if rows >= LEAST_ROWS_TO_PACK or _lacks_instructions(dtype):
        return None
    return f"{rows} row{'s' * (rows != 1)}: weights that FSDP2 gathers for one pass would be packed for one call"


class _Torch:
    """Products by PyTorch."""

    linear = staticmethod(F.linear)

    @staticmethod
    def product(a: torch.Tensor, b: torch.Tensor, added: "torch.Tensor | None" = None) -> torch.Tensor:
        if added is None:
            return a @ b
        # In f32 addmm_ may add one term after the other to what is there (of few rows, and of 9 it does): the sums of two
        # products would be one, twice as long, that rounds more than each. 16-bit results are rounded once by it.
        return added.add_(a @ b) if a.dtype is torch.float32 else added.addmm_(a, b)

    @staticmethod
    def hidden(x: torch.Tensor, weight: torch.Tensor, bias: "torch.Tensor | None", gate: "torch.Tensor | None",
               activation: str) -> "tuple[torch.Tensor, torch.Tensor]":  # fmt: skip
        """The linear layer's result, which is up, or without `gate` what is activated; and act(gate) * up."""
        out = F.linear(x, weight, bias)
        first, up = (out, None) if gate is None else (gate, out)
        return out, torch.ops.epilogue.mlp_hidden.default(first, up, activation)

    @staticmethod
    def gradients(dy: torch.Tensor, weight: torch.Tensor, gate: torch.Tensor, up: "torch.Tensor | None",
                  activation: str) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":  # fmt: skip
        """act(gate) * up once more, and what gate and up get."""
        return torch.ops.epilogue.mlp_gradients.default(dy @ weight, gate, up, activation)


class _Engine:
    @staticmethod
    def product(a: torch.Tensor, b: torch.Tensor, added: "torch.Tensor | None" = None) -> torch.Tensor:
        return torch.ops.epilogue.product.default(a, b, added)

    @staticmethod
    def linear(x: torch.Tensor, weight: torch.Tensor, bias: "torch.Tensor | None") -> torch.Tensor:
        return torch.ops.epilogue.product.default(x, weight.t(), bias)

    @staticmethod
    def hidden(x: torch.Tensor, weight: torch.Tensor, bias: "torch.Tensor | None", gate: "torch.Tensor | None",
               activation: str) -> "tuple[torch.Tensor, torch.Tensor]":  # fmt: skip
        return torch.ops.epilogue.product_hidden.default(x, weight.t(), bias, gate, activation)

    @staticmethod
    def gradients(dy: torch.Tensor, weight: torch.Tensor, gate: torch.Tensor, up: "torch.Tensor | None",
                  activation: str) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":  # fmt: skip
        return torch.ops.epilogue.product_gradients.default(dy, weight, gate, up, activation)


if typing.TYPE_CHECKING:
    from .routed import ExpertsPlan

_PRODUCTS: "dict[str, typing.Any]" = {"torch": _Torch, "engine": _Engine}


def hidden_of(
    plan: Plan,
    transposed: "tuple[bool, ...]",
    x: torch.Tensor,
    weights: "typing.Sequence[torch.Tensor]",
    biases: "typing.Sequence[torch.Tensor | None]",
) -> torch.Tensor:
    """What the last linear layer reads, by the ops that the modules run."""
    act = activations.KNOWN[plan.activation]

    def linear(i: int) -> torch.Tensor:
        return F.linear(x, weights[i].t() if transposed[i] else weights[i], biases[i])

    if not plan.gated:
        return act(linear(0))
    if plan.packed:
        gate, up = linear(0).chunk(2, dim=-1)
        return act(gate) * up
    return act(linear(0)) * linear(1)


def result_of(
    plan: Plan,
    transposed: "tuple[bool, ...]",
    x: torch.Tensor,
    weights: "typing.Sequence[torch.Tensor]",
    biases: "typing.Sequence[torch.Tensor | None]",
) -> torch.Tensor:
    hidden = hidden_of(plan, transposed, x, weights, biases)
    return F.linear(hidden, weights[-1].t() if transposed[-1] else weights[-1], biases[-1])


def apart(
    plan: Plan, transposed: "tuple[bool, ...]", parameters: "typing.Sequence[typing.Any]"
) -> "tuple[list[torch.Tensor], list[torch.Tensor | None]]":
    """Weights as [out, in] and biases, gate and up by themselves."""
    half = len(parameters) // 2
    weights = [w.t() if t else w for w, t in zip(parameters[:half], transposed)]
    biases = list(parameters[half:])
    if plan.packed:
        weights[:1] = weights[0].chunk(2)
        biases[:1] = (None, None) if biases[0] is None else biases[0].chunk(2)
    return weights, biases


class FusedFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: typing.Any, plan: Plan, transposed: "tuple[bool, ...]", products: str,
                x: torch.Tensor, *parameters: "torch.Tensor | None") -> torch.Tensor:  # fmt: skip
        ctx.plan, ctx.transposed, ctx.products = plan, transposed, products
        ops = _PRODUCTS[products]
        linear = ops.linear
        weights, biases = apart(plan, transposed, parameters)
        rows = x.reshape(-1, x.shape[-1])
        gate = linear(rows, weights[0], biases[0]) if plan.gated else None
        last, hidden = ops.hidden(rows, weights[-2], biases[-2], gate, plan.activation)
        gate, up = (gate, last) if plan.gated else (last, None)
        ctx.save_for_backward(gate, up, x, *parameters)
        return linear(hidden, weights[-1], biases[-1]).reshape(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: typing.Any, dy: torch.Tensor) -> typing.Any:
        gate, up, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: recorded from x on
            found = _recorded(ctx, inputs, ctx.needs_input_grad[3:], dy)
        else:
            found = _gradients(ctx, gate, up, inputs, dy)
        return (None, None, None, *found)


def _recorded(ctx: typing.Any, inputs: "list[typing.Any]", wanted: "tuple[bool, ...]", dy: torch.Tensor) -> "list[typing.Any]":
    half = len(inputs) // 2
    y = result_of(ctx.plan, ctx.transposed, inputs[0], inputs[1 : 1 + half], inputs[1 + half :])
    asked = [t for t, w in zip(inputs, wanted) if w]
    found = iter(torch.autograd.grad(y, asked, dy, create_graph=True))
    return [next(found) if w else None for w in wanted]


def _weight_gradient(
    product: typing.Any, branches: "list[torch.Tensor]", read: torch.Tensor, transposed: bool
) -> torch.Tensor:
    """Of a layer that reads `read`, from what its results get: gate's and up's if it is packed."""
    if transposed:
        return product(read.t(), branches[0] if len(branches) == 1 else torch.cat(branches, 1))
    if len(branches) == 1:
        return product(branches[0].t(), read)
    out = read.new_empty((sum(b.shape[1] for b in branches), read.shape[1]))
    for part, branch in zip(out.chunk(len(branches)), branches):
        if product is _Torch.product:
            torch.mm(branch.t(), read, out=part)
        else:
            part.copy_(product(branch.t(), read))
    return out


def _gradients(
    ctx: typing.Any, gate: torch.Tensor, up: "torch.Tensor | None", inputs: "list[typing.Any]", dy: torch.Tensor
) -> "list[typing.Any]":
    """Of x, the weights and the biases; None where none is wanted."""
    plan: Plan = ctx.plan
    product = _PRODUCTS[ctx.products].product
    wanted = ctx.needs_input_grad[3:]
    x, *parameters = inputs
    half = len(parameters) // 2
    weights, _ = apart(plan, ctx.transposed, parameters)
    rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    branches: "list[torch.Tensor]" = []
    hidden = None  # not wanted
    if any(w for i, w in enumerate(wanted) if i not in (half, 2 * half)):
        middle = _PRODUCTS[ctx.products].gradients(dy_rows, weights[-1], gate, up, plan.activation)
        hidden, branches = middle[0], list(middle[1 : 3 if plan.gated else 2])
    elif wanted[half]:
        hidden = torch.ops.epilogue.mlp_hidden.default(gate, up, plan.activation)
    out: "list[typing.Any]" = [None] * len(inputs)
    if wanted[0]:
        for branch, weight in zip(branches, weights):
            out[0] = product(branch, weight, out[0])
        out[0] = out[0].reshape(x.shape)
    of_layers = [branches] if plan.packed else [[b] for b in branches]
    layers = [(i, of_layer, rows) for i, of_layer in enumerate(of_layers)]
    if wanted[half] or wanted[2 * half]:
        layers.append((half - 1, [dy_rows], hidden))
    for i, of_layer, read in layers:
        if wanted[1 + i]:
            out[1 + i] = _weight_gradient(product, of_layer, read, ctx.transposed[i])
        if wanted[1 + half + i]:
            sums = [b.sum(0) for b in of_layer]
            out[1 + half + i] = sums[0] if len(sums) == 1 else torch.cat(sums)
    return out


def trained(plan: Plan, transposed: "tuple[bool, ...]", products: str, dtype: torch.dtype, x: torch.Tensor,
            weights: "typing.Sequence[torch.Tensor]", biases: "typing.Sequence[torch.Tensor | None]") -> torch.Tensor:  # fmt: skip
    """A call with gradients in `dtype`, to which autocast casts: what it casts gets its gradient cast
    back, as a linear layer's does."""
    given = [t if t is None else t.to(dtype) for t in (x, *weights, *biases)]
    return FusedFunction.apply(plan, transposed, products, *given)


def train_once(plan: Plan, transposed: "tuple[bool, ...]", dtype: torch.dtype, x: torch.Tensor,
               weights: "typing.Sequence[torch.Tensor]", biases: "typing.Sequence[torch.Tensor | None]", how: str) -> None:  # fmt: skip
    """Forward and backward on the memory of these, for the clock; `how`: "own" or whose products.
    No .grad is written and no hook of theirs runs."""
    with torch.enable_grad():
        leaf, *parameters = (
            None if t is None else t.detach().requires_grad_(t.requires_grad) for t in (x, *weights, *biases)
        )
        if how == "own":
            y = result_of(plan, transposed, leaf, parameters[: len(weights)], parameters[len(weights) :])
        else:
            y = trained(plan, transposed, how, dtype, leaf, parameters[: len(weights)], parameters[len(weights) :])
        asked = [t for t in (leaf, *parameters) if t is not None and t.requires_grad]
        torch.autograd.grad(y, asked, torch.ones_like(y))


class LinearFunction(torch.autograd.Function):
    """A linear layer by the engine's products."""

    @staticmethod
    def forward(ctx: typing.Any, transposed: bool, x: torch.Tensor, weight: torch.Tensor,
                bias: "torch.Tensor | None") -> torch.Tensor:  # fmt: skip
        ctx.transposed = transposed
        ctx.save_for_backward(x, weight, bias)
        rows = x.reshape(-1, x.shape[-1])
        return _Engine.linear(rows, weight.t() if transposed else weight, bias).reshape(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: typing.Any, dy: torch.Tensor) -> typing.Any:
        x, weight, bias = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:]
        if torch.is_grad_enabled():  # a second derivative is wanted: recorded from x on
            y = F.linear(x, weight.t() if ctx.transposed else weight, bias)
            asked = [t for t, w in zip((x, weight, bias), wanted) if w]
            found = iter(torch.autograd.grad(y, asked, dy, create_graph=True))
            return (None, *(next(found) if w else None for w in wanted))
        rows, dy_rows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        dx = _Engine.product(dy_rows, weight.t() if ctx.transposed else weight).reshape(x.shape) if wanted[0] else None
        dw = _weight_gradient(_Engine.product, [dy_rows], rows, ctx.transposed) if wanted[1] else None
        return None, dx, dw, dy_rows.sum(0) if wanted[2] else None


def trained_linear(transposed: bool, dtype: torch.dtype, x: torch.Tensor, weight: torch.Tensor,
                   bias: "torch.Tensor | None") -> torch.Tensor:  # fmt: skip
    """As trained() casts."""
    return LinearFunction.apply(transposed, *(t if t is None else t.to(dtype) for t in (x, weight, bias)))


def train_linear_once(transposed: bool, dtype: torch.dtype, x: torch.Tensor, weight: torch.Tensor, bias: "torch.Tensor | None",
                      how: str) -> None:  # fmt: skip
    """As train_once(); `how`: "own" or "engine"."""
    with torch.enable_grad():
        leaves = [None if t is None else t.detach().requires_grad_(t.requires_grad) for t in (x, weight, bias)]
        if how == "own":
            y = F.linear(leaves[0], leaves[1].t() if transposed else leaves[1], leaves[2])
        else:
            y = trained_linear(transposed, dtype, *leaves)
        torch.autograd.grad(y, [t for t in leaves if t is not None and t.requires_grad], torch.ones_like(y))


def trained_experts(plan: "ExpertsPlan", parameters: "typing.Mapping[str, torch.Tensor]", x: torch.Tensor, index: torch.Tensor,
                    weights: torch.Tensor) -> torch.Tensor:  # fmt: skip
    """The experts of a mixture with gradients: each one's tokens through one fused MLP, by the engine's products.
    The weighted sum is f32, in the order of the choices."""
    tokens, choices = index.shape
    # unbind: its gradient is one stack; that of a slice would be as large as all experts, for each.
    stacks = [parameters[name].unbind(0) for name in plan.weights()]
    biases = [None if name is None else parameters[name].unbind(0) for name in plan.biases]
    packed = plan.gated and plan.gate is None
    of_layers = biases[1:] if plan.gate is None else biases
    mlp = Plan("forward", "x", ("linear",) * len(stacks), plan.activation, None, plan.gated, packed)
    chosen = index.reshape(-1)
    order = torch.argsort(chosen, stable=True)
    counts = torch.bincount(chosen, minlength=plan.experts + 1)[: plan.experts].tolist()  # the last: no expert
    given = x.index_select(0, order // choices).split([*counts, tokens * choices - sum(counts)])
    out = []
    for expert, rows in enumerate(given[:-1]):
        if rows.shape[0] == 0:
            continue
        own = [stack[expert] for stack in stacks]
        of_own = [None if b is None else b[expert] for b in of_layers]
        out.append(FusedFunction.apply(mlp, (plan.transposed,) * len(own), "engine", rows, *own, *of_own))
    out.append(x.new_zeros((given[-1].shape[0], plan.columns)))
    pairs = torch.cat(out).index_select(0, torch.argsort(order)).view(tokens, choices, -1)
    return (pairs.float() * weights.float()[:, :, None]).sum(1).to(x.dtype)


def untrainable_experts(plan: "ExpertsPlan", dtype: torch.dtype, training: "bool | str") -> "str | None":
    """Why experts with gradients stay PyTorch's."""
    if not training:
        return "gradients are wanted: fuse(model, training=True)"
    if plan.interleaved or plan.activation not in activations.KNOWN:
        return "gradients are wanted: gate and up in turn, or a clamp, have no fused backward pass"
    return None if training == "always" else unprofitable(dtype)
