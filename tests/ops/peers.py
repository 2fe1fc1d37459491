"""Compare operators with ONNX Runtime, and kernels of dynamic size with their references.

In: an ONNX operator, arrays, attributes. Called by the tests beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from ingot import dtypes, ops
from ingot.arith import expr as arith
from ingot.frontends.onnx.walker import import_model
from ingot.graph import interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.opdef import lookup
from ingot.graph.store import ConstantStore
from ingot.graph.types import TensorType
from ingot.graph.verify import verify
from ingot.loops import interp as loops_interp
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.support.errors import IngotError

assert ops.__all__  # the operator table is filled

Arrays = Sequence[np.ndarray | None]


def symbolic(array: np.ndarray, axes: Sequence[int]) -> tuple[arith.Expr, ...]:
    """A shape whose `axes` are symbols, one for each size: equal sizes are known to be equal."""
    return tuple(
        arith.Var(f"n{size}") if axis in axes else arith.Const(size)
        for axis, size in enumerate(array.shape)
    )


def node_model(
    op: str,
    arrays: Arrays,
    attrs: Mapping[str, Any],
    opset: int,
    outputs: Sequence[str],
    constants: Sequence[int],
    dynamic: Sequence[int],
    domain: str = "",
) -> onnx.ModelProto:
    """A model of one node; operands in `constants` are initializers, axes in `dynamic` symbols."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    node = helper.make_node(op, names, list(outputs), name=f"the_{op}", domain=domain, **attrs)
    inputs, initializers = [], []
    for i, array in enumerate(arrays):
        if array is None:
            continue
        if i in constants:
            initializers.append(numpy_helper.from_array(array, names[i]))
            continue
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        shape = [f"n{n}" if a in dynamic and i == 0 else n for a, n in enumerate(array.shape)]
        inputs.append(helper.make_tensor_value_info(names[i], code, shape))
    results = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    graph = helper.make_graph([node], "one", inputs, results, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    return model


def run_ours(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Import, verify, interpret; then decompose every composite operator and interpret again."""
    store = ConstantStore()
    graph = import_model(model, store)
    verify(graph)
    arrays = [feeds[v.name] for v in graph.inputs]
    whole = interp.run(graph, store, arrays)
    parts = decomposed(graph, store)
    verify(parts)
    for a, b in zip(whole, interp.run(parts, store, arrays), strict=True):
        compare(b, a, 2e-2 if a.dtype.itemsize == 2 else 1e-4)
    return whole


def decomposed(graph: Graph, store: ConstantStore) -> Graph:
    """The graph with every operator that has a decomposition decomposed once."""
    g = GraphBuilder(graph.name, store)
    env = {v.name: g.input(v.name, v.type) for v in graph.inputs}
    g.symbols.update(graph.symbol_map)
    for node in graph.nodes:
        operands = [None if v is None else env[v.name] for v in node.inputs]
        types = [v.tensor for v in node.outputs]
        if lookup(node.op).has_decompose:
            made = lookup(node.op).decompose(g, operands, types, node.attr_map)
        else:
            made = g.raw(node.op, operands, node.attr_map, types)
        env.update(zip((v.name for v in node.outputs), made))
    return g.finish([env[v.name] for v in graph.outputs])


def compare(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.shape)
    if got.dtype == np.bool_ or np.issubdtype(got.dtype, np.integer):
        np.testing.assert_array_equal(got, want)
        return
    pair = (a.astype(np.float64) for a in (got, want))
    np.testing.assert_allclose(*pair, rtol=tolerance, atol=tolerance)


def check(
    op: str,
    arrays: Arrays,
    opset: int = 17,
    outputs: Sequence[str] = ("y",),
    constants: Sequence[int] = (),
    dynamic: Sequence[int] = (),
    tolerance: float = 1e-5,
    want: Sequence[np.ndarray] | None = None,
    **attrs: Any,
) -> None:
    """Our outputs equal ONNX Runtime's (or `want`, where it has no such kernel)."""
    arrays = [None if a is None else np.asarray(a) for a in arrays]
    model = node_model(op, arrays, attrs, opset, outputs, constants, dynamic)
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constants}
    if want is None:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        want = session.run(None, feeds)
    for got, expected in zip(run_ours(model, feeds), want, strict=True):
        compare(got, np.asarray(expected), tolerance)


def check_kernel(
    op: str,
    arrays: Arrays,
    attrs: Mapping[str, Any],
    dynamic: Mapping[int, Sequence[int]],
    tolerance: float = 1e-5,
) -> None:
    """The loops of `op`, built for symbolic sizes, give what the reference gives."""
    definition, b = lookup(op), Build(op)
    types = [
        None
        if a is None
        else TensorType(dtypes.from_numpy(a.dtype), symbolic(a, dynamic.get(i, ())))
        for i, a in enumerate(arrays)
    ]
    outputs = definition.infer(types, attrs)
    params = [
        None if t is None else b.param(f"x{i}", t.dtype, t.shape) for i, t in enumerate(types)
    ]
    made = definition.compute(b, params, outputs, attrs)
    names = sorted({n for t in types if t for d in t.shape for n in arith.free_vars(d)})
    kernel = b.finish(made, [ir.Size(name) for name in names])
    given = [a for a in arrays if a is not None]
    want = definition.reference(arrays, attrs)
    got = [np.zeros(w.shape, w.dtype) for w in want]
    loops_interp.run(kernel, [*given, *got])
    for a, c in zip(got, want, strict=True):
        compare(a, c, tolerance)


def error_code(model: onnx.ModelProto) -> str:
    """The code of the error that importing `model` raises; "" if it does not."""
    try:
        import_model(model, ConstantStore())
    except IngotError as error:
        assert "the_" in error.where, error
        return error.code
    return ""
