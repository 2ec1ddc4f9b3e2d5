# SPDX-License-Identifier: Apache-2.0
"""The engine half: tensors over other libraries' memory, layers, fusing."""

from __future__ import annotations

import typing

from . import _core

if not _core.has_engine:
    raise ImportError(
        "this build of epilogue holds the trace half only; install it without "
        "--config-settings=cmake.define.EPILOGUE_ENGINE=OFF"
    )

from ._core import (  # noqa: E402
    MLP,
    Compiled,
    GatedMLP,
    Linear,
    Module,
    Predicted,
    Predictor,
    Tensor,
    compile,
    empty,
    exp,
    fused_gated_mlp,
    gelu,
    linear,
    manual_seed,
    matmul,
    mean,
    no_grad,
    num_threads,
    ones,
    randn,
    record_function,
    relu,
    set_num_threads,
    sigmoid,
    silu,
    softmax,
    sum,
    tanh,
    zeros,
)

for _class in (MLP, Compiled, GatedMLP, Linear, Module, Predicted, Predictor, Tensor, no_grad, record_function):
    _class.__module__ = "epilogue"


def from_dlpack(array: typing.Any) -> Tensor:
    """A tensor over the memory of an array, without a copy.

    Args:
        array: What speaks DLPack or Python's buffer protocol: of NumPy, PyTorch, JAX, ...; on the
            CPU, of float32, bfloat16, float16, float64, int64, uint8 or bool. Any strides.

    Returns:
        A tensor that keeps the array alive. Of an array that is read-only it refuses writes in
        place (:exc:`epilogue.Error`).

    Raises:
        Error: Another dtype, or more than 8 dimensions.
        TypeError: It is no array, or not on the CPU.
    """
    try:
        return _core.from_dlpack(array)
    except TypeError:
        raise TypeError(
            f"[from_dlpack] expected an array on the CPU, got {type(array).__name__}"
        ) from None


from_numpy = from_dlpack


def tensor(values: typing.Any, dtype: str = "f32") -> Tensor:
    """A new tensor with a copy of numbers: one, a list, or lists of lists.

    >>> epilogue.tensor([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    sizes: "list[int]" = []
    inner = values
    while isinstance(inner, (list, tuple)):
        sizes.append(len(inner))
        inner = inner[0] if inner else None
    flat = [values]
    for size in sizes:
        if any(not isinstance(row, (list, tuple)) or len(row) != size for row in flat):
            raise _core.Error(f"[tensor] expected rows of one length, {size}")
        flat = [item for row in flat for item in row]
    return _core.from_list([float(x) for x in flat], sizes, dtype)


__all__ = [name for name in dir() if not name.startswith("_") and name not in ("annotations", "typing")]
