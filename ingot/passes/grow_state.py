"""States that grow: a concat onto a cache becomes a write of the new rows in place.

    %present: f32[B, P + S, D] = concat(%past, %new) {axis=1}; state %past -> %present

    →  %past: f32[B, 1024, D]                   the whole capacity, an argument of every run
       %present: f32[B, 1024, D] = write_rows(%past, %new) {at=rows - S, axis=1, fits=true}
       %present_rows: f32[B, rows, D] = slice(%present)              read in place: a view
       state %past -> %present; grow [%past[1]] to rows by S

`rows` is a new symbol that replaces P everywhere: the rows in use after the run, from 1 to the
capacity, so that reads of the cache are proved to be inside it. All states have the same number of
rows in use. In: a graph and its state pairs that grow. Called by attach_state.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.bounds import bounds_of
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplifier, simplify
from ingot.graph.ir import Graph, Growth, Node, Value, make_attrs, replace
from ingot.graph.opdef import defn
from ingot.graph.substitute import map_sizes
from ingot.graph.types import Dim, Symbol, same_size
from ingot.passes.edit import rename_values, symbol_names, values_of
from ingot.support.errors import IngotError

ROWS = "state_length"  # the name of the symbol, if it is free


@dataclass(frozen=True)
class _Pair:
    """A state that grows: its concat, whose other operands are the new rows."""

    old: Value
    new: Value
    axis: int
    past: str  # the symbol of the rows before the run
    added: arith.Expr
    concat: Node
    copies: tuple[Node, ...]  # identities between the concat and the output
    capacity: int


def grow_states(graph: Graph, growing: Mapping[str, str], capacity: Mapping[str, int]) -> Graph:
    """Rewrite the concat of each pair as above; the caller adds the state pairs."""
    pairs = [_pair(graph, old, new, capacity[old]) for old, new in growing.items()]
    first = pairs[0]
    for pair in pairs[1:]:
        if not same_size(pair.added, first.added):
            what = f"{pair.new.name!r} grows by {pair.added}, {first.new.name!r} by {first.added}"
            raise _refused(what, "all states have the same number of rows in use")
    graph = _Rewrite(graph, pairs).graph()
    return _with_rows(graph, pairs)


def _pair(graph: Graph, old: str, new: str, capacity: int) -> _Pair:
    past = next(v for v in graph.inputs if v.name == old)
    present = next(v for v in graph.outputs if v.name == new)
    what = f"state {old!r} is {past.type}, its successor {new!r} {present.type}"
    if past.dtype is not present.dtype or past.tensor.rank != present.tensor.rank:
        raise _refused(what, "a state that grows keeps its element type and its other axes")
    sizes = list(zip(past.shape, present.shape))
    axes = [axis for axis, (a, b) in enumerate(sizes) if not same_size(a, b)]
    if len(axes) != 1 or not isinstance(sizes[axes[0]][0], arith.Var):
        raise _refused(what, "a state grows along one axis, whose size is a dynamic dimension")
    (before, after) = sizes[axes[0]]
    added = simplify(after - before)
    if before.name in arith.free_vars(added):
        raise _refused(what, f"the rows that a run adds, {added}, depend on how many there are")
    _check_start(graph.symbol_map[before.name], past)
    concat, copies = _concat(graph, past, present, axes[0])
    return _Pair(past, present, axes[0], before.name, added, concat, copies, capacity)


def _check_start(symbol: Symbol, past: Value) -> None:
    if symbol.low > 0:
        raise IngotError(
            "bad-option",
            f"state {past.name!r} starts empty, but {symbol.name!r} is at least {symbol.low}",
            why="a node of the model, or shapes=, or the graph's symbol requires it",
            hint=f"allow {symbol.name!r} from 0 on",
        )


def _concat(graph: Graph, past: Value, present: Value, axis: int) -> tuple[Node, tuple[Node, ...]]:
    """The concat of the state and its new rows, and the identities between it and the output."""
    producers, copies = graph.producers(), []
    node = producers.get(present.name)
    while node is not None and node.op == "identity" and node.inputs[0] is not None:
        copies.append(node)
        node = producers.get(node.inputs[0].name)
    what = f"output {present.name!r} is not state {past.name!r} with rows appended"
    if node is None or not defn(node).is_concat:
        made = "an input" if node is None else f"made by {node.op} ({node.origin or 'no name'})"
        raise _refused(what, f"it is {made}, not a concat", node)
    operands = [_source(producers, v) for v in node.inputs if v is not None]
    if node.attr("axis") % past.tensor.rank != axis or past.name not in operands:
        raise _refused(what, f"its concat along axis {node.attr('axis')} does not read it", node)
    if operands[0] != past.name or operands.count(past.name) > 1:
        raise _refused(what, "its concat has the state elsewhere than first, and once", node)
    if any(v.name == past.name for v in graph.outputs):
        raise _refused(what, "the state itself is an output of the model too", node)
    return node, tuple(copies)


def _source(producers: Mapping[str, Node], value: Value) -> str:
    """The value that a chain of identities copies."""
    node = producers.get(value.name)
    while node is not None and node.op == "identity" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = producers.get(value.name)
    return value.name


def _refused(what: str, why: str, node: Node | None = None) -> IngotError:
    return IngotError(
        "bad-option",
        what,
        where=node.origin if node is not None else "",
        why=why,
        hint="export the model so that present = concat(past, new rows) is an output as it is, or "
        "pass the cache as a plain input, without state= and capacity=",
    )


class _Rewrite:
    """The graph being rewritten; its sizes still have the old symbols."""

    def __init__(self, old: Graph, pairs: list[_Pair]):
        self.old = old
        self.by_concat = {pair.concat.outputs[0].name: pair for pair in pairs}
        self.dropped = {copy.outputs[0].name for pair in pairs for copy in pair.copies}
        self.names = {v.name for v in values_of(old)}
        self.states = {p.old.name: self.whole(p, p.old.name) for p in pairs}
        self.successors = {p.new.name: self.whole(p, p.new.name) for p in pairs}
        self.renamed: dict[str, Value] = {}
        self.rows: dict[str, tuple[Value, int]] = {}  # rows in use → the whole, and their axis
        self.nodes: list[Node] = []

    def whole(self, pair: _Pair, name: str) -> Value:
        shape = list(pair.old.shape)
        shape[pair.axis] = arith.Const(pair.capacity)
        return Value(name, replace(pair.old.tensor, shape=tuple(shape)))

    def graph(self) -> Graph:
        for pair in self.by_concat.values():
            self.past_rows(pair)
        for node in self.old.nodes:
            name = node.outputs[0].name if node.outputs else ""
            if name in self.by_concat:
                self.append_rows(rename_values(node, self.renamed), self.by_concat[name])
            elif name not in self.dropped:
                renamed = rename_values(node, self.renamed)
                self.nodes += self.unsqueezed(renamed) or [renamed]
        return replace(
            self.old,
            inputs=tuple(self.states.get(v.name, v) for v in self.old.inputs),
            outputs=tuple(self.successors.get(v.name, v) for v in self.old.outputs),
            nodes=tuple(self.nodes),
        )

    def past_rows(self, pair: _Pair) -> None:
        """Nodes that read the old rows get a copy, made before they may be overwritten."""
        readers = [n for n in self.old.nodes if pair.old in n.inputs and n is not pair.concat]
        if readers:
            rows = Value(self.fresh(f"{pair.old.name}_rows"), pair.old.type)
            self.nodes.append(_slice(self.states[pair.old.name], rows, pair.concat.origin))
            self.renamed[pair.old.name] = rows

    def append_rows(self, concat: Node, pair: _Pair) -> None:
        """concat(past, new)  →  slice(write_rows(past, new))"""
        (cat,) = concat.outputs
        added = self.added_rows(concat, pair)
        out = self.successors[pair.new.name]
        attrs = make_attrs({"axis": pair.axis, "at": arith.Var(pair.past), "fits": True})
        given = (self.states[pair.old.name], added)
        self.nodes.append(Node("write_rows", given, (out,), attrs, concat.origin))
        name = self.fresh(f"{cat.name}_rows") if cat.name == out.name else cat.name
        rows = Value(name, cat.type)
        self.nodes.append(_slice(out, rows, concat.origin))
        self.rows[rows.name] = out, pair.axis
        for copied in (cat, *(copy.outputs[0] for copy in pair.copies)):
            self.renamed[copied.name] = rows

    def unsqueezed(self, node: Node) -> list[Node]:
        """unsqueeze(slice(x))  →  slice(unsqueeze(x)): the rows stay a view (the heads of grouped
        queries are repeated so). Empty if it is no such node."""
        source = node.inputs[0] if node.inputs else None
        if not defn(node).is_view or source is None or source.name not in self.rows:
            return []
        (out,), (whole, axis) = node.outputs, self.rows[source.name]
        places = _unsqueezed_axes(source.shape, out.shape)
        if not places:
            return []
        shape = list(out.shape)
        shape[places[axis]] = whole.shape[axis]
        made = Value(self.fresh(f"{whole.name}_whole"), replace(out.tensor, shape=tuple(shape)))
        self.rows[out.name] = made, places[axis]
        reshape = Node("reshape", (whole,), (made,), make_attrs({"shape": made.shape}), node.origin)
        return [reshape, _slice(made, out, node.origin)]

    def added_rows(self, concat: Node, pair: _Pair) -> Value:
        """The operands after the state, as one value."""
        rest = tuple(v for v in concat.inputs[1:] if v is not None)
        if len(rest) == 1:
            return rest[0]
        shape = list(pair.old.shape)
        shape[pair.axis] = pair.added
        type = replace(pair.old.tensor, shape=tuple(shape))
        made = Value(self.fresh(f"{pair.new.name}_added"), type)
        self.nodes.append(replace(concat, inputs=rest, outputs=(made,)))
        return made

    def fresh(self, base: str) -> str:
        name, count = base, 1
        while name in self.names:
            name, count = f"{base}.{count}", count + 1
        self.names.add(name)
        return name


def _unsqueezed_axes(old: Sequence[Dim], new: Sequence[Dim]) -> list[int]:
    """Where each old axis is in a shape with more axes of size 1; empty if that is not all."""
    places: list[int] = []
    for place, size in enumerate(new):
        if len(places) < len(old) and same_size(old[len(places)], size):
            places.append(place)
        elif not arith.is_const(size, 1):
            return []
    return places if len(places) == len(old) else []


def _slice(source: Value, out: Value, origin: str) -> Node:
    zeros, ones = (0,) * source.tensor.rank, (1,) * source.tensor.rank
    attrs = make_attrs({"starts": zeros, "sizes": out.shape, "steps": ones})
    return Node("slice", (source,), (out,), attrs, origin)


def _with_rows(graph: Graph, pairs: list[_Pair]) -> Graph:
    """Replace the symbols of the old rows by `rows - added`, with the new symbol `rows`."""
    added, pasts = pairs[0].added, {p.past for p in pairs}
    rows = _rows_symbol(graph, pairs)
    others = [s for s in graph.symbols if s.name not in pasts]
    if isinstance(added, arith.Var):  # no run adds more rows than there can be
        others = [_limited(s, rows.high) if s.name == added.name else s for s in others]
    known = simplifier({s.name: Interval(s.low, s.high) for s in (rows, *others)})
    env = {past: arith.Var(rows.name) - added for past in pasts}
    made = map_sizes(graph, lambda size: known.simplify(arith.substitute(size, env)))
    axes = tuple((p.old.name, p.axis) for p in pairs)
    return replace(made, symbols=(rows, *others), growth=Growth(rows.name, added, axes))


def _rows_symbol(graph: Graph, pairs: list[_Pair]) -> Symbol:
    """The rows in use after a run: at most the capacity, and what the model allows."""
    symbols, name, count = graph.symbol_map, ROWS, 1
    while name in symbol_names(graph):
        name, count = f"{ROWS}_{count}", count + 1
    ranges = {s.name: Interval(s.low, s.high) for s in graph.symbols}
    least = bounds_of(pairs[0].added, ranges).low or 0
    limits = [symbols[p.past].high for p in pairs]
    capacity = min(p.capacity for p in pairs)
    highest = min([capacity, *(limit + least for limit in limits if limit is not None)])
    if highest < least:
        what = f"capacity: {capacity} rows do not hold the {least} that a run adds"
        raise IngotError("bad-option", what, hint=f"give {least} or more")
    origin = f"rows of state {pairs[0].old.name!r}"
    return Symbol(name, least, highest, source="state", origin=origin)


def _limited(symbol: Symbol, high: int | None) -> Symbol:
    assert high is not None
    return replace(symbol, high=high if symbol.high is None else min(symbol.high, high))
