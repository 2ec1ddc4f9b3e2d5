# SPDX-License-Identifier: Apache-2.0
"""Caches of keys and values that grow in place: bit for bit what transformers' layers hold, which concatenate."""

import copy

import models
import pytest
import torch
import torch.nn.functional as F
import transformers as t
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import cache_utils

import epilogue.torch
from epilogue.torch import growing

WINDOWS = (None, 1, 2, 8, 40)  # None: all rows are kept
KEPT, GROWS = set(growing.GROWING), set(growing.GROWING.values())


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    """They move often."""
    monkeypatch.setattr(growing, "_LEAST_SPARE", 8)


def stock(window=None):
    return cache_utils.DynamicSlidingWindowLayer(window) if window else cache_utils.DynamicLayer()


def grown(window=None):
    return growing.GrowingSlidingWindowLayer(window) if window else growing.GrowingLayer()


def rows(n, batch=2, heads=2, columns=4, of_values=4, dtype=torch.float32):
    return tuple(torch.randn(batch, heads, n, c, dtype=dtype) for c in (columns, of_values))


@torch.no_grad()
def go_on(layer, count=45):
    """One row at a time, now and then some: all that update() gives."""
    like = layer.keys if layer.is_initialized and layer.keys.dim() == 4 else torch.empty(2, 2, 0, 4)
    return [layer.update(*rows(5 if i % 20 == 9 else 1, len(like), like.shape[1], dtype=like.dtype)) for i in range(count)]


def outcome(call, *args):
    """What a call gives, or how it fails."""
    torch.manual_seed(1)
    try:
        return call(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def same(x, y):
    if isinstance(x, (tuple, list)) and isinstance(y, (tuple, list)):
        return len(x) == len(y) and all(map(same, x, y))
    return x.dtype is y.dtype and torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else x == y


def state(layer):
    return layer.keys, layer.values, layer.is_initialized, layer.get_seq_length(), layer.get_mask_sizes(1), layer.get_mask_sizes(3)


def expect_like_stock(*steps, window=None):
    """Each step does the same to both layers, or fails alike."""
    pair = stock(window), grown(window)
    for i, step in enumerate(steps):
        for call in (step, state):
            want, got = (outcome(call, layer) for layer in pair)
            assert same(want, got), (window, i, call, want, got)


def assign(keys, values):
    def step(layer):
        layer.keys, layer.values = layer.keys[:, :, :keys], layer.values[:, :, :values]

    return step


STEPS = {
    "no rows": lambda x: x.update(*rows(0)), "own rows": lambda x: x.update(x.keys[:, :, -1:], x.values[:, :, -1:]),
    "crop": lambda x: x.crop(-3), "crop nothing": lambda x: x.crop(0), "crop all": lambda x: x.crop(-10_000),
    "crop to a size": lambda x: x.crop(3),
    "fewer rows": assign(2, 2), "fewer keys": assign(2, 3), "one row of values": assign(3, 1),
    "reorder": lambda x: x.reorder_cache(torch.tensor([1, 1, 0])), "repeat": lambda x: x.batch_repeat_interleave(3),
    "select": lambda x: x.batch_select_indices(torch.tensor([1])), "reset": lambda x: x.reset(),
    "offload": lambda x: (x.offload(), x.prefetch()), "record": lambda x: hasattr(x, "record_past") and x.activate_past_recording(),
    "initialized for other rows": lambda x: (x.reset(), x.lazy_initialization(*rows(0, dtype=torch.float64))),
    "wrong batch": lambda x: x.update(*rows(1, batch=3)), "wrong heads": lambda x: x.update(*rows(1, heads=1)),
    "wrong columns": lambda x: x.update(*rows(1, columns=5)), "wrong columns of values": lambda x: x.update(*rows(1, of_values=5)),
    "three dimensions": lambda x: x.update(*(y[0] for y in rows(1))), "more keys": lambda x: x.update(rows(2)[0], rows(1)[1]),
    "higher precision": lambda x: x.update(*rows(2, dtype=torch.float64)), "lower": lambda x: x.update(*rows(2, dtype=torch.bfloat16)),
    "other strides": lambda x: x.update(*(torch.randn(2, 5, 2, 4).transpose(1, 2) for _ in range(2))),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
@torch.no_grad()
def test_a_layer_goes_on_as_the_stock_layer_does(name):
    step, crop = STEPS[name], STEPS["crop"]
    for window in WINDOWS:
        for before in (0, 20):
            if before or name not in ("fewer rows", "fewer keys", "one row of values", "own rows"):
                expect_like_stock(lambda x, n=before: go_on(x, n), step, lambda x: go_on(x, 3), step, crop, go_on, window=window)
        expect_like_stock(STEPS["record"], go_on, step, crop, lambda x: go_on(x, 20), STEPS["crop nothing"], go_on, window=window)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_rows_like_the_last_are_appended_at_once(dtype, monkeypatch):
    """By one op, if it takes the dtype; what differs from the last rows goes the long way."""
    whole = []
    slowly = growing._Growing._appended
    monkeypatch.setattr(growing._Growing, "_appended", lambda self, new: whole.append(new[0].shape[2]) or slowly(self, new))
    layer, like = grown(), stock()
    made = [rows(n, dtype=dtype, of_values=6) for n in (3, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1)]
    with torch.no_grad():
        for k, v in made:
            version = -1 if layer.keys is None else layer.keys._version
            assert same(layer.update(k, v), like.update(k, v))
        assert layer.keys._version == version  # a backward pass may have kept the rows before
        later = rows(1, dtype=dtype, of_values=6)
        apart = tuple(torch.randn(2, 2, x.shape[3], 2).to(dtype).transpose(2, 3)[:, :, :1] for x in later)  # columns that lie apart
        assert same(layer.update(*apart), like.update(*apart))
    # Longer or fewer rows, the first ones of a buffer (room for 8 more), and columns that lie apart.
    assert whole == ([3, 1, 2, 1, 1, 1] if dtype is not torch.float64 else [3, 1, 1, 1, 2, *[1] * 8, 1]), whole


def test_layers_that_are_initialized_by_keys_alone(monkeypatch):
    """Those of transformers 4."""
    own = cache_utils.DynamicLayer.lazy_initialization
    monkeypatch.setattr(cache_utils.DynamicLayer, "lazy_initialization", lambda self, keys: own(self, keys, keys))
    monkeypatch.setattr(growing, "_INITIALIZES_BY", 1)
    layer, x = growing.GrowingLayer(), torch.randn(1, 2, 3, 4)
    assert all(map(torch.equal, layer.update(x, x), (x, x))) and layer.get_seq_length() == 3


def test_the_op_that_appends():
    keys, values = torch.zeros(2, 3, 9, 4), torch.zeros(2, 3, 9, 6)
    k, v = torch.randn(2, 3, 2, 4), torch.randn(2, 2, 3, 6).transpose(1, 2)
    torch.ops.epilogue.append(keys, values, k, v, 7)
    assert torch.equal(keys[:, :, 7:], k) and torch.equal(values[:, :, 7:], v)
    assert not keys[:, :, :7].any() and not values[:, :, :7].any() and keys._version == 0
    wrong = [(keys, values, k, v, 8), (keys, values, k, v, -1), (keys, values, k[:1], v, 0), (keys, values, k.double(), v, 0),
             (keys.double(), values, k.double(), v, 0), (keys, values, k[0], v, 0), (keys[..., :3], values, k, v, 0),
             (keys, values, k.new_empty(2, 3, 4, 2).transpose(2, 3), v, 0)]  # fmt: skip
    for given in wrong:
        with pytest.raises(RuntimeError, match="append: expected a buffer"):
            torch.ops.epilogue.append(*given)


@pytest.mark.parametrize("window", WINDOWS)
@torch.no_grad()
def test_keys_and_values_may_have_other_columns(window):
    for sizes in (dict(columns=3, of_values=5), dict(of_values=0), dict(dtype=torch.bfloat16), dict(batch=1, heads=1)):
        expect_like_stock(lambda x, s=sizes: [x.update(*rows(n, **s)) for n in (5, *[1] * 60, 90, 0, 1)], window=window)


@pytest.mark.parametrize("window", WINDOWS)
@torch.no_grad()
def test_what_update_gave_does_not_change(window):
    layer = grown(window)
    given = [(x, x.clone()) for _ in range(3) for pair in go_on(layer) for x in (*pair, layer.keys, layer.values)]
    if window is None:
        layer.crop(-30)
    go_on(layer)
    assert all(torch.equal(x, was) for x, was in given)


HOLDS = {
    "keys": lambda x, given: x.keys, "values": lambda x, given: x.values, "what update() gave": lambda x, given: given,
    "a part": lambda x, given: x.keys[1, :, -1].t(), "numpy": lambda x, given: x.values.numpy(),
    "dlpack": lambda x, given: torch.from_dlpack(x.keys), "a copy of the layer": lambda x, given: copy.copy(x),
}  # fmt: skip


@pytest.mark.parametrize("held", (*HOLDS, None))
@pytest.mark.parametrize("window", (None, 40))
@torch.no_grad()
def test_crop_gives_up_rows_that_nobody_holds(held, window):
    def tensors(x):
        return [x.keys, x.values] if hasattr(x, "keys") else [torch.as_tensor(y) for y in (x if isinstance(x, tuple) else (x,))]

    layer = grown(window)
    given = layer.update(*rows(20))
    own = HOLDS[held](layer, given) if held else ()
    was, left = [x.clone() for x in tensors(own)], layer.keys[:, :, :15].clone()
    del given
    place = layer.keys.data_ptr()
    for _ in range(1 if held else 30):  # as assisted decoding does
        layer.crop(-5)
        layer.update(*rows(5))
        assert same(tensors(own), was) and torch.equal(layer.keys[:, :, :15], left)
        assert (layer.keys.data_ptr() == place) == (held is None)


@pytest.mark.parametrize("how", ("copy", "deepcopy", "pickle", "torch.save"))
@pytest.mark.parametrize("window", WINDOWS)
@torch.no_grad()
def test_a_copy_and_its_original_go_apart(window, how):
    results = []
    for layer in (stock(window), grown(window)):
        torch.manual_seed(0)
        go_on(layer, 30)
        cache = t.DynamicCache()
        cache.layers.append(layer)
        other = copy.copy(layer) if how == "copy" else models.copied(cache, how).layers[0]
        assert type(other) is type(layer) and other is not layer
        given = [go_on(x, n) for n in (1, 4, 60) for x in (layer, other, copy.copy(other))]
        if window is None:
            layer.crop(-20), go_on(layer, 3), other.crop(-9), go_on(other, 3)
        results.append((given, state(layer), state(other)))
    assert same(*results)


def wanted_by_keys(layer):
    leaves = [x.requires_grad_() for n in (3, 1, 2) for x in rows(n)]
    sum((x.sin() * x.cumsum(2)).sum() for i in (0, 2, 4) for x in layer.update(*leaves[i : i + 2])).backward()
    return [x.grad for x in leaves]


def wanted_by_queries(layer):
    query = torch.randn(2, 2, 1, 4, requires_grad=True)
    # The graph keeps what update() gave, while rows are added.
    sum(F.scaled_dot_product_attention(query, *layer.update(*rows(1))).sum() for _ in range(3)).backward()
    return query.grad


def wanted_by_the_cache(layer):
    leaf = layer.keys.requires_grad_()
    layer.update(*rows(1))[0].sin().sum().backward()
    return leaf.grad


def wanted_of_a_snapshot(layer):
    weight = torch.randn(4, requires_grad=True)
    out = (layer.keys * weight).sum()  # the graph keeps the keys
    go_on(layer, 1)
    out.backward()
    return weight.grad


def of_a_function(transform):
    def step(layer):
        y = transform(lambda k: layer.update(k, k)[0].sin().sum(), torch.randn(3, 2, 2, 1, 4))
        layer.reset()  # its tensors are the transform's
        return y

    return step


GRADIENTS = {
    "wanted by keys": wanted_by_keys, "wanted by queries": wanted_by_queries, "wanted by the cache": wanted_by_the_cache,
    "wanted of a snapshot": wanted_of_a_snapshot,
    "not wanted": torch.no_grad()(lambda layer: [layer.update(*(y.requires_grad_() for y in rows(1))) for _ in range(40)]),
    "vmap": of_a_function(lambda call, x: torch.vmap(call)(x)), "grad": of_a_function(lambda call, x: torch.func.grad(call)(x[0])),
    "jvp": of_a_function(lambda call, x: torch.func.jvp(call, (x[0],), (x[1],))),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_the_stock_layers(name):
    for window in WINDOWS:
        expect_like_stock(lambda x: go_on(x, 5), GRADIENTS[name], window=window)


@pytest.mark.parametrize("window", WINDOWS)
def test_rows_of_inference_mode_are_read_outside_and_inside(window):
    def inside(layer):
        with torch.inference_mode():
            return go_on(layer, 20)

    def outside(layer):
        weight = torch.randn(4, requires_grad=True)
        k, v = go_on(layer, 20)[-1]
        (k * weight).sum().backward()
        return weight.grad, v

    for steps in ((inside, outside), (outside, inside), (inside, STEPS["crop"], outside, inside, STEPS["crop"], outside)):
        expect_like_stock(*steps, go_on, inside, window=window)


@torch.no_grad()
def test_a_window_keeps_no_memory_of_rows_that_it_left():
    layer = grown(8)
    layer.update(*rows(4000))
    go_on(layer, 3)
    assert layer.keys.shape[2] == 7 and layer.keys.untyped_storage().nbytes() < 400 * 2 * 2 * 4 * 4


@pytest.mark.parametrize("before", ("nothing", "grow", "fewer rows", "tokens", "grown tokens"))
@torch.no_grad()
def test_a_cache_of_known_rows_is_not_copied_later(before):
    cache = t.DynamicCache()
    if before in ("grow", "fewer rows", "grown tokens"):
        epilogue.torch.grow(cache, rows=100 if before == "fewer rows" else 0)
    if before in ("tokens", "grown tokens"):
        cache.update(*rows(9), 0)
    assert epilogue.torch.grow(cache, rows=700) is cache
    places = {tuple(x.data_ptr() for x in cache.update(*rows(1), 0)) for _ in range(700 - cache.get_seq_length())}
    assert cache.get_seq_length() == 700 and len(places) == 1


def test_grow_takes_dynamic_caches_alone():
    pair = t.EncoderDecoderCache(t.DynamicCache(), t.DynamicCache())
    assert epilogue.torch.grow(pair) is pair
    for part in (pair.self_attention_cache, pair.cross_attention_cache):
        part.update(*rows(1), 1)
    assert kinds_of(pair.self_attention_cache) <= GROWS and kinds_of(pair.cross_attention_cache) <= KEPT
    static = t.StaticCache(t.LlamaConfig(**models.SIZES), max_cache_len=9)
    for other in (None, [], nn.Linear(2, 2), static, t.EncoderDecoderCache(static, t.DynamicCache()), stock()):
        with pytest.raises(TypeError, match="DynamicCache"):
            epilogue.torch.grow(other)
    for count in (-1, True, 1.5, "3", None):
        with pytest.raises(ValueError, match="number of tokens"):
            epilogue.torch.grow(t.DynamicCache(), rows=count)
    others = t.DynamicCache()
    others.layers += [cache_utils.DynamicIndexedLayer(), cache_utils.LinearAttentionAndFullAttentionLayer()]
    kinds = kinds_of(others)
    assert kinds_of(epilogue.torch.grow(others, rows=9)) == kinds
    offloaded = t.DynamicCache(config=t.LlamaConfig(**models.SIZES))
    offloaded.offloading = True
    assert kinds_of(epilogue.torch.grow(offloaded)) <= KEPT


MIXED = dict(sliding_window=16, layer_types=["sliding_attention", "full_attention"])
MODELS = {
    "llama": {}, "qwen2": {}, "gpt2": dict(dropout=0.0), "mistral": dict(sliding_window=8), "gemma2": MIXED, "gemma3": MIXED,
}  # fmt: skip


def cache_of(model):
    return t.DynamicCache(config=model.config)


def kinds_of(cache):
    return {type(layer) for layer in cache.layers}


def decode(model, ids, mask, cache):
    """Some chunks and many tokens: across buffers."""
    out, at = [], 0
    for n in (9, *[1] * 15, 90, *[1] * 10, 93, *[1] * 12):
        out.append(model(ids[:, at : at + n], attention_mask=mask[:, : at + n], cache=cache).logits)
        at += n
    return out, [(layer.keys, layer.values) for layer in cache.layers]


@pytest.mark.parametrize("batch, dtype", [(1, torch.float32), (3, torch.bfloat16)])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_a_model_gives_the_same_bits(name, batch, dtype, one_thread, monkeypatch):
    if name == "llama":
        monkeypatch.undo()  # the buffers that users have
        batch = 4 - batch
    plain = models.build(name, **MODELS[name]).to(dtype)
    if name == "qwen2":
        plain.set_attn_implementation("eager")
    fused = epilogue.torch.fuse(copy.deepcopy(plain))
    ids, mask = torch.randint(2, 96, (batch, 229)), torch.ones(batch, 229, dtype=torch.long)
    mask[batch // 2, : batch - 1] = 0  # padding, of more than one
    one, two, three, four = (cache_of(plain) for _ in range(4))
    assert same(decode(plain, ids, mask, one), decode(plain, ids, mask, epilogue.torch.grow(two)))
    got = decode(fused, ids, mask, three)
    assert epilogue.torch.why(fused).grown_caches == 1
    assert same(decode(epilogue.torch.fuse(fused, caches=False), ids, mask, four), got)
    assert epilogue.torch.why(fused).grown_caches is None
    assert kinds_of(one) == kinds_of(four) <= KEPT and kinds_of(two) == kinds_of(three) <= GROWS


def bart():
    sizes = {f"{part}_{k}": v for part in ("encoder", "decoder") for k, v in dict(layers=2, attention_heads=4, ffn_dim=64).items()}
    ends = dict(pad_token_id=0, bos_token_id=1, eos_token_id=None, forced_eos_token_id=None, decoder_start_token_id=2)
    config = t.BartConfig(vocab_size=96, d_model=48, max_position_embeddings=99, **sizes, **ends)
    return models.varied(t.BartForConditionalGeneration(config))


SEARCHES = {"greedy": {}, "beams": dict(num_beams=3), "sampling": dict(do_sample=True), "prompt": dict(prompt_lookup_num_tokens=3)}


@pytest.mark.parametrize("name", ("llama", "gpt2", "gemma3", "bart"))
def test_generate_gives_the_same_tokens(name, one_thread):
    plain = bart() if name == "bart" else models.build(name, **MODELS[name])
    fused, small = (epilogue.torch.fuse(copy.deepcopy(plain)) for _ in range(2))
    kept = epilogue.torch.fuse(copy.deepcopy(plain), caches=False)
    searches = SEARCHES if name == "bart" else dict(SEARCHES, assistant=dict(assistant_model=small))
    for count, (search, given) in enumerate(searches.items(), 1):
        ids = torch.randint(2, 96, (1 if search in ("prompt", "assistant") else 2, 12))
        results = []
        for model in (plain, fused, kept):
            torch.manual_seed(2)
            options = dict(attention_mask=torch.ones_like(ids), max_new_tokens=20, return_dict_in_generate=True, output_logits=True)
            results.append(model.generate(ids, **options, **given))
        want, got, other = results
        assert torch.equal(want.sequences, got.sequences) and torch.equal(got.sequences, other.sequences), search
        assert same(got.logits, other.logits) and epilogue.torch.why(fused).grown_caches == count, search
        assert kinds_of(getattr(got.past_key_values, "self_attention_cache", got.past_key_values)) <= GROWS, search
    report = epilogue.torch.why(fused)
    assert report.to_dict()["grown_caches"] == count and f"{count} caches of keys" in str(report)
    assert epilogue.torch.why(small).grown_caches == 3 * ("assistant" in searches)


def called(model, cache=None):
    cache = cache or cache_of(model)
    model(models.ids(3), None, None, cache)
    return kinds_of(cache)


def hooks_of(model):
    return [type(hook).__name__ for module in model.modules() for hook in module._forward_pre_hooks.values()].count("GrowingCaches")


@torch.no_grad()
def test_one_hook_comes_and_goes(llama):
    assert epilogue.torch.why(epilogue.torch.fuse(nn.Sequential(nn.Linear(2, 2)))).grown_caches is None
    fused = epilogue.torch.fuse(epilogue.torch.fuse(llama))
    assert hooks_of(fused) == 1 and epilogue.torch.why(fused).grown_caches == 0
    cache = cache_of(fused)
    assert called(fused, cache) == called(fused, cache) <= GROWS and epilogue.torch.why(fused).grown_caches == 1
    assert called(fused, t.DynamicCache()) <= GROWS and epilogue.torch.why(fused).grown_caches == 2
    copies = [models.copied(fused, how) for how in ("deepcopy", "pickle", "torch.save")]
    assert not hooks_of(epilogue.torch.unfuse(fused)) and called(fused) <= KEPT
    assert not fused._forward_pre_hooks and not fused._forward_pre_hooks_with_kwargs
    for other in copies:
        assert hooks_of(other) == 1 and called(other) <= GROWS
        assert not hooks_of(epilogue.torch.unfuse(other)) and called(other) <= KEPT
    pair = nn.ModuleList([llama, models.build("gpt2")])
    assert hooks_of(epilogue.torch.fuse(pair)) == 2 and called(llama) <= GROWS
    assert hooks_of(epilogue.torch.fuse(pair, caches=False)) == 0


@torch.no_grad()
def test_static_caches_stay(llama):
    epilogue.torch.fuse(llama)
    static = t.StaticCache(llama.config, max_cache_len=20)
    assert called(llama, static) == called(llama, static) == {cache_utils.StaticLayer} and static.get_seq_length() == 6
    assert epilogue.torch.why(llama).grown_caches == 0 and "keys and values" not in str(epilogue.torch.why(llama))
    model, ids = epilogue.torch.fuse(bart()), models.ids(5)
    pair = t.EncoderDecoderCache(*(t.StaticCache(model.config, max_cache_len=n) for n in (20, 5)))
    given = dict(decoder_input_ids=ids, decoder_attention_mask=torch.ones_like(ids))
    model(ids, **given, cache=pair)
    assert kinds_of(pair.self_attention_cache) == {cache_utils.StaticLayer} and epilogue.torch.why(model).grown_caches == 0


@torch.no_grad()
def test_a_compiled_model_writes_in_place(one_thread):
    torch._dynamo.reset()
    plain = models.build("llama", num_hidden_layers=1)
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(plain, fullgraph=True, backend=counter)
    cache, own, ids = epilogue.torch.grow(cache_of(plain)), cache_of(plain), models.ids(40)
    places = set()
    for begin, end in ((0, 9), *((i, i + 1) for i in range(9, 40))):
        step = plain if begin in (0, 30) else compiled
        got, want = (m(ids[:, begin:end], cache=c).logits for m, c in ((step, cache), (plain, own)))
        assert torch.equal(got, want), begin
        places.add(cache.layers[0].keys.data_ptr())
    assert same(*([(x.keys, x.values) for x in c.layers] for c in (cache, own)))
    assert len(places) >= 3 and counter.frame_count <= 5


def compiled_steps(windows, count, modes=(torch.no_grad, torch.no_grad), known=0):
    """Sums of what a traced function of stock and of growing layers gives, and the number of graphs for these."""
    results = []
    for grows in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        cache = t.DynamicCache()
        cache.layers, cache.layer_class_to_replicate = [stock(window) for window in windows], None
        if grows:
            epilogue.torch.grow(cache, known)
        counter = CompileCounterWithBackend("eager")

        def step(k, v, cache=cache):
            return [x.sum((2, 3)) for i in range(len(windows)) for x in cache.update(k, v, i)]

        with modes[0]():
            step(*rows(9))
        compiled, sums = torch.compile(step, fullgraph=True, backend=counter), []
        for mode in modes[1:]:
            with mode():
                sums += [compiled(*rows(1)) for _ in range(count)]
        results.append(sums)
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    return counter.frame_count


@pytest.mark.parametrize("windows, known", (((None,), 100), ((12, None), 0)))
def test_the_number_of_graphs_is_bounded(windows, known):
    """torch.compile makes 8 at most; of stock layers with windows it makes 4."""
    assert compiled_steps(windows, 40, known=known) <= (2 if known else 5)


MODES = {"inside": torch.inference_mode, "outside": torch.no_grad}


@pytest.mark.parametrize("modes", ("inside outside", "outside inside"))
def test_a_compiled_step_goes_on_from_rows_of_inference_mode(modes):
    """Of a call, of traced ones, and of traced ones after these."""
    compiled_steps((None,), 12, [MODES[mode] for mode in modes.split()])
