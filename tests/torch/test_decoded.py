# SPDX-License-Identifier: Apache-2.0
"""Attention of one new token as one op, from its projections to its output: bit for bit what the single ops give."""

import copy
import gc
import importlib
import subprocess
import sys
import threading
import time

import models
import pytest
import torch
import transformers as t
from torch import nn
from torch.nn.utils import prune
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode
from transformers.models.llama.modeling_llama import LlamaAttention
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention

import epilogue.torch
from epilogue.torch import decoded, decoded_layer, decoded_plan, growing, linear_state

FLOAT, BF16, HALF = torch.float32, torch.bfloat16, torch.float16
# Gemma 2 caps the scores, which transformers' SDPA does not.
MODELS = sorted(set(models.GENERATES) - {"gemma2"})
APART = ("phi",)  # attention and MLP side by side
TOKENS = 14
ops = torch.ops.epilogue


def _states(model):
    return [m.__dict__[decoded.STATE] for m in model.modules() if decoded.STATE in m.__dict__]


def _layers(model):
    return [m.__dict__[decoded_layer.STATE] for m in model.modules() if decoded_layer.STATE in m.__dict__]


def _fused(kind, dtype=FLOAT, **options):
    return epilogue.torch.fuse(models.build(kind).to(dtype), linears="always", **options)


def _generate(model, batch=1, **more):
    given = torch.arange(2, 14)[None].repeat(batch, 1)
    return model.generate(given, max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False, output_logits=True,
                          return_dict_in_generate=True, **more)  # fmt: skip


def _is_same(got, want):
    return torch.equal(got.sequences, want.sequences) and all(map(torch.equal, got.logits, want.logits))


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_f16(kind):
    """Attention alone, and only without rotary embeddings and norms of heads."""
    model = _fused(kind, HALF)
    assert _is_same(_generate(model), _generate(models.apart(model)))
    report = epilogue.torch.why(model)
    assert (report.decoded_calls > 0, report.decoded_layers) == (kind == "gpt2", 0)


@pytest.mark.parametrize("dtype", [FLOAT, BF16])
@pytest.mark.parametrize("kind", MODELS)
def test_models(kind, dtype):
    """No bit of what fuse() gives changes, nor what its parts count."""
    model = _fused(kind, dtype)
    other = models.apart(model)
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
    layers = _layers(model)
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
    other = models.apart(model)
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
    other = models.apart(model)
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
    other, cache = models.apart(model), copy.deepcopy(cache)
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
    want = _generate(models.apart(model), cache_implementation="static")
    assert _is_same(_generate(model, cache_implementation="static"), want)
    assert epilogue.torch.why(model).decoded_calls == before


def test_what_passes_is_no_record_in_vain():
    """Static caches, and hooks that go again."""
    model = _fused("llama")
    _generate(model, cache_implementation="static")
    hooks = [m.register_forward_hook(lambda *_: None) for m in (_attention(model).q_proj, model.model.layers[0].input_layernorm)]
    _generate(model)
    assert _states(model)[1].records == 0 and all(s.in_vain == 0 for s in _states(model))
    for hook in hooks:
        hook.remove()
    _generate(model)
    report = epilogue.torch.why(model)
    assert all(s.fused for s in _states(model)) and report.decoded_layers > TOKENS


def test_masks_of_padded_prompts():
    model = _fused("llama")
    other = models.apart(model)
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
    _generate(other)
    assert epilogue.torch.why(other).decoded_calls > 0


def test_another_process_runs_what_it_loads(tmp_path):
    """It calls no fuse()."""
    model = _fused("llama")
    torch.save(model, tmp_path / "model.pt")
    torch.save(_generate(model).sequences, tmp_path / "tokens.pt")
    script = f"""
import torch, epilogue.torch
model = torch.load({str(tmp_path / "model.pt")!r}, weights_only=False)
got = model.generate(torch.arange(2, 14)[None], max_new_tokens={TOKENS}, min_new_tokens={TOKENS}, do_sample=False)
assert torch.equal(got, torch.load({str(tmp_path / "tokens.pt")!r}))
assert epilogue.torch.why(model).decoded_layers > 0, str(epilogue.torch.why(model))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=200)


def test_layers_that_stay_pytorchs_are_not_recorded():
    """Those of one f32 row where MKL is fast."""
    model = epilogue.torch.fuse(models.build("llama", hidden_size=512, intermediate_size=64))
    _generate(model)
    assert epilogue.torch.why(model).decoded_calls == 0 and [s.records for s in _states(model)] == [0] * models.LAYERS


def test_options():
    assert not _states(_fused("llama", attention=False))
    for options in (dict(weights="int8"), dict(release=True)):
        model = _fused("llama", **options)
        want = _generate(models.apart(model))
        assert _is_same(_generate(model), want) and epilogue.torch.why(model).decoded_layers > TOKENS


def test_records_that_lead_to_nothing_end():
    model = _fused("gemma2")
    _generate(model)
    assert all(not s.plans and s.reason and s.in_vain <= decoded_plan.MOST_IN_VAIN for s in _states(model))
    report = epilogue.torch.why(model)
    assert report.decoded_reasons and f"attention of one token runs as its modules: {report.decoded_reasons[0]}" in str(report)


@pytest.mark.parametrize("backend", ["eager", "epilogue"])
def test_compiled(backend):
    model = _fused("qwen2")
    other = models.apart(model)
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
    want, others = _generate(models.apart(model)), _generate(other)
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
    assert first.reason == "forward() is not transformers' own" and first.in_vain == decoded_plan.MOST_IN_VAIN


def test_numbers_among_the_arguments():
    """Other ones are another call; equal ones need not be the same object."""
    model, cache, step = _warm("llama")
    with torch.no_grad():
        for number in (3.5, 3.5, 4.5):
            for _ in range(3):
                _, count = step(some_number=float(str(number)))
            assert count == models.LAYERS
    assert all(len(s.plans) == 3 and s.in_vain == 0 for s in _states(model) + _layers(model))
    assert all(s.records == 3 for s in _states(model))
    assert epilogue.torch.why(model).decoded_layers > 10


def test_kinds_of_calls_by_turns():
    """Batches, with a mask or without: none is a record in vain, and the plans last."""
    model = _fused("llama")
    masks = [None, torch.tensor([0] + [1] * 11)]
    for _ in range(3):
        for batch in (1, 2, 3, 4):
            for mask in masks:
                _generate(model, batch, **({} if mask is None else {"attention_mask": mask.repeat(batch, 1)}))
        before = [(s.records, s.in_vain) for s in _states(model) + _layers(model)]
    assert all(in_vain == 0 for _, in_vain in before)
    report = epilogue.torch.why(model)
    _generate(model, 2)
    assert epilogue.torch.why(model).decoded_layers >= report.decoded_layers + models.LAYERS * (TOKENS - 4)
    assert [(s.records, s.in_vain) for s in _states(model) + _layers(model)] == before


def test_records_are_counted():
    model, cache, step = _warm("llama")
    with torch.no_grad():
        for i in range(2 * decoded_plan.MOST_RECORDS):
            step(some_number=i)
        states = _states(model)
        assert all(s.records == decoded_plan.MOST_RECORDS and len(s.plans) == decoded_plan.MOST_PLANS for s in states)
        for _ in range(2 * decoded_plan.CALLS_PER_RECORD):  # calls by a plan earn records
            step(some_number=decoded_plan.MOST_RECORDS - 2)
        step(some_number=-1)
        assert all(s.records == decoded_plan.MOST_RECORDS + 1 for s in states)


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


def test_handles_stay_while_an_op_runs():
    """Other threads pack anew meanwhile, and let them go."""
    model, _, _ = _warm()
    layer = model.model.layers[0]
    before, seconds = sys.getswitchinterval(), 3.0
    sys.setswitchinterval(1e-5)
    end = time.monotonic() + seconds
    failed = []

    def run():
        try:
            while time.monotonic() < end:
                _generate(model)
        except RuntimeError as error:
            failed.append(error)

    def write():
        while time.monotonic() < end:
            for linear in (layer.self_attn.o_proj, layer.mlp.up_proj):
                linear.weight = nn.Parameter(linear.weight.detach().clone())

    try:
        _at_once(run, run, write)
    finally:
        sys.setswitchinterval(before)
    assert not failed, failed


@pytest.mark.parametrize("wave", [HALF, BF16, torch.float64])
def test_cosines_of_another_dtype(wave):
    """bf16 and f16 turn f32 as the model's function does; cosines of f64 make q and k f64, which the model's SDPA refuses."""
    model = models.build("llama")
    kind = type(model.model.rotary_emb)

    class Rotary(kind):
        def forward(self, x, position_ids=None, **more):
            return tuple(w.to(wave) for w in super().forward(x, position_ids, **more))

    model.model.rotary_emb.__class__ = Rotary
    epilogue.torch.fuse(model, linears="always")
    if wave is torch.float64:
        with pytest.raises(RuntimeError, match="same dtype"):
            _generate(model)
        return
    assert _is_same(_generate(model), _generate(models.apart(model)))
    assert all(s.fused == 0 and "cosines are" in s.reason for s in _states(model))


@torch.no_grad()
def test_cosines_of_two_dimensions():
    model, cache, _ = _warm("llama")
    attention, other = _attention(model), _attention(models.apart(model))
    given = dict(position_embeddings=(torch.randn(1, 12),) * 2, attention_mask=None)
    x = torch.randn(1, 1, 48)
    for _ in range(3):
        want, _ = other(x, **given, cache=copy.deepcopy(cache))
        assert torch.equal(attention(x, **given, cache=copy.deepcopy(cache))[0], want)


@torch.no_grad()
def test_a_norm_whose_weight_is_no_parameter_any_more():
    for part in ("self_attn.q_norm", "input_layernorm"):
        model, cache, step = _warm("qwen3")
        prune.l1_unstructured(model.model.layers[1].get_submodule(part), "weight", 0.5)
        want = _own(model, cache)
        assert torch.equal(step()[0].logits, want)
        model, cache, step = _warm("qwen3")
        del model.model.layers[1].get_submodule(part).weight
        with pytest.raises(AttributeError):  # the model's own
            step()


@pytest.mark.parametrize("warm", [True, False])
@torch.no_grad()
def test_shallow_copies_have_their_own_attributes(warm):
    """As layers that are repeated: the same weights, another layer of the cache."""
    model = _warm("llama")[0] if warm else _fused("llama")
    other = models.apart(model)
    for each in (model, other):
        layers = each.model.layers
        again = copy.copy(layers[0])
        again._modules = dict(again._modules)
        again.self_attn = copy.copy(again.self_attn)
        again.self_attn.layer_idx = 2
        layers.append(again)
        each.config.num_hidden_layers = 3
        each.config.layer_types = ["full_attention"] * 3
    want = _generate(other)
    for _ in range(2):
        assert _is_same(_generate(model), want)
    assert epilogue.torch.why(model).decoded_calls > 0


PARTS = ("self_attn", "self_attn.q_proj", "self_attn.o_proj", "self_attn.q_norm", "input_layernorm", "post_attention_layernorm", "mlp")


@pytest.mark.parametrize("part", PARTS)
@torch.no_grad()
def test_classes_that_change_are_called(part):
    model, cache, step = _warm("qwen3")
    module = model.model.layers[1].get_submodule(part)
    called = []
    own = type(module)

    class Other(own):
        def forward(self, *args, **kwargs):
            called.append(1)
            return super().forward(*args, **kwargs)

    module.__class__ = Other
    for i in range(5):
        want = _own(model, cache)
        called.clear()
        # A copy binds the MLP's parts anew, as one call; in the model they run by themselves.
        error = 1e-5 if part in ("mlp", "post_attention_layernorm") else 0
        torch.testing.assert_close(step()[0].logits, want, rtol=error, atol=error)
        assert called, i


@pytest.mark.parametrize("name", ["forward", "update"])
@torch.no_grad()
def test_functions_of_classes_are_those_of_now(name, monkeypatch):
    model, cache, step = _warm()
    kind = Qwen2Attention if name == "forward" else t.DynamicCache
    own, called = getattr(kind, name), []

    def patched(self, *args, **kwargs):
        called.append(1)
        return own(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(kind, name, patched)
        for _ in range(4):
            called.clear()
            assert step()[1] == 0 and len(called) == models.LAYERS
        new = _fused("qwen2")
    called.clear()
    _generate(new)
    for _ in range(3):
        _, count = step()
    assert count == models.LAYERS and not called and epilogue.torch.why(new).decoded_calls > 0


@torch.no_grad()
def test_what_a_forward_asks_for_may_come_later():
    """An attribute, a child or a buffer more: the record says nothing of it."""
    changes = (lambda a: setattr(a, "extra", 1), lambda a: a.register_module("extra", None), lambda a: a.register_buffer("extra", torch.ones(1)))
    for change in changes:
        model, cache, step = _warm()
        change(_attention(model))
        assert step()[1] == 1
        for _ in range(3):
            _, count = step()
        assert count == models.LAYERS


@torch.no_grad()
def test_a_function_of_attention_by_another_name():
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, AttentionInterface

    called = []
    AttentionInterface.register("mine", lambda module, *args, **kwargs: called.append(1) or ALL_ATTENTION_FUNCTIONS["sdpa"](module, *args, **kwargs))
    AttentionMaskInterface.register("mine", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    try:
        model, cache, step = _warm()
        model.set_attn_implementation("mine")
        for _ in range(4):
            called.clear()
            assert step()[1] == 0 and len(called) == models.LAYERS
    finally:
        del AttentionInterface._global_mapping["mine"], AttentionMaskInterface._global_mapping["mine"]


@pytest.mark.parametrize("part", ["self_attn", "self_attn.q_proj", "self_attn.o_proj", "input_layernorm"])
@torch.no_grad()
def test_parts_that_are_compiled_run_compiled(part):
    model, cache, step = _warm()
    called = []
    torch._dynamo.reset()

    def backend(graph, inputs):
        return lambda *args: called.append(1) or graph(*args)

    model.model.layers[1].get_submodule(part).compile(backend=backend)
    for _ in range(3):
        called.clear()
        step()
        assert called


@torch.no_grad()
def test_a_default_device_changes_nothing():
    model, cache, step = _warm()
    with torch.device("cpu"):
        assert step()[1] == models.LAYERS


def test_layers_without_positions():
    """SmolLM 3's, which hand cosines and sines on and do not read them."""
    model = models.varied(t.SmolLM3ForCausalLM(t.SmolLM3Config(**dict(models.SIZES, num_hidden_layers=4))))
    epilogue.torch.fuse(model, linears="always")
    assert _is_same(_generate(model), _generate(models.apart(model)))
    assert all(s.fused > TOKENS - 6 for s in _states(model)) and [s.reason for s in _layers(model)] == [None] * 4


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.Dropout])
@torch.no_grad()
def test_functions_of_pytorchs_classes_are_those_of_now(kind, monkeypatch):
    model, cache, step = _warm("gpt2")
    own, called = kind.forward, []
    monkeypatch.setattr(kind, "forward", lambda self, x: called.append(1) or own(self, x))
    for _ in range(3):
        want = _own(model, cache)
        called.clear()
        assert torch.equal(step()[0].logits, want) and len(called) == models.LAYERS + 1


@torch.no_grad()
def test_function_modes_see_the_single_ops():
    class Seen(TorchFunctionMode):
        names = ()

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.names += (getattr(function, "__name__", ""),)
            return function(*args, **(kwargs or {}))

    model, cache, step = _warm()
    with Seen() as seen:
        assert step()[1] == 0
    assert "transpose" in seen.names


def test_refresh_gives_all_packed_weights_back():
    gc.collect()
    before = ops.handles()
    model = _fused("qwen2")
    for batch in (1, 2, 3):
        _generate(model, batch)
    assert ops.handles() > before and any(s.plans for s in _states(model))
    epilogue.torch.refresh(model)
    gc.collect()
    assert ops.handles() == before
    assert _is_same(_generate(model), _generate(models.apart(model)))
