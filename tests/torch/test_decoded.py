# SPDX-License-Identifier: Apache-2.0
"""Attention of one new token as one op, from its projections to its output: bit for bit what the single ops give."""

import copy
import importlib
import threading

import models
import pytest
import torch
import transformers as t
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.llama.modeling_llama import LlamaAttention

import epilogue.torch
from epilogue.torch import decoded, decoded_layer, decoded_plan, growing, linear_state
from epilogue.torch.handle import Handle

FLOAT, BF16, HALF = torch.float32, torch.bfloat16, torch.float16
# Gemma 2 caps the scores, which transformers' SDPA does not.
MODELS = sorted(set(models.GENERATES) - {"gemma2"})
APART = ("gemma3", "phi")  # a norm behind attention; attention and MLP side by side
TOKENS = 14
ops = torch.ops.epilogue


def _states(model):
    return [m.__dict__[decoded.STATE] for m in model.modules() if decoded.STATE in m.__dict__]


def _apart(model):
    """A copy whose attention runs as single ops."""
    other = copy.deepcopy(model)
    for module in other.modules():
        decoded.unfuse_decoded(module)
        decoded_layer.unfuse_decoded_layer(module)
    return other


def _fused(kind, dtype=FLOAT, **options):
    return epilogue.torch.fuse(models.build(kind).to(dtype), linears="always", **options)


def _generate(model, batch=1, **more):
    given = torch.arange(2, 14)[None].repeat(batch, 1)
    return model.generate(given, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, output_logits=True,
                          return_dict_in_generate=True, **more)  # fmt: skip


def _is_same(got, want):
    return torch.equal(got.sequences, want.sequences) and all(map(torch.equal, got.logits, want.logits))


class _Given:
    """An op's arguments, and what the single ops make of them."""

    def __init__(self, dtype, batch, heads, kv, depth, values, hidden=40, before=5, at=9, room=16, is_one=False, wave=None, turned=None,
                 wide=False, normed=(None, None), mask=None, scale=None, bias=True):  # fmt: skip
        def made(*sizes):
            return torch.randn(*sizes).mul(0.3).to(dtype)

        self.shape = batch, heads, kv, depth, values
        self.widths = [heads * depth, kv * depth, kv * values]
        weights = [made(sum(self.widths), hidden)] if is_one else [made(n, hidden) for n in self.widths]
        biases = [made(w.shape[0]) if bias else None for w in weights]
        self.out_weight = made(hidden, heads * values)
        self.first, self.last = Handle(weights, biases, "none"), Handle([self.out_weight], [None], "none")
        self.of_first, self.of_last = [*weights, *(b for b in biases if b is not None)], [self.out_weight]
        self.x = made(batch, 1, hidden)
        waves = wave and [torch.randn(batch, 1, turned or depth).to(wave) for _ in range(2)]
        self.waves, self.wide = waves or [None, None], wide
        self.norms = [None if n is None else made(n) for n in normed]
        self.room = [made(batch, kv, room, n) for n in (depth, values)]
        self.before, self.at, self.scale, self.mask = before, at, scale, mask

    def call(self):
        room = [r.clone() for r in self.room]
        out = ops.decoded_attention(self.x, self.first.number, self.of_first, self.norms, 1, 1e-5, *self.waves, self.wide, *room,
                                    self.before, self.at, self.mask, self.scale, self.last.number, self.of_last)  # fmt: skip
        return out, room

    def want(self):
        batch, heads, kv, depth, values = self.shape
        outs = ops.linear(self.x, self.first.number, self.of_first, None)
        outs = outs[0].split(self.widths, -1) if len(outs) == 1 else outs
        q, k = (y if n is None else ops.rms_norm(y.reshape(batch, -1, n.shape[0]).contiguous(), n, 1, 1e-5) for y, n in zip(outs, self.norms))
        q, k, v = q.reshape(batch, 1, heads, depth), k.reshape(batch, 1, kv, depth), outs[2].reshape(batch, 1, kv, values)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if self.waves[0] is not None:
            q, k = ops.rotary(q, k, *self.waves, 1, self.wide)
        room = [r.clone() for r in self.room]
        for r, x in zip(room, (k, v)):
            r[:, :, self.at : self.at + 1] = x
        keys, seen = (r[:, :, self.before : self.at + 1] for r in room)
        y = ops.attention(q, keys, seen, self.mask, False, self.scale)
        return ops.linear(y.reshape(batch, 1, -1), self.last.number, self.of_last, None), room


CALLS = [
    dict(batch=1, heads=4, kv=2, depth=16, values=16, wave=FLOAT),
    dict(batch=3, heads=6, kv=3, depth=12, values=20, wave=FLOAT, turned=6, normed=(12, 12), scale=0.7),
    dict(batch=1, heads=3, kv=1, depth=7, values=5, is_one=True),
    dict(batch=2, heads=5, kv=5, depth=8, values=8, is_one=True, wave=FLOAT, normed=(None, 40), bias=False),
    dict(batch=2, heads=2, kv=2, depth=64, values=64, before=0, at=0, wave=FLOAT, normed=(128, 64)),
    dict(batch=1, heads=8, kv=1, depth=32, values=32, before=0, at=300, room=302, wave=FLOAT),
]  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype, wave, wide", [(FLOAT, FLOAT, False), (BF16, BF16, False), (BF16, FLOAT, True), (HALF, None, False)])
def test_bits_are_those_of_the_single_ops(dtype, wave, wide, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    for call in CALLS:
        call = dict(call, wave=wave if "wave" in call else None, wide=wide)
        if dtype is HALF:
            call.update(normed=(None, None))
        for mask in (None, torch.bool, dtype):
            given = _Given(dtype, **call)
            keys = given.at + 1 - given.before
            if mask is not None:
                given.mask = (torch.randn(given.shape[0], 1, 1, keys) * 2).to(mask) if mask is dtype else torch.rand(1, given.shape[1], 1, keys) < 0.6
            (got,), room = given.call()
            (want,), wanted = given.want()
            assert torch.equal(got, want) and got.dtype == dtype and got.shape == given.x.shape
            assert all(map(torch.equal, room, wanted))
    torch.set_num_threads(before)


def test_what_does_not_fit_is_named():
    good = CALLS[0]

    def refused(match="decoded_attention: expected", **changes):
        given = _Given(FLOAT, **good)
        for name, value in changes.items():
            setattr(given, name, value(given))
        with pytest.raises(RuntimeError, match=match):
            given.call()

    refused(x=lambda g: g.x[0])
    refused(x=lambda g: g.x.repeat(1, 2, 1))
    refused(x=lambda g: g.x[..., :39])
    refused(x=lambda g: g.x.repeat(2, 1, 1))
    refused("dtype", x=lambda g: g.x.double())
    refused(x=lambda g: g.x.bfloat16())
    refused(room=lambda g: [g.room[0].bfloat16(), g.room[1]])
    refused(room=lambda g: [g.room[0][0], g.room[1]])
    refused(room=lambda g: [g.room[0], g.room[1][..., :8]])
    refused(room=lambda g: [g.room[0][:, :1], g.room[1][:, :1]])
    refused(at=lambda g: 16)
    refused(at=lambda g: -1)
    refused(before=lambda g: 10)
    refused(norms=lambda g: [torch.ones(7), None])
    refused(norms=lambda g: [torch.ones(8).bfloat16(), None])
    refused(norms=lambda g: [None])
    refused(waves=lambda g: [torch.ones(1, 1, 18)] * 2)
    refused(waves=lambda g: [torch.ones(1, 2, 16)] * 2)
    refused(waves=lambda g: [torch.ones(1, 1, 16), torch.ones(1, 1, 8)])
    refused("mask", mask=lambda g: torch.ones(1, 1, 1, 3))
    refused(last=lambda g: g.first, of_last=lambda g: g.of_first)
    refused("no fused MLP of number", first=lambda g: type("Gone", (), {"number": 1 << 40}))


def test_other_memory_gives_nothing():
    given = _Given(FLOAT, **CALLS[0])
    given.of_last = [given.out_weight.clone()]
    assert given.call()[0] == []
    given = _Given(FLOAT, **CALLS[0])
    given.of_first = [p.clone() for p in given.of_first]
    out, room = given.call()
    assert out == [] and all(map(torch.equal, room, given.room))


@pytest.mark.parametrize("dtype", [FLOAT, BF16])
@pytest.mark.parametrize("kind", MODELS)
def test_models(kind, dtype):
    """No bit of what fuse() gives changes, nor what its parts count."""
    model = _fused(kind, dtype)
    other = _apart(model)
    for batch in (1, 3):
        assert _is_same(_generate(model, batch), _generate(other, batch))
    states = _states(model)
    assert len(states) == models.LAYERS and [s.reason for s in states] == [None] * models.LAYERS
    # Prompt, and the first tokens, whose layers learn who shares an input with whom.
    assert all(s.fused >= 2 * TOKENS - 8 for s in states)
    report, wanted = epilogue.torch.why(model), epilogue.torch.why(other)
    for counted in ("attention_calls", "rotary_calls", "linear_calls", "norm_calls", "fused_calls"):
        assert getattr(report, counted) == getattr(wanted, counted), counted
    assert report.decoded_calls == sum(s.fused for s in states) and wanted.decoded_calls == 0
    layers = [m.__dict__[decoded_layer.STATE] for m in model.modules() if decoded_layer.STATE in m.__dict__]
    whole = sum(s.fused for s in layers)
    if kind not in APART:
        assert len(layers) == models.LAYERS and all(s.fused >= 2 * TOKENS - 12 for s in layers), [s.reason for s in layers]
    assert f"{report.decoded_calls} of one token, from q, k and v to the output" in str(report)
    assert (f"{whole} of them with the rest of the layer" in str(report)) == (kind not in APART)
    assert (report.to_dict()["decoded_calls"], report.to_dict()["decoded_layers"]) == (report.decoded_calls, whole)
    epilogue.torch.unfuse(model)
    assert not any(decoded.STATE in m.__dict__ or hasattr(type(m), "_epilogue_original") for m in model.modules())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_cache_of_the_callers(mode):
    """Its layers hold what they held, after a prompt in the midst and after crop() too."""
    model = _fused("qwen2")
    other = _apart(model)
    results = []
    for each in (model, other):
        cache = t.DynamicCache(config=each.config)
        out = []
        with mode():
            for rows in (7, *[1] * 9, 4, *[1] * 150):
                torch.manual_seed(len(out))
                out.append(each(models.ids(rows), cache=cache, use_cache=True).logits)
            cache.crop(-3)
            out += [each(torch.tensor([[5]]), cache=cache, use_cache=True).logits for _ in range(4)]
        assert cache.get_seq_length() == 7 + 9 + 4 + 150 + 1
        results.append([*out, *(x for layer in cache.layers for x in (layer.keys, layer.values))])
    assert all(map(torch.equal, *results))
    assert epilogue.torch.why(model).decoded_calls > 2 * 150


@pytest.mark.parametrize("kind", ["mistral", "gemma3"])
def test_a_window_moves(kind, monkeypatch):
    monkeypatch.setattr(growing, "_LEAST_SPARE", 8)
    model = models.build(kind, sliding_window=20)
    epilogue.torch.fuse(model, linears="always")
    other = _apart(model)
    results = []
    for each in (model, other):
        cache = t.DynamicCache(config=each.config)
        with torch.no_grad():
            out = [each(torch.arange(2, 12)[None], cache=cache, use_cache=True).logits]
            out += [each(torch.tensor([[3 + i % 50]]), cache=cache, use_cache=True).logits for i in range(60)]
        assert {layer.cumulative_length for layer in cache.layers if hasattr(layer, "cumulative_length")} == {70}
        results.append([*out, *(x for layer in cache.layers for x in (layer.keys, layer.values))])
    assert all(map(torch.equal, *results)) and all(s.fused > 40 for s in _states(model))


def _warm(kind="qwen2", **options):
    """A model whose attention runs as one op, its cache, and a call of one token that says how many layers did."""
    model = _fused(kind, **options)
    cache = t.DynamicCache(config=model.config)

    def step(**given):
        before = epilogue.torch.why(model).decoded_calls
        out = model(torch.tensor([[7]]), cache=cache, use_cache=True, **given)
        return out, epilogue.torch.why(model).decoded_calls - before

    with torch.no_grad():
        model(models.ids(5), cache=cache, use_cache=True)
        for _ in range(8):
            _, count = step()
    assert count == models.LAYERS
    return model, cache, step


def _own(model, cache):
    """What a model of the same state gives that runs single ops."""
    other, cache = _apart(model), copy.deepcopy(cache)
    with torch.no_grad():
        return other(torch.tensor([[7]]), cache=cache, use_cache=True).logits


@torch.no_grad()
def test_a_weight_that_was_written_is_packed_anew():
    model, cache, step = _warm()
    attention = model.model.layers[0].self_attn
    for layer in (attention.q_proj, attention.o_proj):
        layer.weight.mul_(1.5)
        want = _own(model, cache)
        out, _ = step()
        torch.testing.assert_close(out.logits, want, rtol=0, atol=0)
    for layer in (attention.v_proj, attention.o_proj):
        layer.weight = nn.Parameter(torch.randn_like(layer.weight))
        want = _own(model, cache)
        out, _ = step()
        torch.testing.assert_close(out.logits, want, rtol=0, atol=0)
    attention.k_proj.weight.data = torch.randn_like(attention.k_proj.weight)
    want = _own(model, cache)
    torch.testing.assert_close(step()[0].logits, want, rtol=0, atol=0)
    for _ in range(8):
        _, count = step()
    assert count == models.LAYERS


def _attention(model):
    return model.model.layers[1].self_attn


def _hook(model):
    called = []
    _attention(model).k_proj.register_forward_hook(lambda *_: called.append(1))
    return called


def _before(model):
    called = []
    _attention(model).register_forward_pre_hook(lambda *_: called.append(1))
    return called


def _forward(model):
    called, layer = [], _attention(model).v_proj
    layer.forward = lambda x: called.append(1) or type(layer).forward(layer, x)
    return called


def _another_layer(model):
    called = []

    class Linear(nn.Linear):
        def forward(self, x):
            called.append(1)
            return super().forward(x)

    old = _attention(model).o_proj
    new = Linear(*old.weight.shape[::-1], bias=False)
    new.load_state_dict(old.state_dict())
    _attention(model).o_proj = new
    return called


def _lora(model):
    called = []

    class Around(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base

        def forward(self, x):
            called.append(1)
            return self.base(x)

    _attention(model).q_proj = Around(_attention(model).q_proj)
    return called


@pytest.mark.parametrize("change, fused", [(_hook, 1), (_before, 2), (_forward, 1), (_another_layer, 1), (_lora, 1)])
def test_what_comes_between_is_called(change, fused):
    model, cache, step = _warm()
    want = _own(model, cache)
    called = change(model)
    with torch.no_grad():
        out, count = step()
    assert called and count == fused
    torch.testing.assert_close(out.logits, want, rtol=0, atol=1e-6 if change is _another_layer else 0)  # PyTorch's product


@pytest.mark.parametrize("name, value", [("scaling", 0.9), ("layer_idx", 0), ("head_dim", 12.0)])
def test_attributes_are_read_in_each_call(name, value):
    model, cache, step = _warm()
    setattr(_attention(model), name, value)
    if name == "head_dim":  # an error of the model's own
        with torch.no_grad(), pytest.raises(TypeError):
            step()
        return
    want = _own(model, cache)
    with torch.no_grad():
        out, count = step()
    assert count == 1 and torch.equal(out.logits, want)


def test_functions_of_the_file_are_read_in_each_call(monkeypatch):
    model, cache, step = _warm()
    file = importlib.import_module("transformers.models.qwen2.modeling_qwen2")
    called = []
    own = file.apply_rotary_pos_emb
    monkeypatch.setattr(file, "apply_rotary_pos_emb", lambda *args, **kwargs: called.append(1) or own(*args, **kwargs))
    with torch.no_grad():
        _, count = step()
    assert count == 0 and len(called) == models.LAYERS
    monkeypatch.setattr(file, "apply_rotary_pos_emb", own)
    half = file.rotate_half
    monkeypatch.setattr(file, "rotate_half", lambda x: called.append(2) or half(x))
    with torch.no_grad():
        _, count = step()
    assert count == 0 and called[-1] == 2


def test_other_functions_of_attention():
    model, cache, step = _warm()
    with torch.no_grad():
        want = step()[0].logits
        cache.crop(-1)
        model.set_attn_implementation("eager")
        out, count = step()
        assert count == 0
        torch.testing.assert_close(out.logits, want, rtol=1e-4, atol=1e-5)
        model.set_attn_implementation("sdpa")
        for _ in range(3):
            _, count = step()
        assert count == models.LAYERS


def test_a_local_function_of_attention(monkeypatch):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    model, cache, step = _warm()
    called = []
    own = ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._local_mapping, "sdpa", lambda *args, **kwargs: called.append(1) or own(*args, **kwargs))
    with torch.no_grad():
        _, count = step()
    assert count == 0 and len(called) == models.LAYERS


def test_own_way_where_something_else_is_wanted():
    model, cache, step = _warm()
    assert step()[1] == 0  # gradients
    with torch.no_grad():
        with torch.autocast("cpu", BF16):
            assert step()[1] == 0
        with FlopCounterMode(display=False):
            assert step()[1] == 0
        assert step(output_attentions=False)[1] in (0, models.LAYERS)
        cache.layers = [growing.DynamicLayer() for _ in cache.layers]
        model.train()
        assert step()[1] == 0
        model.eval()
        for _ in range(4):
            step()
        assert step()[1] == models.LAYERS
        want = _own(model, cache)
        out = model(torch.tensor([[7]]), cache=copy.deepcopy(cache), use_cache=True, output_hidden_states=True)
        assert torch.equal(out.logits, want) and len(out.hidden_states) == models.LAYERS + 1


def test_static_caches_are_the_models():
    model, _, _ = _warm()
    before = epilogue.torch.why(model).decoded_calls
    want = _generate(_apart(model), cache_implementation="static")
    assert _is_same(_generate(model, cache_implementation="static"), want)
    assert epilogue.torch.why(model).decoded_calls == before


def test_masks_of_padded_prompts():
    model = _fused("llama")
    other = _apart(model)
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, :5] = 0
    assert _is_same(_generate(model, 2, attention_mask=mask), _generate(other, 2, attention_mask=mask))
    assert all(s.fused > 4 for s in _states(model))


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies(how):
    model, cache, step = _warm()
    want = _own(model, cache)
    other = models.copied(model, how)
    assert all(not s.plans for s in _states(other)) and len(_states(other)) == models.LAYERS
    with torch.no_grad():
        assert torch.equal(other(torch.tensor([[7]]), cache=copy.deepcopy(cache), use_cache=True).logits, want)
    assert step()[1] == 0 or torch.is_grad_enabled()
    _generate(other)
    assert epilogue.torch.why(other).decoded_calls > 0


def test_layers_that_stay_pytorchs_are_not_recorded():
    """Small ones, and those of one f32 row where MKL is fast."""
    model = epilogue.torch.fuse(models.build("llama"))
    _generate(model)
    assert epilogue.torch.why(model).decoded_calls == 0 and all(s.records == 0 for s in _states(model))


def test_options():
    assert not _states(_fused("llama", attention=False))
    for options in (dict(weights="int8"), dict(release=True)):
        model = _fused("llama", **options)
        other = _apart(model)
        assert _is_same(_generate(model), _generate(other))


def test_records_that_lead_to_nothing_end():
    model = _fused("gemma2")
    _generate(model)
    assert all(not s.plans and s.reason and s.in_vain <= decoded.MOST_IN_VAIN for s in _states(model))


@pytest.mark.parametrize("backend", ["eager", "epilogue"])
def test_compiled(backend):
    model = _fused("qwen2")
    other = _apart(model)
    torch._dynamo.reset()
    fast = torch.compile(model, backend=backend)
    with torch.no_grad():
        cache, wanted = (t.DynamicCache(config=model.config) for _ in range(2))
        for ids in (models.ids(5), torch.tensor([[3]]), torch.tensor([[4]])):
            got, want = fast(ids, cache=cache, use_cache=True).logits, other(ids, cache=wanted, use_cache=True).logits
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert epilogue.torch.why(model).decoded_calls == 0


def _at_once(*calls):
    results = [None] * len(calls)

    def run(i):
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("warm", [True, False])
def test_threads(warm):
    """Of several sequences at once, each with a cache of its own. Beside records other models run undisturbed."""
    model = _warm()[0] if warm else _fused("qwen2")
    other = models.build("mistral")
    want, others = _generate(_apart(model)), _generate(other)
    results = _at_once(*[lambda: _generate(model)] * 3, lambda: _generate(other))
    assert all(_is_same(got, want) for got in results[:3]) and _is_same(results[3], others)
    for _ in range(2):
        assert _is_same(_generate(model), want)
    assert epilogue.torch.why(model).decoded_calls > 0


class _Counting(LlamaAttention):
    def forward(self, *args, **kwargs):
        self.calls = getattr(self, "calls", 0) + 1
        return super().forward(*args, **kwargs)


def test_a_forward_that_sets_attributes_is_called():
    model = models.build("llama")
    model.model.layers[0].self_attn.__class__ = _Counting
    epilogue.torch.fuse(model, linears="always")
    _generate(model)
    first, second = _states(model)
    assert model.model.layers[0].self_attn.calls == TOKENS and first.fused == 0 < second.fused
    assert first.reason.endswith("it sets self.calls") and first.in_vain == decoded.MOST_IN_VAIN


def test_numbers_among_the_arguments():
    """Other ones are another call; equal ones need not be the same object."""
    model, cache, step = _warm("llama")
    with torch.no_grad():
        for number in (3.5, 3.5, 4.5):
            for _ in range(3):
                _, count = step(some_number=float(str(number)))
            assert count == models.LAYERS
    assert all(len(s.plans) == 3 and s.records == 3 for s in _states(model))


def test_records_are_counted():
    model, cache, step = _warm("llama")
    with torch.no_grad():
        for i in range(2 * decoded.MOST_RECORDS):
            step(some_number=i)
    assert all(s.records == decoded.MOST_RECORDS and len(s.plans) == decoded_plan.MOST_PLANS for s in _states(model))


@torch.no_grad()
def test_norms_of_heads_are_read_in_each_call():
    model, cache, step = _warm("qwen3")
    norm = _attention(model).q_norm
    norm.weight.mul_(2)
    want = _own(model, cache)
    out, count = step()
    assert count == models.LAYERS and torch.equal(out.logits, want)
    norm.variance_epsilon = 0.5
    want = _own(model, cache)
    out, count = step()
    assert count == 1 and torch.equal(out.logits, want)
    norm.weight.data = norm.weight.data.double()
    with pytest.raises(RuntimeError, match="same dtype"):  # PyTorch's words
        step()


@torch.no_grad()
def test_the_first_norm_of_a_layer_is_read_in_each_call():
    for kind in ("llama", "gpt2"):
        model, cache, step = _warm(kind)
        layer = (model.model.layers if kind == "llama" else model.transformer.h)[1]
        norm = layer.input_layernorm if kind == "llama" else layer.ln_1
        norm.weight.mul_(2)
        want = _own(model, cache)
        before = epilogue.torch.why(model).decoded_layers
        assert torch.equal(step()[0].logits, want) and epilogue.torch.why(model).decoded_layers == before + models.LAYERS
        called = []
        handle = norm.register_forward_hook(lambda *_: called.append(1))
        want = _own(model, cache)
        called.clear()
        before = epilogue.torch.why(model).decoded_layers
        assert torch.equal(step()[0].logits, want) and called and epilogue.torch.why(model).decoded_layers == before + 1
        handle.remove()
        for _ in range(2):
            before = epilogue.torch.why(model).decoded_layers
            step()
        assert epilogue.torch.why(model).decoded_layers == before + models.LAYERS


def test_a_set_that_parted_runs_by_itself():
    model, cache, step = _warm()
    _attention(model).q_proj.__dict__[linear_state.STATE].together.part()
    want = _own(model, cache)
    with torch.no_grad():
        out, count = step()
    assert count == 1 and torch.equal(out.logits, want)
