# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="epilogue")."""

import copy

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


@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_training_and_then_eval(name):
    mlp = models.mlp_of(models.build(name), name)[0].eval()
    plain = copy.deepcopy(mlp)
    compiled = torch.compile(mlp, backend="epilogue")
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
