# SPDX-License-Identifier: Apache-2.0
"""Layers of one new token that are computed with the layer before: the same bits, and only where each is called so."""

import copy
import gc
import os
import threading
import weakref

import models
import pytest
import torch
import transformers as t
from torch import nn

import epilogue.torch
from epilogue.torch import decoded_ahead, decoded_layer, decoded_plan

LAYERS = 4
STEPS = 12


def _fused(kind="llama", **options):
    return epilogue.torch.fuse(models.build(kind, num_hidden_layers=LAYERS, **options), linears="always")


def _layers(model):
    return next(m for m in model.modules() if isinstance(m, nn.ModuleList))


def _ahead(model):
    return epilogue.torch.why(model).decoded_ahead


def _offers(model):
    return sum(layer.__dict__[decoded_layer.STATE].links.offers for layer in _layers(model) if decoded_layer.STATE in layer.__dict__)


def _due(model):
    return [due for layer in _layers(model) for due in layer.__dict__[decoded_layer.STATE].links.due.values()]


class _Steps:
    """Steps of one token each behind a prompt: a model's, and those of a copy that runs single ops."""

    def __init__(self, model):
        with torch.inference_mode(False):  # where parameters have no version
            self.each = [model, models.apart(model)]
        self.caches = [t.DynamicCache(config=model.config) for _ in self.each]
        self.tokens = 0
        self(5)
        self.warm()

    def warm(self, steps=8):
        for _ in range(steps):
            self()

    def __call__(self, rows=1, caches=True):
        outs = []
        ids = torch.arange(self.tokens, self.tokens + rows)[None] % 60
        self.tokens += rows
        for model, cache in zip(self.each, self.caches):
            out = model(ids, cache=cache, use_cache=True)
            outs.append(out if isinstance(out, torch.Tensor) else out.logits)
        for x, y in zip(*(cache.layers for cache in self.caches)) if caches else ():
            assert x.get_seq_length() == y.get_seq_length() == 0 or torch.equal(x.keys, y.keys) and torch.equal(x.values, y.values)
        assert torch.equal(*outs)

    def change(self, do):
        for model in self.each:
            do(model)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3"])
def test_all_layers_behind_the_first_are_computed_with_it(kind, mode):
    model = _fused(kind)
    with mode():
        steps = _Steps(model)
        before = _ahead(model)
        steps.warm(STEPS)
        assert _ahead(model) == before + STEPS * (LAYERS - 1) and not _due(model)
        report = epilogue.torch.why(model)
        assert f", {report.decoded_ahead} with the layer before" in str(report) and report.to_dict()["decoded_ahead"] == report.decoded_ahead


@torch.no_grad()
def test_only_layers_that_are_called_with_the_same_objects():
    """Gemma 3 has a mask and cosines for each kind of layer."""
    model = _fused("gemma3", layer_types=["sliding_attention", "sliding_attention", "full_attention", "full_attention"])
    steps = _Steps(model)
    before = _ahead(model)
    steps.warm(STEPS)
    assert _ahead(model) == before + STEPS * 2
    assert _offers(model) <= 2 + 2 * decoded_ahead.MOST_OFFERS


_LOOP = """
def forward(self, input_ids=None, cache=None, use_cache=None):
    x = self.embed_tokens(input_ids)
    past = cache.get_seq_length()
    positions = torch.arange(past, past + x.shape[1])[None]
    given = {"position_embeddings": self.rotary_emb(x, positions), "attention_mask": None, "position_ids": positions, "cache": cache}
    for i, layer in enumerate(self.layers):
        x = between(i, x, given)
        x = layer(x, use_cache=True, **given)
    return self.norm(x)
"""


class _Loop:
    """A model's loop, as if transformers had written it, which does something between layers once it is told so."""

    def __init__(self, at=2):
        self.do, self.at = None, at
        space = {"torch": torch, "between": self._between}
        exec(compile(_LOOP, os.path.join(os.path.dirname(t.__file__), "models", "llama", "loop.py"), "exec"), space)
        self.kind = type("Looping", (t.LlamaModel,), {"forward": space["forward"], "__module__": __name__})

    def _between(self, i, x, given):
        return self.do(x, given) if i == self.at and self.do is not None else x

    def fused(self):
        model = models.build("llama", num_hidden_layers=LAYERS).model
        model.__class__ = self.kind
        return epilogue.torch.fuse(model, linears="always")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("do", [lambda x, _: x.mul_(1.5), lambda x, _: x * 1.5, lambda x, _: x.clone()])
def test_results_of_another_x_are_not_taken(do, mode):
    loop = _Loop()
    model = loop.fused()
    with mode():
        steps = _Steps(model)
        assert _ahead(model) > 0
        loop.do = do
        steps.warm(40)
        before = _ahead(model)
        steps.warm(STEPS)
        assert _ahead(model) == before + STEPS * 2 and not _due(model)  # the others go on
        assert _offers(model) <= LAYERS * decoded_ahead.MOST_OFFERS
        loop.do = None
        steps.warm(2 * decoded_plan.CALLS_PER_RECORD)  # and this one, too, once a call is offered again
        before = _ahead(model)
        steps.warm(STEPS)
        assert _ahead(model) == before + STEPS * 3


def _other_wave(x, given):
    given["position_embeddings"] = tuple(w * 0.5 for w in given["position_embeddings"])
    return x


def _other_mask(x, given):
    given["attention_mask"] = torch.zeros(1, 1, 1, given["cache"].get_seq_length(3) + 1)
    return x


def _other_cache(x, given):
    given["cache"] = copy.deepcopy(given["cache"])
    return x


def _more(x, given):
    given["use_it"] = 1
    return x


def _cache_layer(do):
    def change(x, given):
        do(given["cache"].layers[2])
        return x

    return change


@pytest.mark.parametrize("do", [_other_wave, _other_mask, _other_cache, _more, _cache_layer(lambda layer: layer.crop(-2)),
                                _cache_layer(lambda layer: layer.reset()), _cache_layer(lambda layer: layer.reorder_cache(torch.tensor([0])))])  # fmt: skip
@torch.no_grad()
def test_results_for_other_arguments_are_not_taken(do):
    loop = _Loop()
    model = loop.fused()
    steps = _Steps(model)
    before = _ahead(model)
    loop.do = do
    steps(caches=False)
    assert _ahead(model) <= before + 2 and len(_due(model)) == 0
    loop.do = None
    fresh = _Steps(model)
    before = _ahead(model)
    fresh.warm(STEPS)
    assert _ahead(model) == before + STEPS * 3


class _Stop(Exception):
    pass


def _stop(x, given):
    raise _Stop


@torch.no_grad()
def test_a_step_that_ends_in_the_midst():
    """Nothing of its cache lives on, and the next step is right."""
    loop = _Loop()
    model = loop.fused()
    steps = _Steps(model)
    cache = t.DynamicCache(config=model.config)
    for rows in (5, *[1] * 3):
        model(torch.arange(rows)[None], cache=cache)
    loop.do = _stop
    with pytest.raises(_Stop):
        model(torch.tensor([[3]]), cache=cache)
    assert len(_due(model)) == 2
    assert [layer.get_seq_length() for layer in cache.layers] == [9, 9, 8, 8]
    of_cache = [weakref.ref(cache), *(weakref.ref(x) for layer in cache.layers for x in layer._room)]
    del cache
    gc.collect()
    assert all(ref() is None for ref in of_cache)
    loop.do = None
    steps.warm(3)
    before = _ahead(model)
    steps.warm(STEPS)
    assert not _due(model) and _ahead(model) == before + STEPS * 3


def test_results_of_threads_that_ended_are_few(monkeypatch):
    links = decoded_ahead.Links()
    for i in range(3 * decoded_ahead.MOST_DUE):
        monkeypatch.setattr(decoded_ahead, "_ident", lambda i=i: i)
        links.put_due(i)
        assert len(links.due) <= decoded_ahead.MOST_DUE
    assert links.take_due() == i and links.take_due() is None


def _own_forward(model):
    layer = _layers(model)[2]
    kind = type(layer)
    layer.forward = lambda x, *args, **kwargs: kind.forward(layer, x * 2, *args, **kwargs)


def _own_call(model):
    """Which writes what the layers behind compute with."""
    layer, behind = _layers(model)[2], _layers(model)[3]

    class Called(type(layer)):
        def __call__(self, x, *args, **kwargs):
            behind.mlp.down_proj.weight.mul_(1.01)
            return super().__call__(x, *args, **kwargs)

    layer.__class__ = Called


def _derived(model):
    layer, behind = _layers(model)[2], _layers(model)[3]

    class Derived(type(layer)):
        def forward(self, x, *args, **kwargs):
            behind.mlp.down_proj.weight.mul_(1.01)
            return super().forward(x, *args, **kwargs)

    layer.__class__ = Derived


def _own_list(model):
    class Layers(nn.ModuleList):
        def __iter__(self):
            for i, layer in enumerate(super().__iter__()):
                if i == 2:
                    layer.mlp.down_proj.weight.mul_(1.01)
                yield layer

        def __getitem__(self, at):
            return self if isinstance(at, slice) else super().__getitem__(at)

    model.model.layers = Layers(model.model.layers)


def _attribute(model):
    _layers(model)[2].self_attn.scaling = 0.3


def _written(model):
    def write(*_):
        _layers(model)[1].mlp.down_proj.weight.mul_(1.01)

    _layers(model)[0].register_forward_hook(write)


def _inner_hook(model):
    _layers(model)[2].mlp.register_forward_hook(lambda _, args, out: out * 2)


def _written_weight(model):
    _layers(model)[2].self_attn.o_proj.weight.mul_(1.5)


def _other_layer(model):
    _layers(model)[2] = copy.deepcopy(_layers(model)[1])
    _layers(model)[2].self_attn.layer_idx = 2


def _compiled(model):
    _layers(model)[2].compile(backend="eager")


@pytest.mark.parametrize("change", [_own_forward, _own_call, _derived, _own_list, _attribute, _written, _inner_hook, _written_weight, _other_layer, _compiled,
                                    lambda m: _layers(m)[1].register_forward_hook(lambda _, args, out: out * 2),
                                    lambda m: _layers(m)[2].register_forward_pre_hook(lambda _, args: (args[0] + 1, *args[1:]))])  # fmt: skip
@torch.no_grad()
def test_what_changes_between_steps_is_seen(change):
    model = _fused()
    steps = _Steps(model)
    steps.change(change)
    steps.warm(2 * STEPS)
    assert not _due(model)
    assert _offers(model) <= LAYERS * (decoded_ahead.MOST_OFFERS + 1)


@torch.no_grad()
def test_a_loop_that_ends_early_computes_ahead_in_vain_a_few_times():
    """As transformers' own does for drafts of assisted generation."""
    model = _fused()
    steps = _Steps(model)
    counts = []
    for layers in (2, LAYERS, 2):
        steps.change(lambda m, layers=layers: setattr(m.config, "num_hidden_layers", layers))
        counts.append(0)
        for _ in range(STEPS):
            steps(caches=False)
            counts[-1] += len(_due(model)) > 0
    assert 0 < counts[0] <= decoded_ahead.MOST_OFFERS and counts[1] == 0 and counts[2] <= decoded_ahead.MOST_OFFERS


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("kept", [True, False])
@torch.no_grad()
def test_layers_that_are_no_part_of_the_model_any_more(kind, kept):
    model = _fused(kind)
    steps = _Steps(model)
    popped = [list(_layers(each)._modules.values())[2] for each in steps.each]
    for each in steps.each:
        del _layers(each)[2]
    if kept:
        norm = popped[0].input_layernorm if kind == "llama" else popped[0].ln_1
        norm.weight = nn.Parameter(torch.ones(7))  # what computes it would end with an error
        for layer in popped:
            layer.mlp = None
    else:
        del popped
        gc.collect()
    steps.warm(4)
    before = _ahead(model)
    steps.warm(STEPS)
    assert _ahead(model) == before + STEPS * 2 and not _due(model)


def _same_twice(model):
    _layers(model)[1] = _layers(model)[0]


def _same_index(model):
    _layers(model)[1] = copy.deepcopy(_layers(model)[0])


def _by_turns(model):
    for i in (2, 3):
        _layers(model)[i] = _layers(model)[i - 2]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("change", [_same_twice, _same_index, _by_turns])
@torch.no_grad()
def test_layers_that_put_rows_behind_the_same(kind, change):
    model = _fused(kind)
    change(model)
    steps = _Steps(model)
    steps.warm(STEPS)
    assert _ahead(model) > 0 and not _due(model)


@torch.no_grad()
def test_caches_whose_layers_are_one():
    model = _fused()
    steps = _Steps(model)
    for cache in steps.caches:
        cache.layers[2] = cache.layers[1]
    steps.warm(STEPS)


@pytest.mark.parametrize("kind, dtype", [("gpt2", torch.float64), ("gpt2", torch.float32), ("llama", torch.float64)])
@torch.no_grad()
def test_errors_come_from_the_layer_whose_they_are(kind, dtype):
    model = _fused(kind)
    steps = _Steps(model)
    said = []
    for each, cache in zip(steps.each, steps.caches):
        layer = _layers(each)[3]
        norm = layer.ln_1 if kind == "gpt2" else layer.input_layernorm
        norm.weight = nn.Parameter(torch.ones(7 if dtype is torch.float32 else norm.weight.shape[0], dtype=dtype))
        with pytest.raises(RuntimeError) as error:
            each(torch.tensor([[3]]), cache=cache, use_cache=True)
        said.append((str(error.value), [x.get_seq_length() for x in cache.layers]))
    assert said[0] == said[1] and "API call failed" not in said[0][0]


@torch.no_grad()
def test_norms_of_a_wider_dtype():
    """PyTorch takes a layer norm's parameters in float32 for bf16."""
    model = _fused("gpt2").to(torch.bfloat16)
    steps = _Steps(model)

    def widen(each):
        _layers(each)[2].ln_1.float()

    steps.change(widen)
    steps.warm(STEPS)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_numbers_that_are_none(mode):
    model = _fused()
    with mode():
        _numbers_that_are_none(model)


def _numbers_that_are_none(model):
    steps = _Steps(model)
    for each in steps.each:
        each.get_input_embeddings().weight.data[1].fill_(float("nan"))
    before, ids = _ahead(model), torch.tensor([[1]])
    for _ in range(STEPS):
        for each, cache in zip(steps.each, steps.caches):
            assert each(ids, cache=cache, use_cache=True).logits.isnan().all()
    assert _ahead(model) == before + STEPS * 3


@torch.no_grad()
def test_a_loop_of_the_users_own_has_each_layer_called():
    """Also after the model's own loop was seen."""
    loop = _Loop()
    model = loop.fused()
    steps = _Steps(model)
    before = epilogue.torch.why(model)
    space = {"torch": torch, "between": loop._between}
    exec(_LOOP, space)
    loop.do = lambda x, given: given["position_embeddings"][0].mul_(0.5) is None or x  # in place: no layer that was computed would see it
    for each, cache in zip(steps.each, steps.caches):
        epilogue.torch.grow(cache)
    for _ in range(STEPS):
        outs = [space["forward"](each, torch.tensor([[5]]), cache) for each, cache in zip(steps.each, steps.caches)]
        assert torch.equal(*outs)
    after = epilogue.torch.why(model)
    assert (after.decoded_layers - before.decoded_layers, after.decoded_ahead - before.decoded_ahead) == (STEPS * LAYERS, 0)


@torch.no_grad()
def test_threads_that_decode_with_one_model():
    model = _fused()
    want = _Steps(model)
    prompts = [torch.arange(i, i + 6)[None] for i in range(3)]

    def generate(each, prompt):
        return each.generate(prompt, max_new_tokens=30, min_new_tokens=30, do_sample=False, output_logits=True, return_dict_in_generate=True)

    wanted = [generate(want.each[1], p) for p in prompts]
    got = [None] * len(prompts)

    def run(i):
        got[i] = generate(model, prompts[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, y in zip(got, wanted):
        assert torch.equal(x.sequences, y.sequences) and all(map(torch.equal, x.logits, y.logits))
    assert not _due(model)


@torch.no_grad()
def test_copies_learn_anew_and_have_results_of_their_own():
    model = _fused()
    steps = _Steps(model)
    other = copy.deepcopy(model)
    assert _ahead(other) == 0 and not any(layer.__dict__[decoded_layer.STATE].links.follower for layer in _layers(other))
    _layers(other)[1].mlp.down_proj.weight.mul_(2)
    both = _Steps(other)
    assert _ahead(other) > 0
    before = _ahead(model)
    steps.warm(STEPS)
    both.warm(STEPS)
    assert _ahead(model) == before + STEPS * (LAYERS - 1)
    # The layers of a shallow copy are others with the same states.
    shallow = copy.copy(model)
    shallow._modules = dict(model._modules)
    shallow._modules["model"] = inner = copy.copy(model.model)
    inner._modules = dict(inner._modules)
    inner._modules["layers"] = nn.ModuleList([copy.copy(layer) for layer in _layers(model)])
    behind = _layers(shallow)[2]
    behind._modules = dict(behind._modules, mlp=copy.deepcopy(behind.mlp))
    behind.mlp.down_proj.weight.mul_(2)
    pair = shallow, models.apart(shallow)
    caches = [t.DynamicCache(config=model.config) for _ in range(2)]
    for rows in (5, *[1] * STEPS):
        ids = torch.arange(rows)[None]
        outs = [m(ids, cache=c, use_cache=True).logits for m, c in zip(pair, caches)]
        assert torch.equal(*outs)
    steps.warm(STEPS)


@torch.no_grad()
def test_masks_and_batches():
    """A padded prompt has a mask, whose length each layer's cache has to fit."""
    model = _fused()
    caches = [t.DynamicCache(config=model.config) for _ in range(2)]
    other = models.apart(model)
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[0, :3] = 0
    ids = torch.arange(12).reshape(2, 6)
    for i in range(STEPS):
        outs = [m(ids, attention_mask=mask, cache=c, use_cache=True).logits for m, c in zip((model, other), caches)]
        assert torch.equal(*outs)
        ids, mask = torch.tensor([[i], [i + 3]]), torch.cat([mask, torch.ones(2, 1, dtype=torch.long)], 1)
    assert _ahead(model) > 3 * (LAYERS - 1)


@torch.no_grad()
def test_two_caches_by_turns():
    model = _fused()
    other = models.apart(model)
    pairs = [[t.DynamicCache(config=model.config) for _ in range(2)] for _ in range(2)]
    for rows in (5, *[1] * STEPS):
        for caches in zip(*pairs):
            ids = torch.arange(rows)[None]
            outs = [m(ids, cache=c, use_cache=True).logits for m, c in zip((model, other), caches)]
            assert torch.equal(*outs)
    assert _ahead(model) > STEPS * (LAYERS - 1) and not _due(model)


@torch.no_grad()
def test_a_shallow_copy_takes_no_result_of_its_original():
    """They have the same states. The copy's model calls the original's first layer, whose follower is the original's second one."""
    model = _fused()
    steps = _Steps(model)
    for i, each in enumerate(steps.each):
        other = copy.copy(_layers(each)[1])
        other._modules = dict(other._modules, input_layernorm=copy.deepcopy(other.input_layernorm))
        other.input_layernorm.weight.mul_(2)
        inner = copy.copy(each.model)
        inner._modules = dict(inner._modules, layers=nn.ModuleList([_layers(each)[0], other, *list(_layers(each))[2:]]))
        steps.each[i] = shallow = copy.copy(each)
        shallow._modules = dict(each._modules, model=inner)
    before = epilogue.torch.why(model).decoded_layers
    steps.warm(STEPS)
    assert epilogue.torch.why(model).decoded_layers > before and not _due(model)
