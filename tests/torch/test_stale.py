# SPDX-License-Identifier: Apache-2.0
"""Weights that were written are packed anew, whoever wrote them."""

import copy
import gc

import models
import pytest
import torch

import epilogue.torch


def fused_and_plain(dtype=torch.float32):
    mlp = models.mlp_of(models.build("llama"), "llama")[0].to(dtype)
    plain = copy.deepcopy(mlp)
    return epilogue.torch.fuse(mlp), plain


def agree(fused, plain, tolerance=1e-5):
    x = torch.randn(3, 48, dtype=fused.gate_proj.weight.dtype)
    before = epilogue.torch.why(fused).fused_calls
    with torch.no_grad():
        torch.testing.assert_close(fused(x), plain(x), rtol=tolerance, atol=tolerance)
    assert epilogue.torch.why(fused).fused_calls == before + 1


def add_in_place(mlp):
    with torch.no_grad():
        mlp.up_proj.weight.add_(0.01)


def detached(mlp):
    mlp.up_proj.weight.detach().add_(0.01)


def load_state(mlp):
    mlp.load_state_dict({k: v + 0.01 for k, v in mlp.state_dict().items()})


def load_assigned(mlp):
    mlp.load_state_dict({k: v + 0.01 for k, v in mlp.state_dict().items()}, assign=True)


def data_copy(mlp):
    mlp.down_proj.weight.data.copy_(mlp.down_proj.weight.data * 1.5)


def data_add(mlp):
    mlp.gate_proj.weight.data.add_(0.01)


def through_numpy(mlp):
    mlp.gate_proj.weight.detach().numpy()[:] *= 1.5


def new_data(mlp):
    mlp.gate_proj.weight.data = mlp.gate_proj.weight.data * 1.5


def data_at_the_old_address(mlp):
    values = mlp.gate_proj.weight.data * 1.5
    mlp.gate_proj.weight.data = torch.empty(0)
    mlp.gate_proj.weight.data = values.clone()


def new_parameter(mlp):
    mlp.gate_proj.weight = torch.nn.Parameter(mlp.gate_proj.weight.detach() * 1.5)


def new_layer(mlp):
    mlp.gate_proj = torch.nn.Linear(48, 112, bias=False)
    torch.manual_seed(5)
    torch.nn.init.normal_(mlp.gate_proj.weight)


def swapped(mlp):
    torch.utils.swap_tensors(mlp.gate_proj.weight, torch.nn.Parameter(mlp.gate_proj.weight.detach() * 1.5))


def there_and_back(mlp):
    mlp.to(torch.bfloat16).to(torch.float32)


WRITES = [add_in_place, detached, load_state, load_assigned, data_copy, data_add, through_numpy, new_data,
          data_at_the_old_address, new_parameter, new_layer, swapped, there_and_back]  # fmt: skip


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
def test_write(write):
    fused, plain = fused_and_plain()
    agree(fused, plain)
    write(fused)
    write(plain)
    if write is new_layer:
        plain.load_state_dict(fused.state_dict())
    agree(fused, plain)
    agree(fused, plain)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "sgd_fused": lambda p: torch.optim.SGD(p, 0.1, fused=True),
    "adamw_for": lambda p: torch.optim.AdamW(p, 0.01, foreach=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
}


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_optimizer(kind):
    fused, plain = fused_and_plain()
    agree(fused, plain)
    x = torch.randn(4, 48)
    for mlp in (fused, plain):
        optimizer = OPTIMIZERS[kind](mlp.parameters())
        mlp(x).square().sum().backward()
        optimizer.step()
    agree(fused, plain)


def test_one_element_through_data_needs_refresh():
    """What nothing tells of: the documented limit. The last element is no sample."""
    fused, plain = fused_and_plain()
    agree(fused, plain)
    for mlp in (fused, plain):
        mlp.down_proj.weight.data[-1, -1] += 100
    epilogue.torch.refresh(fused)
    agree(fused, plain)


def test_dtype_changes():
    fused, plain = fused_and_plain()
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float32, 1e-5)):
        fused.to(dtype)
        plain.to(dtype)
        agree(fused, plain, tolerance)


def test_autocast_converts_again():
    fused, plain = fused_and_plain()
    x = torch.randn(3, 48)
    for _ in range(2):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(fused(x), plain(x), rtol=2e-2, atol=2e-2)
        add_in_place(fused)
        add_in_place(plain)
    assert epilogue.torch.why(fused).fused_calls == 2


def test_weights_made_in_inference_mode_run_as_the_module():
    with torch.inference_mode():
        mlp = torch.nn.Sequential(torch.nn.Linear(8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 6))
        epilogue.torch.fuse(mlp)
        mlp(torch.randn(2, 8))
    assert epilogue.torch.why(mlp).fused_calls == 0
    assert "inference mode" in str(epilogue.torch.why(mlp))


def test_tied_weights_follow_writes_and_packs_are_released():
    def build():
        mlp = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64)).eval()
        return epilogue.torch.fuse(mlp)

    gc.collect()  # models of other tests
    handles = torch.ops.epilogue.handles()
    packed = torch.ops.epilogue.packed_bytes()
    one, two = build(), build()
    for a, b in zip(one.parameters(), two.parameters()):
        b.data = a.data
    x = torch.randn(5, 64)
    with torch.no_grad():
        first = one(x)
        torch.testing.assert_close(two(x), first)
        for linear in (one[0], one[2]):
            linear.weight.mul_(2)
        torch.testing.assert_close(two(x), one(x))
        assert not torch.allclose(one(x), first)
    assert torch.ops.epilogue.packed_bytes() > packed
    del one, two, linear
    gc.collect()
    assert torch.ops.epilogue.handles() == handles
    assert torch.ops.epilogue.packed_bytes() == packed
