# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose windows do not overlap (the patches of ViT, CLIP, DINO; ConvNeXt's steps down): linear layers of the
patches."""

import operator

import torch
import torch.nn.functional as F
from torch import fx

from .dynamo import alike
from .nodes import arguments_of, value_of

_CONV2D = (torch.conv2d, F.conv2d)
# Columns of a patch from which on it pays: narrower ones cost more to gather than their products save (0.72 to 1.16 times
# Inductor's convolution at 2 and 4 columns, 1.17 to 2.1 times at 14 to 32).
_LEAST_COLUMNS = 8
_NAMES = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")


def _pair(value: object) -> "tuple[int, int] | None":
    if isinstance(value, int):
        return value, value
    if isinstance(value, (tuple, list)) and len(value) in (1, 2) and all(isinstance(n, int) for n in value):
        return value[0], value[-1]
    return None


def patches_at(node: fx.Node) -> "tuple[fx.Node, fx.Node, fx.Node | None] | None":
    """(image, weight, bias) of a convolution of whole patches [batch, channels, rows, columns]; None: it is another op."""
    if node.op != "call_function" or node.target not in _CONV2D:
        return None
    given = arguments_of(node, _NAMES)
    x, weight, bias = (given.get(name) for name in _NAMES[:3])
    if any(n is not None and not isinstance(n, fx.Node) for n in (x, weight, bias)):
        return None
    if any(n is not None and n.op not in ("placeholder", "get_attr") for n in (weight, bias)):
        return None
    values = alike(x, weight, bias)
    if values is None or values[0].dim() != 4 or not all(isinstance(n, int) for n in (*values[0].shape, *values[1].shape)):
        return None
    _, channels, height, width = values[0].shape
    kernel = tuple(values[1].shape[2:])
    plain = _pair(given.get("padding", 0)) == (0, 0) and _pair(given.get("dilation", 1)) == (1, 1) and given.get("groups", 1) == 1
    if not plain or _pair(given.get("stride", 1)) != kernel or values[1].shape[1] != channels:
        return None
    return (x, weight, bias) if height % kernel[0] == 0 and width % kernel[1] == 0 else None


def gains(weight: fx.Node) -> bool:
    return value_of(weight).shape[3] >= _LEAST_COLUMNS  # type: ignore[union-attr]


def insert(graph: fx.Graph, node: fx.Node, x: fx.Node, weight: fx.Node, bias: "fx.Node | None") -> None:
    """The linear layer in the convolution's place."""
    batch, channels, height, width = value_of(x).shape  # type: ignore[union-attr]
    outputs, _, rows, columns = value_of(weight).shape  # type: ignore[union-attr]
    down, across = height // rows, width // columns
    call = graph.call_method
    with graph.inserting_before(node):
        cut = call("reshape", (x, (batch, channels, down, rows, across, columns)))
        patches = call("reshape", (call("permute", (cut, 0, 2, 4, 1, 3, 5)), (batch, down * across, channels * rows * columns)))
        matrix = call("reshape", (weight, (outputs, channels * rows * columns)))
        products = graph.call_function(torch.ops.epilogue.linears.default, (patches, [matrix], [bias], ""))
        made = graph.call_function(operator.getitem, (products, 0))
        new = call("reshape", (call("transpose", (made, 1, 2)), (batch, outputs, down, across)))
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
