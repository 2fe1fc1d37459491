"""A graph in float64: every float of at most 32 bits becomes f64, and the interpreter runs it.

In: a graph with its constants, inputs by name. Out: outputs whose error is negligible compared with
any run in the graph's own types. The numpy reference of each operator computes in the type of its
inputs (graph/interp.py), so widening the types is enough. torch in float64 gives the same
(tests/cli/test_facts.py). Called by verify, and by benchmarks/exact.py for the table of errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph import interp
from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType

_WIDENED = (dtypes.f32, dtypes.f16, dtypes.bf16)
_ARRAYS = {dtype.numpy for dtype in _WIDENED}


def exact_outputs(
    graph: Graph, store: ConstantStore, feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """The graph's outputs for these inputs, floats as float64."""
    return run_widened(widened(graph, store), store, [feeds[v.name] for v in graph.inputs])


def run_widened(
    graph: Graph, store: ConstantStore, arrays: Sequence[np.ndarray]
) -> list[np.ndarray]:
    return interp.run(graph, store, [*map(wide_array, arrays)])


def widened(graph: Graph, store: ConstantStore) -> Graph:
    """The graph with f64 for its floats: types, constants, attributes, sub-graphs."""
    return replace(
        graph,
        inputs=tuple(map(_value, graph.inputs)),
        outputs=tuple(map(_value, graph.outputs)),
        nodes=tuple(_node(node, store) for node in graph.nodes),
    )


def _node(node: Node, store: ConstantStore) -> Node:
    return replace(
        node,
        inputs=tuple(None if v is None else _value(v) for v in node.inputs),
        outputs=tuple(map(_value, node.outputs)),
        attrs=tuple((name, _attribute(value, store)) for name, value in node.attrs),
    )


def _value(value: Value) -> Value:
    return replace(value, type=_tensor(value.type))


def _tensor(type: TensorType) -> TensorType:
    return replace(type, dtype=_dtype(type.dtype))


def _dtype(dtype: DType) -> DType:
    return dtypes.f64 if dtype in _WIDENED else dtype


def _attribute(value: Any, store: ConstantStore) -> Any:
    match value:
        case DType():
            return _dtype(value)
        case TensorType():
            return _tensor(value)
        case ConstRef():
            is_wide = dtypes.of(value.dtype) in _WIDENED
            return store.add(wide_array(store.get(value))) if is_wide else value
        case Graph():
            return widened(value, store)
        case tuple():
            return tuple(_attribute(item, store) for item in value)
    return value


def wide_array(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype in _ARRAYS else array
