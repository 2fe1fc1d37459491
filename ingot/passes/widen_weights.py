"""Computes contractions of narrow floats in f32, with weights that are widened when compiling.

    conv(x: f16, w: f16 constant)    →  cast(conv(cast(x, f32), w as f32), f16)
    matmul(x: f16, w: f16 constant)  →  cast(matmul(cast(x, f32), w), f16)   few rows

Sums of f16 and bf16 are f32 in any case. Without instructions that multiply narrow floats, the
inner loop would convert both operands again for every product; now the weights are f32 in memory,
and an activation is converted once, by the copy that pads or packs it. Where the time is that of
reading the weights (cost/weight_types.py) a matmul keeps them as they are, and its tiles widen what
they load. Contractions that a bf16 dot product computes (option `bf16_dots`) stay. Tensors between
nodes stay narrow, and so does every rounding. In: a Graph. Out: a Graph. A stage of the CPU back
end.
"""

from __future__ import annotations

from dataclasses import replace

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.passes.dot_operands import dot_of
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.weight_reader import CONTRACTIONS, Likely, WeightReader, likely_sizes
from ingot.target import Target

NARROW = (dtypes.f16, dtypes.bf16)


def widen_weights(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    """Widen the contractions of narrow floats that have constant weights."""
    return _widened_graph(graph, store, WeightReader(graph, target), {})


def _widened_graph(
    graph: Graph, store: ConstantStore, reader: WeightReader, outside: Likely
) -> Graph:
    edit, likely = Editor(graph, store), likely_sizes(graph, outside)

    def inside(sub: Graph) -> Graph:
        return _widened_graph(sub, store, reader, likely)

    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), inside)
        edit.g.origin = node.origin
        if node.op in CONTRACTIONS and _is_narrow(edit, node) and not dot_of(node, reader.target):
            edit.keep(_widened(edit, node, reader.bounds(node, likely)))
        else:
            edit.keep(node)
    return edit.finish()


def _is_narrow(edit: Editor, node: Node) -> bool:
    x, weights = node.inputs[:2]
    assert x is not None
    return x.dtype in NARROW and edit.constant(weights) is not None


def _widened(edit: Editor, node: Node, keeps_weights: bool) -> Node:
    """Appends the f32 contraction; the node that narrows its result."""
    x, weights, *others = node.inputs
    operands = [None if v is None else _as_f32(edit, v) for v in (x, *others)]
    operands.insert(1, weights if keeps_weights or weights is None else _as_f32(edit, weights))
    wide = edit.g.add(node.op, operands, **node.attr_map)
    return replace(node, op="cast", inputs=(wide,), attrs=_to(node.outputs[0].dtype))


def _as_f32(edit: Editor, value: Value) -> Value:
    array = edit.constant(value)
    if array is not None:
        return edit.g.constant(array.astype(dtypes.f32.numpy))
    return edit.g.add("cast", [value], to=dtypes.f32)


def _to(dtype: DType) -> tuple:
    return (("to", dtype),)
