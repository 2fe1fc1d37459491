"""One node of com.microsoft as a model: run by ONNX Runtime, by Ingot's interpreter, compiled.

A case is a node's operands, attributes and the outputs wanted. Operands listed in `const` are
initializers; where `dynamic`, every dimension of the others is a symbol. An operator that ONNX
Runtime's CPU build lacks has `composed`: the same in standard operators, which ONNX Runtime runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import ingot
from ingot.frontends.onnx.walker import import_model
from ingot.graph import interp
from ingot.graph.store import ConstantStore

onnxruntime.set_default_logger_severity(4)
MICROSOFT = "com.microsoft"
OPSET = 21


@dataclass
class Case:
    op: str
    inputs: Sequence[np.ndarray | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[int] = (0,)  # positions of the outputs that are compared
    const: Sequence[int] = ()
    dynamic: bool = False
    fixed: Sequence[tuple[int, int]] = ()  # (operand, axis) that is static although dynamic
    domain: str = MICROSOFT
    tolerance: float = 2e-5  # of the largest value of an output
    steps: int = 0  # by which an integer output may differ
    composed: Sequence[onnx.NodeProto] = ()
    note: str = ""

    def __str__(self) -> str:
        shapes = ",".join("-" if x is None else "x".join(map(str, x.shape)) for x in self.inputs)
        kind = "dynamic" if self.dynamic else "static"
        return f"{self.op}-{shapes}-{kind}{'-' + self.note if self.note else ''}"

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        pairs = enumerate(self.inputs)
        return {f"i{k}": x for k, x in pairs if x is not None and k not in self.const}

    def model(self, nodes: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
        given = [(k, x) for k, x in enumerate(self.inputs) if x is not None]
        inputs = [self.info(k, x) for k, x in given if k not in self.const]
        constants = [numpy_helper.from_array(x, f"i{k}") for k, x in given if k in self.const]
        outputs = [onnx.ValueInfoProto(name=f"o{k}") for k in self.outputs]
        graph = helper.make_graph(nodes or [self.node()], "case", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def node(self) -> onnx.NodeProto:
        names = ["" if x is None else f"i{k}" for k, x in enumerate(self.inputs)]
        made = [f"o{k}" if k in self.outputs else "" for k in range(max(self.outputs) + 1)]
        return helper.make_node(self.op, names, made, "node", domain=self.domain, **self.attrs)

    def info(self, k: int, x: np.ndarray) -> onnx.ValueInfoProto:
        shape = [
            f"i{k}_d{axis}" if self.dynamic and (k, axis) not in self.fixed else d
            for axis, d in enumerate(x.shape)
        ]
        return helper.make_tensor_value_info(
            f"i{k}", helper.np_dtype_to_tensor_dtype(x.dtype), shape
        )


def expected(case: Case) -> list[np.ndarray]:
    """What ONNX Runtime computes, without its optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    text = case.model(case.composed).SerializeToString()
    session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    return session.run(None, case.feeds)


def interpreted(case: Case) -> list[np.ndarray]:
    graph = import_model(case.model(), store := ConstantStore())
    return interp.run(graph, store, [case.feeds[v.name] for v in graph.inputs])


def compiled(case: Case) -> list[np.ndarray]:
    made = ingot.compile(case.model())(**case.feeds)
    found = list(made) if isinstance(made, list | tuple) else [made]
    return [np.asarray(x) for x in found]


def compare(case: Case, got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    assert len(got) == len(want)
    for k, a, b in zip(case.outputs, got, want):
        assert a.dtype == b.dtype and a.shape == b.shape, f"{case}: output {k}"
        if a.dtype.kind in "iub":
            apart = np.abs(a.astype(np.int64) - b.astype(np.int64))
            assert not a.size or apart.max() <= case.steps, f"{case}: output {k}"
            continue
        wide = [x.astype(np.float64) for x in (a, b)]
        finite = wide[1][np.isfinite(wide[1])]
        largest = float(np.abs(finite).max()) if finite.size else 1.0
        np.testing.assert_allclose(
            *wide, rtol=0, atol=case.tolerance * max(largest, 1e-30), err_msg=f"{case}: output {k}"
        )
