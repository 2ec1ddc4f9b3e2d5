# SPDX-License-Identifier: Apache-2.0
"""advise(): what can be done for a model, tried on copies, checked and measured."""

import collections
import dataclasses
import functools
import statistics
import time
import typing

import torch
from torch import nn
from torch._dynamo.utils import counters

from . import changes
from .advice import Advice, Step
from .backend import MADE
from .candidate import Candidate, Work
from .fuse import packing_states, why
from .isolated import Blocks, InPlace
from .timing import interleaved, ratio, relative

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9, torch.bfloat16: 5e-2, torch.float16: 1e-2}
_WARMUP_RUNS = 2
_TRACED_RUNS = 3
# Findings that frame the others, or that no change of a model's code answers.
_NOT_FOR_HANDS = frozenset(("verdict", "profiler-cost", "memory-peak"))


@dataclasses.dataclass(frozen=True)
class _Measure:
    rounds: int
    seconds: float
    limit: float


def _fused_savings(fused: Candidate, before: Candidate, work: Work, measure: _Measure) -> "float | None":
    """Milliseconds that the fused calls of one run save beside the modules' own ops. Of inference both are timed where they
    run. Of a training step they are timed by themselves, forward and backward: ops of a backward pass cannot be told
    apart in it."""
    trial = fused.copy()
    trial.run(work)  # makes the optimizer's state
    blocks = Blocks(trial.model, lambda: trial.run(work), trial.settings_on, packing_states(trial.model))
    if not blocks.calls:
        return None
    if any(call.grad for call in blocks.calls):
        times = interleaved({"own": blocks.own, "fused": blocks.fused}, measure.seconds, measure.rounds)
    else:
        times = _in_place(InPlace(trial.model, lambda: trial.run(work)), measure)
    # By pairs: a load that comes or goes between rounds counts on both sides.
    return statistics.median(own - fused for own, fused in zip(times["own"], times["fused"]))


def _in_place(mlps: InPlace, measure: _Measure) -> "dict[str, list[float]]":
    """Milliseconds by setting and round, which take turns from run to run."""
    begin = time.perf_counter()
    mlps.own_ms()
    repeats = max(1, int(measure.seconds / max(time.perf_counter() - begin, 1e-7)))
    times: "dict[str, list[float]]" = {"own": [], "fused": []}
    for _ in range(measure.rounds):
        pairs = [(mlps.own_ms(), mlps.fused_ms()) for _ in range(repeats)]
        for name, ms in zip(times, zip(*pairs)):
            times[name].append(statistics.mean(ms))
    return times


_Findings = typing.Sequence[typing.Any]


def _explain(run: "typing.Callable[[], typing.Any]") -> "tuple[tuple[_Findings, ...], tuple[str, ...]]":
    """What traces of single runs show; notes. The first runs are left out: they meet new memory page by page, so that
    ops that only move bytes take several times as long as they ever will again."""
    from torch.profiler import ProfilerActivity, profile

    import epilogue

    for _ in range(_WARMUP_RUNS):
        run()
    found = []
    for _ in range(_TRACED_RUNS):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
            run()
        try:
            found.append(tuple(epilogue.explain(recorded).findings))
        except (ImportError, AttributeError) as error:
            return (), (f"the trace was not explained: {error}",)
    return tuple(found), ()


def _traced_savings(ids: "tuple[str, ...]", before: Candidate, work: Work, measure: _Measure) -> "float | None":
    """Milliseconds that findings in traces of what ran before the change say that it saves: of the median run, as a
    neighbour's load may double what one of them shows. The process is the one that was measured, moments ago: whether a
    large temporary meets new pages each time is a matter of its heap, and half of what there is to save."""
    traces = _explain(lambda: before.run(work))[0]
    saved = [[f.saving_us for f in findings if f.id in ids and f.saving_us is not None] for findings in traces]
    found = [sum(of_run) / 1e3 for of_run in saved if of_run]
    return statistics.median(found) if len(found) * 2 > len(traces) else None


def _left_by_fuse(model: nn.Module) -> "tuple[str, ...]":
    """What fuse() left to PyTorch, and what never ran fused, by reason."""
    report = why(model)
    left = [row for row in (*report.rows, *report.linears) if not row.is_fused or (row.own_calls and not row.fused_calls)]
    reasons = collections.Counter((row.reason if row.is_fused else row.what) or "no reason" for row in left)
    return tuple(f"fuse() leaves {n} module{'s' * (n > 1)}: {reason}" for reason, n in reasons.items())


def _of_backend(counts: "collections.Counter[str]") -> "tuple[str, ...]":
    """What the backend made of the graphs that it was given, and what it left to Inductor."""
    made = [f"{n} {name}" for name, n in counts.items() if name in MADE]
    left = [f"the backend leaves {n} of a graph: {reason}" for reason, n in counts.items() if reason not in (*MADE, "graphs", "fewer bits")]
    return (*([f"the backend's ops: {', '.join(made)}"] if made else []), *left)


def _line(finding: typing.Any) -> str:
    return f"{finding.title}: {finding.action}" if finding.action else finding.title


def _limit_of(model: nn.Module) -> float:
    if torch.is_autocast_enabled("cpu"):
        return _TOLERANCE[torch.get_autocast_dtype("cpu")]
    return max((_TOLERANCE.get(p.dtype, 1e-3) for p in model.parameters()), default=1e-3)


def advise(
    model: nn.Module,
    *inputs: typing.Any,
    loss: "typing.Callable[[typing.Any], torch.Tensor] | None" = None,
    optimizer: "torch.optim.Optimizer | None" = None,
    rounds: int = 9,
    seconds: float = 0.1,
    tolerance: "float | None" = None,
    compile: bool = True,
    **kwargs: typing.Any,
) -> Advice:
    """Explains a run of ``model(*inputs, **kwargs)``, tries changes on copies, and keeps those that
    give the same results faster. The model and the optimizer stay as they are.

    With an optimizer of the model's parameters a run is a training step: forward, backward,
    ``optimizer.step()``. Without one it is inference, without gradients. The mode of the model and an
    autocast region around the call count.

    loss: of a training step, a function of the model's result; without it, the result's ``.loss``.
    rounds, seconds: of the interleaved measurement, and of each setting in a round.
    compile: of inference, whether ``torch.compile(model, backend="epilogue")`` is tried, which takes Inductor's minutes.
    tolerance: relative L2 of results (of a training step: of loss, gradients and updates); by dtype
        unless given: 1e-3 for f32, 5e-2 for bf16. 1e-2 or more lets an f32 model try bf16.

    Raises TypeError for a model that is no module or whose result holds no tensor, ValueError for an
    optimizer of other parameters.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"advise() expects an nn.Module, got {type(model).__name__}")
    if loss is not None and optimizer is None:
        raise ValueError("advise() got a loss without an optimizer: a training step needs both")
    measure = _Measure(rounds, seconds, _limit_of(model) if tolerance is None else tolerance)
    work = Work(inputs, kwargs, loss)
    plain = Candidate(model, optimizer).copy()
    want = plain.outcome(work)
    explained = plain.copy()
    traces, notes = _explain(lambda: explained.run(work))
    steps: "list[Step]" = []
    best, acted = plain, set()
    for change in changes.all_changes():
        if change.name == "compile" and not compile:
            continue
        made = change.make(best, measure.limit)
        if made is None:
            continue
        changed, what = made
        predict = None
        if change.name == "fuse":
            predict = functools.partial(_fused_savings, changed)
        elif change.findings and traces:
            predict = functools.partial(_traced_savings, change.findings)
        counts = collections.Counter(counters["epilogue"])
        step = _try(change.name, what, best, changed, work, want, predict, measure)
        steps.append(step)
        if change.name == "fuse":
            notes += _left_by_fuse(changed.model)
        elif change.name == "compile":
            notes += _of_backend(collections.Counter(counters["epilogue"]) - counts)
        if step.is_kept:
            best = changed
            acted.update(change.findings)
    first = plain.copy()
    last = best.copy()
    times = interleaved({"plain": lambda: first.run(work), "best": lambda: last.run(work)}, seconds, rounds)
    medians = {k: statistics.median(v) for k, v in times.items()}
    by_hand = tuple(_line(f) for f in (traces[-1] if traces else ()) if f.id not in _NOT_FOR_HANDS and f.id not in acted)
    result = best.copy()
    return Advice(medians["plain"], medians["best"], tuple(steps), by_hand, notes, best.settings, result.result, result.optimizer)


def _try(
    name: str, what: str, best: Candidate, changed: Candidate, work: Work, want: "tuple[torch.Tensor, ...]",
    predict: "typing.Callable[[Candidate, Work, _Measure], float | None] | None", measure: _Measure,
) -> Step:  # fmt: skip
    try:
        difference = max(relative(got, wanted) for got, wanted in zip(changed.outcome(work), want))
    except (RuntimeError, NotImplementedError) as error:
        return Step(name, what, False, f"{what}: it does not run: {str(error).splitlines()[0]}")
    if not difference <= measure.limit:
        return Step(name, what, False, f"results differ by {difference:.1e}, more than {measure.limit:.0e}", difference=difference)
    # A training step changes what it runs on: both begin alike.
    before, after = best.copy(), changed.copy()
    times = interleaved({"before": lambda: before.run(work), "after": lambda: after.run(work)}, measure.seconds, measure.rounds)
    before_ms, after_ms = (statistics.median(times[k]) for k in ("before", "after"))
    speedup = ratio(times["before"], times["after"])
    is_kept = speedup[1] > 1  # beyond noise
    reason = what if is_kept else f"{what}: not faster beyond noise"
    predicted = None if predict is None else predict(before, work, measure)
    return Step(name, what, is_kept, reason, before_ms, after_ms, predicted, speedup, difference)
