# SPDX-License-Identifier: Apache-2.0
"""The experts of a mixture-of-experts layer as one op: tokens grouped by expert, all products, activation and
the weighted sum, without a loop over experts.

    experts = Experts(layer.gate_up_proj, layer.down_proj, activation="silu")
    y = experts(x, top_k_index, top_k_weights)

Inference only. `functional.experts` is the same for one call.
"""

import typing
import weakref

import torch

from . import _ops, activations
from .handle import Kept

Tensors = typing.Union[torch.Tensor, typing.Sequence[torch.Tensor]]

# Plain name -> the engine's name where it gates another branch, and where it stands alone.
GATED = {**activations.GATED, "clamped_swiglu": "clamped_swiglu"}
PLAIN = sorted(set(GATED) - {"clamped_swiglu"})


def _listed(given: "Tensors | None") -> "list[torch.Tensor]":
    if given is None:
        return []
    return [given] if isinstance(given, torch.Tensor) else list(given)


def engine_activation(activation: str, gated: bool) -> str:
    """The name of epilogue::nn::Activation. ValueError where there is none."""
    known = sorted(GATED) if gated else PLAIN
    if activation not in known:
        raise ValueError(f"[experts] expected an activation of {', '.join(known)}, got {activation!r}")
    return GATED[activation] if gated else activation


class Experts:
    """Packed experts, and the call that uses them. Holds the weights' memory.

    up: [experts, 2 h, k] with the gate's rows, then up's (`interleaved`: in turn); with `gate`, or if not
    `gated`, [experts, h, k]. down: [experts, n, h]. `transposed`: the last two dimensions are swapped.
    Biases are [experts, rows]. Each may be a list with the tensor of each expert, too, without the first
    dimension. f32, bf16 or f16. activation: silu, gelu (exact), gelu_tanh, relu, quick_gelu, squared_relu,
    or clamped_swiglu, GPT-OSS's, with `alpha` and `limit`. dtype: to compute in, the weights' own by default.
    bits: what weights (and rows) are rounded to, "" or "int8", "w8a8", "int4_128", "int4_32", "w4a8_128", "w4a8_32",
    those of 4 bits also with "_zeros" after them.

    An expert's weights are packed when a token chooses it first, and again after they were written
    (docs/pytorch.md says which writes are seen); `packed_bytes()` says how much that takes in the end.
    """

    def __init__(
        self, up: Tensors, down: Tensors, *, gate: "Tensors | None" = None, up_bias: "Tensors | None" = None,
        down_bias: "Tensors | None" = None, gate_bias: "Tensors | None" = None, activation: str = "silu",
        gated: bool = True, interleaved: bool = False, transposed: bool = False, alpha: float = 1.702,
        limit: float = 7.0, dtype: "torch.dtype | None" = None, bits: str = "",
        parameters: "typing.Sequence[torch.Tensor] | None" = None, borrows: bool = False,
    ) -> None:  # fmt: skip
        """parameters: those of which the others are views; by default the weights and biases themselves. borrows: memory is
        not held, each call names the parameters, and this object has to go before them."""
        lists = [_listed(t) for t in (gate, up, down, gate_bias, up_bias, down_bias)]
        given = [t for some in lists for t in some]
        named = given if parameters is None else list(parameters)
        self.parameters = [] if borrows else named
        with torch.no_grad():
            self.number: int = torch.ops.epilogue.prepare_experts.default(
                named, *([t.detach() for t in some] for some in lists), engine_activation(activation, gated),
                interleaved, transposed, dtype, alpha, limit, bits, borrows,
            )  # fmt: skip
        # The op keeps those of many tensors: to pass them takes longer than to look at what an expert reads.
        self._given = () if len(lists[1]) > 1 else self.parameters
        self._finalizer = weakref.finalize(self, _ops.releaser("release_experts"), self.number)

    def __call__(
        self, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor,
        parameters: "typing.Sequence[torch.Tensor] | None" = None,
    ) -> "torch.Tensor | None":  # fmt: skip
        """y[t] = sum over j of weights[t, j] * expert index[t, j] of x[t].

        x [..., k]; index [tokens, j], Long or Int, from 0 to the number of experts, which stands for none;
        weights [tokens, j], float32 or x's dtype. `parameters`: as they are now, if the module may have
        others than at first. None if one of them, of an expert that was chosen, has other memory than it had.
        """
        current = self._given if parameters is None else parameters
        return torch.ops.epilogue.experts.default(x, index, weights, self.number, current)

    def refresh(self) -> None:
        """Weights are packed again at the next call."""
        torch.ops.epilogue.refresh_experts.default(self.number)

    def packed_bytes(self) -> int:
        """What the packed weights of all experts take."""
        return torch.ops.epilogue.experts_bytes.default(self.number)


@torch.library.register_fake("epilogue::experts")
def _(x, index, weights, handle, parameters):  # type: ignore[no-untyped-def]
    return x.new_empty((*x.shape[:-1], torch.ops.epilogue.experts_columns.default(handle)))


_kept = Kept(256)  # experts of calls with cache=True, by what they name


def _find(key: typing.Any, given: "list[torch.Tensor]", make: "typing.Callable[[], Experts]") -> Experts:
    key = (key, tuple((t.data_ptr(), t.dtype, t.stride(), t.shape) for t in given))
    found = _kept.get(key)
    if found is None:
        found = make()
        _kept.put(key, found, given)
    return found


def clear() -> None:
    """Drops the experts that were packed for calls with cache=True."""
    _kept.clear()


def experts(
    x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, up: Tensors, down: Tensors, *, cache: bool = False,
    **options: typing.Any,
) -> torch.Tensor:  # fmt: skip
    """One call of Experts(up, down, **options): inference only.

    cache: keeps the packed weights for later calls with the same memory.
    """
    plain = {k: v for k, v in sorted(options.items()) if isinstance(v, (str, bool, int, float, torch.dtype, type(None)))}
    tensors = {k: v for k, v in sorted(options.items()) if k not in plain}
    given = [t for some in (up, down, *tensors.values()) for t in _listed(some)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, weights, *given)):
        raise RuntimeError("[experts] expected torch.no_grad(): there is no backward pass, got a tensor that requires a gradient")

    if not cache or any(t.is_inference() for t in given):  # these have no version
        handle, given = Experts(up, down, parameters=[], **options), []
    else:
        key = (tuple(plain.items()), tuple((k, len(_listed(v))) for k, v in tensors.items()))
        handle = _find(key, given, lambda: Experts(up, down, parameters=given, borrows=True, **options))
    out = handle(x, index, weights, given)
    assert out is not None  # handles are found by memory
    return out


Optional = typing.Optional[torch.Tensor]


@torch.library.custom_op("epilogue::mixture", mutates_args=(), device_types="cpu")
def _mixture(x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, up: torch.Tensor, down: torch.Tensor, gate: Optional,
             up_bias: Optional, down_bias: Optional, gate_bias: Optional, activation: str, gated: bool, interleaved: bool,
             transposed: bool, alpha: float, limit: float, bits: str) -> torch.Tensor:  # fmt: skip
    """experts() with weights that stay packed: what torch.compile keeps of fused experts."""
    return experts(x, index, weights, up, down, gate=gate, up_bias=up_bias, down_bias=down_bias, gate_bias=gate_bias,
                   activation=activation, gated=gated, interleaved=interleaved, transposed=transposed, alpha=alpha, limit=limit,
                   bits=bits, cache=True)  # fmt: skip


@_mixture.register_fake
def _(x, index, weights, up, down, gate, up_bias, down_bias, gate_bias, activation, gated, interleaved, transposed, alpha, limit, bits):  # type: ignore[no-untyped-def]
    return x.new_empty((*x.shape[:-1], down.shape[2 if transposed else 1]))
