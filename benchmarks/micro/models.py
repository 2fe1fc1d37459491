"""One ONNX model of a few nodes. In: nodes, shapes of inputs and weights. Out: a `Case` to time.

Arrays are generated on demand, from a seed that depends on the case alone. The model states no
output shapes: every runtime infers them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Case:
    """`frozen`: inputs that are constants in the frozen variant of the model."""

    name: str
    kind: str  # summaries group by it
    nodes: tuple[onnx.NodeProto, ...]
    inputs: Shapes
    weights: Shapes = field(default_factory=dict)
    flops: int = 0
    frozen: tuple[str, ...] = ()

    def model(self, is_frozen: bool = False) -> bytes:
        inner = {name: self.inputs[name] for name in self.frozen if is_frozen}
        given = {name: shape for name, shape in self.inputs.items() if name not in inner}
        constants = {**self.weights, **inner}
        output = helper.make_empty_tensor_value_info(self.nodes[-1].output[0])
        output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            list(self.nodes),
            "micro",
            [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in given.items()],
            [output],
            [numpy_helper.from_array(self._array(n, s), n) for n, s in constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    def feeds(self, is_frozen: bool = False) -> dict[str, np.ndarray]:
        names = [name for name in self.inputs if not (is_frozen and name in self.frozen)]
        return {name: self._array(name, self.inputs[name]) for name in names}

    def _array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        random = np.random.default_rng(zlib.crc32(f"{self.name} {name}".encode()))
        return random.standard_normal(shape, np.float32)


def node(op: str, inputs: Sequence[str], output: str = "y", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], **attrs)
