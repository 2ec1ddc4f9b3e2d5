# SPDX-License-Identifier: Apache-2.0
"""Linear layers by themselves, with packed weights: attention's projections, heads, classifiers.

Layers of one module that are given the same tensor (q, k and v) run as one call. Which these are shows
at the first calls: structure that no trace of attention would show. The first of them computes all; the
others take what is theirs if they are given that very tensor, unwritten. Where one is not (another
input, or not called at all), each runs by itself from then on. A tensor of inference_mode() does not say
whether it was written: of few elements its bits are compared, of more each layer runs by itself.

A layer that tensor parallelism split (sharded.py) is called in place of its hooks.
"""

import dataclasses
import functools
import threading
import typing
import weakref

import torch
from torch import nn

from . import choose, gathered, sharded, signals
from .fused_class import call_around, class_of, is_compiling, made_once, unfuse_class
from .handle import Handle
from .later import Later, plain
from .linears import is_conv1d, is_linear
from .packed import PackedWeight, rounded_of
from .report import Row
from .rounded_call import compiled_call, mark, unmark
from .taken import Taken, misfit, take, unfit
from .taken import rows_of as outputs_first
from .training import computes_as_wide, has_dots_alone, has_tiles, packs_in_vain, products_of, train_linear_once, trained_linear, unprofitable

if typing.TYPE_CHECKING:
    from .released import Store
    from .state import Options

STATE = "_epilogue_linear_state"
_LEFT = "_epilogue_left"  # why a linear layer stays PyTorch's
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_linear = None  # torch.ops.epilogue.linear.default, once the ops are loaded

# Weights of fewer elements take less time than the checks of a call.
LEAST_ELEMENTS = 1 << 16
# Numbers of rows at which a product of packed weights gains where the CPU has instructions for the dtype. One row of f32
# waits for its weights either way; many rows pay for packing, which PyTorch's kernels do at each call.
# `python -m epilogue.torch.bench linears` measures it.
GAINS = {torch.float32: range(2, 33), torch.bfloat16: range(1, 17), torch.float16: range(1, 17)}
# Weights of so many elements gain at any number of f32 rows but one: 1.04 to 1.2 times at 512 rows, by AVX2 and AVX-512.
MANY_ELEMENTS = 1 << 20
_LEAST_OF_MANY_ROWS = 1 << 18
_LEAST_LATER = 1 << 16  # elements of a sum: fewer are added in less time than it takes to wait for what is added
_MOST_COMPARED = 1 << 14  # elements, whose bits are compared in 3 us
LEARNING_CALLS = 3  # of each layer, after which it is known with whom it shares its input
_MOST_LEARNING_THREADS = 16


def gains_always(dtype: torch.dtype, elements: int) -> bool:
    """Whether packed weights gain at any number of rows: where PyTorch has no instructions for the dtype, on AMX's tiles
    (weights of 512 x 2048 to 2304 x 768: 1.7 to 2.6 times PyTorch's rate up to 64 rows, 1.03 to 2.5 times above), and, unless they are
    small, f32 where MKL is slow (512 x 512 to 4864 x 896 on Zen 4: 1.04 to 4.6 times; 256 x 256 0.5 at one row) and bf16 by dot products
    (q, k, v and output of five models on Zen 4, to the best of PyTorch: 1.1 to 1.25 times at 64 rows, 0.99 to 1.09 at 512)."""
    is_large = elements >= _LEAST_OF_MANY_ROWS
    if dtype is torch.bfloat16 and (has_tiles() or (is_large and has_dots_alone())):
        return True
    return products_of(dtype) == "engine" and (is_large or dtype is not torch.float32)


def loses(rows: int, dtype: torch.dtype, elements: int, is_packed: bool = False) -> "str | None":
    """Why PyTorch's own product is as fast, as far as that is known without a clock. elements: of the weights. is_packed: by PyTorch,
    beforehand."""
    if gains_always(dtype, elements) or rows in GAINS[dtype]:
        return None
    if dtype is torch.float32 and rows > 1 and not is_packed and elements >= MANY_ELEMENTS and computes_as_wide():
        return None
    return f"{rows} row{'s' * (rows != 1)} of {str(dtype)[6:]}: PyTorch's own product is as fast; tune='measure' times both"


def why_left(linear: nn.Module, options: "Options", tied: "set[torch.Tensor]") -> "str | None":
    """Why a linear layer stays PyTorch's, whatever it is given."""
    split = sharded.split_of(linear) if sharded.is_marked(linear) else None
    knows = isinstance(split, sharded.Split) or gathered.is_managed(linear)
    # Within FSDP2 the weight is what the plan says only while it is gathered.
    is_planned = "forward" in linear.__dict__ and gathered.is_managed(linear) and sharded.is_planned(linear)
    if "forward" in linear.__dict__ and not isinstance(split, sharded.Split) and not is_planned:
        return "forward is set on the instance (hooks of another library)"
    weight = linear._parameters.get("weight")
    is_rounded = rounded_of(weight) is not None
    if type(weight) is not nn.Parameter and not is_rounded and not knows:
        return f"its weight is a {type(weight).__name__}" + (f": {split}" if sharded.is_dtensor(weight) else "")
    if options.linears == "always":
        return None
    if _elements(linear, weight) < LEAST_ELEMENTS and not isinstance(split, sharded.Split):
        return "small: a call's checks take as long as the product"
    # Of fewer bits a copy is smaller, and read instead.
    if not (options.bits or is_rounded) and weight in tied and not gains_always(weight.dtype, weight.numel()):
        return "its weight is an embedding's: a packed copy would hold it twice for nothing"
    return None


class _Pack(typing.NamedTuple):
    taken: Taken
    handle: "Handle | None"  # None: nothing is packed yet


class _Lost(typing.NamedTuple):
    """A call that its number of rows alone left to PyTorch."""

    weight: torch.Tensor
    columns: int
    dtype: torch.dtype
    rows: int
    elements: int
    reason: str

    def reason_of(self, rows: int) -> "str | None":
        return self.reason if rows == self.rows else loses(rows, self.dtype, self.elements)


class _Pending(typing.NamedTuple):
    """Results of a set that was run for its first layer, until the others are called."""

    x: torch.Tensor
    version: "int | torch.Tensor"
    autocast: "torch.dtype | None"
    outs: "dict[LinearState, torch.Tensor]"

    def is_of(self, x: torch.Tensor, autocast: "torch.dtype | None") -> bool:
        """Whether x is the tensor that the set was run for, as it was then."""
        if self.x is not x or self.autocast is not autocast:
            return False
        return self.version == x._version if type(self.version) is int else torch.equal(_bits_of(x), self.version)


def _bits_of(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.uint8)


def _is_shareable(x: torch.Tensor) -> bool:
    """Whether it can be known that x was not written since."""
    return not x.is_inference() or (x.numel() <= _MOST_COMPARED and x.is_contiguous() and x.stride(-1) == 1)


def _called(
    handle: Handle, x: torch.Tensor, given: "list[torch.Tensor]", join: "sharded.Join | None"
) -> "list[torch.Tensor]":
    """A result for each; none at all if a parameter has other memory than it had."""
    if join is None:
        return _linear(x, handle.number, given, None)
    out = handle(x, given, join)
    return [] if out is None else [out]


class _Set:
    """Linear layers of one input, and their packed weights by dtype of the computation."""

    def __init__(self, modules: "list[nn.Module]", members: "tuple[LinearState, ...]" = ()) -> None:
        self.modules = modules
        self.members = members  # of several
        self.local = threading.local()  # what waits for the other members
        self.reason = ""  # of the last call that gave nothing
        self.packs: "dict[torch.dtype, _Pack]" = {}
        self.split: "sharded.Split | None" = None  # that all of them have
        self.lost: "_Lost | None" = None  # the last such call
        # Of the last call that ran fused, in inference and without autocast: one of the same shape does as long as the parameters stay.
        self.won: "tuple[torch.Size, torch.dtype] | None" = None

    def again(self, x: torch.Tensor) -> "list[torch.Tensor] | None":
        """run(), where the last call says that nothing is in its way; None: it may be. x: strided, on the CPU; no gradients, no autocast."""
        won, pack = self.won, self.packs.get(x.dtype)
        if won is None or won[0] != x.shape or won[1] is not x.dtype or pack is None or not pack.taken.holds(self):
            return None
        return _called(pack.handle, x, pack.taken.given, None) or None

    def run(
        self, x: torch.Tensor, options: "Options", join: "sharded.Join | None" = None
    ) -> "list[torch.Tensor] | None":
        """A result for each; None where they run as their own. join: with the other ranks' parts."""
        global _linear
        if _linear is None:
            _linear = torch.ops.epilogue.linear.default
        autocast = _is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if autocast else x.dtype
        now = gathered.gathered_of(self.modules)
        once = now is not None and not now.kept
        if once:
            self.packs.clear()
        pack = self.packs.get(dtype)
        if pack is None or not pack.taken.holds(self) or x.shape[-1] != pack.taken.columns:
            pack = self._pack(x, dtype, autocast, None, now)
        if pack is None:
            return None
        reason = self._obstacle(x, dtype, pack.taken, options, once)
        if reason is not None:
            self.reason = reason
            return None
        given = x if x.dtype is dtype else x.to(dtype)
        if pack.handle is not None:
            outs = _called(pack.handle, given, pack.taken.given, join)
            if outs:
                plain_call = self.split is None and now is None and not autocast and not _is_grad_enabled()
                self.won = (x.shape, dtype) if plain_call and options.tune != "measure" else None
                return outs
        self.won = None
        pack = self._pack(x, dtype, autocast, options, now)  # the first call, or weights in other memory
        if once:
            self.packs.clear()
        return None if pack is None else _called(pack.handle, given, pack.taken.given, join)

    def _take(self, now: "gathered.Gathered | None" = None) -> "Taken | str":
        is_split = self.split is not None
        return take(self, self.modules, [], is_conv1d(self.modules[0]), is_split, is_split and self.split.partial, now)

    def _pack(
        self, x: torch.Tensor, dtype: torch.dtype, autocast: bool, options: "Options | None", now: "gathered.Gathered | None"
    ) -> "_Pack | None":
        """The parameters as they are; with options packed too."""
        taken = self._take(now)
        reason = taken if isinstance(taken, str) else misfit(x, taken, dtype, autocast)
        if reason is not None or isinstance(taken, str):
            self.reason = str(reason)
            return None
        if options is None:
            return _Pack(taken, None)
        rows = outputs_first(taken.weights, [is_conv1d(m) for m in self.modules])
        handle = Handle(rows, taken.biases, "none", dtype, options.bits, parameters=taken.given)
        pack = self.packs[dtype] = _Pack(taken, handle)
        return pack

    def _obstacle(self, x: torch.Tensor, dtype: torch.dtype, taken: Taken, options: "Options", once: bool) -> "str | None":
        if taken.wants_gradients(x):
            return "gradients are wanted"
        rows = x.numel() // max(x.shape[-1], 1)
        # Who asks for fewer bits gets them at any number of rows: results do not change with it.
        few_bits = taken.is_rounded or (options.bits and options.tune != "measure")
        if options.linears == "always" or options.release or few_bits:
            return None
        if self.split is not None:  # ranks must choose alike; its own way is DTensor's and gloo's, which takes longer than a product
            return packs_in_vain(0, dtype) if once else None
        if options.tune != "measure":
            elements = sum(w.numel() for w in taken.weights)
            reason = loses(rows, dtype, elements)
            self.lost = None if reason is None else _Lost(taken.given[0], taken.columns, dtype, rows, elements, reason)
            return (packs_in_vain(0, dtype) if once else None) or reason
        shapes = " ".join("x".join(str(n) for n in w.shape) for w in taken.weights)
        key = choose.key("linear", shapes, rows, dtype, options.bits)
        faster = choose.known(key)
        if faster is None:
            own = [type(m)._epilogue_own for m in self.modules]
            always = dataclasses.replace(options, linears="always")
            faster = choose.measure(key, lambda: [f(m, x) for f, m in zip(own, self.modules)], lambda: self.run(x, always))
        return None if faster else f"PyTorch is faster at {rows} rows (measured)"

    def train(self, x: torch.Tensor, options: "Options", axes: "tuple[int, ...]" = ()) -> "torch.Tensor | None":
        """The result of the one layer, with gradients by the engine; None where PyTorch's own product is as fast. axes: of a mesh, over
        which gradients of the weight are summed."""
        autocast = _is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if autocast else x.dtype
        transposed = is_conv1d(self.modules[0])
        taken = self._take()
        reason = taken if isinstance(taken, str) else misfit(x, taken, dtype, autocast)
        if reason is None and (options.bits or taken.is_rounded):
            reason = "gradients of fewer bits"
        measures = options.tune == "measure" and self.split is None
        if reason is None and options.training != "always" and not measures:
            reason = unprofitable(dtype)
        if reason is not None or isinstance(taken, str):
            self.reason = str(reason)
            return None
        (weight,), (bias,) = taken.live(axes)
        if options.training != "always" and measures:
            rows = x.numel() // max(x.shape[-1], 1)
            key = choose.key("linear", "x".join(str(n) for n in weight.shape), rows, dtype, "") + " | training"
            names = ("own", "engine")
            fastest = choose.known_of(key, names)
            if fastest is None:
                step = functools.partial(train_linear_once, transposed, dtype, x, weight, bias)
                fastest = choose.measure_all(key, {name: functools.partial(step, name) for name in names})
            if fastest == "own":
                self.reason = f"PyTorch is faster at {rows} rows with gradients (measured)"
                return None
        return trained_linear(transposed, dtype, x, weight, bias)

    def part(self) -> None:
        """Each by itself from here on."""
        self.local.pending = None
        for state in self.members:
            state.together = None

    def is_whole(self) -> bool:
        return all(s.together is self and s.alone is not None and s.alone.modules[0] is m for s, m in zip(self.members, self.modules))

    def waits(self) -> bool:
        """Whether results wait for members, on this thread."""
        return getattr(self.local, "pending", None) is not None

    def hand_out(self, state: "LinearState", x: torch.Tensor, autocast: "torch.dtype | None") -> "torch.Tensor | None":
        """What waits for the member; None: it is of another input, or nothing is."""
        pending: _Pending = self.local.pending
        out = pending.outs.pop(state, None) if pending.is_of(x, autocast) else None
        if not pending.outs:
            self.local.pending = None
        return out

    def give(self, state: "LinearState", x: torch.Tensor, options: "Options", again: bool = False) -> "torch.Tensor | None":
        """A member's result; None where it runs by itself. again: x is what again() takes."""
        autocast = torch.get_autocast_dtype("cpu") if _is_autocast_enabled("cpu") else None
        if self.waits():
            out = self.hand_out(state, x, autocast)
            if out is None:
                self.part()  # somebody did not call for what is theirs, or with another x
            return out
        if state is not self.members[0]:
            return None
        if not self.is_whole():
            self.part()
            return None
        outs = (self.again(x) if again else None) or self.run(x, options)
        if outs is None:
            return None
        waiting = dict(zip(self.members, outs))
        out = waiting.pop(state)
        is_known = not x.is_inference()
        self.local.pending = _Pending(x, x._version if is_known else _bits_of(x).clone(), autocast, waiting)
        if is_known and options.tune != "measure" and state.alone.packs:  # of the first calls: no call asks for them any more
            for member in self.members:
                member.alone.packs.clear()
        return out


class Siblings:
    """Linear layers of one module that read as many columns. A copy learns anew which of them run as one."""

    def __init__(self) -> None:
        self.calls = LEARNING_CALLS  # of each layer that are noted: so many of a thread, for threads come in between
        self._lock = threading.Lock()
        self._local = threading.local()  # a thread's: the layers that were given this tensor
        self._threads = 0

    def __deepcopy__(self, memo: typing.Any) -> "Siblings":
        return memo.setdefault(id(self), Siblings())

    def __reduce__(self) -> typing.Any:
        return Siblings, ()

    def note(self, state: "LinearState", x: torch.Tensor) -> None:
        local = self._local
        with self._lock:
            if not hasattr(local, "x"):
                local.seen, local.x = [], lambda: None
                self._threads += 1
                self.calls = LEARNING_CALLS * min(self._threads, _MOST_LEARNING_THREADS)
            seen: "list[LinearState]" = local.seen
            if local.x() is x:
                if state not in seen and state.alone.split == seen[0].alone.split:
                    seen.append(state)
                return
            if len(seen) > 1 and all(s.together is None for s in seen):
                together = _Set([s.alone.modules[0] for s in seen], tuple(seen))
                together.split = seen[0].alone.split
                for s in seen:
                    s.together = together
            local.seen, local.x = [state], weakref.ref(x)


class LinearState:
    """Of one linear layer. Copies and pickles keep the options, not the weights."""

    def __init__(self, options: "Options", siblings: "Siblings | None" = None, before_residual: bool = False) -> None:
        self.options = options
        self.siblings = siblings
        self.before_residual = before_residual  # in a layer that adds a residual to what may be the result of this
        self.fused_calls = 0
        self.own_calls = 0
        self.reason: "str | None" = None  # of the last call that ran the module's own forward
        self.store: "Store | None" = None  # where the weight is if a packed one replaces it
        self.refresh()

    def refresh(self) -> None:
        """Forgets packed weights, and with whom it shares its input."""
        self.alone: "_Set | None" = None
        self.together: "_Set | None" = None
        self._notes = 0
        self._marks: "list[typing.Any]" = []
        self._split: "sharded.Split | str | None" = None
        self._columns = 0  # of the whole result
        self._hands_on = False  # the split, rows and columns as they are
        self._in_vain = 0  # sums, one after the other, that waited for a residual and got none

    def __deepcopy__(self, memo: typing.Any) -> "LinearState":
        return LinearState(self.options, None if self.siblings is None else self.siblings.__deepcopy__(memo), self.before_residual)

    def __reduce__(self) -> typing.Any:
        return LinearState, (self.options, self.siblings, self.before_residual)

    def run(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        """The fused result; None where the module's own forward has to run."""
        x = plain(x)
        reason = unfit(x) or signals.foreign()
        out = None if reason is not None else self._run(module, None, x)
        if out is not None:
            self.fused_calls += 1
            if self.store is not None:
                together = self.together
                self.store.settle(m.weight for m in (self.alone if together is None else together).modules)
            return out
        self.reason = reason or self.alone.reason
        self.own_calls += 1
        return None

    def loses_again(self, module: nn.Module, x: typing.Any) -> bool:
        """Whether all checks would leave the call to PyTorch as they did one before, in a tenth of their time: a model that
        decodes one token has some four such calls a layer."""
        lost = None if self.alone is None else self.alone.lost
        if lost is None or module._parameters.get("weight") is not lost.weight or _is_grad_enabled() or _is_autocast_enabled("cpu"):
            return False
        if type(x) is not torch.Tensor or x.dtype is not lost.dtype:
            return False
        rows = x.numel() // max(lost.columns, 1)
        if self.together is None and self.siblings is not None and self._notes < self.siblings.calls and _is_shareable(x):
            return False  # with whom it shares x is not known yet
        if self.together is not None:  # more weights may gain where these alone do not
            all_lost = self.together.lost
            if all_lost is None or all_lost.dtype is not lost.dtype or all_lost.reason_of(rows) is None:
                return False
        reason = lost.reason_of(rows)
        if reason is None:
            return False
        self.reason = reason
        self.own_calls += 1
        return True

    def take_waiting(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        """What the call of another layer of this input made for this one a moment ago; None: nothing waits, or all has to be looked at."""
        together = self.together
        if together is None or not together.waits() or self.store is not None or self.alone.modules[0] is not module:
            return None
        if _is_grad_enabled() or _is_autocast_enabled("cpu") or signals.foreign() is not None:
            return None
        out = together.hand_out(self, x, None)
        if out is not None:
            self.fused_calls += 1
        return out

    def run_again(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        """run(), where that goes as it went before, in less than half of the time of its checks; None: it may not."""
        if type(x) is not torch.Tensor or not x.is_cpu or x.layout is not torch.strided or self.store is not None:
            return None
        alone, together = self.alone, self.together
        if alone is None or (alone.won is None and together is None) or alone.modules[0] is not module:
            return None
        if _is_grad_enabled() or _is_autocast_enabled("cpu") or signals.foreign() is not None:
            return None
        is_shareable = _is_shareable(x)
        if together is not None and is_shareable:
            out = together.give(self, x, self.options, again=True)
        elif self.siblings is not None and self._notes < self.siblings.calls and is_shareable:
            return None
        else:
            outs = alone.again(x)
            out = None if outs is None else outs[0]
        if out is not None:
            self.fused_calls += 1
        return out

    def run_split(self, module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        """The same of a layer that is split over ranks, in place of the hooks of its plan. None: nothing is on it, or they run."""
        x = plain(x)
        split = self.split_of(module)
        if split is None:
            return None
        reason = split if isinstance(split, str) else signals.foreign()
        if reason is None and self._hands_on and not _is_grad_enabled() and unfit(x) is None:  # all that q, k and v need
            out = self._run(module, split, x)
            if out is not None:
                self.fused_calls += 1
                return out
        if reason is None:
            gradients = _is_grad_enabled() and (x.requires_grad or gathered.trains(module))
            if gradients and not self.options.training:
                reason = "gradients are wanted: fuse(model, training=True)"
        if reason is None:
            rows = split.enter(x, gradients)
            reason = rows if isinstance(rows, str) else unfit(rows)
        if reason is None:
            bias = gathered.own_of(module).get("bias") if split.partial else None
            product = functools.partial(self._run, module, split, axes=split.axes_of_rows(x))
            waits = self.before_residual and rows.numel() // rows.shape[-1] * self._columns >= _LEAST_LATER
            out = split.run(x, rows, gradients, self._columns, bias, None, product, waits)
            if out is not None:
                self.fused_calls += 1
                return out
        self.reason = reason or self.alone.reason
        self.own_calls += 1
        return None

    def _note(self, added: bool) -> None:
        self._in_vain = 0 if added else self._in_vain + 1

    def last_split(self) -> "sharded.Split | None":
        """Of the last call that ran fused."""
        return None if self.alone is None else self.alone.split

    def split_of(self, module: nn.Module) -> "sharded.Split | str | None":
        """None: its weight is no DTensor."""
        marks = sharded.marks_of(module)
        if marks != self._marks:
            self._marks, self._split = marks, sharded.split_of(module) if sharded.is_marked(module) else None
            is_known = isinstance(self._split, sharded.Split)
            self._columns = sharded.columns_of(module) if is_known else 0
            self._hands_on = is_known and self._split.hands_on(self._columns)
        return self._split

    def _run(
        self, module: nn.Module, split: "sharded.Split | None", x: torch.Tensor, join: "sharded.Join | None" = None,
        axes: "tuple[int, ...]" = (),
    ) -> "torch.Tensor | None":  # fmt: skip
        if self.alone is None or self.alone.modules[0] is not module or (self.alone.split is not split and self.alone.split != split):
            self.refresh()
            self.alone = _Set([module])
            self.alone.split = split
        if _is_grad_enabled() and self.options.training and (x.requires_grad or gathered.trains(module)):
            return self.alone.train(x, self.options, axes)
        if join is None and _is_shareable(x):
            if self.together is not None:
                out = self.together.give(self, x, self.options)
                if out is not None:
                    return out
            elif self.siblings is not None and self._notes < self.siblings.calls:
                self._notes += 1
                self.siblings.note(self, x)
        outs = self.alone.run(x, self.options, join)
        if outs is None or join is None or not join.later:
            return None if outs is None else outs[0]
        out = Later(outs[0], join.given[0], self._note)
        return out if self._in_vain < LEARNING_CALLS else out.wait()


@made_once
def _linear_class(original: type) -> type:
    own = original.forward
    transposed = original.__name__ == "Conv1D"

    def call(self: nn.Module, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if is_compiling():
            return compiled_call(own, transposed, self, args, kwargs)
        if len(args) != 1 or kwargs:
            return own(self, *args, **kwargs)
        state: "LinearState | None" = self.__dict__.get(STATE)
        if state is None:
            return own(self, *args)  # not fused any more, but a plan holds this function
        out = state.take_waiting(self, args[0])
        if out is not None:
            return out
        if state.loses_again(self, args[0]):
            return own(self, *args)
        out = state.run_again(self, args[0])
        if out is not None:
            return out
        if type(self) is _linear_class(original) and (is_split(self) or ("forward" in self.__dict__ and sharded.is_planned(self))):
            self.__class__ = _split_class(original)  # split since it was fused: from the next call on
        out = state.run(self, args[0])
        return own(self, *args) if out is None else out

    return class_of(original, _linear_class, call)


@made_once
def _split_class(original: type) -> type:
    """Of a layer that is split over ranks."""

    def run(module: nn.Module, x: typing.Any) -> "torch.Tensor | None":
        return module.__dict__[STATE].run_split(module, x) if isinstance(x, torch.Tensor) else None

    return class_of(original, _split_class, call_around(original, run), "__call__")


class Ready(typing.NamedTuple):
    """Linear layers of one input, whose weights are packed, for calls of one row and dtype."""

    of: _Set
    states: "tuple[LinearState, ...]"
    dtype: torch.dtype

    def pack(self) -> "_Pack | None":
        """Whoever calls by its handle holds it so long. None: not ready any more."""
        pack = self.of.packs.get(self.dtype)
        if pack is None or pack.handle is None or not pack.taken.holds(self.of):
            return None
        for state in self.states:
            if (state.alone if len(self.states) == 1 else state.together) is not self.of:
                return None
        return pack

    def count(self) -> None:
        for state in self.states:
            state.fused_calls += 1
        store = self.states[0].store
        if store is not None:
            store.settle(m.weight for m in self.of.modules)


def ran_packed(module: nn.Module, rows: int, dtype: torch.dtype) -> bool:
    """Whether the last call of this layer was of so many rows, and ran with packed weights that others may use too."""
    state = module.__dict__.get(STATE)
    if "_epilogue_original" not in vars(type(module)):  # its class is another one since
        return False
    of = None if state is None or state.alone is None else state.alone if state.together is None else state.together
    return of is not None and of.won is not None and of.won[1] is dtype and of.won[0].numel() // of.won[0][-1] == rows


def ready(modules: "typing.Sequence[nn.Module]", rows: int, dtype: torch.dtype) -> "Ready | None":
    """If these layers, in this order, ran last as one call of so many rows."""
    if not all(ran_packed(m, rows, dtype) for m in modules):
        return None
    states = tuple(m.__dict__[STATE] for m in modules)
    of = states[0].alone if len(states) == 1 else states[0].together
    if of is None or list(of.modules) != list(modules):
        return None
    made = Ready(of, states, dtype)
    return None if made.pack() is None else made


def is_fused_linear(module: nn.Module) -> bool:
    return STATE in module.__dict__


def bytes_of(linears: "typing.Iterable[nn.Module]") -> int:
    """What packed copies take, about: panels are filled up to their width."""
    of = [(m, m._parameters.get("weight")) for m in linears]
    return sum(_elements(m, p) * p.element_size() for m, p in of if p is not None)


def _elements(module: nn.Module, p: torch.Tensor) -> int:
    """Of this rank's part of a parameter, gathered where FSDP2 gathers it."""
    if not gathered.is_managed(module):
        return int(sharded.local_of(p).numel())
    mesh = gathered.mesh_within(module)
    return p.numel() // (1 if mesh is None else mesh.size())


def is_split(module: nn.Module) -> bool:
    """Whether tensor parallelism split the layer, within what FSDP2 gathers too."""
    return sharded.is_marked(module) and (not gathered.is_managed(module) or gathered.mesh_within(module) is not None)


def fuse_linears(
    model: nn.Module, of_mlps: "set[nn.Module]", options: "Options", memory: "int | None", left: "int | None"
) -> None:
    """of_mlps: layers that fused MLPs consist of. left: how much of the memory packed weights may still take."""
    tied = {p for m in model.modules() if not is_linear(m) for p in m._parameters.values() if p is not None and p.dim() == 2}
    for parent in model.modules():
        siblings: "dict[int, Siblings]" = {}
        for child in parent.children() if not is_linear(parent) else ():
            if not is_linear(child) or child in of_mlps or not options.linears:
                unfuse_linear(child)
                if child in of_mlps and (options.bits or type(child._parameters.get("weight")) is PackedWeight):
                    mark(child, options.bits)
                continue
            reason = why_left(child, options, tied)
            if reason is None and left is not None:
                left -= bytes_of([child])
                if left < 0:
                    left += bytes_of([child])
                    reason = f"memory={memory}: its packed weights take {bytes_of([child])} bytes"
            unfuse_linear(child)
            if reason is not None:
                child.__dict__[_LEFT] = reason
                continue
            columns = child.weight.shape[0 if is_conv1d(child) else 1]
            child.__dict__[STATE] = LinearState(options, siblings.setdefault(columns, Siblings()))
            child.__class__ = (_split_class if is_split(child) else _linear_class)(type(child))


def expect_residuals(layer: nn.Module) -> None:
    """Marks the linear layers of a layer that adds a residual to what its attention gives."""
    for module in layer.modules() if hasattr(torch.ops.epilogue, "summed_later") else ():  # not in older ops
        if is_fused_linear(module):
            module.__dict__[STATE].before_residual = True


def unfuse_linear(module: nn.Module) -> None:
    unmark(module)
    unfuse_class(module, STATE)
    module.__dict__.pop(_LEFT, None)


def rows_of(model: nn.Module, of_mlps: "set[nn.Module]") -> "list[Row]":
    """Of linear layers that are no part of a fused MLP."""
    rows = []
    for name, module in model.named_modules():
        if is_fused_linear(module):
            state: LinearState = module.__dict__[STATE]
            kind = type(module)._epilogue_original.__name__
            what = "linear layer" if state.together is None else f"linear layer, one of {len(state.together.members)} of one input"
            split = state.split_of(module) if sharded.is_marked(module) and not gathered.is_managed(module) else state.last_split()
            part = str(split) if isinstance(split, sharded.Split) else None
            rows.append(Row(name, kind, True, what, state.fused_calls, state.own_calls, state.reason, bytes=bytes_of([module]), part=part))
        elif _LEFT in module.__dict__ and module not in of_mlps:
            rows.append(Row(name, type(module).__name__, False, module.__dict__[_LEFT]))
    return rows
