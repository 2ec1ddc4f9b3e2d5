# SPDX-License-Identifier: Apache-2.0
"""The benchmark runs and checks agreement. No figure is looked at."""

import argparse
import contextlib
import copy
import dataclasses
import json

import models
import pytest
import torch

from epilogue.torch import bandwidth, bench, bench_models, peers
from epilogue.torch.fuse import fuse, why
from epilogue.torch.isolated import Blocks, InPlace


def test_blocks(tmp_path, capsys):
    out = tmp_path / "rows.json"
    bench.main(["blocks", "--tiny", "--rows", "3", "--rounds", "2", "--seconds", "0.0", "--peers", "eager", "--json", str(out)])
    rows = json.loads(out.read_text())
    assert len(rows) == 2 * len(bench.SHAPES)
    assert all(set(row["ms"]) == {"fused", "eager"} and row["low"] <= row["high"] for row in rows)
    assert "geometric mean of 10 blocks" in capsys.readouterr().out
    one = ["blocks", "--tiny", "--rows", "1", "--rounds", "2", "--seconds", "0.0", "--peers", "eager", "--models", "llama"]
    bench.main([*one, "--dtype", "float32"])
    assert "of the roofline" in capsys.readouterr().out


def test_calls(tmp_path):
    out = tmp_path / "rows.json"
    threads = torch.get_num_threads()
    bench.main(["calls", "--rounds", "3", "--seconds", "0.001", "--json", str(out)])
    rows = {row["name"]: row for row in json.loads(out.read_text())}
    assert set(rows) == {"op", "module", "layer", "eager module", "linear", "eager linear", "norm", "eager norm", "rotary",
                         "eager rotary", "rotary x512", "eager rotary x512", "llama layer", "eager llama layer", "gpt2 layer",
                         "eager gpt2 layer"}  # fmt: skip
    assert all(0 < row["low"] <= row["us"] <= row["high"] for row in rows.values())
    assert torch.get_num_threads() == threads


def test_blocks_with_gradients(tmp_path, capsys):
    out = tmp_path / "rows.json"
    common = ["blocks", "--tiny", "--rows", "3", "--rounds", "2", "--seconds", "0.0", "--peers", "eager", "--models", "llama", "gpt2", "--json", str(out)]
    bench.main([*common, "--training", "always"])
    rows = json.loads(out.read_text())
    assert len(rows) == 4 and all(row["own"] is None for row in rows)
    assert all(set(row["ms"]) == {"fused", "eager"} and 0 <= row["differences"]["fused"] < 3e-2 for row in rows)
    bench.main([*common, "--dtype", "float32", "--training"])
    assert ["as fast here" in row["own"] for row in json.loads(out.read_text())] == [True, True]
    assert "as PyTorch's own" in capsys.readouterr().out


def test_linears(tmp_path):
    out = tmp_path / "rows.json"
    bench.main(["linears", "--tiny", "--rows", "3", "--rounds", "2", "--seconds", "0.0", "--peers", "eager", "--models", "llama", "--json", str(out)])
    rows = json.loads(out.read_text())
    assert len(rows) == 2 and all(set(row["ms"]) == {"eager", "fused"} for row in rows)


def test_decode(tmp_path, capsys):
    out = tmp_path / "rows.json"
    bench.main(["decode", "--tiny", "--layers", "1", "--rounds", "3", "--no-compile", "--f32", "--json", str(out)])
    rows = {row["setting"]: row for row in json.loads(out.read_text())}
    assert len(rows) == 8 and all(row["tokens_per_s"] > 0 and row["rounds"] == 3 for row in rows.values())
    fused = {name: row for name, row in rows.items() if name.startswith("fused")}
    assert len(fused) == 6 and all(0 <= row["rest"] < 1 and row["roofline"] > 0 for row in fused.values())
    assert fused["fused f32, own bits"]["off"] < 1e-4 < fused["fused f32, int8"]["off"] < fused["fused f32, int4"]["off"]
    assert "best of PyTorch's" in capsys.readouterr().out


def test_experts(tmp_path):
    out = tmp_path / "rows.json"
    bench.main(["experts", "--tiny", "--rows", "1", "9", "--rounds", "2", "--seconds", "0.0", "--peers", "grouped_mm", "--json", str(out)])
    rows = json.loads(out.read_text())
    assert len(rows) == 8 and all(set(row["ms"]) >= {"fused", "eager", "grouped_mm"} for row in rows)
    assert all(row["error"]["fused"] < 1e-2 and ("bandwidth" in row) == (" 1 rows" in row["name"]) for row in rows)


@pytest.mark.parametrize(
    "name, first",
    [
        ("bert", ["bert.encoder.layer.0.intermediate.dense", "bert.encoder.layer.0.output.dense"]),  # in the layer's forward
        ("gpt2", ["transformer.h.0.mlp.c_fc", "transformer.h.0.mlp.c_proj"]),
        ("mixtral", ["model.layers.0.mlp.experts"]),
    ],
)
def test_an_mlps_share_is_that_of_its_linear_layers(name, first):
    shape = dataclasses.replace(bench_models.SHAPES[name], **bench_models.TINY)
    plain = bench_models.build(name, shape, 1, 64, 64).eval()
    assert bench_models._parts_of_mlps(plain) == [first]
    call, _ = next(iter(bench_models.phases_of(plain, shape, 5, 64).values()))
    before = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in plain.modules()]
    with torch.no_grad():
        assert 0 < bench_models.mlp_share(plain, lambda: call(plain)) < 1
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in plain.modules()] == before


def test_models(tmp_path):
    out = tmp_path / "rows.json"
    bench.main(["models", "--tiny", "--layers", "1", "--rows", "5", "--rounds", "2", "--seconds", "0.0", "--peers", "eager",
                "--dtype", "float32", "--training", "--json", str(out)])  # fmt: skip
    rows = json.loads(out.read_text())
    assert {row["name"].split()[1] for row in rows} == {"prefill", "decode", "training", "forward"}
    assert all(0 < row["share"] < 1 for row in rows if "share" in row)
    for row in rows:
        assert ("roofline" in row) == ("decode" in row["name"])
        if "training" not in row["name"]:
            assert row["saved_ms"] == row["ms"]["eager"] - row["ms"]["fused"]
            assert row["isolated_ms"] == row["beside_ms"]["blocks own"] - row["beside_ms"]["blocks fused"]


def test_models_have_as_many_layers_as_fit(capsys):
    options = argparse.Namespace(words=64, prompt=8, layers=4, peers=["eager", "compile"])
    shape = dataclasses.replace(bench_models.SHAPES["llama"], **bench_models.TINY)
    sizes = [sum(p.numel() for p in bench_models.build("llama", shape, n, 64, 80).parameters()) for n in range(5)]
    for layers, free in ((4, None), (4, 11 * 4 * sizes[4]), (3, 11 * 4 * sizes[4] - 1), (2, 11 * 4 * sizes[2]), (1, 0)):
        assert bench_models.most_layers("llama", shape, torch.float32, options, free) == layers
        said = capsys.readouterr().out
        assert said == "" if layers == 4 else said.startswith(f"llama float32: {layers} of 4 layers, for which the settings would take")
    options.layers = 1
    assert bench_models.most_layers("llama", shape, torch.float32, options, 0) == 1 and capsys.readouterr().out == ""


def test_results_that_differ_are_no_benchmark(monkeypatch):
    monkeypatch.setattr(peers, "fuse", lambda module, **_: module.apply(lambda m: m.weight.data.add_(1) if hasattr(m, "weight") else None))
    with pytest.raises(SystemExit, match="results differ"):
        bench.main(["blocks", "--tiny", "--rows", "3", "--rounds", "2", "--peers", "eager"])


def absent(name):
    if name.startswith("openvino"):
        raise ModuleNotFoundError(name=name.split(".")[0])
    if name.startswith("zentorch"):
        raise ImportError("wants torch 2.14\nand more")


def test_peers_that_are_not_there_are_one_line_each(monkeypatch, capsys):
    monkeypatch.setattr(peers.importlib, "import_module", absent)
    assert peers.installed(["compile", "openvino", "zentorch", "torchao"]) == ["compile", "torchao"]
    assert capsys.readouterr().out.splitlines() == [
        "openvino is left out: not installed (pip install openvino)",
        "zentorch is left out: does not load: wants torch 2.14",
    ]


def test_a_peer_that_fails_or_differs_is_left_out(monkeypatch, capsys):
    own = peers.prepare

    def prepare(module, setting, *given):
        if setting == "openvino":
            raise RuntimeError("no such op")
        made = own(module, "eager" if setting == "zentorch" else setting)
        if setting == "zentorch":
            made.fc2.weight.data.mul_(2)
        return made

    monkeypatch.setattr(bench, "prepare", prepare)
    monkeypatch.setattr(bench, "installed", list)
    words = ["--tiny", "--rows", "3", "--rounds", "2", "--seconds", "0.0", "--models", "llama", "--dtype", "float32"]
    bench.main(["blocks", *words, "--peers", "eager", "openvino", "zentorch"])
    out = capsys.readouterr().out
    assert "openvino is left out: RuntimeError: no such op" in out
    assert "zentorch is left out: its result differs by 1.0e+00" in out


def test_bytes_of_weights():
    tied = models.build("gemma")  # its head is its embedding
    assert tied.lm_head.weight is tied.model.embed_tokens.weight
    assert bandwidth.weight_bytes(tied) == 4 * sum(p.numel() for p in tied.parameters())
    free = models.build("llama")
    lookup = free.model.embed_tokens.weight.numel()
    assert bandwidth.weight_bytes(free) == 4 * (sum(p.numel() for p in free.parameters()) - lookup)
    assert bandwidth.share(1000, 2.0, 4.0, 4000) == {"gb_per_s": 1e-3, "roofline": 0.5}


def test_blocks_alone_are_what_ran():
    model = fuse(models.build("llama"))
    ids = models.ids(5)
    with torch.no_grad():
        alone = Blocks(model, lambda: model(ids))
        assert alone.fused_calls == len(alone.calls) == models.LAYERS  # norm and residual with them
        for call in alone.calls:
            torch.testing.assert_close(call.run(False), call.run(True))
        before = why(model).fused_calls
        alone.fused()
        assert why(model).fused_calls == before + models.LAYERS
        with torch.autocast("cpu", dtype=torch.bfloat16):
            under = Blocks(model, lambda: model(ids))
    # The layers fall back (norms under autocast), their MLPs do not.
    assert [call.is_fused for call in under.calls] == [False, True] * models.LAYERS
    assert under.calls[0].run(False) is None


def test_mlps_in_place_run_as_they_are_asked_to():
    plain = models.build("llama")
    model = fuse(copy.deepcopy(plain))
    ids = models.ids(5)
    outs = []
    for context, results in ((contextlib.nullcontext(), [True]), (torch.autocast("cpu", dtype=torch.bfloat16), [False, True])):
        with torch.no_grad(), context:
            mlps = InPlace(model, lambda: outs.append(model(ids).logits))
            # Under autocast the layers fall back, their MLPs do not.
            assert mlps._is_fused == results * models.LAYERS
            before = why(model).fused_calls
            assert mlps.own_ms() > 0
            assert why(model).fused_calls == before
            torch.testing.assert_close(outs[-1], plain(ids).logits, rtol=1e-5, atol=1e-6)  # norms are fused still
            assert mlps.fused_ms() > 0
            assert why(model).fused_calls == before + models.LAYERS
            assert torch.equal(outs[-1], model(ids).logits)
            # Nothing stays in the states.
            assert why(model).fused_calls == before + 2 * models.LAYERS


def test_blocks_alone_of_a_training_step():
    model = fuse(models.build("llama").train(), training="always")
    ids = models.ids(5)
    alone = Blocks(model, lambda: model(ids, labels=ids).loss.backward())
    assert alone.fused_calls == models.LAYERS
    kept = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    alone.own()
    alone.fused()
    for p, grad in zip(model.parameters(), kept):
        assert torch.equal(p.grad, grad)


def test_a_phase_of_models_alone(tmp_path):
    out = tmp_path / "rows.json"
    bench.main(["models", "--tiny", "--layers", "1", "--rows", "5", "--rounds", "2", "--seconds", "0.0", "--peers", "eager",
                "--dtype", "float32", "--models", "gpt2", "vit", "llama", "--phases", "decode", "--json", str(out)])  # fmt: skip
    rows = json.loads(out.read_text())
    assert [row["name"].split()[:2] for row in rows] == [["gpt2", "decode"], ["llama", "decode"]]
