# SPDX-License-Identifier: Apache-2.0
"""What a first-time user does with a model that nobody named: fuse(), run, generate(), why()."""

import pytest
import torch
import zoo

import epilogue.torch

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=sorted(zoo.ZOO))
def name(request):
    return request.param


def error(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def keep_routes(model):
    """Experts take the routes of the first run: a choice among near ones is luck, and makes a leap of the result."""
    routes = []

    def hook(module, args):
        if module not in kept:
            kept[module] = args[1:]
        index, weights = kept[module]
        routes.append(index)
        return args[0], index, weights.to(args[0].dtype)

    kept = {}
    for module in model.modules():
        if type(module).__name__.endswith("Experts"):
            module.register_forward_pre_hook(hook)
    return routes


def test_model_gives_what_it_gave(name):
    entry, model = zoo.ZOO[name], zoo.build(name)
    given = zoo.inputs(entry.takes)
    routes = keep_routes(model)
    want = zoo.result(model, given)
    assert bool(routes) == ("moe" in name or name in ("mixtral", "gpt_oss", "deepseek_v3"))
    assert epilogue.torch.fuse(model) is model
    assert error(zoo.result(model, given), want) < 2e-6
    report = epilogue.torch.why(model)
    assert len(report.fused) == entry.fused and report.fused_calls == (entry.calls or entry.fused), str(report)
    others = [row for row in report.rows if not row.is_fused]
    assert len(others) == len(entry.why_not), str(report)
    assert all(words in row.what for row, words in zip(others, entry.why_not)), str(report)
    # In bf16, as near to f32 as its own ops: sums of 48 terms, so not to the last bit.
    epilogue.torch.unfuse(model)
    model.to(torch.bfloat16)
    own = zoo.result(model, given)
    got = zoo.result(epilogue.torch.fuse(model), given)
    assert got.dtype == own.dtype and error(got, want) <= 1.2 * error(own, want)
    assert epilogue.torch.why(model).fused_calls == (entry.calls or entry.fused)


@pytest.mark.parametrize("name", zoo.GENERATES)
def test_generate(name):
    entry, model = zoo.ZOO[name], zoo.build(name)
    given = zoo.prompt(entry.takes)
    options = dict(max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0)
    want = model.generate(**given, **options)
    epilogue.torch.fuse(model)
    assert torch.equal(model.generate(**given, **options), want)
    once = 0 if entry.takes == "ids" else entry.fused // 2  # an encoder's
    assert epilogue.torch.why(model).fused_calls == once + 4 * (entry.fused - once)
