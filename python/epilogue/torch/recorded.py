# SPDX-License-Identifier: Apache-2.0
"""The steps of the forward of an attention module, or of a layer around it, in one call, as a graph of torch.fx: calls of its children,
rotary embeddings, a cache's update, attention. Sizes are those of the call, so that forward() may ask for them; values it cannot ask for.

torch.fx's own tracing changes nn.Module for the whole process while it traces, which other threads' calls would meet. Here the forward
runs on a view of the module, whose children record that they are called.
"""

import typing

import torch
from torch import fx, nn

from .linears import is_conv1d, is_linear

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


class _Child:
    """Stands for a child of the module. Its attributes are the child's."""

    def __init__(self, recorder: "Recorder", name: str, child: nn.Module) -> None:
        self._recorder, self._name, self._child = recorder, name, child

    def __call__(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        return self._recorder.create_proxy("call_module", self._name, args, kwargs)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._child, name)


class _Unread:
    """Stands for a tensor of the module itself: it is there, and no more can be asked."""

    def __bool__(self) -> bool:
        raise TypeError("forward() reads a tensor of its own")


class Recorder(fx.proxy.GraphAppendingTracer):
    def __init__(self, module: nn.Module) -> None:
        super().__init__(fx.Graph())
        self.children = {name: child for name, child in module._modules.items() if child is not None}

    def view_of(self, module: nn.Module) -> nn.Module:
        """The module in eval mode, with children that record."""
        children = {name: _Child(self, name, child) for name, child in self.children.items()}
        tensors = ({name: None if x is None else _Unread() for name, x in own.items()} for own in (module._parameters, module._buffers))
        given = dict(zip(("_parameters", "_buffers"), tensors), _modules={**module._modules, **children}, training=False)
        view = object.__new__(type(module))
        object.__setattr__(view, "__dict__", {**module.__dict__, **given})
        return view

    def proxy(self, node: fx.Node) -> Recorded:
        return Recorded(node, self)

    def create_arg(self, a: typing.Any) -> typing.Any:
        return a if type(a) is Cache else super().create_arg(a)

    def create_proxy(self, kind: str, target: typing.Any, args: typing.Any, kwargs: typing.Any, *more: typing.Any, **others: typing.Any) -> typing.Any:
        made = super().create_proxy(kind, target, args, kwargs, *more, **others)
        made.node.meta["val"] = self._sizes(made.node)
        return made

    def _sizes(self, node: fx.Node) -> typing.Any:
        """The step's result, with the values of no tensor; None where that is not known."""

        def of(x: typing.Any) -> typing.Any:
            return fx.map_arg(x, lambda n: n.meta["val"])

        try:
            args, kwargs = of(node.args), of(node.kwargs)
            if node.op == "call_method":
                return getattr(args[0], node.target)(*args[1:], **kwargs)
            if node.op == "call_function" and getattr(node.target, "__module__", "") != __name__:
                return node.target(*args, **kwargs)
            if node.op == "call_module":
                child = self.children[str(node.target)]
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


def record(module: nn.Module, own: Function, args: "list[typing.Any]", kwargs: "dict[str, typing.Any]") -> fx.Graph:
    """The graph of a call of own(module, ...) in eval mode. Tensors among the arguments (in tuples too) are inputs of the graph, whose
    node.meta["given"] says which: ("hidden_states",), (0,) by place, ("position_embeddings", 1). A DynamicCache of transformers becomes
    a Cache. Raises what forward() raises, and TypeError where it keeps something as an attribute."""
    from transformers.cache_utils import DynamicCache

    recorder = Recorder(module)

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

    view = recorder.view_of(module)
    before = dict(view.__dict__)
    out = own(view, *(given(x, i) for i, x in enumerate(args)), **{name: given(x, name) for name, x in kwargs.items()})
    kept = [name for name, value in view.__dict__.items() if name not in before or before[name] is not value]
    if kept:
        raise TypeError(f"it sets self.{kept[0]}")
    recorder.graph.output(recorder.create_arg(out))
    return recorder.graph
