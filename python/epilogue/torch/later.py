# SPDX-License-Identifier: Apache-2.0
"""A sum over ranks whose last pass waits for what is done with it: if that is adding a residual, one pass does both.

When a Later is made each rank has handed out its part. The last pass reads what is there, so that ranks need not do it together, nor
all in the same way: whatever else is done with a Later makes it an ordinary sum. It is a tensor to torch's functions, as the
AsyncCollectiveTensor is that torch's own plans of tensor parallelism give in its place.
"""

import typing

import torch
from torch.utils._pytree import tree_map_only

_Tensor = torch.Tensor
_ops = torch.ops.epilogue


class _Sum:
    """One sum. Its last pass is left out if nobody holds it any more."""

    def __init__(self, out: torch.Tensor, group: int, note: "typing.Callable[[bool], None]") -> None:
        self.out, self.group, self.note = out, group, note
        self.is_here = False

    def wait(self) -> torch.Tensor:
        if not self.is_here:
            _ops.host_finish.default(self.out, self.group, True)
            self.is_here = True
            self.note(False)
        return self.out

    def plus(self, residual: typing.Any) -> "torch.Tensor | None":
        """None where one pass does not give both."""
        out = self.out
        if self.is_here or type(residual) is not _Tensor or residual.dtype is not out.dtype or residual.shape != out.shape:
            return None
        if not residual.is_cpu or not residual.is_contiguous():
            return None
        made: "torch.Tensor | None" = _ops.host_take.default(out, self.group, residual)
        self.note(made is not None)
        return made

    def __del__(self) -> None:
        if not self.is_here:
            try:
                _ops.host_finish.default(self.out, self.group, False)
            except Exception:  # the group is closed: nothing waits there
                pass


class Later(torch.Tensor):
    """wait() gives the plain tensor."""

    _sum: _Sum

    @staticmethod
    def __new__(cls, out: torch.Tensor, group: int, note: "typing.Callable[[bool], None]") -> "Later":
        """group: the number of the ranks' memory; note hears of each pass whether it added a residual."""
        self: Later = _Tensor._make_wrapper_subclass(cls, out.shape, out.stride(), 0, dtype=out.dtype, device=out.device)
        self._sum = _Sum(out, group, note)
        return self

    def wait(self) -> torch.Tensor:
        return self._sum.wait()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: typing.Any, types: typing.Any, args: typing.Any = (), kwargs: typing.Any = None) -> typing.Any:
        if func is torch.ops.aten.add.Tensor and len(args) == 2 and not kwargs:
            x, y = args
            out = x._sum.plus(y) if type(x) is Later else y._sum.plus(x)
            if out is not None:
                return out
        return func(*tree_map_only(Later, Later.wait, args), **tree_map_only(Later, Later.wait, kwargs or {}))

    def __repr__(self, **options: typing.Any) -> str:
        return self.wait().__repr__(**options)

    def __reduce_ex__(self, protocol: typing.Any) -> typing.Any:
        return self.wait().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: typing.Any) -> torch.Tensor:
        return self.wait().__deepcopy__(memo)

    def numpy(self, **options: typing.Any) -> typing.Any:
        return self.wait().numpy(**options)

    def tolist(self) -> typing.Any:
        return self.wait().tolist()

    def data_ptr(self) -> int:
        return self.wait().data_ptr()


def plain(x: typing.Any) -> typing.Any:
    return x.wait() if type(x) is Later else x
