"""Builds QDQ models node by node for tests, and compares them with ONNX Runtime without its
optimisations. Scales are those of the values that a model without quantisation would have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

import ingot
from ingot import dtypes
from ingot.api import make_session
from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node
from ingot.pipeline import run_stages

onnxruntime.set_default_logger_severity(4)
U8, I8 = np.uint8, np.int8


class Net:
    """`x = net.input(…); x = net.conv(x, …); model = net.model([x])`: `net.q` stores in 8 bits."""

    def __init__(self, activations: type = U8, weights: type = I8, per_channel: bool = True,
                 opset: int = 21, seed: int = 0):  # fmt: skip
        self.activations, self.weights, self.per_channel = activations, weights, per_channel
        self.opset, self.rng = opset, np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.inputs: list[ValueInfoProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.scale_of: dict[str, np.float32] = {}
        self._count = 0

    def fresh(self, base: str) -> str:
        self._count += 1
        return f"{base}{self._count}"

    def input(self, name: str, *shape: int | str) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = self.fresh("c")
        self.constants[name] = np.asarray(array, dtype)
        return name

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = self.fresh(op.lower())
        self.nodes.append(helper.make_node(op, list(inputs), [name], name, **attrs))
        return name

    def q(self, x: str, low: float = -4.0, high: float = 4.0, name: str = "") -> str:
        """x stored in 8 bits, of which low to high is the range; dequantised again."""
        stored = self.quantised(x, low, high)
        return self.node("DequantizeLinear", *stored)

    def quantised(self, x: str, low: float = -4.0, high: float = 4.0) -> tuple[str, str, str]:
        scale = np.float32((high - low) / 255)
        limits = np.iinfo(self.activations)
        zero = np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)
        params = self.constant(scale), self.constant(zero, self.activations)
        stored = self.node("QuantizeLinear", x, *params)
        self.scale_of[stored] = scale
        return stored, *params

    def weight(self, *shape: int, axis: int = 0) -> str:
        """Random weights of 8 bits, dequantised."""
        limits = np.iinfo(self.weights)
        codes = self.rng.integers(limits.min, limits.max + 1, shape).astype(self.weights)
        terms = np.prod(shape) / shape[axis]
        count = shape[axis] if self.per_channel else 1
        scale = self.rng.uniform(0.5, 1.5, count).astype(np.float32) / np.float32(80 * terms**0.5)
        zero = np.full(count, 0 if self.weights is I8 else 131, self.weights)
        if not self.per_channel:
            scale, zero = scale.reshape(()), zero.reshape(())
        params = self.constant(codes, self.weights), self.constant(scale), self.constant(zero, None)
        return self.node("DequantizeLinear", *params, axis=axis)

    def bias(self, count: int, scale: np.ndarray) -> str:
        codes = self.rng.integers(-900, 900, count).astype(np.int32)
        params = self.constant(codes, np.int32), self.constant(scale)
        return self.node("DequantizeLinear", *params, axis=0)

    def conv(self, x: str, w: str, bias: bool = False, **attrs: Any) -> str:
        """`x` is a result of `q`. The i32 bias has the product of the scales as its own."""
        inputs = [x, w]
        if bias:
            x_node = next(n for n in self.nodes if x in n.output)
            w_node = next(n for n in self.nodes if w in n.output)
            scale = self.constants[x_node.input[1]] * self.constants[w_node.input[1]]
            count = self.constants[w_node.input[0]].shape[0]
            inputs.append(self.bias(count, np.broadcast_to(scale, (count,))))
        return self.node("Conv", *inputs, **attrs)

    def model(self, outputs: list[str]) -> ModelProto:
        results = [ValueInfoProto(name=name) for name in outputs]
        weights = [numpy_helper.from_array(x, name) for name, x in self.constants.items()]
        graph = helper.make_graph(self.nodes, "qdq", self.inputs, results, weights)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(proto: ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime as the standard says: every node by itself."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(proto.SerializeToString(), options)


def assert_within_a_step(
    proto: ModelProto, feeds: dict[str, np.ndarray], step: float, **options: Any
) -> ingot.Executable:
    """99.9 % of the outputs within one step of the last quantiser, 99 % of them equal. (A rounding
    step inside a model that goes the other way may change what comes after it by a step.)"""
    exe = ingot.compile(proto, **options)
    made = exe(**feeds)
    got = made if isinstance(made, list | tuple) else [made]
    for a, b in zip(got, session(proto).run(None, feeds), strict=True):
        off = np.abs(np.asarray(a, np.float64) - b)
        assert np.count_nonzero(off > 1.01 * step) <= 1e-3 * off.size, off.max() / step
        assert np.count_nonzero(off > 0.5 * step) <= 1e-2 * off.size
    return exe


def stage(proto: ModelProto, name: str, target: str = "x86-64-v4+avx512vnni") -> Graph:
    """The graph after a stage."""
    return run_stages(proto, make_session(target), stop_after=name)


def every_node(graph: Graph) -> list[Node]:
    """The nodes, and those of sub-graphs and groups."""
    inner = [n for node in graph.nodes for _, sub in node.subgraphs for n in every_node(sub)]
    return [*graph.nodes, *inner]


def stored_floats(graph: Graph, least: int = 65) -> list[str]:
    """The f32 values that the kernels of a fused graph store, but for small ones and outputs."""
    outputs = {v.name for v in graph.outputs}
    values = [v for n in graph.nodes if n.op == "fused" for v in n.outputs]
    return [
        f"{v.name}: {v.type}" for v in values
        if v.dtype is dtypes.f32 and v.name not in outputs
        and (arith.as_int(v.tensor.numel) or least) >= least
    ]  # fmt: skip
