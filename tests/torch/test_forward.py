# SPDX-License-Identifier: Apache-2.0
"""Each architecture: as close to float64 as PyTorch's own kernels, and fused indeed."""

import copy
import re

import models
import pytest
import torch

import epilogue.torch


def error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


def errors(module, fused, exact, method, rows, dtype):
    """Mean errors of eager and fused. Of few rows many draws: one says little."""
    draws = 16 if rows < 16 else 1
    own, got = 0.0, 0.0
    for _ in range(draws):
        x = torch.randn(1, rows, 768).to(dtype)
        want = getattr(exact, method)(x.double())
        own += error(getattr(module, method)(x), want) / draws
        y = getattr(fused, method)(x)
        assert y.dtype == dtype and y.shape == want.shape
        got += error(y, want) / draws
    return own, got, draws


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_mlp_is_as_exact_as_eager(name, dtype):
    module, method = models.mlp_of(models.build(name, **models.WIDE).to(dtype), name)
    exact = copy.deepcopy(module).double()
    fused = epilogue.torch.fuse(copy.deepcopy(module))
    calls = 0
    with torch.no_grad():
        for rows in (1, 4, 64, 512):
            own, got, draws = errors(module, fused, exact, method, rows, dtype)
            calls += draws
            assert got <= 1.05 * own, f"{rows} rows"
    assert epilogue.torch.why(fused).fused_calls == calls


def test_model_gives_what_it_gave(name):
    model = models.build(name)
    given = {"pixel_values": torch.randn(2, 3, 32, 32)} if name == "vit" else {"input_ids": models.ids(9)}
    with torch.no_grad():
        want = model(**given)[0]
        epilogue.torch.fuse(model)
        got = model(**given)[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    report = epilogue.torch.why(model)
    assert len(report.fused) == models.LAYERS
    assert report.fused_calls == models.LAYERS


@pytest.mark.parametrize("name", models.GENERATES)
def test_greedy_generation_is_the_same(name):
    model = models.build(name)
    prompt = models.ids(5)
    options = dict(max_new_tokens=32, do_sample=False, pad_token_id=0)
    want = model.generate(prompt, **options)
    epilogue.torch.fuse(model)
    got = model.generate(prompt, **options)
    if not torch.equal(got, want):  # only where two tokens tie
        at = int((got != want).nonzero()[0, 1])
        epilogue.torch.unfuse(model)
        with torch.no_grad():
            logits = model(want[:, :at]).logits[0, -1]
        assert (logits[got[0, at]] - logits[want[0, at]]).abs() < 1e-4
    epilogue.torch.fuse(model)
    before = epilogue.torch.why(model).fused_calls
    model.generate(prompt, **options)
    assert epilogue.torch.why(model).fused_calls - before == 32 * models.LAYERS


def test_transformer_encoder_layer():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True)
    x = torch.randn(2, 5, 32)
    layer.eval()
    with torch.no_grad():
        want = layer._ff_block(x)
        epilogue.torch.fuse(layer)
        got = layer._ff_block(x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert epilogue.torch.why(layer).fused_calls == 1


def test_sequential():
    mlp = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 6)).eval()
    x = torch.randn(3, 8)
    with torch.no_grad():
        want = mlp(x)
        got = epilogue.torch.fuse(mlp)(x)
    torch.testing.assert_close(got, want)
    assert epilogue.torch.why(mlp).fused_calls == 1


def test_rows_of_every_layout():
    """No rows, strided rows, rows of a transposed tensor, many leading dimensions."""
    mlp = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.SiLU(), torch.nn.Linear(24, 6)).eval()
    inputs = [torch.randn(0, 8), torch.randn(7, 16)[:, ::2], torch.randn(8, 5).t(), torch.randn(2, 1, 3, 8), torch.randn(8),
              torch.randn(4, 3, 8).transpose(0, 1), torch.randn(1, 8).expand(5, 8)]  # fmt: skip
    with torch.no_grad():
        want = [mlp(x) for x in inputs]
        epilogue.torch.fuse(mlp)
        for x, y in zip(inputs, want):
            torch.testing.assert_close(mlp(x), y)
    assert epilogue.torch.why(mlp).fused_calls == len(inputs)


def test_int8_weights_are_near_and_only_when_asked(llama):
    mlp, _ = models.mlp_of(llama, "llama")
    x = torch.randn(4, 48)
    with torch.no_grad():
        want = mlp(x)
        epilogue.torch.fuse(mlp, int8_weights=True)
        got = mlp(x)
    assert epilogue.torch.why(mlp).fused_calls == 1
    assert 1e-6 < ((got - want).norm() / want.norm()).item() < 5e-2


@pytest.mark.parametrize("rows", [1, 4, 40])
@pytest.mark.parametrize(
    "options, least, most",
    [({"weights": "int8"}, 1e-4, 5e-2), ({"weights": "int8", "activations": "int8"}, 1e-3, 5e-2),
     ({"weights": "int4"}, 1e-2, 0.4), ({"weights": "int4", "activations": "int8"}, 1e-2, 0.4),
     ({"weights": "int4", "group": 32, "zero_points": True}, 1e-2, 0.3)],
    ids=str,
)  # fmt: skip
def test_fewer_bits_are_near_and_leave_the_state_dict(llama, rows, options, least, most):
    mlp, _ = models.mlp_of(llama, "llama")
    before = {name: w.clone() for name, w in mlp.state_dict().items()}
    x = torch.randn(rows, 48)
    with torch.no_grad():
        want = mlp(x)
        got = epilogue.torch.fuse(mlp, **options)(x)
    assert epilogue.torch.why(mlp).fused_calls == 1
    assert least < ((got - want).norm() / want.norm()).item() < most
    after = mlp.state_dict()
    assert after.keys() == before.keys()
    for name, w in before.items():
        assert torch.equal(after[name], w), name


def test_int8_weights_is_an_alias(llama):
    x = torch.randn(4, 48)
    with torch.no_grad():
        one, two = (epilogue.torch.fuse(copy.deepcopy(models.mlp_of(llama, "llama")[0]), **options)(x)
                    for options in ({"int8_weights": True}, {"weights": "int8"}))  # fmt: skip
    assert torch.equal(one, two)


@pytest.mark.parametrize(
    "options, message",
    [({"weights": "int2"}, "weights: expected None, 'int8' or 'int4', got 'int2'"),
     ({"activations": "int8"}, "activations: expected None unless weights are 'int8' or 'int4', got 'int8'"),
     ({"weights": "int4", "group": 64}, "group: expected 32 or 128, got 64"),
     ({"weights": "int4", "int8_weights": True}, "weights: expected 'int8' or None beside int8_weights=True, got 'int4'")],
    ids=str,
)  # fmt: skip
def test_bits_that_do_not_fit_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        epilogue.torch.fuse(torch.nn.Linear(2, 2), **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(name, dtype):
    module, method = models.mlp_of(models.build(name, **models.WIDE), name)
    x = torch.randn(1, 6, 768)
    exact = getattr(copy.deepcopy(module).double(), method)(x.double())
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        want = getattr(module, method)(x)
        epilogue.torch.fuse(module)
        got = getattr(module, method)(x)
    assert got.dtype == want.dtype
    assert error(got, exact) <= 1.05 * error(want, exact)
    # A residual and a norm around the MLP promote: that runs as the module's own.
    assert epilogue.torch.why(module).fused_calls == (0 if name == "bert" else 1)
