# SPDX-License-Identifier: Apache-2.0
"""Training under torch.autocast: beside an unfused model and float64, also where 16-bit types are emulated."""

import copy
import os
import subprocess
import sys

import models
import pytest
import torch

import epilogue.torch

DTYPES = [torch.bfloat16, torch.float16]
pytestmark = pytest.mark.usefixtures("one_thread")
MLPS = ["llama", "gpt2", "phi3"]  # gated; transposed, with biases; packed
ROWS = 48


def error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


def trio(name, products, monkeypatch):
    """An MLP, the same fused, and in float64."""
    monkeypatch.setattr("epilogue.torch.state.products_of", lambda _: products)
    own = models.mlp_of(models.build(name, hidden_size=256, intermediate_size=1024, num_hidden_layers=1), name)[0]
    return own, epilogue.torch.fuse(copy.deepcopy(own), training="always"), copy.deepcopy(own).double()


def gradients(module, dtype, x, dy):
    leaf = x.detach().to(next(module.parameters()).dtype).requires_grad_()
    with torch.autocast("cpu", dtype=dtype, enabled=leaf.dtype is not torch.float64):
        y = module(leaf)
    y.backward(dy.to(y.dtype))
    return {"result": y.detach(), "input": leaf.grad, **{k: p.grad for k, p in module.named_parameters()}}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("products", ["torch", "engine"])
@pytest.mark.parametrize("name", MLPS)
def test_gradients_are_as_exact_as_eager(name, products, dtype, monkeypatch):
    x, dy = torch.randn(2, 2, ROWS, 256)
    own, got, want = (gradients(m, dtype, x, dy) for m in trio(name, products, monkeypatch))
    for key in own:
        assert got[key].dtype == own[key].dtype, key
        assert error(got[key], want[key]) <= 1.05 * error(own[key], want[key]), key


def train(module, dtype, scaler, steps=5):
    """What the steps added to the parameters."""
    torch.manual_seed(1)
    before = [p.detach().clone() for p in module.parameters()]
    kind = before[0].dtype
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
    for _ in range(steps):
        x, wanted = torch.randn(2, 2, ROWS, 256)
        with torch.autocast("cpu", dtype=dtype, enabled=kind is not torch.float64):
            y = module(x.to(kind))
        loss = (y.to(kind) - wanted.to(kind)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return torch.cat([(p.detach() - b).flatten() for p, b in zip(module.parameters(), before)])


def scaler_for(dtype, **options):
    return torch.amp.GradScaler("cpu", enabled=dtype is torch.float16, **options)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("products", ["torch", "engine"])
@pytest.mark.parametrize("name", MLPS)
def test_five_steps_are_as_exact_as_eager(name, products, dtype, monkeypatch):
    own, fused, exact = trio(name, products, monkeypatch)
    scaler = scaler_for(dtype)
    want = train(exact, dtype, torch.amp.GradScaler("cpu", enabled=False))
    assert error(train(fused, dtype, scaler), want) <= 1.05 * error(train(own, dtype, scaler_for(dtype)), want)
    assert epilogue.torch.why(fused).fused_calls == 5
    assert dtype is not torch.float16 or scaler.get_scale() == 2.0**16  # no step was skipped


@pytest.mark.parametrize("products", ["torch", "engine"])
def test_grad_scaler_skips_what_overflows(products, monkeypatch):
    for module in trio("llama", products, monkeypatch)[:2]:
        scaler = scaler_for(torch.float16, init_scale=2.0**40, growth_interval=100)
        added = train(module, torch.float16, scaler, steps=2)
        assert added.abs().max() == 0 and scaler.get_scale() == 2.0**38


def test_who_trains_fused_by_default(monkeypatch):
    from epilogue.torch import training

    _, fused, _ = trio("llama", "torch", monkeypatch)
    epilogue.torch.fuse(fused, training=True)
    for products, calls in (("torch", 0), ("engine", 1)):
        monkeypatch.setattr(training, "products_of", lambda dtype, p=products: p if dtype is torch.bfloat16 else "torch")
        gradients(fused, torch.bfloat16, *torch.randn(2, 3, 256))
        assert epilogue.torch.why(fused).fused_calls == calls


def test_by_measurement(tmp_path, monkeypatch):
    from epilogue.torch import choose

    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    own, fused, _ = trio("gpt2", "torch", monkeypatch)
    epilogue.torch.fuse(fused, training=True, tune="measure")
    x, dy = torch.randn(2, 3, 256)
    for kind in (torch.float32, torch.bfloat16):  # weights that are cast, and others: two choices
        got = gradients(fused.to(kind), torch.bfloat16, x, dy)["result"]
        torch.testing.assert_close(got, gradients(own, torch.bfloat16, x, dy)["result"], rtol=2e-2, atol=2e-2)
    text = next(tmp_path.iterdir()).read_text()
    assert text.count("exact of f32 | training") == text.count("exact | training") == 1
    choose.forget()


def loss_of(model, name, batch):
    if name == "vit":
        return model(pixel_values=batch)[0].float().square().mean()
    return model(batch)[0].float().square().mean() if name == "bert" else model(batch, labels=batch).loss


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_models_train_and_then_run(name, dtype):
    model = models.build(name, **({"dropout": 0.0} if name in ("bert", "gpt2") else {}))
    plain = copy.deepcopy(model)
    epilogue.torch.fuse(model, training="always")
    data = torch.randn(5, 2, 3, 32, 32) if name == "vit" else torch.randint(2, 96, (5, 2, 9))
    for m in (model, plain):
        scaler, optimizer = scaler_for(dtype, init_scale=256.0), torch.optim.AdamW(m.parameters(), 1e-3)
        m.train()
        for batch in data:
            with torch.autocast("cpu", dtype=dtype):
                loss = loss_of(m, name, batch)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        m.eval()
    # BERT's MLP, with its residual and norm, is the module's own under autocast.
    calls = 0 if name == "bert" else 5 * models.LAYERS
    assert epilogue.torch.why(model).fused_calls == calls, str(epilogue.torch.why(model))
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        got, want = model(data[0])[0], plain(data[0])[0]
    assert error(got, want.double()) < 3e-2
    assert epilogue.torch.why(model).fused_calls == calls + (0 if name == "bert" else models.LAYERS)


def test_second_derivatives(monkeypatch):
    own, fused, _ = trio("llama", "torch", monkeypatch)

    def penalty(module):
        leaf = X.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = module(leaf)
        (first,) = torch.autograd.grad(y.float().square().sum(), leaf, create_graph=True)
        first.square().sum().backward()
        return leaf.grad

    X = torch.randn(3, 256)
    assert error(penalty(fused), penalty(own).double()) < 3e-2


EMULATED = [{"EPILOGUE_ISA": "avx2"}, {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "EPILOGUE_ISA": "avx2"}]


@pytest.mark.parametrize("limits", EMULATED, ids=lambda limits: " ".join(limits))
def test_where_16_bits_are_emulated(limits):
    if "EPILOGUE_ISA" in os.environ:
        pytest.skip("this is the process of limited instructions")
    tests = [f"{__file__}::test_{t}" for t in ("gradients_are_as_exact_as_eager", "five_steps_are_as_exact_as_eager", "grad_scaler_skips_what_overflows")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not torch-", *tests]
    out = subprocess.run(command, capture_output=True, text=True, timeout=590, env=dict(os.environ, **limits))
    assert out.returncode == 0, out.stdout + out.stderr
    assert "passed" in out.stdout and "skipped" not in out.stdout
