"""Alias analysis: elides the copies of concat, pad and slice by aliasing buffers.

    y = concat(f(a), g(b))   →   f writes y[:, :m], g writes y[:, m:]
    y = pad(f(a))            →   f writes y[1:-1], and a kernel zeroes the border
    z = h(slice(x))          →   h reads x[:, m:n]

In: a graph after fusion, before it is lowered. Out: for each such value an aliased view: its
base buffer and its offsets there. A kernel that accesses a view takes the whole base buffer as
parameter and adds the offsets to its indices. So programs, memory plans and verifiers see one
buffer, written by several launches.

A value can be a view if its offsets are constants, its layout is that of the base, and only kernels
of plain loads and stores read it. No kernel reads one view of a base buffer and writes another.
Called by lower.py; INGOT_ALIAS_BUFFERS=0 gives every value a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.layouts import axis_order, physical_shape
from ingot.graph.opdef import Kind, defn
from ingot.loops import ir, visit
from ingot.loops.ir import Kernel
from ingot.ops.fused import only_node
from ingot.ops.views import is_view

Offsets = tuple[int, ...]  # one for each physical axis of the base


@dataclass(frozen=True)
class AliasedView:
    """A value that aliases `base` from `offsets` on."""

    base: Value
    offsets: Offsets


@dataclass(frozen=True)
class Border:
    """A box of zeros at one side of a padded value, in physical axes."""

    view: AliasedView
    shape: tuple[arith.Expr, ...]


@dataclass(frozen=True)
class Aliases:
    """A graph's aliased views by name; by output name, the operands that an elided concat still
    copies, and the borders that an elided pad fills with zeros; the outputs of elided slices."""

    views: Mapping[str, AliasedView]
    copies: Mapping[str, Sequence[tuple[Value, AliasedView]]]
    borders: Mapping[str, Sequence[Border]]
    slices: frozenset[str]


NO_ALIASES = Aliases({}, {}, {}, frozenset())


def find_aliases(graph: Graph) -> Aliases:
    """The aliased views of a graph. Concats come last to first: an operand may be a concat."""
    search = _Search(graph)
    for group in reversed(graph.nodes):
        node = only_node(group)
        if node is not None and defn(node).is_concat:
            search.alias_concat(group, node)
        elif node is not None and defn(node).is_pad:
            search.alias_pad(group, node)
    for group in graph.nodes:
        node = only_node(group)
        if node is not None and defn(node).is_slice:
            search.alias_slice(node)
    return Aliases(search.views, search.copies, search.borders, frozenset(search.slices))


class _Search:
    def __init__(self, graph: Graph):
        self.views: dict[str, AliasedView] = {}
        self.copies: dict[str, list[tuple[Value, AliasedView]]] = {}
        self.borders: dict[str, list[Border]] = {}
        self.slices: set[str] = set()
        self.producer, self.readers = graph.producers(), graph.uses()
        self.outputs = {v.name for v in graph.outputs}
        self.state = {name for pair in graph.state for name in pair}  # may be overwritten in place

    # --- concat

    def alias_concat(self, group: Node, node: Node) -> None:
        """Alias the operands of a concat to its output where possible, if they are at least half
        of it; the other operands are copied there."""
        (out,) = node.outputs
        whole = self.view_of(out)
        operands = [v for v in node.inputs if v is not None]
        if whole is None:
            return
        logical = node.attr("axis") % len(out.shape)
        axis = _axis_order(out).index(logical)
        begin, sizes = whole.offsets[axis], [arith.as_int(v.shape[logical]) for v in operands]
        before, copies, copied = dict(self.views), [], 0
        for value, size in zip(operands, sizes):
            if not size or not _same_other_axes(value, out, logical):
                self.views = before
                return
            offsets = (*whole.offsets[:axis], begin, *whole.offsets[axis + 1 :])
            view = AliasedView(whole.base, offsets)
            same_layout = _axis_order(value) == _axis_order(out) and operands.count(value) == 1
            if same_layout and self.can_alias(value, group, whole.base):
                self.views[value.name] = view
            else:
                copies.append((value, view))
                copied += size
            begin += size
        is_most = 2 * copied <= begin - whole.offsets[axis]
        if is_most and not any(self.base_name(v) == whole.base.name for v, _ in copies):
            self.copies[out.name] = copies
        else:
            self.views = before

    def can_alias(self, value: Value, concat: Node, base: Value) -> bool:
        """May its producer write the value into the base buffer of the concat or pad?"""
        producer = self.producer.get(value.name)
        if producer is None or len(producer.outputs) != 1 or not _is_plain(producer):
            return False
        if value.name in self.views or any(
            self.base_name(v) == base.name for v in producer.inputs if v is not None
        ):
            return False
        return self.can_be_read(value, base, concat)

    # --- pad

    def alias_pad(self, group: Node, node: Node) -> None:
        """Alias the operand of a zero pad to the interior of its output."""
        source, (out,) = node.inputs[0], node.outputs
        assert source is not None
        whole = self.view_of(out)
        before, after = ([_number(n) for n in node.attr(side)] for side in ("before", "after"))
        is_zero = node.attr("mode", "constant") == "constant" and len(node.inputs) == 1
        if whole is None or not is_zero or _axis_order(source) != _axis_order(out):
            return
        if not all(n is not None and n >= 0 for n in (*before, *after)):
            return
        axes = zip(source.shape, before, after)
        if any(arith.as_int(size) is None and (lo or hi) for size, lo, hi in axes):
            return
        if self.can_alias(source, group, whole.base):
            pairs = zip(whole.offsets, (before[axis] or 0 for axis in _axis_order(out)))
            self.views[source.name] = AliasedView(whole.base, tuple(a + b for a, b in pairs))
            self.borders[out.name] = _borders(source, whole, before, after)

    # --- slice

    def alias_slice(self, node: Node) -> None:
        """Alias the output of a slice with step 1 to its operand."""
        source, (out,) = node.inputs[0], node.outputs
        assert source is not None
        whole = self.view_of(source)
        if whole is None or _axis_order(source) != _axis_order(out):
            return
        starts = [_number(node.attr("starts")[axis]) for axis in _axis_order(source)]
        if any(_number(step) != 1 for step in node.attr("steps")) or None in starts:
            return
        if not all(
            _is_in_bounds(*each) for each in zip(node.attr("starts"), out.shape, source.shape)
        ):
            return
        if out.name in self.views or self.source_of_views(source).name in self.state:
            return
        if self.can_be_read(out, whole.base, None):
            offsets = tuple(a + (b or 0) for a, b in zip(whole.offsets, starts))
            self.views[out.name] = AliasedView(whole.base, offsets)
            self.slices.add(out.name)

    def source_of_views(self, value: Value) -> Value:
        """The value that a chain of view operators (reshapes) starts from."""
        producer = self.producer.get(value.name)
        while producer is not None and is_view(producer):
            value = next(v for v in producer.inputs if v is not None)
            producer = self.producer.get(value.name)
        return value

    # --- shared

    def view_of(self, value: Value) -> AliasedView | None:
        if not _axis_order(value) or value.name in self.state:
            return None
        whole = AliasedView(value, (0,) * len(_axis_order(value)))
        return self.views.get(value.name, whole)

    def base_name(self, value: Value) -> str:
        view = self.views.get(value.name)
        return value.name if view is None else view.base.name

    def can_be_read(self, value: Value, base: Value, concat: Node | None) -> bool:
        """Is it read by plain kernels only, none of which writes to the same base buffer?"""
        if value.name in self.outputs | self.state:
            return False
        others = [g for g in self.readers.get(value.name, []) if g is not concat]
        return all(
            _is_plain(g) and all(self.base_name(v) != base.name for v in g.outputs) for g in others
        )


def _number(size: arith.IntLike) -> int | None:
    return arith.as_int(arith.wrap(size))


def _axis_order(value: Value) -> tuple[int, ...]:
    """Logical axes in memory order; empty for a blocked layout."""
    return axis_order(value.tensor) or ()


def _same_other_axes(value: Value, out: Value, axis: int) -> bool:
    """Has the value the size of the output along all other axes, by structural equality?"""
    pairs = enumerate(zip(value.shape, out.shape))
    return bool(_axis_order(value)) and all(n == axis or a == b for n, (a, b) in pairs)


def _borders(
    source: Value, whole: AliasedView, before: Sequence[int | None], after: Sequence[int | None]
) -> list[Border]:
    """The border as disjoint boxes. A box at one side of an axis spans the source on the outer axes
    and the whole output on the inner axes."""
    found = []
    lows, highs = ([side[axis] or 0 for axis in _axis_order(source)] for side in (before, after))
    sizes = [source.shape[axis] for axis in _axis_order(source)]
    totals = [n + lo + hi for n, lo, hi in zip(sizes, lows, highs)]
    for d, (low, high) in enumerate(zip(lows, highs)):
        for count, begin in ((low, arith.Const(0)), (high, arith.wrap(sizes[d] + low))):
            at = arith.as_int(begin)
            if count:
                assert at is not None, "a padded axis has a static size"
                inner = (*lows[:d], at, *(0 for _ in sizes[d + 1 :]))
                offsets = tuple(a + b for a, b in zip(whole.offsets, inner))
                shape = (*sizes[:d], arith.Const(count), *map(arith.wrap, totals[d + 1 :]))
                found.append(Border(AliasedView(whole.base, offsets), shape))
    return found


def _is_in_bounds(start: arith.IntLike, size: arith.Expr, extent: arith.Expr) -> bool:
    """Is the slice the whole axis, or provably inside it?"""
    numbers = _number(start), arith.as_int(size), arith.as_int(extent)
    if numbers[0] == 0 and size == extent:
        return True
    return None not in numbers and numbers[0] >= 0 and numbers[0] + numbers[1] <= numbers[2]  # type: ignore[operator]


def _is_plain(node: Node) -> bool:
    """Does the node become one kernel of plain loads and stores?"""
    if node.op != "fused":
        return False
    return all(defn(n).kind_of(n) is not Kind.OPAQUE for n in node.attr("body").nodes)


# --- kernels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlacedKernel:
    """A kernel over base buffers, and the values of the sizes that are its output offsets. Kernels
    that differ only in offsets are then equal and can be deduplicated."""

    kernel: Kernel
    offsets: Mapping[str, int]


def in_base_buffers(kernel: Kernel, views: Mapping[str, AliasedView]) -> PlacedKernel:
    """The kernel with each parameter that is an aliased view replaced by its base buffer."""
    written = visit.written(kernel.body)
    bases: dict[str, ir.Buffer] = {}
    begins: dict[str, list[arith.Expr]] = {}
    offsets: dict[str, int] = {}
    sizes: list[ir.Size] = []
    for p in kernel.params:
        if p.name not in views:
            continue
        base = bases[p.name] = ir.replace(p, shape=physical_shape(views[p.name].base.tensor))
        begins[p.name] = [arith.Const(n) for n in views[p.name].offsets]
        for d, n in enumerate(views[p.name].offsets):
            highest = arith.as_int(base.shape[d] - p.shape[d])
            if n and highest is not None and p.name in written:
                size = ir.Size(f"{p.name}_at_{d}", 0, highest)
                begins[p.name][d] = arith.Var(size.name)
                offsets[size.name] = n
                sizes.append(size)
    params = tuple(bases.get(p.name, p) for p in kernel.params)
    body = _offset_accesses(kernel.body, bases, begins) if bases else kernel.body
    made = ir.replace(kernel, params=params, body=body, sizes=(*kernel.sizes, *sizes))
    return PlacedKernel(made, offsets)


def _offset_accesses(
    body: ir.Stmt, bases: Mapping[str, ir.Buffer], begins: Mapping[str, list[arith.Expr]]
) -> ir.Stmt:
    def indices(x: ir.Load | ir.Store) -> tuple[arith.Expr, ...]:
        pairs = zip(x.indices, begins[x.buffer.name])
        return tuple(i if arith.is_const(n, 0) else i + n for i, n in pairs)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Load) and e.buffer.name in bases:
            return ir.replace(e, buffer=bases[e.buffer.name], indices=indices(e))
        return e

    def on_stmt(s: ir.Stmt) -> ir.Stmt:
        if isinstance(s, ir.Store) and s.buffer.name in bases:
            return ir.replace(s, buffer=bases[s.buffer.name], indices=indices(s))
        return s

    return visit.map_stmt(body, on_stmt, on_expr)
