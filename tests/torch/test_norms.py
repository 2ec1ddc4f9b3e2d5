# SPDX-License-Identifier: Apache-2.0
"""RMS norms by themselves: one op, as exact as the module's own forward."""

import copy

import models
import pytest
import torch
import transformers as t
from torch import nn

import epilogue.torch

DTYPES = (torch.float32, torch.bfloat16)
KINDS = {
    "llama": lambda n: t.models.llama.modeling_llama.LlamaRMSNorm(n, eps=1e-5),
    "gemma": lambda n: t.models.gemma.modeling_gemma.GemmaRMSNorm(n, eps=1e-6),
    "torch": lambda n: nn.RMSNorm(n, eps=1e-6),
}


def _norm(kind, columns, dtype):
    norm = KINDS[kind](columns).to(dtype)
    with torch.no_grad():
        norm.weight.add_(0.3 * torch.randn(columns).to(dtype))
    return norm.requires_grad_(False)


def _error(y, want):
    return float((y.double() - want).norm() / want.norm())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_is_as_exact_as_its_own(kind, dtype):
    torch.manual_seed(0)
    for columns in (1, 7, 63, 64, 130, 768, 4099):
        own = _norm(kind, columns, dtype)
        fused = epilogue.torch.fuse(nn.Sequential(copy.deepcopy(own)))
        exact = copy.deepcopy(own).double()
        for rows in ((3,), (2, 5), (1, 2, 40)):
            x = (torch.randn(*rows, columns) * torch.tensor([1e-3, 1.0, 100.0])[torch.randint(3, rows)][..., None]).to(dtype)
            wide = x.double()
            plain = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + (1e-5 if kind == "llama" else 1e-6))
            want = plain * (exact.weight + 1 if kind == "gemma" else exact.weight)
            y = fused(x)
            assert y.shape == x.shape and y.dtype is dtype and y.is_contiguous()
            assert _error(y, want) <= 1.02 * _error(own(x), want) + 1e-7, (columns, rows)
            if dtype is torch.bfloat16:  # the sum's order changes what lies between two bf16 numbers alone
                assert (y != own(x)).float().mean() < 0.01 + 1.5 / y.numel()
        report = epilogue.torch.why(fused)
        assert report.norm_calls == 3 and not report.norms[0].own_calls, str(report)


def test_values_that_are_no_numbers_stay_so():
    fused = epilogue.torch.fuse(nn.Sequential(_norm("llama", 64, torch.bfloat16)))
    x = torch.randn(4, 64).to(torch.bfloat16)
    x[1, 3], x[2, 5] = float("nan"), float("inf")
    y = fused(x)
    assert y[1].isnan().all() and y[2, 5].isnan() and not y[0].isnan().any() and not y[3].isnan().any()
    assert not y[2, :5].any()
    assert not fused(torch.zeros(2, 64, dtype=torch.bfloat16)).any()


def test_what_runs_as_its_own_says_why():
    own = _norm("llama", 64, torch.float32)
    fused = epilogue.torch.fuse(nn.Sequential(copy.deepcopy(own)))
    x = torch.randn(3, 64)

    def reason():
        return epilogue.torch.why(fused).norms[0].reason

    y = fused(x.requires_grad_())
    y.sum().backward()
    assert x.grad is not None and "gradients" in reason() and "gradients" in str(epilogue.torch.why(fused))
    x = x.detach()
    with torch.autocast("cpu"):
        fused(x)
    assert reason() == "autocast"
    torch.testing.assert_close(fused(x.to(torch.bfloat16)), own(x.to(torch.bfloat16)))
    assert "the weight" in reason()
    torch.testing.assert_close(fused(torch.randn(64, 3).t()).shape, (3, 64))
    assert "contiguous" in reason()
    with pytest.raises(RuntimeError):  # the module's own error
        fused(torch.randn(3, 65))
    fused[0].variance_epsilon = 0.5
    torch.testing.assert_close(fused(x), x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 0.5) * own.weight)
    assert "another eps" in reason()
    fused[0].variance_epsilon = 1e-5
    assert fused(torch.empty(0, 64)).shape == (0, 64)
    with torch.no_grad():
        fused[0].weight.mul_(2.0)
        torch.testing.assert_close(fused(x), 2 * own(x))
    with torch.inference_mode():
        torch.testing.assert_close(fused(x), 2 * own(x))
    assert epilogue.torch.why(fused).norm_calls == 2


def test_a_hook_and_a_copy_and_back():
    fused = epilogue.torch.fuse(nn.Sequential(_norm("llama", 64, torch.float32)))
    seen = []
    fused[0].register_forward_hook(lambda *_: seen.append(1))
    x = torch.randn(3, 64)
    want = fused(x)
    assert seen
    for how in ("deepcopy", "pickle", "torch.save"):
        if how != "deepcopy":
            fused[0]._forward_hooks.clear()
        copied = models.copied(fused, how)
        assert torch.equal(copied(x), want) and epilogue.torch.why(copied).norm_calls == 1
    epilogue.torch.fuse(fused)
    assert torch.equal(fused(x), want) and epilogue.torch.why(fused).norm_calls == 1
    epilogue.torch.unfuse(fused)
    assert type(fused[0]) is t.models.llama.modeling_llama.LlamaRMSNorm and not epilogue.torch.why(fused).norms
    assert not epilogue.torch.why(epilogue.torch.fuse(fused, linears=False)).norms


def test_norms_of_fused_layers_are_theirs():
    model = epilogue.torch.fuse(models.build("llama"))
    with torch.no_grad():
        model(models.ids(5))
    report = epilogue.torch.why(model)
    names = [row.name for row in report.norms]
    assert names == [f"model.layers.{i}.input_layernorm" for i in range(models.LAYERS)] + ["model.norm"], names
    assert report.norm_calls == models.LAYERS + 1 and report.rows[0].layer_calls == 1, str(report)
    assert "3 other norms are fused: 3 fused calls" in str(report) and not epilogue.torch.why(epilogue.torch.fuse(models.build("bert"))).norms


def test_the_op_says_what_it_expects():
    op = torch.ops.epilogue.rms_norm
    x, weight = torch.randn(3, 8), torch.ones(8)
    for call in (
        lambda: op(x, torch.ones(7), 0, 1e-5),
        lambda: op(x, weight.to(torch.bfloat16), 0, 1e-5),
        lambda: op(x.double(), weight.double(), 0, 1e-5),
        lambda: op(torch.randn(8, 3).t(), weight, 0, 1e-5),
        lambda: op(x, weight, 3, 1e-5),
    ):
        with pytest.raises(RuntimeError, match="rms_norm: expected"):
            call()
