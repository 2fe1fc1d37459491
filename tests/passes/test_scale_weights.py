"""scale_weights: which per-channel scales move to the weights, which do not; equal outputs."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run as interpret
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from ingot.passes.choose_layouts import choose_layouts
from ingot.passes.scale_weights import scale_weights
from ingot.support import options
from ingot.target import parse

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def excited(
    batch: int = 1, size: int = 20, channels: int = 19, outputs: int = 21, kernel: int = 1,
    group: int = 1, twice: bool = False, first: bool = True, bound: str = "sigmoid",
    dtype: dtypes.DType = dtypes.f32,
) -> tuple[Graph, ConstantStore]:  # fmt: skip
    """A squeeze-and-excite between two convolutions."""

    def numbers_of(*shape: int) -> np.ndarray:
        return numbers(*shape).astype(dtype.numpy)

    g = GraphBuilder("excited", store := ConstantStore())
    image = g.input("x", tensor(dtype, batch, 8, size, size))
    x = g.add("relu", [g.add("conv", [image, g.constant(numbers_of(channels, 8, 3, 3))])])
    mean = g.add("reduce_mean", [x], axes=(2, 3), keepdims=True)
    weights = g.constant(numbers_of(channels, channels, 1, 1))
    scale = g.add(bound, [g.add("conv", [mean, weights])])
    scaled = g.add("mul", [x, scale] if first else [scale, x])
    filters = g.constant(numbers_of(outputs, channels // group, kernel, kernel))
    pads = (kernel // 2,) * 4
    y = g.add("conv", [scaled, filters], pads=pads, group=group)
    return g.finish([y, g.add("neg", [scaled])] if twice else [y]), store


def with_layouts(graph: Graph, store: ConstantStore) -> Graph:
    return choose_layouts(graph, store, parse("x86-64-v3"))


def scaled_shapes(graph: Graph) -> list[int]:
    """The ranks are four everywhere: how many outputs, or images, what is scaled has."""
    return [int(str(n.outputs[0].shape[0])) for n in graph.nodes if n.op == "mul"]


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("layouts", [True, False])
def test_weights_are_scaled_and_not_the_feature_map(kernel, first, layouts):
    graph, store = excited(kernel=kernel, first=first)
    before = with_layouts(graph, store) if layouts else graph
    after = scale_weights(before, store)
    verify(after)
    assert (scaled_shapes(before), scaled_shapes(after)) == ([1], [21])
    (mul,) = (n for n in after.nodes if n.op == "mul")
    assert mul.outputs[0].tensor.layout == mul.inputs[0].tensor.layout
    assert (mul.outputs[0].tensor.layout is not None) == layouts
    x = numbers(1, 8, 20, 20)
    (want,), (got,) = (interpret(g, store, [x]) for g in (graph, after))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    "case",
    [
        {"batch": 2},  # a scale of its own for each image
        {"size": 6},  # fewer pixels than outputs
        {"twice": True},  # the scaled feature map has another reader
        {"channels": 20, "outputs": 20, "group": 2},
        {"bound": "exp"},  # weights might overflow
        {"dtype": dtypes.f16},  # or underflow
    ],
)
def test_the_feature_map_is_scaled_if_smaller_or_illegal(case):
    graph, store = excited(**case)
    before = with_layouts(graph, store)
    assert scale_weights(before, store) == before


def test_it_can_be_switched_off():
    graph, store = excited()
    with options.override(off={"scale_weights"}):
        assert scale_weights(graph, store) is graph


@pytest.mark.parametrize("outputs", [1, 5, 16, 21, 40])
@pytest.mark.parametrize("kernel", [1, 3])
def test_onnxruntime_agrees(outputs, kernel):
    """Panels of all outputs, or with a last one that is not full, or none at all."""
    model = excited_model(outputs, kernel)
    feeds = {"x": numbers(1, 8, 26, 26)}
    want = onnxruntime.InferenceSession(model).run(None, feeds)[0]
    (got,) = ingot.compile(model)(**feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.abs(want).max())


def excited_model(outputs: int, kernel: int) -> bytes:
    shapes = {"a": (19, 8, 3, 3), "b": (19, 19, 1, 1), "c": (outputs, 19, kernel, kernel)}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["first"]),
        helper.make_node("GlobalAveragePool", ["first"], ["mean"]),
        helper.make_node("Conv", ["mean", "b"], ["logit"]),
        helper.make_node("Sigmoid", ["logit"], ["scale"]),
        helper.make_node("Mul", ["first", "scale"], ["scaled"]),
        helper.make_node("Conv", ["scaled", "c"], ["y"], pads=[kernel // 2] * 4),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 26, 26))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(numbers(*shape), name) for name, shape in shapes.items()]
    graph = helper.make_graph(nodes, "excited", [x], [y], weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
