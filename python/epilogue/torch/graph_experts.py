# SPDX-License-Identifier: Apache-2.0
"""Experts of a mixture in Dynamo's graph, as transformers writes them without a loop: rows sorted by expert and grouped
products (grouped_mm), or a product for each row with its expert's matrix (batched_mm). They become one op, epilogue::mixture.

Routing, products and the weighted sum are known by their ops; what stands between the products, by its values."""

import itertools
import operator
import typing

import torch
import torch.nn.functional as F
from torch import fx

from . import activations
from .dynamo import alike, is_written_meanwhile
from .mixture import PLAIN
from .nodes import ADD, MUL, operands_of, run_steps, value_of

_GROUPED = tuple(
    f for f in (getattr(F, "grouped_mm", None), getattr(torch, "_grouped_mm", None), torch.ops.aten._grouped_mm.default) if f is not None
)
_VIEWS = ("view", "reshape", torch.reshape)
_CASTS = ("to", "type_as", "float", "bfloat16", "half")
_WRITES = ("add_", operator.setitem)
_CLAMP = (1.702, 7.0)
_MOST_STEPS = 24  # between the products
_WAY = "experts: not as transformers' grouped_mm or batched_mm"


class Other(Exception):
    """It is none, for this reason."""


class _Product(typing.NamedTuple):
    node: fx.Node
    x: fx.Node
    weight: fx.Node
    bias: "fx.Node | None"
    transposed: bool  # [experts, columns, rows]
    ids: fx.Node  # of the expert of each row; of grouped products, where they end
    writes: "tuple[fx.Node, ...]"  # what writes the result in place


class _Form(typing.NamedTuple):
    """Between the products."""

    activation: str
    gated: bool
    interleaved: bool
    clamp: "tuple[float, float]"  # alpha and limit


class GraphExperts(typing.NamedTuple):
    x: fx.Node
    index: fx.Node
    weights: fx.Node
    up: _Product
    down: _Product
    form: "_Form"
    steps: "tuple[fx.Node, ...]"  # all that go, in the graph's order
    numbers: "tuple[torch.SymFloat, ...]"

    def guard(self) -> None:
        """As GraphMlp.guard()."""
        for number in self.numbers:
            number.node.guard_float(__file__, 0)


def _is(node: typing.Any, *targets: typing.Any) -> bool:
    return isinstance(node, fx.Node) and node.target in targets


def _want(holds: typing.Any, what: str) -> None:
    if not holds:
        raise Other(f"{_WAY} ({what})")


def is_grouped(node: typing.Any) -> bool:
    """Whether it is a grouped product."""
    return _is(node, *_GROUPED) or (isinstance(node, fx.Node) and str(node.target).endswith("grouped_mm_fallback"))


def is_chosen_matrix(node: typing.Any) -> bool:
    """Whether it is, for each row, the matrix of its expert."""
    return _is(node, operator.getitem) and len(_shape(node.args[0])) == 3 and len(_shape(node.args[1])) == 1


def _shape(node: typing.Any) -> "tuple[typing.Any, ...]":
    value = value_of(node)
    return () if value is None else tuple(value.shape)


def _argument(node: fx.Node, place: int, *names: str) -> typing.Any:
    for name in names:
        if name in node.kwargs:
            return node.kwargs[name]
    return node.args[place] if len(node.args) > place else None


def _uncast(node: typing.Any) -> typing.Any:
    """Before casts to the dtype that it has."""
    while _is(node, *_CASTS) and value_of(node.args[0]) is not None and value_of(node.args[0]).dtype == value_of(node).dtype:
        node = node.args[0]
    return node


def _flat(node: typing.Any, what: str) -> fx.Node:
    """The matrix that `node` has row after row."""
    _want(_is(node, *_VIEWS, "flatten", torch.flatten) and len(_shape(node)) == 1 and len(_shape(node.args[0])) == 2, what)
    return node.args[0]


def _turned(node: typing.Any) -> "tuple[fx.Node, bool]":
    """(weight, whether its last two dimensions are swapped)."""
    is_turned = _is(node, "transpose", torch.transpose) and {d % 3 for d in node.args[1:]} == {1, 2}
    return (node.args[0], True) if is_turned else (node, False)


def _bias_of(node: fx.Node, ids: "typing.Callable[[fx.Node], bool]") -> "tuple[fx.Node, fx.Node | None, tuple[fx.Node, ...]]":
    """(the sum, the bias, what writes it in place) of a product to which each row's bias is added."""
    written = [u for u in node.users if _is(u, "add_") and u.args[0] is node]
    added = [u for u in node.users if _is(u, *ADD) and not u.kwargs]
    if not written and len(node.users) != 1:
        return node, None, ()
    for user in (*written, *added):
        other = [n for n in user.args if n is not node]
        if len(user.args) != 2 or len(other) != 1 or not _is(other[0], operator.getitem) or not ids(other[0].args[1]):
            continue
        bias = other[0].args[0]
        if len(_shape(bias)) != 2 or _shape(bias)[1] != _shape(node)[-1]:
            continue
        if user in written:
            _want(len(written) == 1 and next(iter(node.users)) is user, "a product is written to more than once")
            return node, bias, (user,)
        return user, bias, ()
    _want(not written, "a product is written to")
    return node, None, ()


class _Grouped:
    """Rows sorted by expert."""

    def __init__(self, weighted: fx.Node) -> None:
        rows, back = weighted.args
        _want(_is(back, torch.empty_like, "new_empty", torch.empty), "rows are not put in order again")
        filled = [u for u in back.users if u is not weighted]
        _want(len(filled) == 1 and _is(filled[0], operator.setitem) and filled[0].args[0] is back, "rows are not put in order again")
        self.order = filled[0].args[1]
        numbers = filled[0].args[2]
        is_count = _is(numbers, torch.arange) and (len(numbers.args) == 1 or numbers.args[0] == 0 and len(numbers.args) == 2)
        _want(is_count and not {"start", "step"} & set(numbers.kwargs), "rows are not put in order again")
        _want(_shape(numbers) == _shape(self.order), "rows are not put in order again")
        self.rows: fx.Node = rows
        self.writes = (filled[0],)
        sort = self.order.args[0] if _is(self.order, operator.getitem) and self.order.args[1] == 1 else None
        _want(_is(sort, torch.sort, "sort") and not _argument(sort, 2, "descending"), "rows are not sorted by expert")
        self.sort: fx.Node = sort
        self.index = _flat(_argument(sort, 0, "input"), "rows are not sorted by expert")

    def is_sorted(self, node: typing.Any) -> bool:
        return _is(node, operator.getitem) and node.args[0] is self.sort and node.args[1] == 0

    def weights(self, node: typing.Any) -> fx.Node:
        _want(_is(node, operator.getitem) and node.args[1] is self.order, "the routing's weights")
        return _flat(node.args[0], "the routing's weights")

    def product(self, node: typing.Any) -> _Product:
        node = _uncast(node)
        product = node
        if _is(node, *ADD) and not node.kwargs:
            product = next((n for n in node.args if is_grouped(n)), node)
        _want(is_grouped(product), "no grouped product")
        end, bias, writes = _bias_of(product, self.is_sorted)
        _want(end is node, "no grouped product")
        weight, turned = _turned(_argument(product, 1, "weight", "mat2", "mat_b"))
        plain = _argument(product, 3, "bias") is None and _argument(product, 4, "out_dtype") is None
        _want(plain and len(_shape(weight)) == 3, "no grouped product")
        ends = _argument(product, 2, "offs")
        self._check_ends(ends, _shape(weight)[0])
        return _Product(end, _uncast(_argument(product, 0, "input", "mat_a")), weight, bias, not turned, ends, writes)

    def _check_ends(self, ends: typing.Any, experts: int) -> None:
        """Where the rows of each expert end: a running sum of how many it has."""
        _want(_is(ends, torch.cumsum, "cumsum") and _argument(ends, 1, "dim") == 0, "where the rows of an expert end")
        counts = _argument(ends, 0, "input")
        _want(_is(counts, torch.histc, "histc"), "where the rows of an expert end")
        bins, least, most = (_argument(counts, *where) for where in ((1, "bins"), (2, "min"), (3, "max")))
        given = _argument(counts, 0, "input")
        while _is(given, *_CASTS, "int"):
            given = given.args[0]
        _want((bins, least, most) == (experts, 0, experts - 1) and self.is_sorted(given), "where the rows of an expert end")

    def rows_of(self, node: typing.Any, choices: int) -> fx.Node:
        """x, of whose rows `node` has each once for each choice."""
        _want(_is(node, operator.getitem), "the rows of x")
        place = node.args[1]
        _want(_is(place, operator.floordiv, torch.floor_divide, "floor_divide") and place.args == (self.order, choices), "the rows of x")
        return node.args[0]


class _Batched:
    """A product for each row and choice."""

    def __init__(self, weighted: fx.Node) -> None:
        self.rows = weighted
        self.ids: "fx.Node | None" = None
        self.writes: "tuple[fx.Node, ...]" = ()

    @property
    def index(self) -> fx.Node:
        return _flat(self.ids, "the chosen experts")

    def weights(self, node: typing.Any) -> fx.Node:
        return _flat(node, "the routing's weights")

    def _is_chosen(self, node: typing.Any) -> bool:
        self.ids = node if self.ids is None else self.ids
        return node is self.ids

    def product(self, node: typing.Any) -> _Product:
        product = node
        if _is(node, *ADD) and not node.kwargs:
            product = next((n for n in node.args if _is(n, "squeeze", torch.squeeze)), node)
        _want(_is(product, "squeeze", torch.squeeze) and _is(product.args[0], torch.bmm, "bmm"), "no product for each row")
        end, bias, writes = _bias_of(product, self._is_chosen)
        _want(end is node, "no product for each row")
        sides = product.args[0].args
        place = next((i for i, side in enumerate(sides) if is_chosen_matrix(side)), None)
        _want(place is not None and len(sides) == 2, "no product for each row")
        chosen, row = sides[place], sides[1 - place]
        _want(self._is_chosen(chosen.args[1]), "the chosen experts")
        # [rows, n, k] times [rows, k, 1], or [rows, 1, k] times [rows, k, n].
        dims = (-1, 2) if place == 0 else (-2, 1)
        _want(_is(row, "unsqueeze", torch.unsqueeze) and _argument(row, 1, "dim") in dims, "no product for each row")
        _want(_argument(product, 1, "dim") in dims, "no product for each row")
        return _Product(end, _uncast(row.args[0]), chosen.args[0], bias, place == 1, self.ids, writes)

    def rows_of(self, node: typing.Any, choices: int) -> fx.Node:
        repeats = _argument(node, 1, "repeats") if _is(node, "repeat_interleave", torch.repeat_interleave) else None
        _want(repeats == choices and _argument(node, 2, "dim") == 0, "the rows of x")
        return _argument(node, 0, "input")


def _summed(node: fx.Node) -> "fx.Node | None":
    """[rows, choices, columns], where `node` is the sum of the choices."""
    if _is(node, "to", "type_as") and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    elif any(_is(user, "to", "type_as") for user in node.users):
        return None  # the cast is the end
    if not _is(node, "sum", torch.sum) or _argument(node, 1, "dim") not in (1, -2, (1,), [1]) or _argument(node, 2, "keepdim"):
        return None
    view = node.args[0] if node.args else None
    fits = _is(view, *_VIEWS) and len(_shape(view)) == 3 and len(_shape(view.args[0])) == 2  # type: ignore[union-attr]
    return view if fits else None  # type: ignore[return-value]


def _between(up: fx.Node, down: fx.Node) -> "list[fx.Node]":
    """The steps from the one's result to what the other multiplies, in the graph's order."""
    found: "set[fx.Node]" = set()
    todo = [down]
    while todo:
        step = todo.pop()
        if step is up or step in found or isinstance(step.meta.get("example_value"), torch.SymFloat):
            continue
        _want(step.op in ("call_function", "call_method") and len(found) < _MOST_STEPS, "what stands between the products")
        found.add(step)
        todo += step.all_input_nodes
    return [n for n in up.graph.nodes if n in found]


def _clamped(gate: torch.Tensor, up: torch.Tensor, alpha: float, limit: float) -> torch.Tensor:
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


def _form_of(up: fx.Node, down: fx.Node, steps: "list[fx.Node]", numbers: "dict[fx.Node, float]") -> _Form:
    """Of the steps from one product's result to what the other multiplies, by their values."""
    columns, hidden = _shape(up)[-1], _shape(down)[-1]
    _want(type(columns) is int and type(hidden) is int and columns in (hidden, 2 * hidden), "its sizes")
    gated = columns == 2 * hidden
    grid = activations.sample_grid()
    rows = -(-len(grid) // hidden)
    gate = torch.cat([grid, grid.new_zeros(rows * hidden - len(grid))])
    other = gate[torch.randperm(len(gate), generator=torch.Generator().manual_seed(1), device="cpu")].view(rows, hidden)
    gate = gate.view(rows, hidden)
    given = {abs(float(v)) for n in steps for v in (*n.args, *n.kwargs.values()) if type(v) in (int, float)}
    clamps = list(itertools.permutations(sorted(given | set(map(abs, numbers.values()))), 2)) if gated else []
    for interleaved in (False, True) if gated else (False,):
        both = torch.stack([gate, other], -1).flatten(1) if interleaved else torch.cat([gate, other], -1)
        try:
            got = run_steps(steps, {up: both if gated else gate.clone(), **numbers})[down]
        except Exception:  # whatever a step raises that wants other things
            break
        if not isinstance(got, torch.Tensor) or got.dtype != gate.dtype or got.shape != gate.shape:
            continue
        for name in PLAIN:
            if _same(got, activations.KNOWN[name](gate) * (other if gated else 1)):
                return _Form(name, gated, interleaved, _CLAMP)
        for clamp in clamps:
            if _same(got, _clamped(gate, other, *clamp)):
                return _Form("clamped_swiglu", gated, interleaved, clamp)
    raise Other("experts: the engine lacks what stands between their products")


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def experts_at(node: fx.Node) -> "GraphExperts | None":
    """The experts whose result `node` is; None where nothing looks like it. Raises Other with the reason."""
    view = _summed(node)
    if view is None:
        return None
    try:
        way, weighted, down, scale = _last_product(view.args[0])
    except Other:
        return None
    up = way.product(_source_of(down.x, way))
    weights, index = way.weights(_uncast(scale)), way.index
    choices, columns = _shape(view)[1:]
    _want(type(choices) is int and type(columns) is int and _shape(index)[1] == choices == _shape(weights)[1], "its sizes")
    x = way.rows_of(up.x, choices)
    _want(len(_shape(x)) == 2 and _shape(x)[1] == columns and up.transposed == down.transposed, "its sizes")
    _want((up.bias is None) == (down.bias is None), "a bias of one product alone")
    _want(up.ids is down.ids, "where the rows of an expert end")
    given = [n for n in (up.weight, down.weight, up.bias, down.bias) if n is not None]
    if any(n.op not in ("placeholder", "get_attr") for n in given):
        raise Other("experts: their weights are computed in the graph")
    of_x, of_weights, of_index = value_of(x), value_of(weights), value_of(index)
    if alike(x, *given) is None or of_x is None or value_of(node).dtype != of_x.dtype:  # type: ignore[union-attr]
        raise Other("experts: of several dtypes, or of one that the engine lacks")
    if of_weights.dtype not in (torch.float32, of_x.dtype) or of_index.dtype not in (torch.int64, torch.int32):  # type: ignore[union-attr]
        raise Other(f"experts: the routing is {of_index.dtype} and {of_weights.dtype}")  # type: ignore[union-attr]
    inner = _between(up.node, down.x)
    numbers = {n: v for step in inner for n in step.all_input_nodes if isinstance(v := n.meta.get("example_value"), torch.SymFloat)}
    form = _form_of(up.node, down.x, inner, {n: v.node.hint for n, v in numbers.items()})
    steps = _steps(node, (x, index, weights, *given, *numbers), (*way.writes, *up.writes, *down.writes))
    return GraphExperts(x, index, weights, up, down, form, steps, tuple(numbers.values()))


def _last_product(rows: fx.Node) -> "tuple[_Grouped | _Batched, fx.Node, _Product, fx.Node]":
    """How experts are written whose weighted results are `rows`: the way, the weighted rows, the product, the weights."""
    is_sorted = _is(rows, operator.getitem) and isinstance(rows.args[1], fx.Node)
    way: "_Grouped | _Batched" = _Grouped(rows) if is_sorted else _Batched(rows)
    sides = operands_of(way.rows, MUL)
    place = None if sides is None else next((i for i in (1, 0) if _is(sides[i], "unsqueeze", torch.unsqueeze)), None)
    if sides is None or place is None:
        raise Other(f"{_WAY} (the routing's weights)")
    _want(_argument(sides[place], 1, "dim") in (-1, 1), "the routing's weights")
    return way, way.rows, way.product(sides[1 - place]), sides[place].args[0]  # type: ignore[return-value]


def _source_of(node: fx.Node, way: "_Grouped | _Batched") -> fx.Node:
    """The product before `node`, through the steps of an activation."""
    todo, seen = [node], 0
    while todo and seen < 4 * _MOST_STEPS:
        step = todo.pop()
        seen += 1
        try:
            way.product(step)
            return step
        except Other:
            todo += step.all_input_nodes
    raise Other(f"{_WAY} (no product before the activation)")


def _steps(end: fx.Node, given: "tuple[fx.Node, ...]", writes: "tuple[fx.Node, ...]") -> "tuple[fx.Node, ...]":
    """All nodes that make the result, if nobody else reads what they write, and nothing else writes meanwhile."""
    found: "set[fx.Node]" = set(writes)
    todo = [end, *(n for write in writes for n in write.all_input_nodes)]
    while todo:
        step = todo.pop()
        if step not in found and step not in given and step.op != "placeholder":
            found.add(step)
            todo += step.all_input_nodes
    ordered = tuple(n for n in end.graph.nodes if n in found)
    for write in writes:
        if write.users or any(user not in found for user in write.args[0].users):
            raise Other("experts: others read what they write")
    if is_written_meanwhile(end, ordered[::-1]):
        raise Other("experts: memory is written between their steps")
    return ordered


def insert(graph: fx.Graph, node: fx.Node, found: GraphExperts) -> None:
    """The op in the place of `node`, and of all that made it."""
    up, down, form = found.up, found.down, found.form
    with graph.inserting_before(node):
        # Parameters of a frozen graph are attributes, each read right before its op.
        read = lambda n: graph.node_copy(n) if n is not None and n.op == "get_attr" else n  # noqa: E731
        new = graph.call_function(
            torch.ops.epilogue.mixture.default,
            (found.x, found.index, found.weights, read(up.weight), read(down.weight), None, read(up.bias), read(down.bias), None,
             form.activation, form.gated, form.interleaved, up.transposed, *form.clamp, ""),
        )  # fmt: skip
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    for step in reversed(found.steps):
        # What writes goes with the last that reads what it writes.
        is_read = step.target in _WRITES and len(step.args[0].users) > 1  # type: ignore[union-attr]
        if not step.users and not is_read:
            graph.erase_node(step)


def why_left(graph: fx.Graph) -> "str | None":
    """Of a graph without such experts: why it has none, if it has some."""
    for node in graph.nodes:
        if is_grouped(node) or (_is(node, torch.bmm, "bmm") and any(map(is_chosen_matrix, node.args))):
            return _WAY
        if _is(node, torch.greater, torch.gt, "gt") and _is(node.args[0], "sum") and _is_hit(node.args[0].args[0]):
            return "experts: a loop over them (set_experts_implementation('grouped_mm'), or fuse(), makes them one op)"
    return None


def _is_hit(node: typing.Any) -> bool:
    return _is(node, "permute", torch.permute) and _is(node.args[0], F.one_hot, torch._C._nn.one_hot)
