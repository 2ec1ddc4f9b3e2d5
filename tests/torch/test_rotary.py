# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings of queries and keys by one op, in transformers' models that fuse() changed."""

import copy
import importlib
import sys

import models
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import epilogue.torch
from epilogue.torch import rotary

ROTARY = sorted(set(models.GENERATES) - {"gpt2"})
FLOAT, BF16 = torch.float32, torch.bfloat16


def _half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def _turned(x, cos, sin, heads, wide=False):
    """By PyTorch's own ops, in their dtypes; wide: in f32."""
    cos, sin = cos.unsqueeze(heads), sin.unsqueeze(heads)
    turn, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    given = turn.float() if wide else turn
    return torch.cat(((given * cos + _half(given) * sin).to(x.dtype), rest), dim=-1)


def _given(dtype, wave, batch, rows, columns, turned, heads, whole=True):
    def one(count):
        x = torch.randn(batch, rows, count, columns).to(dtype)
        return x if heads == 2 else x.transpose(1, 2)

    waves = [torch.randn(batch if whole else 1, rows, turned).to(wave) for _ in range(2)]
    return one(3), one(1), *waves


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype, wave, wide", [(FLOAT, FLOAT, False), (BF16, BF16, False), (BF16, BF16, True), (BF16, FLOAT, True)])
def test_bits_are_those_of_pytorchs_ops(dtype, wave, wide, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    for batch, rows, columns, turned, heads, whole in (
        (1, 1, 64, 64, 1, True), (2, 7, 12, 12, 1, False), (2, 7, 13, 6, 2, True), (3, 300, 80, 34, 1, True), (1, 600, 128, 128, 2, True),
        (1, 3, 2, 2, 1, True), (0, 3, 4, 4, 1, True),
    ):  # fmt: skip
        q, k, cos, sin = _given(dtype, wave, batch, rows, columns, turned, heads, whole)
        outs = torch.ops.epilogue.rotary(q, k, cos, sin, heads, wide)
        for x, out in zip((q, k), outs):
            assert torch.equal(out, _turned(x, cos, sin, heads, wide)) and out.dtype == dtype
            assert out.stride() == x.stride() if columns == turned else out.is_contiguous()
    torch.set_num_threads(before)


def test_rows_that_overlap():
    q = torch.randn(400).as_strided((1, 2, 5, 8), (50, 20, 1, 1))
    _, k, cos, sin = _given(FLOAT, FLOAT, 1, 5, 8, 8, 1)
    assert torch.equal(torch.ops.epilogue.rotary(q, k, cos, sin, 1, False)[0], _turned(q, cos, sin, 1))


@pytest.mark.parametrize("dtype", [FLOAT, BF16])
def test_what_is_no_number(dtype):
    q, k, cos, sin = _given(dtype, dtype, 1, 2, 8, 8, 1)
    q[0, 0, 0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), 3e38]).to(dtype)
    cos[0, 0, :] = 0
    outs = torch.ops.epilogue.rotary(q, k, cos, sin, 1, False)
    torch.testing.assert_close(outs[0], _turned(q, cos, sin, 1), rtol=0, atol=0, equal_nan=True)


def test_views_of_wider_rows():
    """Parts of what a projection gives, as models with columns that do not turn hand them on."""
    both = torch.randn(2, 5, 6, 40)
    q, k = both[:, :, :4, 8:32].transpose(1, 2), both[:, :, 4:, 8:32].transpose(1, 2)
    cos, sin = torch.randn(2, 5, 48)[..., :24], torch.randn(1, 5, 24)
    outs = torch.ops.epilogue.rotary(q, k, cos, sin, 1, False)
    for x, out in zip((q, k), outs):
        assert torch.equal(out, _turned(x, cos, sin, 1))


def test_what_does_not_fit_is_named():
    q, k, cos, sin = _given(FLOAT, FLOAT, 2, 5, 8, 8, 1)
    wrong = [
        (q[0], k, cos, sin, 1, False), (q, k[:1], cos, sin, 1, False), (q, k, cos[:, :4], sin, 1, False), (q, k, cos, sin[..., :6], 1, False),
        (q.double(), k.double(), cos.double(), sin.double(), 1, False), (q, k.bfloat16(), cos, sin, 1, False), (q, k, cos[..., :7], sin[..., :7], 1, False),
        (q.bfloat16(), k.bfloat16(), cos, sin, 1, False), (q, k, cos, sin, 2, False), (q.transpose(2, 3), k.transpose(2, 3), cos, sin, 1, False),
        (q, k, torch.randn(2, 5, 16), torch.randn(2, 5, 16), 1, False), (q, k, cos.to("meta"), sin, 1, False),
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises((RuntimeError, NotImplementedError), match="rotary"):
            torch.ops.epilogue.rotary(*given)
    with pytest.raises(RuntimeError, match="heads in dimension 1 or 2, got 3"):
        torch.ops.epilogue.rotary(q, k, cos, sin, 3, False)


def _greedy(model):
    return model.generate(torch.arange(2, 14)[None].repeat(2, 1), max_new_tokens=8, do_sample=False, output_logits=True, return_dict_in_generate=True)


@pytest.mark.parametrize("dtype", [FLOAT, BF16])
@pytest.mark.parametrize("kind", ROTARY)
def test_models(kind, dtype, monkeypatch):
    """The op changes no bit of what fuse() gives, and each layer calls it once a token."""
    model = epilogue.torch.fuse(models.build(kind).to(dtype))
    with monkeypatch.context() as off:
        off.setattr(rotary, "_run", lambda *_: None)
        want = _greedy(model)
    assert epilogue.torch.why(model).rotary_calls == 0
    got = _greedy(model)
    assert torch.equal(got.sequences, want.sequences) and all(map(torch.equal, got.logits, want.logits))
    report = epilogue.torch.why(model)
    assert report.rotary_calls == 8 * models.LAYERS and "rotary embeddings of queries and keys: one op, 16 calls" in str(report)
    assert report.to_dict()["rotary_calls"] == 16 and "rotary embeddings and residuals around" not in str(report)
    with torch.inference_mode():
        model(models.ids(5))
    assert epilogue.torch.why(model).rotary_calls == 9 * models.LAYERS
    epilogue.torch.fuse(model, attention=False)
    _greedy(model)
    assert epilogue.torch.why(model).rotary_calls is None
    epilogue.torch.unfuse(model)
    assert not any("_epilogue_rotary" in m.__dict__ for m in model.modules())


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies(how):
    model = epilogue.torch.fuse(models.build("llama"))
    other = models.copied(model, how)
    _greedy(other)
    assert epilogue.torch.why(other).rotary_calls == 16 and epilogue.torch.why(model).rotary_calls == 0


def _file(name):
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def test_another_process_registers_what_it_loads(monkeypatch):
    file = _file("llama")
    model = epilogue.torch.fuse(models.build("llama"))
    monkeypatch.setattr(file, "apply_rotary_pos_emb", file.apply_rotary_pos_emb._epilogue_own)
    models.copied(model, "pickle")
    assert hasattr(file.apply_rotary_pos_emb, "_epilogue_own")


def test_models_that_are_not_fused_call_their_own(monkeypatch):
    other = models.build("llama")
    epilogue.torch.fuse(models.build("llama"))
    called = []
    monkeypatch.setattr(rotary, "_run", lambda *_: called.append(1))
    with torch.no_grad():
        other(models.ids(3))
    assert not called
    own = _file("llama").apply_rotary_pos_emb
    q, k, cos, sin = _given(FLOAT, FLOAT, 1, 3, 8, 8, 1)
    assert torch.equal(own(q, k, cos=cos, sin=sin)[0], _turned(q, cos, sin, 1)) and not called


def test_own_way_where_gradients_or_other_things_are_wanted():
    model = epilogue.torch.fuse(models.build("llama"))
    ids = models.ids(3)
    model(ids).logits.sum().backward()
    with torch.no_grad():
        with torch.autocast("cpu", BF16):
            model(ids)
        with FlopCounterMode(display=False):
            model(ids)
    model.half()
    with torch.no_grad():
        model(ids)
    assert epilogue.torch.why(model).rotary_calls == 0


@pytest.mark.parametrize("backend", ["eager", "epilogue"])
def test_compiled(backend):
    """Dynamo traces the model's own function, without a break."""
    model = models.build("qwen2")
    ids = models.ids(9)
    with torch.no_grad():
        want = model(ids, use_cache=False).logits
        epilogue.torch.fuse(model)
        torch._dynamo.reset()
        fast = torch.compile(model, backend=backend, fullgraph=True)
        torch.testing.assert_close(fast(ids, use_cache=False).logits, want, rtol=1e-4, atol=1e-5)
    assert epilogue.torch.why(model).rotary_calls == 0


def test_the_functions_of_models_are_known():
    def known(name, dtype=FLOAT, wave=FLOAT, turned=16):
        own = _file(name).apply_rotary_pos_emb
        return rotary.is_wide(getattr(own, "_epilogue_own", own), dtype, wave, 16, turned)

    assert [known(name) for name in ("llama", "mixtral", "qwen3_moe", "olmo2", "phi3", "cohere", "gpt_oss")] == [False] * 5 + [None] * 2
    assert known("olmo2", BF16, FLOAT) is True and known("llama", BF16, FLOAT) is None
    assert known("phi3", turned=8) is False and known("llama", turned=8) is None


def test_functions_of_transformers_4():
    """They take position_ids, which nothing reads."""

    def turn(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
        return _turned(q, cos, sin, unsqueeze_dim), _turned(k, cos, sin, unsqueeze_dim)

    def by_place(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
        cos, sin = (cos, sin) if position_ids is None else (cos[position_ids], sin[position_ids])
        return _turned(q, cos, sin, unsqueeze_dim), _turned(k, cos, sin, unsqueeze_dim)

    def other_default(q, k, cos, sin, position_ids=0, unsqueeze_dim=1):
        return turn(q, k, cos, sin, position_ids, unsqueeze_dim)

    assert [rotary.is_wide(f, FLOAT, FLOAT, 16, 16) for f in (turn, by_place, other_default)] == [False, False, None]


def test_functions_that_only_look_alike():
    def turn(q, k, cos, sin, unsqueeze_dim=1):
        return _turned(q, cos, sin, unsqueeze_dim), _turned(k, cos, sin, unsqueeze_dim)

    def first_64(q, k, cos, sin, unsqueeze_dim=1):
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return tuple(torch.cat((x[..., :64] * cos[..., :64] + _half(x[..., :64]) * sin[..., :64], x[..., 64:]), dim=-1) for x in (q, k))

    def by_value(q, k, cos, sin, unsqueeze_dim=1):
        return (_turned(q, cos, sin, unsqueeze_dim), _turned(k, cos, sin, unsqueeze_dim)) if q.shape[2] < 8 else (q, k)

    def writes(q, k, cos, sin, unsqueeze_dim=1):
        outs = _turned(q, cos, sin, unsqueeze_dim), _turned(k, cos, sin, unsqueeze_dim)
        q.zero_()
        return outs

    def other_names(x, y, cos, sin, unsqueeze_dim=1):
        return _turned(x, cos, sin, unsqueeze_dim), _turned(y, cos, sin, unsqueeze_dim)

    def with_default_2(q, k, cos, sin, unsqueeze_dim=2):
        return _turned(q, cos, sin, unsqueeze_dim), _turned(k, cos, sin, unsqueeze_dim)

    def few_batches(q, k, cos, sin, unsqueeze_dim=1):
        return _turned(q[:32], cos, sin, unsqueeze_dim), _turned(k[:32], cos, sin, unsqueeze_dim)

    def few_rows(q, k, cos, sin, unsqueeze_dim=1):
        return _turned(q[..., :512, :], cos, sin, unsqueeze_dim), _turned(k, cos, sin, unsqueeze_dim)

    def of_a_cell(q, k, cos, sin, unsqueeze_dim=1):
        return turn(q, k, cos, sin, unsqueeze_dim)

    def all_columns(own, count):
        return rotary.is_wide(own, FLOAT, FLOAT, count, count)

    assert all_columns(turn, 64) is False and all_columns(turn, 128) is False
    assert all_columns(first_64, 64) is False and all_columns(first_64, 128) is None
    others = (by_value, writes, other_names, with_default_2, few_batches, few_rows, of_a_cell)
    assert [all_columns(f, 16) for f in others] == [None] * len(others)


def test_a_model_whose_function_is_not_known_stays(monkeypatch):
    file = _file("qwen3")

    def other(q, k, cos, sin, unsqueeze_dim=1):
        return q + 0, k + 0

    monkeypatch.setattr(file, "apply_rotary_pos_emb", other)
    model = epilogue.torch.fuse(models.build("qwen3"), linears="always")
    _greedy(model)
    report = epilogue.torch.why(model)
    assert report.rotary_calls is None and "rotary embeddings and residuals around them: PyTorch's" in str(report)
    assert sys.modules[file.__name__].apply_rotary_pos_emb is other


CHANGES = {"apply_rotary_pos_emb": lambda q, k, cos, sin, unsqueeze_dim=1: (q, k), "rotate_half": lambda x: -x}


@pytest.mark.parametrize("name", CHANGES)
def test_a_users_change_of_the_function_counts(name, monkeypatch):
    """Put in after fuse() and a call, it runs."""
    model = epilogue.torch.fuse(models.build("mistral"))
    plain = epilogue.torch.unfuse(copy.deepcopy(model))
    ids = models.ids(6)
    with torch.no_grad():
        before = model(ids).logits
        monkeypatch.setattr(_file("mistral"), name, CHANGES[name])
        got = model(ids).logits
        torch.testing.assert_close(got, plain(ids).logits, rtol=1e-4, atol=1e-5)
    assert epilogue.torch.why(model).rotary_calls == models.LAYERS and not torch.allclose(got, before)


def test_nobody_elses_generators_move():
    torch.manual_seed(7)
    want = torch.rand(3)
    torch.manual_seed(7)
    rotary.is_wide.cache_clear()
    with torch.no_grad():
        epilogue.torch.fuse(models.BUILD["qwen3"]()).eval()
    torch.manual_seed(7)
    epilogue.torch.fuse(model := models.BUILD["llama"]())
    torch.manual_seed(7)
    with torch.no_grad():
        model(torch.tensor([[3, 4]]))
    assert torch.equal(torch.rand(3), want)
