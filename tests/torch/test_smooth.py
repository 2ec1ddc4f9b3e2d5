# SPDX-License-Identifier: Apache-2.0
"""smooth(): what it evens out, that the model computes what it did, and what it leaves."""

import copy
import re

import models
import pytest
import torch
from torch import nn

import epilogue.torch
from epilogue.torch.timing import relative

pytestmark = pytest.mark.usefixtures("one_thread")


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits


class Gated(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Outliers(nn.Module):
    """A gated MLP with channels of large rows and small weights, as trained models have them."""

    def __init__(self, dim=256, hidden=512):
        super().__init__()
        self.norm, self.mlp = nn.RMSNorm(dim, eps=1e-6), Gated(dim, hidden)
        with torch.no_grad():
            self.norm.weight[::37] *= 60
            for layer in (self.mlp.gate_proj, self.mlp.up_proj):
                layer.weight[:, ::37] /= 60
            self.mlp.up_proj.weight[::41] *= 40
            self.mlp.down_proj.weight[:, ::41] /= 40

    def forward(self, x):
        return self.mlp(self.norm(x))


def test_smoothed_channels_lose_less_and_change_nothing_else():
    model = Outliers().eval()
    x, seen = torch.randn(64, 256), [torch.randn(32, 256) for _ in range(2)]
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        want = model(x)

        def error(module):
            return relative(epilogue.torch.fuse(copy.deepcopy(module), weights="int8", activations="int8")(x).double(), exact)

        before = error(model)
        done = epilogue.torch.smooth(model, seen)
        # Powers of two: the model without rounding gives what it gave.
        torch.testing.assert_close(model(x), want, rtol=1e-5, atol=1e-5 * want.abs().max().item())
        after = error(model)
    print(f"error of 8-bit weights and rows: {before:.4f}, smoothed {after:.4f}")
    assert after < 0.5 * before
    assert {s.maker for s in done.sets} == {"norm", "mlp.up_proj"}
    assert all(s.after < 0.5 * s.before for s in done.sets)
    assert "norm -> mlp.gate_proj, mlp.up_proj" in str(done)


@pytest.mark.parametrize("name", ["llama", "gemma", "phi3", "gpt2", "qwen3"])
def test_smoothing_leaves_what_a_model_computes(name):
    model = models.build(name)
    ids = models.ids(16)
    want = logits(model, ids)
    done = epilogue.torch.smooth(model, [{"input_ids": models.ids(16)}], 0.6)
    assert len(done.sets) >= 2, str(done)
    torch.testing.assert_close(logits(model, ids), want, rtol=1e-4, atol=1e-4)
    epilogue.torch.fuse(model, weights="int8", activations="int8", linears="always")
    assert relative(logits(model, ids), want) < 0.08


def test_norms_that_others_read_are_left():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.LayerNorm(64), nn.Linear(64, 64)

        def forward(self, x):
            y = self.norm(x)
            return y + self.fc(y)

    model = Residual()
    before = model.fc.weight.clone()
    done = epilogue.torch.smooth(model, [torch.randn(4, 64)])
    assert not done.sets and done.left == (("norm", "add() reads its result too"),)
    assert torch.equal(model.fc.weight, before)


@pytest.mark.parametrize(
    "call, message",
    [(lambda m: epilogue.torch.smooth(m, []), "batches: expected at least one batch, got none"),
     (lambda m: epilogue.torch.smooth(m, torch.zeros(1, 64)), "batches: expected an iterable of batches, got one Tensor"),
     (lambda m: epilogue.torch.smooth(m, [torch.zeros(1, 64)], 2), "strength: expected a number from 0 to 1, got 2"),
     (lambda m: epilogue.torch.smooth(epilogue.torch.fuse(m, linears="always"), [torch.zeros(1, 64)]),
      "model: expected one before fuse(), got one that it changed")],
)  # fmt: skip
def test_misuse_of_smooth_is_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(nn.Sequential(nn.Linear(64, 64)))
