"""separate_pads: which convolutions get an explicit pad, which do not, and equal outputs."""

from __future__ import annotations

import numpy as np
import onnx
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
from ingot.lower.lower import lower
from ingot.passes.alias_buffers import alias_buffers
from ingot.passes.choose_layouts import choose_layouts
from ingot.passes.fuse import fuse
from ingot.passes.separate_pads import separate_pads
from ingot.program import ir
from ingot.program.tables import walk
from ingot.support import options
from ingot.target import parse

V3 = parse("x86-64-v3")
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def two(size: int = 42, channels: int = 16, depth: int = 8, twice: bool = False) -> tuple:
    """A 1×1 convolution, relu, then a 3×3 convolution with zero padding."""
    g = GraphBuilder("two", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, depth, size, size))
    a = g.add("relu", [g.add("conv", [x, g.constant(numbers(channels, depth, 1, 1))])])
    b = g.add("conv", [a, g.constant(numbers(8, channels, 3, 3))], pads=(1, 0, 2, 1))
    results = [b, g.add("neg", [a])] if twice else [b]
    return g.finish(results), store


def made(graph: Graph, store: ConstantStore) -> Graph:
    result = separate_pads(choose_layouts(graph, store, V3), store, V3)
    verify(result)
    return result


def names(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op in ("pad", "conv")]


def test_padding_becomes_an_explicit_pad_of_a_computed_input():
    graph, store = two()
    result = made(graph, store)
    assert names(result) == ["conv", "pad", "conv"]
    pad = next(n for n in result.nodes if n.op == "pad")
    assert (pad.attr("before"), pad.attr("after")) == ((0, 0, 1, 0), (0, 0, 2, 1))
    assert pad.outputs[0].tensor.layout == pad.inputs[0].tensor.layout
    x = numbers(1, 8, 42, 42)
    (before,), (after,) = (interpret(g, store, [x]) for g in (graph, result))
    np.testing.assert_array_equal(before, after)


def test_the_input_aliases_the_pad_and_only_the_border_is_filled():
    graph, store = two()
    program = lower(alias_buffers(fuse(made(graph, store))), store)
    found = [s for s in walk(program.body) if isinstance(s, ir.Launch)]
    kernels = [s.kernel for s in found]
    assert [k.split(".")[0] for k in kernels if "relayout" not in k] == [
        "conv_relu", "pad_border", "pad_border", "pad_border", "conv",
    ]  # fmt: skip
    (padded,) = {s.args[-1] for s in found if "pad_border" in s.kernel}
    assert next(s for s in found if s.kernel == "conv_relu").args[-1] == padded


@pytest.mark.parametrize(
    "why", ["an input", "two readers", "tiles would be cut short", "small", "switched off"]
)
def test_padding_stays_where_it_does_not_pay(why):
    graph, store = two(7, 512, 512) if "tiles" in why else two(twice=why == "two readers")
    if why == "small":
        graph, store = two(8)
    if why == "an input":
        g = GraphBuilder("one", store := ConstantStore())
        x = g.input("x", tensor(dtypes.f32, 1, 3, 20, 20))
        graph = g.finish([g.add("conv", [x, g.constant(numbers(8, 3, 3, 3))], pads=(1,) * 4)])
    with options.override(off={"alias_buffers"} if why == "switched off" else ()):
        assert "pad" not in names(made(graph, store))


def test_a_long_chain_of_squares_is_walked_once():
    """Each reads the one before twice."""
    g = GraphBuilder("squares", store := ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 1, 8, 48, 48))
    value = g.add("conv", [x, g.constant(numbers(8, 8, 1, 1))])
    for _ in range(60):
        value = g.add("mul", [value, value])
    last = g.add("conv", [value, g.constant(numbers(8, 8, 3, 3))], pads=(1,) * 4)
    assert "pad" in names(made(g.finish([last]), store))


def chain(random: np.random.Generator) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Convolutions one after another: 1-D to 3-D, any padding, strides, groups, a dynamic batch."""
    rank, channels = int(random.integers(1, 4)), int(random.integers(1, 5)) * 4
    space = tuple(int(n) for n in random.integers(9, 15, rank))
    nodes, weights, last, inputs = [], [], "x", channels
    for i in range(4):
        kernel = [int(random.choice((1, 3)))] * rank
        is_depthwise = bool(random.integers(0, 2)) and i > 0
        outputs = inputs if is_depthwise else int(random.integers(2, 9)) * 4
        shape = (outputs, 1 if is_depthwise else inputs, *kernel)
        weights.append(numpy_helper.from_array(
            random.standard_normal(shape).astype(np.float32) * 0.3, f"w{i}"))  # fmt: skip
        pads = [int(n) for n in random.integers(0, 3, 2 * rank)]
        strides = [int(random.integers(1, 3)) if i == 2 else 1] * rank
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=pads,
                     strides=strides, group=inputs if is_depthwise else 1))  # fmt: skip
        nodes.append(
            helper.make_node(str(random.choice(("Relu", "Sigmoid"))), [f"c{i}"], [f"y{i}"])
        )
        last, inputs = f"y{i}", outputs
    batch = int(random.integers(1, 4))
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", channels, *space))
    out = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "chain", [info], [out], weights)
    opsets = [helper.make_opsetid("", 17)]
    return (helper.make_model(graph, opset_imports=opsets, ir_version=8),
            (batch, channels, *space))  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_chains_agree_with_onnxruntime(seed, monkeypatch):
    random = np.random.default_rng(seed)
    model, shape = chain(random)
    x = random.standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, {"x": x})
    monkeypatch.setattr("ingot.passes.separate_pads.MIN_ELEMENTS", 1)
    for threads in (1, 2):
        (got,) = ingot.compile(model, threads=threads)(x)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
