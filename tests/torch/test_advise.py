# SPDX-License-Identifier: Apache-2.0
"""advise() on small models: what it keeps agrees, what it says is what it measured."""

import types

import models
import pytest
import torch

import epilogue.torch
from epilogue.torch import advice as room

QUICK = dict(rounds=2, seconds=0.0)


@pytest.fixture(autouse=True)
def explained(monkeypatch):
    """The trace half is not built here: what it would find is given."""
    import epilogue

    finding = types.SimpleNamespace(title="attention is not fused")
    explain = lambda path: types.SimpleNamespace(findings=[finding])  # noqa: E731
    monkeypatch.setitem(epilogue.__dict__, "explain", explain)


def test_steps_agree_and_the_model_stays(name):
    model = models.build(name)
    given = {"pixel_values": torch.randn(1, 3, 32, 32)} if name == "vit" else {"input_ids": models.ids(9)}
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
    before = [type(m) for m in model.modules()]
    advice = epilogue.torch.advise(model, **given, **QUICK)
    assert [type(m) for m in model.modules()] == before
    names = [step.name for step in advice.steps]
    others = [] if name == "gemma2" else ["sdpa"]  # Gemma 2 caps its scores: it has no SDPA
    assert names == ["fuse", *others, *(["channels_last"] if name == "vit" else [])]
    for step in advice.steps:
        assert step.difference < 1e-3
        assert step.is_kept == (step.speedup[0] > 1)
    assert advice.steps[0].predicted_ms is not None or name == "bert"
    with torch.no_grad():
        torch.testing.assert_close(advice.model(**given)[0], model(**given)[0], rtol=1e-3, atol=1e-4)
    for text in (str(advice), advice.to_html()):
        assert "attention is not fused" in text and "fuse" in text
    assert advice.to_dict()["steps"][0]["saved_ms"] == advice.steps[0].saved_ms


def test_a_change_that_alters_results_is_left_out(monkeypatch, llama):
    def wrong(model):
        model.model.layers[0].mlp.down_proj.weight.mul_(1.5)
        return "wrong"

    monkeypatch.setattr(room, "_CHANGES", (("wrong", wrong),))
    advice = epilogue.torch.advise(llama, models.ids(5), **QUICK)
    (step,) = advice.steps
    assert not step.is_kept and "results differ" in step.reason
    with torch.no_grad():
        ids = models.ids(5)
        torch.testing.assert_close(advice.model(ids).logits, llama(ids).logits)
