# SPDX-License-Identifier: Apache-2.0
"""Linear layers beside MLPs: exact, never stale, q, k and v as one call, as many fused as there are."""

import copy
import gc
import threading

import models
import pytest
import torch
import torch.nn.functional as F
import torch.utils.flop_counter
import transformers
import zoo
from torch import nn

import epilogue.torch
from epilogue.torch import linear_state, training
from epilogue.torch.timing import relative

X = torch.randn(1, 5, 48)
# Linear layers that are no part of an MLP: attention's, heads and poolers; of two layers.
COUNTS = {"llama": 9, "llama_bias": 9, "llama_gelu": 9, "mistral": 9, "qwen2": 9, "qwen3": 9, "gemma": 9, "gemma2": 9, "gemma3": 9,
          "phi": 9, "phi3": 5, "gpt2": 5, "bert": 9, "vit": 9}  # fmt: skip
# Calls of the op in a run, once it is known which layers share an input.
OPS = {**dict.fromkeys(COUNTS, 5), "phi3": 5, "gpt2": 5}


class Attention(nn.Module):
    """Projections of sizes of a real model's; `other`: what k and v read, x if None."""

    def __init__(self, hidden=48, narrow=24, bias=True):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(hidden, hidden, bias), nn.Linear(hidden, narrow, bias), nn.Linear(hidden, narrow, bias)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, other=None, write=False):
        q = self.q(x)
        if write:
            x.mul_(2)
        k, v = (layer(x if other is None else other) for layer in (self.k, self.v))
        return self.out(q) + torch.cat((k, v), -1)


@pytest.fixture
def attention():
    return epilogue.torch.fuse(Attention().eval(), linears="always")


@pytest.fixture
def ops(monkeypatch):
    """Counts calls of the op."""
    calls = []

    def count(*args):
        calls.append(1)
        return torch.ops.epilogue.linear.default(*args)

    monkeypatch.setattr(linear_state, "_linear", count)
    return calls


def plain_of(module):
    return epilogue.torch.unfuse(copy.deepcopy(module))


def learn(module, *args, **kwargs):
    with torch.no_grad():
        for _ in range(3):
            module(*args, **kwargs)


def check(module, calls, *args, tolerance=1e-5, **kwargs):
    """module(*args) with so many fused calls, against the unfused one."""
    before = epilogue.torch.why(module).linear_calls
    with torch.no_grad():
        want = plain_of(module)(*args, **kwargs)
        torch.testing.assert_close(module(*args, **kwargs), want, rtol=tolerance, atol=tolerance)
    assert epilogue.torch.why(module).linear_calls - before == calls, str(epilogue.torch.why(module))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["bias", "no bias", "Conv1D"])
def test_layers_are_as_exact_as_eager(kind, dtype):
    layer = transformers.pytorch_utils.Conv1D(260, 772) if kind == "Conv1D" else nn.Linear(772, 260, bias=kind == "bias")
    module = nn.ModuleDict({"it": layer}).to(dtype).eval()
    exact, fused = copy.deepcopy(module).double().it, epilogue.torch.fuse(copy.deepcopy(module), linears="always").it
    calls = 0
    with torch.no_grad():
        for rows in (1, 3, 64, 300):
            draws, own, got = (16 if rows < 16 else 1), 0.0, 0.0
            for _ in range(draws):
                x = torch.randn(1, rows, 772).to(dtype)
                want, y = exact(x.double()), fused(x)
                assert y.dtype == dtype and y.shape == want.shape and y.is_contiguous()
                own, got = own + relative(module.it(x), want), got + relative(y, want)
            calls += draws
            assert got <= 1.05 * own, f"{rows} rows"
    assert fused.__dict__["_epilogue_linear_state"].fused_calls == calls


def given_to(name, rows=9):
    return {"pixel_values": torch.randn(2, 3, 32, 32)} if name == "vit" else {"input_ids": models.ids(rows)}


def test_models_run_all_their_linear_layers(name, ops):
    model, given = models.build(name), given_to(name)
    keys = list(model.state_dict())
    with torch.no_grad():
        want = model(**given)[0]
        epilogue.torch.fuse(model, linears="always")
        assert list(model.state_dict()) == keys
        learn(lambda: model(**given))
        ops.clear()
        before = epilogue.torch.why(model)
        torch.testing.assert_close(model(**given)[0], want, rtol=1e-4, atol=1e-5)
    report = epilogue.torch.why(model)
    assert len(report.linears) == COUNTS[name] == report.linear_calls - before.linear_calls, str(report)
    assert len(ops) == OPS[name]
    assert len(report.fused) == models.LAYERS and report.packed_bytes > 0


WIDE_MODELS = ["llama", "qwen2", "qwen3", "gpt2", "vit", "bert", "gemma"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", WIDE_MODELS)
def test_models_are_as_exact_as_eager(name, dtype):
    """One layer of a real width; weights rounded to the dtype first."""
    model = models.build(name, **models.WIDE).to(dtype)
    exact = copy.deepcopy(model).double()
    fused = epilogue.torch.fuse(copy.deepcopy(model), linears="always")
    own, got = 0.0, 0.0
    with torch.no_grad():
        for _ in range(6):
            given = given_to(name, 16)
            cast = lambda kind: {k: v.to(kind) if v.is_floating_point() else v for k, v in given.items()}  # noqa: E731
            want = exact(**cast(torch.float64))[0]
            own += relative(model(**cast(dtype))[0], want)
            got += relative(fused(**cast(dtype))[0], want)
    assert got <= 1.05 * own
    assert epilogue.torch.why(fused).linear_calls == 6 * len(epilogue.torch.why(fused).linears) > 0


def test_whisper():
    model, given = zoo.build("whisper"), zoo.inputs("sound")
    want = zoo.result(model, given)
    epilogue.torch.fuse(model, linears="always")
    for _ in range(4):
        torch.testing.assert_close(zoo.result(model, given), want, rtol=1e-4, atol=1e-5)
    report = epilogue.torch.why(model)
    assert report.linear_calls == 4 * len(report.linears) and len(report.linears) >= 2 * 4 + 2 * 8


@pytest.mark.parametrize("name", models.GENERATES)
def test_greedy_generation_is_the_same(name):
    model, prompt = models.build(name), models.ids(5)
    options = dict(max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0)
    want = model.generate(prompt, **options)
    epilogue.torch.fuse(model, linears="always")
    got = model.generate(prompt, **options)
    if not torch.equal(got, want):  # only where two tokens tie
        at = int((got != want).nonzero()[0, 1])
        with torch.no_grad():
            logits = epilogue.torch.unfuse(model)(want[:, :at]).logits[0, -1]
        assert (logits[got[0, at]] - logits[want[0, at]]).abs() < 1e-4
    else:
        assert epilogue.torch.why(model).linear_calls == 32 * COUNTS[name]


def test_projections_of_one_input_are_one_call(attention, ops):
    learn(attention, X)
    ops.clear()
    check(attention, 4, X)
    assert len(ops) == 2
    assert "one of 3 of one input" in epilogue.torch.why(attention).linears[0].what


def test_other_inputs_part_them(attention, ops):
    learn(attention, X)
    other = torch.randn(1, 5, 48)
    for _ in range(4):
        check(attention, 4, X, other)
    check(attention, 4, X)


def test_cross_attention_shares_what_it_shares(ops):
    module = epilogue.torch.fuse(Attention().eval(), linears="always")
    for _ in range(3):
        learn(module, X, torch.randn(1, 5, 48))
    ops.clear()
    check(module, 4, X, torch.randn(1, 5, 48))
    assert len(ops) == 3  # q; k and v; out


def test_an_input_that_is_written_between(attention):
    learn(attention, X)
    for _ in range(3):
        x = X.clone()
        with torch.no_grad():
            want = plain_of(attention)(X.clone(), write=True)
            torch.testing.assert_close(attention(x, write=True), want)


def add_in_place(layer):
    with torch.no_grad():
        layer.weight.add_(0.01)


@pytest.mark.parametrize("learns", [True, False])
def test_inference_mode(attention, ops, learns):
    """Where tensors have no version: few elements are compared, of many each layer runs by itself."""
    if learns:
        learn(attention, X)
    with torch.inference_mode():
        x = torch.randn(1, 5, 48)
        if not learns:
            learn(attention, x)
        plain = plain_of(attention)
        ops.clear()
        torch.testing.assert_close(attention(x), plain(x))
        assert len(ops) == 2
        x[0, 0, 0] = float("nan")  # is itself
        torch.testing.assert_close(attention(x), plain(x), equal_nan=True)
        assert len(ops) == 4
        many = torch.randn(1, 400, 48)
        torch.testing.assert_close(attention(many), plain(many))
        assert len(ops) == 8
        torch.testing.assert_close(attention(x), plain(x), equal_nan=True)
        assert len(ops) == 10
        x = torch.randn(1, 5, 48)
        torch.testing.assert_close(attention(x.clone(), write=True), plain(x.clone(), write=True))
        assert len(ops) == 14
        torch.testing.assert_close(attention(x), plain(x))  # q apart from then on
    assert len(ops) == 17


def test_what_waits_is_for_the_very_layer_and_for_plain_calls(attention):
    learn(attention, X)
    with torch.no_grad():
        attention.q(X)
        other = copy.copy(attention.k)
        other._parameters = {name: nn.Parameter(torch.zeros_like(p)) for name, p in attention.k._parameters.items()}
        assert not other(X).any()
        attention.q(X)
        with torch.utils.flop_counter.FlopCounterMode(display=False) as flops:
            attention.k(X)
        assert flops.get_total_flops() > 0


def test_inference_mode_with_one_column():
    layers = nn.ModuleList([nn.Linear(1, 8), nn.Linear(1, 8)]).eval()
    epilogue.torch.fuse(layers, linears="always")
    with torch.inference_mode():
        for _ in range(3):
            x = torch.randn(5, 7).as_strided((5, 1), (1, 7))
            for layer in layers:
                torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))


def test_what_the_first_calls_packed_goes():
    """q by itself, before it is known that k and v read what it reads."""
    gc.collect()  # what earlier tests packed
    before = torch.ops.epilogue.packed_bytes()
    attention = epilogue.torch.fuse(Attention(512, 256, bias=False).eval(), linears="always")
    learn(attention, torch.randn(1, 5, 512))
    packed = torch.ops.epilogue.packed_bytes() - before
    weights = sum(p.numel() * 4 for p in attention.parameters())
    assert weights <= packed <= 1.02 * weights, (packed, weights)


def test_small_layers_of_one_input_stay_with_the_large_one(slow_mkl):
    """After a prompt, too, at whose length each of them would have lost by itself."""
    attention = epilogue.torch.fuse(Attention(512, 128).eval())
    with torch.no_grad():
        for rows in (40, 40, 1, 1, 1, 40, 1):
            x = torch.randn(1, rows, 512)
            for layer in (attention.q, attention.k, attention.v):
                torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), rtol=1e-4, atol=1e-5)
    rows = {row.name: row for row in epilogue.torch.why(attention).linears}
    assert all("one of 3 of one input" in rows[name].what for name in "qkv")
    assert rows["q"].own_calls == 0 and rows["k"].own_calls == rows["v"].own_calls == 2


def test_small_layers_join_after_a_prompt_that_does_not_say_whether_it_was_written(slow_mkl):
    """Of inference_mode(), with more elements than are compared: k and v lose by themselves before anybody learns whose input they share."""
    attention = epilogue.torch.fuse(Attention(512, 128).eval())
    with torch.inference_mode():
        for rows in (40, 1, 1, 1, 1):
            x = torch.randn(1, rows, 512)
            for layer in (attention.q, attention.k, attention.v):
                torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), rtol=1e-4, atol=1e-5)
    rows = {row.name: row for row in epilogue.torch.why(attention).linears}
    assert all("one of 3 of one input" in rows[name].what for name in "qkv") and rows["k"].fused_calls == 2


WRITES = {
    "in place": add_in_place,
    "data": lambda layer: layer.weight.data.mul_(1.5),
    "new data": lambda layer: setattr(layer.weight, "data", layer.weight.data * 1.5),
    "new parameter": lambda layer: setattr(layer, "weight", nn.Parameter(layer.weight.detach() * 1.5)),
    "load": lambda layer: layer.load_state_dict({k: v + 0.01 for k, v in layer.state_dict().items()}),
    "swap": lambda layer: torch.utils.swap_tensors(layer.weight, nn.Parameter(layer.weight.detach() * 1.5)),
    "bias": lambda layer: layer.bias.data.add_(1),
    "there and back": lambda layer: layer.to(torch.bfloat16).to(torch.float32),
}


@pytest.mark.parametrize("where", ["q", "k", "v"])
@pytest.mark.parametrize("write", sorted(WRITES))
def test_weights_are_never_stale(attention, write, where):
    learn(attention, X)
    WRITES[write](getattr(attention, where))
    check(attention, 4, X)
    check(attention, 4, X)


def test_an_optimizer_steps(attention):
    learn(attention, X)
    optimizer = torch.optim.AdamW(attention.parameters(), 0.1, fused=True)
    attention(X).square().sum().backward()
    optimizer.step()
    check(attention, 4, X)


def test_a_projection_of_another_dtype_or_shape(attention):
    learn(attention, X)
    attention.to(torch.bfloat16)
    check(attention, 4, X.bfloat16(), tolerance=3e-2)
    attention.float()
    attention.k = nn.Linear(48, 24).eval()  # not fused
    check(attention, 3, X)
    check(attention, 3, X)


def test_hooks_run(attention):
    learn(attention, X)
    attention.k.register_forward_hook(lambda m, args, out: out * 2)
    check(attention, 4, X)
    attention.v.register_forward_pre_hook(lambda m, args: (args[0] * 3,))
    check(attention, 4, X)
    attention.q.forward = lambda x: torch.zeros_like(x)  # as accelerate sets it
    check(attention, 3, X)


def test_autocast_inference_mode_and_gradients(attention):
    learn(attention, X)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(attention, 4, X, tolerance=3e-2)
    with torch.inference_mode():
        x = torch.randn(1, 5, 48)  # has no version
        before = epilogue.torch.why(attention).linear_calls
        torch.testing.assert_close(attention(x), plain_of(attention)(x))
        assert epilogue.torch.why(attention).linear_calls == before + 4
    leaf, own = X.clone().requires_grad_(), X.clone().requires_grad_()
    before = epilogue.torch.why(attention).linear_calls
    attention(leaf).sum().backward()
    plain_of(attention)(own).sum().backward()
    torch.testing.assert_close(leaf.grad, own.grad)
    assert epilogue.torch.why(attention).linear_calls == before
    assert "gradients are wanted" in str(epilogue.torch.why(attention))


def test_bad_input_gives_torchs_own_error(attention):
    plain = plain_of(attention)
    for x in (torch.randn(3, 47), torch.randn(3, 48).double(), torch.randn(()), torch.empty(3, 48, device="meta"), None):
        errors = []
        for module in (attention, plain):
            try:
                with torch.no_grad():
                    module(x)
                errors.append(None)
            except Exception as error:
                errors.append((type(error), str(error)))
        assert errors[0] == errors[1]


def test_adapters(name="llama"):
    peft = pytest.importorskip("peft")
    model, prompt = models.build(name), models.ids(6)
    epilogue.torch.fuse(model, linears="always")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for _ in range(4):
            got = adapted(prompt).logits
        torch.testing.assert_close(got, epilogue.torch.unfuse(adapted)(prompt).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies_have_weights_of_their_own(attention, how):
    learn(attention, X)
    other = models.copied(attention, how)
    learn(other, X)
    with torch.no_grad():
        other.k.weight.zero_()
    check(other, 4, X)
    check(attention, 4, X)
    assert "one of 3" in epilogue.torch.why(other).linears[0].what


def test_compile_export_and_vmap(attention):
    want = attention(X).detach()
    with torch.no_grad():
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(attention, fullgraph=True, backend="eager")(X), want)
        torch.testing.assert_close(torch.export.export(attention, (X,)).module()(X), want)
        torch.testing.assert_close(torch.vmap(attention)(X), want)
    assert epilogue.torch.why(attention).linear_calls == 0


def test_unfuse_and_fuse_again(attention):
    kinds = {nn.Linear, Attention}
    learn(attention, X)
    epilogue.torch.fuse(attention, linears="always")
    check(attention, 4, X)
    assert {type(m) for m in epilogue.torch.unfuse(attention).modules()} == kinds
    assert not epilogue.torch.why(attention).linears
    epilogue.torch.fuse(attention, linears=False)
    assert {type(m) for m in attention.modules()} == kinds


def test_threads_share_a_model(attention):
    inputs = [torch.randn(1, rows, 48) for rows in (1, 5, 33)]
    with torch.no_grad():
        want = [plain_of(attention)(x) for x in inputs]
    wrong = []

    def serve():
        with torch.no_grad():
            wrong.extend(i for i in range(60) if not torch.allclose(attention(inputs[i % 3]), want[i % 3], rtol=1e-4, atol=1e-5))

    threads = [threading.Thread(target=serve) for _ in range(2)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(2048, 64), nn.Linear(64, 2048, bias=False)
        self.body, self.head.weight = nn.Linear(64, 2048), self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids)) + self.body(self.embed(ids))


def test_memory_and_tied_weights(monkeypatch):
    size = 64 * 2048 * 4
    monkeypatch.setattr("epilogue.torch.linear_state._LEAST_OF_MANY_ROWS", 0)
    for products, fused in (("torch", ["body"]), ("engine", ["head", "body"])):
        monkeypatch.setattr("epilogue.torch.linear_state.products_of", lambda _, products=products: products)
        report = epilogue.torch.why(epilogue.torch.fuse(Tied().eval()))
        assert [row.name for row in report.linears if row.is_fused] == fused, str(report)
        assert report.packed_bytes == size * len(fused)
        assert ("an embedding's" in str(report)) == (products == "torch")
    ids, packed = torch.randint(0, 2048, (1, 4)), torch.ops.epilogue.packed_bytes()
    two = epilogue.torch.fuse(nn.ModuleList([Tied().eval()]), linears="always")
    two[0].body.weight = two[0].embed.weight  # one packed copy
    with torch.no_grad():
        two[0](ids)
    assert size <= torch.ops.epilogue.packed_bytes() - packed <= 1.1 * size
    report = epilogue.torch.why(epilogue.torch.fuse(Tied().eval(), memory=size))
    assert [row.name for row in report.linears if row.is_fused] == ["head"] and "memory=" in str(report)
    for wrong in (-1, 2.5, "1 GB"):
        with pytest.raises(ValueError, match="memory is a number of bytes"):
            epilogue.torch.fuse(nn.Linear(2, 2), memory=wrong)
    with pytest.raises(ValueError, match="linears is False, True or 'always'"):
        epilogue.torch.fuse(nn.Linear(2, 2), linears="some")


@pytest.mark.parametrize("tiles", [False, True])
def test_small_layers_and_many_rows_stay_pytorchs(monkeypatch, tiles):
    """With AMX's tiles bf16 gains at any number of rows."""
    report = epilogue.torch.why(epilogue.torch.fuse(Attention().eval()))
    assert not any(row.is_fused for row in report.linears) and "small" in str(report)
    monkeypatch.setattr("epilogue.torch.linear_state.products_of", lambda _: "torch")
    monkeypatch.setattr("epilogue.torch.linear_state.has_tiles", lambda: tiles)
    module = epilogue.torch.fuse(nn.Sequential(nn.Linear(256, 512)).bfloat16().eval())
    with torch.no_grad():
        module(torch.randn(400, 256).bfloat16())
    report = epilogue.torch.why(module)
    assert (report.linear_calls, report.linears[0].own_calls) == (int(tiles), int(not tiles))
    assert ("400 rows" in str(report)) == (not tiles)


@pytest.mark.parametrize("dots", [False, True])
def test_large_layers_of_bf16_gain_by_dot_products(monkeypatch, dots):
    """At any number of rows, a head whose weight is the embedding's too; small layers do not."""
    for name, value in (("products_of", lambda _: "torch"), ("has_tiles", lambda: False), ("has_dots_alone", lambda: dots)):
        monkeypatch.setattr(f"epilogue.torch.linear_state.{name}", value)
    calls = []
    for wide in (512, 256):
        module = epilogue.torch.fuse(nn.Sequential(nn.Linear(512, wide)).bfloat16().eval())
        with torch.no_grad():
            for rows in (1, 17, 400):
                x = torch.randn(rows, 512).bfloat16()
                torch.testing.assert_close(module(x).float(), F.linear(x.float(), module[0].weight.float(), module[0].bias.float()), rtol=1e-2, atol=1e-2)
        calls.append(epilogue.torch.why(module).linear_calls)
    assert calls == [3 if dots else 1, 1]
    tied = Tied()
    tied.embed, tied.head = nn.Embedding(2048, 256), nn.Linear(256, 2048, bias=False)
    tied.head.weight = tied.embed.weight
    (head,) = (row for row in epilogue.torch.why(epilogue.torch.fuse(tied.bfloat16().eval())).linears if row.name == "head")
    assert head.is_fused == dots, head


@pytest.mark.parametrize("wide", [False, True])
def test_large_layers_gain_at_many_rows(monkeypatch, wide):
    monkeypatch.setattr("epilogue.torch.linear_state.products_of", lambda _: "torch")
    monkeypatch.setattr("epilogue.torch.linear_state.computes_as_wide", lambda: wide)
    for columns, gains in ((1024, wide), (1023, False)):
        module = epilogue.torch.fuse(nn.Sequential(nn.Linear(1024, columns)).eval())
        with torch.no_grad():
            for rows in (1, 40, 1, 40):
                x = torch.randn(rows, 1024)
                torch.testing.assert_close(module(x), F.linear(x, module[0].weight, module[0].bias), rtol=1e-4, atol=1e-4)
        report = epilogue.torch.why(module)
        assert (report.linear_calls, report.linears[0].own_calls) == (2 * gains, 4 - 2 * gains)


def test_f32_gains_at_any_number_of_rows_where_mkl_is_slow(slow_mkl):
    for columns, calls in ((512, 3), (511, 1)):
        module = epilogue.torch.fuse(nn.Sequential(nn.Linear(512, columns)).eval())
        with torch.no_grad():
            for rows in (1, 5, 40):
                x = torch.randn(rows, 512)
                torch.testing.assert_close(module(x), F.linear(x, module[0].weight, module[0].bias), rtol=1e-4, atol=1e-4)
        assert epilogue.torch.why(module).linear_calls == calls
    assert [row.name for row in epilogue.torch.why(epilogue.torch.fuse(Tied().eval())).linears if row.is_fused] == ["body"]  # 2^17 elements


@pytest.mark.parametrize(
    "has, engine, mkl, wide",
    [
        (("avx2", "avx512_f"), None, None, True),
        (("avx2", "avx512_f"), "avx512", "AVX512", True),
        (("avx2", "avx512_f"), "avx2", None, False),
        (("avx2", "avx512_f"), "avx2", "AVX2", True),
        (("avx2",), None, None, True),
        (("avx2",), "avx2", None, True),
        (("avx2",), "baseline", None, False),
        ((), None, None, False),
    ],
)
def test_as_wide_as_mkl(monkeypatch, has, engine, mkl, wide):
    monkeypatch.setattr("epilogue.torch.training._capabilities", lambda: dict.fromkeys(has, True))
    for name, value in (("EPILOGUE_ISA", engine), ("MKL_ENABLE_INSTRUCTIONS", mkl)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert training.computes_as_wide.__wrapped__() is wide


def test_calls_that_lose_again_are_known_without_all_checks(monkeypatch):
    """By the number of rows of the same weight alone: any other call is looked at as the first."""
    monkeypatch.setattr("epilogue.torch.linear_state.products_of", lambda _: "torch")
    module = epilogue.torch.fuse(nn.Sequential(nn.Linear(256, 512)).eval())
    (linear,) = module
    state = linear.__dict__[linear_state.STATE]
    fully: "list[int]" = []
    run = state.run
    monkeypatch.setattr(state, "run", lambda m, x: fully.append(x.numel() // 256) or run(m, x))

    def call(rows):
        x = torch.randn(rows, 256)
        torch.testing.assert_close(module(x), F.linear(x, linear.weight, linear.bias), rtol=1e-4, atol=1e-5)

    def counts():
        row = epilogue.torch.why(module).linears[0]
        return row.fused_calls, row.own_calls

    with torch.no_grad():
        for rows in (1, 1, 1, 40, 1):
            call(rows)
        # As often as it takes to learn with whom it shares its input.
        assert fully == [1] * linear_state.LEARNING_CALLS and counts() == (0, 5) and state.reason.startswith("1 row ")
        fully.clear()
        call(8)  # gains
        assert fully == [8] and counts() == (1, 5)
        linear.weight = nn.Parameter(torch.randn(512, 256))
        call(1)
        assert fully == [8, 1] and counts() == (1, 6)
        call(1)
        with pytest.raises(RuntimeError):  # PyTorch's own words
            module(torch.randn(1, 200))
        assert fully == [8, 1]
    call(1)  # gradients are asked about
    assert fully == [8, 1, 1] and state.reason == "gradients are wanted"
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        module(torch.randn(1, 256))
    assert len(fully) == 4


def test_tune_measure_keeps_a_choice(tmp_path, monkeypatch):
    from epilogue.torch import choose

    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    module = nn.Sequential(nn.Linear(256, 512)).eval()
    x, plain = torch.randn(3, 256), copy.deepcopy(module)
    epilogue.torch.fuse(module, tune="measure")
    with torch.no_grad():
        torch.testing.assert_close(module(x), plain(x))
        (file,) = tmp_path.iterdir()
        text = file.read_text()
        for kept, calls in (("true", 1), ("false", 0)):
            file.write_text(text.replace("true", kept).replace("false", kept))
            choose.forget()
            other = copy.deepcopy(module)
            torch.testing.assert_close(other(x), plain(x))
            assert epilogue.torch.why(other).linear_calls == calls
    choose.forget()


def test_shares_of_a_profile():
    model = epilogue.torch.fuse(models.build("llama"), linears="always")
    with torch.no_grad(), torch.profiler.profile() as profile:
        model(models.ids(9))
    report = epilogue.torch.why(model, profile=profile)
    shares = dict(report.shares)
    assert abs(sum(shares.values()) - 1) < 1e-6 and {"fused MLPs", "fused linear layers", "attention"} <= set(shares)
    assert "%: PyTorch's" in str(report) and report.to_dict()["shares"] == shares
    with pytest.raises(TypeError, match="torch.profiler.profile, got int"):
        epilogue.torch.why(model, profile=3)


def test_the_op():
    from epilogue.torch.handle import Handle

    weights, biases = [torch.randn(40, 24), torch.randn(7, 24)], [torch.randn(40), None]
    given, x = [*weights, biases[0]], torch.randn(2, 5, 24)
    handle, op = Handle(weights, biases, "none"), torch.ops.epilogue.linear
    for got, w, b in zip(op(x, handle.number, given, None), weights, biases):
        torch.testing.assert_close(got, F.linear(x, w, b))
    assert op(x, handle.number, [*weights, torch.randn(40)], None) == []  # other memory
    free = Handle(weights, biases, "none", parameters=[])  # opcheck calls with copies
    torch.library.opcheck(op, (x, free.number, [], None), test_utils=("test_schema", "test_faketensor"))
    assert torch.ops.epilogue.widths(handle.number) == [40, 7]
    assert [t.shape for t in op(torch.empty(0, 24), handle.number, given, None)] == [(0, 40), (0, 7)]
    for call, words in [
        (lambda: op(torch.randn(5, 23), handle.number, given, None), "cannot be multiplied"),
        (lambda: op(x.bfloat16(), handle.number, given, None), "same dtype"),
        (lambda: op(x, handle.number, given, x), "no residual"),
        (lambda: torch.ops.epilogue.fused_mlp(x, handle.number, given), "handle of an MLP, got one of linear layers"),
        (lambda: Handle([weights[0], torch.randn(3, 23)], [None, None], "none"), r"weights \[n, 24\]"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call()


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norm_before_and_residual_behind(kind):
    from epilogue.torch.handle import Around, Handle, NormWeights
    from epilogue.torch.norms import Norm

    x, w, b, residual = torch.randn(7, 24), torch.randn(10, 24), torch.randn(10), torch.randn(7, 10)
    scale, shift = torch.rand(24) + 0.5, torch.randn(24) if kind == "layer" else None
    normed = F.layer_norm(x, (24,), scale, shift, 1e-5) if kind == "layer" else F.rms_norm(x, (24,), scale, 1e-5)
    around = Around(NormWeights(Norm(kind, "product", 1e-5, "eps"), scale, shift), True)
    handle = Handle([w], [b], "none", around=around, parameters=[w, b])
    (got,) = torch.ops.epilogue.linear(x, handle.number, [w, b], residual)
    torch.testing.assert_close(got, residual + F.linear(normed, w, b), rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="a residual of x's dtype"):
        torch.ops.epilogue.linear(x, handle.number, [w, b], None)


def with_gradients(layer, x, dy):
    layer.zero_grad()
    x = x.detach().requires_grad_()
    layer(x).backward(dy)
    return {"x": x.grad, **{k: p.grad for k, p in layer.named_parameters() if p.grad is not None}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["linear", "no bias", "conv1d"])
def test_gradients_by_the_engine_are_as_exact(kind, dtype):
    layer = transformers.pytorch_utils.Conv1D(520, 776) if kind == "conv1d" else nn.Linear(776, 520, kind == "linear")
    model = nn.Sequential(layer.to(dtype))
    fused = epilogue.torch.fuse(copy.deepcopy(model), training="always")
    exact = copy.deepcopy(model).double()
    counts = (1, 5, 64, 300)
    for rows in counts:
        x, dy = torch.randn(2, rows, 776).to(dtype), torch.randn(2, rows, 520).to(dtype)
        want = with_gradients(exact, x.double(), dy.double())
        own, got = with_gradients(model, x, dy), with_gradients(fused, x, dy)
        assert own.keys() == got.keys()
        for key in own:
            # Two orders of f32 sums: bias gradients of few terms have errors near 0, whose ratio is chance.
            slack = 1e-7 if dtype is torch.float32 else 0
            assert relative(got[key], want[key]) <= 1.05 * relative(own[key], want[key]) + slack, f"{key}, {rows} rows"
    assert epilogue.torch.why(fused).linear_calls == len(counts)


def test_which_linears_train_fused(monkeypatch, tmp_path):
    from epilogue.torch import choose, training

    layer = nn.Linear(512, 512)
    x = torch.randn(4, 512)
    for given, products, calls in ((False, "engine", 0), (True, "torch", 0), (True, "engine", 1), ("always", "torch", 1)):
        monkeypatch.setattr(training, "products_of", lambda dtype, products=products: products)
        model = epilogue.torch.fuse(nn.Sequential(copy.deepcopy(layer)), training=given)
        model(x).sum().backward()
        report = epilogue.torch.why(model)
        assert report.linear_calls == calls and ("gradients" in str(report)) == (not calls)
    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    model = epilogue.torch.fuse(nn.Sequential(copy.deepcopy(layer)), training=True, tune="measure")
    model(x).sum().backward()
    (file,) = tmp_path.iterdir()
    assert '| training": "' in file.read_text()
    choose.forget()


def test_frozen_weights_and_second_derivatives():
    layer = nn.Sequential(nn.Linear(300, 260))
    fused = epilogue.torch.fuse(copy.deepcopy(layer), training="always")
    x = torch.randn(3, 300)
    for model in (layer, fused):
        model[0].weight.requires_grad_(False)
    own, got = (with_gradients(m, x, torch.ones(3, 260)) for m in (layer, fused))
    assert own.keys() == got.keys() == {"x", "0.bias"}

    def penalty(model):
        leaf = x.detach().requires_grad_()
        (first,) = torch.autograd.grad(model(leaf).square().sum(), leaf, create_graph=True)
        first.square().sum().backward()
        return leaf.grad

    torch.testing.assert_close(penalty(fused), penalty(layer), rtol=1e-3, atol=1e-4)


def test_hooks_that_were_there_before_fuse_run_around_the_fused_call():
    model = torch.nn.Sequential(torch.nn.Linear(320, 256))
    seen = []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    epilogue.torch.fuse(model, linears="always")
    with torch.no_grad():
        model(torch.randn(4, 320))
    assert seen == [1] and epilogue.torch.why(model).linear_calls == 1
