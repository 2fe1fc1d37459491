"""Sinks reshapes below elementwise operators so that these fuse into the GEMM epilogue.

    gelu(reshape(x))        →   reshape(gelu(x))
    reshape(x) + y          →   reshape(x + reshape(y))

where x is a GEMM or its epilogue. Exporters flatten (batch, length, width) to two axes for a GEMM
and reshape its result back; this reshape would end the epilogue. Reshapes are views.
Called by the pipeline; INGOT_OFF=sink_reshapes switches it off.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.ops.views import is_view
from ingot.passes.edit import Editor, map_subgraphs
from ingot.support import options


def sink_reshapes(graph: Graph, store: ConstantStore) -> Graph:
    if not options.current().has("sink_reshapes"):
        return graph
    edit = Editor(graph, store)
    single_use = {name for name, readers in graph.uses().items() if len(readers) == 1}
    single_use -= {v.name for v in graph.outputs}
    epilogue: set[str] = set()  # outputs of contractions, and of elementwise nodes after them
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: sink_reshapes(g, store))
        edit.g.origin = node.origin
        sunk = _sunk(edit, node, original, single_use, epilogue)
        if sunk is None:
            edit.keep(node)
            if _extends_epilogue(node, epilogue):
                epilogue.add(node.outputs[0].name)
        else:
            edit.replace(node, [sunk])
    return edit.finish()


def _extends_epilogue(node: Node, epilogue: set[str]) -> bool:
    if defn(node).kind is Kind.CONTRACTION:
        return len(node.outputs) == 1
    is_elementwise = defn(node).kind_of(node) is Kind.ELEMENTWISE and len(node.outputs) == 1
    return is_elementwise and any(v is not None and v.name in epilogue for v in node.inputs)


def _sunk(
    edit: Editor, node: Node, original: Node, single_use: set[str], epilogue: set[str]
) -> Value | None:
    """The new output of an elementwise node: the reshape, now after the node."""
    if defn(node).kind_of(node) is not Kind.ELEMENTWISE or len(node.outputs) != 1:
        return None
    for old, value in zip(original.inputs, node.inputs):
        reshape = edit.producer(value) if old is not None and old.name in single_use else None
        source = None if reshape is None else _reshape_source(reshape, node)
        if source is not None and source.name in epilogue:
            operands = [_operand(edit, v, value, source) for v in node.inputs]
            if None not in operands:
                made = _node_before_reshape(edit, node, source, operands)  # type: ignore[arg-type]
                epilogue.add(made.name)
                shape = node.outputs[0].shape
                return edit.g.add("reshape", [made], name=node.outputs[0].name, shape=shape)
    return None


def _reshape_source(reshape: Node, node: Node) -> Value | None:
    """The operand of a reshape to the node's output shape."""
    if not defn(reshape).is_view or not is_view(reshape) or reshape.inputs[0] is None:
        return None
    out = reshape.outputs[0].tensor
    return reshape.inputs[0] if out.shape == node.outputs[0].tensor.shape else None


def _operand(
    edit: Editor, operand: Value | None, value: Value | None, source: Value
) -> Value | None:
    """The operand in the shape of `source` instead of its reshape `value`; None if impossible."""
    if operand is None or value is None:
        return None
    if operand == value:
        return source
    if operand.shape == value.shape:
        return edit.g.add("reshape", [operand], name=operand.name, shape=source.shape)
    rank = len(operand.shape)
    same_end = rank == 1 and source.shape[-1:] == value.shape[-1:] == operand.shape
    return operand if rank == 0 or same_end or operand.shape == (arith.Const(1),) else None


def _node_before_reshape(edit: Editor, node: Node, source: Value, operands: list[Value]) -> Value:
    (out,) = node.outputs
    type = replace(out.tensor, shape=source.shape)
    made = Value(edit.g.fresh(f"{out.name}_flat"), type)
    edit.keep(replace(node, inputs=tuple(operands), outputs=(made,)))
    return made
