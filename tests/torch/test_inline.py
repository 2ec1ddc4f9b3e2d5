# SPDX-License-Identifier: Apache-2.0
"""MLPs in the midst of a forward that does more, linear layers and dropout that are spelled in other ways."""

import copy

import models
import pytest
import torch
import torch.nn.functional as F
import zoo
from torch import nn

import epilogue.torch


class Layer(nn.Module):
    """Adds its input, and gives two values."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 8)
        self.other, self.dropout = nn.Linear(8, 8), dropout

    def forward(self, x, residual=None):
        h = self.act(self.fc1(x))
        h = F.dropout(h, self.dropout, training=self.training)
        y = F.dropout(self.fc2(h), self.dropout, training=self.training)
        return x * 2 + y, self.other(x)


X = torch.randn(3, 8)


def check(module, fused, *args, plain=None):
    """module(*args), checking whether it ran fused and gives what the unfused one gives."""
    plain = plain or epilogue.torch.unfuse(copy.deepcopy(module))
    before = epilogue.torch.why(module).fused_calls
    with torch.no_grad():
        torch.testing.assert_close(module(*args), plain(*args))
    assert epilogue.torch.why(module).fused_calls - before == (1 if fused else 0), str(epilogue.torch.why(module))


@pytest.fixture
def layer():
    return epilogue.torch.fuse(Layer().eval())


def test_it_runs_with_all_that_is_around(layer):
    check(layer, True, X)
    with torch.no_grad():
        layer.fc2.weight.mul_(2)  # not stale
    check(layer, True, X)
    for how in ("deepcopy", "pickle"):
        check(models.copied(layer, how), True, X)
    assert "plain MLP, gelu: fc1, fc2" in str(epilogue.torch.why(layer))
    epilogue.torch.unfuse(layer)
    assert type(layer) is Layer and not epilogue.torch.why(layer).fused
    assert "fuse() was not called" in str(epilogue.torch.why(layer))


def test_when_its_own_forward_runs(layer):
    layer.train()
    torch.manual_seed(1)
    got = layer(X)[0]
    torch.manual_seed(1)
    torch.testing.assert_close(got, epilogue.torch.unfuse(copy.deepcopy(layer))(X)[0])
    layer.eval()
    layer(X)  # gradients are wanted
    assert epilogue.torch.why(layer).fused_calls == 0 and "no fused backward pass" in str(epilogue.torch.why(layer))
    for child in (layer.fc1, layer.act, layer.fc2):
        hook = child.register_forward_hook(lambda m, args, out: out * 0.5)
        check(layer, False, X)
        hook.remove()
    layer.act.train()  # a part alone
    check(layer, False, X)
    layer.act.eval()
    layer.act = nn.Tanh()
    check(layer, False, X)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(layer, dtype):
    with torch.autocast("cpu", dtype=dtype), torch.no_grad():
        got = layer(X)[0]
        want = epilogue.torch.unfuse(copy.deepcopy(layer))(X)[0]
    assert got.dtype == want.dtype and epilogue.torch.why(layer).fused_calls == 1
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_torch_compile_sees_its_own_forward(layer):
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), epilogue.torch.unfuse(copy.deepcopy(layer))(X))
    assert epilogue.torch.why(layer).fused_calls == 0


@pytest.mark.parametrize("name", ["opt", "deberta_v2"])
def test_an_adapter_runs_as_itself(name):
    peft = pytest.importorskip("peft")
    model = zoo.build(name)
    given = zoo.inputs("ids")
    epilogue.torch.fuse(model)
    want = zoo.result(model, given)
    targets = ["fc2"] if name == "opt" else ["output.dense"]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False)).eval()
    before = epilogue.torch.why(model).fused_calls
    got = zoo.result(adapted, given)
    assert epilogue.torch.why(model).fused_calls == before
    torch.testing.assert_close(got, zoo.result(epilogue.torch.unfuse(adapted), given))
    assert not torch.allclose(got, want)


class Kept(Layer):
    def forward(self, x):
        self.hidden = self.act(self.fc1(x))
        return self.fc2(self.hidden)


class KeptAround(Kept):
    def forward(self, x):
        return super().forward(x), x


class Read(Layer):
    def forward(self, x):
        h = self.fc1(x)
        return self.fc2(self.act(h)) + h.mean(), x


class Twice(Layer):
    def forward(self, x):
        y = self.fc2(self.act(self.fc1(x)))
        return y, self.fc2(self.act(self.fc1(y)))


class Again(Layer):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))), self.act(x)


class Asks(Layer):
    def forward(self, x):
        return (self.fc2(self.act(self.fc1(x))) if x.dtype is torch.float32 else x), x


@pytest.mark.parametrize("kind", [Kept, KeptAround, Read, Twice, Again, Asks])
def test_what_is_read_elsewhere_is_not_fused(kind):
    module = epilogue.torch.fuse(kind().eval())
    report = epilogue.torch.why(module)
    assert not report.fused and len(report.rows) == 1, str(report)


class Chooses(Layer):
    def forward(self, x, twice=False):
        h = self.act(self.fc1(x))
        return self.fc2(h), (h if twice else x)


def test_an_argument_that_leads_elsewhere():
    module = epilogue.torch.fuse(Chooses().eval())
    check(module, True, X)
    check(module, False, X, True)
    assert "called with twice" in str(epilogue.torch.why(module))


def test_a_dtype_for_which_the_layer_does_something_else():
    """BART clamps results in f16, if it finds one that is not finite."""
    layers = {}
    for dtype, calls in ((torch.float32, 1), (torch.bfloat16, 1), (torch.float16, 0)):
        layer = zoo.build("bart").model.encoder.layers[0].to(dtype)
        plain, x = copy.deepcopy(layer), torch.randn(1, 5, 48).to(dtype)
        epilogue.torch.fuse(layer)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, None), plain(x, None), rtol=2e-2, atol=2e-2)
        layers[dtype] = epilogue.torch.why(layer)
        assert layers[dtype].fused_calls == calls
    assert "with torch.float16 the layer does something else" in str(layers[torch.float16])


class Respelled(nn.Linear):
    def forward(self, input):
        y = torch.matmul(input, self.weight.t())
        return y if self.bias is None else self.bias + y


class Doubled(nn.Linear):
    def forward(self, input):
        return F.linear(input, self.weight, self.bias) * 2


class Masked(nn.Linear):
    """A product, for as long as its mask is None."""

    mask = None

    def forward(self, input):
        return F.linear(input, self.weight if self.mask is None else self.weight * self.mask, self.bias)


class Scaled(nn.Linear):
    """The same of its instance."""

    def forward(self, input):
        return F.linear(input, self.weight, self.bias) if not hasattr(self, "scale") else input


class Adapted(nn.Linear):
    """An adapter that begins as nothing."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.more = nn.Parameter(torch.zeros(sizes[1], sizes[0]))

    def forward(self, input):
        return F.linear(input, self.weight + self.more, self.bias)


@pytest.mark.parametrize("kind, fused", [(Respelled, True), (Doubled, False), (Masked, False), (Scaled, False), (Adapted, False)])
def test_classes_derived_of_linear(kind, fused):
    module = nn.Sequential(kind(8, 24), nn.ReLU(), kind(24, 8)).eval()
    plain = copy.deepcopy(module)
    epilogue.torch.fuse(module)
    with torch.no_grad():
        torch.testing.assert_close(module(X), plain(X))
    assert len(epilogue.torch.why(module).fused) == epilogue.torch.why(module).fused_calls == (1 if fused else 0)


class Starcoder(Layer):
    def forward(self, x):
        return F.dropout(self.fc2(self.act(self.fc1(x))), p=self.dropout, training=self.training)


class Noisy(Layer):
    def forward(self, x):
        y = self.fc2(self.act(self.fc1(x)))
        return y + 1 if self.training else y


@pytest.mark.parametrize("mode", [False, True], ids=["fused in eval mode", "fused in training mode"])
@pytest.mark.parametrize("kind", [Starcoder, Noisy])
def test_what_training_mode_does_besides(kind, mode):
    module = kind().train(mode)
    plain = copy.deepcopy(module)
    epilogue.torch.fuse(module)
    check(module.eval(), True, X, plain=plain.eval())
    for m in (module, plain):
        m.train()
    torch.manual_seed(1)
    with torch.no_grad():
        got = module(X)
    torch.manual_seed(1)
    torch.testing.assert_close(got, plain(X))
    report = epilogue.torch.why(module)
    assert report.fused_calls == 1 and "in training mode" in str(report)


def test_no_module_with_parameters_is_called_to_match():
    class Never(nn.Linear):
        def forward(self, input):
            raise AssertionError("called")

    module = nn.Sequential(nn.Linear(8, 24), Never(24, 24), nn.Linear(24, 8))
    calls = []
    module[1].register_forward_pre_hook(lambda *_: calls.append(1))
    assert not epilogue.torch.why(epilogue.torch.fuse(module)).fused and not calls


def test_layers_that_do_nothing_are_passed():
    module = nn.Sequential(nn.Identity(), nn.Linear(8, 24), nn.SiLU(), nn.Identity(), nn.Linear(24, 8), nn.Identity()).eval()
    check(epilogue.torch.fuse(module), True, X)
    module[3] = nn.Tanh()
    check(module, False, X)
