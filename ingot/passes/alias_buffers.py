"""Buffer aliasing: elides the copies of concat, pad and slice. Graph → graph with views.

    y = concat(f(a), g(b))   →   f writes y[:, :m], g writes y[:, m:]
    y = pad(f(a))            →   f writes y[1:-1], and a kernel zeroes the border
    z = h(slice(x))          →   h reads x[:, m:n]

In: a graph after `fuse`. Out: the values that share a buffer as `Graph.views` (graph/views.py). An
elided concat or slice is a plain node again, and needs no kernel. An operand that a concat cannot
have in place is copied there by a `fused` node. A pad becomes concats of zeros and its operand.

A value can be a view if its offsets are constants, its layout is that of the base, and only kernels
of plain loads and stores read it. No kernel reads one view of a base buffer and writes another.
Called by the pipeline; INGOT_OFF=alias_buffers skips it: every value has a buffer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, View, make_attrs, replace
from ingot.graph.layouts import axis_order
from ingot.graph.opdef import defn
from ingot.graph.types import TensorType
from ingot.graph.views import Region, Views, is_plain_kernel, most
from ingot.ops.fused import fused_node, only_node
from ingot.ops.views import is_view
from ingot.passes.edit import map_subgraphs, values_of


def alias_buffers(graph: Graph) -> Graph:
    """Find the views of a graph and its sub-graphs, and write the graph with them."""
    return _Rewrite(graph, find_views(graph)).graph()


def find_views(graph: Graph) -> _Search:
    """Concats come last to first: an operand may be a concat."""
    search = _Search(graph)
    nodes = [(group, node) for group in graph.nodes if (node := only_node(group)) is not None]
    for group, node in reversed(nodes):
        if defn(node).is_concat:
            search.alias_concat(group, node)
        elif defn(node).is_pad:
            search.alias_pad(group, node)
    for _, node in nodes:
        if defn(node).is_slice:
            search.alias_slice(node)
    return search


class _Search:
    """The views found so far, and the outputs of elided operators. Of a concat: the operands, by
    position, that must be copied, and where to."""

    def __init__(self, graph: Graph):
        self.views: dict[str, Region] = dict(Views(graph).regions)
        self.copies: dict[str, dict[int, Region]] = {}
        self.pads: set[str] = set()
        self.slices: set[str] = set()
        self.producer, self.readers = graph.producers(), graph.uses()
        self.outputs = {v.name for v in graph.outputs}
        self.state = {name for pair in graph.state for name in pair}  # may be overwritten in place
        # what replaces a state is overwritten by nothing after the kernel that writes it
        self.successors = {new for _, new in graph.state if new in self.producer}
        self.highest = {s.name: s.high for s in graph.symbols if s.high is not None}

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
        before, copied = dict(self.views), 0
        copies: dict[int, Region] = {}
        for index, (value, size) in enumerate(zip(operands, sizes)):
            if not size or not _same_other_axes(value, out, logical):
                self.views = before
                return
            offsets = (*whole.offsets[:axis], begin, *whole.offsets[axis + 1 :])
            view = Region(whole.base, offsets)
            same_layout = _axis_order(value) == _axis_order(out) and operands.count(value) == 1
            if same_layout and self.can_alias(value, group, whole.base):
                self.views[value.name] = view
            else:
                copies[index] = view
                copied += size
            begin += size
        is_most = 2 * copied <= begin - whole.offsets[axis]
        if is_most and all(self.base_name(operands[i]) != whole.base.name for i in copies):
            self.copies[out.name] = copies
        else:
            self.views = before

    def can_alias(self, value: Value, concat: Node, base: Value) -> bool:
        """May its producer write the value into the base buffer of the concat or pad?"""
        producer = self.producer.get(value.name)
        if producer is None or len(producer.outputs) != 1 or not is_plain_kernel(producer):
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
            self.views[source.name] = Region(whole.base, tuple(a + b for a, b in pairs))
            self.pads.add(out.name)

    # --- slice

    def alias_slice(self, node: Node) -> None:
        """Alias the output of a slice with step 1 to its operand."""
        source, (out,) = node.inputs[0], node.outputs
        assert source is not None
        is_successor = source.name in self.successors and bool(_axis_order(source))
        whole = self.whole(source) if is_successor else self.view_of(source)
        if whole is None or _axis_order(source) != _axis_order(out):
            return
        starts = [_number(node.attr("starts")[axis]) for axis in _axis_order(source)]
        if any(_number(step) != 1 for step in node.attr("steps")) or None in starts:
            return
        if not all(
            self.is_in_bounds(*each) for each in zip(node.attr("starts"), out.shape, source.shape)
        ):
            return
        origin = self.source_of_views(source).name
        if out.name in self.views or origin in self.state - self.successors:
            return
        if self.can_be_read(out, whole.base, None):
            offsets = tuple(a + (b or 0) for a, b in zip(whole.offsets, starts))
            self.views[out.name] = Region(whole.base, offsets)
            self.slices.add(out.name)

    def source_of_views(self, value: Value) -> Value:
        """The value that a chain of view operators (reshapes) starts from."""
        producer = self.producer.get(value.name)
        while producer is not None and is_view(producer):
            value = next(v for v in producer.inputs if v is not None)
            producer = self.producer.get(value.name)
        return value

    def is_in_bounds(self, start: arith.IntLike, size: arith.Expr, extent: arith.Expr) -> bool:
        """Is the slice the whole axis, or inside it for all values of the symbols?"""
        numbers = _number(start), most(size, self.highest), arith.as_int(extent)
        if numbers[0] == 0 and size == extent:
            return True
        return None not in numbers and numbers[0] >= 0 and numbers[0] + numbers[1] <= numbers[2]  # type: ignore[operator]

    # --- shared

    def view_of(self, value: Value) -> Region | None:
        if not _axis_order(value) or value.name in self.state:
            return None
        return self.views.get(value.name, self.whole(value))

    def whole(self, value: Value) -> Region:
        return Region(value, (0,) * len(_axis_order(value)))

    def base_name(self, value: Value) -> str:
        view = self.views.get(value.name)
        return value.name if view is None else view.base.name

    def can_be_read(self, value: Value, base: Value, concat: Node | None) -> bool:
        """Is it read by plain kernels only, none of which writes to the same base buffer?"""
        if value.name in self.outputs | self.state:
            return False
        others = [g for g in self.readers.get(value.name, []) if g is not concat]
        return all(
            is_plain_kernel(g) and all(self.base_name(v) != base.name for v in g.outputs)
            for g in others
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


# --- the rewrite --------------------------------------------------------------------------------


class _Rewrite:
    """The graph being written with the views that were found."""

    def __init__(self, graph: Graph, search: _Search):
        self.old, self.search = graph, search
        self.views = dict(search.views)
        self.names = {v.name for v in values_of(graph)}
        self.nodes: list[Node] = []

    def graph(self) -> Graph:
        for group in self.old.nodes:
            self.write(group, group.outputs[0].name)
        made = [v.name for n in self.nodes for v in n.outputs if v.name in self.views]
        views = [View(name, self.views[name].base.name, self.views[name].offsets) for name in made]
        return replace(self.old, nodes=tuple(self.nodes), views=tuple(views))

    def write(self, group: Node, name: str) -> None:
        node = only_node(group)
        if node is not None and name in self.search.copies:
            self.concat(node, self.search.copies[name])
        elif node is not None and name in self.search.pads:
            self.pad(node)
        elif node is not None and name in self.search.slices:
            self.nodes.append(node)
        else:
            is_group = group.op == "fused"
            self.nodes.append(group if is_group else map_subgraphs(group, alias_buffers))

    def concat(self, node: Node, copies: Mapping[int, Region]) -> None:
        """Copy the operands that are in other buffers."""
        (out,), operands = node.outputs, list(node.inputs)
        for index, region in copies.items():
            value = operands[index]
            assert value is not None
            type = replace(value.tensor, layout=out.tensor.layout)
            copy = operands[index] = self.view(f"{out.name}_copy", type, region)
            self.kernel(Node("identity", (value,), (copy,), (), node.origin), "concat_copy")
        self.nodes.append(replace(node, inputs=tuple(operands)))

    def pad(self, node: Node) -> None:
        """concat(zeros, concat(zeros, x, zeros; innermost axis), zeros; outer axis)

        Zeros at one side of an axis span the operand on the outer axes and the whole output on the
        inner axes, in memory order. Kernels fill them from the outermost axis inwards."""
        source, (out,) = node.inputs[0], node.outputs
        assert source is not None
        order, whole = _axis_order(out), self.views.get(out.name)
        whole = whole or Region(out, (0,) * len(order))
        lows, highs = ([_number(node.attr(s)[a]) or 0 for a in order] for s in ("before", "after"))
        sizes = [source.shape[axis] for axis in order]
        totals = [n + lo + hi for n, lo, hi in zip(sizes, lows, highs)]
        sides: dict[int, list[Value | None]] = {}
        for d in [d for d in range(len(order)) if lows[d] or highs[d]]:
            end = (_number(sizes[d]) or 0) + lows[d]
            sides[d] = [
                self.zeros(node, count, d, at, whole, lows, sizes, totals)
                for count, at in ((lows[d], 0), (highs[d], end))
            ]
        value: Value = source
        for d in reversed(sides):
            before, after = sides[d]
            operands = tuple(v for v in (before, value, after) if v is not None)
            value = out
            if d != min(sides):
                shape = _in_order(order, (*sizes[:d], *totals[d:]))
                region = whole.moved((*lows[:d], *[0] * (len(order) - d)))
                value = self.view(f"{out.name}_inner", replace(out.tensor, shape=shape), region)
            self.join(node, operands, value, order[d])
        if not sides:
            self.join(node, (source,), out, order[0])

    def zeros(
        self, pad: Node, count: int, d: int, at: int, whole: Region, lows: Sequence[int],
        sizes: Sequence[arith.Expr], totals: Sequence[arith.Expr],
    ) -> Value | None:  # fmt: skip
        """Zeros at one side of physical axis d, from `at` on; None where there are none."""
        (out,) = pad.outputs
        if not count:
            return None
        order = _axis_order(out)
        shape = _in_order(order, (*sizes[:d], arith.Const(count), *totals[d + 1 :]))
        region = whole.moved((*lows[:d], at, *[0] * (len(order) - d - 1)))
        made = self.view(f"{out.name}_border", replace(out.tensor, shape=shape), region)
        attrs = make_attrs({"shape": shape, "to": out.dtype, "value": 0})
        self.kernel(Node("fill", (), (made,), attrs, pad.origin), "pad_border")
        return made

    def join(self, pad: Node, operands: tuple[Value, ...], out: Value, axis: int) -> None:
        attrs = make_attrs({"axis": axis})
        self.nodes.append(Node("concat", operands, (out,), attrs, pad.origin))

    def kernel(self, node: Node, name: str) -> None:
        self.nodes.append(fused_node([node], node.outputs, None, name))

    def view(self, base: str, type: TensorType, region: Region) -> Value:
        """A new value of this type, stored in the region."""
        name, count = base, 1
        while name in self.names:
            name, count = f"{base}.{count}", count + 1
        self.names.add(name)
        self.views[name] = region
        return Value(name, type)


def _in_order(order: Sequence[int], sizes: Sequence[arith.Expr]) -> tuple[arith.Expr, ...]:
    """Sizes of logical axes, from those of physical ones."""
    return tuple(arith.wrap(sizes[order.index(axis)]) for axis in range(len(order)))
