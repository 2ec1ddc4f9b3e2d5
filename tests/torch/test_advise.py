# SPDX-License-Identifier: Apache-2.0
"""advise() on small models: what it keeps agrees, what it says is what it measured."""

import copy
import json
import types

import models
import pytest
import torch

import epilogue.torch
from epilogue.torch import advise_script, advisor, changes, state
from epilogue.torch.fuse import states_of

QUICK = dict(rounds=2, seconds=0.0)


@pytest.fixture(autouse=True)
def explained(monkeypatch):
    """The trace half is not built here: what it would find is given."""
    import epilogue

    findings = [
        types.SimpleNamespace(id="verdict", title="compute-bound", action="", saving_us=None),
        types.SimpleNamespace(id="copies", title="copies take 3 ms", action="write once", saving_us=None),
        types.SimpleNamespace(id="unfused-attention", title="attention is not fused", action="", saving_us=1500.0),
        types.SimpleNamespace(id="unfused-optimizer", title="many ops", action="", saving_us=2000.0),
    ]
    explain = lambda path: types.SimpleNamespace(findings=findings)  # noqa: E731
    monkeypatch.setitem(epilogue.__dict__, "explain", explain)
    # The backend's graph as it is: Inductor takes a minute for it.
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, inputs, **_: graph.forward)


def names_of(advice):
    """Of the steps, but for those of threads: how many there are is the machine's."""
    return [step.name for step in advice.steps if not step.name.endswith(("thread", "threads"))]


def test_steps_agree_and_the_model_stays(name):
    model = models.build(name)
    given = {"pixel_values": torch.randn(1, 3, 32, 32)} if name == "vit" else {"input_ids": models.ids(9)}
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
    before = [type(m) for m in model.modules()]
    advice = epilogue.torch.advise(model, **given, **QUICK)
    assert [type(m) for m in model.modules()] == before
    others = [] if name == "gemma2" else ["sdpa"]  # Gemma 2 caps its scores: it has no SDPA
    assert names_of(advice) == ["fuse", *others, *(["channels_last"] if name == "vit" else []), "compile"]
    for step in advice.steps:
        assert step.difference < 1e-3
        assert step.is_kept == (step.speedup[1] > 1)
    assert advice.steps[0].predicted_ms is not None
    with torch.no_grad():
        torch.testing.assert_close(advice.model(**given)[0], model(**given)[0], rtol=1e-3, atol=1e-4)
    for text in (str(advice), advice.to_html()):
        assert "copies take 3 ms: write once" in text and "fuse" in text
        assert "compute-bound" not in text
    assert advice.to_dict()["steps"][0]["saved_ms"] == advice.steps[0].saved_ms


def test_what_was_done_is_not_left_to_do(monkeypatch, llama):
    llama.set_attn_implementation("eager")
    monkeypatch.setattr(advisor, "ratio", lambda before, after: (2.0, 1.9, 2.1))
    kept = epilogue.torch.advise(llama, models.ids(5), **QUICK)
    assert not any("attention" in line for line in kept.by_hand)
    step = next(s for s in kept.steps if s.name == "sdpa")
    assert step.predicted_ms == 1.5
    assert kept.predicted_ms == pytest.approx(sum(s.predicted_ms for s in kept.steps if s.predicted_ms is not None))
    monkeypatch.setattr(advisor, "ratio", lambda before, after: (0.5, 0.4, 0.6))
    left = epilogue.torch.advise(llama, models.ids(5), **QUICK)
    assert any("attention" in line for line in left.by_hand)
    assert left.settings == {} and not any(s.is_kept for s in left.steps)


def blocks_of_the_prediction(monkeypatch, speed, run):
    """What advise() timed for its prediction, where every step is as fast as `speed` says."""
    seen = []

    class Seen(advisor.Blocks):
        def __init__(self, *given):
            super().__init__(*given)
            seen.append(self)

    monkeypatch.setattr(advisor, "Blocks", Seen)
    monkeypatch.setattr(advisor, "ratio", lambda before, after: speed)
    advice = run()
    (blocks,) = seen
    return blocks, next(s for s in advice.steps if s.name == "fuse")


def mlps_of(blocks):
    """Its calls, but for those of linear layers."""
    return [call for call in blocks.calls if isinstance(call.state, state.State)]


def test_a_prediction_is_of_the_calls_that_run(monkeypatch):
    model = models.build("vit")
    image = torch.randn(1, 3, 32, 32)

    def run():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return epilogue.torch.advise(model, pixel_values=image, **QUICK)

    # Autocast goes first: then f32 runs, with norm and residual.
    blocks, step = blocks_of_the_prediction(monkeypatch, (2.0, 1.9, 2.1), run)
    assert [call.is_fused for call in mlps_of(blocks)] == [True] * models.LAYERS
    assert step.predicted_ms is not None
    # Autocast stays: the layers fall back, their MLPs run fused.
    blocks, _ = blocks_of_the_prediction(monkeypatch, (0.5, 0.4, 0.6), run)
    assert [call.is_fused for call in mlps_of(blocks)] == [False, True] * models.LAYERS


def test_a_prediction_of_training_counts_the_backward_pass(monkeypatch):
    model, ids = models.build("bert").train(), models.ids(9)
    for m in model.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = lambda: epilogue.torch.advise(model, ids, loss=lambda out: out[0].square().mean(), optimizer=optimizer, **QUICK)  # noqa: E731
    blocks, step = blocks_of_the_prediction(monkeypatch, (2.0, 1.9, 2.1), run)
    # BERT's MLP has a residual and a norm: with gradients it falls back, and saves nothing.
    assert [call.is_fused for call in mlps_of(blocks)] == [False] * models.LAYERS
    monkeypatch.setattr(state, "unprofitable", lambda dtype: None)
    llama = models.build("llama").train()
    optimizer = torch.optim.SGD(llama.parameters(), lr=0.1)
    run = lambda: epilogue.torch.advise(llama, ids, labels=ids, optimizer=optimizer, **QUICK)  # noqa: E731
    blocks, step = blocks_of_the_prediction(monkeypatch, (2.0, 1.9, 2.1), run)
    assert sum(call.is_fused for call in mlps_of(blocks)) == models.LAYERS
    assert all(call.run(True).requires_grad for call in blocks.calls if call.is_fused)


def test_a_prediction_of_training_counts_linear_layers_and_experts(monkeypatch):
    """Each once, as it ran: its backward pass gives the gradients that its forward's tensors want."""
    import test_mixtures

    from epilogue.torch import experts_state, linear_state, training

    for module in (state, linear_state, training):
        monkeypatch.setattr(module, "unprofitable", lambda dtype: None)
    monkeypatch.setattr(training, "products_of", lambda dtype: "engine")
    monkeypatch.setattr(linear_state, "products_of", lambda dtype: "engine")
    monkeypatch.setattr(linear_state, "LEAST_ELEMENTS", 1)
    model, ids = test_mixtures.build("mixtral").train(), models.ids(9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = lambda: epilogue.torch.advise(model, ids, labels=ids, optimizer=optimizer, **QUICK)  # noqa: E731
    blocks, step = blocks_of_the_prediction(monkeypatch, (2.0, 1.9, 2.1), run)
    kinds = [type(call.state) for call in blocks.calls]
    assert kinds.count(experts_state.ExpertsState) == 2 and kinds.count(linear_state.LinearState) == 9  # q, k, v, o and the head
    assert all(call.is_fused for call in blocks.calls) and step.predicted_ms is not None
    assert step.what == "2 layers' experts and 9 linear layers fused"
    for call in blocks.calls:
        out = call.run(True)
        wanted = torch.autograd.grad(out, call.wanted, torch.ones_like(out), allow_unused=True)
        own = torch.autograd.grad(call.run(False), call.wanted, torch.ones_like(out), allow_unused=True)
        for a, b in zip(wanted, own):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_the_backend_is_tried_on_top_of_what_was_kept(monkeypatch, llama):
    """Its copies share the graph; what it made and left is a note, as is what fuse() left."""
    torch._dynamo.reset()
    ids = models.ids(5)
    monkeypatch.setattr(advisor, "ratio", lambda before, after: (2.0, 1.9, 2.1))
    advice = epilogue.torch.advise(llama, ids, **QUICK)
    step = next(s for s in advice.steps if s.name == "compile")
    assert step.is_kept and step.difference < 1e-3 and step.what == 'torch.compile(model, backend="epilogue")'
    assert isinstance(advice.model, torch._dynamo.OptimizedModule)
    with torch.no_grad():
        torch.testing.assert_close(advice.model(ids).logits, llama(ids).logits, rtol=1e-3, atol=1e-4)
    (made,) = [n for n in advice.notes if n.startswith("the backend's ops: ")]
    assert f"{models.LAYERS} mlps" in made
    assert any(n.startswith("fuse() leaves ") and n.endswith(" modules: small: a call's checks take as long as the product") for n in advice.notes)
    assert "compile" not in names_of(epilogue.torch.advise(llama, ids, compile=False, **QUICK))


def test_a_prediction_is_of_what_the_change_starts_from(monkeypatch, llama):
    fused = []
    own = advisor._traced_savings

    def seen(ids, before, work, measure):
        fused.append(bool(states_of(before.model)))
        return own(ids, before, work, measure)

    monkeypatch.setattr(advisor, "_traced_savings", seen)
    llama.set_attn_implementation("eager")
    for speed, is_kept in (((0.5, 0.4, 0.6), False), ((2.0, 1.9, 2.1), True)):
        fused.clear()
        monkeypatch.setattr(advisor, "ratio", lambda before, after, speed=speed: speed)
        epilogue.torch.advise(llama, models.ids(5), **QUICK)
        assert fused and set(fused) == {is_kept}


def test_a_run_is_traced_when_it_is_warm(monkeypatch):
    runs = []
    traces, notes = advisor._explain(lambda: runs.append(torch.ones(8).relu()))
    assert notes == () and len(traces) == advisor._TRACED_RUNS
    assert len(runs) == advisor._WARMUP_RUNS + advisor._TRACED_RUNS


def test_savings_are_of_the_median_trace(monkeypatch):
    finding = lambda us: type("Finding", (), {"id": "unfused-attention", "saving_us": us})()  # noqa: E731
    for savings, want in (((1000, 9000, 2000), 2.0), ((None, 3000, 5000), 4.0), ((None, None, 5000), None), ((), None)):
        monkeypatch.setattr(advisor, "_explain", lambda run, savings=savings: (tuple((finding(us),) for us in savings), ()))
        assert advisor._traced_savings(("unfused-attention",), None, None, None) == want


def wrong_change(candidate, tolerance):
    made = candidate.copy()
    with torch.no_grad():
        made.model.model.layers[0].mlp.down_proj.weight.mul_(1.5)
    return made, "wrong"


@pytest.mark.parametrize("trains", (False, True))
def test_a_change_that_alters_results_is_left_out(monkeypatch, llama, trains):
    monkeypatch.setattr(changes, "all_changes", lambda: (changes.Change("wrong", wrong_change),))
    ids = models.ids(5)
    given = dict(labels=ids, optimizer=torch.optim.SGD(llama.parameters(), lr=0.1)) if trains else {}
    advice = epilogue.torch.advise(llama, ids, **given, **QUICK)
    (step,) = advice.steps
    assert not step.is_kept and "results differ" in step.reason
    with torch.no_grad():
        torch.testing.assert_close(advice.model(ids).logits, llama(ids).logits)


@pytest.mark.parametrize("kind", (torch.optim.AdamW, torch.optim.SGD))
def test_a_training_step(monkeypatch, kind):
    model = models.build("llama").train()
    ids = models.ids(9)
    optimizer = kind(model.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(2):  # it has a state that goes with the copies
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    state = copy.deepcopy(optimizer.state_dict()["state"])
    monkeypatch.setattr(advisor, "ratio", lambda before, after: (2.0, 1.9, 2.1))
    advice = epilogue.torch.advise(model, ids, labels=ids, optimizer=optimizer, **QUICK)
    assert names_of(advice) == ["fuse", "fused optimizer"]
    assert all(step.difference < 1e-3 for step in advice.steps), str(advice)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert not optimizer.param_groups[0].get("fused") and advice.optimizer.param_groups[0]["fused"]
    assert advice.optimizer.param_groups[0]["weight_decay"] == 0.1
    for key, value in advice.optimizer.state_dict()["state"].items():
        for name, moment in value.items():
            torch.testing.assert_close(moment, state[key][name], check_dtype=False)
    # Three steps of the copy are three of the model's.
    for _ in range(3):
        for m, o in ((model, optimizer), (advice.model, advice.optimizer)):
            o.zero_grad()
            m(ids, labels=ids).loss.backward()
            o.step()
    for a, b in zip(model.parameters(), advice.model.parameters()):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-4)


def test_a_loss_of_the_callers(llama):
    ids = models.ids(5)
    optimizer = torch.optim.SGD(llama.parameters(), lr=0.1)
    advice = epilogue.torch.advise(llama, ids, loss=lambda out: out.logits.square().mean(), optimizer=optimizer, **QUICK)
    assert names_of(advice) == ["fuse", "fused optimizer"]
    with pytest.raises(TypeError, match="needs loss="):
        epilogue.torch.advise(llama, ids, optimizer=optimizer, **QUICK)
    with pytest.raises(ValueError, match="model's own parameters"):
        other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        epilogue.torch.advise(llama, ids, labels=ids, optimizer=other, **QUICK)
    with pytest.raises(ValueError, match="without an optimizer"):
        epilogue.torch.advise(llama, ids, loss=lambda out: out.logits.mean(), **QUICK)
    with pytest.raises(TypeError, match="nn.Module"):
        epilogue.torch.advise(lambda x: x, ids, **QUICK)


def test_dtypes(monkeypatch, llama):
    monkeypatch.setattr(advisor, "ratio", lambda before, after: (2.0, 1.9, 2.1))
    ids = models.ids(9)
    assert "bf16" not in names_of(epilogue.torch.advise(llama, ids, **QUICK))
    low = epilogue.torch.advise(llama, ids, tolerance=5e-2, **QUICK)
    assert names_of(low)[0] == "bf16" and low.settings["autocast"] == "bfloat16"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        off = epilogue.torch.advise(llama, ids, **QUICK)
        assert torch.is_autocast_enabled("cpu")
    assert names_of(off)[0] == "f32" and off.settings["autocast"] is None
    assert "run it with autocast = None" in str(off)
    weights = epilogue.torch.advise(models.build("llama").bfloat16(), ids, **QUICK)
    assert names_of(weights)[0] == "f32"
    assert weights.steps[0].difference < 5e-2 and weights.model.dtype == torch.float32


def test_threads_are_the_callers_afterwards(monkeypatch, llama):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        monkeypatch.setattr(advisor, "ratio", lambda before, after: (2.0, 1.9, 2.1))
        advice = epilogue.torch.advise(llama, models.ids(5), **QUICK)
        assert advice.settings["num_threads"] != 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_change_that_does_not_run_is_left_out(monkeypatch, llama):
    def broken(candidate, tolerance):
        made = candidate.copy()
        made.model.lm_head = torch.nn.Linear(1, 1)
        return made, "broken"

    monkeypatch.setattr(changes, "all_changes", lambda: (changes.Change("broken", broken),))
    (step,) = epilogue.torch.advise(llama, models.ids(5), **QUICK).steps
    assert not step.is_kept and "does not run" in step.reason


SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)).eval()
{inputs}
if __name__ == "__main__":
    raise SystemExit("the script's own work ran")
"""


@pytest.mark.parametrize("inputs", ("inputs = torch.ones(4, 8)", "inputs = (torch.ones(4, 8),)", "inputs = dict(input=torch.ones(4, 8))"))
def test_a_script(tmp_path, capsys, inputs):
    script = tmp_path / "mlp.py"
    script.write_text(SCRIPT.format(inputs=inputs))
    page = tmp_path / "a.html"
    words = [str(script), "--out", str(page), "--rounds", "2", "--seconds", "0"]
    assert advise_script.main(words) == 0
    out = capsys.readouterr().out
    assert "ms as it is" in out and "left to do by hand" in out
    assert page.read_text().startswith("<!doctype html>")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["a.html", "mlp.py"]
    assert advise_script.main([*words, "--format", "json"]) == 0
    capsys_json = capsys.readouterr().out
    assert {"schema_version", "eager_ms", "steps", "by_hand"} <= set(json.loads(capsys_json))
    assert "compile" in [step["name"] for step in json.loads(capsys_json)["steps"]]
    assert advise_script.main([*words, "--format", "markdown", "--no-compile"]) == 0
    out = capsys.readouterr().out
    assert "| step |" in out and "| compile |" not in out


def test_scripts_that_are_none(tmp_path, capsys):
    def failure(*words):
        with pytest.raises(SystemExit) as stop:
            advise_script.main(list(words))
        assert stop.value.code == 2
        return capsys.readouterr().err

    assert "no such file" in failure(str(tmp_path / "none.py"))
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    assert "defines no model and no inputs" in failure(str(empty))
    empty.write_text("model = 3\ninputs = ()\n")
    assert "expects an nn.Module, got int" in failure(str(empty))
