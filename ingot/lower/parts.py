"""Values that lie inside another one: what a concat joins and what a pad surrounds is made in its
place, a slice is no copy.

    y = concat(f(a), g(b))   →   f writes y[:, :m], g writes y[:, m:]
    y = pad(f(a))            →   f writes y[1:-1], and the border is filled with zeros
    z = h(slice(x))          →   h reads x[:, m:n]

In: a graph's groups, before they are lowered. Out: for each such value its root and where in it the
value begins. A kernel that touches a part has the whole root as parameter, and adds the offsets to
its indices: programs, plans and verifiers see one buffer, written by several launches.

A value can be a part if its place is known, it lies in memory in the root's order, and nobody but
kernels in formulas reads it. No kernel reads one part of a root and writes another.
Called by lower.py; INGOT_IN_PLACE=0 gives every value a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.layouts import order, physical_shape
from ingot.graph.opdef import Kind, defn
from ingot.loops import ir, visit
from ingot.loops.ir import Kernel
from ingot.passes.fuse import Group, is_view

Offsets = tuple[int, ...]  # for each axis of the root as it lies in memory


@dataclass(frozen=True)
class Part:
    """Where a value lies: from `offsets` on in `root`."""

    root: Value
    offsets: Offsets


@dataclass(frozen=True)
class Strip:
    """A box of zeros at a side of a padded value, its axes as they lie in memory."""

    place: Part
    shape: tuple[arith.Expr, ...]


@dataclass(frozen=True)
class Parts:
    """The parts of a graph by name; what each concat in place still has to copy, and where; what
    each pad in place has to fill; slices that nothing has to make."""

    places: Mapping[str, Part]
    copies: Mapping[str, Sequence[tuple[Value, Part]]]
    borders: Mapping[str, Sequence[Strip]]
    cuts: frozenset[str]


NO_PARTS = Parts({}, {}, {}, frozenset())


def find_parts(graph: Graph, groups: Sequence[Group]) -> Parts:
    """The parts of a graph. Concats from last to first: what they join may be a concat itself."""
    search = _Search(graph, groups)
    for group in reversed(groups):
        node = group.nodes[-1]
        if len(group.nodes) == 1 and defn(node).joins:
            search.join(group, node)
        elif len(group.nodes) == 1 and defn(node).surrounds:
            search.surround(group, node)
    for group in groups:
        node = group.nodes[-1]
        if len(group.nodes) == 1 and defn(node).cuts:
            search.cut(node)
    return Parts(search.parts, search.copies, search.borders, frozenset(search.cuts))


class _Search:
    def __init__(self, graph: Graph, groups: Sequence[Group]):
        self.parts: dict[str, Part] = {}
        self.copies: dict[str, list[tuple[Value, Part]]] = {}
        self.borders: dict[str, list[Strip]] = {}
        self.cuts: set[str] = set()
        self.maker = {v.name: g for g in groups for v in g.outputs}
        self.readers: dict[str, list[Group]] = {}
        for group in groups:
            for value in group.inputs:
                self.readers.setdefault(value.name, []).append(group)
        self.outputs = {v.name for v in graph.outputs}
        self.state = {name for pair in graph.state for name in pair}  # may be overwritten in place

    # --- concat

    def join(self, group: Group, node: Node) -> None:
        """Operands of a concat become parts of its result, those that can, if that is most of it;
        the others are copied there."""
        (out,) = node.outputs
        root = self.place_of(out)
        operands = [v for v in node.inputs if v is not None]
        if root is None:
            return
        logical = node.attr("axis") % len(out.shape)
        axis = _order(out).index(logical)
        begin, sizes = root.offsets[axis], [arith.as_int(v.shape[logical]) for v in operands]
        before, copies, copied = dict(self.parts), [], 0
        for value, size in zip(operands, sizes):
            if not size or not _same_beside(value, out, logical):
                self.parts = before
                return
            place = Part(root.root, (*root.offsets[:axis], begin, *root.offsets[axis + 1 :]))
            alike = _order(value) == _order(out) and operands.count(value) == 1
            if alike and self.can_move(value, group, root.root):
                self.parts[value.name] = place
            else:
                copies.append((value, place))
                copied += size
            begin += size
        is_most = 2 * copied <= begin - root.offsets[axis]
        if is_most and not any(self.root_name(v) == root.root.name for v, _ in copies):
            self.copies[out.name] = copies
        else:
            self.parts = before

    def can_move(self, value: Value, concat: Group, root: Value) -> bool:
        """May the value be made inside the root, where the concat wants it?"""
        maker = self.maker.get(value.name)
        if maker is None or len(maker.outputs) != 1 or not _is_formula(maker):
            return False
        if value.name in self.parts or any(self.root_name(v) == root.name for v in maker.inputs):
            return False
        return self.can_be_read(value, root, concat)

    # --- pad

    def surround(self, group: Group, node: Node) -> None:
        """What zeros are put around becomes a part of the result; the border is filled in."""
        source, (out,) = node.inputs[0], node.outputs
        assert source is not None
        root = self.place_of(out)
        before, after = ([_number(n) for n in node.attr(side)] for side in ("before", "after"))
        is_plain = node.attr("mode", "constant") == "constant" and len(node.inputs) == 1
        if root is None or not is_plain or _order(source) != _order(out):
            return
        if not all(n is not None and n >= 0 for n in (*before, *after)):
            return
        rows = zip(source.shape, before, after)
        if any(arith.as_int(size) is None and (lo or hi) for size, lo, hi in rows):
            return
        if self.can_move(source, group, root.root):
            pairs = zip(root.offsets, (before[axis] or 0 for axis in _order(out)))
            self.parts[source.name] = Part(root.root, tuple(a + b for a, b in pairs))
            self.borders[out.name] = _border(source, root, before, after)

    # --- slice

    def cut(self, node: Node) -> None:
        """A slice of neighbours is a part of what it is cut from."""
        source, (out,) = node.inputs[0], node.outputs
        assert source is not None
        root = self.place_of(source)
        if root is None or _order(source) != _order(out):
            return
        starts = [_number(node.attr("starts")[axis]) for axis in _order(source)]
        if any(_number(step) != 1 for step in node.attr("steps")) or None in starts:
            return
        if not all(
            _stays_inside(*each) for each in zip(node.attr("starts"), out.shape, source.shape)
        ):
            return
        if out.name in self.parts or self.base(source).name in self.state:
            return
        if self.can_be_read(out, root.root, None):
            offsets = tuple(a + (b or 0) for a, b in zip(root.offsets, starts))
            self.parts[out.name] = Part(root.root, offsets)
            self.cuts.add(out.name)

    def base(self, value: Value) -> Value:
        """What a chain of views begins with."""
        maker = self.maker.get(value.name)
        while maker is not None and len(maker.nodes) == 1 and is_view(maker.nodes[0]):
            value = next(v for v in maker.nodes[0].inputs if v is not None)
            maker = self.maker.get(value.name)
        return value

    # --- both

    def place_of(self, value: Value) -> Part | None:
        if not _order(value) or value.name in self.state:
            return None
        whole = Part(value, (0,) * len(_order(value)))
        return self.parts.get(value.name, whole)

    def root_name(self, value: Value) -> str:
        part = self.parts.get(value.name)
        return value.name if part is None else part.root.name

    def can_be_read(self, value: Value, root: Value, concat: Group | None) -> bool:
        """Do only formulas read it, none of which writes to the same root?"""
        if value.name in self.outputs | self.state:
            return False
        others = [g for g in self.readers.get(value.name, []) if g is not concat]
        return all(
            _is_formula(g) and all(self.root_name(v) != root.name for v in g.outputs)
            for g in others
        )


def _number(size: arith.IntLike) -> int | None:
    return arith.as_int(arith.wrap(size))


def _order(value: Value) -> tuple[int, ...]:
    """Axes as they lie in memory; none where some lie in blocks."""
    return order(value.tensor) or ()


def _same_beside(value: Value, out: Value, axis: int) -> bool:
    """Is the value as large as the result along all other axes, as far as names tell?"""
    pairs = enumerate(zip(value.shape, out.shape))
    return bool(_order(value)) and all(n == axis or a == b for n, (a, b) in pairs)


def _border(
    source: Value, root: Part, before: Sequence[int | None], after: Sequence[int | None]
) -> list[Strip]:
    """The border in boxes that do not overlap: along an axis, what is before and behind the source
    on the axes outside of it, and everything on those inside."""
    found = []
    lows, highs = ([side[axis] or 0 for axis in _order(source)] for side in (before, after))
    sizes = [source.shape[axis] for axis in _order(source)]
    totals = [n + lo + hi for n, lo, hi in zip(sizes, lows, highs)]
    for d, (low, high) in enumerate(zip(lows, highs)):
        for count, begin in ((low, arith.Const(0)), (high, arith.wrap(sizes[d] + low))):
            at = arith.as_int(begin)
            if count:
                assert at is not None, "a padded axis has a known size"
                inner = (*lows[:d], at, *(0 for _ in sizes[d + 1 :]))
                offsets = tuple(a + b for a, b in zip(root.offsets, inner))
                shape = (*sizes[:d], arith.Const(count), *map(arith.wrap, totals[d + 1 :]))
                found.append(Strip(Part(root.root, offsets), shape))
    return found


def _stays_inside(start: arith.IntLike, size: arith.Expr, extent: arith.Expr) -> bool:
    """All of an axis, or a stretch of it that is known to be there."""
    numbers = _number(start), arith.as_int(size), arith.as_int(extent)
    if numbers[0] == 0 and size == extent:
        return True
    return None not in numbers and numbers[0] >= 0 and numbers[0] + numbers[1] <= numbers[2]  # type: ignore[operator]


def _is_formula(group: Group) -> bool:
    """A kernel of loads and stores alone."""
    kinds = [defn(node).kind_of(node) for node in group.nodes]
    alone = any(n.attr("symbols") or any(n.subgraphs) for n in group.nodes)
    viewed = len(group.nodes) == 1 and is_view(group.nodes[0])
    return Kind.OPAQUE not in kinds and not alone and not viewed


# --- kernels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """A kernel over roots, and the values of the sizes that say where its results begin: kernels
    that differ only there are one."""

    kernel: Kernel
    offsets: Mapping[str, int]


def in_roots(kernel: Kernel, places: Mapping[str, Part]) -> Placed:
    """The kernel with whole roots for those of its parameters that have a place in one."""
    written = visit.written(kernel.body)
    wholes: dict[str, ir.Buffer] = {}
    begins: dict[str, list[arith.Expr]] = {}
    offsets: dict[str, int] = {}
    sizes: list[ir.Size] = []
    for p in kernel.params:
        if p.name not in places:
            continue
        whole = wholes[p.name] = ir.replace(p, shape=physical_shape(places[p.name].root.tensor))
        begins[p.name] = [arith.Const(n) for n in places[p.name].offsets]
        for d, n in enumerate(places[p.name].offsets):
            room = arith.as_int(whole.shape[d] - p.shape[d])
            if n and room is not None and p.name in written:
                size = ir.Size(f"{p.name}_at_{d}", 0, room)
                begins[p.name][d] = arith.Var(size.name)
                offsets[size.name] = n
                sizes.append(size)
    params = tuple(wholes.get(p.name, p) for p in kernel.params)
    body = _moved(kernel.body, wholes, begins) if wholes else kernel.body
    made = ir.replace(kernel, params=params, body=body, sizes=(*kernel.sizes, *sizes))
    return Placed(made, offsets)


def _moved(
    body: ir.Stmt, wholes: Mapping[str, ir.Buffer], begins: Mapping[str, list[arith.Expr]]
) -> ir.Stmt:
    def indices(x: ir.Load | ir.Store) -> tuple[arith.Expr, ...]:
        pairs = zip(x.indices, begins[x.buffer.name])
        return tuple(i if arith.is_const(n, 0) else i + n for i, n in pairs)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Load) and e.buffer.name in wholes:
            return ir.replace(e, buffer=wholes[e.buffer.name], indices=indices(e))
        return e

    def on_stmt(s: ir.Stmt) -> ir.Stmt:
        if isinstance(s, ir.Store) and s.buffer.name in wholes:
            return ir.replace(s, buffer=wholes[s.buffer.name], indices=indices(s))
        return s

    return visit.map_stmt(body, on_stmt, on_expr)
