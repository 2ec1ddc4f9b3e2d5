# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="epilogue")."""

import copy
import json

import models
import pytest
import torch
from torch._dynamo.utils import counters

import epilogue.torch


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()


def replaced():
    return counters["epilogue"]["mlps"]


def test_model_gives_what_it_gave(name):
    model = models.build(name)
    given = {"pixel_values": torch.randn(2, 3, 32, 32)} if name == "vit" else {"input_ids": models.ids(9)}
    with torch.no_grad():
        want = model(**given)[0]
        got = torch.compile(model, backend="epilogue")(**given)[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert replaced() == models.LAYERS


@pytest.mark.parametrize("products", ["torch", "engine"])
@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_training_and_then_eval(name, products, monkeypatch):
    monkeypatch.setattr("epilogue.torch.backend.products_of", lambda _: products)
    mlp = models.mlp_of(models.build(name), name)[0].eval()
    plain = copy.deepcopy(mlp)
    compiled = torch.compile(mlp, backend="epilogue", options={"training": "always"})
    x = torch.randn(5, 48)
    for fused in (False, True):
        for module, call in ((mlp, compiled), (plain, plain)):
            optimizer = torch.optim.AdamW(module.parameters(), 1e-2, fused=fused)
            for _ in range(3):
                call(x).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), plain(x), rtol=1e-3, atol=1e-4)
    assert replaced() == 2  # the graph with gradients, the graph without


def gradients(call, module, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(call(leaf).square().sum(), [leaf, *module.parameters()])


@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
@pytest.mark.parametrize("products", ["torch", "engine"])
def test_gradients_of_any_rows(name, products, monkeypatch):
    monkeypatch.setattr("epilogue.torch.backend.products_of", lambda _: products)
    mlp = models.mlp_of(models.build(name), name)[0]
    compiled = torch.compile(mlp, backend="epilogue", fullgraph=True, options={"training": "always"})
    for rows in (3, 8, 17):
        x = torch.randn(2, rows, 48)
        for got, want in zip(gradients(compiled, mlp, x), gradients(mlp, mlp, x)):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert replaced() == 2  # a graph for 3 rows, then one for any number


def products_that_ran(call):
    """How many matrix products of PyTorch and of the engine a call makes."""
    with torch.profiler.profile() as profile:
        call()
    counts = {e.key: e.count for e in profile.key_averages()}
    return sum(counts.get(k, 0) for k in ("aten::mm", "aten::addmm")), counts.get("epilogue::product", 0)


@pytest.mark.parametrize("products", ["torch", "engine"])
def test_training_makes_no_more_products_than_pytorch(products, monkeypatch):
    monkeypatch.setattr("epilogue.torch.backend.products_of", lambda _: products)
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    compiled = torch.compile(mlp, backend="epilogue", options={"training": "always"})
    x = torch.randn(5, 48)
    gradients(compiled, mlp, x)
    assert products_that_ran(lambda: gradients(compiled, mlp, x)) == ((9, 0) if products == "torch" else (0, 9))


def test_who_trains_fused_by_default(monkeypatch):
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    x = torch.randn(5, 48)
    want = gradients(mlp, mlp, x)

    def run(products, **options):
        torch._dynamo.reset()
        counters.clear()
        monkeypatch.setattr("epilogue.torch.training.products_of", lambda _: products)
        monkeypatch.setattr("epilogue.torch.backend.products_of", lambda _: products)
        for a, b in zip(gradients(torch.compile(mlp, backend="epilogue", options=options), mlp, x), want):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        return replaced(), " ".join(counters["epilogue"])

    count, words = run("torch")
    assert count == 0 and "tune='measure' times both" in words
    assert run("engine")[0] == 1
    assert run("torch", training="always")[0] == 1
    count, words = run("engine", training=False)
    assert count == 0 and "training=False" in words


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_by_measurement(name, trains, tmp_path, monkeypatch):
    from epilogue.torch import choose

    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    mlp = models.mlp_of(models.build(name), name)[0]
    x = torch.randn(2, 3, 48)

    def run(m):
        if trains:
            return gradients(m, mlp, x)
        with torch.no_grad():
            return [m(x)]

    want = run(mlp)
    keys = []
    for choice, count in ((None, None), ("own", 0), ("engine", 1)):  # the clock's, then the file's
        torch._dynamo.reset()
        counters.clear()
        if choice is not None:
            (file,) = tmp_path.iterdir()
            file.write_text(json.dumps({key: choice for key in keys}))
            choose.forget()
        for a, b in zip(run(torch.compile(mlp, backend="epilogue", options={"tune": "measure"})), want):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        keys = list(json.loads(next(tmp_path.iterdir()).read_text()))
        assert len(keys) == 1 and keys[0].endswith("| training") == trains
        if choice is not None:
            assert replaced() == count and counters["epilogue"]["PyTorch is faster (measured)"] == 1 - count
    choose.forget()


def test_options_and_modes_of_inductor():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    x = torch.randn(3, 48)
    with torch.no_grad():
        for given in ({"mode": "max-autotune-no-cudagraphs"}, {"options": {"max_autotune": True, "training": "always"}}):
            torch._dynamo.reset()
            torch.testing.assert_close(torch.compile(mlp, backend="epilogue", **given)(x), mlp(x), rtol=1e-4, atol=1e-5)
    assert replaced() == 2
    for wrong, words in (({"training": "never"}, "'always', not 'never'"), ({"tune": "fast"}, "'model' or 'measure', not 'fast'")):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=words):
            torch.compile(mlp, backend="epilogue", options=wrong)(x)


def test_rows_may_change_and_weights_too():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    compiled = torch.compile(mlp, backend="epilogue", dynamic=True, fullgraph=True)
    with torch.no_grad():
        for rows in (3, 8, 17):
            x = torch.randn(rows, 48)
            torch.testing.assert_close(compiled(x), mlp(x), rtol=1e-4, atol=1e-5)
            mlp.up_proj.weight.add_(0.01)
    assert replaced() == 1


def test_what_does_not_match_is_inductors():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    x = torch.randn(3, 48)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(torch.compile(mlp, backend="epilogue")(x), mlp(x), rtol=2e-2, atol=2e-2)
    torch._dynamo.reset()
    double = copy.deepcopy(mlp).double()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(double, backend="epilogue")(x.double()), double(x.double()))
    torch._dynamo.reset()
    mlp.up_proj.register_forward_hook(lambda m, args, out: torch.tanh(out))
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(mlp, backend="epilogue")(x), mlp(x))
    assert replaced() == 0


def test_a_fused_module_compiles_as_its_own_forward():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    x = torch.randn(3, 48)
    with torch.no_grad():
        want = mlp(x)
        epilogue.torch.fuse(mlp)
        torch.testing.assert_close(torch.compile(mlp, fullgraph=True)(x), want)
        assert epilogue.torch.why(mlp).fused_calls == 0
        torch.testing.assert_close(torch.compile(mlp, fullgraph=True, backend="epilogue")(x), want)
    assert replaced() == 1
