# SPDX-License-Identifier: Apache-2.0
"""Gradients through fused modules, and training beside an unfused model."""

import copy
import json

import models
import pytest
import torch

import epilogue.torch
from epilogue.torch.training import mkl_is_slow


def error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


def gradients(module, method, x, dy):
    x = x.detach().requires_grad_()
    module.zero_grad()
    getattr(module, method)(x).backward(dy)
    return {"input": x.grad, **{k: p.grad for k, p in module.named_parameters() if p.grad is not None}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_gradients_are_as_exact_as_eager(name, dtype):
    module, method = models.mlp_of(models.build(name, **models.WIDE).to(dtype), name)
    fused = epilogue.torch.fuse(copy.deepcopy(module), training="always")
    exact = copy.deepcopy(module).double()
    counts = (1, 4, 64, 512) if name in ("llama", "gpt2", "phi3") else (4, 64)
    for rows in counts:
        x, dy = torch.randn(2, 1, rows, 768).to(dtype)
        want = gradients(exact, method, x.double(), dy.double())
        own = gradients(module, method, x, dy)
        got = gradients(fused, method, x, dy)
        assert got.keys() == own.keys() and len(got) > 2
        for key in own:
            assert got[key].dtype == dtype
            assert error(got[key], want[key]) <= 1.05 * error(own[key], want[key]), f"{key}, {rows} rows"
    # A residual and a norm around the MLP: no backward pass, so the module's own.
    assert epilogue.torch.why(fused).fused_calls == (0 if name == "bert" else len(counts))


def test_without_training_gradients_are_the_modules_own():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    epilogue.torch.fuse(mlp)
    mlp(torch.randn(2, 48)).sum().backward()
    report = epilogue.torch.why(mlp)
    assert report.fused_calls == 0 and "training=True" in str(report)


def test_who_trains_fused_by_default(monkeypatch):
    from epilogue.torch import state, training

    mlp = epilogue.torch.fuse(models.mlp_of(models.build("llama"), "llama")[0], training=True)
    for products, calls in (("torch", 0), ("engine", 1)):
        monkeypatch.setattr(training, "products_of", lambda dtype, products=products: products)
        monkeypatch.setattr(state, "products_of", training.products_of)
        mlp(torch.randn(9, 48, requires_grad=True)).sum().backward()
        report = epilogue.torch.why(mlp)
        assert report.fused_calls == calls and "tune='measure' times both" in str(report)  # of the last own call
    with pytest.raises(ValueError, match="'always', not 'never'"):
        epilogue.torch.fuse(mlp, training="never")


def test_a_cpu_without_instructions_takes_the_engines_products(monkeypatch):
    from epilogue.torch import training

    has = {"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False, "avx512_fp16": True, "amx_fp16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    training.products_of.cache_clear()
    try:
        assert [training.products_of(d) for d in (torch.float32, torch.bfloat16, torch.float16)] == ["torch", "engine", "torch"]
        has["architecture"] = "aarch64"
        training.products_of.cache_clear()
        assert training.products_of(torch.bfloat16) == "torch"
    finally:
        training.products_of.cache_clear()


@pytest.mark.parametrize(
    "has, isa, mkl, slow",
    [
        ({"sse4a": True, "avx2": True}, None, True, True),
        ({"sse4a": False, "avx2": True, "cpu_name": "AMD EPYC 9354"}, "avx2", True, True),
        ({"sse4a": False, "avx2": True, "cpu_name": "Intel(R) Xeon(R)"}, None, True, False),
        ({"sse4a": True, "avx2": True}, "baseline", True, False),
        ({"sse4a": True, "avx2": True}, None, False, False),
        ({"sse4a": True, "avx2": False}, None, True, False),
        ({}, None, True, False),
    ],
)
def test_mkl_is_slow_on_cpus_of_other_vendors(monkeypatch, has, isa, mkl, slow):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.delenv("EPILOGUE_ISA", raising=False)
    if isa is not None:
        monkeypatch.setenv("EPILOGUE_ISA", isa)
    assert mkl_is_slow.__wrapped__() is slow


@pytest.mark.parametrize("training", [True, "always"])
def test_f32_trains_by_the_engines_products_where_mkl_is_slow(slow_mkl, training):
    module, method = models.mlp_of(models.build("llama", **models.WIDE), "llama")
    fused = epilogue.torch.fuse(copy.deepcopy(module), training=training)
    exact = copy.deepcopy(module).double()
    for calls, rows in enumerate((4, 64), 1):
        x, dy = torch.randn(2, 1, rows, 768)
        want = gradients(exact, method, x.double(), dy.double())
        own = gradients(module, method, x, dy)
        got = gradients(fused, method, x, dy)
        for key in own:
            assert error(got[key], want[key]) <= 1.1 * error(own[key], want[key]), f"{key}, {rows} rows"
        assert epilogue.torch.why(fused).fused_calls == calls


def test_many_rows_take_the_engines_products_where_there_are_tiles(monkeypatch):
    from epilogue.torch import training

    has = {"architecture": "x86_64", "avx512_bf16": True, "amx_bf16": True, "avx512_fp16": True, "amx_fp16": False}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    monkeypatch.delenv("EPILOGUE_ISA", raising=False)
    mlp = models.mlp_of(models.build("gpt2", **models.WIDE).to(torch.bfloat16), "gpt2")[0]
    for tiles in (True, False):
        has["amx_bf16"] = tiles
        training.has_tiles.cache_clear()
        training.products_of.cache_clear()
        try:
            assert training.tiles_pay(torch.bfloat16, training.LEAST_ROWS_OF_TILES) == tiles
            assert not training.tiles_pay(torch.bfloat16, training.LEAST_ROWS_OF_TILES - 1)
            assert not training.tiles_pay(torch.float32, 4096)
            fused = epilogue.torch.fuse(copy.deepcopy(mlp), training=True)
            for rows, calls in ((64, 0), (training.LEAST_ROWS_OF_TILES, int(tiles))):
                fused(torch.randn(rows, 768).to(torch.bfloat16)).sum().backward()
                assert epilogue.torch.why(fused).fused_calls == calls
        finally:
            training.has_tiles.cache_clear()
            training.products_of.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_the_engines_products(name, dtype, monkeypatch):
    mlp = models.mlp_of(models.build(name, **models.WIDE).to(dtype), name)[0]
    monkeypatch.setattr("epilogue.torch.state.products_of", lambda _: "engine")
    fused = epilogue.torch.fuse(copy.deepcopy(mlp), training="always")
    exact = copy.deepcopy(mlp).double()
    x, dy = torch.randn(2, 1, 32, 768).to(dtype)
    want = gradients(exact, "forward", x.double(), dy.double())
    own, got = gradients(mlp, "forward", x, dy), gradients(fused, "forward", x, dy)
    assert own.keys() == got.keys() and epilogue.torch.why(fused).fused_calls == 1
    for key in own:
        assert error(got[key], want[key]) <= 1.05 * error(own[key], want[key]), key


def test_training_by_measurement(tmp_path, monkeypatch):
    from epilogue.torch import choose

    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    fused = epilogue.torch.fuse(copy.deepcopy(mlp), training=True, tune="measure")
    x, dy = torch.randn(2, 3, 48)
    want = gradients(mlp, "forward", x, dy)
    for a, b in zip(gradients(fused, "forward", x, dy).values(), want.values()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    (file,) = tmp_path.iterdir()
    ((key, kept),) = json.loads(file.read_text()).items()
    assert key.endswith("| training") and kept in ("own", "torch", "engine")
    for choice, calls in (("own", 0), ("torch", 1), ("engine", 1)):  # what the file says is obeyed
        file.write_text(json.dumps({key: choice}))
        choose.forget()
        other = copy.deepcopy(fused)
        for a, b in zip(gradients(other, "forward", x, dy).values(), want.values()):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert epilogue.torch.why(other).fused_calls == calls
        assert calls or "measured" in str(epilogue.torch.why(other))
    choose.forget()


@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_some_frozen_parameters_and_second_derivatives(name):
    mlp = models.mlp_of(models.build(name).double().float(), name)[0]
    fused = epilogue.torch.fuse(copy.deepcopy(mlp), training="always")
    for module in (mlp, fused):
        next(module.parameters()).requires_grad_(False)
    x, dy = torch.randn(2, 3, 48)
    own, got = gradients(mlp, "forward", x, dy), gradients(fused, "forward", x, dy)
    assert own.keys() == got.keys()
    for key in own:
        torch.testing.assert_close(got[key], own[key], rtol=1e-4, atol=1e-5)

    def penalty(module):
        leaf = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(module(leaf).square().sum(), leaf, create_graph=True)
        first.square().sum().backward()
        return leaf.grad

    torch.testing.assert_close(penalty(fused), penalty(mlp), rtol=1e-3, atol=1e-4)


def test_checkpointing_and_saved_tensor_hooks():
    from torch.utils.checkpoint import checkpoint

    mlp = epilogue.torch.fuse(models.mlp_of(models.build("llama"), "llama")[0], training="always")
    x, dy = torch.randn(2, 3, 48)
    want = gradients(mlp, "forward", x, dy)
    for again in (True, False):
        leaf = x.detach().requires_grad_()
        checkpoint(mlp, leaf, use_reentrant=again).backward(dy)
        torch.testing.assert_close(leaf.grad, want["input"])
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        mlp(x.detach().requires_grad_()).backward(dy)
    assert len(packed) >= 4


def loss_of(model, name, batch):
    if name == "vit":
        return model(pixel_values=batch)[0].square().mean()
    if name == "bert":
        return model(batch)[0].square().mean()
    return model(batch, labels=batch).loss


# How a model trains, and which: every architecture, and the ways of Llama.
STEPS = [(name, True, "always") for name in sorted(models.BUILD) if name != "llama"]
STEPS += [("llama", fused, training) for fused in (False, True) for training in (False, True, "always")]


@pytest.mark.parametrize("name, fused_optimizer, training", STEPS)
def test_twenty_steps_then_eval(name, fused_optimizer, training, one_thread):
    model = models.build(name, **({"dropout": 0.0} if name in ("bert", "gpt2") else {}))
    plain = copy.deepcopy(model)
    epilogue.torch.fuse(model, training=training)
    data = torch.randn(20, 2, 3, 32, 32) if name == "vit" else torch.randint(2, 96, (20, 2, 9))
    probe = data[0][:1]
    for m in (model, plain):
        optimizer = torch.optim.AdamW(m.parameters(), 1e-3, fused=fused_optimizer)
        for batch in data:
            m.train()
            loss_of(m, name, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            m.eval()
            with torch.no_grad():
                m(probe)
    fresh = models.build(name)
    fresh.load_state_dict(model.state_dict())
    before = epilogue.torch.why(model).fused_calls
    with torch.no_grad():
        got = model(probe)[0]
        torch.testing.assert_close(got, fresh(probe)[0], rtol=1e-4, atol=1e-5)  # not stale
        torch.testing.assert_close(got, plain(probe)[0], rtol=1e-2, atol=1e-2)  # the same training
    assert epilogue.torch.why(model).fused_calls == before + models.LAYERS
    # BERT's MLP, with its residual and norm, has no fused backward pass.
    trains = training == "always" and name != "bert"
    assert before == models.LAYERS * 20 * (2 if trains else 1)
