"""A model's outputs in float64: every f32 of the graph becomes f64, and the interpreter runs it.

In: a graph with its constants, inputs. Out: outputs whose error is negligible compared with any f32
run. The numpy reference of each operator computes in the type of its inputs (graph/interp.py), so
widening the types is enough. torch in float64 gives the same (tests/cli/test_facts.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ingot import api, dtypes
from ingot.dtypes import DType
from ingot.graph import interp
from ingot.graph.ir import ConstRef, Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType
from ingot.support import lazy


def outputs(
    model: Path | bytes, sizes: Mapping[str, int], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """The model's outputs for these inputs, floats as float64."""
    session = api.make_session(shapes=dict(sizes))
    graph = lazy.load("pipeline").run_stages(model, session, stop_after="import")
    inputs = [_wide_array(feeds[value.name]) for value in graph.inputs]
    return interp.run(widened(graph, session.store), session.store, inputs)


def widened(graph: Graph, store: ConstantStore) -> Graph:
    """The graph with f64 wherever it has f32: types, constants, attributes, sub-graphs."""
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
    type = value.type
    return replace(value, type=_tensor(type)) if isinstance(type, TensorType) else value


def _tensor(type: TensorType) -> TensorType:
    return replace(type, dtype=_dtype(type.dtype))


def _dtype(dtype: DType) -> DType:
    return dtypes.f64 if dtype is dtypes.f32 else dtype


def _attribute(value: Any, store: ConstantStore) -> Any:
    match value:
        case DType():
            return _dtype(value)
        case TensorType():
            return _tensor(value)
        case ConstRef():
            array = store.get(value)
            return store.add(_wide_array(array)) if array.dtype == np.float32 else value
        case Graph():
            return widened(value, store)
        case tuple():
            return tuple(_attribute(item, store) for item in value)
    return value


def _wide_array(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype == np.float32 else array
