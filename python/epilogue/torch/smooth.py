# SPDX-License-Identifier: Apache-2.0
"""smooth(): activations with outlier channels are made even, and what they lose goes to the weights.

SmoothQuant (Xiao et al., 2022): for inputs x [.., k] of linear layers W [n, k] and s [k],

    x W^T = (x / s) (W s)^T,   s[j] = max |x[j]| ^ strength / max |W[:, j]| ^ (1 - strength)

so that rows rounded to 8 bits lose less. 1 / s is folded into what makes x: a norm's weight, or the rows of an MLP's up
layer. Here s is a power of two: no weight loses a bit by it, and the model computes what it did.
"""

import dataclasses
import typing

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from . import norms
from .linears import is_conv1d, is_linear
from .match import candidate_method, match
from .patterns import NoMatch

# Questions about a tensor that leave it alone.
_HARMLESS = {"__get__", "size", "dim", "stride", "numel", "is_floating_point", "is_contiguous", "element_size", "ndimension"}
_LEAST = 1e-5  # magnitudes below it count as it


@dataclasses.dataclass(frozen=True)
class Smoothed:
    """One set of channels."""

    maker: str  # the norm or the up layer whose results were divided
    linears: "tuple[str, ...]"  # whose weights were multiplied
    before: float  # the largest magnitude of a channel over the channels' median, in the user's batches
    after: float


@dataclasses.dataclass(frozen=True)
class Smoothing:
    """What smooth() did; its text is for people."""

    sets: "tuple[Smoothed, ...]"
    left: "tuple[tuple[str, str], ...]"  # norms and MLPs that stay as they were, and why

    def __str__(self) -> str:
        lines = [f"{len(self.sets)} sets of channels smoothed"]
        lines += [f"  {s.maker} -> {', '.join(s.linears)}: outliers of {s.before:.1f} times the median became {s.after:.1f}" for s in self.sets]
        return "\n".join(lines + [f"  {name}: left: {reason}" for name, reason in self.left])


class _Watch(TorchFunctionMode):
    """Which tensors linear layers are given, and who else reads what a norm gave."""

    def __init__(self) -> None:
        super().__init__()
        self.most: "dict[nn.Module, torch.Tensor]" = {}  # by linear layer: of each input channel
        self.made: "dict[int, tuple[torch.Tensor, nn.Module]]" = {}  # by address of the object: a norm's result
        self.readers: "dict[nn.Module, list[nn.Module]]" = {}  # by norm
        self.sources: "dict[nn.Module, set[nn.Module | None]]" = {}  # by linear layer
        self.others: "dict[nn.Module, str]" = {}  # by norm: an op that reads its result
        self.inside: "list[nn.Module]" = []  # norms and linear layers that run now

    def note(self, linear: nn.Module, x: torch.Tensor) -> None:
        largest = x.detach().abs().flatten(0, -2).amax(0).float()
        known = self.most.get(linear)
        self.most[linear] = largest if known is None else torch.maximum(known, largest)
        _, norm = self.made.get(id(x), (None, None))
        self.sources.setdefault(linear, set()).add(norm)
        if norm is not None and linear not in self.readers.setdefault(norm, []):
            self.readers[norm].append(linear)

    def __torch_function__(self, func: typing.Any, types: typing.Any, args: typing.Any = (), kwargs: typing.Any = None) -> typing.Any:
        kwargs = kwargs or {}
        if not self.inside and getattr(func, "__name__", "") not in _HARMLESS:
            flat, _ = torch.utils._pytree.tree_flatten((args, kwargs))
            for x in flat:
                if isinstance(x, torch.Tensor) and id(x) in self.made:
                    self.others.setdefault(self.made[id(x)][1], getattr(func, "__name__", str(func)))
        return func(*args, **kwargs)


def _watch(model: nn.Module, batches: "typing.Iterable[typing.Any]", found: "dict[nn.Module, norms.Norm]") -> _Watch:
    watch = _Watch()

    def before(module: nn.Module, args: typing.Any) -> None:
        watch.inside.append(module)
        if module not in found:
            watch.note(module, args[0])
        elif args and id(args[0]) in watch.made:
            watch.others.setdefault(watch.made[id(args[0])][1], type(module).__name__)

    def after(module: nn.Module, args: typing.Any, out: typing.Any) -> None:
        watch.inside.pop()
        if module in found and isinstance(out, torch.Tensor):
            watch.made[id(out)] = (out, module)  # held, so that no other tensor gets its address

    seen = [m for m in model.modules() if m in found or is_linear(m)]
    hooks = [h for m in seen for h in (m.register_forward_pre_hook(before), m.register_forward_hook(after))]
    count = 0
    try:
        with torch.no_grad():
            for batch in batches:
                count += 1
                with watch:
                    if isinstance(batch, dict):
                        model(**batch)
                    else:
                        model(*batch) if isinstance(batch, (tuple, list)) else model(batch)
                watch.made.clear()
    finally:
        for hook in hooks:
            hook.remove()
    if count == 0:
        raise ValueError("batches: expected at least one batch, got none")
    return watch


def _columns(linear: nn.Module) -> torch.Tensor:
    """Of each input, the largest magnitude of its weights."""
    weight = linear._parameters["weight"].detach()
    return weight.abs().amax(1 if is_conv1d(linear) else 0).float()


def _scales(most: torch.Tensor, linears: "list[nn.Module]", strength: float) -> torch.Tensor:
    """Powers of two, around 1: what all channels have in common changes nothing."""
    weights = torch.stack([_columns(linear) for linear in linears]).amax(0).clamp(min=_LEAST)
    exponent = strength * most.clamp(min=_LEAST).log2() - (1 - strength) * weights.log2()
    exponent = torch.where(most > 0, exponent - exponent.median(), torch.zeros_like(exponent))
    return torch.exp2(exponent.round())


def _evenness(most: torch.Tensor) -> float:
    used = most[most > 0]
    return 1.0 if used.numel() == 0 else (used.max() / used.median()).item()


def _multiply(linears: "list[nn.Module]", s: torch.Tensor) -> None:
    for linear in linears:
        weight = linear._parameters["weight"]
        factor = s.to(weight.dtype)
        weight.mul_(factor[:, None] if is_conv1d(linear) else factor)


def _divide_norm(norm: nn.Module, form: str, s: torch.Tensor) -> None:
    for name, p in norm._parameters.items():
        if p is None:
            continue
        wide = p.detach().float()
        p.copy_((1 + wide) / s - 1 if form == "one_plus" and name == "weight" else wide / s)


def _divide_outputs(linear: nn.Module, s: torch.Tensor, packed: bool) -> None:
    """Of the last outputs, where gate's come before."""
    for name, p in linear._parameters.items():
        if p is None:
            continue
        outputs = p.t() if name == "weight" and is_conv1d(linear) else p
        part = outputs[outputs.shape[0] // 2 :] if packed else outputs
        factor = s.to(p.dtype)
        part.div_(factor[:, None] if p.dim() == 2 else factor)


def smooth(model: nn.Module, batches: "typing.Iterable[typing.Any]", strength: float = 0.5) -> Smoothing:
    """Evens out the channels of rows that linear layers read, in place, by what they are in the user's batches.

    Call it before fuse(model, weights=..., activations="int8"); the model computes what it did (up to rounding where a
    norm's weight is added to 1). Channels are those between a norm and the linear layers that alone read it (q, k and v;
    gate and up), and between a gated MLP's up and down. Runs the model on all batches, and keeps the largest magnitude of
    each channel.

    batches: what the model is called with: a tensor, a tuple of arguments, or a dict of named ones, for each call.
    strength: 0: weights become even, 1: rows do. Between them both lose some.
    ValueError on a model that fuse() changed, on no batch, and on a strength outside 0 to 1.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"smooth() expects an nn.Module, got {type(model).__name__}")
    if not isinstance(strength, (int, float)) or not 0 <= strength <= 1:
        raise ValueError(f"strength: expected a number from 0 to 1, got {strength!r}")
    if any(hasattr(type(m), "_epilogue_original") for m in model.modules()):
        raise ValueError("model: expected one before fuse(), got one that it changed")
    if isinstance(batches, (torch.Tensor, dict)):
        raise ValueError(f"batches: expected an iterable of batches, got one {type(batches).__name__}")
    found = {m: norm for m in model.modules() for norm in (norms.identify(m),) if norm is not None}
    watch = _watch(model, batches, found)
    names = {m: name or "(the model)" for name, m in model.named_modules()}
    users: "dict[int, int]" = {}  # of each parameter
    for m in model.modules():
        for p in m._parameters.values():
            users[id(p)] = users.get(id(p), 0) + 1

    def obstacle(linears: "list[nn.Module]", maker: nn.Module) -> "str | None":
        for m in (*linears, maker):
            if any(type(p) is not nn.Parameter for p in m._parameters.values() if p is not None):
                return f"{names[m]} has parameters of a type of their own"
            if any(users[id(p)] > 1 for p in m._parameters.values() if p is not None):
                return f"{names[m]} shares a parameter with another module"
        return None

    sets, left = [], []
    with torch.no_grad():
        for norm, linears in watch.readers.items():
            reason = obstacle(linears, norm)
            if norm in watch.others:
                reason = f"{watch.others[norm]}() reads its result too"
            if any(watch.sources[m] != {norm} for m in linears):
                reason = "its linear layers read other tensors too"
            if reason is not None:
                left.append((names[norm], reason))
                continue
            most = torch.stack([watch.most[m] for m in linears]).amax(0)
            s = _scales(most, linears, strength)
            _multiply(linears, s)
            _divide_norm(norm, found[norm].form, s)
            sets.append(Smoothed(names[norm], tuple(names[m] for m in linears), _evenness(most), _evenness(most / s)))
        for module in model.modules():
            method = candidate_method(module)
            if method is None:
                continue
            try:
                plan = match(module, method)
            except NoMatch:
                continue
            if not plan.gated or plan.post_norm or plan.activation == "clamped_swiglu":
                continue
            up, down = module.get_submodule(plan.linears[0 if plan.packed else 1]), module.get_submodule(plan.linears[-1])
            reason = obstacle([down], up)
            if down not in watch.most or reason is not None:
                left.append((names[down], reason or "no batch came to it"))
                continue
            most = watch.most[down]
            s = _scales(most, [down], strength)
            _multiply([down], s)
            _divide_outputs(up, s, plan.packed)
            sets.append(Smoothed(names[up], (names[down],), _evenness(most), _evenness(most / s)))
    return Smoothing(tuple(sets), tuple(left))
