"""Graph → the same graph with layouts in its types: channels last, constant operands in panels.

    conv(x, w)    → the output, and what follows it axis by axis, is stored with its channels last;
                    a constant w lies in panels of output channels, as the register tile reads it
    matmul(x, w)  → a constant w lies in panels of columns

A transpose between the two orders moves nothing: it is a view. Inputs and outputs of the graph keep
the plain order: one that has another is converted by an explicit `relayout`. Operators see logical
shapes only; lower realises the rest. tiles.py says how wide a panel is. Called by the pipeline;
INGOT_LAYOUTS=0 leaves everything plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from ingot import tiles
from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, make_attrs
from ingot.graph.layouts import channels_last, panels, transposed
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import Layout, TensorType
from ingot.graph.verify import bound_symbols
from ingot.ops.matmul import accumulator
from ingot.passes.edit import Editor, constant_ref, map_subgraphs
from ingot.support import knobs
from ingot.target import Target

TURN_OUTPUTS = 96  # for each of which an element of x is used: then turning it pays


def choose_layouts(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    """Layouts for every value, in one walk: each operator's follows from its operands'."""
    if not knobs.current().layouts:
        return graph
    edit = Editor(graph, store)
    uses = graph.uses()
    turned: dict[str, Value] = {}
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: choose_layouts(g, store, target))
        edit.g.origin = node.origin
        ready = _turned(edit, _plain_operands(edit, node), target, turned)
        packed = _packed(edit, ready, target)
        _keep(edit, packed, _layout(packed) or _as_view(edit, packed, uses))
    _restore_outputs(edit)
    return edit.finish()


def _plain_operands(edit: Editor, node: Node) -> Node:
    """Sub-graphs and what finds sizes in data read their operands in the plain order."""
    if not bound_symbols(node) and not any(True for _ in node.subgraphs):
        return node
    return replace(node, inputs=tuple(v and _plain(edit, v) for v in node.inputs))


def _turned(edit: Editor, node: Node, target: Target, turned: dict[str, Value]) -> Node:
    """A convolution with a plain x reads it turned: rows of channels are read fastest."""
    x = node.inputs[0] if node.inputs else None
    if x is None or not defn(node).channels_last or not _is_worth_turning(node, x.tensor, target):
        return node
    if x.name not in turned:  # once for all its readers
        axes = channels_last(x.tensor.rank).axes
        turned[x.name] = edit.g.add("relayout", [x], name=x.name, axes=axes)
    return replace(node, inputs=(turned[x.name], *node.inputs[1:]))


def _is_worth_turning(conv: Node, x: TensorType, target: Target) -> bool:
    """One that is copied for its borders, where it stays in the second-level cache meanwhile: else
    that copy turns it too. One without borders, where each element is used for many outputs."""
    size, channels = arith.as_int(x.numel), arith.as_int(x.shape[1])
    if x.layout is not None or size is None or channels is None:
        return False
    if channels < target.lanes(x.dtype):
        return False
    if any(not arith.is_const(pad, 0) for pad in conv.attr("pads") or ()):
        return len(target.caches) > 1 and size * x.dtype.storage_bytes <= target.caches[1]
    outputs = arith.as_int(conv.outputs[0].shape[1])
    uses_all = prod(conv.attr("strides") or ()) == 1
    return uses_all and outputs is not None and outputs >= TURN_OUTPUTS


def _plain(edit: Editor, value: Value) -> Value:
    if not isinstance(value.type, TensorType) or value.tensor.layout is None:
        return value
    return edit.g.add("relayout", [value], name=value.name, axes=None)


def _layout(node: Node) -> Layout | None:
    """How the node's output is stored."""
    if len(node.outputs) != 1 or not isinstance(node.outputs[0].type, TensorType):
        return None
    op, rank = defn(node), node.outputs[0].tensor.rank
    if op.channels_last:
        return channels_last(rank)
    if not (op.keeps_axes or op.kind_of(node) is Kind.ELEMENTWISE):
        return None
    tensors = [v.tensor for v in node.inputs if v is not None and isinstance(v.type, TensorType)]
    laid = [t.layout for t in tensors if t.layout is not None and t.rank == rank]
    return laid[0] if laid else None


def _as_view(edit: Editor, node: Node, uses: Mapping[str, list[Node]]) -> Layout | None:
    """The layout that makes a transpose a view, if it is one that its readers want."""
    if not defn(node).permutes or node.inputs[0] is None:
        return None
    layout = transposed(node.inputs[0].tensor, node.attr("perm"))
    out = node.outputs[0]
    if layout is None or layout != channels_last(out.tensor.rank):
        return None
    readers = uses.get(out.name, [])
    return layout if any(_wants(edit, reader, layout) for reader in readers) else None


def _wants(edit: Editor, reader: Node, layout: Layout) -> bool:
    if defn(reader).channels_last:
        return True
    others = [edit.latest(v).type for v in reader.inputs if v is not None]
    laid = any(isinstance(t, TensorType) and t.layout == layout for t in others)
    return laid and defn(reader).kind_of(reader) is Kind.ELEMENTWISE


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
