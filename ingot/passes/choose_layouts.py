"""Graph → the same graph with layouts in its types: channels last, constant operands in panels.

    conv(x, w)    → the output, and what follows it axis by axis, is stored with its channels last;
                    a constant w lies in panels of output channels, as the register tile reads it
    matmul(x, w)  → a constant w lies in panels of columns

Reshapes and transposes that keep together what lies together move nothing: they are views. Inputs
and outputs of the graph keep the plain order: one that has another is converted by an explicit
`relayout`, and so are operands that would be read against their order (read_order.py). Operators
see logical shapes only; lower realises the rest. tiles.py says how wide a panel is. Called by the
pipeline; INGOT_LAYOUTS=0 leaves everything plain.
"""

from __future__ import annotations

from dataclasses import replace

from ingot import tiles
from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.layouts import channels_last, panels, transposed
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import Layout, TensorType
from ingot.ops.matmul import accumulator
from ingot.passes.edit import Editor, constant_ref, map_subgraphs, same_shape
from ingot.passes.read_order import ReadOrder
from ingot.passes.reshaped import layout_after, reshaped
from ingot.support import knobs
from ingot.target import Target


def choose_layouts(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    """Layouts for every value, in one walk: each operator's follows from its operands'."""
    if not knobs.current().layouts:
        return graph
    edit = Editor(graph, store)
    wishes = Wishes(edit)
    reading = ReadOrder(edit, target)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: choose_layouts(g, store, target))
        edit.g.origin = node.origin
        packed = _packed(edit, reading.applied(node), target)
        _keep(edit, packed, _layout(packed) or _turned_as_wanted(packed, wishes))
    _restore_outputs(edit)
    return edit.finish()


def _layout(node: Node) -> Layout | None:
    """How the node's output is stored."""
    if len(node.outputs) != 1 or not isinstance(node.outputs[0].type, TensorType):
        return None
    op, rank = defn(node), node.outputs[0].tensor.rank
    if op.channels_last:
        return channels_last(rank)
    if op.is_view:
        return layout_after(node)
    if not (op.keeps_axes or op.kind_of(node) is Kind.ELEMENTWISE):
        return None
    tensors = [v.tensor for v in node.inputs if v is not None and isinstance(v.type, TensorType)]
    laid = [t.layout for t in tensors if t.layout is not None and t.rank == rank]
    return laid[0] if laid else None


def _turned_as_wanted(node: Node, wishes: Wishes) -> Layout | None:
    """The order that the readers of a transpose want, where it moves nothing then, or moves in any
    case."""
    if not defn(node).permutes or (x := node.inputs[0]) is None:
        return None
    wanted = wishes.of(node.outputs[0])
    if wanted is None:
        return None
    is_free = transposed(x.tensor, node.attr("perm")) == wanted
    return wanted if is_free or x.tensor.layout is not None else None


class Wishes:
    """What the readers of a value would like it to lie as, so that less is moved further on."""

    def __init__(self, edit: Editor):
        self.edit, self._uses = edit, edit.graph.uses()
        self._known: dict[str, Layout | None] = {}

    def of(self, value: Value) -> Layout | None:
        if value.name not in self._known:
            self._known[value.name] = None  # while its readers are asked
            wishes = (self._wish(r, value) for r in self._uses.get(value.name, []))
            self._known[value.name] = next((x for x in wishes if x is not None), None)
        return self._known[value.name]

    def _wish(self, reader: Node, value: Value) -> Layout | None:
        op = defn(reader)
        if reader.inputs[0] != value and op.kind_of(reader) is not Kind.ELEMENTWISE:
            return None
        if op.channels_last:
            return channels_last(value.tensor.rank)
        if len(reader.outputs) != 1 or not isinstance(reader.outputs[0].type, TensorType):
            return None
        (out,) = reader.outputs
        if op.is_view:
            made = reshaped(replace(out.tensor, layout=self.of(out)), value.tensor)
            return None if made is None else made.layout
        others = [self.edit.latest(v).type for v in reader.inputs if v is not None and v != value]
        if op.kind_of(reader) is Kind.ELEMENTWISE and same_shape(value.type, out.type):
            laid = (
                t.layout for t in others if isinstance(t, TensorType) and t.rank == len(out.shape)
            )
            return next((x for x in laid if x is not None), None) or self.of(out)
        stays = op.keeps_axes and out.tensor.rank == value.tensor.rank and not others
        return self.of(out) if stays else None


def _keep(edit: Editor, node: Node, layout: Layout | None) -> None:
    if layout is None:
        edit.keep(node)
        return
    (out,) = node.outputs
    is_result = out.name in {v.name for v in edit.graph.outputs}
    name = edit.g.fresh(out.name) if is_result else out.name
    laid = Value(name, replace(out.tensor, layout=layout))
    edit.keep(replace(node, outputs=(laid,)))
    edit.replace(node, [laid])


def _restore_outputs(edit: Editor) -> None:
    """Graph outputs in the plain order."""
    for old in dict.fromkeys(edit.graph.outputs):
        value = edit.latest(old)
        if isinstance(value.type, TensorType) and value.tensor.layout is not None:
            maker = edit.maker(value)
            plain = Value(old.name, replace(value.tensor, layout=None))
            origin = maker.origin if maker is not None else ""
            edit.keep(Node("relayout", (value,), (plain,), make_attrs({"axes": None}), origin))


# --- constant operands ---------------------------------------------------------------------------


def _packed(edit: Editor, node: Node, target: Target) -> Node:
    """The node reading its constant operand through a `relayout`, where panels of it help."""
    if len(node.inputs) < 2 or defn(node).kind is not Kind.CONTRACTION:
        return node
    maker, weights = edit.maker(node.inputs[1]), node.inputs[1]
    if weights is None or maker is None or constant_ref(maker) is None:
        return node
    layout = _panels(node, weights.tensor, target)
    if layout is None:
        return node
    made = edit.g.add("relayout", [weights], name=weights.name, axes=layout.axes)
    return replace(node, inputs=(node.inputs[0], made, *node.inputs[2:]))


def _panels(node: Node, weights: TensorType, target: Target) -> Layout | None:
    """Panels of the operand's output axis, the others in the order in which they are read."""
    out = node.outputs[0].tensor
    lanes = target.lanes(accumulator(weights.dtype))
    if node.op == "matmul" and weights.rank == 2 and out.rank > 1:
        rows = _product(out.shape[:-1])
        return _in_panels(rows, weights, 1, (0,), lanes, target)
    if node.op == "winograd_conv":
        made = _in_panels(None, weights, 0, (1,), lanes, target)
        return None if made is None else Layout(((2, 0), *made.axes))
    if node.op == "conv":
        group, space = node.attr("group", 1), range(2, weights.rank)
        outputs = arith.as_int(weights.shape[0])
        assert outputs is not None
        if group == outputs:  # depthwise: lanes run along the groups
            return Layout((*((axis, 0) for axis in space), (1, 0), (0, 0)))
        rows = _product((out.shape[0], *out.shape[2:]))
        if group == 1:
            return _in_panels(rows, weights, 0, (*space, 1), lanes, target)
        width = tiles.group_panel(rows, outputs // group, lanes, target.vector_registers)
        return None if width is None else panels((*space, 1), 0, width)
    return None


def _in_panels(
    rows: int | None, weights: TensorType, axis: int, order: tuple[int, ...], lanes: int,
    target: Target,
) -> Layout | None:  # fmt: skip
    columns = arith.as_int(weights.shape[axis])
    if columns is None or 2 * columns < lanes or lanes == 1:
        return None  # mostly padding: better summed along the reduction
    tile = tiles.register_tile(rows, columns, lanes, target.vector_registers)
    return panels(order, axis, tile.columns)


def _product(shape: tuple[arith.Expr, ...]) -> int | None:
    return arith.as_int(arith.product(list(shape)))
