"""Layout selection: channels-last values, constant GEMM operands packed into panels.

    conv(x, w)    → the output, and operators that keep its axes, are stored channels-last;
                    a constant w is packed into panels of output channels for the register tile;
                    a depthwise one between row-major values may stay row-major
                    (row_major_depthwise.py)
    matmul(x, w)  → a constant w is packed into panels of columns

Reshapes and transposes that split or merge only contiguous axes are views. Inputs and outputs of
the graph keep the default (row-major) layout. An explicit `relayout` converts between layouts, also
for operands that a node would read with a large stride (operand_layouts.py). Operators see logical
shapes only; lower applies layouts. cost/contraction.py chooses the panel width. In: a Graph. Out: a
Graph with layouts in its types. Called by the pipeline; INGOT_OFF=layouts switches it off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ingot.arith import expr as arith
from ingot.cost import contraction as cost
from ingot.cost.dot_products import DotRow
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.layouts import channels_last, panels, transposed_layout
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import Layout, TensorType
from ingot.ops.matmul import accumulator
from ingot.ops.views import layout_of_view, reshape_as_view
from ingot.passes.dot_operands import dot_of, terms_axis
from ingot.passes.edit import Editor, constant_ref, map_subgraphs, same_shape, widens
from ingot.passes.operand_layouts import OperandLayouts
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.row_major_depthwise import RowMajorDepthwise
from ingot.support import options
from ingot.support.stack import segmented
from ingot.target import Target


def choose_layouts(
    graph: Graph, store: ConstantStore, target: Target, outside: Mapping[str, int] | None = None
) -> Graph:
    """Layouts for every value in one forward walk: a node's layout follows from its operands'.
    `outside`: likely sizes of the graph around."""
    if not options.current().has("layouts"):
        return graph
    likely = {s.name: s.likely for s in graph.symbols if s.likely is not None} | {**(outside or {})}
    edit = Editor(graph, store)
    preferred = PreferredLayouts(edit)
    operands = OperandLayouts(edit, target)
    row_major = RowMajorDepthwise(edit, target)

    def inside(sub: Graph) -> Graph:
        return choose_layouts(sub, store, target, likely)

    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), inside)
        edit.g.origin = node.origin
        if row_major.keeps(node):
            edit.keep(node)
            continue
        packed = _packed(edit, operands.applied(node), target, likely)
        _keep(edit, packed, _layout(packed) or _preferred_by_readers(packed, preferred))
    _restore_outputs(edit)
    return remove_dead_code(edit.finish(), store)


def _layout(node: Node) -> Layout | None:
    """The layout of the node's output; None for the default."""
    if len(node.outputs) != 1 or not isinstance(node.outputs[0].type, TensorType):
        return None
    op, rank = defn(node), node.outputs[0].tensor.rank
    if op.channels_last:
        return channels_last(rank)
    if op.is_view:
        return layout_of_view(node)
    if not (op.keeps_axes or op.kind_of(node) is Kind.ELEMENTWISE):
        return None
    tensors = [v.tensor for v in node.inputs if v is not None and isinstance(v.type, TensorType)]
    found = [t.layout for t in tensors if t.layout is not None and t.rank == rank]
    return found[0] if found else None


def _preferred_by_readers(node: Node, preferred: PreferredLayouts) -> Layout | None:
    """The layout that a transpose's readers prefer, if the transpose is then a view, or copies
    anyway."""
    if not defn(node).permutes or (x := node.inputs[0]) is None:
        return None
    wanted = preferred.of(node.outputs[0])
    if wanted is None:
        return None
    is_view = transposed_layout(x.tensor, node.attr("perm")) == wanted
    return wanted if is_view or x.tensor.layout is not None else None


class PreferredLayouts:
    """The layout that a value's readers prefer, directly or further on, to save later relayouts."""

    def __init__(self, edit: Editor):
        self.edit, self._uses = edit, edit.graph.uses()
        self._known: dict[str, Layout | None] = {}

    @segmented
    def of(self, value: Value) -> Layout | None:
        if value.name not in self._known:
            self._known[value.name] = None  # ends the recursion through its readers
            wanted = (self._preferred(r, value) for r in self._uses.get(value.name, []))
            self._known[value.name] = next((x for x in wanted if x is not None), None)
        return self._known[value.name]

    def _preferred(self, reader: Node, value: Value) -> Layout | None:
        op = defn(reader)
        if reader.inputs[0] != value and op.kind_of(reader) is not Kind.ELEMENTWISE:
            return None
        if op.channels_last:
            return channels_last(value.tensor.rank)
        if len(reader.outputs) != 1 or not isinstance(reader.outputs[0].type, TensorType):
            return None
        (out,) = reader.outputs
        if op.is_view:
            view = reshape_as_view(replace(out.tensor, layout=self.of(out)), value.tensor)
            return None if view is None else view.layout
        others = [self.edit.latest(v).type for v in reader.inputs if v is not None and v != value]
        if op.kind_of(reader) is Kind.ELEMENTWISE and same_shape(value.type, out.type):
            layouts = (
                t.layout for t in others if isinstance(t, TensorType) and t.rank == len(out.shape)
            )
            return next((x for x in layouts if x is not None), None) or self.of(out)
        is_same = op.keeps_axes and out.tensor.rank == value.tensor.rank and not others
        return self.of(out) if is_same else None


def _keep(edit: Editor, node: Node, layout: Layout | None) -> None:
    if layout is None:
        edit.keep(node)
        return
    (out,) = node.outputs
    is_result = out.name in {v.name for v in edit.graph.outputs}
    name = edit.g.fresh(out.name) if is_result else out.name
    stored = Value(name, replace(out.tensor, layout=layout))
    edit.keep(replace(node, outputs=(stored,)))
    edit.replace(node, [stored])


def _restore_outputs(edit: Editor) -> None:
    """Convert graph outputs to the default layout, before they are widened."""
    for old in dict.fromkeys(edit.graph.outputs):
        value = edit.latest(old)
        if isinstance(value.type, TensorType) and value.tensor.layout is not None:
            producer = edit.producer(value)
            plain = Value(old.name, replace(value.tensor, layout=None))
            origin = producer.origin if producer is not None else ""
            if producer is not None and widens(producer):
                narrow = edit.g.add("relayout", producer.inputs[:1], axes=None)
                edit.keep(
                    replace(producer, inputs=(narrow, *producer.inputs[1:]), outputs=(plain,))
                )
                continue
            edit.keep(Node("relayout", (value,), (plain,), make_attrs({"axes": None}), origin))


# --- packing of constants ------------------------------------------------------------------------


def _packed(edit: Editor, node: Node, target: Target, likely: Mapping[str, int]) -> Node:
    """The node with its constant operand packed into panels by a `relayout`, if that helps."""
    if len(node.inputs) < 2 or defn(node).kind is not Kind.CONTRACTION:
        return node
    producer, weights = edit.producer(node.inputs[1]), node.inputs[1]
    if weights is None or producer is None or constant_ref(producer) is None:
        return node
    layout = _panels(node, weights.tensor, target, likely)
    if layout is None:
        return node
    made = edit.g.add("relayout", [weights], name=weights.name, axes=layout.axes)
    return replace(node, inputs=(node.inputs[0], made, *node.inputs[2:]))


def _panels(
    node: Node, weights: TensorType, target: Target, likely: Mapping[str, int]
) -> Layout | None:
    """Panels along the operand's output axis, the other axes in the order of the k loops."""
    out = node.outputs[0].tensor
    lanes = target.lanes(accumulator(weights.dtype))
    if (row := dot_of(node, target)) is not None:
        return _dot_panels(node, weights, row, target, likely)
    if node.op == "matmul" and weights.rank == 2 and out.rank > 1:
        rows, is_dynamic = _product(out.shape[:-1], likely), _product(out.shape[:-1], {}) is None
        return _in_panels(rows, weights, 1, (0,), lanes, target, is_dynamic)
    if node.op == "winograd_conv":
        # a row is a tile of the map, of which there are many
        made = _in_panels(cost.ASSUMED_EXTENT, weights, 0, (1,), lanes, target)
        return None if made is None else Layout(((2, 0), *made.axes))
    if node.op == "conv":
        group, space = node.attr("group", 1), range(2, weights.rank)
        outputs = arith.as_int(weights.shape[0])
        assert outputs is not None
        if group == outputs:  # depthwise: vector lanes run along the channels
            return Layout((*((axis, 0) for axis in space), (1, 0), (0, 0)))
        rows = _product((out.shape[0], *out.shape[2:]), likely)
        if group == 1:
            return _in_panels(rows, weights, 0, (*space, 1), lanes, target)
        width = cost.group_panel_width(
            rows, outputs // group, lanes, target.vector_registers, target.machine.core
        )
        return None if width is None else panels((*space, 1), 0, width)
    return None


def _dot_panels(
    node: Node, weights: TensorType, row: DotRow, target: Target, likely: Mapping[str, int]
) -> Layout | None:
    """Panels for a dot-product instruction: `group` terms of each lane are adjacent."""
    out, space = node.outputs[0].tensor, range(2, weights.rank)
    shape: tuple[arith.Expr, ...]
    if node.op == "winograd_conv":
        axis, order, shape = 0, (1,), (arith.wrap(cost.ASSUMED_EXTENT),)
    elif node.op == "matmul":
        axis, order, shape = 1, (0,), out.shape[:-1]
    else:
        terms = terms_axis(node)
        outer = tuple(a for a in (*space, 1) if a != terms)
        axis, order, shape = 0, (*outer, terms), (out.shape[0], *out.shape[2:])
    core = row.core(target.machine.core)
    rows, is_dynamic = _product(shape, likely), _product(shape, {}) is None
    has_variants = is_dynamic and node.op == "matmul"
    machine = replace(target.machine, core=core)
    width = _panel_width(
        rows, weights, axis, row.lanes, replace(target, machine=machine), has_variants
    )
    made = panels(order, axis, width, row.group)
    return made if node.op != "winograd_conv" else Layout(((2, 0), *made.axes))


def _in_panels(
    rows: int | None, weights: TensorType, axis: int, order: tuple[int, ...], lanes: int,
    target: Target, has_variants: bool = False,
) -> Layout | None:  # fmt: skip
    columns = arith.as_int(weights.shape[axis])
    if columns is None or 2 * columns < lanes or lanes == 1:
        return None  # mostly padding: better vectorised along the reduction axis
    return panels(order, axis, _panel_width(rows, weights, axis, lanes, target, has_variants))


def _panel_width(
    rows: int | None, weights: TensorType, axis: int, lanes: int, target: Target,
    has_variants: bool,
) -> int:  # fmt: skip
    columns = arith.as_int(weights.shape[axis])
    registers, machine = target.vector_registers, target.machine
    if has_variants and rows is not None and columns is not None:
        size = weights.dtype.storage_bytes
        return cost.shared_panel_width(rows, columns, lanes, registers, size, machine)
    return cost.register_tile(rows, columns, lanes, registers, core=machine.core).columns


def _product(shape: tuple[arith.Expr, ...], likely: Mapping[str, int]) -> int | None:
    return arith.assumed(arith.product(list(shape)), likely)
