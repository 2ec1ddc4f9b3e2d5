# SPDX-License-Identifier: Apache-2.0
"""Calls that are known from the one before take few checks: each of these changes has to be seen, at the next call."""

import copy
import gc

import models
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import epilogue.torch

X = torch.randn(3, 4, 48)


class _Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.o = nn.Linear(48, 48), nn.Linear(48, 48), nn.Linear(48, 48)
        self.mlp = models.build("llama").model.layers[0].mlp
        self.norm = nn.RMSNorm(48, eps=1e-5)

    def forward(self, x):
        return self.mlp(self.norm(self.o(torch.tanh(self.q(x)) * self.k(x))))


class _Nothing(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def _write(model):
    with torch.no_grad():
        model.o.weight.mul_(2)
        model.mlp.up_proj.weight.add_(1)
        model.norm.weight.mul_(3)


def _replace(model):
    for module in (model.k, model.mlp.down_proj):
        module.weight = nn.Parameter(torch.randn_like(module.weight))
    model.o = nn.Linear(48, 48)


def _rebind(model):
    for p in model.parameters():
        p.data = torch.randn(p.shape) / 4


def _hook(model):
    model.o.register_forward_hook(lambda module, args, out: out * 2)
    model.mlp.gate_proj.register_forward_hook(lambda module, args, out: out * 2)


def _forward(model):
    model.mlp.up_proj.forward = lambda x: torch.ones(*x.shape[:-1], model.mlp.up_proj.out_features, dtype=x.dtype)


def _eps(model):
    model.norm.eps = 1.0


def _bias(model):
    model.o.bias = None


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("change", [_write, _replace, _rebind, _hook, _forward, _eps, _bias, nn.Module.double, nn.Module.bfloat16])
def test_changes_are_seen(change, inference):
    if inference and change is _write:
        pytest.skip("written in no-grad mode")
    fused = epilogue.torch.fuse(_Layers().eval(), linears="always")
    with torch.inference_mode() if inference else torch.no_grad():
        x = X.clone()
        for _ in range(6):
            fused(x)
    calls = epilogue.torch.why(fused)
    assert (calls.fused_calls, calls.linear_calls, calls.norm_calls) == (6, 18, 6), str(calls)
    torch.manual_seed(1)
    change(fused)
    x = X.to(fused.q.weight.dtype)
    plain = epilogue.torch.unfuse(copy.deepcopy(fused))
    exact = {"rtol": 5e-2, "atol": 5e-2} if x.dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
    with torch.inference_mode() if inference else torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fused(x), plain(x), **exact)


def _known():
    fused = epilogue.torch.fuse(_Layers().eval(), linears="always")
    with torch.no_grad():
        for _ in range(6):
            want = fused(X)
    return fused, want


def test_what_surrounds_a_call_is_seen():
    fused, want = _known()
    plain = epilogue.torch.unfuse(copy.deepcopy(fused))
    x = X.clone().requires_grad_()
    fused(x).sum().backward()
    given = x.grad.clone()
    x.grad = None
    plain(x).sum().backward()
    torch.testing.assert_close(given, x.grad, rtol=1e-4, atol=1e-4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(fused(X), plain(X), rtol=5e-2, atol=5e-2)
    with torch.no_grad():
        with _Nothing() as mode:
            torch.testing.assert_close(fused(X), want, rtol=1e-4, atol=1e-4)
        assert not any("epilogue" in name for name in mode.seen), mode.seen
        rows = torch.func.vmap(fused)(X)
        torch.testing.assert_close(rows, want, rtol=1e-4, atol=1e-4)
        wide = torch.randn(3, 48, 4).transpose(1, 2)
        torch.testing.assert_close(fused(wide), plain(wide), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(fused(X[0, 0]), want[0, 0], rtol=1e-4, atol=1e-4)
        with pytest.raises(RuntimeError):
            fused(torch.randn(3, 4, 47))
        hook = nn.modules.module.register_module_forward_hook(lambda module, args, out: out + 1)
        try:
            torch.testing.assert_close(fused(X), plain(X), rtol=1e-4, atol=1e-4)
        finally:
            hook.remove()
        assert torch.equal(fused(X), want)


def test_what_is_packed_goes_without_an_op():
    """The garbage collector may run while a dispatch mode is entered, or watches."""
    gc.collect()
    before = torch.ops.epilogue.handles()
    fused, _ = _known()
    assert torch.ops.epilogue.handles() > before
    with _Nothing() as mode:
        del fused
        gc.collect()
    assert torch.ops.epilogue.handles() == before
    assert not any("epilogue" in name for name in mode.seen), mode.seen
