# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend="epilogue")."""

import copy
import gc
import json

import models
import pytest
import torch
import transformers
import zoo
from torch._dynamo.utils import counters

import epilogue.torch
from epilogue.torch import functional


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()


def replaced():
    return counters["epilogue"]["mlps"]


def test_model_gives_what_it_gave(name):
    model = models.build(name)
    given = {"pixel_values": torch.randn(2, 3, 32, 32)} if name == "vit" else {"input_ids": models.ids(9)}
    with torch.no_grad():
        want = model(**given)[0]
        got = torch.compile(model, backend="epilogue")(**given)[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert replaced() == models.LAYERS


def given_to(name, size):
    """Inputs whose number is a dynamic dimension: of tokens, for ViT of images."""
    if name == "vit":
        return {"pixel_values": torch.randn(size, 3, 32, 32)}, 0
    return {"input_ids": models.ids(size)}, 1


@pytest.fixture
def without_inductor(monkeypatch):
    """Runs the graphs as they are: Inductor takes a minute for them."""
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **_: graph.forward)


ANY_SIZE = [(name, "dynamic=True") for name in sorted(models.BUILD)]
ANY_SIZE += [(name, "mark_dynamic") for name in ("bert", "gemma", "gpt2", "vit")]


@pytest.mark.parametrize("name, how", ANY_SIZE)
def test_model_of_any_size(name, how, without_inductor):
    """With dynamic=True the numbers of a model are inputs of the graph: math.pi in GPT-2's activation."""
    model = models.build(name)
    compiled = torch.compile(model, backend="epilogue", dynamic=True if how == "dynamic=True" else None)
    with torch.no_grad():
        for size in (5, 9):
            given, dimension = given_to(name, size)
            want = model(**given)[0]
            if how == "mark_dynamic":
                torch._dynamo.mark_dynamic(*given.values(), dimension)
            torch.testing.assert_close(compiled(**given)[0], want, rtol=1e-4, atol=1e-5)
    counts = dict(counters["epilogue"])
    assert counts.pop("computed once", 2) == 2  # of rotary embeddings
    assert counts == {"mlps": models.LAYERS, "graphs": 1}


def test_gpt2_of_any_size_by_inductor():
    mlp = models.mlp_of(models.build("gpt2"), "gpt2")[0]
    compiled = torch.compile(mlp, backend="epilogue", dynamic=True, fullgraph=True)
    with torch.no_grad():
        for rows in (3, 8):
            x = torch.randn(1, rows, 48)
            torch.testing.assert_close(compiled(x), mlp(x), rtol=1e-4, atol=1e-5)
    assert counters["epilogue"] == {"mlps": 1, "graphs": 1}


@pytest.mark.parametrize("name", ["deepseek_v3", "falcon_bias", "opt", "whisper"])
def test_other_models(name, without_inductor):
    """DeepSeek's attention writes in place, by nodes that have no users; Falcon's layers are x @ weight.T.

    Of DeepSeek, fuse() takes the experts too; a model that was not fused has them as Inductor's.
    """
    entry, model = zoo.ZOO[name], zoo.build(name)
    given = zoo.inputs(entry.takes)
    want = zoo.result(model, given)
    torch.testing.assert_close(zoo.result(torch.compile(model, backend="epilogue"), given), want, rtol=1e-4, atol=1e-5)
    assert replaced() == entry.fused - (name == "deepseek_v3")


WRITES = {
    "setitem": lambda t: t.__setitem__(0, 0.5),
    "method": lambda t: t.add_(1.0),
    "out=": lambda t: torch.tanh(t, out=t),
    "inplace=True": lambda t: torch.nn.functional.relu(t, inplace=True),
}


class Writing(torch.nn.Module):
    """`where`: before the MLP, between its layers, or after it."""

    def __init__(self, write, where):
        super().__init__()
        self.fc1, self.fc2, self.write, self.where = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), write, where

    def forward(self, x):
        x, other = x * 1.0, x * 2.0
        if self.where == "before":
            self.write(other[0])
        gate = torch.nn.functional.gelu(self.fc1(x))
        if self.where == "between":
            self.write(x)
        y = self.fc2(gate)
        if self.where == "after":
            self.write(y)
        return y + other + x


@pytest.mark.parametrize("where", ["before", "between", "after"])
@pytest.mark.parametrize("write", sorted(WRITES))
def test_writes_in_place_stay(write, where, without_inductor):
    module = Writing(WRITES[write], where)
    x = torch.randn(3, 8)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(module, backend="epilogue", fullgraph=True)(x), module(x))
    assert replaced() == (0 if where == "between" else 1)


class Swish(torch.nn.Module):
    """SiLU where beta is 1."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.beta = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), 0.5

    def forward(self, x, scale=2.0):
        h = self.fc1(x)
        return self.fc2(h * torch.sigmoid(self.beta * scale * h))


def test_numbers_of_an_activation_are_guarded(without_inductor):
    mlp = Swish()
    compiled = torch.compile(mlp, backend="epilogue", dynamic=True)
    x = torch.randn(3, 8)
    seen = []
    with torch.no_grad():
        # SiLU; near it; the graph of the last serves others too.
        for beta, scale in ((0.5, 2.0), (0.5, 2.001), (0.7, 2.0), (0.25, 4.0), (0.5, 2.0)):
            mlp.beta = beta
            torch.testing.assert_close(compiled(x, scale), mlp(x, scale), rtol=1e-6, atol=1e-6)
            seen.append((replaced(), counters["epilogue"]["graphs"]))
    assert seen == [(1, 1)] + [(1, 2)] * 4


def test_a_number_that_is_read_from_a_tensor_is_no_constant(without_inductor):
    mlp = Swish()
    with torch._dynamo.config.patch(capture_scalar_outputs=True), torch.no_grad():
        compiled = torch.compile(lambda x, s: mlp(x, s.item()), backend="epilogue", dynamic=True)
        x, scale = torch.randn(3, 8), torch.tensor(2.0)
        torch.testing.assert_close(compiled(x, scale), mlp(x, 2.0))
        torch.testing.assert_close(compiled(x, scale * 2), mlp(x, 4.0))
    assert counters["epilogue"] == {"mlps": 0, "graphs": 1}


@pytest.mark.parametrize("products", ["torch", "engine"])
@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_training_and_then_eval(name, products, monkeypatch):
    monkeypatch.setattr("epilogue.torch.backend.products_of", lambda _: products)
    mlp = models.mlp_of(models.build(name), name)[0].eval()
    plain = copy.deepcopy(mlp)
    compiled = torch.compile(mlp, backend="epilogue", options={"training": "always"})
    x = torch.randn(5, 48)
    for fused in (False, True):
        for module, call in ((mlp, compiled), (plain, plain)):
            optimizer = torch.optim.AdamW(module.parameters(), 1e-2, fused=fused)
            for _ in range(3):
                call(x).square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), plain(x), rtol=1e-3, atol=1e-4)
    assert replaced() == 2  # the graph with gradients, the graph without


def gradients(call, module, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(call(leaf).square().sum(), [leaf, *module.parameters()])


@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
@pytest.mark.parametrize("products", ["torch", "engine"])
def test_gradients_of_any_rows(name, products, monkeypatch):
    monkeypatch.setattr("epilogue.torch.backend.products_of", lambda _: products)
    mlp = models.mlp_of(models.build(name), name)[0]
    compiled = torch.compile(mlp, backend="epilogue", fullgraph=True, options={"training": "always"})
    for rows in (3, 8, 17):
        x = torch.randn(2, rows, 48)
        for got, want in zip(gradients(compiled, mlp, x), gradients(mlp, mlp, x)):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert replaced() == 2  # a graph for 3 rows, then one for any number


def products_that_ran(call):
    """How many matrix products of PyTorch and of the engine a call makes."""
    with torch.profiler.profile() as profile:
        call()
    counts = {e.key: e.count for e in profile.key_averages()}
    of_engine = [f"epilogue::product{what}" for what in ("", "_hidden", "_gradients")]
    return tuple(sum(counts.get(k, 0) for k in names) for names in (("aten::mm", "aten::addmm"), of_engine))


@pytest.mark.parametrize("products", ["torch", "engine"])
def test_training_makes_no_more_products_than_pytorch(products, monkeypatch):
    monkeypatch.setattr("epilogue.torch.backend.products_of", lambda _: products)
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    compiled = torch.compile(mlp, backend="epilogue", options={"training": "always"})
    x = torch.randn(5, 48)
    gradients(compiled, mlp, x)
    assert products_that_ran(lambda: gradients(compiled, mlp, x)) == ((9, 0) if products == "torch" else (0, 9))


def test_who_trains_fused_by_default(monkeypatch):
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    x = torch.randn(5, 48)
    want = gradients(mlp, mlp, x)

    def run(products, **options):
        torch._dynamo.reset()
        counters.clear()
        monkeypatch.setattr("epilogue.torch.training.products_of", lambda _: products)
        monkeypatch.setattr("epilogue.torch.backend.products_of", lambda _: products)
        for a, b in zip(gradients(torch.compile(mlp, backend="epilogue", options=options), mlp, x), want):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        return replaced(), " ".join(counters["epilogue"])

    count, words = run("torch")
    assert count == 0 and "tune='measure' times both" in words
    assert run("engine")[0] == 1
    assert run("torch", training="always")[0] == 1
    count, words = run("engine", training=False)
    assert count == 0 and "training=False" in words


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_by_measurement(name, trains, tmp_path, monkeypatch):
    from epilogue.torch import choose

    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    mlp = models.mlp_of(models.build(name), name)[0]
    x = torch.randn(2, 3, 48)

    def run(m):
        if trains:
            return gradients(m, mlp, x)
        with torch.no_grad():
            return [m(x)]

    want = run(mlp)
    keys = []
    for choice, count in ((None, None), ("own", 0), ("engine", 1)):  # the clock's, then the file's
        torch._dynamo.reset()
        counters.clear()
        if choice is not None:
            (file,) = tmp_path.iterdir()
            file.write_text(json.dumps({key: choice for key in keys}))
            choose.forget()
        for a, b in zip(run(torch.compile(mlp, backend="epilogue", options={"tune": "measure"})), want):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        keys = list(json.loads(next(tmp_path.iterdir()).read_text()))
        assert len(keys) == 1 and keys[0].endswith("| training") == trains
        if choice is not None:
            assert replaced() == count and counters["epilogue"]["PyTorch is faster (measured)"] == 1 - count
    choose.forget()


class TwoOfOneInput(torch.nn.Module):
    """Two layers of one input, the second of fewer elements than gain alone."""

    def __init__(self):
        super().__init__()
        self.q, self.k = torch.nn.Linear(512, 512), torch.nn.Linear(512, 128)

    def forward(self, x):
        return self.q(x), self.k(x)


@pytest.mark.parametrize("slow, rows, count", [(True, 1, 2), (True, 70, 2), (False, 1, 0), (False, 70, 0)])
def test_linears_of_f32_where_mkl_is_slow(slow, rows, count, request):
    if slow:
        request.getfixturevalue("slow_mkl")
    model, x = TwoOfOneInput().eval(), torch.randn(rows, 512)
    with torch.no_grad():
        for got, want in zip(torch.compile(model, backend="epilogue")(x), model(x)):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert counters["epilogue"]["linears"] == count
        torch._dynamo.reset()
        counters.clear()
        torch.compile(model.k, backend="epilogue")(x)
    assert counters["epilogue"]["linears"] == 0


@pytest.mark.parametrize("name", ["llama_bias", "gpt2", "phi3"])
def test_frozen_mlps_of_many_rows_in_f32_are_the_faster_ones(name, tmp_path, monkeypatch):
    """Inductor packs frozen weights by MKL, whose products may be as fast: the clock says, without being asked."""
    from epilogue.torch import choose

    if not torch._C.has_mkl:
        pytest.skip("this torch has no MKL")
    monkeypatch.setenv("EPILOGUE_CACHE_DIR", str(tmp_path))
    choose.forget()
    mlp = models.mlp_of(models.build(name), name)[0]
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        for rows in (5, 20):  # of two: few are the engine's in any case
            x = torch.randn(2, rows, 48)
            for choice, count in ((None, None), ("own", 0), ("engine", 1)):
                torch._dynamo.reset()
                counters.clear()
                if choice is not None and rows == 20:
                    (file,) = tmp_path.iterdir()
                    keys = list(json.loads(file.read_text()))
                    assert len(keys) == 1 and keys[0].endswith("| frozen")
                    file.write_text(json.dumps({keys[0]: choice}))
                    choose.forget()
                torch.testing.assert_close(torch.compile(mlp, backend="epilogue")(x), mlp(x), rtol=1e-4, atol=1e-5)
                if rows == 5:
                    assert replaced() == 1 and not list(tmp_path.iterdir())
                elif count is not None:
                    assert replaced() == count and counters["epilogue"]["PyTorch is faster (measured)"] == 1 - count
    choose.forget()


def test_options_and_modes_of_inductor():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    x = torch.randn(3, 48)
    with torch.no_grad():
        for given in ({"mode": "max-autotune-no-cudagraphs"}, {"options": {"max_autotune": True, "training": "always"}}):
            torch._dynamo.reset()
            torch.testing.assert_close(torch.compile(mlp, backend="epilogue", **given)(x), mlp(x), rtol=1e-4, atol=1e-5)
    assert replaced() == 2
    for wrong, words in (({"training": "never"}, "'always', not 'never'"), ({"tune": "fast"}, "'model' or 'measure', not 'fast'")):
        torch._dynamo.reset()
        with pytest.raises(Exception, match=words):
            torch.compile(mlp, backend="epilogue", options=wrong)(x)


def test_rows_may_change_and_weights_too():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    compiled = torch.compile(mlp, backend="epilogue", dynamic=True, fullgraph=True)
    with torch.no_grad():
        for rows in (3, 8, 17):
            x = torch.randn(rows, 48)
            torch.testing.assert_close(compiled(x), mlp(x), rtol=1e-4, atol=1e-5)
            mlp.up_proj.weight.add_(0.01)
    assert replaced() == 1


def test_what_does_not_match_is_inductors():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    x = torch.randn(3, 48)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(torch.compile(mlp, backend="epilogue")(x), mlp(x), rtol=2e-2, atol=2e-2)
    torch._dynamo.reset()
    double = copy.deepcopy(mlp).double()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(double, backend="epilogue")(x.double()), double(x.double()))
    torch._dynamo.reset()
    mlp.up_proj.register_forward_hook(lambda m, args, out: torch.tanh(out))
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(mlp, backend="epilogue")(x), mlp(x))
    assert replaced() == 0


def test_a_fused_module_compiles_as_its_own_forward():
    mlp = models.mlp_of(models.build("llama"), "llama")[0]
    x = torch.randn(3, 48)
    with torch.no_grad():
        want = mlp(x)
        epilogue.torch.fuse(mlp)
        torch.testing.assert_close(torch.compile(mlp, fullgraph=True)(x), want)
        assert epilogue.torch.why(mlp).fused_calls == 0
        torch.testing.assert_close(torch.compile(mlp, fullgraph=True, backend="epilogue")(x), want)
    assert replaced() == 1


class Projections(torch.nn.Module):
    """Layers of one input, one of what they give, and Conv1D; wide enough to count."""

    def __init__(self, dtype):
        super().__init__()
        self.q, self.k = torch.nn.Linear(264, 264, dtype=dtype), torch.nn.Linear(264, 256, bias=False, dtype=dtype)
        self.out = transformers.pytorch_utils.Conv1D(264, 264).to(dtype)
        self.small = torch.nn.Linear(264, 8, dtype=dtype)

    def forward(self, x, write=False):
        q = self.q(x)
        if write:
            x.mul_(2)
        return torch.cat((self.out(torch.tanh(q)), self.k(x), self.small(x)), -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_linear_layers_run_with_packed_weights(dtype):
    counters.clear()
    module = Projections(dtype).eval()
    compiled = torch.compile(module, backend="epilogue", options={"linears": "always"})
    exact = copy.deepcopy(module).double()
    for rows in (5, 5):
        x = torch.randn(2, rows, 264).to(dtype)
        with torch.no_grad():
            got, own_result, want = compiled(x), module(x), exact(x.double())
        off, eager = (((t.double() - want).norm() / want.norm()).item() for t in (got, own_result))
        assert off <= 1.05 * eager + (1e-7 if dtype is torch.float32 else 0)
    assert counters["epilogue"]["linears"] == 4 and counters["epilogue"]["mlps"] == 0
    with torch.no_grad():  # not stale
        module.q.weight.mul_(1.5)
        tolerance = 5e-2 if dtype is torch.bfloat16 else 1e-4
        torch.testing.assert_close(compiled(x), module(x), rtol=tolerance, atol=tolerance)


def test_linear_layers_around_a_write_and_which_stay():
    counters.clear()
    module = Projections(torch.float32).eval()
    x = torch.randn(3, 264)
    with torch.no_grad():
        want = module(x.clone(), True)
        got = torch.compile(module, backend="epilogue", options={"linears": "always"})(x.clone(), True)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert counters["epilogue"]["linears"] == 4
    for options, count in (({"linears": False}, 0), ({}, 3)):  # 3 rows of f32 gain, small layers do not
        torch._dynamo.reset()
        counters.clear()
        with torch.no_grad():
            torch.compile(module, backend="epilogue", options=options)(x)
        assert counters["epilogue"]["linears"] == count
    torch._dynamo.reset()
    with pytest.raises(Exception, match="linears is False, True or 'always'"):
        torch.compile(module, backend="epilogue", options={"linears": 3})(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_linear_layers_with_gradients(dtype):
    counters.clear()
    module = Projections(dtype)
    compiled = torch.compile(module, backend="epilogue", options={"training": "always"})
    exact = copy.deepcopy(module).double()
    x, dy = torch.randn(7, 264).to(dtype), torch.randn(7, 528).to(dtype)

    def gradients(run, of, x, dy):
        of.zero_grad()
        leaf = x.detach().requires_grad_()
        run(leaf).backward(dy)
        return [leaf.grad, *(p.grad.clone() for p in of.parameters())]

    want = gradients(exact, exact, x.double(), dy.double())
    own, got = gradients(module, module, x, dy), gradients(compiled, module, x, dy)
    assert counters["epilogue"]["linears"] == 3
    for g, o, w in zip(got, own, want):
        off, eager = (((t.double() - w).norm() / w.norm()).item() for t in (g, o))
        assert off <= 1.05 * eager + (1e-7 if dtype is torch.float32 else 0)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_linear_layers_of_a_frozen_graph(name):
    """Weights are attributes of the graph then, each right before its layer (those of k and v behind q's), and a head's that
    is the embedding's before that."""
    model = models.build(name)
    if name == "llama":
        model.lm_head.weight = model.model.embed_tokens.weight
    given = models.ids(3)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        compiled = torch.compile(model, backend="epilogue", options={"linears": "always", "freezing": True})
        torch.testing.assert_close(compiled(given)[0], model(given)[0], rtol=1e-4, atol=1e-5)
    assert replaced() == models.LAYERS and counters["epilogue"]["linears"] >= 4 * models.LAYERS + (name == "llama")


def test_packed_weights_go_with_the_model(without_inductor):
    functional.clear()
    before = torch.ops.epilogue.handles()
    module = Projections(torch.float32).eval()
    x = torch.randn(3, 264)
    compiled = torch.compile(module, backend="epilogue", options={"linears": "always"})
    with torch.no_grad():
        want = module(x)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), want, rtol=1e-4, atol=1e-5)
    assert torch.ops.epilogue.handles() == before + 2  # q, k and small are one
    del module, compiled
    torch._dynamo.reset()
    gc.collect()
    assert torch.ops.epilogue.handles() == before


def test_weights_that_were_made_in_inference_mode(without_inductor):
    with torch.inference_mode():
        module = Projections(torch.float32).eval()
        x = torch.randn(3, 264)
        compiled = torch.compile(module, backend="epilogue", options={"linears": "always"})
        for _ in range(2):
            torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)
            module.q.weight.mul_(1.5)  # without a version
