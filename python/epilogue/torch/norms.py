# SPDX-License-Identifier: Apache-2.0
"""Which of the engine's norms a module is: found by its values, and by where it rounds."""

import dataclasses
import typing

import torch
from torch import nn

# Of the engine's NormWeight: where an RMS norm multiplies by its weight.
FORMS = ("product", "rounded", "one_plus")
_WIDTH = 64


@dataclasses.dataclass(frozen=True)
class Norm:
    """Plain data: pickles."""

    kind: str  # "rms" or "layer"
    form: str  # one of FORMS; "product" of a layer norm
    eps: float
    eps_name: str  # the module's attribute

    def is_same(self, module: nn.Module) -> bool:
        return getattr(module, self.eps_name, None) == self.eps


def _rms(form: str, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    plain = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    if form == "rounded":
        return weight * plain.to(x.dtype)
    if form == "one_plus":
        return (plain * (1.0 + weight.float())).to(x.dtype)
    return (plain * weight.float()).to(x.dtype)


def _probes(eps: float) -> torch.Tensor:
    """Rows of many sizes. One is as small as eps, so that another eps is another result."""
    random = torch.Generator().manual_seed(0)
    sizes = torch.tensor([eps**0.5, 1e-3, 0.1, 1.0, 30.0, 1e3]).repeat_interleave(8)
    return torch.randn(len(sizes), _WIDTH, generator=random) * sizes[:, None]


def _kind_of(module: nn.Module) -> type:
    """Before fuse()."""
    kind = type(module)
    return getattr(kind, "_epilogue_original", kind)


def _is_rms(module: nn.Module, form: str, eps: float) -> bool:
    """Whether module.forward is the form, in f32 within rounding and in bf16 almost bit by bit: a
    form that rounds elsewhere differs in a tenth of all elements."""
    weight = torch.randn(_WIDTH, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.bfloat16):
        probe = object.__new__(_kind_of(module))
        object.__setattr__(probe, "__dict__", dict(module.__dict__))
        probe.__dict__["_parameters"] = {"weight": nn.Parameter(weight.to(dtype), requires_grad=False)}
        x = _probes(eps).to(dtype)
        try:
            got = _kind_of(module).forward(probe, x)
        except Exception:  # any failure means: not a norm of this form
            return False
        want = _rms(form, x, probe.__dict__["_parameters"]["weight"], eps)
        if not isinstance(got, torch.Tensor) or got.dtype != dtype or got.shape != want.shape:
            return False
        if not torch.allclose(got.float(), want.float(), rtol=1e-5 if dtype is torch.float32 else 1e-2, atol=1e-7):
            return False
        if (got != want).float().mean() > (1.0 if dtype is torch.float32 else 0.01):
            return False
    return True


def could_be(module: typing.Any) -> bool:
    """A module that has one vector as its weight, and no children: worth a look."""
    if not isinstance(module, nn.Module) or any(True for _ in module.children()):
        return False
    weight = module._parameters.get("weight")
    return isinstance(weight, torch.Tensor) and weight.dim() == 1


def identify(module: nn.Module) -> "Norm | None":
    """The norm that the engine has, over the last dimension with a weight, or None."""
    if not could_be(module):
        return None
    kind = _kind_of(module)
    if kind in (nn.LayerNorm, nn.RMSNorm):
        if len(module.normalized_shape) != 1 or module.eps is None:
            return None
        if kind is nn.RMSNorm:
            return Norm("rms", "product", module.eps, "eps")
        return Norm("layer", "product", module.eps, "eps") if module.bias is not None else None
    if list(module._parameters) != ["weight"] or module._buffers:
        return None
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        for name, value in module.__dict__.items():
            if type(value) is float and 0 < value < 1:
                for form in FORMS:
                    if _is_rms(module, form, value):
                        return Norm("rms", form, value, name)
    return None


def reason_against(module: nn.Module) -> str:
    """Why identify() knows no norm."""
    name = type(module).__name__
    if type(module) is nn.LayerNorm and module.bias is None:
        return f"{name} has no bias"
    return f"{name} is no norm that the engine has"
