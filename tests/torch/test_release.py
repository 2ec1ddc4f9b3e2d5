# SPDX-License-Identifier: Apache-2.0
"""fuse(release=True): packed weights in place of the originals, which are in a file."""

import copy
import io
import json
import os
import pathlib
import subprocess
import sys

import models
import pytest
import test_mixtures
import torch

import epilogue.torch

MEASURE = """
import json, sys, torch, transformers as t
import epilogue.torch

def resident():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))

torch.set_num_threads(1)
dtype, release = getattr(torch, sys.argv[1]), sys.argv[2] == "release"
scale = 4 // dtype.itemsize  # as many bytes: the pages that samples touch are as many for any size
config = dict(vocab_size=64 * scale, hidden_size=1024 * scale, intermediate_size=4096 * scale, num_hidden_layers=4 // scale, num_attention_heads=8,
              num_key_value_heads=8)
def build(**sizes):
    with torch.device("meta"):
        model = t.LlamaForCausalLM(t.LlamaConfig(**{**config, **sizes}))
    model = model.to(dtype).to_empty(device="cpu").eval()
    for p in model.parameters():  # in one pass: random numbers in f32 would take memory of their own
        p.data.copy_(torch.ones((), dtype=dtype).mul_(0.01))
    for m in model.modules():
        if hasattr(m, "rope_init_fn"):
            m.inv_freq = m.rope_init_fn(m.config, "cpu")[0] if callable(m.rope_init_fn) else torch.ones_like(m.inv_freq)
    return model
ids = torch.ones((1, 4), dtype=torch.int64)
with torch.no_grad():
    epilogue.torch.fuse(build(num_hidden_layers=1, hidden_size=64, intermediate_size=128), linears=True)(ids)  # libraries and threads
    before = resident()
    model = build()
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    epilogue.torch.fuse(model, release=release)
    for _ in range(3):
        for rows in (4, 1, 4):
            model(ids[:, :rows])
    after = resident()
report = epilogue.torch.why(model)
print(json.dumps([after - before, weights, report.fused_calls, report.linear_calls, report.released_bytes]))
"""


def measured(dtype, how):
    # One arena: what other threads' arenas hold is not the model's.
    environment = dict(os.environ, MALLOC_ARENA_MAX="1", MALLOC_TRIM_THRESHOLD_="65536", MALLOC_MMAP_THRESHOLD_="65536")
    run = subprocess.run([sys.executable, "-c", MEASURE, dtype, how], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_takes_its_weights_and_no_more(dtype):
    taken, weights, mlps, linears, released = measured(dtype, "release")
    layers = 4 if dtype == "float32" else 2
    assert mlps == layers * 9 and linears == (layers * 4 + 1) * 9  # the head too
    assert released > 0.95 * weights
    assert taken <= 1.05 * weights, f"{taken / weights:.3f} of the weights"
    if dtype == "float32":  # the measure can tell
        assert measured(dtype, "keep")[0] > 1.4 * weights


@pytest.mark.parametrize("name", ["llama", "gpt2", "phi3", "bert"])
def test_state_dict_and_unfuse_are_exact(name):
    model = models.build(name, hidden_size=384) if name != "bert" else models.build(name)
    plain = copy.deepcopy(model)
    ids = models.ids(5)
    epilogue.torch.fuse(model, release=True, linears="always")
    report = epilogue.torch.why(model)
    assert report.released_bytes > 0 and "in a file" in str(report) and report.to_dict()["released_bytes"] == report.released_bytes
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(model(ids)[0], plain(ids)[0], rtol=1e-4, atol=1e-4)
    assert epilogue.torch.why(model).linear_calls > 0
    for _ in range(2):
        want = plain.state_dict()
        got = model.state_dict()
        assert got.keys() == want.keys() and all(torch.equal(got[k], want[k]) for k in want)
        epilogue.torch.unfuse(model)
    with torch.no_grad():
        assert torch.equal(model(ids)[0], plain(ids)[0])
    assert epilogue.torch.why(model).released_bytes == 0


def test_writes_copies_and_pickles():
    model = models.build("llama")
    plain = copy.deepcopy(model)
    ids = models.ids(5)
    epilogue.torch.fuse(model, release=True, linears="always")
    with torch.no_grad():
        model(ids)
        other = models.build("llama")
        for m in (model, plain):
            m.load_state_dict(other.state_dict())
        torch.testing.assert_close(model(ids)[0], plain(ids)[0], rtol=1e-4, atol=1e-4)  # not stale
        for m in (model, plain):
            m.model.layers[0].mlp.down_proj.weight.data.mul_(1.5)
        torch.testing.assert_close(model(ids)[0], plain(ids)[0], rtol=1e-4, atol=1e-4)
        for again in (copy.deepcopy(model), torch.load(saved(model), weights_only=False)):
            assert epilogue.torch.why(again).released_bytes == 0  # in memory
            torch.testing.assert_close(again(ids)[0], plain(ids)[0], rtol=1e-4, atol=1e-4)
            del again
        model.to(torch.bfloat16)
        plain.to(torch.bfloat16)
        torch.testing.assert_close(model(ids)[0], plain(ids)[0], rtol=5e-2, atol=5e-2)


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


def test_weights_that_others_read_stay():
    model = models.build("llama", tie_word_embeddings=True)
    epilogue.torch.fuse(model, release=True, linears="always")
    store = model.model.layers[0].mlp.__dict__["_epilogue_state"].store
    assert store.holds(model.model.layers[0].mlp.up_proj.weight)
    assert not store.holds(model.lm_head.weight) and not store.holds(model.model.norm.weight)
    epilogue.torch.fuse(model)  # without release: all in memory again
    assert not store.holds(model.model.layers[0].mlp.up_proj.weight)


def test_experts():
    layer = test_mixtures.layer_of()
    plain = copy.deepcopy(layer)
    epilogue.torch.fuse(layer, release=True)
    state = layer.__dict__["_epilogue_experts_state"]
    assert state.store.holds(layer.gate_up_proj) and state.store.holds(layer.down_proj)
    x, index, factors = test_mixtures.routed(7)
    for _ in range(2):
        args = (x, index, factors)
        torch.testing.assert_close(test_mixtures.run(layer, *args), test_mixtures.run(plain, *args), rtol=1e-4, atol=1e-4)
    assert state.fused_calls == 2
    want = plain.state_dict()
    assert all(torch.equal(v, want[k]) for k, v in layer.state_dict().items())


def test_errors(tmp_path, monkeypatch):
    model = models.build("llama")
    with pytest.raises(ValueError, match="False, True or a folder, not 3"):
        epilogue.torch.fuse(model, release=3)
    with pytest.raises(ValueError, match="expected a folder, got .*none"):
        epilogue.torch.fuse(model, release=str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="tune='model'"):
        epilogue.torch.fuse(model, release=str(tmp_path), tune="measure")
    memory = pathlib.Path("/dev/shm")
    if memory.is_dir():
        with pytest.raises(ValueError, match="on a disk, got /dev/shm, whose files are memory"):
            epilogue.torch.fuse(model, release=str(memory))
    assert not epilogue.torch.why(model).fused  # nothing was changed before the error
