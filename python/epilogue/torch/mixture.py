# SPDX-License-Identifier: Apache-2.0
"""The experts of a mixture-of-experts layer as one op: tokens grouped by expert, all products, activation and
the weighted sum, without a loop over experts.

    experts = Experts(layer.gate_up_proj, layer.down_proj, activation="silu")
    y = experts(x, top_k_index, top_k_weights)

Inference only. `functional.experts` is the same for one call.
"""

import threading
import typing
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from . import activations

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
        parameters: "typing.Sequence[torch.Tensor] | None" = None,
    ) -> None:  # fmt: skip
        """parameters: those of which the others are views; by default the weights and biases themselves."""
        lists = [_listed(t) for t in (gate, up, down, gate_bias, up_bias, down_bias)]
        given = [t for some in lists for t in some]
        self.parameters = given if parameters is None else list(parameters)
        with torch.no_grad():
            self.number: int = torch.ops.epilogue.prepare_experts.default(
                self.parameters, *([t.detach() for t in some] for some in lists), engine_activation(activation, gated),
                interleaved, transposed, dtype, alpha, limit, bits,
            )  # fmt: skip
        # The op keeps those of many tensors: to pass them takes longer than to look at what an expert reads.
        self._given = () if len(lists[1]) > 1 else self.parameters
        self._finalizer = weakref.finalize(self, torch.ops.epilogue.release_experts.default, self.number)

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


_lock = threading.Lock()
_kept: "dict[typing.Any, tuple[list[StorageWeakRef], Experts]]" = {}
_MOST_KEPT = 256


def _find(key: typing.Any, given: "list[torch.Tensor]", make: "typing.Callable[[], Experts]") -> Experts:
    storages = [StorageWeakRef(t.untyped_storage()) for t in given]
    views = tuple((t.data_ptr(), t.dtype, t.stride(), t.shape) for t in given)
    key = (key, views, tuple(s.cdata for s in storages))
    with _lock:
        found = _kept.get(key)
        if found is None or any(s.expired() for s in found[0]):
            for old in [k for k, v in _kept.items() if any(s.expired() for s in v[0])]:
                del _kept[old]
            while len(_kept) >= _MOST_KEPT:
                del _kept[next(iter(_kept))]
            found = _kept[key] = (storages, make())
        return found[1]


def clear() -> None:
    """Drops the experts that were packed for calls with cache=True."""
    with _lock:
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

    def make() -> Experts:
        return Experts(up, down, **options)

    if any(t.is_inference() for t in given):  # they have no version
        handle = Experts(up, down, parameters=[], **options)
    else:
        handle = _find((tuple(plain.items()), tuple((k, len(_listed(v))) for k, v in tensors.items())), given, make) if cache else make()
    out = handle(x, index, weights)
    assert out is not None  # handles are found by memory
    return out
