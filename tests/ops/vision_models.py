"""Models of several nodes with common inputs, compiled once and compared with real counterparts.

In: rows of nodes and arrays. Called by test_vision.py and test_detection.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import ingot

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """One node: its operator, the names of its operands, and its attributes."""

    op: str
    inputs: Sequence[str]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


def model_of(
    rows: Sequence[Row],
    feeds: Arrays,
    opset: int,
    constants: Arrays | None = None,
    dynamic: bool = False,
) -> onnx.ModelProto:
    """Every row's first result is an output. With `dynamic`, no input has a static size except the
    last axis of those called grid, boxes and rois."""
    nodes, outputs = [], []
    for number, row in enumerate(rows):
        name = f"y{number}"
        made = helper.make_node(
            row.op, list(row.inputs), [name], f"node{number}", domain=row.domain, **row.attrs
        )
        nodes.append(made)
        outputs.append(helper.make_empty_tensor_value_info(name))
    inputs = []
    for name, array in feeds.items():
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        shape: list[int | str] = list(array.shape)
        if dynamic:
            kept = array.ndim - (name in ("grid", "boxes", "rois"))
            shape[:kept] = [f"{name}_{axis}" for axis in range(kept)]
        inputs.append(helper.make_tensor_value_info(name, code, shape))
    known = [numpy_helper.from_array(a, name) for name, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "rows", inputs, outputs, known)
    domains = {row.domain for row in rows if row.domain}
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 10
    return model


def by_onnxruntime(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


def by_reference(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    """ONNX's own, where ONNX Runtime lacks the operator."""
    return [np.asarray(y) for y in ReferenceEvaluator(model).run(None, dict(feeds))]


def assert_agrees(
    rows: Sequence[Row],
    feeds: Arrays,
    opset: int,
    constants: Arrays | None = None,
    others: Sequence[Arrays] = (),
    tolerance: float = 2e-4,
    peer: Any = by_onnxruntime,
) -> None:
    """Compiled, on `feeds`; with `others` for dynamic sizes, on those as well."""
    model = model_of(rows, feeds, opset, constants, dynamic=bool(others))
    exe = ingot.compile(model)
    for given in (feeds, *others):
        got, want = exe.run(None, dict(given)), peer(model, given)
        for row, have, expected in zip(rows, got, want, strict=True):
            assert have.shape == expected.shape and have.dtype == expected.dtype, row
            np.testing.assert_allclose(have, expected, tolerance, tolerance, err_msg=str(row))
