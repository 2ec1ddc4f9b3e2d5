# SPDX-License-Identifier: Apache-2.0
"""A decoder's layer of one new token in one call, torch.ops.epilogue.decoded_layers: attention as in decoded.py, and the MLP with the norm
and the residual around it that layer.py found.

Its forward is recorded as that of attention: a norm of x, attention of that, an RMS norm of its result or none, and the sum with x, which
the norm before the MLP takes. The steps behind that norm are those that layer.py found. The first norm is called before: an RMS norm as the
op that fuse() gave it, a layer norm as PyTorch's.
"""

import functools
import operator
import typing

import torch
from torch import fx, nn

from . import decoded, norm_state, recorded
from .decoded_ahead import Due, Links, is_like, is_running, is_watched, others_of, written
from .decoded_match import Match, is_rms, record
from .decoded_plan import Arguments, OtherCall, Place, Plan, Records, argument, is_same
from .decoded_reads import Reads, reads_of, reads_of_children
from .fused_class import DECODED as STATE
from .fused_class import STATE as MLP
from .layer import own_forward
from .nodes import ADD
from .patterns import NoMatch

if typing.TYPE_CHECKING:
    from .state import State

_Tensor = torch.Tensor
_DTYPES = (torch.float32, torch.bfloat16)
_LAYER_NORM = -1  # among the op's forms of norms


class _LayerPlan(typing.NamedTuple):
    plan: Plan  # attention's, for the layer's arguments; x is before the first norm
    norm: nn.Module
    post: "nn.Module | None"  # the norm of attention's result
    attention: nn.Module
    state: "State"  # of the MLP with its norm and residual


class _Ready(typing.NamedTuple):
    """A layer's call, but for x."""

    links: Links
    found: _LayerPlan
    place: Place
    norms: "tuple[torch.Tensor | None, ...]"  # parameters of the first one, of q's heads, of k's, of attention's result
    forms: "tuple[int, int, int]"
    eps: "tuple[float, float, float]"
    packs: "tuple[typing.Any, ...]"  # held until the op returns, as attention's


class DecodedLayer(Records):
    """Those of a decoder's layer."""

    name = "decoded_layers"

    def __init__(self) -> None:
        super().__init__()
        self.links = Links()

    def run(self, module: nn.Module, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> "torch.Tensor | None":
        due = self.links.take_due()
        if due is not None:
            layer = due.place_in(module, args, kwargs)
            if layer is not None:
                self.fused += 1
                self.links.taken += 1
                _count(due.found, layer)
                self.links.learn(module, STATE, due.found.plan, self.fused, due.out, args, kwargs)
                return due.out
            due.before.cut(STATE)
        return super().run(module, args, kwargs)

    def _call(self, found: _LayerPlan, place: Place, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> "torch.Tensor | None":
        plan = found.plan
        x = argument(plan.arguments.x, args, kwargs)
        mine = _ready(self, found, place) if x.is_contiguous() else None
        if mine is None:
            return None
        calls = self._ahead(mine, args, kwargs)
        lists: "tuple[list[typing.Any], ...]" = ([], [], [], [], [], [], [], [])
        handles, parameters, counts, norms, forms, eps, rooms, rows = lists
        for call in calls:
            for pack in call.packs:
                handles.append(pack.handle.number)
                parameters += pack.taken.given
                counts.append(len(pack.taken.given))
            norms += call.norms
            forms += call.forms
            eps += call.eps
            keys, values, begin, end = call.place.rows
            rooms += (keys, values)
            rows += (begin, end)
        outs = self.op(x, *lists, *plan.wave(args, kwargs), plan.mask(args, kwargs), plan.scale)
        if not outs:
            return None
        if len(outs) > 1:
            self._put_due(calls, outs, args, kwargs)
        _count(found, place.layer)
        self.links.learn(plan.module, STATE, plan, self.fused, outs[0], args, kwargs)
        return outs[0]

    def _ahead(self, mine: "_Ready", args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> "list[_Ready]":
        """This call, and those of the layers that follow, with the same arguments but for x."""
        calls = [mine]
        plan, first = mine.found.plan, self.links.follower
        if first is None or is_watched(plan.module) or not is_running(first.loop):
            return calls
        follower = self.links.next(first.loop)
        buffers = set(map(_address, mine.place.rows[:2]))
        while follower is not None:
            state: "DecodedLayer | None" = follower.__dict__.get(STATE)
            before = calls[-1].links
            if state is None or state.links.take_due() is not None:  # nobody took the last one
                before.cut(STATE)
                break
            own = next((f for f in state.plans if f.plan.module is follower and is_like(f.plan, plan)), None)
            place = None if own is None else own.plan.place(args, kwargs)
            if place is None or not buffers.isdisjoint(map(_address, place.rows[:2])):  # two layers put rows behind the same
                break
            ready = _ready(state, own, place) if own.plan.holds() else None
            if ready is None:
                break
            calls.append(ready)
            buffers.update(map(_address, place.rows[:2]))
            follower = state.links.next(first.loop)
        return calls

    @staticmethod
    def _put_due(calls: "list[_Ready]", outs: "list[torch.Tensor]", args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> None:
        plan = calls[0].found.plan
        others = others_of(plan, args, kwargs)
        for before, call, x, out in zip(calls, calls[1:], outs, outs[1:]):
            keys, _, _, end = call.place.rows
            call.links.put_due(Due(call.found, before.links, x, written(x), others, _address(keys), end, out))

    def _learn(self, layer: nn.Module, x: torch.Tensor, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]") -> None:
        """Once attention has a plan for such an x."""
        for attention in layer._modules.values():
            if attention is None or not decoded.is_decoded(attention):
                continue
            for of in attention.__dict__[decoded.STATE].plans:
                if of.module is not attention or x.shape != of.sizes or x.dtype is not of.dtype or not of.is_ready():
                    continue
                if not self.may_record(layer) or self.record(layer, functools.partial(_match_layer, layer, attention, of, args, kwargs)):
                    return


def _address(x: torch.Tensor) -> int:
    return x.data_ptr()


def _layer_norm_of(norm: nn.Module, plan: Plan) -> "tuple[torch.Tensor | None, int, float] | None":
    """As norm_state.given_of(). None: PyTorch has to take it, or to say what is wrong."""
    columns = plan.sizes[-1:]
    if norm.normalized_shape != tuple(columns) or type(norm.eps) is not float:
        return None
    for p in (norm.weight, norm.bias):
        if p is not None and (type(p) is not nn.Parameter or p.shape != columns or p.dtype is not plan.dtype or not p.is_cpu):
            return None
    return norm.weight, _LAYER_NORM, norm.eps


def _ready(state: DecodedLayer, found: _LayerPlan, place: Place) -> "_Ready | None":
    """None: the forward has to run."""
    plan, norm = found.plan, found.norm
    columns = plan.sizes[-1:]
    behind = found.state.ready(plan.module, plan.dtype, columns[0])
    is_rms_norm = norm_state.STATE in norm.__dict__
    before = norm_state.given_of(norm, plan.dtype, columns) if is_rms_norm else _layer_norm_of(norm, plan)
    post = (None, 0, 0.0) if found.post is None else norm_state.given_of(found.post, plan.dtype, columns)
    packs = None if behind is None or before is None or post is None else plan.packs()
    if packs is None:
        return None
    norms = (before[0], None if is_rms_norm else norm.bias, *plan.weights(), post[0])
    return _Ready(state.links, found, place, norms, (before[1], plan.form, post[1]), (before[2], plan.eps, post[2]), (*packs, behind))


def _count(found: _LayerPlan, layer: typing.Any) -> None:
    """After a call, whose rows are in this layer of the cache."""
    found.plan.count(layer)
    found.state.fused_calls += 1
    found.state.settle()
    norm_state.count(found.norm, found.post)
    decoded.count(found.plan, found.attention)
    found.attention.__dict__[decoded.STATE].fused += 1


def _is_norm(module: nn.Module) -> bool:
    return is_rms(module) or (type(module) is nn.LayerNorm and norm_state.STATE not in module.__dict__)


def _match_layer(
    layer: nn.Module, attention: nn.Module, of: Plan, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]"
) -> _LayerPlan:
    """Raises NoMatch with the reason."""
    state: "State" = layer.__dict__[MLP]
    if state.call is None or state.call.obstacle(args, kwargs) is not None or not state.plan.residual:
        raise NoMatch("the MLP does not run with the norm and the residual around it")
    if of.dtype not in _DTYPES:
        raise NoMatch(f"the op computes no {of.dtype}")
    own = own_forward(layer)
    reads = reads_of(layer, own)  # before the forward runs: it has to be transformers' own
    graph = record(layer, own, args, kwargs)
    found = Match(layer, graph)
    ends = [n for n in graph.nodes if n.op == "call_module" and n.target == state.plan.pre_norm]
    if len(ends) != 1 or len(ends[0].args) != 1 or ends[0].kwargs:
        raise NoMatch("the second norm is called otherwise")
    total = ends[0].args[0]
    if not isinstance(total, fx.Node) or total.target not in ADD or len(total.args) != 2 or total.kwargs:  # noqa: PLR2004
        raise NoMatch("the second norm takes no sum")
    found.seen.add(total)
    x = next((n for n in total.args if isinstance(n, fx.Node) and n.op == "placeholder"), None)
    node = total.args[1 if total.args[0] is x else 0]
    node = found.behind_dropout(node)
    post = found.child(node)
    if post is not None and is_rms(post):
        node = found.step(node)
    else:
        post = None
    if isinstance(node, fx.Node) and node.target is operator.getitem and node.args[1] == 0:
        node = found.step(node)
    called = node if isinstance(node, fx.Node) and node.op == "call_module" else None
    if x is None or called is None or layer._modules.get(str(called.target)) is not attention:
        raise NoMatch("the sum is not of x and attention")
    arguments, normed = _arguments_of(called, of, args, kwargs)
    norm = found.child(normed)
    if norm is None or not _is_norm(norm) or normed.args[0] is not x:
        raise NoMatch("attention is not of a norm of x")
    found.seen.update((called, normed))
    for node in graph.nodes:
        if node is ends[0]:
            break
        is_rest = node.target is operator.getitem and node.args[0] is called and not node.users
        if node.op != "placeholder" and node not in found.seen and not is_rest:
            raise NoMatch(f"it does more: {node.target}")
    children = {**found.used, str(called.target): attention, str(normed.target): norm}
    reads = of.reads.joined(reads, reads_of_children(children.values()), Reads(((layer.__dict__, MLP, state),)))
    at = x.meta["given"]
    if len(at) != 1 or any(reads.hooks):
        raise NoMatch("a part has hooks, or x is one of several")
    plan = of._replace(module=layer, arguments=arguments._replace(x=at[0]), reads=reads)
    if not plan.is_of(args, kwargs) or not plan.holds():
        raise NoMatch("an argument, or what forward() reads, is another kind")
    return _LayerPlan(plan, norm, post, attention, state)


def _arguments_of(
    called: fx.Node, of: Plan, args: "tuple[typing.Any, ...]", kwargs: "dict[str, typing.Any]"
) -> "tuple[Arguments, fx.Node]":
    """Attention's arguments by those of the layer, but for x; and the node that attention is given as x."""
    given = of.arguments
    if len(called.args) != given.places or called.kwargs.keys() != given.names:
        raise OtherCall("attention is called with other arguments")

    def value(at: typing.Any) -> typing.Any:
        return called.kwargs[at] if type(at) is str else called.args[at]

    def path(node: typing.Any) -> "tuple[typing.Any, ...]":
        found = node.path if type(node) is recorded.Cache else node.meta.get("given", ()) if isinstance(node, fx.Node) else ()
        if not found:
            raise NoMatch("the layer makes an argument of attention by itself")
        return found

    def single(at: typing.Any) -> typing.Any:
        found = path(value(at))
        if len(found) != 1:
            raise NoMatch("an argument is one of several")
        return found[0]

    if not all(is_same(value(at), wanted) for at, wanted in given.fixed) or (given.mask is not None and value(given.mask) is None):
        raise OtherCall("attention is called with other values")
    wave = None
    if given.wave is not None:
        both = value(given.wave)
        if not isinstance(both, tuple) or len(both) != 2:  # noqa: PLR2004
            raise NoMatch("cosines and sines are no pair")
        wave = path(both[0])[0]
        if [path(n) for n in both] != [(wave, 0), (wave, 1)]:
            raise NoMatch("cosines and sines are no pair")
    for at, _ in given.unread:
        if not isinstance(value(at), (fx.Node, tuple)):
            raise OtherCall("attention is called with no tensor")
    mask, cache = None if given.mask is None else single(given.mask), single(given.cache)
    fixed, unread = [], []
    for at, something in (*enumerate(args), *kwargs.items()):
        if at in (wave, mask, cache):
            continue
        if something is None or isinstance(something, (bool, int, float, str)):
            fixed.append((at, something))
        elif isinstance(something, (_Tensor, tuple)):
            unread.append((at, type(something)))
        else:
            raise NoMatch(f"the layer is called with a {type(something).__name__}")
    normed = value(given.x)
    if not isinstance(normed, fx.Node):
        raise NoMatch("attention is given no tensor")
    return Arguments(len(args), frozenset(kwargs), given.x, wave, mask, cache, tuple(fixed), tuple(unread)), normed


def fuse_decoded_layers(model: nn.Module) -> None:
    """For layers whose MLP runs with the norm and the residual around it, and that have attention which decoded.py runs."""
    for module in model.modules():
        is_layer = MLP in module.__dict__ and getattr(type(module), "_epilogue_norm", None) is not None
        if is_layer and any(decoded.STATE in child.__dict__ for child in module.children()):
            module.__dict__[STATE] = DecodedLayer()


def unfuse_decoded_layer(module: nn.Module) -> None:
    module.__dict__.pop(STATE, None)


def decoded_layers(model: nn.Module) -> int:
    """Calls of layers as one op."""
    return sum(m.__dict__[STATE].fused for m in model.modules() if STATE in m.__dict__)


def decoded_ahead(model: nn.Module) -> int:
    """Of these: those that were computed with the layer before."""
    return sum(m.__dict__[STATE].links.taken for m in model.modules() if STATE in m.__dict__)
