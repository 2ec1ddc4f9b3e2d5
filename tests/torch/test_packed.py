# SPDX-License-Identifier: Apache-2.0
"""Weights of few bits: whole models, files of rounded weights alone, torchao's tensors, smoothed activations."""

import copy
import json
import pickle
import re

import models
import pytest
import test_mixtures
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import epilogue.torch
from epilogue.torch.packed import PackedWeight, round_weight, rounded_of
from epilogue.torch.timing import relative

pytestmark = pytest.mark.usefixtures("one_thread")

OPTIONS = [
    {"weights": "int8"}, {"weights": "int8", "activations": "int8"}, {"weights": "int4"},
    {"weights": "int4", "group": 32, "zero_points": True}, {"weights": "int4", "group": 32, "activations": "int8"},
]  # fmt: skip


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits


def all_ran_fused(model):
    report = epilogue.torch.why(model)
    rows = [*report.rows, *report.linears]
    return len(rows) > 0 and all(row.is_fused and row.fused_calls and not row.own_calls for row in rows), str(report)


@pytest.mark.parametrize("rows", [1, 12])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma"])
def test_every_linear_layer_of_a_model_has_fewer_bits(name, options, rows):
    model = models.build(name)
    ids = models.ids(rows)
    want = logits(model, ids)
    # gpt2's and gemma's heads are their embeddings: a rounded copy is smaller, and read instead.
    epilogue.torch.fuse(model, linears="always", **options)
    off = relative(logits(model, ids), want)
    assert 1e-4 < off < (0.08 if options["weights"] == "int8" else 0.6)
    fine, report = all_ran_fused(model)
    assert fine, report
    report = epilogue.torch.why(model)
    assert any("lm_head" in row.name for row in report.linears)


@pytest.mark.parametrize("rows", [1, 40])
def test_linears_with_fewer_bits_run_at_any_number_of_rows(rows):
    layers = nn.Sequential(nn.Linear(512, 256))  # two of them would be an MLP's
    x = torch.randn(rows, 512)
    with torch.no_grad():
        want = layers(x)
        got = epilogue.torch.fuse(layers, weights="int8")(x)
    assert 1e-4 < relative(got, want) < 0.05
    assert all_ran_fused(layers)[0]


@pytest.mark.parametrize("rows", [1, 7, 200])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "qwen3_moe"])
def test_experts_have_fewer_bits(name, options, rows):
    layer = test_mixtures.layer_of(name)
    x, index, weights = test_mixtures.routed(rows)
    want = test_mixtures.run(layer, x, index, weights)
    epilogue.torch.fuse(layer, **options)
    off = relative(test_mixtures.run(layer, x, index, weights), want)
    assert 1e-4 < off < (0.08 if options["weights"] == "int8" else 0.6)
    assert [calls for calls in test_mixtures.calls_of(layer)] == [(1, 0)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["llama", "llama_bias", "phi3", "gpt2", "gemma"])
def test_saved_weights_give_the_same_bits_without_the_originals(name, options, tmp_path):
    model = models.build(name)
    ids = models.ids(9)
    epilogue.torch.fuse(model, linears="always", **options)
    want = logits(model, ids)
    path = tmp_path / "packed.safetensors"
    epilogue.torch.save_packed(model, path, {"by": "a test"})
    torch.manual_seed(1)
    other = models.build(name)
    assert not torch.equal(logits(other, ids), want)
    assert epilogue.torch.load_packed(other, path) is other
    assert torch.equal(logits(other, ids), want)
    fine, report = all_ran_fused(other)
    assert fine, report
    packed = [p for p in other.parameters() if type(p) is PackedWeight]
    # No linear layer has an original.
    assert len(packed) == sum(m.weight.dim() == 2 for m in model.modules() if hasattr(m, "weight") and type(m).__name__.endswith(("Linear", "Conv1D")))
    with safe_open(path, "pt") as file:
        assert file.metadata()["by"] == "a test"
    # And once more, from the packed model.
    again = tmp_path / "again.safetensors"
    epilogue.torch.save_packed(other, again)
    first, second = load_file(path), load_file(again)
    assert first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.parametrize("bits", ["int8", "int4_128", "int4_32_zeros"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_saved_is_what_the_weights_are_rounded_to(bits, transposed, dtype):
    w = torch.randn(70, 290, dtype=torch.float64).to(dtype)
    rounded = round_weight(w.t().contiguous() if transposed else w, bits, transposed)
    values = rounded.dequantize().float()
    values = values.t() if transposed else values
    assert 0 < relative(values, w.float()) < (0.02 if bits == "int8" else 0.2)
    assert tuple(rounded.shape) == tuple((w.t() if transposed else w).shape)


def test_a_packed_model_runs_without_the_engine_copies_and_pickles(tmp_path):
    model = models.build("llama")
    ids = models.ids(5)
    epilogue.torch.fuse(model, linears="always", weights="int8")
    want = logits(model, ids)
    epilogue.torch.save_packed(model, tmp_path / "f")
    packed = epilogue.torch.load_packed(models.build("llama"), tmp_path / "f")
    for other in (copy.deepcopy(packed), pickle.loads(pickle.dumps(packed))):
        assert torch.equal(logits(other, ids), want)
    epilogue.torch.unfuse(packed)
    assert relative(logits(packed, ids), want) < 1e-4  # rows are rounded to 16 bits where AVX-512 multiplies them
    packed.bfloat16()
    assert all(type(m.weight) is PackedWeight and m.weight.dtype is torch.bfloat16 for m in packed.modules() if isinstance(m, nn.Linear))
    assert relative(logits(packed, ids).float(), want) < 5e-2
    epilogue.torch.fuse(packed, linears="always")
    assert relative(logits(packed, ids).float(), want) < 5e-2
    assert all_ran_fused(packed)[0]


def test_a_packed_model_does_not_train(tmp_path):
    model = models.build("llama")
    epilogue.torch.save_packed(epilogue.torch.fuse(model, weights="int8", linears="always"), tmp_path / "f")
    packed = epilogue.torch.load_packed(models.build("llama"), tmp_path / "f")
    ids = models.ids(5)
    packed(input_ids=ids).logits.sum().backward()
    assert packed.model.embed_tokens.weight.grad is not None
    assert all(p.grad is None for p in packed.parameters() if type(p) is PackedWeight)


def test_a_model_on_the_meta_device_takes_a_file(tmp_path):
    make = lambda: nn.Sequential(nn.Linear(256, 300), nn.ReLU(), nn.Linear(300, 256))  # noqa: E731
    model = make().eval()
    x = torch.randn(3, 256)
    epilogue.torch.fuse(model, weights="int4", group=32)
    with torch.no_grad():
        want = model(x)
    epilogue.torch.save_packed(model, tmp_path / "f")
    with torch.device("meta"):
        empty = make().eval()
    with torch.no_grad():
        assert torch.equal(epilogue.torch.load_packed(empty, tmp_path / "f")(x), want)


def saved(tmp_path):
    model = nn.Sequential(nn.Linear(256, 300), nn.ReLU(), nn.Linear(300, 256)).eval()
    path = tmp_path / "whole.safetensors"
    epilogue.torch.save_packed(epilogue.torch.fuse(model, weights="int4"), path)
    with safe_open(path, "pt") as file:
        return load_file(path), file.metadata()


def test_a_model_without_rounded_weights_is_refused(tmp_path):
    model = nn.Sequential(nn.Linear(256, 300))
    for one in (model, epilogue.torch.fuse(model)):
        with pytest.raises(ValueError, match=re.escape("model: expected one that fuse(model, weights='int8' or 'int4') changed")):
            epilogue.torch.save_packed(one, tmp_path / "f")
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    "change, message",
    [(lambda t, m: m.pop("epilogue.packed"), "expected a file of save_packed() of version 1, got none"),
     (lambda t, m: m.update({"epilogue.packed": "2"}), "expected a file of save_packed() of version 1, got version '2'"),
     (lambda t, m: m.update({"epilogue.options": "[]"}), "expected options of fuse() in its metadata, got '[]'"),
     (lambda t, m: m.update({"epilogue.options": json.dumps({"training": True})}), "expected options of fuse() in its metadata"),
     (lambda t, m: t.pop("0.weight.scales"), "expected 0.weight.scales bfloat16 or float16 [300, 2], got none"),
     (lambda t, m: t.update({"0.weight.steps": torch.zeros(300, 64, dtype=torch.uint8)}),
      "expected 0.weight.steps uint8 [300, 128], got uint8 [300, 64]"),
     (lambda t, m: t.update({"0.weight.zeros": torch.full((300, 2), 17, dtype=torch.uint8)}),
      "expected 0.weight.zeros from 0 to 16, got 17"),
     (lambda t, m: m.update({"rounded.0.weight": "int4 300 256 -32"}), "expected rounded.0.weight of 'int8 n k' or 'int4 n k group'"),
     (lambda t, m: m.update({"rounded.0.weight": "int4 300 256 24"}), "groups of a multiple of 32, got groups of 24"),
     (lambda t, m: m.update({"rounded.0.weight": "int4 300 99999999999999999999 32"}), "expected rounded.0.weight of 'int8 n k'"),
     (lambda t, m: m.update({"dtype.0.weight": "int32"}), "expected dtype.0.weight of float32, bfloat16, float16, got 'int32'"),
     (lambda t, m: t.pop("0.bias"), "expected all tensors that the model has, got no 0.bias"),
     (lambda t, m: t.update({"x": torch.zeros(1)}), "expected tensors of the model alone, got x"),
     (lambda t, m: t.update({"0.bias": torch.zeros(7)}), "expected 0.bias [300], got [7]"),
     (lambda t, m: (t.pop("0.bias"), m.update({"tied.0.bias": "nowhere"})), "expected 0.bias of a linear layer, or tied to a tensor of the file")],
)  # fmt: skip
def test_a_file_that_is_not_whole_is_one_error_and_changes_nothing(change, message, tmp_path):
    tensors, facts = saved(tmp_path)
    change(tensors, facts)
    path = tmp_path / "changed.safetensors"
    save_file(tensors, path, facts)
    model = nn.Sequential(nn.Linear(256, 300), nn.ReLU(), nn.Linear(300, 256)).eval()
    before = dict(model.named_parameters())
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        epilogue.torch.load_packed(model, path)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
    after = dict(model.named_parameters())
    assert before.keys() == after.keys() and all(before[k] is after[k] for k in before)


def test_a_file_that_is_cut_or_missing_is_one_error(tmp_path):
    saved(tmp_path)
    (tmp_path / "cut").write_bytes((tmp_path / "whole.safetensors").read_bytes()[:-9])
    for name in ("cut", "missing"):
        with pytest.raises(ValueError, match="expected a file of save_packed"):
            epilogue.torch.load_packed(nn.Linear(2, 2), tmp_path / name)


@pytest.mark.parametrize("kind", ["int8", "w8a8", "int4 32 symmetric", "int4 32 asymmetric"])
def test_torchao_tensors_are_taken_as_they_are(kind):
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_primitives import MappingType

    layers = nn.Sequential(nn.Linear(256, 320), nn.ReLU(), nn.Linear(320, 256, bias=False)).eval()
    x = torch.randn(4, 256)
    if kind == "int8":
        config = quantization.Int8WeightOnlyConfig()
    elif kind == "w8a8":
        config = quantization.Int8DynamicActivationInt8WeightConfig()
    else:
        mapping = MappingType.ASYMMETRIC if kind.endswith("asymmetric") else MappingType.SYMMETRIC
        config = quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32), mapping_type=mapping)
    quantization.quantize_(layers, config)
    assert all(rounded_of(m.weight) is not None for m in layers if isinstance(m, nn.Linear))
    with torch.no_grad():
        want = layers(x)
        rows = {"weights": "int8", "activations": "int8"} if kind == "w8a8" else {}
        epilogue.torch.fuse(layers, linears="always", **rows)
        got = layers(x)
    # Scales of 4 bits become f16. Rows of 8 bits have scales of another definition.
    assert relative(got, want) < {"int8": 1e-5, "w8a8": 2e-2}.get(kind, 1e-3)
    assert all_ran_fused(layers)[0]


def test_rounded_weights_stay_with_release_and_have_no_gradients(tmp_path):
    """Beside a layer that has its original: that one is released, and trains."""
    layers = nn.Sequential(nn.Linear(512, 256))
    epilogue.torch.fuse(layers, weights="int8")
    epilogue.torch.save_packed(layers, tmp_path / "packed.safetensors")
    loaded = epilogue.torch.load_packed(nn.Sequential(nn.Linear(512, 256)), tmp_path / "packed.safetensors")
    both = nn.ModuleList([loaded, nn.Sequential(nn.Linear(512, 256))])
    x = torch.randn(3, 512)
    with torch.no_grad():
        want = [layer(x) for layer in both]
    epilogue.torch.fuse(both, linears="always", training="always", release=str(tmp_path))
    with torch.no_grad():
        got = [layer(x) for layer in both]
    assert torch.equal(got[0], want[0])
    assert relative(got[1], want[1]) < 1e-6
    assert isinstance(both[0][0].weight, PackedWeight)
    assert epilogue.torch.why(both).linears[0].fused_calls == 1

    x.requires_grad_()
    both[0](x).sum().backward()
    weight = both[0][0].weight.dequantize()
    assert relative(x.grad, weight.sum(0).expand(3, 512)) < 1e-6
    assert "fewer bits" in epilogue.torch.why(both).linears[0].reason
