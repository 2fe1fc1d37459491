"""Short words for making ONNX models: nodes, types, seeded weights. Used by the files here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto as P
from onnx import helper, numpy_helper

Feeds = dict[str, np.ndarray]
Case = tuple[onnx.ModelProto, Feeds]
Info = onnx.ValueInfoProto

OPSET = 17


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def weight(seed: int, *shape: int) -> np.ndarray:
    """Normal numbers scaled by the fan-in, so that activations keep their size."""
    fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    return (rng(seed).standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def info(name: str, dims: Sequence[int | str | None], kind: int = P.FLOAT) -> Info:
    return helper.make_tensor_value_info(name, kind, list(dims))


def node(op: str, inputs: str, outputs: str, **attrs: object) -> onnx.NodeProto:
    """Operands are given in one string, `_` for an absent one. The node is named by its output."""
    ins = ["" if name == "_" else name for name in inputs.split()]
    outs = outputs.split()
    return helper.make_node(op, ins, outs, name=f"{op}_{outs[0]}", **attrs)


def graph(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Info],
    outputs: Sequence[Info],
    constants: dict[str, np.ndarray] | None = None,
) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs), tensors)


def model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Info],
    outputs: Sequence[Info],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = OPSET,
) -> onnx.ModelProto:
    proto = helper.make_model(
        graph(name, nodes, inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", opset)],
    )
    proto.ir_version = 9
    return proto
