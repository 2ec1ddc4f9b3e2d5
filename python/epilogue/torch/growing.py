# SPDX-License-Identifier: Apache-2.0
"""Layers of transformers' DynamicCache whose keys and values grow in place.

transformers concatenates: for each token it copies all keys and values of a layer, so that a token costs a read and a write of the
whole cache before attention reads it again. Here keys and values lie in buffers with room behind them; a token writes its own rows, and
update() gives views. A full buffer is followed by one with a quarter more rows, so that copies stay a constant number of rows per token.

update() gives the values that transformers' gives, tensors of other strides. What a view shows never changes: rows behind it are
written, not its own. crop() gives its rows up if nobody has a tensor of them any more; else the next update() copies.
"""

import inspect
import sys
import typing

import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from . import signals
from .fused_class import is_compiling

_Pair = typing.Tuple[torch.Tensor, torch.Tensor]
_LEAST_SPARE = 128  # rows
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # that the op appends
# Keys and values; transformers 4 asks for keys alone.
_INITIALIZES_BY = len(inspect.signature(DynamicLayer.lazy_initialization).parameters) - 1
_has_append = hasattr(torch.ops.epilogue, "append")  # not in older ops
_Tensor = torch.Tensor
_transforms = torch._C._functorch.peek_interpreter_stack


def _uses(x: torch.Tensor) -> "int | None":
    """How many tensors have the memory of x, and a constant. None: this PyTorch does not tell."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return None if count is None else count(x.untyped_storage()._cdata)


def _uses_of_two() -> "int | None":
    x = torch.empty(2)
    view = x[:1]
    return None if view is x else _uses(x)


_ALONE = _uses_of_two()  # of a buffer and the view that the layer has


class _Growing(DynamicLayer):
    """What both layers share. Buffers are [batch, heads, rows and spare ones, columns]."""

    _room: "_Pair | None" = None
    _seen: "_Pair | None" = None  # the layer's keys and values, if they are rows _begin to _end of the buffers
    _begin = 0
    _end = 0
    _last: typing.Any = None  # shapes and dtype of what was appended last
    _is_of_inference = False  # the buffers
    least_rows = 0  # of a buffer

    def _is_in_room(self) -> bool:
        return self._seen is not None and self.keys is self._seen[0] and self.values is self._seen[1]

    def _drop(self) -> None:
        self._room = self._seen = self._last = None

    def _takes(self, new: _Pair) -> bool:
        """Whether the rows can be written behind those that are there: else torch.cat computes (or raises) what it does."""
        with_gradients = torch.is_grad_enabled()
        if torch.jit.is_tracing() or torch.compiler.is_exporting() or _is_transformed() or (is_compiling() and with_gradients):
            return False
        keys, values = new
        if keys.dim() != 4 or values.dim() != 4 or keys.shape[:3] != values.shape[:3] or 0 in (keys.shape[0], keys.shape[1], keys.shape[3]):
            return False
        if with_gradients and any(x.requires_grad for x in (*new, self.keys, self.values)):
            return False
        past = self._room if self._room is not None and self._is_in_room() else (self.keys, self.values)
        for x, old in zip(new, past):
            if type(x) is not torch.Tensor or type(old) is not torch.Tensor or x.device.type != "cpu":
                return False
            if old.device != x.device or old.dtype != x.dtype or old.requires_grad:
                return False
            if old.dim() == 1 and old.shape[0] == 0:  # a layer without rows
                continue
            if old.dim() != 4 or old.shape[0] != x.shape[0] or old.shape[1] != x.shape[1] or old.shape[3] != x.shape[3]:
                return False
        # One of them may have been cut, or joined alone.
        return past[0].dim() == past[1].dim() and (past[0].dim() == 1 or past[0].shape[2] == past[1].shape[2])

    def _move(self, new: _Pair) -> None:
        """To new buffers, with room for the rows of `new` and more."""
        old = (self.keys, self.values)
        count = old[0].shape[-2] if old[0].dim() == 4 else 0
        needed = count + new[0].shape[-2]
        rows = max(needed + max(_LEAST_SPARE, needed // 4), self.least_rows + 1)
        room = tuple(x.new_empty((x.shape[0], x.shape[1], rows, x.shape[3])) for x in new)
        for buffer, past in zip(room, old):
            if count:
                buffer[:, :, :count].copy_(past)
            _mark_varying(buffer)
        self._room = typing.cast(_Pair, room)
        self._is_of_inference = _is_inference()
        self._begin, self._end = 0, count

    def _takes_again(self, keys: torch.Tensor, values: torch.Tensor) -> bool:
        """Whether the rows are as the last ones, and are written as those were: in a third of the time of _takes()'s checks."""
        if self._last is None or is_compiling() or torch.is_grad_enabled() or type(keys) is not _Tensor or type(values) is not _Tensor:
            return False
        if keys.dtype is not values.dtype or not keys.is_cpu or not values.is_cpu or signals.foreign() is not None:
            return False
        return self._has_room_for(keys.shape, values.shape, keys.dtype) and keys.stride(3) == values.stride(3) == 1

    def _has_room_for(self, keys: torch.Size, values: torch.Size, dtype: torch.dtype) -> bool:
        """Whether rows of these sizes were appended last, and would be again. Not while torch.compile traces, nor with gradients."""
        last, room = self._last, self._room
        if last is None or room is None or keys != last[0] or values != last[1] or dtype is not last[2]:
            return False
        return self._is_in_room() and self._end + keys[2] < room[0].shape[2] and self._is_writable()

    def place_for(self, keys: torch.Size, values: torch.Size, dtype: torch.dtype) -> "tuple[torch.Tensor, torch.Tensor, int, int] | None":
        """The buffers where rows of these sizes come next, and which rows are before them: from, to. None: update() has to take them.
        Called where nothing is traced and gradients are off; put() is called when they are there."""
        if not self._has_room_for(keys, values, dtype):
            return None
        room = typing.cast(_Pair, self._room)
        return room[0], room[1], self._begin, self._end

    def put(self, rows: int) -> _Pair:
        """So many rows were written at the place. All rows; the layer keeps them."""
        room = typing.cast(_Pair, self._room)
        self._end += rows
        count = self._end - self._begin
        self.keys, self.values = self._seen = room[0].narrow(2, self._begin, count), room[1].narrow(2, self._begin, count)
        return self._seen

    def _appended(self, new: _Pair) -> _Pair:
        """All rows, the new ones behind those that are there. The caller says which of them the layer keeps."""
        rows = new[0].shape[-2]
        room = self._room
        # A full buffer's view is contiguous, for which torch.compile would make another graph: the last row stays empty.
        if room is None or not self._is_in_room() or self._end + rows >= room[0].shape[-2] or not self._is_writable():
            self._move(new)
            room = typing.cast(_Pair, self._room)
        begin, past, end = self._begin, self._end, self._end + rows
        keys, values = room
        # Not as a change of the buffers' views, which a backward pass may have kept: their rows stay.
        for buffer, x in ((keys, new[0]), (values, new[1])):
            (buffer if is_compiling() else buffer.data)[:, :, past:end].copy_(x)
        self._end = end
        is_known = _has_append and new[0].dtype is new[1].dtype and new[0].dtype in _DTYPES
        self._last = (new[0].shape, new[1].shape, new[0].dtype) if is_known else None
        return keys[:, :, begin:end], values[:, :, begin:end]

    def _is_writable(self) -> bool:
        """Tensors of inference_mode() cannot be written outside it."""
        if self._room is not None and not is_compiling():  # else a graph may have made them, in a mode that it was not traced in
            self._is_of_inference = self._room[0].is_inference()
        return not self._is_of_inference or _is_inference()

    def _kept(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys, self.values = keys, values
        self._seen = (keys, values)

    def reset(self) -> None:
        self._drop()
        super().reset()

    def crop(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        past, room = self._seen, self._room
        was_in_room = self._is_in_room()
        super().crop(*args, **kwargs)
        if past is None or room is None or not was_in_room or self.keys is past[0]:
            return
        past = self._seen = None
        if is_compiling():
            return self._drop()
        self._begin = (self.keys.storage_offset() - room[0].storage_offset()) // room[0].stride(-2)
        self._end = self._begin + self.keys.shape[-2]
        # Not views of the last views, which would live on as their bases.
        self._kept(*(buffer[:, :, self._begin : self._end] for buffer in room))
        if any(_ALONE is None or _uses(buffer) != _ALONE for buffer in room):
            self._drop()

    def __copy__(self) -> typing.Any:
        """Two layers must not write behind the same rows: the copy takes buffers of its own at its next update()."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__, _room=None, _seen=None)
        return made


def _is_inference() -> bool:
    return torch.is_inference_mode_enabled()


_is_inference._dynamo_marked_constant = True  # type: ignore[attr-defined]  # a graph is of one mode; Dynamo does not trace the question


def _is_transformed() -> bool:
    """By torch.func, which writes no tensor of another level."""
    return not is_compiling() and _transforms() is not None


def _mark_varying(buffer: torch.Tensor) -> None:
    """A graph of torch.compile shall hold for the next buffer too, which has more rows."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None and not is_compiling():
        dynamo.maybe_mark_dynamic(buffer, 2)


class GrowingLayer(_Growing):
    """A DynamicLayer that grows in place."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: typing.Any, **kwargs: typing.Any) -> _Pair:
        if self._takes_again(key_states, value_states):
            torch.ops.epilogue.append.default(*typing.cast(_Pair, self._room), key_states, value_states, self._end)
            return self.put(key_states.shape[2])
        if not self.is_initialized:
            self.lazy_initialization(*(key_states, value_states)[:_INITIALIZES_BY])
        new = (key_states, value_states)
        if not self._takes(new):
            self._drop()
            return super().update(key_states, value_states, *args, **kwargs)
        self._kept(*self._appended(new))
        return self.keys, self.values

    def get_seq_length(self) -> int:
        # Not of the keys: a graph of torch.compile would have them as an input beside the buffer that they lie in.
        return self._end - self._begin if self._is_in_room() else super().get_seq_length()


class GrowingSlidingWindowLayer(_Growing, DynamicSlidingWindowLayer):
    """A DynamicSlidingWindowLayer that grows in place, but in graphs of torch.compile: the window moves through the buffer."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: typing.Any, **kwargs: typing.Any) -> _Pair:
        if not self.is_initialized:
            self.lazy_initialization(*(key_states, value_states)[:_INITIALIZES_BY])
        new = (key_states, value_states)
        # In a graph of torch.compile the window's place would be one more number for each layer, and several graphs.
        if is_compiling() or getattr(self, "record_past", False) or not self._takes(new):
            self._drop()
            return super().update(key_states, value_states, *args, **kwargs)
        if self._has_room_of_a_prompt(key_states.shape[-2]):
            self._drop()
        self.cumulative_length += key_states.shape[-2]
        keys, values = self._appended(new)
        self._keep_window(keys, values)
        return keys, values

    def _has_room_of_a_prompt(self, rows: int) -> bool:
        """A prompt had many rows, and the window kept the last of them."""
        return self._is_in_room() and self._room[0].shape[-2] > 4 * (self.keys.shape[-2] + rows + _LEAST_SPARE)

    def _keep_window(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self._kept(keys[:, :, -self.sliding_window + 1 :], values[:, :, -self.sliding_window + 1 :])
        self._begin = self._end - self.keys.shape[-2]

    def place_for(self, keys: torch.Size, values: torch.Size, dtype: torch.dtype) -> "tuple[torch.Tensor, torch.Tensor, int, int] | None":
        if getattr(self, "record_past", False) or self._has_room_of_a_prompt(keys[2]):
            return None
        return super().place_for(keys, values, dtype)

    def put(self, rows: int) -> _Pair:
        keys, values = super().put(rows)
        self.cumulative_length += rows
        self._keep_window(keys, values)
        return keys, values


def reserve(layer: GrowingLayer, rows: int) -> GrowingLayer:
    """The layer, with room for so many rows from its next update() on."""
    layer.least_rows = rows
    if layer._room is not None and layer._room[0].shape[-2] <= rows:
        layer._drop()
    return layer


def layer_with_rows(rows: int) -> GrowingLayer:
    return reserve(GrowingLayer(), rows)


GROWING = {DynamicLayer: GrowingLayer, DynamicSlidingWindowLayer: GrowingSlidingWindowLayer}
