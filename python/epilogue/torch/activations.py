# SPDX-License-Identifier: Apache-2.0
"""Which of the engine's activations a function of PyTorch is: found by its values."""

import typing

import torch
import torch.nn.functional as F

# Name (of epilogue::nn::Activation, plain form) -> the function.
KNOWN: "dict[str, typing.Callable[[torch.Tensor], torch.Tensor]]" = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "squared_relu": lambda x: F.relu(x).square(),
}
# Plain name -> the engine's name where it gates another branch.
GATED = {"gelu": "geglu_erf", "gelu_tanh": "geglu", "silu": "swiglu", "relu": "reglu", "quick_gelu": "quick_geglu",
         "squared_relu": "squared_reglu"}  # fmt: skip


def sample_grid() -> torch.Tensor:
    far = [s * v for v in (15.0, 25.0, 60.0, 300.0, 1e4) for s in (-1, 1)]
    return torch.cat([torch.linspace(-12, 12, 2401, dtype=torch.float64), torch.tensor(far, dtype=torch.float64)])


def identify(function: "typing.Callable[[torch.Tensor], typing.Any]") -> "str | None":
    """The name in KNOWN of an elementwise function, or None where it is another one.

    Compared in float64 on a fixed grid, whose far ends tell clipped forms apart.
    """
    grid = sample_grid()
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        try:
            got = function(grid.clone())
            again = function(grid.clone())
        except Exception:  # any failure means: not a plain function of one tensor
            return None
        if not isinstance(got, torch.Tensor) or got.dtype != grid.dtype or got.shape != grid.shape:
            return None
        if not torch.equal(got, again):
            return None
        for name, known in KNOWN.items():
            if torch.allclose(got, known(grid), rtol=1e-9, atol=1e-9):
                return name
    return None
