# SPDX-License-Identifier: Apache-2.0
"""fuse() on models with experts: what it recognises, how exact it is, and when experts run as their own."""

import copy
import gc
import types

import models
import pytest
import torch
import zoo
from torch import nn
from torch._dynamo.utils import counters

import epilogue.torch
from epilogue.torch import functional, mixture
from epilogue.torch.timing import relative

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
DEEPSEEK = dict(
    num_key_value_heads=4, moe_intermediate_size=32, n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2,
    n_shared_experts=1, kv_lora_rank=16, q_lora_rank=24, qk_rope_head_dim=8, v_head_dim=12, qk_nope_head_dim=12, first_k_dense_replace=1,
)  # fmt: skip
# Name -> (transformers' name, options, experts layers, other MLPs)
MODELS = {
    "mixtral": ("Mixtral", dict(num_local_experts=4), 2, 0),
    "qwen2_moe": ("Qwen2Moe", dict(FEW, shared_expert_intermediate_size=64), 2, 2),
    "qwen3_moe": ("Qwen3Moe", dict(FEW, head_dim=12), 2, 0),
    "deepseek_v2": ("DeepseekV2", dict(DEEPSEEK, topk_method="group_limited_greedy"), 1, 2),
    "deepseek_v3": ("DeepseekV3", DEEPSEEK, 1, 2),
    "olmoe": ("Olmoe", dict(num_experts=4, num_experts_per_tok=2), 2, 0),
    "gpt_oss": ("GptOss", dict(head_dim=12, num_local_experts=4, num_experts_per_tok=2), 2, 0),
    "granitemoe": ("GraniteMoe", dict(num_local_experts=4), 2, 0),
    "phimoe": ("Phimoe", dict(num_local_experts=4), 2, 0),
}


def build(name, **more):
    import transformers

    kind, options, *_ = MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**{**zoo.LLM, **options, **more})
    return models.varied(getattr(transformers, f"{kind}ForCausalLM")(config))


def experts_of(model):
    """Its experts modules, fused or not."""
    return [m for m in model.modules() if sum(p.dim() == 3 for p in m._parameters.values() if p is not None) > 1]


def calls_of(model):
    return [(row.fused_calls, row.own_calls) for row in epilogue.torch.why(model).rows if "experts" in row.what]


def layer_of(name="mixtral", dtype=torch.float32, **more):
    """One experts module of a model, with weights of a size that keeps what they give near x's."""
    layer = experts_of(build(name, **more))[0]
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=p.shape[-1] ** -0.5)
    return layer.to(dtype)


def routed(rows, dtype=torch.float32, choices=2, experts=4, columns=zoo.H):
    weights, index = torch.rand(rows, experts).topk(choices, -1)
    return torch.randn(rows, columns).to(dtype), index, weights.to(dtype)


def run(layer, *args):
    with torch.no_grad():
        return layer(*args)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_greedy_tokens_are_equal(name):
    _, _, layers, others = MODELS[name]
    model = build(name)
    prompt = torch.randint(3, zoo.V, (1, 9))
    options = dict(max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0, use_cache=True)
    want = model.generate(prompt, **options)
    epilogue.torch.fuse(model)
    assert torch.equal(model.generate(prompt, **options), want)
    report = epilogue.torch.why(model)
    assert calls_of(model) == [(32, 0)] * layers, str(report)  # the prompt's, then one row each
    assert len(report.fused) == layers + others and report.fused_calls == 32 * (layers + others), str(report)


@pytest.mark.parametrize("way", ["eager", "grouped_mm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_experts_are_as_exact_as_their_own(name, dtype, way):
    wide = dict(hidden_size=256, intermediate_size=320, moe_intermediate_size=320, num_hidden_layers=2, head_dim=64)
    layer = layer_of(name, dtype, **{k: v for k, v in wide.items() if k != "head_dim" or name in ("gpt_oss", "qwen3_moe")})
    layer.config._experts_implementation = "eager"
    exact = layer_of(name, torch.float64, **{k: v for k, v in wide.items() if k != "head_dim" or name in ("gpt_oss", "qwen3_moe")})
    exact.config._experts_implementation = "eager"
    exact.load_state_dict(layer.state_dict())
    layer.config._experts_implementation = way
    given = {rows: routed(rows, dtype, columns=256) for rows in (1, 7, 300)}
    own = {rows: run(layer, *args) for rows, args in given.items()}
    epilogue.torch.fuse(layer)
    for count, (rows, (x, index, weights)) in enumerate(given.items(), 1):
        got, want = run(layer, x, index, weights), run(exact, x.double(), index, weights.double())
        assert got.dtype == dtype
        # One row of f32 rounds a few hundred sums: which order is nearer is luck.
        floor = 5e-7 if dtype == torch.float32 and rows < 10 else 0
        assert relative(got, want) <= max(1.05 * relative(own[rows], want), floor)
        assert calls_of(layer) == [(count, 0)]


@pytest.mark.parametrize("name", sorted(MODELS))
def test_why_says_what_was_recognised(name):
    layer = epilogue.torch.fuse(layer_of(name))
    (row,) = epilogue.torch.why(layer).rows
    if name == "gpt_oss":
        assert row.what == "4 experts, gated, clamped_swiglu: gate_up_proj, down_proj; gate and up in turn; with biases"
    else:
        assert row.what == "4 experts, gated, silu: gate_up_proj, down_proj"
    assert row.is_fused and row.bytes == sum(p.numel() * 4 for p in layer.parameters() if p.dim() == 3)
    run(layer, *routed(3))
    assert "1 fused calls, 0 as the module's own" in str(epilogue.torch.why(layer))


@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh", "relu", "quick_gelu", "relu2"])
def test_other_activations(activation):
    layer = layer_of("mixtral", hidden_act=activation)
    args = routed(11)
    want = run(layer, *args)
    torch.testing.assert_close(run(epilogue.torch.fuse(layer), *args), want, rtol=1e-4, atol=1e-5)
    assert calls_of(layer) == [(1, 0)], str(epilogue.torch.why(layer))


def test_an_activation_that_the_engine_lacks():
    layer = epilogue.torch.fuse(layer_of("mixtral", hidden_act="leaky_relu"))
    (row,) = epilogue.torch.why(layer).rows
    assert not row.is_fused and "experts: gate_up_proj, down_proj have a matrix for each expert, in no layout" in row.what


class Plain(nn.Module):
    """Experts without a gate, of another result than the others if it is asked for."""

    def __init__(self, twist=None):
        super().__init__()
        self.number = 4
        self.first = nn.Parameter(torch.randn(4, 20, 12) * 0.3)
        self.last = nn.Parameter(torch.randn(4, 12, 20) * 0.3)
        self.act = nn.ReLU()
        self.twist = twist

    def forward(self, x, chosen, weights):
        out = torch.zeros_like(x)
        for e in range(self.number):
            rows, place = torch.where(chosen == e)
            hidden = self.act(x[rows] @ self.first[e].T)
            if self.twist == "clamp":
                hidden = hidden.clamp(max=50.0)
            part = hidden @ self.last[e].T
            out.index_add_(0, rows, part * weights[rows, place, None])
        if self.twist == "twice" and self.training:
            out = out * 2
        return out + 1e-3 if self.twist == "more" else out


def test_experts_without_a_gate():
    layer = Plain()
    args = routed(9, columns=12)
    want = run(layer, *args)
    torch.testing.assert_close(run(epilogue.torch.fuse(layer), *args), want, rtol=1e-4, atol=1e-5)
    (row,) = epilogue.torch.why(layer).rows
    assert row.what == "4 experts, plain, relu: first, last" and row.fused_calls == 1


@pytest.mark.parametrize("twist", ["clamp", "more"])
def test_another_result_is_not_fused(twist):
    layer = epilogue.torch.fuse(Plain(twist))
    (row,) = epilogue.torch.why(layer).rows
    assert not row.is_fused and type(layer) is Plain
    assert "its forward gives something else than gate and up, activation, down and the weighted sum" in row.what


def test_training_mode_that_does_more():
    layer = epilogue.torch.fuse(Plain("twice"))
    args = routed(5, columns=12)
    eval_mode = run(layer.eval(), *args)
    torch.testing.assert_close(run(layer.train(), *args), 2 * eval_mode, rtol=1e-4, atol=1e-5)
    assert calls_of(layer) == [(1, 1)] and "in training mode" in epilogue.torch.why(layer).rows[0].reason


def test_one_row_no_rows_and_no_expert():
    layer = layer_of()
    layer.config._experts_implementation = "eager"
    x, index, weights = routed(6)
    index[1] = 4  # the number of experts stands for none
    index[2, 1] = 4
    want = run(layer, x, index, weights)
    epilogue.torch.fuse(layer)
    got = run(layer, x, index, weights)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert not got[1].any() and got[2].any()
    torch.testing.assert_close(run(layer, x[:1], index[:1], weights[:1]), want[:1], rtol=1e-4, atol=1e-5)
    assert run(layer, x[:0], index[:0], weights[:0]).shape == (0, zoo.H)
    with torch.no_grad():
        named = layer(top_k_index=index, top_k_weights=weights, hidden_states=x)
    torch.testing.assert_close(named, want, rtol=1e-4, atol=1e-5)
    assert calls_of(layer) == [(4, 0)]


def load(layer):
    layer.load_state_dict({k: v * 1.5 for k, v in layer.state_dict().items()})


def assign(layer):
    layer.load_state_dict({k: v * 1.5 for k, v in layer.state_dict().items()}, assign=True)


def step(layer):
    x, index, weights = routed(20)
    optimizer = torch.optim.AdamW(layer.parameters(), 0.05, fused=True)
    layer(x, index, weights).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def new(layer):
    layer.down_proj = nn.Parameter(layer.down_proj.detach() * 1.5)


def there_and_back(layer):
    layer.to(torch.bfloat16)
    run(layer, *routed(3, torch.bfloat16))
    layer.to(torch.float32)


@pytest.mark.parametrize("write", [load, assign, step, new, there_and_back], ids=lambda f: f.__name__)
def test_written_weights_are_packed_anew(write):
    layer = epilogue.torch.fuse(layer_of())
    args = routed(5)
    before = run(layer, *args)
    write(layer)
    (fused, _) = calls_of(layer)[0]
    got = run(layer, *args)
    assert calls_of(layer)[0][0] == fused + 1 and relative(got, before) > 1e-3
    epilogue.torch.unfuse(layer)
    torch.testing.assert_close(got, run(layer, *args), rtol=1e-4, atol=1e-5)


def test_gradients_are_the_modules_own():
    layer = layer_of()
    x, index, weights = routed(5)
    layer(x, index, weights).sum().backward()
    want = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    epilogue.torch.fuse(layer)
    layer(x, index, weights).sum().backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(layer.parameters(), want))
    layer.requires_grad_(False)
    layer(x, index, weights.requires_grad_()).sum().backward()
    assert weights.grad is not None and calls_of(layer) == [(0, 2)]
    assert epilogue.torch.why(layer).rows[0].reason == "gradients are wanted: fuse(model, training=True)"
    layer(x, index, weights.detach())
    assert calls_of(layer) == [(1, 2)]


def with_gradients(layer, x, index, weights, dy):
    layer.zero_grad()
    leaves = [t.detach().requires_grad_() for t in (x, weights)]
    layer(leaves[0], index, leaves[1]).backward(dy)
    return {"x": leaves[0].grad, "weights": leaves[1].grad, **{k: p.grad for k, p in layer.named_parameters()}}


WIDE = dict(hidden_size=256, num_attention_heads=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["mixtral", "deepseek_v3"])
def test_gradients_by_the_engine_are_as_exact(name, dtype):
    sizes = dict(WIDE, intermediate_size=384) if name == "mixtral" else dict(WIDE, moe_intermediate_size=384)
    layer = layer_of(name, dtype, **sizes)
    layer.config._experts_implementation = "eager"  # grouped_mm has no float64
    fused = epilogue.torch.fuse(copy.deepcopy(layer), training="always")
    exact = copy.deepcopy(layer).double()
    for count, rows in enumerate((1, 7, 64)):
        x, index, weights = routed(rows, dtype, columns=256)
        dy = torch.randn(rows, 256).to(dtype)
        if rows == 7:
            index[:, :] = torch.tensor([1, 3])  # two experts without a token
        want = with_gradients(exact, x.double(), index, weights.double(), dy.double())
        own, got = with_gradients(layer, x, index, weights, dy), with_gradients(fused, x, index, weights, dy)
        for key in own:
            assert got[key].dtype == own[key].dtype and got[key].shape == own[key].shape
            # The ratio of two roundings' errors over n elements has a spread of 1 / sqrt(n): that of the routing's
            # weights, of two elements a row, is chance, that of the experts' weights is not.
            limit = 1.05 + 3 * got[key].numel() ** -0.5
            rounding = torch.finfo(dtype).eps if got[key].numel() < 64 else 0
            assert relative(got[key], want[key]) <= limit * relative(own[key], want[key]) + 2 * rounding, f"{key}, {rows} rows"
        assert calls_of(fused) == [(count + 1, 0)]


def test_which_experts_train_fused(monkeypatch):
    from epilogue.torch import training

    layer = layer_of()
    for products, calls in (("torch", (0, 1)), ("engine", (1, 0))):
        monkeypatch.setattr(training, "products_of", lambda dtype, products=products: products)
        epilogue.torch.unfuse(layer)
        epilogue.torch.fuse(layer, training=True)
        layer(*routed(5)).sum().backward()
        assert calls_of(layer) == [calls]
    clamped = epilogue.torch.fuse(layer_of("gpt_oss"), training="always")
    clamped(*routed(5)).sum().backward()
    assert calls_of(clamped) == [(0, 1)] and "no fused backward pass" in str(epilogue.torch.why(clamped).rows[0].reason)


def _autocast(layer, args):
    with torch.autocast("cpu", torch.bfloat16):
        return run(layer, *args)


def _hook(layer, args):
    hook = layer.act_fn.register_forward_hook(lambda m, i, o: o * 2)
    out = run(layer, *args)
    hook.remove()
    return out


def _global_hook(layer, args):
    hook = nn.modules.module.register_module_forward_hook(lambda m, i, o: None)
    out = run(layer, *args)
    hook.remove()
    return out


def _float64(layer, args):
    layer.config._experts_implementation = "eager"
    return run(layer.double(), args[0].double(), args[1], args[2].double())


def _other_activation(layer, args):
    layer.act_fn = nn.GELU()
    return run(layer, *args)


def _parametrized(layer, args):
    class Twice(nn.Module):
        def forward(self, w):
            return w * 2

    nn.utils.parametrize.register_parametrization(layer, "down_proj", Twice())
    return run(layer, *args)


def _subclass(layer, args):
    class Mine(nn.Parameter):
        pass

    layer._parameters["down_proj"] = layer.down_proj.detach().clone().requires_grad_(False).as_subclass(Mine)
    return run(layer, *args)


def _on_the_instance(layer, args):
    forward = layer.forward
    layer.forward = lambda *a: forward(*a) * 3
    return run(layer, *args)


def _another_way(layer, args):
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register("ones", lambda self, x, index, weights: torch.ones_like(x))
    layer.config._experts_implementation = "ones"
    return run(layer, *args)


def _method(layer, args):
    layer._apply_gate = lambda both: both.chunk(2, -1)[1] * 2
    return run(layer, *args)


def _attribute(layer, args):
    layer.num_experts = 3
    index = args[1].clamp(max=2)
    layer.config._experts_implementation = "eager"
    return run(layer, args[0], index, args[2])


REASONS = {
    _autocast: "autocast around experts",
    _hook: "a hook on SiLU",
    _global_hook: "a hook on all modules",
    _float64: "the input is torch.float64",
    _other_activation: "it has another activation",
    _parametrized: "down_proj is no parameter (a parametrization, LoRA)",
    _subclass: "down_proj is a Mine",
    _on_the_instance: "forward is set on the instance",
    _another_way: "experts_implementation is 'ones'",
    _method: "an attribute has another value",
    _attribute: "an attribute has another value",
}


@pytest.mark.parametrize("change", REASONS, ids=lambda f: f.__name__[1:])
def test_runs_as_its_own_and_says_why(change):
    torch.manual_seed(3)
    layer = layer_of()
    args = routed(7)
    before = run(epilogue.torch.fuse(layer), *args)
    got = change(layer, args)
    fused, own = calls_of(layer)[0]
    assert (fused, own) == (1, 1) and REASONS[change] in epilogue.torch.why(layer).rows[0].reason
    torch.manual_seed(3)
    plain = layer_of()
    args = routed(7)
    torch.testing.assert_close(run(plain, *args), before, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got, change(plain, args), rtol=1e-6, atol=1e-6)


def test_another_activation_before_the_first_call():
    layer = epilogue.torch.fuse(layer_of())
    layer.act_fn = nn.GELU()
    args = routed(3)
    got = run(layer, *args)
    assert calls_of(layer) == [(0, 1)]
    layer.act_fn = nn.SiLU()  # as it was
    assert relative(run(layer, *args), got) > 1e-2 and calls_of(layer) == [(1, 1)]


def test_lora_on_experts():
    peft = pytest.importorskip("peft")
    model = build("mixtral")
    ids = torch.randint(3, zoo.V, (1, 9))
    epilogue.torch.fuse(model)
    want = run(model, ids).logits
    config = peft.LoraConfig(target_modules=[], target_parameters=["experts.gate_up_proj", "experts.down_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config).eval()
    got = run(adapted, ids).logits
    assert relative(got, want) > 1e-4
    assert calls_of(model) == [(1, 1)] * 2, str(epilogue.torch.why(model))
    merged = epilogue.torch.fuse(adapted.merge_and_unload())
    torch.testing.assert_close(run(merged, ids).logits, got, rtol=1e-3, atol=1e-4)
    assert calls_of(merged) == [(1, 0)] * 2


def test_modules_that_are_not_taken():
    layer = layer_of()
    layer.forward = layer.forward
    assert "forward is set on the instance" in epilogue.torch.why(epilogue.torch.fuse(layer)).rows[0].what

    class Batched(nn.Module):  # Llama 4's
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Parameter(torch.randn(4, 8, 16)), nn.Parameter(torch.randn(4, 8, 8))

        def forward(self, x):
            return x

    row = epilogue.torch.why(epilogue.torch.fuse(Batched())).rows[0]
    assert not row.is_fused and "expected forward(x, index, weights), found forward(x)" in row.what


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies_are_fused_and_by_themselves(how):
    layer = epilogue.torch.fuse(layer_of("gpt_oss"))
    args = routed(4)
    want = run(layer, *args)
    other = models.copied(layer, how)
    torch.testing.assert_close(run(other, *args), want)
    assert calls_of(other) == [(1, 0)] and type(other) is type(layer)
    with torch.no_grad():
        layer.down_proj.zero_()
    torch.testing.assert_close(run(other, *args), want)


def test_unfuse_and_state_are_exact():
    model = build("qwen2_moe")
    kinds, state = [type(m) for m in model.modules()], {k: v.clone() for k, v in model.state_dict().items()}
    keys = [list(m.__dict__) for m in model.modules()]
    epilogue.torch.fuse(model)
    ids = torch.randint(3, zoo.V, (1, 9))
    fused = run(model, ids).logits
    assert list(model.state_dict()) == list(state) and all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert calls_of(epilogue.torch.fuse(model)) == [(0, 0)] * 2  # anew
    torch.testing.assert_close(run(model, ids).logits, fused)
    epilogue.torch.unfuse(model)
    assert [type(m) for m in model.modules()] == kinds and [list(m.__dict__) for m in model.modules()] == keys
    torch.testing.assert_close(run(model, ids).logits, fused, rtol=1e-4, atol=1e-5)


def test_memory_that_experts_may_take():
    model = build("mixtral")
    size = sum(p.numel() * 4 for p in experts_of(model)[0].parameters())
    epilogue.torch.fuse(model, memory=size, linears=False)
    first, second = epilogue.torch.why(model).rows
    assert first.is_fused and not second.is_fused
    assert second.what == f"memory={size}: the packed weights of its experts take {size} bytes"
    assert epilogue.torch.why(epilogue.torch.fuse(model, linears=False)).rows[1].is_fused


def test_measured_choice(monkeypatch):
    from epilogue.torch import choose

    answers = iter((False, True))
    monkeypatch.setattr(choose, "known", lambda key: next(answers))
    layer = epilogue.torch.fuse(layer_of(), tune="measure")
    args = routed(4)
    run(layer, *args)
    assert calls_of(layer) == [(0, 1)] and epilogue.torch.why(layer).rows[0].reason == "PyTorch is faster at 4 rows (measured)"
    run(layer, *args)
    assert calls_of(layer) == [(1, 1)]


def test_compiled_models_run_their_own_ops():
    layer = layer_of()
    layer.config._experts_implementation = "grouped_mm"
    args = routed(4)
    want = run(epilogue.torch.fuse(layer), *args)
    compiled = torch.compile(layer, backend="eager")
    torch.testing.assert_close(run(compiled, *args), want, rtol=1e-4, atol=1e-5)
    assert calls_of(layer) == [(1, 0)]


def test_equal_sizes():
    """The columns of x are those of the hidden layer, twice or half of them, or the number of experts."""
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    for columns, hidden, experts in ((16, 16, 4), (32, 16, 4), (16, 32, 4), (4, 8, 4), (8, 4, 4), (24, 24, 48)):
        config = types.SimpleNamespace(num_local_experts=experts, hidden_size=columns, intermediate_size=hidden, hidden_act="silu",
                                       _experts_implementation="eager")  # fmt: skip
        layer = MixtralExperts(config)
        for p in layer.parameters():
            nn.init.normal_(p)
        args = routed(9, experts=experts, columns=columns)
        want = run(layer, *args)
        torch.testing.assert_close(run(epilogue.torch.fuse(layer), *args), want, rtol=1e-4, atol=1e-4)
        assert calls_of(layer) == [(1, 0)], (columns, hidden, experts)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_compiled_models_keep_their_experts_as_one_op(name, monkeypatch):
    """The backend's graph as it is: Inductor takes a minute for it."""
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **_: graph.forward)
    torch._dynamo.reset()
    counters.clear()
    _, _, layers, others = MODELS[name]
    model = build(name)
    given = torch.randint(3, zoo.V, (1, 9))
    with torch.no_grad():
        want = model(given).logits
        compiled = torch.compile(epilogue.torch.fuse(model), backend="epilogue")
        for _ in range(2):
            assert relative(compiled(given).logits, want) < 1e-5
        assert (counters["epilogue"]["experts"], counters["epilogue"]["mlps"]) == (layers, others)
        experts = experts_of(model)[0]
        for p in experts.parameters():
            p.mul_(1.5)  # not stale
        assert relative(compiled(given).logits, epilogue.torch.unfuse(copy.deepcopy(model))(given).logits) < 1e-5


def test_compiled_experts_that_changed_are_their_own(monkeypatch):
    """Gradients, autocast, and an attribute that Dynamo guards: the graph has the module's own ops, of which the backend
    makes one with the attribute's value."""
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **_: graph.forward)
    torch._dynamo.reset()
    counters.clear()
    layer = epilogue.torch.fuse(layer_of("gpt_oss"))
    compiled = torch.compile(layer, backend="epilogue")
    given = routed(6)
    assert relative(run(compiled, *given), run(layer, *given)) < 1e-5
    assert counters["epilogue"]["experts"] == 1
    compiled(*given).sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(compiled, *given)
    assert counters["epilogue"]["experts"] == 1
    layer.limit = 0.5
    got = run(compiled, *given)
    assert relative(got, run(epilogue.torch.unfuse(copy.deepcopy(layer)), *given)) < 1e-5
    assert counters["epilogue"]["experts"] == 2


def test_packed_experts_go_with_their_weights():
    mixture.clear()
    given = routed(6)
    layer = layer_of()
    names = ("gate_up_proj", "down_proj")
    want = run(layer, *given)
    for _ in range(2):
        got = run(lambda *a: functional.experts(*a, *(getattr(layer, n) for n in names), cache=True), *given)
        assert relative(got, want) < 1e-5
    assert len(mixture._kept) == 1
    del layer
    gc.collect()
    assert not mixture._kept
