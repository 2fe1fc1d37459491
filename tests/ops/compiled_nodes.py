"""Models of a few ONNX nodes, compiled. In: nodes, arrays. Out: the outputs of compiled code, or of
ONNX Runtime. Called by tests of operators whose sizes or modes are known only when running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import ingot
from ingot.frontends.onnx.walker import import_model
from ingot.graph import interp
from ingot.graph.store import ConstantStore
from ingot.graph.verify import verify

Shape = Sequence[int | str]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Any, Shape]],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 21,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """Inputs are element types and shapes, whose names are dynamic sizes. Every output of a node
    that no other reads is an output of the model."""
    read = {name for node in nodes for name in node.input}
    outputs = [name for node in nodes for name in node.output if name and name not in read]
    infos = []
    for name, (dtype, shape) in inputs.items():
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        infos.append(helper.make_tensor_value_info(name, code, list(shape)))
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(list(nodes), "nodes", infos, results, weights)
    versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


class Runner(Protocol):
    def run(self, outputs: None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]: ...


def compiled(*args: Any, **options: Any) -> Runner:
    return ingot.compile(model(*args, **options))


class Interpreted:
    """The imported graph in the interpreter: what a converter made of the nodes, without the time
    to compile it."""

    def __init__(self, proto: onnx.ModelProto):
        self.store = ConstantStore()
        self.graph = import_model(proto, self.store)
        verify(self.graph)

    def run(self, outputs: None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return interp.run(self.graph, self.store, [feeds[v.name] for v in self.graph.inputs])


def interpreted(*args: Any, **options: Any) -> Runner:
    return Interpreted(model(*args, **options))


# Interpreted in every run; compiled, which takes a second for each node, in the long suite.
EITHER = pytest.mark.parametrize(
    "build",
    [
        pytest.param(interpreted, id="interpreted"),
        pytest.param(compiled, id="compiled", marks=pytest.mark.long),
    ],
)


def run(exe: Runner, **feeds: Any) -> list[np.ndarray]:
    return exe.run(None, {name: np.asarray(v) for name, v in feeds.items()})


def run_peer(proto: onnx.ModelProto, **feeds: Any) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {name: np.asarray(v) for name, v in feeds.items()})


node = helper.make_node
