"""Micro-batches: a loop over parts of the batch, where a batch's activations exceed the cache.

    y = f(x: f32[8, …]); z = g(y)   →   y = loop(8){f(x[i])}; z = g(y)

The loop covers the first layers, up to where cost/batch.py predicts the largest gain; its body has
static sizes even where the batch is dynamic. A node may be inside if each row of its result (along
axis 0) needs only the same row of its operands: its operator says so (`OpDef.attrs_of_rows`).
Constants are repeated in the body, where they can be packed. In: a Graph. Out: a Graph. Called by
the pipeline before layouts are chosen; INGOT_OFF=split_batch switches it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.cost.batch import Layer, Split, best_split
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.opdef import Attrs, Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import Dim, TensorType, same_size
from ingot.graph.verify import attr_dims
from ingot.passes.edit import Editor, constant_ref
from ingot.support import options
from ingot.target import Target

ONE = arith.Const(1)


def split_batch(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    """The graph with a loop over its batch, if that pays."""
    batch = _batch(graph)
    if not options.current().has("split_batch") or batch is None or graph.state:
        return graph
    found = independent_rows(graph, batch)
    split = best_split(found.layers(graph), arith.as_int(batch), target)
    return graph if split is None else BatchLoop(graph, store, found, batch, split).rewritten()


def _batch(graph: Graph) -> Dim | None:
    """The size of axis 0 of the first input that is not 1: a number or a symbol."""
    sizes = (v.shape[0] for v in graph.inputs if isinstance(v.type, TensorType) and v.tensor.rank)
    size = next((n for n in sizes if not arith.is_const(n, 1)), None)
    is_plain = isinstance(size, arith.Var) or (arith.as_int(size or 0) or 0) > 1
    return size if is_plain else None


# --- which nodes may be inside -------------------------------------------------------------------


@dataclass
class Rows:
    """Nodes that compute each row of axis 0 alone, in topological order, and names of values: those
    that they read or make (`batched`), and those of convolutions, stored channels-last (`maps`)."""

    nodes: list[Node]
    batched: set[str]
    maps: set[str]

    def attrs_of(self, node: Node, rows: Dim) -> Attrs | None:
        """The node's attributes for so many rows; None if it mixes rows."""
        batched = [i for i, v in enumerate(node.inputs) if v is not None and v.name in self.batched]
        types = [None if v is None else v.type for v in node.inputs]
        return defn(node).attrs_of_rows(types, node.attr_map, batched, rows) if batched else None

    def layers(self, graph: Graph) -> list[Layer]:
        """The bytes of each node; one that is fused with its producer has those it adds."""
        borders = self._border_bytes(graph)
        return [self._layer(node, border) for node, border in zip(self.nodes, borders)]

    def _layer(self, node: Node, border: int) -> Layer:
        op, operands = defn(node), [v for v in node.inputs if v is not None]
        maps = [_bytes_of_row(v) for v in operands if v.name in self.batched]
        weights = [_bytes(v) for v in operands if v.name not in self.batched]
        if op.is_view or op.kind_of(node) is Kind.ELEMENTWISE:
            return Layer(sum(maps[1:]), 0, border)
        return Layer(sum(maps) + _bytes_of_row(node.outputs[0]), sum(weights), border)

    def _border_bytes(self, graph: Graph) -> list[int]:
        """Behind each node, the bytes of a row of all values that later nodes read."""
        last = self._last_uses(graph)
        change = [0] * (len(self.nodes) + 1)
        for i, node in enumerate(self.nodes):
            (out,) = node.outputs
            change[i] += _bytes_of_row(out)
            change[last[out.name]] -= _bytes_of_row(out)
        total, found = 0, []
        for each in change[:-1]:
            total += each
            found.append(total)
        return found

    def _last_uses(self, graph: Graph) -> dict[str, int]:
        """The position of the last of these nodes that reads a value, and the end if others do."""
        position = {node.outputs[0].name: i for i, node in enumerate(self.nodes)}
        last = dict(position)
        for node in graph.nodes:
            at = position.get(node.outputs[0].name, len(self.nodes))
            last |= {v.name: max(at, last[v.name]) for v in node.inputs if v and v.name in last}
        return last | {v.name: len(self.nodes) for v in graph.outputs if v.name in last}


def independent_rows(graph: Graph, batch: Dim) -> Rows:
    """The nodes whose rows depend on the same rows of the graph's inputs only."""
    inputs = {v.name for v in graph.inputs if _has_rows(v, batch)}
    rows = Rows([], set(inputs), set())
    later: set[str] = set()  # values that depend on the batch otherwise
    for node in graph.nodes:
        names = {v.name for v in node.inputs if v is not None}
        if not names & (rows.batched | later):
            continue
        if names & later or not _is_independent(node, rows, batch):
            later |= {v.name for v in node.outputs}
            continue
        (out,) = node.outputs
        rows.nodes.append(node)
        rows.batched.add(out.name)
        op = defn(node)
        keeps = op.keeps_axes or op.kind_of(node) is Kind.ELEMENTWISE
        if op.channels_last or (keeps and names & rows.maps and out.tensor.rank > 2):
            rows.maps.add(out.name)
    return rows


def _has_rows(value: Value, batch: Dim) -> bool:
    is_tensor = isinstance(value.type, TensorType) and value.tensor.rank > 0
    return is_tensor and same_size(value.shape[0], batch)


def _is_independent(node: Node, rows: Rows, batch: Dim) -> bool:
    if len(node.outputs) != 1 or any(True for _ in node.subgraphs) or node.attr("symbols"):
        return False
    (out,) = node.outputs
    if not _has_rows(out, batch) or any(arith.as_int(n) is None for n in out.shape[1:]):
        return False
    attrs = rows.attrs_of(node, ONE)
    if attrs is None:
        return False
    mentioned = {name for d in attr_dims(tuple(attrs.values())) for name in arith.free_vars(d)}
    return not mentioned & arith.free_vars(batch)


def _bytes_of_row(value: Value) -> int:
    sizes = [arith.as_int(n) or 0 for n in value.shape[1:]]
    return prod(sizes) * value.dtype.storage_bytes


def _bytes(value: Value) -> int:
    return (arith.as_int(value.tensor.numel) or 0) * value.dtype.storage_bytes


# --- the loop ------------------------------------------------------------------------------------


class BatchLoop:
    """The rewriting of a graph: the nodes before the loop, the loop, the nodes after it."""

    def __init__(self, graph: Graph, store: ConstantStore, rows: Rows, batch: Dim, split: Split):
        self.graph, self.store, self.rows, self.batch = graph, store, rows, batch
        self.inside = rows.nodes[: split.layers]
        self.images = arith.Const(split.images)
        count = arith.as_int(batch)
        self.iterations = batch if count is None else arith.Const(count // split.images)

    def rewritten(self) -> Graph:
        edit = Editor(self.graph, self.store)
        made = {v.name for node in self.inside for v in node.outputs}
        after: list[Node] = []
        later = set(made)
        for node in self.graph.nodes:
            if node.outputs[0].name in made:
                continue
            if any(v is not None and v.name in later for v in node.inputs):
                after.append(node)
                later |= {v.name for v in node.outputs}
            else:
                edit.keep(node)
        self._add_loop(edit, self._results(made, after))
        for node in after:
            edit.keep(edit.current(node))
        return edit.finish()

    def _results(self, made: set[str], after: Sequence[Node]) -> list[Node]:
        """The nodes inside whose values are read after the loop."""
        read = {v.name for node in after for v in node.inputs if v is not None}
        read |= {v.name for v in self.graph.outputs}
        return [node for node in self.inside if node.outputs[0].name in read]

    def _add_loop(self, edit: Editor, results: Sequence[Node]) -> None:
        operands = self._operands(edit)
        body = self._body(edit, operands, results)
        g = edit.g
        trips = g.add("index_tensor", [], values=(self.iterations,), shape=())
        captured = [self._in_parts(g, v) for v in operands]
        found = g.add_all(
            "loop", [trips, None, *captured], body=body, carried=0, count=self.iterations
        )
        for node, stacked in zip(results, found, strict=True):
            g.origin = node.origin
            whole = g.add("reshape", [stacked], shape=(self.batch, *stacked.shape[2:]))
            edit.replace(node, [self._channels_first(g, node, whole)])

    def _operands(self, edit: Editor) -> list[Value]:
        """Values from outside that the body reads; it has constants of its own."""
        made = {node.outputs[0].name for node in self.inside}
        read = {v.name: v for node in self.inside for v in node.inputs if v is not None}
        outer = [v for name, v in read.items() if name not in made]
        return [v for v in outer if not _is_constant(edit, v)]

    def _in_parts(self, g: GraphBuilder, value: Value) -> Value:
        """A batched operand with an axis of iterations; any other as it is."""
        if value.name not in self.rows.batched:
            return value
        return g.add("reshape", [value], shape=self._parts(value))

    def _parts(self, value: Value) -> tuple[Dim, ...]:
        return self.iterations, self.images, *value.shape[1:]

    def _body(self, edit: Editor, operands: Sequence[Value], results: Sequence[Node]) -> Graph:
        """One iteration: the operands' part of the batch, the nodes on it, the results."""
        g = GraphBuilder("micro_batch", self.store)
        index = g.input("i", TensorType(dtypes.i64, ()))
        go_on = g.input("go_on", TensorType(dtypes.bool_, ()))
        new: dict[str, Value] = {}
        for value in operands:
            is_batched = value.name in self.rows.batched
            type = TensorType(value.dtype, self._parts(value)) if is_batched else value.type
            new[value.name] = g.input(value.name, type)
        for name in [v.name for v in operands if v.name in self.rows.batched]:
            new[name] = g.add("gather", [new[name], index], axis=0)
        for node in self.inside:
            self._add(g, edit, node, new)
        outputs = [self._channels_last(g, node, new[node.outputs[0].name]) for node in results]
        return g.finish([go_on, *outputs])

    def _add(self, g: GraphBuilder, edit: Editor, node: Node, new: dict[str, Value]) -> None:
        g.origin = node.origin
        for value in node.inputs:
            if value is not None and value.name not in new:
                producer = edit.producer(value)
                ref = constant_ref(producer) if producer is not None else None
                assert producer is not None and ref is not None
                new[value.name] = g.constant(ref, value.name)
        attrs = self.rows.attrs_of(node, self.images)
        assert attrs is not None
        inputs = [None if v is None else new[v.name] for v in node.inputs]
        (out,) = node.outputs
        new[out.name] = g.add(node.op, inputs, out.name, **attrs)

    def _channels_last(self, g: GraphBuilder, node: Node, value: Value) -> Value:
        """The value as it will be in memory, so that nothing is converted at the loop's border."""
        if node.outputs[0].name not in self.rows.maps:
            return value  # the body may have another name for it
        axes = range(2, value.tensor.rank)
        return g.add("transpose", [value], perm=(0, *axes, 1))

    def _channels_first(self, g: GraphBuilder, node: Node, value: Value) -> Value:
        if node.outputs[0].name not in self.rows.maps:
            return value
        last = value.tensor.rank - 1
        return g.add("transpose", [value], perm=(0, last, *range(1, last)))


def _is_constant(edit: Editor, value: Value) -> bool:
    producer = edit.producer(value)
    return producer is not None and constant_ref(producer) is not None
