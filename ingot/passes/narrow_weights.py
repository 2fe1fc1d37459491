"""Stores f32 weights as f16 or bf16 where these have the very same values and are read faster.

    matmul(x, w: f32 constant)  →  matmul(x, w as bf16)      every element of w is a bf16 number

Checkpoints in bf16 or f16 are often exported as f32 models, or with a cast that constant folding
has applied. Nothing is rounded here: a weight that would change keeps all weights of its matmul
f32. cost/weight_types.py decides where half the bytes are worth the conversions. In: a Graph. Out:
a Graph. A stage of the CPU back end.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph.ir import Graph, Node
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.weight_reader import Likely, WeightReader, likely_sizes
from ingot.target import Target

SAMPLED = 4096  # elements that are tried first; most models differ in one of them


def narrow_weights(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    """Store the weights of matmuls that are bound by reading them in 16 bits, where it is exact."""
    return _narrowed_graph(graph, store, WeightReader(graph, target), {})


def _narrowed_graph(
    graph: Graph, store: ConstantStore, reader: WeightReader, outside: Likely
) -> Graph:
    edit, likely = Editor(graph, store), likely_sizes(graph, outside)

    def inside(sub: Graph) -> Graph:
        return _narrowed_graph(sub, store, reader, likely)

    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), inside)
        edit.g.origin = node.origin
        edit.keep(_narrowed(edit, node) if reader.bounds(node, likely) else node)
    return edit.finish()


def _narrowed(edit: Editor, node: Node) -> Node:
    x, value = node.inputs
    weights = edit.constant(value)
    if weights is None or weights.dtype != np.float32:
        return node
    for dtype in (dtypes.bf16, dtypes.f16):
        if _is_exact(weights.ravel()[:SAMPLED], dtype) and _is_exact(weights, dtype):
            return replace(node, inputs=(x, edit.g.constant(_cast(weights, dtype))))
    return node


def _is_exact(array: np.ndarray, dtype: DType) -> bool:
    """Are all elements of the type, to the bit?"""
    back = _cast(array, dtype).astype(np.float32)
    return bool(np.array_equal(back.view(np.uint32), array.view(np.uint32)))


def _cast(array: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy)
