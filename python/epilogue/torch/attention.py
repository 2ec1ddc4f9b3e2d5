# SPDX-License-Identifier: Apache-2.0
"""Attention of Dynamo's graph: calls of scaled_dot_product_attention that the engine's kernel makes faster."""

import functools
import typing

import torch
import torch.nn.functional as F
from torch import fx

from .dynamo import alike, is_written_between
from .nodes import arguments_of, value_of
from .training import computes_as_wide, has_dots_alone, has_tiles, products_of

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
LEAST_QUERIES = 16  # of many: keys and values are packed, which few queries do not earn back
MOST_DECODED = 4  # queries for which keys and values stay where they are, and that gains
_DIMS = 4  # [batch, heads, rows, columns]


class Attention(typing.NamedTuple):
    """Of the op's arguments, the nodes."""

    q: fx.Node
    k: fx.Node
    v: fx.Node
    mask: "fx.Node | None"
    causal: bool
    scale: "float | None"


def _unrepeated(node: fx.Node, reader: fx.Node) -> fx.Node:
    """Heads that are repeated for the heads of queries which share them, before that:
    x[:, :, None].expand(batch, heads, n, rows, columns).reshape(batch, heads * n, rows, columns).
    Not where memory is written between the copy and the reader."""
    expand = node.args[0] if node.op == "call_method" and node.target in ("reshape", "view") else None
    if not isinstance(expand, fx.Node) or expand.op != "call_method" or expand.target != "expand":
        return node
    each = expand.args[0]
    made, wide, one = value_of(node), value_of(expand), value_of(each)
    if made is None or wide is None or one is None or (made.dim(), wide.dim(), one.dim()) != (4, 5, 5):
        return node
    batch, heads, rows, columns = made.shape
    if one.shape[2] != 1 or wide.shape[0] != batch or wide.shape[1] * wide.shape[2] != heads:
        return node
    if tuple(wide.shape[3:]) != (rows, columns) or (*one.shape[:2], *one.shape[3:]) != (*wide.shape[:2], rows, columns):
        return node
    if is_written_between(node, reader):
        return node
    with node.graph.inserting_before(node):
        short = node.graph.call_method("squeeze", (each, 2))
    short.meta["example_value"] = one.squeeze(2)
    return short


def attention_at(node: fx.Node) -> "Attention | None":
    """None: it is no attention, or not one of tensors that the op takes."""
    if node.op != "call_function" or node.target is not F.scaled_dot_product_attention:
        return None
    given = arguments_of(node, _NAMES)
    q, k, v, mask = (given.get(name) for name in _NAMES[:4])
    scale = given.get("scale")
    if given.get("dropout_p", 0.0) != 0 or not isinstance(scale, (int, float, type(None))):
        return None
    if not all(isinstance(n, fx.Node) for n in (q, k, v)) or not isinstance(mask, (fx.Node, type(None))):
        return None
    values = alike(q, k, v)
    if values is None or any(x.dim() != _DIMS for x in values):
        return None
    seen = value_of(mask)
    if mask is not None and (seen is None or seen.dim() > _DIMS or seen.dtype not in (torch.bool, torch.float32, values[0].dtype)):
        return None
    heads = [x.shape[1] for x in values]
    if heads[1] != heads[2] or not (heads[0] == heads[1] or given.get("enable_gqa", False)):
        return None
    return Attention(q, k, v, mask, bool(given.get("is_causal", False)), None if scale is None else float(scale))


def _is_slow_in_pytorch(dtype: torch.dtype) -> bool:
    """Whether PyTorch's attention is slow: without instructions for the dtype, with dot products of bf16 alone, or with a slow MKL."""
    return products_of(dtype) == "engine" or (dtype is torch.bfloat16 and has_dots_alone())


def gains(dtype: torch.dtype) -> bool:
    """Whether the engine's kernel is faster than PyTorch's: 1.7 to 3 times in tiles, 1.6 to 2.6 times by dot products of bf16, 1.04 to
    3.5 times for dtypes without instructions, f32 1.0 to 1.5 times where MKL is slow (0.8 to 1.3 elsewhere; bench/attention_bench.py)."""
    return (_is_slow_in_pytorch(dtype) and computes_as_wide()) or (dtype is torch.bfloat16 and has_tiles())


@functools.lru_cache(maxsize=None)
def gains_decoding(dtype: torch.dtype) -> bool:
    """The same of one query to MOST_DECODED: 1.03 to 3 times in f32, 1.5 to 34 times for dtypes without instructions, 2.2 to 20 times
    in bf16 with dot products (bench/attention_bench.py --decoding). Not measured where the CPU has tiles for the dtype."""
    return computes_as_wide() if dtype is torch.float32 else _is_slow_in_pytorch(dtype)


def _queries(found: Attention) -> "int | None":
    rows = value_of(found.q).shape[2]
    return rows if isinstance(rows, int) else rows.node.hint  # as many as the graph was made with


def _decodes(found: Attention) -> bool:
    rows = _queries(found)
    return rows is not None and rows <= MOST_DECODED and gains_decoding(value_of(found.q).dtype)


def may_gain(found: Attention) -> bool:
    """Whether any call of this dtype gains, or this one does as one that decodes."""
    return gains(value_of(found.q).dtype) or _decodes(found)


def why_left(found: Attention) -> "str | None":
    """Why PyTorch's own kernel is as good, of one that may gain."""
    if _decodes(found):
        return None
    q, v, rows = value_of(found.q), value_of(found.v), _queries(found)
    if rows is None or rows < LEAST_QUERIES:
        return f"attention: fewer than {LEAST_QUERIES} queries"
    return None if q.shape[3] == v.shape[3] else "attention: PyTorch's rounds less where values have other columns than keys"


def insert(graph: fx.Graph, node: fx.Node, found: Attention) -> None:
    """The op in the node's place, before it."""
    k, v = _unrepeated(found.k, node), _unrepeated(found.v, node)
    if value_of(k).shape[1] != value_of(v).shape[1]:
        k, v = found.k, found.v
    with graph.inserting_before(node):
        op = graph.call_function(
            torch.ops.epilogue.attention.default, (found.q, k, v, found.mask, found.causal, found.scale)
        )
        new = graph.call_method("transpose", (op, 1, 2))
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)  # copies of heads that nobody reads any more, AOTAutograd drops
