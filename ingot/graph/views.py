"""Views: values that are stored in a part of another value's buffer, listed in `Graph.views`.

    view %a = %cat[0, 64]      %a is the box of %cat from row 0, column 64 on

Offsets count along the physical axes of the base, which has the value's element type and memory
order. passes/alias_buffers.py makes views, lower gives them the base's buffer, and the interpreter
ignores them. A plain `concat` whose operands are all where it would put them, and a plain `slice`
whose output is where it takes it from, are *in place*: they need no kernel.

1. A view and its base are values of the graph. A base is no view, a graph output is no view, and a
   state is neither; what replaces a state may be a base. The box is inside the base.
2. What is viewed is written by a kernel, or by an operator in place.
3. Boxes that kernels write into one base do not overlap; a base that a kernel writes is one box.
4. Only kernels of plain loads and stores read views, and none reads a base that it also writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, View
from ingot.graph.layouts import axis_order, physical_shape
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import TensorType, same_size
from ingot.support.errors import IngotError


@dataclass(frozen=True)
class Region:
    """A box of a base value, in its physical axes, from `offsets` on."""

    base: Value
    offsets: tuple[int, ...]

    def moved(self, steps: tuple[int, ...]) -> Region:
        return Region(self.base, tuple(a + b for a, b in zip(self.offsets, steps, strict=True)))


class Views:
    """The views of a graph by name."""

    def __init__(self, graph: Graph):
        made = (v for n in graph.nodes for v in n.outputs)
        self.values = {v.name: v for v in (*graph.inputs, *made)}
        self.regions = {
            view.value: Region(self.values[view.base], view.offsets)
            for view in graph.views
            if view.base in self.values
        }

    def region(self, value: Value) -> Region:
        """Where the value is; a value that is no view is a base, from 0 on."""
        whole = Region(value, (0,) * len(axis_order(value.tensor) or ()))
        return self.regions.get(value.name, whole)

    def base_name(self, value: Value) -> str:
        region = self.regions.get(value.name)
        return value.name if region is None else region.base.name

    def is_in_place(self, node: Node) -> bool:
        """Whether the bytes of a concat or slice are in their place without a kernel."""
        if defn(node).is_concat:
            return self._is_concat_in_place(node)
        return defn(node).is_slice and self._is_slice_in_place(node)

    def _is_concat_in_place(self, concat: Node) -> bool:
        (out,) = concat.outputs
        order = axis_order(out.tensor)
        if not order:
            return False
        logical = concat.attr("axis") % len(order)
        region, step = self.region(out), [0] * len(order)
        for operand in concat.inputs:
            assert operand is not None
            size = arith.as_int(operand.shape[logical])
            if size is None or self.regions.get(operand.name) != region.moved(tuple(step)):
                return False
            step[order.index(logical)] += size
        return True

    def _is_slice_in_place(self, slice: Node) -> bool:
        source, (out,) = slice.inputs[0], slice.outputs
        assert source is not None
        order = axis_order(source.tensor)
        if not order or out.name not in self.regions:
            return False
        starts = [arith.as_int(arith.wrap(slice.attr("starts")[axis])) for axis in order]
        steps = [arith.as_int(arith.wrap(step)) for step in slice.attr("steps")]
        if None in starts or set(steps) != {1}:
            return False
        return self.regions[out.name] == self.region(source).moved(tuple(starts))  # type: ignore[arg-type]


def most(size: arith.Expr, highest: Mapping[str, int]) -> int | None:
    """The size, or its upper bound if it is a symbol that has one."""
    return highest.get(size.name) if isinstance(size, arith.Var) else arith.as_int(size)


def is_plain_kernel(node: Node) -> bool:
    """Whether the node is one kernel of plain loads and stores, which can take views."""
    if node.op != "fused":
        return False
    return all(defn(n).kind_of(n) is not Kind.OPAQUE for n in node.attr("body").nodes)


# --- verification -------------------------------------------------------------------------------


def verify_views(graph: Graph) -> None:
    """Raise a bad-graph error unless the invariants at the top of this file hold."""
    if not graph.views:
        return
    views, producers = Views(graph), graph.producers()
    _check_names(graph, views)
    highest = {s.name: s.high for s in graph.symbols if s.high is not None}
    for view in graph.views:
        _check_box(views, view, highest)
        producer = producers.get(view.value)
        if producer is None or not (producer.op == "fused" or views.is_in_place(producer)):
            what = "it is not written there by a kernel, nor by a concat or slice in place"
            raise _bad(view.value, what)
    bases = {view.base for view in graph.views}
    written: dict[str, list[Value]] = {}
    for value in views.values.values():
        producer, base = producers.get(value.name), views.base_name(value)
        if base in bases and not (producer and views.is_in_place(producer)):
            written.setdefault(base, []).append(value)
    for boxes in written.values():
        _check_overlaps(views, boxes)
    for node in graph.nodes:
        _check_reads(views, node)


def _check_names(graph: Graph, views: Views) -> None:
    listed = Counter(view.value for view in graph.views)
    outputs = {v.name for v in graph.outputs}
    states, successors = {old for old, _ in graph.state}, {new for _, new in graph.state}
    for name, base in ((view.value, view.base) for view in graph.views):
        if name not in views.values or base not in views.values:
            raise _bad(name, f"it or its base {base!r} is not in the graph")
        if listed[name] > 1 or base in listed:
            raise _bad(name, f"it is listed twice, or its base {base!r} is itself a view")
        if name in outputs:
            raise _bad(name, "a graph output has a buffer of its own")
        if {name, base} & states or name in successors:
            raise _bad(name, f"it or its base {base!r} is a state, which a run overwrites")


def _check_box(views: Views, view: View, highest: Mapping[str, int]) -> None:
    value, base = views.values[view.value].tensor, views.values[view.base].tensor
    order = axis_order(value)
    if value.dtype is not base.dtype or not order or order != axis_order(base):
        raise _bad(view.value, f"{value} is not stored like its base {view.base!r}, {base}")
    if len(view.offsets) != len(order):
        raise _bad(view.value, f"{len(view.offsets)} offsets for {len(order)} axes")
    for offset, size, extent in zip(view.offsets, physical_shape(value), physical_shape(base)):
        numbers = most(size, highest), arith.as_int(extent)
        is_whole = offset == 0 and same_size(size, extent)
        fits = None not in numbers and 0 <= offset <= numbers[1] - numbers[0]  # type: ignore[operator]
        if not is_whole and not fits:
            what = f"{size} elements from {offset} on are not in {extent} of its base {view.base!r}"
            raise _bad(view.value, what)


def _check_overlaps(views: Views, written: list[Value]) -> None:
    spans = [_spans(value.tensor, views.region(value)) for value in written]
    for index, a in enumerate(written):
        for other in range(index + 1, len(written)):
            if not any(_are_apart(*pair) for pair in zip(spans[index], spans[other])):
                what = f"its box in {views.base_name(a)!r} overlaps that of {written[other].name!r}"
                raise _bad(a.name, what)


Span = tuple[int, int | None]


def _spans(type: TensorType, region: Region) -> list[Span]:
    """Begin and end along each physical axis; the end of a dynamic dimension is unknown."""
    sizes = [arith.as_int(n) for n in physical_shape(type)]
    return [(at, None if n is None else at + n) for at, n in zip(region.offsets, sizes)]


def _are_apart(a: Span, b: Span) -> bool:
    return (a[1] is not None and a[1] <= b[0]) or (b[1] is not None and b[1] <= a[0])


def _check_reads(views: Views, node: Node) -> None:
    if views.is_in_place(node):
        return
    inputs = [v for v in node.inputs if v is not None]
    bases = {views.base_name(v) for v in node.outputs}
    for value in inputs:
        if value.name in views.regions and not is_plain_kernel(node):
            raise _bad(value.name, f"{node.op} reads it, which needs a buffer of its own")
        if views.base_name(value) in bases:
            name = node.outputs[0].name
            raise _bad(value.name, f"the kernel of {name!r} reads and writes its base")


def _bad(name: str, what: str) -> IngotError:
    hint = "INGOT_OFF=alias_buffers gives every value a buffer of its own"
    return IngotError("bad-graph", f"view {name!r}: {what}", where=f"view %{name}", hint=hint)
