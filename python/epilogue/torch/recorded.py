# SPDX-License-Identifier: Apache-2.0
"""What the forward of an attention module does in one call, as torch.fx records it: projections, norms, rotary embeddings, a cache's
update, attention, the output. Sizes are those of the call, so that forward() may ask for them; values it cannot ask for.
"""

import types
import typing

import torch
from torch import fx, nn

from .linears import is_conv1d, is_linear

_RECORDED = "_epilogue_recorded"
Function = typing.Callable[..., typing.Any]


def attended(query: typing.Any, key: typing.Any, value: typing.Any, mask: typing.Any) -> typing.Any:
    """Stands in a record for a call of transformers' function of attention."""


def turned(q: typing.Any, k: typing.Any, cos: typing.Any, sin: typing.Any, heads: int) -> typing.Any:
    """Stands in a record for a call of a model's apply_rotary_pos_emb."""


def updated(key: typing.Any, value: typing.Any, layer: int) -> typing.Any:
    """Stands in a record for a cache's update."""


class Recorded(fx.Proxy):
    """A tensor that knows its sizes: node.meta["val"] has them, on no device."""

    @property
    def shape(self) -> torch.Size:
        return _value_of(self).shape

    def size(self, dim: "int | None" = None) -> typing.Any:
        shape = self.shape
        return shape if dim is None else shape[dim]

    def dim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        return _value_of(self).dtype


def _value_of(x: Recorded) -> torch.Tensor:
    value = x.node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"the sizes of {x.node} are not known")
    return value


class Cache:
    """Stands for a DynamicCache: forward() may update it, and ask it nothing."""

    def __init__(self, recorder: "Recorder", *path: "str | int") -> None:
        self._recorder = recorder
        self.path = path  # as node.meta["given"] of tensors

    def update(self, keys: Recorded, values: Recorded, layer: int, *args: typing.Any, **kwargs: typing.Any) -> "tuple[Recorded, Recorded]":
        return self._recorder.pair(updated, (keys, values, layer), (None, None))


class Recorder(fx.Tracer):
    """Every child is a leaf."""

    def __init__(self) -> None:
        super().__init__()
        self.traced_func_name = _RECORDED

    def proxy(self, node: fx.Node) -> Recorded:
        return Recorded(node, self)

    def create_arg(self, a: typing.Any) -> typing.Any:
        return a if type(a) is Cache else super().create_arg(a)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def create_proxy(self, kind: str, target: typing.Any, args: typing.Any, kwargs: typing.Any, *more: typing.Any, **others: typing.Any) -> typing.Any:
        made = super().create_proxy(kind, target, args, kwargs, *more, **others)
        made.node.meta["val"] = self._sizes(made.node)
        return made

    def _sizes(self, node: fx.Node) -> typing.Any:
        """What the step gives, with the values of no tensor; None where that is not known."""

        def of(x: typing.Any) -> typing.Any:
            return fx.map_arg(x, lambda n: n.meta["val"])

        try:
            args, kwargs = of(node.args), of(node.kwargs)
            if node.op == "call_method":
                return getattr(args[0], node.target)(*args[1:], **kwargs)
            if node.op == "call_function" and getattr(node.target, "__module__", "") != __name__:
                return node.target(*args, **kwargs)
            if node.op == "call_module":
                child = self.root.get_submodule(node.target)
                if is_linear(child):
                    outputs = child._parameters["weight"].shape[1 if is_conv1d(child) else 0]
                    return args[0].new_empty((*args[0].shape[:-1], outputs))
                return torch.empty_like(args[0])
        except Exception:  # no tensors, or not of these sizes: whoever asks for sizes hears of it
            pass
        return None

    def pair(self, function: Function, args: typing.Any, values: "tuple[typing.Any, typing.Any]") -> "tuple[Recorded, Recorded]":
        """A step of two results."""
        both = self.create_proxy("call_function", function, args, {})
        both.node.meta["val"] = values
        return both[0], both[1]

    def attend(self, function: Function, module: nn.Module, query: Recorded, key: Recorded, value: Recorded, mask: typing.Any,
               kwargs: "dict[str, typing.Any]") -> Recorded:  # fmt: skip
        """Values of as many columns as q: whoever uses the record knows how many they have."""
        made = self.create_proxy("call_function", attended, (query, key, value, mask), {})
        made.node.meta["by"] = (function, module, kwargs)
        batch, heads, rows, columns = query.shape
        made.node.meta["val"] = torch.empty(batch, rows, heads, columns, dtype=query.dtype, device="meta")
        return typing.cast(Recorded, made)

    def turn(self, function: Function, q: Recorded, k: Recorded, cos: typing.Any, sin: typing.Any, heads: int) -> "tuple[Recorded, Recorded]":
        both = self.pair(turned, (q, k, cos, sin, heads), (_value_of(q), _value_of(k)))
        both[0].node.args[0].meta["by"] = function
        return both


def record(view: nn.Module, own: Function, args: "list[typing.Any]", kwargs: "dict[str, typing.Any]") -> fx.Graph:
    """The graph of a call of own(view, ...). Tensors among the arguments (in tuples too) are inputs of the graph, whose
    node.meta["given"] says which: ("hidden_states",), (0,) by place, ("position_embeddings", 1). A DynamicCache of transformers becomes
    a Cache. Raises what forward() raises."""
    recorder = Recorder()
    from transformers.cache_utils import DynamicCache

    def given(x: typing.Any, *path: "str | int") -> typing.Any:
        if isinstance(x, torch.Tensor):
            made = recorder.create_proxy("placeholder", "_".join(["given", *map(str, path)]), (), {})
            made.node.meta["val"] = torch.empty_like(x, device="meta")
            made.node.meta["given"] = path
            return made
        if type(x) is tuple:
            return tuple(given(y, *path, i) for i, y in enumerate(x))
        if type(x) is DynamicCache:
            return Cache(recorder, *path)
        if x is None or isinstance(x, (bool, int, float, str)):
            return x
        raise TypeError(f"{path[0]} is a {type(x).__name__}")

    def run(self: nn.Module) -> typing.Any:
        return own(self, *(given(x, i) for i, x in enumerate(args)), **{name: given(x, name) for name, x in kwargs.items()})

    traced = object.__new__(types.new_class("Recording", (type(view),), {}, lambda body: body.update({_RECORDED: run})))
    object.__setattr__(traced, "__dict__", view.__dict__)
    return recorder.trace(traced)
