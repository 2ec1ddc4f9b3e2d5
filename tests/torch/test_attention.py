# SPDX-License-Identifier: Apache-2.0
"""Attention as one op, and as torch.compile(..., backend="epilogue") puts it in the place of PyTorch's."""

import copy

import models
import pytest
import torch
import torch.nn.functional as F
import torch.utils.flop_counter
import transformers
from torch._dynamo.utils import counters

import epilogue.torch
from epilogue.torch import functional  # noqa: F401  (registers the ops)
from epilogue.torch.timing import relative

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)


def heads(batch, count, rows, columns, dtype):
    """As a projection leaves them: [batch, rows, count, columns], transposed."""
    return torch.randn(batch, rows, count, columns, dtype=dtype).transpose(1, 2)


def exact(q, k, v, **given):
    mask = given.get("attn_mask")
    if mask is not None and mask.dtype is not torch.bool:
        given["attn_mask"] = mask.double()
    return F.scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=True, **given)


def expect_as_exact_as_eager(q, k, v, mask=None, causal=False, scale=None):
    got = torch.ops.epilogue.attention(q, k, v, mask, causal, scale).transpose(1, 2)
    own = mask if mask is None or mask.dtype is torch.bool else mask.to(q.dtype)
    eager = F.scaled_dot_product_attention(q, k, v, attn_mask=own, is_causal=causal, scale=scale, enable_gqa=True)
    want = exact(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)
    off, eagers = (((t.double() - want).norm() / want.norm()).item() for t in (got, eager))
    assert got.shape == eager.shape and got.dtype == q.dtype
    # PyTorch's fused kernel of bf16 rounds probabilities, as ours does; of some shapes it has none, and rounds less.
    rounded = 2.5e-3 if q.dtype is torch.bfloat16 else 0
    assert off <= max(1.05 * eagers + (2e-7 if q.dtype is torch.float32 else 1e-5), rounded), (off, eagers)


# Whole and ragged blocks of queries, keys, depth and values; groups of heads; one of each.
SIZES = [
    (1, 4, 4, 64, 64, 64, 64), (2, 6, 2, 33, 129, 40, 24), (1, 8, 1, 100, 300, 128, 80), (3, 2, 2, 1, 7, 5, 3),
    (1, 2, 1, 257, 131, 96, 64), (2, 3, 3, 32, 128, 32, 32), (1, 1, 1, 5, 1, 16, 16), (1, 2, 2, 40, 640, 20, 200),
    # Few queries, for which keys and values stay in their places.
    (1, 4, 2, 1, 1100, 64, 64), (2, 8, 1, 1, 600, 128, 80), (1, 6, 6, 4, 300, 64, 64), (2, 4, 4, 8, 130, 33, 17),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_as_exact_as_eager(sizes, dtype):
    b, h, shared, n, m, d, w = sizes
    q, k, v = heads(b, h, n, d, dtype), heads(b, shared, m, d, dtype), heads(b, shared, m, w, dtype)
    expect_as_exact_as_eager(q, k, v)
    expect_as_exact_as_eager(q, k, v, scale=0.3)
    expect_as_exact_as_eager(q, k, v, causal=True)
    seen = torch.rand(b, 1, n, m) < 0.7
    seen[..., 0] = True
    expect_as_exact_as_eager(q, k, v, mask=seen)
    expect_as_exact_as_eager(q, k, v, mask=seen[:1, :, :1].expand(b, h, n, m))
    expect_as_exact_as_eager(q, k, v, mask=torch.randn(n, m, dtype=dtype))
    expect_as_exact_as_eager(q, k, v, mask=torch.randn(b, h, 1, m))
    # More queries than keys: the last see all.
    expect_as_exact_as_eager(heads(b, h, m + n, d, dtype), k, v, causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", ["causal", "window", "padding", "turned", "blocks"])
def test_masks_of_whole_blocks(form, dtype):
    """Blocks that nobody sees are left out, blocks that all see have no mask; and none of either."""
    n = 384
    row, column = torch.arange(n)[:, None], torch.arange(n)[None]
    mask = {
        "causal": column <= row,
        "window": (column <= row) & (column > row - 150),
        "padding": (column < 200).expand(n, n),
        "turned": (row >= column).t().contiguous().t(),
        "blocks": row // 128 == column // 128,
    }[form]
    q, k, v = (heads(2, 4, n, 64, dtype) for _ in range(3))
    expect_as_exact_as_eager(q, k, v, mask=mask[None, None])
    if form == "causal":
        given = torch.ops.epilogue.attention(q, k, v, mask[None, None], False, None)
        tolerance = 1e-6 if dtype is torch.float32 else 1e-2
        limited = torch.ops.epilogue.attention(q, k, v, None, True, None)
        torch.testing.assert_close(limited, given, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_query_that_sees_nothing_gets_zero(dtype):
    q, k, v = (heads(1, 2, 200, 64, dtype) for _ in range(3))
    mask = torch.ones(200, 200, dtype=torch.bool)
    mask[3] = False
    mask[96:192] = False  # whole blocks
    for given in (mask, torch.zeros(200, 200).masked_fill(~mask, -torch.inf)):
        got = torch.ops.epilogue.attention(q, k, v, given, False, None).transpose(1, 2)
        want = F.scaled_dot_product_attention(q, k, v, attn_mask=given.to(dtype) if given.is_floating_point() else given)
        assert not got[:, :, 3].any() and not got[:, :, 96:192].any()
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("skipped", [1, 2, 3, 5])
def test_blocks_of_queries_between_others_see_nothing(skipped):
    """Blocks of 32 queries, each with one block of keys: those around the skipped ones are at work together."""
    q, k, v = (heads(1, 16, 320, 64, torch.bfloat16) for _ in range(3))
    mask = torch.zeros(320, 320, dtype=torch.bool)
    for block in (0, 1, 2, 3 + skipped, 4 + skipped):
        mask[32 * block : 32 * block + 32, 40 * block % 256 : 40 * block % 256 + 17] = True
    got = torch.ops.epilogue.attention(q, k, v, mask, False, None).transpose(1, 2)
    torch.testing.assert_close(got, F.scaled_dot_product_attention(q, k, v, attn_mask=mask), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_maximum_may_grow_and_nan_stays(dtype):
    q, k, v = (heads(1, 1, 512, 32, dtype) for _ in range(3))
    k = k * torch.linspace(0.1, 12, 512, dtype=dtype)[None, None, :, None]
    expect_as_exact_as_eager(q, k, v)
    q = q.clone()
    q[0, 0, 5, 3] = torch.nan
    got = torch.ops.epilogue.attention(q, k, v, None, False, None).transpose(1, 2)
    assert got[0, 0, 5].isnan().all() and not got[0, 0, :5].isnan().any() and not got[0, 0, 6:].isnan().any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [64, 197, 320])
def test_sixteen_bits_are_as_exact_as_pytorchs(rows, dtype):
    """Of keys that make one block, too, where rounded probabilities once had 1.1 times PyTorch's error."""
    q, k, v = (heads(1, 12, rows, 64, dtype) for _ in range(3))
    want = exact(q, k, v)
    ours = torch.ops.epilogue.attention(q, k, v, None, False, None).transpose(1, 2)
    off, pytorchs = ((t.double() - want).norm() for t in (ours, F.scaled_dot_product_attention(q, k, v)))
    assert off <= 1.05 * pytorchs, (off / want.norm(), pytorchs / want.norm())


@pytest.mark.parametrize("queries", [1, 300])
def test_bits_do_not_depend_on_threads(queries):
    q, k, v = (heads(1, 5, rows, 64, torch.bfloat16) for rows in (queries, 900, 900))
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(torch.ops.epilogue.attention(q, k, v, None, True, None))
    torch.set_num_threads(before)
    assert all(torch.equal(r, results[0]) for r in results)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_do_not_depend_on_where_keys_lie(dtype):
    """In a cache with room behind them, in a projection's rows, with columns apart."""
    q = torch.randn(1, 8, 1, 48, dtype=dtype)
    k, v = (torch.randn(1, 2, 700, 48, dtype=dtype) for _ in range(2))
    want = torch.ops.epilogue.attention(q, k, v, None, False, None)
    roomy = [torch.full((1, 2, 1000, 48), torch.nan, dtype=dtype) for _ in range(2)]
    for room, x in zip(roomy, (k, v)):
        room[:, :, 100:800] = x
    rows = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (k, v)]
    apart = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (k, v)]
    for keys, values in ([room[:, :, 100:800] for room in roomy], rows, apart):
        assert torch.equal(torch.ops.epilogue.attention(q, keys, values, None, False, None), want)


def test_what_does_not_fit_says_so():
    q, k, v = (heads(1, 4, 20, 16, torch.float32) for _ in range(3))
    attend = torch.ops.epilogue.attention
    with pytest.raises(RuntimeError, match="4 dimensions"):
        attend(q[0], k[0], v[0], None, False, None)
    with pytest.raises(RuntimeError, match="heads that divide q's 4"):
        attend(q, k[:, :3], v[:, :3], None, False, None)
    with pytest.raises(RuntimeError, match="v of k's batch, heads and rows"):
        attend(q, k, v[:, :, :7], None, False, None)
    with pytest.raises(RuntimeError, match="a mask that broadcasts"):
        attend(q, k, v, torch.ones(3, 20, dtype=torch.bool), False, None)
    with pytest.raises(RuntimeError, match="of dtype Bool, Float"):
        attend(q, k, v, torch.ones(20, 20, dtype=torch.int64), False, None)
    with pytest.raises(RuntimeError, match="q's dtype"):
        attend(q, k.half(), v.half(), None, False, None)


def test_the_op_is_well_formed():
    q, k, v = (heads(2, 4, 20, 16, torch.float32) for _ in range(3))
    for mask in (None, torch.rand(20, 20) < 0.5):
        torch.library.opcheck(torch.ops.epilogue.attention.default, (q, k, v, mask, False, 0.2))


class Block(torch.nn.Module):
    """Attention as transformers writes it: heads of keys that are repeated, a mask, rows behind it."""

    def __init__(self, groups=2, dropout=0.0, causal=False):
        super().__init__()
        self.groups, self.dropout, self.causal = groups, dropout, causal

    def forward(self, x, mask=None):
        b, n, _ = x.shape
        q, k, v = (t.reshape(b, n, -1, 16).transpose(1, 2) for t in x.split([64, 64 // self.groups, 64 // self.groups], -1))
        repeat = lambda t: t[:, :, None].expand(b, t.shape[1], self.groups, n, 16).reshape(b, 4, n, 16)  # noqa: E731
        if self.groups > 1:
            k, v = repeat(k), repeat(v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=self.dropout, is_causal=self.causal)
        return y.transpose(1, 2).reshape(b, n, -1)


def compiled(block, **options):
    return torch.compile(block, backend="epilogue", options={"attention": "always", **options})


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("masked", ["none", "booleans", "causal"])
def test_the_backend_takes_attention(masked, groups):
    block = Block(groups, causal=masked == "causal")
    x = torch.randn(2, 40, 64 + 2 * (64 // groups))
    mask = (torch.rand(2, 1, 40, 40) < 0.6) | torch.eye(40, dtype=torch.bool) if masked == "booleans" else None
    with torch.no_grad():
        torch.testing.assert_close(compiled(block)(x, mask), block(x, mask), rtol=1e-4, atol=1e-5)
    assert counters["epilogue"]["attention"] == 1


def test_repeated_heads_are_read_before_they_are_repeated(monkeypatch):
    graphs = []
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda g, inputs, **_: (graphs.append(g), g.forward)[1])
    x = torch.randn(1, 40, 96)
    with torch.no_grad():
        torch.testing.assert_close(compiled(Block(4))(x), Block(4)(x), rtol=1e-4, atol=1e-5)
    (op,) = (n for n in graphs[0].graph.nodes if n.target is torch.ops.epilogue.attention.default)
    assert [n.meta["example_value"].shape[1] for n in op.args[:3]] == [4, 1, 1]


def test_what_stays_pytorchs():
    x = torch.randn(2, 40, 192)
    few = torch.randn(2, 9, 192)
    with torch.no_grad():
        compiled(Block(1), attention=False)(x)
        assert counters["epilogue"]["attention"] == 0
        torch.compile(Block(1, causal=True), backend="epilogue")(few.bfloat16())
        gains = epilogue.torch.attention.gains(torch.bfloat16)
        assert counters["epilogue"]["attention: fewer than 16 queries"] == (1 if gains else 0)
        compiled(Block(1, dropout=0.5))(x)
    leaf = x.clone().requires_grad_()
    block = Block(2)
    y = compiled(block)(leaf[..., :128])
    y.sum().backward()
    got, leaf.grad = leaf.grad, None
    block(leaf[..., :128]).sum().backward()
    torch.testing.assert_close(got, leaf.grad)
    assert counters["epilogue"]["attention"] == 0
    torch._dynamo.reset()
    with pytest.raises(Exception, match="attention is False, True or 'always'"):
        torch.compile(block, backend="epilogue", options={"attention": 3})(x[..., :128])


@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_few_queries_are_taken_by_default(masked, queries):
    """As a model decodes, of any number of keys: one graph."""

    def decode(q, k, v, mask=None):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    fast = torch.compile(decode, backend="epilogue", dynamic=True)
    dtype = torch.float32
    with torch.no_grad():
        for keys in (70, 71, 130):
            q, k, v = heads(1, 8, queries, 32, dtype), heads(1, 2, keys, 32, dtype), heads(1, 2, keys, 32, dtype)
            mask = (torch.rand(1, 1, queries, keys) < 0.8) if masked else None
            torch.testing.assert_close(fast(q, k, v, mask), decode(q, k, v, mask), rtol=1e-5, atol=1e-6)
    assert counters["epilogue"]["attention"] == (1 if epilogue.torch.attention.gains_decoding(dtype) else 0)


def _decoded(model, **given):
    ids = torch.arange(2, 14)[None].repeat(2, 1)
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    return model.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, **given)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen2"])
def test_a_fused_model_decodes_by_it(kind, cache):
    if not epilogue.torch.attention.gains_decoding(torch.float32):
        pytest.skip("PyTorch's kernel stays on this CPU")
    model = models.varied(models.build(kind)).eval()
    given = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    want = _decoded(model, **given)
    epilogue.torch.fuse(model)
    assert torch.equal(_decoded(model, **given), want)
    calls = 11 * model.config.num_hidden_layers  # the first token comes from the prompt
    report = epilogue.torch.why(model)
    assert report.attention_calls == calls and f"{calls} calls of the engine's kernel" in str(report)
    copied = copy.deepcopy(model)
    assert torch.equal(_decoded(copied, **given), want) and epilogue.torch.why(copied).attention_calls == 2 * calls
    epilogue.torch.fuse(model, attention=False)
    assert torch.equal(_decoded(model, **given), want) and epilogue.torch.why(model).attention_calls == 0
    epilogue.torch.unfuse(model)
    assert not any("_epilogue_attention" in m.__dict__ for m in model.modules())


def test_three_tokens_at_once_see_what_the_mask_says():
    if not epilogue.torch.attention.gains_decoding(torch.float32):
        pytest.skip("PyTorch's kernel stays on this CPU")
    model = models.varied(models.build("llama")).eval()
    fused = epilogue.torch.fuse(copy.deepcopy(model))
    ids = torch.arange(3, 19)[None]
    with torch.no_grad():
        logits = []
        for m in (model, fused):
            cache = m(ids[:, :13], use_cache=True).past_key_values
            logits.append(m(ids[:, 13:], past_key_values=cache, use_cache=True).logits)
        torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(logits[1], model(ids).logits[:, 13:], rtol=1e-4, atol=1e-5)


@pytest.fixture
def many_gain(monkeypatch):
    """Wherever the tests run."""
    monkeypatch.setattr("epilogue.torch.sdpa.gains", lambda _: True)


def _calls(model):
    return epilogue.torch.why(model).attention_calls


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "phi", "bert", "vit"])
def test_many_queries_of_a_fused_model(kind, dtype, many_gain):
    """As exact as the model's own."""
    model = models.build(kind, hidden_size=192, intermediate_size=256).to(dtype)
    exactly = copy.deepcopy(model).double()
    fused = epilogue.torch.fuse(copy.deepcopy(model))
    errors = [0.0, 0.0]
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(2, 3, 32, 32) if kind == "vit" else models.ids(90 + seed)

        def result(m):
            given = x.to(next(m.parameters()).dtype) if kind == "vit" else x  # noqa: B023
            out = m(given)
            return out.logits if hasattr(out, "logits") else out.last_hidden_state

        with torch.no_grad():
            want = result(exactly)
            for i, m in enumerate((model, fused)):
                errors[i] += relative(result(m), want)
    assert _calls(fused) == 3 * models.LAYERS
    assert 0 < errors[1] <= 1.05 * errors[0], errors


def test_many_queries_see_what_they_may(many_gain):
    """By causal limits, by masks, behind a cache, in a cache of fixed size."""
    model = models.build("llama")
    fused = epilogue.torch.fuse(copy.deepcopy(model))
    ids = torch.randint(2, 96, (2, 60))
    padded = torch.ones_like(ids)
    padded[1, :23] = 0

    def both(call, calls):
        before = _calls(fused)
        want, got = call(model), call(fused)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert _calls(fused) - before == calls * models.LAYERS

    def in_parts(m):
        cache = m(ids[:, :20], use_cache=True).past_key_values
        return m(ids[:, 20:], past_key_values=cache).logits

    def fixed(m):
        cache = transformers.StaticCache(config=m.config, max_cache_len=100)
        return m(ids, past_key_values=cache).logits

    with torch.no_grad():
        both(lambda m: m(ids).logits, 1)
        both(lambda m: m(ids, attention_mask=padded).logits[padded.bool()], 1)
        both(in_parts, 2)
        both(fixed, 1)
        both(lambda m: m(ids, is_causal=False).logits, 1)
        both(lambda m: m(ids[:, :15]).logits, 0)  # too few
    with torch.inference_mode():
        both(lambda m: m(ids).logits, 1)
    epilogue.torch.fuse(fused, attention=False)
    with torch.no_grad():
        both(lambda m: m(ids).logits, 0)


def test_many_queries_that_do_not_gain(monkeypatch):
    monkeypatch.setattr("epilogue.torch.sdpa.gains", lambda _: False)
    model = epilogue.torch.fuse(models.build("llama"))
    with torch.no_grad():
        model(models.ids(40))
    assert _calls(model) == 0


def test_models_that_are_not_fused_keep_their_attention(monkeypatch):
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    other = models.build("llama").eval()
    epilogue.torch.fuse(models.build("llama"))
    called = []
    monkeypatch.setattr("epilogue.torch.sdpa._takes", lambda *_: called.append(1) or True)
    with torch.no_grad():
        other(torch.tensor([[3]]))
    assert not called
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    assert ALL_ATTENTION_FUNCTIONS["sdpa"].__wrapped__ is sdpa_attention_forward


def test_attention_stays_pytorchs_where_gradients_or_other_things_are_wanted():
    model = epilogue.torch.fuse(models.build("llama").eval())
    ids = torch.tensor([[3]])
    model(ids).logits.sum().backward()
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            model(ids)
        with torch.utils.flop_counter.FlopCounterMode(display=False):
            model(ids)
        model.config._attn_implementation = "eager"
        model(ids, output_attentions=True)
    assert epilogue.torch.why(model).attention_calls == 0


def test_by_default_where_it_gains():
    x = torch.randn(1, 64, 192, dtype=torch.bfloat16)
    with torch.no_grad():
        got = torch.compile(Block(1, causal=True), backend="epilogue")(x)
        torch.testing.assert_close(got, Block(1, causal=True)(x), rtol=3e-2, atol=3e-2)
    gains = epilogue.torch.attention.gains(torch.bfloat16)
    assert counters["epilogue"]["attention"] == (1 if gains else 0)
