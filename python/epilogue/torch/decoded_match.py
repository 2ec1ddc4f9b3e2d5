# SPDX-License-Identifier: Apache-2.0
"""Reads the record of an attention module's forward (recorded.py): from its end to what it was given, and what it read beside that."""

import operator
import typing

import torch
import torch.nn.functional as F
from torch import fx, nn

from . import linear_state, norm_state, recorded, rotary, sdpa
from .attention import gains_decoding
from .decoded_plan import Arguments, Plan, argument, cache_class, is_wave
from .decoded_reads import STATE, Reads, is_fused_as_it_was, reads_of, reads_of_children, reads_of_library
from .linears import is_linear
from .nodes import PASSIVE, arguments_of
from .patterns import NoMatch

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_VIEWS = ("view", "reshape", "contiguous", "flatten", "unflatten")


class _Heads(typing.NamedTuple):
    """Where the heads of q, k or v come from."""

    source: fx.Node
    norm: "nn.Module | None" = None
    turned: "fx.Node | None" = None


class Match:
    """Reads a record from its end."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        self.module = module
        self.seen: "set[fx.Node]" = set()
        self.used: "dict[str, nn.Module]" = {}  # children
        self.output = next(n for n in graph.nodes if n.op == "output")
        self.graph = graph

    def child(self, node: typing.Any) -> "nn.Module | None":
        """The child that this calls, with one argument."""
        if not isinstance(node, fx.Node) or node.op != "call_module" or len(node.args) != 1 or node.kwargs:
            return None
        return self.module._modules.get(str(node.target))

    def step(self, node: fx.Node) -> typing.Any:
        """The node before the step."""
        self.seen.add(node)
        if node.op == "call_module":
            self.used[str(node.target)] = self.child(node)  # type: ignore[assignment]
        return node.args[0]

    def behind_views(self, node: typing.Any) -> typing.Any:
        """Steps that leave elements in their order are passed."""
        while isinstance(node, fx.Node) and node.op == "call_method" and (node.target in _VIEWS or _swaps_one(node)):
            node = self.step(node)
        return node

    def behind_dropout(self, node: typing.Any) -> typing.Any:
        """Dropout does nothing in eval mode."""
        while type(self.child(node)) in PASSIVE or _is_no_dropout(node):
            node = self.step(node)
        return node

    def pair(self, node: typing.Any, function: typing.Any, place: int) -> "fx.Node | None":
        """The step whose result of that place this is."""
        if not isinstance(node, fx.Node) or node.target is not operator.getitem or node.args[1] != place:
            return None
        both = node.args[0]
        if not isinstance(both, fx.Node) or both.target is not function:
            return None
        self.seen.update((node, both))
        return both

    def turned(self, node: typing.Any, place: int) -> "tuple[fx.Node | None, typing.Any]":
        """The rotary embedding whose result this is, of all columns or with those behind that it did not turn; and what it was given."""
        both = self.pair(node, recorded.turned, place)
        if both is not None or not isinstance(node, fx.Node) or node.target is not torch.cat:
            return both, None if both is None else both.args[place]
        parts, dim = node.args[0], (*node.args[1:], *node.kwargs.values())
        if not isinstance(parts, (list, tuple)) or len(parts) != 2 or dim != (-1,):  # noqa: PLR2004
            return None, None
        both = self.pair(parts[0], recorded.turned, place)
        cut = None if both is None else both.args[place]
        ends = [_columns_of(n) for n in (cut, parts[1])]
        if both is None or None in ends or ends[0][0] is not ends[1][0] or ends[0][1:] != (None, ends[1][1]) or ends[1][2] is not None:
            return None, None
        self.seen.update((node, cut, parts[1]))
        return both, ends[0][0]

    def heads(self, node: typing.Any, place: int) -> _Heads:
        """place: of q or k among what the rotary embedding gives."""
        norm = turned = None
        while True:
            node = self.behind_views(node)
            both, whole = self.turned(node, place)
            child = self.child(node)
            if both is not None and turned is norm is None:
                turned, node = both, whole
            elif child is not None and norm is None and is_rms(child) and _is_of_columns(child, node.args[0]):
                norm, node = child, self.step(node)
            else:
                if not isinstance(node, fx.Node):
                    raise NoMatch("q, k or v is no tensor")
                return _Heads(node, norm, turned)

    def linear(self, node: typing.Any) -> nn.Module:
        child = self.child(node)
        if child is None or not is_linear(child) or not is_fused_as_it_was(child):
            raise NoMatch(f"{node} is no fused linear layer's")
        return child

    def projections(self, sources: "list[fx.Node]", widths: "list[int]") -> "tuple[list[nn.Module], typing.Any]":
        """The layers, and what they read."""
        if all(self.child(n) is not None for n in sources):
            layers = [self.linear(n) for n in sources]
            inputs = [self.step(n) for n in sources]
            if len(set(layers)) != len(layers) or any(i is not inputs[0] for i in inputs):
                raise NoMatch("q, k and v are not of one input")
            return layers, inputs[0]
        begin, whole = 0, None
        for node, width in zip(sources, widths):
            _sizes_of(node)
            value = node.meta["val"]
            if node.target is not operator.getitem or value.storage_offset() != begin or value.shape[-1] != width or value.stride(-1) != 1:
                raise NoMatch("q, k and v do not lie side by side")
            begin += width
            of = self.step(node)
            if isinstance(of, fx.Node) and of.op == "call_method" and of.target in ("split", "chunk"):
                of = self.step(of)
            if whole is not None and of is not whole:
                raise NoMatch("q, k and v are parts of several results")
            whole = of
        layer = self.linear(whole)
        if _sizes_of(whole)[-1] != begin:
            raise NoMatch("a projection gives more than q, k and v")
        return [layer], self.step(whole)

    def require_all(self) -> None:
        for node in self.graph.nodes:
            if node.op not in ("placeholder", "output") and node not in self.seen:
                raise NoMatch(f"it does more: {node.target}")


def _columns_of(node: typing.Any) -> "tuple[fx.Node, typing.Any, typing.Any] | None":
    """x, begin and end of x[..., begin:end]."""
    if not isinstance(node, fx.Node) or node.target is not operator.getitem:
        return None
    cut = node.args[1]
    if not isinstance(cut, tuple) or len(cut) != 2 or cut[0] is not Ellipsis or type(cut[1]) is not slice or cut[1].step is not None:  # noqa: PLR2004
        return None
    return node.args[0], cut[1].start, cut[1].stop  # type: ignore[return-value]


def _sizes_of(node: typing.Any) -> torch.Size:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor):
        raise NoMatch(f"the sizes of {node} are not known")
    return value.shape


def _is_of_columns(norm: nn.Module, x: typing.Any) -> bool:
    weight = norm._parameters.get("weight")
    return weight is not None and _sizes_of(x)[-1:] == weight.shape


def _swaps_one(node: fx.Node) -> bool:
    """A transposition of heads with the one row."""
    if node.target not in ("transpose", "swapaxes") or len(node.args) != 3 or node.kwargs:
        return False
    shape = _sizes_of(node.args[0])
    dims = sorted(d % len(shape) for d in node.args[1:])  # type: ignore[operator]
    return dims == [1, 2] and 1 in (shape[1], shape[2])


def _is_no_dropout(node: typing.Any) -> bool:
    return isinstance(node, fx.Node) and node.target is F.dropout and arguments_of(node, ("input", "p", "training")).get("training") is False


def is_rms(child: nn.Module) -> bool:
    state = child.__dict__.get(norm_state.STATE)
    return state is not None and state.norm.kind == "rms" and is_fused_as_it_was(child)


def record(module: nn.Module, own: typing.Any, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> fx.Graph:
    """As recorded.record(). Raises NoMatch with the reason."""
    try:
        return recorded.record(module, own, list(args), kwargs)
    except Exception as error:  # the forward may be anything
        raise NoMatch(f"forward() cannot be recorded: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None


def plan_of(module: nn.Module, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> Plan:
    """Raises NoMatch with the reason."""
    own = type(module)._epilogue_original.forward
    reads = reads_of(module, own)  # before the forward runs: it has to be transformers' own
    of_library, attend = reads_of_library(module, sdpa.NAME, cache_class())
    graph = record(module, own, args, kwargs)
    found = Match(module, graph)
    result = found.output.args[0]
    is_tuple = type(result) is tuple
    node, rest = (result[0], tuple(result[1:])) if is_tuple else (result, ())
    if any(x is not None for x in rest):
        raise NoMatch("forward() gives more than the output")
    node = found.behind_dropout(node)
    last = found.linear(node)
    attended = found.behind_views(found.step(node))
    if not isinstance(attended, fx.Node) or attended.target is not recorded.attended:
        raise NoMatch("the output is not of attention by transformers' function")
    found.seen.add(attended)
    function, caller, given = attended.meta["by"]
    if function is not attend or caller.__dict__.get(STATE) is not module.__dict__[STATE] or not sdpa.is_plain(given):
        raise NoMatch("attention is asked for more")
    q, k, v, mask = attended.args
    update = found.pair(k, recorded.updated, 0)
    if update is None or found.pair(v, recorded.updated, 1) is not update:
        raise NoMatch("keys and values do not come from the cache")
    k, v, index = update.args
    sizes = [_sizes_of(n) for n in (q, k, v)]
    batch, heads = (*sizes[0], 0, 0)[:2]
    if any(len(s) != 4 or s[0] != batch or s[2] != 1 for s in sizes) or sizes[0][3] != sizes[1][3] or sizes[1][1] != sizes[2][1]:
        raise NoMatch(f"q, k and v are {[list(s) for s in sizes]}")
    of_q, of_k, of_v = found.heads(q, 0), found.heads(k, 1), found.heads(v, 2)
    if of_v.norm is not None or of_v.turned is not None or of_q.turned is not of_k.turned:
        raise NoMatch("values are normed, or q and k are not turned alike")
    layers, source = found.projections([of_q.source, of_k.source, of_v.source], [s[1] * s[3] for s in sizes])
    found.require_all()
    if _sizes_of(source)[0] != batch:
        raise NoMatch("heads are no part of a sequence's row")
    norms, dtype = (of_q.norm, of_k.norm), source.meta["val"].dtype
    if any(norms) and dtype is torch.float16:
        raise NoMatch("norms of heads in float16")
    forms = {(n.__dict__[norm_state.STATE].form, n.__dict__[norm_state.STATE].norm.eps) for n in norms if n is not None}
    if len(forms) > 1:
        raise NoMatch("norms of q and k differ")
    form, eps = forms.pop() if forms else (0, 1e-5)
    if dtype not in _DTYPES or not gains_decoding(dtype):
        raise NoMatch(f"attention of one query in {dtype} is PyTorch's")
    first, end = (linear_state.ready(of, batch, dtype) for of in (layers, [last]))
    if first is None or end is None:
        raise NoMatch("q, k and v do not run as one call of packed weights")
    arguments = _arguments_in(graph, source, of_q.turned, mask, args, kwargs)
    turning = None if of_q.turned is None else _turning(of_q.turned, dtype, arguments, args, kwargs)
    of_rotary = () if of_q.turned is None else tuple(of_q.turned.meta["by"]._epilogue_reads)
    of_forward = Reads(of_rotary, ((type(module)._epilogue_original, "forward", own),))
    reads = reads.joined(reads_of_children(found.used.values()), of_library, of_forward)
    if any(reads.hooks):
        raise NoMatch("a part has hooks")
    if type(index) is not int:
        raise NoMatch("the cache's layer has no number")
    columns = tuple(None if n is None else n.weight.shape for n in norms)
    plan = Plan(module, arguments, reads, first, end, norms, columns, form, eps, turning, index, source.meta["val"].shape, dtype, heads,
                sizes[1], sizes[2], given.get("scaling"), rest if is_tuple else None)  # fmt: skip
    if not plan.is_of(args, kwargs) or not plan.holds():
        raise NoMatch("an argument, or what forward() reads, is another kind")
    return plan


def _arguments_in(
    graph: fx.Graph, x: fx.Node, turned: "fx.Node | None", mask: typing.Any, args: "tuple[typing.Any, ...]",
    kwargs: "dict[str, typing.Any]",
) -> Arguments:  # fmt: skip
    inputs = {n.meta["given"]: n for n in graph.nodes if n.op == "placeholder"}

    def place_of(node: typing.Any) -> "tuple[int | str, ...]":
        if not isinstance(node, fx.Node) or node.op != "placeholder":
            raise NoMatch("x, a mask, cosines or sines are not as they were given")
        return node.meta["given"]

    (of_x, *more), of_mask = place_of(x), None if mask is None else place_of(mask)
    wave = None
    if turned is not None:
        cos, sin = map(place_of, turned.args[2:4])
        if (cos, sin) != ((cos[0], 0), (cos[0], 1)):
            raise NoMatch("cosines and sines are no pair")
        wave = cos[0]
    if more or (of_mask is not None and len(of_mask) != 1):
        raise NoMatch("x or a mask is one of several")
    fixed, unread, caches = [], [], []
    for at, value in (*enumerate(args), *kwargs.items()):
        if (at,) in inputs:
            if inputs[at,].users and (at,) not in ((of_x,), of_mask):
                raise NoMatch(f"{at} is read")
            if not inputs[at,].users:
                unread.append((at, type(value)))
        elif isinstance(value, tuple):
            if at != wave and any(node.users for path, node in inputs.items() if path[0] == at):
                raise NoMatch(f"a tensor of {at} is read")
            if at != wave:
                unread.append((at, tuple))
        elif value is None or isinstance(value, (bool, int, float, str)):
            fixed.append((at, value))
        else:
            caches.append(at)
    if len(caches) != 1:
        raise NoMatch("there is no cache")
    return Arguments(len(args), frozenset(kwargs), of_x, wave, None if of_mask is None else of_mask[0], caches[0], tuple(fixed), tuple(unread))


def _turning(
    turned: fx.Node, dtype: torch.dtype, arguments: Arguments, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]"
) -> "tuple[torch.Size, torch.dtype, bool]":
    """As Plan.rotary."""
    both = argument(arguments.wave, args, kwargs)
    q, _, _, _, heads = turned.args
    shape, (cos, sin) = _sizes_of(q), both  # of the columns that the function is given
    if heads not in (1, 2) or len(shape) != 4 or shape[3 - heads] != 1 or sin.dim() != 3 or not is_wave(cos, sin.shape, sin.dtype):
        raise NoMatch("cosines and sines are not of one row")
    if cos.dtype not in (dtype, torch.float32):
        raise NoMatch(f"cosines are {cos.dtype}")
    if cos.shape[0] not in (1, shape[0]) or cos.shape[1] != 1 or cos.shape[2] > shape[3] or cos.shape[2] % 2:
        raise NoMatch(f"cosines are {list(cos.shape)}")
    wide = rotary.is_wide(turned.meta["by"]._epilogue_own, dtype, cos.dtype, shape[3], cos.shape[2]) if dtype in rotary.DTYPES else None
    if wide is None:
        raise NoMatch("the rotary embedding is another one")
    return cos.shape, cos.dtype, wide
