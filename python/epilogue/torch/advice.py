# SPDX-License-Identifier: Apache-2.0
"""advise(): what this package can do for a model, tried on a copy, checked and measured."""

import copy
import dataclasses
import html
import statistics
import typing

import torch
from torch import nn

from .fuse import fuse, why
from .timing import interleaved, ratio, relative

_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@dataclasses.dataclass(frozen=True)
class Step:
    """One change, on top of those before it that were kept."""

    name: str
    what: str
    is_kept: bool
    reason: str  # why it was kept or not
    before_ms: "float | None" = None
    after_ms: "float | None" = None
    predicted_ms: "float | None" = None  # saved, by measuring the changed parts alone
    speedup: "tuple[float, float, float] | None" = None  # and its 95 % interval
    difference: "float | None" = None  # relative L2 of the results

    @property
    def saved_ms(self) -> "float | None":
        return None if self.before_ms is None or self.after_ms is None else self.before_ms - self.after_ms


@dataclasses.dataclass(frozen=True)
class Advice:
    eager_ms: float
    best_ms: float
    steps: "tuple[Step, ...]"
    by_hand: "tuple[str, ...]"  # what the trace says beside
    notes: "tuple[str, ...]" = ()
    model: "nn.Module | None" = dataclasses.field(default=None, repr=False)  # the copy with what was kept

    def to_dict(self) -> "dict[str, typing.Any]":
        steps = [{**dataclasses.asdict(s), "saved_ms": s.saved_ms} for s in self.steps]
        return {"eager_ms": self.eager_ms, "best_ms": self.best_ms, "steps": steps, "by_hand": list(self.by_hand), "notes": list(self.notes)}

    def _rows(self) -> "list[tuple[str, ...]]":
        def number(value: "float | None", form: str = ".2f") -> str:
            return "-" if value is None else format(value, form)

        rows = []
        for s in self.steps:
            speed = "-" if s.speedup is None else "{:.2f}x [{:.2f}, {:.2f}]".format(*s.speedup)
            rows.append((s.name, "kept" if s.is_kept else "left out", number(s.predicted_ms), number(s.saved_ms), speed,
                         number(s.difference, ".1e"), s.reason))  # fmt: skip
        return rows

    _HEADER = ("step", "", "predicted ms", "saved ms", "speed", "difference", "why")

    def __str__(self) -> str:
        rows = [self._HEADER, *self._rows()]
        widths = [max(len(r[i]) for r in rows) for i in range(len(self._HEADER))]
        table = ["  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows]
        head = f"{self.eager_ms:.2f} ms as it is, {self.best_ms:.2f} ms with what was kept"
        left = ["left to do by hand:", *(f"  {line}" for line in self.by_hand)] if self.by_hand else []
        return "\n".join([head, *table, *left, *(f"note: {n}" for n in self.notes)])

    def to_html(self) -> str:
        cells = lambda row, tag: "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row)  # noqa: E731
        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in self._rows())
        left = "".join(f"<li>{html.escape(line)}</li>" for line in self.by_hand)
        head = f"{self.eager_ms:.2f} ms as it is, {self.best_ms:.2f} ms with what was kept"
        return (
            "<!doctype html><meta charset=utf-8><title>epilogue advise</title>"
            "<style>body{font-family:sans-serif}td,th{padding:.2em .8em;text-align:left}</style>"
            f"<h1>{head}</h1><table><tr>{cells(self._HEADER, 'th')}</tr>{body}</table>"
            f"<h2>Left to do by hand</h2><ul>{left}</ul>"
        )


def _result(out: typing.Any) -> torch.Tensor:
    """The first tensor of what a model gives."""
    if isinstance(out, torch.Tensor):
        return out
    if isinstance(out, (tuple, list)):
        return _result(out[0])
    if isinstance(out, dict):  # transformers' ModelOutput too
        return _result(next(v for v in out.values() if v is not None))
    raise TypeError(f"advise() compares tensors, the model gave a {type(out).__name__}")


def _fuse(model: nn.Module) -> "str | None":
    fuse(model)
    count = len(why(model).fused)
    return f"{count} MLPs fused" if count else None


def _sdpa(model: nn.Module) -> "str | None":
    config = getattr(model, "config", None)
    if getattr(config, "_attn_implementation", None) != "eager" or not getattr(model, "_supports_sdpa", False):
        return None
    model.set_attn_implementation("sdpa")
    return "attention by scaled_dot_product_attention"


def _channels_last(model: nn.Module) -> "str | None":
    if not any(isinstance(m, nn.Conv2d) for m in model.modules()):
        return None
    model.to(memory_format=torch.channels_last)
    return "convolutions in channels_last"


_CHANGES: "tuple[tuple[str, typing.Callable[[nn.Module], str | None]], ...]" = (
    ("fuse", _fuse),
    ("sdpa", _sdpa),
    ("channels_last", _channels_last),
)


def _mlp_savings(plain: nn.Module, run: "typing.Callable[[nn.Module], typing.Any]", rounds: int) -> "float | None":
    """Milliseconds that fused MLPs save, each timed alone on the input that it had."""
    names = [row.name for row in why(fuse(copy.deepcopy(plain))).fused]
    inputs: "dict[str, typing.Any]" = {}
    hooks = []
    for name in names:
        # Modules whose own forward is the MLP: those of a method (BERT) take other inputs.
        hook = lambda m, args, name=name: inputs.setdefault(name, args) and None  # noqa: E731
        hooks.append(plain.get_submodule(name).register_forward_pre_hook(hook))
    run(plain)
    for hook in hooks:
        hook.remove()
    saved, seen = 0.0, {}
    for name, args in inputs.items():
        own = plain.get_submodule(name)
        fused = fuse(copy.deepcopy(own))
        if len(args) != 1 or type(fused)._epilogue_method != "forward":
            return None
        shape = (tuple(args[0].shape), tuple(tuple(p.shape) for p in own.parameters()))
        if shape not in seen:
            times = interleaved({"own": lambda: own(*args), "fused": lambda: fused(*args)}, 0.01, rounds)
            seen[shape] = statistics.median(times["own"]) - statistics.median(times["fused"])
        saved += seen[shape]
    return saved if inputs else None


def _explain(run: "typing.Callable[[], typing.Any]") -> "tuple[list[str], list[str]]":
    """Findings of a trace of the run that this function does not act on; notes."""
    from torch.profiler import ProfilerActivity, profile

    import epilogue

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        run()
    try:
        explanation = epilogue.explain(recorded)
    except (ImportError, AttributeError) as error:
        return [], [f"the trace was not explained: {error}"]
    return [finding.title for finding in explanation.findings], []


def advise(
    model: nn.Module, *inputs: typing.Any, rounds: int = 9, seconds: float = 0.1, tolerance: "float | None" = None, **kwargs: typing.Any
) -> Advice:
    """Tries changes on a copy of `model`, which stays as it is, and keeps those that give the same
    results faster. Inference: the model's mode is kept, gradients are off.

    rounds, seconds: of the interleaved measurement, and of each setting in a round.
    tolerance: relative L2 of the results; by dtype unless given.
    """
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    limit = _TOLERANCE.get(dtype, 1e-3) if tolerance is None else tolerance
    run = lambda m: _result(m(*inputs, **kwargs))  # noqa: E731
    steps: "list[Step]" = []
    with torch.no_grad():
        plain = copy.deepcopy(model)
        want = run(plain)
        best = plain
        by_hand, notes = _explain(lambda: run(plain))
        for name, change in _CHANGES:
            changed = copy.deepcopy(best)
            what = change(changed)
            if what is None:
                continue
            predicted = _mlp_savings(plain, run, rounds) if name == "fuse" else None
            step, changed_is_kept = _try(name, what, best, changed, run, want, limit, predicted, rounds, seconds)
            steps.append(step)
            best = changed if changed_is_kept else best
        times = interleaved({"plain": lambda: run(plain), "best": lambda: run(best)}, seconds, rounds)
    medians = {k: statistics.median(v) for k, v in times.items()}
    return Advice(medians["plain"], medians["best"], tuple(steps), tuple(by_hand), tuple(notes), best)


def _try(
    name: str, what: str, best: nn.Module, changed: nn.Module, run: typing.Any, want: torch.Tensor, limit: float,
    predicted: "float | None", rounds: int, seconds: float,
) -> "tuple[Step, bool]":  # fmt: skip
    difference = relative(run(changed), want)
    if not difference <= limit:
        return Step(name, what, False, f"results differ by {difference:.1e}, more than {limit:.0e}", difference=difference), False
    times = interleaved({"before": lambda: run(best), "after": lambda: run(changed)}, seconds, rounds)
    before, after = (statistics.median(times[k]) for k in ("before", "after"))
    speedup = ratio(times["before"], times["after"])
    is_kept = speedup[0] > 1
    reason = what if is_kept else f"{what}: not faster"
    return Step(name, what, is_kept, reason, before, after, predicted, speedup, difference), is_kept
