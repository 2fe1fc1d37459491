"""Graph → the same graph where element by element comes before a reshape, not after it.

    gelu(reshape(x))        →   reshape(gelu(x))
    reshape(x) + y          →   reshape(x + reshape(y))

where x ends a product: exporters flatten (batch, length, width) to two axes for a Gemm and unfold
its result, and a reshape would stand between the product and what could ride on its tiles. Reshapes
move nothing. Called by the pipeline; INGOT_SINK_RESHAPES=0 leaves them where they are.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.fuse import is_view
from ingot.support import knobs


def sink_reshapes(graph: Graph, store: ConstantStore) -> Graph:
    if not knobs.current().sink_reshapes:
        return graph
    edit = Editor(graph, store)
    alone = {name for name, readers in graph.uses().items() if len(readers) == 1}
    alone -= {v.name for v in graph.outputs}
    ends: set[str] = set()  # values that a product ends with, element by element after it
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: sink_reshapes(g, store))
        edit.g.origin = node.origin
        folded = _folded(edit, node, original, alone, ends)
        if folded is None:
            edit.keep(node)
            if _ends_product(node, ends):
                ends.add(node.outputs[0].name)
        else:
            edit.replace(node, [folded])
    return edit.finish()


def _ends_product(node: Node, ends: set[str]) -> bool:
    if defn(node).kind is Kind.CONTRACTION:
        return len(node.outputs) == 1
    rides = defn(node).kind_of(node) is Kind.ELEMENTWISE and len(node.outputs) == 1
    return rides and any(v is not None and v.name in ends for v in node.inputs)


def _folded(
    edit: Editor, node: Node, original: Node, alone: set[str], ends: set[str]
) -> Value | None:
    """What stands for an elementwise node's result: the reshape of the node before it."""
    if defn(node).kind_of(node) is not Kind.ELEMENTWISE or len(node.outputs) != 1:
        return None
    for old, value in zip(original.inputs, node.inputs):
        reshape = edit.maker(value) if old is not None and old.name in alone else None
        source = None if reshape is None else _unfolded(reshape, node)
        if source is not None and source.name in ends:
            operands = [_as(edit, v, value, source) for v in node.inputs]
            if None not in operands:
                made = _before(edit, node, source, operands)  # type: ignore[arg-type]
                ends.add(made.name)
                shape = node.outputs[0].shape
                return edit.g.add("reshape", [made], name=node.outputs[0].name, shape=shape)
    return None


def _unfolded(reshape: Node, node: Node) -> Value | None:
    """What a reshape to the node's own shape is made from."""
    if not defn(reshape).is_view or not is_view(reshape) or reshape.inputs[0] is None:
        return None
    out = reshape.outputs[0].tensor
    return reshape.inputs[0] if out.shape == node.outputs[0].tensor.shape else None


def _as(edit: Editor, operand: Value | None, value: Value | None, source: Value) -> Value | None:
    """The operand beside `source`, not `value`, its reshape; None where it has no such form."""
    if operand is None or value is None or not isinstance(operand.type, TensorType):
        return None
    if operand == value:
        return source
    if operand.shape == value.shape:
        return edit.g.add("reshape", [operand], name=operand.name, shape=source.shape)
    rank = len(operand.shape)
    same_end = rank == 1 and source.shape[-1:] == value.shape[-1:] == operand.shape
    return operand if rank == 0 or same_end or operand.shape == (arith.Const(1),) else None


def _before(edit: Editor, node: Node, source: Value, operands: list[Value]) -> Value:
    (out,) = node.outputs
    type = replace(out.tensor, shape=source.shape)
    made = Value(edit.g.fresh(f"{out.name}_flat"), type)
    edit.keep(replace(node, inputs=tuple(operands), outputs=(made,)))
    return made
