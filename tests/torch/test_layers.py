# SPDX-License-Identifier: Apache-2.0
"""The norm and the residual of a layer, fused with its MLP."""

import copy

import models
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import epilogue.torch

# BERT's norm comes after its MLP, Phi's MLP stands beside its attention.
LAYERED = sorted(set(models.BUILD) - {"bert", "phi"})


class Skip(nn.Module):
    """In the place of attention, so that a layer is a function of x alone."""

    def forward(self, x=None, *args, hidden_states=None, **kwargs):
        return (x if hidden_states is None else hidden_states), None


def layer_of(name, **sizes):
    base = models.build(name, **sizes)
    base = getattr(base, "model", None) or getattr(base, "transformer", None) or base
    layers = getattr(base, "layers", None)
    return (base.h if layers is None else layers)[0]


def without_attention(name, **sizes):
    layer = layer_of(name, **sizes)
    for child in ("self_attn", "attn", "attention"):
        if hasattr(layer, child):
            setattr(layer, child, Skip())
    return layer


def with_calls(model):
    return sum(row.layer_calls for row in epilogue.torch.why(model).rows)


def runs(layer, x, fused, **given):
    """layer(x), checking whether norm and residual were fused with the MLP."""
    before = with_calls(layer)
    with torch.no_grad():
        y = layer(x, **given)
    assert with_calls(layer) - before == (1 if fused else 0), str(epilogue.torch.why(layer))
    return y


def error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


class Exact(nn.Module):
    """An RMS norm in float64 throughout; transformers' own computes in float32."""

    def __init__(self, own):
        super().__init__()
        from epilogue.torch import norms

        self.norm, self.weight = norms.identify(own), own.weight.detach().double()

    def forward(self, x):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.norm.eps)
        return y * (1 + self.weight if self.norm.form == "one_plus" else self.weight)


def in_float64(layer):
    exact = copy.deepcopy(layer).double()
    for name, child in list(exact.named_children()):
        if "RMSNorm" in type(child).__name__:
            setattr(exact, name, Exact(child))
    return exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERED)
def test_layer_is_as_exact_as_eager(name, dtype):
    layer = without_attention(name, **models.WIDE).to(dtype)
    exact = in_float64(layer)
    fused = epilogue.torch.fuse(copy.deepcopy(layer))
    calls = 0
    with torch.no_grad():
        for rows in (1, 4, 64, 512):
            draws, own, got = (16 if rows < 16 else 1), 0.0, 0.0
            for _ in range(draws):
                x = torch.randn(1, rows, 768).to(dtype)
                want = exact(x.double())
                own += error(layer(x), want) / draws
                y = fused(x)
                assert y.dtype == dtype and y.shape == want.shape
                got += error(y, want) / draws
            calls += draws
            assert got <= 1.05 * own, f"{rows} rows"
    assert with_calls(fused) == calls


@pytest.mark.parametrize("name", LAYERED)
def test_models_run_their_layers_fused(name):
    model = models.build(name)
    given = {"pixel_values": torch.randn(2, 3, 32, 32)} if name == "vit" else {"input_ids": models.ids(9)}
    keys, kinds = list(model.state_dict()), [type(m) for m in model.modules()]
    with torch.no_grad():
        want = model(**given, output_hidden_states=True)
        epilogue.torch.fuse(model)
        assert list(model.state_dict()) == keys
        got = model(**given, output_hidden_states=True)
    for a, b in zip((got[0], *got.hidden_states), (want[0], *want.hidden_states)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert len(got.hidden_states) == len(want.hidden_states)
    report = epilogue.torch.why(model)
    assert len(report.fused) == models.LAYERS and with_calls(model) == models.LAYERS, str(report)
    assert report.fused_calls == models.LAYERS
    assert "and residual of" in str(report)
    epilogue.torch.unfuse(model)
    assert [type(m) for m in model.modules()] == kinds


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt2"])
def test_generate_runs_layers_fused(name):
    model = epilogue.torch.fuse(models.build(name))
    model.generate(models.ids(5), max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert with_calls(model) == 8 * models.LAYERS, str(epilogue.torch.why(model))


def test_why_says_why_norm_and_residual_run_by_themselves():
    report = str(epilogue.torch.why(epilogue.torch.fuse(models.build("phi"))))
    assert "norm and residual by themselves" in report
    layer = epilogue.torch.fuse(without_attention("llama"))
    layer(torch.randn(1, 3, 48))
    assert "gradients are wanted: the norm and the residual" in str(epilogue.torch.why(layer))


@pytest.fixture
def layer():
    return without_attention("llama")


X = torch.randn(1, 5, 48)


@pytest.mark.parametrize("where", ["post_attention_layernorm", "mlp", "mlp.up_proj"])
def test_hooks_on_norm_and_mlp_run(layer, where):
    epilogue.torch.fuse(layer)
    runs(layer, X, True)
    hook = layer.get_submodule(where).register_forward_hook(lambda m, args, out: out * 0)
    plain = epilogue.torch.unfuse(copy.deepcopy(layer))
    torch.testing.assert_close(runs(layer, X, False), plain(X))
    assert "a hook on a layer" in str(epilogue.torch.why(layer))
    hook.remove()
    assert not torch.allclose(runs(layer, X, True), plain(X))


def test_a_hook_that_was_there_before_sees_tensors_only(layer):
    seen = []
    layer.mlp.register_forward_hook(lambda m, args, out: seen.append(type(out)))
    epilogue.torch.fuse(layer)
    assert seen == []
    runs(layer, X, False)
    assert seen == [torch.Tensor]


def test_hooks_on_the_layer_run(layer):
    epilogue.torch.fuse(layer)
    plain = epilogue.torch.unfuse(copy.deepcopy(layer))
    layer.register_forward_hook(lambda m, args, out: out * 2)
    torch.testing.assert_close(runs(layer, X, True), 2 * plain(X))


@pytest.mark.parametrize("save", ["deepcopy", "pickle", "torch.save"])
def test_copies_have_weights_of_their_own(layer, save):
    epilogue.torch.fuse(layer)
    want = runs(layer, X, True)
    other = models.copied(layer, save)
    torch.testing.assert_close(runs(other, X, True), want)
    with torch.no_grad():
        other.post_attention_layernorm.weight.zero_()
    plain = epilogue.torch.unfuse(copy.deepcopy(other))
    assert not torch.allclose(plain(X), want)
    torch.testing.assert_close(runs(other, X, True), plain(X))
    torch.testing.assert_close(runs(layer, X, True), want)


def test_writes_to_the_norm_are_seen(layer):
    epilogue.torch.fuse(layer)
    runs(layer, X, True)
    plain = epilogue.torch.unfuse(copy.deepcopy(layer))
    for write in (lambda m: m.weight.data.mul_(3), lambda m: setattr(m, "weight", nn.Parameter(m.weight * 2))):
        for m in (layer, plain):
            with torch.no_grad():
                write(m.post_attention_layernorm)
        torch.testing.assert_close(runs(layer, X, True), plain(X))
    for m in (layer, plain):
        m.post_attention_layernorm.variance_epsilon = 0.5
    torch.testing.assert_close(runs(layer, X, False), plain(X))
    assert "another eps" in str(epilogue.torch.why(layer))


def test_autocast_training_and_gradients(layer):
    epilogue.torch.fuse(layer, training=True)
    plain = epilogue.torch.unfuse(copy.deepcopy(layer))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert runs(layer, X, False).dtype == plain(X).dtype
    layer.train()
    torch.testing.assert_close(runs(layer, X, False), plain(X))
    assert "training mode" in str(epilogue.torch.why(layer))
    layer.eval()
    own, x = X.clone().requires_grad_(), X.clone().requires_grad_()
    plain(own).sum().backward()
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, own.grad, rtol=1e-4, atol=1e-5)
    assert with_calls(layer) == 0
    weight = "post_attention_layernorm.weight"
    torch.testing.assert_close(layer.get_parameter(weight).grad, plain.get_parameter(weight).grad, rtol=1e-4, atol=1e-5)


def test_active_dropout_runs_the_own_forward():
    layer = epilogue.torch.fuse(without_attention("vit"))
    layer.dropout.p = 0.5
    runs(layer, X, True)
    layer.dropout.train()
    runs(layer, X, False)
    assert "dropout is active" in str(epilogue.torch.why(layer))


def test_compile_and_export(layer):
    epilogue.torch.fuse(layer)
    want = runs(layer, X, True)
    with torch.no_grad():
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(layer, fullgraph=True)(X), want)
        torch.testing.assert_close(torch.export.export(layer, (X,)).module()(X), want)
    assert with_calls(layer) == 1


def test_tune_measure_runs_either_way(layer, tmp_path, monkeypatch):
    from epilogue.torch import choose

    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    with torch.no_grad():
        want = layer(X)
        torch.testing.assert_close(epilogue.torch.fuse(layer, tune="measure")(X), want)
    choose.forget()


class Block(nn.Module):
    """Its linear layers are its own children (OPT's, BART's)."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(48), nn.Linear(48, 96), nn.Linear(96, 48)
        self.scale = 1.0

    def mlp(self, x):
        return F.dropout(self.fc2(F.gelu(self.fc1(x))), 0.1, training=self.training)

    def forward(self, x, mask=None, twice=False, **kwargs):
        x = x * 2
        if twice:
            return x + self.mlp(self.norm(x)) * 2
        return x + self.mlp(self.norm(x))


def test_what_another_argument_would_change_is_not_fused():
    block = Block().eval()
    plain = copy.deepcopy(block)
    epilogue.torch.fuse(block)
    for given, fused in (({}, True), ({"mask": X}, True), ({"twice": True}, False), ({"other": 1}, True)):
        torch.testing.assert_close(runs(block, X, fused, **given), plain(X, **given))
    assert "called with twice" in str(epilogue.torch.why(block))
    with torch.no_grad(), pytest.raises(TypeError, match="missing 1 required positional argument"):
        block()


def test_kept_attributes_and_super_work():
    class Keeps(Block):
        def forward(self, x, mask=None, twice=False, **kwargs):
            self.seen = x.shape
            return super().forward(x, mask, twice, **kwargs)

    block = Keeps().eval()
    plain = copy.deepcopy(block)
    epilogue.torch.fuse(block)
    torch.testing.assert_close(runs(block, X, True), plain(X))
    assert block.seen == X.shape


class NotResidual(Block):
    def forward(self, x):
        return x - self.mlp(self.norm(x))


class OtherResidual(Block):
    def forward(self, x):
        h = self.norm(x)
        return h + self.mlp(h)


class NormTwice(Block):
    def forward(self, x):
        x = x + self.norm(x)
        return x + self.mlp(self.norm(x))


class WritesX(Block):
    def forward(self, x):
        x = x * 2
        h = self.norm(x)
        x.mul_(3)
        return x + self.mlp(h)


class Several(Block):
    def forward(self, x):
        return x + self.mlp(self.norm(x)), None


class ReadsOthers(Block):
    def forward(self, x, **kwargs):
        return x + self.mlp(self.norm(x)) * kwargs.get("factor", 1)


class KeepsHidden(Block):
    def forward(self, x):
        self.hidden = self.norm(x)
        return x + self.mlp(self.hidden)


NEAR_MISSES = [NotResidual, OtherResidual, NormTwice, WritesX, Several, ReadsOthers, KeepsHidden]


@pytest.mark.parametrize("kind", NEAR_MISSES)
def test_near_misses_are_not_fused(kind):
    block = kind().eval()
    plain = copy.deepcopy(block)
    epilogue.torch.fuse(block)
    with torch.no_grad():
        torch.testing.assert_close(block(X.clone()), plain(X.clone()))
    assert with_calls(block) == 0


def test_an_unknown_norm_is_told(layer):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.eps = nn.Parameter(torch.ones(48)), 1e-6

        def forward(self, x):
            return self.weight * x / x.abs().mean(-1, keepdim=True)

    layer.post_attention_layernorm = Odd()
    plain = copy.deepcopy(layer)
    epilogue.torch.fuse(layer)
    torch.testing.assert_close(runs(layer, X, False), plain(X))
    assert "Odd is no norm that the engine has" in str(epilogue.torch.why(layer))
