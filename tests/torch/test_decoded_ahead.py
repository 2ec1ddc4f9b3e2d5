# SPDX-License-Identifier: Apache-2.0
"""Layers of one new token that are computed with the layer before: the same bits, and only where each is called so."""

import copy
import gc
import threading
import weakref

import models
import pytest
import torch
import transformers as t
from torch import nn

import epilogue.torch
from epilogue.torch import decoded, decoded_ahead, decoded_layer

LAYERS = 4
STEPS = 12


def _fused(kind="llama", **options):
    return epilogue.torch.fuse(models.build(kind, num_hidden_layers=LAYERS, **options), linears="always")


def _apart(model):
    """A copy whose layers run as single ops."""
    other = copy.deepcopy(model)
    for module in other.modules():
        decoded.unfuse_decoded(module)
        decoded_layer.unfuse_decoded_layer(module)
    return other


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
            self.each = [model, _apart(model)]
        self.caches = [t.DynamicCache(config=model.config) for _ in self.each]
        self.tokens = 0
        self(5)
        self.warm()

    def warm(self, steps=8):
        for _ in range(steps):
            self()

    def __call__(self, rows=1, **given):
        outs = []
        ids = torch.arange(self.tokens, self.tokens + rows)[None] % 60
        self.tokens += rows
        for model, cache in zip(self.each, self.caches):
            outs.append(model(ids, cache=cache, use_cache=True, **given).logits)
        for x, y in zip(*(cache.layers for cache in self.caches)):
            assert torch.equal(x.keys, y.keys) and torch.equal(x.values, y.values)
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


def _between(layer, do):
    """Calls do(x) before the layer, without a hook."""

    class Between(type(layer)):
        def __call__(self, x, *args, **kwargs):
            return super().__call__(do(x), *args, **kwargs)

    layer.__class__ = Between


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("do", [lambda x: x.mul_(1.5), lambda x: x * 1.5, lambda x: x.clone()])
def test_results_of_another_x_are_not_taken(do, mode):
    model = _fused()
    with mode():
        steps = _Steps(model)
        steps.change(lambda m: _between(_layers(m)[2], do))
        steps()
        steps.warm(40)
        # The others go on.
        before = _ahead(model)
        steps.warm(STEPS)
        assert _ahead(model) == before + STEPS * 2 and not _due(model)
        assert _offers(model) <= LAYERS * decoded_ahead.MOST_OFFERS


def _cut_list(model):
    _layers(model)._modules.popitem()


def _own_forward(model):
    layer = _layers(model)[2]
    kind = type(layer)
    layer.forward = lambda x, *args, **kwargs: kind.forward(layer, x * 2, *args, **kwargs)


def _written(model):
    def write(*_):
        _layers(model)[1].mlp.down_proj.weight.mul_(1.01)

    _layers(model)[0].register_forward_hook(write)


@pytest.mark.parametrize("change", [_cut_list, _own_forward, lambda m: _layers(m)[1].register_forward_hook(lambda _, args, out: out * 2),
                                    lambda m: _layers(m)[2].register_forward_pre_hook(lambda _, args: (args[0] + 1, *args[1:])),
                                    _written])  # fmt: skip
@torch.no_grad()
def test_what_changes_between_steps_is_seen(change):
    model = _fused()
    steps = _Steps(model)
    kept = list(_layers(model))
    steps.change(change)
    steps.warm(STEPS)
    assert not _due(model) and not any(layer.__dict__[decoded_layer.STATE].links.due for layer in kept[:-1])


class _OwnLoop(t.LlamaModel):
    def forward(self, input_ids=None, cache=None, **kwargs):
        x = self.embed_tokens(input_ids)
        past = cache.get_seq_length()
        positions = torch.arange(past, past + x.shape[1])[None]
        given = {"position_embeddings": self.rotary_emb(x, positions), "attention_mask": None, "position_ids": positions, "cache": cache}
        for i, layer in enumerate(self.layers):
            x = layer(x, use_cache=True, **given)
            if i == 1:
                given["position_embeddings"][0].mul_(0.5)  # which layers that are computed ahead would not see
        return x


@torch.no_grad()
def test_a_loop_of_the_users_own_has_each_layer_called():
    model = models.build("llama", num_hidden_layers=LAYERS).model
    model.__class__ = _OwnLoop
    epilogue.torch.fuse(model, linears="always")
    other = _apart(model)
    caches = [t.DynamicCache(config=model.config) for _ in range(2)]
    for rows in (5, *[1] * STEPS):
        ids = torch.arange(rows)[None]
        assert torch.equal(model(ids, cache=caches[0]), other(ids, cache=caches[1]))
    report = epilogue.torch.why(model)
    assert (report.decoded_layers > 4, report.decoded_ahead, report.decoded_reasons) == (True, 0, ())


@torch.no_grad()
def test_layers_that_were_learned_by_the_models_loop_are_called_by_another():
    model = _fused()
    _Steps(model)
    before = _ahead(model)
    other = _apart(model)
    assert before > 0
    caches = [t.DynamicCache(config=model.config) for _ in range(2)]
    for rows in (5, *[1] * STEPS):
        ids = torch.arange(rows)[None]
        assert torch.equal(_OwnLoop.forward(model.model, ids, cache=caches[0]), _OwnLoop.forward(other.model, ids, cache=caches[1]))
    assert _ahead(model) == before and not _due(model)


class _Stop(Exception):
    pass


@torch.no_grad()
def test_a_step_that_ends_in_the_midst():
    """Nothing of its cache lives on, and the next step is right."""
    model = _fused()
    steps = _Steps(model)

    def stop(x):
        raise _Stop

    kind = type(_layers(model)[2])
    _between(_layers(model)[2], stop)
    cache = t.DynamicCache(config=model.config)
    _layers(model)[2].__class__, between = kind, type(_layers(model)[2])
    for rows in (5, *[1] * 3):
        model(torch.arange(rows)[None], cache=cache, use_cache=True)
    _layers(model)[2].__class__ = between
    with pytest.raises(_Stop):
        model(torch.tensor([[3]]), cache=cache, use_cache=True)
    assert len(_due(model)) == 2
    assert [layer.get_seq_length() for layer in cache.layers] == [9, 9, 8, 8]
    of_cache = [weakref.ref(cache), *(weakref.ref(x) for layer in cache.layers for x in layer._room)]
    del cache
    gc.collect()
    assert all(ref() is None for ref in of_cache)
    _layers(model)[2].__class__ = kind
    before = _ahead(model)
    steps.warm(STEPS)
    assert not _due(model) and _ahead(model) >= before + (STEPS - 2) * (LAYERS - 1)


@pytest.mark.parametrize("do", [lambda layer: layer.crop(-2), lambda layer: layer.reset(), lambda layer: layer.reorder_cache(torch.tensor([0]))])
@torch.no_grad()
def test_a_cache_that_changed_before_a_layers_turn(do):
    """Its rows are computed with the cache as it is then."""
    model = _fused()
    steps = _Steps(model)
    outs = []
    for each, cache in zip(steps.each, steps.caches):
        _between(_layers(each)[2], lambda x, cache=cache: (do(cache.layers[2]), x)[1])
        outs.append(each(torch.tensor([[9]]), cache=cache, use_cache=True).logits)
    assert torch.equal(*outs)


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
    caches = [t.DynamicCache(config=model.config) for _ in range(2)]
    for rows in (5, *[1] * STEPS):
        ids = torch.arange(rows)[None]
        outs = [m(ids, cache=c, use_cache=True).logits for m, c in zip((shallow, steps.each[1]), caches)]
        assert torch.equal(*outs)
    steps.warm(STEPS)


@torch.no_grad()
def test_masks_and_batches():
    """A padded prompt has a mask, whose length each layer's cache has to fit."""
    model = _fused()
    caches = [t.DynamicCache(config=model.config) for _ in range(2)]
    other = _apart(model)
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
    other = _apart(model)
    pairs = [[t.DynamicCache(config=model.config) for _ in range(2)] for _ in range(2)]
    for rows in (5, *[1] * STEPS):
        for caches in zip(*pairs):
            ids = torch.arange(rows)[None]
            outs = [m(ids, cache=c, use_cache=True).logits for m, c in zip((model, other), caches)]
            assert torch.equal(*outs)
    assert _ahead(model) > STEPS * (LAYERS - 1) and not _due(model)
