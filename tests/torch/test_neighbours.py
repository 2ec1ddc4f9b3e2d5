# SPDX-License-Identifier: Apache-2.0
"""What torch.compile(..., backend="epilogue") makes of attention's masks, of rotary embeddings and of patches."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

import epilogue.torch  # noqa: F401  (registers the backend)
from epilogue.torch.linear_state import gains_always


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)


def graphs_of(monkeypatch):
    """The graphs as Inductor would get them."""
    graphs = []
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda g, inputs, **_: (graphs.append(g), g.forward)[1])
    return graphs


def targets(graph_module):
    return [n.target for n in graph_module.graph.nodes]


def compiled(function, **options):
    return torch.compile(function, backend="epilogue", options={"attention": "always", "linears": "always", **options})


class Masked(nn.Module):
    """A causal mask within documents, as transformers makes it."""

    def forward(self, x, documents, seen=None, stale=False):
        b, n, _ = x.shape
        q = torch.arange(n)[None, None, :, None]
        k = torch.arange(n)[None, None, None, :]
        mask = torch.ones((), dtype=torch.bool) & (k <= q)
        if stale:
            documents += 1 - documents[:, :1]
        mask = mask & (documents[:, None, :, None] == documents[:, None, None, :]).to("cpu")
        if seen is not None:
            mask = mask & seen
        mask = mask.expand(b, 1, n, n)
        heads = [t.view(b, n, 2, 16).transpose(1, 2) for t in x.chunk(3, -1)]
        return F.scaled_dot_product_attention(*heads, attn_mask=mask).transpose(1, 2)


def documents_of(batch, rows):
    return (torch.arange(rows) // 50)[None].repeat(batch, 1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("seen", [False, True], ids=["comparisons", "with a mask"])
def test_masks_of_comparisons_are_pytorchs_own(batch, seen):
    x, documents = torch.randn(batch, 160, 96), documents_of(batch, 160)
    given = (x, documents) + ((torch.rand(160, 160) < 0.8) | torch.eye(160, dtype=torch.bool),) * seen
    with torch.no_grad():
        torch.testing.assert_close(compiled(Masked())(*given), Masked()(*given), rtol=1e-4, atol=1e-5)
    assert (counters["epilogue"]["attention"], counters["epilogue"]["masks"]) == (1, 1)


def test_the_mask_is_one_op_for_all_layers(monkeypatch):
    graphs = graphs_of(monkeypatch)
    documents = documents_of(1, 160)

    def model(x):
        n = x.shape[1]
        mask = (torch.arange(n)[None, :] <= torch.arange(n)[:, None]) & (documents[:, :, None] == documents[:, None, :])
        for _ in range(3):
            x = F.scaled_dot_product_attention(*(x[:, None],) * 3, attn_mask=mask[:, None])[:, 0]
        return x

    x = torch.randn(1, 160, 16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-4, atol=1e-5)
    assert targets(graphs[0]).count(torch.ops.epilogue.mask.default) == 1


def test_masks_that_stay():
    x = torch.randn(1, 20, 96)  # 400 elements: an op's call takes as long
    with torch.no_grad():
        compiled(Masked())(x, documents_of(1, 20))
        assert "masks" not in counters["epilogue"] and counters["epilogue"]["attention"] == 1
        torch._dynamo.reset()
        # A write between comparison and mask.
        x = torch.randn(1, 160, 96)
        own, other = documents_of(1, 160), documents_of(1, 160)
        torch.testing.assert_close(
            compiled(Masked())(x, own, None, True), Masked()(x, other, None, True), rtol=1e-4, atol=1e-5
        )
        assert "masks" not in counters["epilogue"]
        torch.testing.assert_close(own, other)


def test_masks_of_other_sizes_make_no_graph_for_each():
    step = torch.compile(Masked(), backend="epilogue", options={"attention": "always"}, dynamic=True)
    with torch.no_grad():
        for rows in (160, 200, 331):
            x, documents = torch.randn(2, rows, 96), documents_of(2, rows)
            torch.testing.assert_close(step(x, documents), Masked()(x, documents), rtol=1e-4, atol=1e-5)
    assert counters["epilogue"]["graphs"] == 1 and counters["epilogue"]["masks"] == 1


def test_the_mask_op():
    n = 7
    a, b = torch.arange(n)[:, None], torch.arange(n)[None]
    rows = torch.rand(3, 1, n) < 0.5
    want = (a >= b) & (a != 3) & rows
    got = torch.ops.epilogue.mask([a, b, a, torch.tensor(3)], "ge ne", [rows])
    assert got.dtype is torch.bool and torch.equal(got, want)
    assert torch.equal(torch.ops.epilogue.mask([], "", [rows, a > b]), rows & (a > b))
    torch.library.opcheck(torch.ops.epilogue.mask.default, ([a, b], "le", [rows]))


class Rotary(nn.Module):
    def forward(self, x):
        n = x.shape[1]
        angles = torch.arange(n, dtype=torch.float32)[:, None] * (0.1 ** torch.arange(8))[None]
        angles = torch.cat((angles, angles), -1)[None]
        cos, sin = (t.to(x.dtype).unsqueeze(1) for t in ((angles.cos() * 1.0), (angles.sin() * 1.0)))
        heads = x.view(x.shape[0], n, -1, 16).transpose(1, 2)
        left, right = heads[..., :8], heads[..., 8:]
        return heads * cos + torch.cat((-right, left), -1) * sin


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_waves_that_heads_share_are_computed_once(dtype):
    x = torch.randn(2, 40, 128).to(dtype)
    with torch.no_grad():
        want = Rotary()(x)
        torch.testing.assert_close(compiled(Rotary())(x), want, rtol=1.6e-2, atol=1.6e-2 if dtype is torch.bfloat16 else 1e-5)
    assert counters["epilogue"]["computed once"] == 2


def test_waves_that_are_read_once_stay_inductors():
    layer = nn.Linear(24, 24)
    with torch.no_grad():
        compiled(lambda x: torch.sin(x) * 2 + torch.cos(x))(torch.randn(40, 24))
        compiled(lambda x: layer(torch.sin(x)))(torch.randn(40, 24))
    assert "computed once" not in counters["epilogue"]
    x = torch.randn(2, 40, 128, requires_grad=True)
    compiled(Rotary())(x).sum().backward()
    assert "computed once" not in counters["epilogue"] and x.grad is not None
    torch.library.opcheck(torch.ops.epilogue.once.default, (torch.randn(3, 4).t(),))


class Patches(nn.Module):
    def __init__(self, channels=3, outputs=20, size=8, bias=True, **given):
        super().__init__()
        self.cut = nn.Conv2d(channels, outputs, size, **{"stride": size, "bias": bias, **given})

    def forward(self, x):
        return self.cut(x).flatten(2).transpose(1, 2)


def relative(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [8, (8, 16), 14])
@pytest.mark.parametrize("bias", [True, False])
def test_patches_are_a_linear_layer(dtype, size, bias):
    height, width = size if isinstance(size, tuple) else (size, size)
    model = Patches(size=size, bias=bias).to(dtype).eval()
    x = torch.randn(2, 3, 3 * height, 5 * width).to(dtype)
    with torch.no_grad():
        got, eager = compiled(model)(x), model(x)
        want = model.double()(x.double())
    assert counters["epilogue"]["patches"] == 1 and got.shape == eager.shape
    assert relative(got, want) <= 1.05 * relative(eager, want) + 1e-7


def test_the_image_may_have_any_strides_and_its_convolution_any_reader():
    model = Patches().eval()
    x = torch.randn(2, 3, 24, 16).to(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(compiled(lambda t: model.cut(t).relu() + 1)(x), model.cut(x).relu() + 1, rtol=1e-4, atol=1e-5)
    assert counters["epilogue"]["patches"] == 2


@pytest.mark.parametrize("given, sizes", [
    ({"stride": 4}, (24, 24)), ({"padding": 4}, (24, 24)), ({"dilation": 2}, (32, 32)), ({"padding": "valid"}, (24, 24)),
    ({}, (25, 24)), ({"size": 1}, (8, 8)), ({"groups": 3, "outputs": 21}, (24, 24)),
], ids=str)  # fmt: skip
def test_other_convolutions_stay(given, sizes):
    model = Patches(**given).eval()
    x = torch.randn(1, 3, *sizes)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=1e-4, atol=1e-5)
    taken = given == {"size": 1}
    assert counters["epilogue"]["patches"] == (1 if taken else 0)


def test_by_default_where_patches_gain():
    x = torch.randn(1, 3, 32, 32, dtype=torch.bfloat16)
    with torch.no_grad():
        torch.compile(Patches(size=4).bfloat16(), backend="epilogue")(x)  # narrow: gathering costs more
        assert "patches" not in counters["epilogue"]
        torch.compile(Patches(size=16).bfloat16(), backend="epilogue")(x)
    assert counters["epilogue"]["patches"] == (1 if gains_always(torch.bfloat16, 0) else 0)
    trained = Patches(size=16).bfloat16()
    torch.compile(trained, backend="epilogue")(x).sum().backward()
    assert trained.cut.weight.grad is not None and counters["epilogue"]["patches"] <= 1


def test_a_graph_of_patches_alone_is_made_anew(monkeypatch):
    graphs = graphs_of(monkeypatch)
    with torch.no_grad():
        compiled(nn.Conv2d(3, 20, 8, 8))(torch.randn(1, 3, 16, 16))
    assert "epilogue.linears" in graphs[0].code
