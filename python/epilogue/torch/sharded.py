# SPDX-License-Identifier: Apache-2.0
"""Layers that tensor parallelism split over the ranks of a mesh: what its plan asks for, and how a rank's part joins the others.

    columns   W is Shard(0): all rows in, this rank's columns out             gate and up, q, k and v
    rows      W is Shard(1): this rank's columns in, a partial sum out        down, o

Plans are known by what they put on a linear layer: the two hooks of torch's parallelize_module, the forward of transformers'
tp_plan, or a weight that is a DTensor and nothing else (then rows are DTensors too). A fused call runs between the two ends of
the plan: it reads what the first layer would be given, and its partial sum is reduced to what the last layer would give.
"""

import copy
import functools
import sys
import typing

import torch
import torch.nn.functional as F
from torch import nn

from . import host_reduce, training
from .gathered import is_managed, is_wrapped, mesh_within, own_of
from .layer import hooks_of
from .match import DTYPES

_loaded = sys.modules
_Tensor = torch.Tensor
_is_autocast_enabled = torch.is_autocast_enabled
_TORCH, _TRANSFORMERS = "torch.distributed.tensor.parallel.style", "transformers.distributed.tensor_parallel"
_EXPERTS = "transformers.distributed.expert_parallel"


_dtensor: "type | None" = None


def dtensor_class() -> "type | None":
    """None where nobody loaded it, so that nothing can be one."""
    global _dtensor
    if _dtensor is None:
        module = _loaded.get("torch.distributed.tensor")
        _dtensor = None if module is None else getattr(module, "DTensor", None)
    return _dtensor


def is_dtensor(value: typing.Any) -> bool:
    kind = dtensor_class()
    return kind is not None and isinstance(value, kind)


def local_of(p: typing.Any) -> typing.Any:
    """This rank's part of a parameter."""
    return p._local_tensor if is_dtensor(p) else p


def has_whole_rows(x: typing.Any, weight: typing.Any) -> bool:
    """Whether each rank has whole rows of a DTensor, or all of them, and all of a vector that goes with each."""
    if not is_dtensor(weight) or weight.device_mesh != x.device_mesh or not all(p.is_replicate() for p in weight.placements):
        return False
    return _keeps_rows_whole(x.placements, x.dim())


def _keeps_rows_whole(placements: "typing.Iterable[typing.Any]", dims: int) -> bool:
    return all(p.is_replicate() or (p.is_shard() and p.dim % dims != dims - 1) for p in placements)


def placed_as(spec: typing.Any, part: torch.Tensor) -> typing.Any:
    """This rank's part of a DTensor that has another one's shape, layout, dtype and placements. Making these takes ten times as long."""
    return dtensor_class()(part, spec, requires_grad=False)


def rows_like(x: typing.Any, part: torch.Tensor) -> typing.Any:
    """This rank's part, contiguous, of a DTensor of x's shape, dtype and placements."""
    if x.is_contiguous():
        return placed_as(x._spec, part)
    strides = torch.empty(x.shape, device="meta").stride()
    return dtensor_class().from_local(part, x.device_mesh, x.placements, run_check=False, shape=x.shape, stride=strides)


def settled(x: typing.Any) -> typing.Any:
    """A result of a collective that is under way, once it is there."""
    if type(x) is _Tensor:
        return x
    return x.wait() if type(x).__name__ == "AsyncCollectiveTensor" and hasattr(x, "wait") else x


def gathered_rows(x: typing.Any, given: typing.Any, group: typing.Any) -> "torch.Tensor | None":
    """All ranks' rows. x: a plain tensor that is `given`, of as many rows on each rank, or a DTensor; None: DTensor gathers these."""
    if is_dtensor(x):
        from torch.distributed.tensor import Shard

        given = x.placements[0]
        if x.device_mesh.ndim != 1 or type(given) is not Shard or x.shape[given.dim] % x.device_mesh.size() != 0:
            return None
        x = settled(x._local_tensor)
    return host_reduce.all_gather(x.contiguous(), group, dim=given.dim) if type(x) is _Tensor and given.is_shard() else None


def _rank_of(mesh: typing.Any) -> str:
    return f"rank {mesh.get_local_rank()} of {mesh.size()}"


class Join(typing.NamedTuple):
    """Of a product's rows, block by block while the next ones are computed."""

    gathers: bool  # side by side; if not, they are summed
    given: "tuple[typing.Any, ...]"  # the number of the ranks' memory; of sums bias and residual too, which are added
    later: bool = False  # the last pass of a sum may wait: bias, and no residual, is given then


class Split(typing.NamedTuple):
    """How a linear layer, or an MLP, is split, and what the plan gives and wants at its ends."""

    partial: bool  # the result is a sum over ranks; if not, this rank's columns of it
    mesh: typing.Any  # a DeviceMesh of one dimension, over which it is split
    given: typing.Any  # the placement of rows that are plain tensors; None: they are DTensors
    wanted: typing.Any  # the placement that the product reads
    output: typing.Any  # the placement of the result; None: what the product gives
    local: bool  # the result is a plain tensor
    outer: typing.Any = None  # the weights' mesh where it has more dimensions, in which they are the same
    axis: int = 0  # of the outer mesh: what `mesh` is
    group: typing.Any = None  # the mesh's; asking it takes as long as a small product

    def hands_on(self, columns: int) -> bool:
        """Whether plain rows without gradients go to the product, and its columns to whoever called, as they are. columns: of the
        whole result."""
        is_plain = not self.partial and self.local and self.outer is None and self.given is not None and self.given == self.wanted
        return is_plain and self.output is not None and self.output.is_shard() and self.output.dim == -1 and columns % self.group.size() == 0

    def _placements(self, x: typing.Any, of_axis: typing.Any) -> "list[typing.Any]":
        """x's, with another one on the axis."""
        return [of_axis if i == self.axis else p for i, p in enumerate(x.placements)]

    def enter(self, x: typing.Any, gradients: bool) -> "torch.Tensor | str":
        """The rows that this rank's part reads, or why there are none."""
        x = settled(x)
        kind = dtensor_class()
        if type(x) is _Tensor:
            if self.given is None:
                return "the weights are DTensors, the input is not"
            if not gradients and (self.given is self.wanted or self.given == self.wanted):
                return x
            if not gradients and self.wanted.is_replicate() and (rows := gathered_rows(x, self.given, self.group)) is not None:
                return rows
            x = kind.from_local(x, self.mesh, [self.given], run_check=False)
        elif type(x) is not kind or x.device_mesh != (self.mesh if self.outer is None else self.outer):
            return f"the input is a {type(x).__name__}" + (" of another mesh" if type(x) is kind else "")
        elif self.outer is not None:
            rest = [p for i, p in enumerate(x.placements) if i != self.axis]
            if not _keeps_rows_whole(rest, x.dim()):
                return f"the input is {x.placements}"
        if not _is_placed(x, self.wanted, self.axis):
            if not gradients and self.wanted.is_replicate() and (rows := gathered_rows(x, None, self.group)) is not None:
                return rows
            x = x.redistribute(placements=self._placements(x, self.wanted))
        if not gradients:
            return settled(x._local_tensor)
        from torch.distributed.tensor import Partial

        return settled(x.to_local(grad_placements=self._placements(x, Partial()) if self.wanted.is_replicate() else None))

    def axes_of_rows(self, x: typing.Any) -> "tuple[int, ...]":
        """Dimensions of the weights' mesh over which the rows that enter() was given are split: a rank's gradients of the weights are a
        part of the sum over them."""
        return () if self.outer is None else tuple(i for i, p in enumerate(x.placements) if i != self.axis and p.is_shard())

    def run(
        self, x: typing.Any, rows: torch.Tensor, gradients: bool, columns: int, bias: typing.Any, residual: "torch.Tensor | None",
        product: "typing.Callable[[torch.Tensor, Join | None], torch.Tensor | None]", later: bool = False,
    ) -> "torch.Tensor | None":  # fmt: skip
        """The plan's result, by product(rows, join), which gives this rank's part, or what `join` makes of all ranks' parts. None: it
        gives none. What has no join is leave()'s. later: what is added to a sum may come after the call."""
        join = None if gradients else self._join(rows, columns, bias, residual, later)
        out = product(rows if join is None else rows.contiguous(), join)
        return out if out is None or join is not None else self.leave(out, columns, bias, residual, x)

    def _join(
        self, rows: torch.Tensor, columns: int, bias: typing.Any, residual: "torch.Tensor | None", later: bool
    ) -> "Join | None":
        """How a product without gradients gives the plan's result by itself; None where leave() makes it."""
        output = self.output
        if not self.local or output is None or not output.is_replicate() or (not self.partial and columns % self.group.size()):
            return None
        dtype = torch.get_autocast_dtype("cpu") if _is_autocast_enabled("cpu") else rows.dtype
        if not self.partial:
            number = host_reduce.number_for(self.group, dtype, ())
            return None if number is None or residual is not None else Join(True, (number,))
        bias = None if bias is None else bias._local_tensor
        residual = None if residual is None else residual.contiguous()
        number = host_reduce.number_for(self.group, dtype, (bias, residual))
        if number is None:
            return None
        return Join(False, (number, bias), True) if later else Join(False, (number, bias, residual))

    def leave(self, out: torch.Tensor, columns: int, bias: typing.Any, residual: "torch.Tensor | None", x: typing.Any) -> torch.Tensor:
        """The result as the plan wants it, from this rank's part. Writes into `out` where no gradient needs it. columns: of the
        whole result; bias: of the last layer, which no part has added, a DTensor; residual: rows as the result's; x: the rows that
        enter() was given."""
        gradients = out.requires_grad or (bias is not None and bias.requires_grad and torch.is_grad_enabled())
        if self.local and self.output is not None and not gradients:
            plain = self._leave_plain(out, columns, None if bias is None else bias._local_tensor, residual)
            if plain is not None:
                return plain
        from torch.distributed.tensor import Partial, Shard

        last = out.dim() - 1
        shape = (*(out if self.outer is None else x).shape[:-1], columns)
        strides = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * max(size, 1))
        placement = Partial() if self.partial else Shard(last)
        mesh, placements = (self.mesh, [placement]) if self.outer is None else (self.outer, self._placements(x, placement))
        made = dtensor_class().from_local(out, mesh, placements, run_check=False, shape=torch.Size(shape), stride=tuple(strides))
        if self.output is not None and not _is_placed(made, self.output):
            made = made.redistribute(placements=[self.output])
        if bias is not None:
            made = made + bias.to(out.dtype)
        result = settled(made.to_local()) if self.local else made
        return result if residual is None else result + residual

    def _leave_plain(
        self, out: torch.Tensor, columns: int, bias: "torch.Tensor | None", residual: "torch.Tensor | None"
    ) -> "torch.Tensor | None":
        """The same without DTensors; None where the ranks' parts are uneven, or the plan wants something else."""
        group, ranks, output = self.group, self.group.size(), self.output
        if self.partial and output.is_replicate():
            residual = residual if residual is None else residual.contiguous()
            return host_reduce.all_reduce(out, group, bias=bias, residual=residual)
        if self.partial and output.is_shard() and out.shape[output.dim] % ranks == 0:
            result = host_reduce.reduce_scatter(out, group, dim=output.dim)
            for more in (bias, residual):
                if more is not None:
                    result = result.add_(more) if more.dtype is result.dtype else result + more
            return result
        if self.partial or columns % ranks:
            return None
        if output.is_replicate():
            return host_reduce.all_gather(out, group, dim=-1)
        return out if output.is_shard() and output.dim % out.dim() == out.dim() - 1 else None

    def __str__(self) -> str:
        return _rank_of(self.mesh)


def _is_placed(x: typing.Any, placement: typing.Any, axis: int = 0) -> bool:
    now = x.placements[axis]
    if placement.is_shard() and now.is_shard() and type(now) is type(placement):
        return now.dim % x.dim() == placement.dim % x.dim()
    return now == placement


def _cells(function: typing.Any) -> "dict[str, typing.Any]":
    """What a nested function keeps of the one around it."""
    code, closure = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or closure is None:
        return {}
    return {name: cell.cell_contents for name, cell in zip(code.co_freevars, closure)}


class _Plan(typing.NamedTuple):
    """What was put on one linear layer."""

    columns: "bool | None"  # None: the weight alone says it
    mesh: typing.Any
    given: typing.Any
    output: typing.Any
    local: bool


def _by_torch(linear: nn.Module) -> "_Plan | str":
    """Of parallelize_module's hooks: one before and one after forward(), as distribute_module sets them."""
    before, after = list(linear._forward_pre_hooks.values()), list(linear._forward_hooks.values())
    styles = _loaded.get(_TORCH)
    if styles is None or len(before) != 1 or len(after) != 1 or linear._backward_hooks or linear._backward_pre_hooks:
        return "a hook on a layer"
    first, last = _cells(before[0]), _cells(after[0])
    enter, leave = first.get("input_fn"), last.get("output_fn")
    if not isinstance(enter, functools.partial) or not isinstance(leave, functools.partial) or enter.keywords or leave.keywords:
        return "a hook on a layer"
    for kind, columns in ((styles.ColwiseParallel, True), (styles.RowwiseParallel, False)):
        if enter.func is kind._prepare_input_fn and leave.func is kind._prepare_output_fn:
            (given,), (output,), local = enter.args[0], leave.args[0], leave.args[1]
            return _Plan(columns, first["device_mesh"], given, output, local)
    return "a hook on a layer"


def prepared_input(hook: typing.Any) -> "tuple[typing.Any, typing.Any] | None":
    """The PrepareModuleInput of which it is the hook, and its mesh, of one dimension on the CPU."""
    styles = _loaded.get(_TORCH)
    if styles is None or getattr(hook, "__module__", None) != _TORCH:
        return None
    inner = _cells(hook)
    style, mesh = inner.get("self"), inner.get("device_mesh")
    if type(style) is not getattr(styles, "PrepareModuleInput", None) or mesh is None or mesh.ndim != 1 or mesh.device_type != "cpu":
        return None
    return (style, mesh) if hasattr(style, "_prepare_input_arg") else None


def is_sequence_input(hook: typing.Any) -> bool:
    """Whether it is the hook of SequenceParallel that makes a DTensor of a rank's rows."""
    styles = _loaded.get(_TORCH)
    kind = None if styles is None else getattr(styles, "SequenceParallel", None)
    if kind is None or not str(getattr(hook, "__module__", "")).startswith("torch.distributed.tensor."):
        return False
    enter = _cells(hook).get("input_fn")
    return isinstance(enter, functools.partial) and enter.func is getattr(kind, "_prepare_input_fn", None)


def _by_transformers(module: nn.Module) -> "_Plan | str":
    """Of the forward that tp_plan sets on an instance."""
    reason = "forward is set on the instance (hooks of another library)"
    forward = module.__dict__["forward"]
    inner = _cells(forward)
    styles = _loaded.get(_TRANSFORMERS)
    if styles is None or getattr(forward, "__module__", None) != _TRANSFORMERS or inner.get("module") is not module:
        return reason
    style, original = inner["self"], inner["original_forward"]
    if getattr(original, "__self__", None) is not module or not _is_own(module, original.__func__):
        return reason
    if getattr(module, "_hf_quantized_needs_local_tp", False):
        return f"transformers' {type(style).__name__} of a quantised weight"
    for kind, columns in ((styles.ColwiseParallel, True), (styles.RowwiseParallel, False)):
        if type(style) is kind:
            return _Plan(columns, inner["mesh"], style.input_layouts, style.output_layouts, style.use_local_output)
    if type(style) is getattr(styles, "EmbeddingParallel", None):
        from torch.distributed.tensor import Replicate

        return _Plan(style.shard_dim == 1, inner["mesh"], Replicate(), Replicate(), style.use_local_output)
    return f"transformers' {type(style).__name__}"


def _is_own(module: nn.Module, function: typing.Any) -> bool:
    """Whether it is the forward of the module's class, fused or not."""
    kind = type(module)
    if function in (getattr(kind, "_epilogue_own", None), kind.forward, getattr(kind, "_epilogue_fused", None)):
        return True
    return getattr(function, "_epilogue_call_of", None) is getattr(kind, "_epilogue_original", kind)  # fused before it was split


def is_marked(linear: nn.Module) -> bool:
    """Whether it may be part of a plan: worth a look."""
    return is_dtensor(own_of(linear).get("weight"))


def marks_of(linear: nn.Module) -> "list[typing.Any]":
    """What split_of() depends on, to compare."""
    has = linear.__dict__
    own = has if "weight" in has else has["_parameters"]
    before, after = has["_forward_pre_hooks"], has["_forward_hooks"]
    return [*before.values(), None, *after.values(), len(has["_backward_hooks"]), len(has["_backward_pre_hooks"]),
            has.get("forward"), id(own.get("weight")), id(own.get("bias"))]  # fmt: skip


def columns_of(linear: nn.Module) -> int:
    """Of the whole result. Asking a DTensor takes long; what split_of() depends on says whether it changed."""
    return int(own_of(linear)["weight"].shape[0])


def is_planned(linear: nn.Module) -> bool:
    """Whether the forward of its instance is that of a plan, whatever its weight is now."""
    return not any(hooks_of(linear)) and isinstance(_by_transformers(linear), _Plan)


def split_of(linear: nn.Module) -> "Split | str":
    """How a layer that is_marked() is split, or why it is no layer of a plan."""
    if is_wrapped(linear):
        return "fully_shard() was called on the layer itself, whose plan's hooks see what FSDP2 gathers: call it on what contains the layer"
    if "forward" in linear.__dict__:
        if any(hooks_of(linear)):
            return "a hook on a layer beside the forward of its instance"
        plan = _by_transformers(linear)
    elif any(hooks_of(linear)):
        plan = _by_torch(linear)
    else:
        plan = _Plan(None, getattr(own_of(linear).get("weight"), "device_mesh", None), None, None, False)
    return plan if isinstance(plan, str) else _checked(linear, plan)


def _checked(linear: nn.Module, plan: _Plan) -> "Split | str":
    """The plan's weights are what it says."""
    weight, bias = own_of(linear).get("weight"), own_of(linear).get("bias")
    if not is_dtensor(weight) or (bias is not None and not is_dtensor(bias)):
        return "a plan of tensor parallelism whose parameters are no DTensors"
    axis = _axis_of(weight)
    if weight.device_mesh != plan.mesh or axis is None or weight.dim() != 2:
        return f"a weight of {weight.dim()} dimensions on a mesh of {weight.device_mesh.ndim}: {weight.placements}"
    from torch.distributed.tensor import Replicate, Shard

    columns = _is_placed(weight, Shard(0), axis) if plan.columns is None else plan.columns
    of_weight, of_bias = (Shard(0), Shard(0)) if columns else (Shard(1), Replicate())
    if not _is_placed(weight, of_weight, axis):
        return f"a weight that is {weight.placements[axis]}"
    if bias is not None and (bias.device_mesh != plan.mesh or not _is_placed(bias, of_bias, axis) or _axis_of(bias) not in (axis, None)):
        return f"a bias that is {bias.placements}"
    outer = None if weight.device_mesh.ndim == 1 else weight.device_mesh
    mesh, wanted = _along(weight, axis), Replicate() if columns else Shard(-1)
    return Split(not columns, mesh, plan.given, wanted, plan.output, plan.local, outer, axis, mesh.get_group())


def _axis_of(p: typing.Any) -> "int | None":
    """The dimension of its mesh that a parameter is split over; in all others it is the same. None where there is not one."""
    if p.device_mesh.ndim == 1:
        return 0
    axes = [i for i, placement in enumerate(p.placements) if not placement.is_replicate()]
    return axes[0] if len(axes) == 1 and p.device_mesh.mesh_dim_names is not None else None


def _along(p: typing.Any, axis: int) -> typing.Any:
    """That dimension of its mesh."""
    return p.device_mesh if p.device_mesh.ndim == 1 else p.device_mesh[p.device_mesh.mesh_dim_names[axis]]


def split_of_mlp(linears: "list[nn.Module]") -> "Split | str":
    """Of gate and up by columns and down by rows, which nothing redistributes between."""
    parts = [split_of(linear) for linear in linears]
    reasons = dict.fromkeys(part for part in parts if isinstance(part, str))
    if reasons:
        return "; ".join(reasons)
    first, last = parts[0], parts[-1]
    if any(p != first for p in parts[:-1]) or first.partial or not last.partial or (first.mesh, first.outer) != (last.mesh, last.outer):
        return "tensor parallelism that is no split by columns, then by rows"
    for placement in (first.output, last.given):
        if placement is not None and not (placement.is_shard() and type(placement) is type(last.wanted) and placement.dim == -1):
            return f"what is between its layers is {placement}"
    if first.local and last.given is None:
        return "its layers hand on what is no plain tensor"
    return last._replace(given=first.given, wanted=first.wanted)


def _looked_up(weight: torch.Tensor, ids: torch.Tensor, first: int) -> torch.Tensor:
    """Rows of a part of a weight, [..., columns]; `first`: which row of the whole its first one is. Rows of other parts are 0."""
    rows, columns = weight.shape
    if rows == 0:
        return weight.new_zeros(*ids.shape, columns)
    mine = ids - first
    others = (mine < 0).logical_or_(mine >= rows)
    return F.embedding(mine.clamp_(0, rows - 1), weight).masked_fill_(others.unsqueeze(-1), 0)


class EmbeddingSplit(typing.NamedTuple):
    """How an embedding's weight is split, and what the plan wants of its rows, which are a plain tensor."""

    by_columns: bool  # of the weight, which all ranks get; if not, by its rows, of which a rank has those from `first` on
    mesh: typing.Any  # a DeviceMesh of one dimension, over which it is split
    output: typing.Any  # the placement of the result
    first: int
    group: typing.Any

    def run(self, weight: torch.Tensor, ids: torch.Tensor) -> "torch.Tensor | None":
        """The result, of this rank's part of the weight. None: the ranks do not divide it."""
        dims, ranks = ids.dim() + 1, self.mesh.size()
        if self.by_columns:
            return host_reduce.all_gather(F.embedding(ids, weight), self.group, dim=-1)
        if self.output.is_replicate():
            return host_reduce.all_reduce(_looked_up(weight, ids, self.first), self.group)
        dim = self.output.dim % dims
        size = weight.shape[1] if dim == dims - 1 else ids.shape[dim]
        return host_reduce.reduce_scatter(_looked_up(weight, ids, self.first), self.group, dim=dim) if size % ranks == 0 else None

    def of(self) -> str:
        return "by columns" if self.by_columns else f"rows from {self.first} on"

    def __str__(self) -> str:
        return _rank_of(self.mesh)


def split_of_embedding(module: nn.Module) -> "EmbeddingSplit | str":
    """How an embedding is split, or why it is none of a plan that is known."""
    from torch.distributed.tensor import Shard

    weight = module._parameters.get("weight")
    if not is_dtensor(weight):
        return "its weight is no DTensor"
    has_hooks = any(hooks_of(module))
    if "forward" in module.__dict__:
        plan = "a hook on a layer beside the forward of its instance" if has_hooks else _by_transformers(module)
    else:
        plan = _by_torch(module) if has_hooks else "its weight is a DTensor, by no plan"
    if isinstance(plan, str):
        return plan
    mesh, ranks = weight.device_mesh, weight.device_mesh.size()
    if mesh.ndim != 1 or mesh.device_type != "cpu" or mesh != plan.mesh or not _is_placed(weight, Shard(1 if plan.columns else 0)):
        return f"a weight on a mesh of {mesh.ndim} dimensions: {weight.placements}"
    if plan.given is None or not plan.given.is_replicate() or plan.output is None or not plan.local:
        return "a plan whose ends are no plain tensors"
    if plan.output.is_partial() or (plan.columns and (not plan.output.is_replicate() or weight.shape[1] % ranks)):
        return f"a result that is {plan.output!r}, of {weight.shape[1]} columns"
    rows = -(-weight.shape[0] // ranks)
    return EmbeddingSplit(plan.columns, mesh, plan.output, min(mesh.get_local_rank() * rows, weight.shape[0]), mesh.get_group())


class ExpertsSplit(typing.NamedTuple):
    """Experts of transformers' plan: each rank has some of them, or some columns of each."""

    style: typing.Any  # what runs before and after the experts' own forward
    mesh: typing.Any
    implementation: typing.Any  # of expert parallelism; None: columns are split

    def holds(self, module: nn.Module) -> bool:
        """Whether the parameters are its parts now: within FSDP2 only while they are gathered."""
        return all(is_dtensor(p) and p.device_mesh == self.mesh for p in module._parameters.values() if p is not None)

    def call(
        self, module: nn.Module, args: typing.Any, kwargs: typing.Any, run: "typing.Callable[..., torch.Tensor | None]",
        own: "typing.Callable[..., torch.Tensor]",
    ) -> torch.Tensor:  # fmt: skip
        """As the plan's forward, with `run` in place of the experts' own, which runs where that gives None."""
        if self.implementation is None:
            args, kwargs = self.style.transform_inputs_pre_forward(module, args, kwargs, self.mesh)
            out = run(*args, **kwargs)
            if out is not None and not out.requires_grad:
                return host_reduce.all_reduce(out, self.mesh.get_group())
            if out is None:
                with self.style.context_around_forward(module, self.mesh):
                    out = own(module, *args, **kwargs)
            return self.style.transform_output_post_forward(module, out, self.mesh)

        def local(*given: typing.Any) -> torch.Tensor:
            out = run(*given)
            if out is not None:
                return out
            with self.style.context_around_forward(module, self.mesh):
                return own(module, *given)

        twin = _with_experts(self.implementation, local)
        x, index, weights = (value.to_local() if is_dtensor(value) else value for value in (*args, *kwargs.values()))
        return twin(x, index, weights).to(x.dtype)

    def __str__(self) -> str:
        return _rank_of(self.mesh)


def _with_experts(implementation: typing.Any, forward: "typing.Callable[..., torch.Tensor]") -> typing.Any:
    """A copy of one of transformers' ways to bring tokens to experts, which calls `forward` for them. One may hold others."""
    twin = copy.copy(implementation)
    for name, value in vars(implementation).items():
        if name == "experts_forward":
            setattr(twin, name, forward)
        elif "experts_forward" in getattr(value, "__dict__", ()):
            setattr(twin, name, _with_experts(value, forward))
    return twin


def split_of_experts(module: nn.Module) -> "ExpertsSplit | str":
    """Of experts whose instance has a forward of its own, or why it is none of a plan."""
    split = _planned_experts(module)
    if isinstance(split, str) or is_managed(module) or split.holds(module):
        return split
    return "a plan of expert parallelism whose parameters are no DTensors"


def is_planned_experts(module: nn.Module) -> bool:
    """Whether the forward of its instance is that of a plan, whatever its parameters are now."""
    return isinstance(_planned_experts(module), ExpertsSplit)


def _planned_experts(module: nn.Module) -> "ExpertsSplit | str":
    reason = "forward is set on the instance (hooks of another library)"
    forward = module.__dict__["forward"]
    inner = _cells(forward)
    at = getattr(forward, "__module__", None)
    if inner.get("module") is not module or at not in (_TRANSFORMERS, _EXPERTS) or at not in _loaded:
        return reason
    style, implementation = inner.get("self"), inner.get("implementation")
    mesh = inner.get("mesh", inner.get("ep_mesh"))
    known = "MoeExpertsParallel" if at == _TRANSFORMERS else "EpDispatchExpertsParallel"
    original = inner.get("original_forward") if implementation is None else getattr(implementation, "experts_forward", None)
    if type(style) is not getattr(_loaded[at], known, None) or getattr(original, "__self__", None) is not module:
        return f"transformers' {type(style).__name__}"
    if not _is_own(module, original.__func__) or mesh is None or mesh.ndim != 1:
        return reason
    return ExpertsSplit(style, mesh, implementation)


def _of_capabilities() -> "list[str]":
    return [training.products_of(dtype) for dtype in DTYPES] + [str(training.has_tiles())]


def _meshes_of(module: nn.Module) -> "list[typing.Any]":
    if is_managed(module):
        return [mesh_within(module)]
    of = [(p, _axis_of(p)) for p in module._parameters.values() if is_dtensor(p)]
    return [_along(p, axis) for p, axis in of if axis is not None]


def agree(model: nn.Module, what: "list[tuple[str, str]]") -> None:
    """Raises RuntimeError on every rank of a mesh where they would not fuse the same: the name of a module, and what it runs as.
    Each rank that holds a part of the model has to call."""
    meshes: "list[typing.Any]" = []
    for mesh in (mesh for m in model.modules() for mesh in _meshes_of(m)):
        if mesh is not None and mesh.ndim == 1 and mesh.device_type == "cpu" and mesh not in meshes:
            meshes.append(mesh)
    for mesh in meshes:
        mine = [*what, *(("(products)", name) for name in _of_capabilities())]
        group = mesh.get_group()
        all_ranks: "list[typing.Any]" = [None] * mesh.size()
        torch.distributed.all_gather_object(all_ranks, mine, group=group)
        for rank, other in enumerate(all_ranks):
            if other == all_ranks[0]:
                continue
            pairs = list(zip(all_ranks[0], other))
            name, first, second = next(
                ((a[0], a[1], b if b[0] != a[0] else b[1]) for a, b in pairs if a != b), ("the model", f"{len(all_ranks[0])} layers", f"{len(other)}")
            )
            raise RuntimeError(f"fuse(): expected all ranks to fuse the same, got {name or '(the model)'}: rank 0: {first}; rank {rank}: {second}")
        host_reduce.hosts_of(group)  # opened by all of them now, so that no call waits for it
