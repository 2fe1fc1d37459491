"""Convolutions and pooling over maps of dynamic height and width, compiled once and compared with
ONNX Runtime at many sizes: odd, one pixel, smaller than a tile, several images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import ingot
from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.loops import visit
from ingot.loops.ir import For, If, LoopKind
from ingot.program import ir, tables
from tests.ops.test_winograd import nests

SIZES = [(1, 1, 1), (1, 1, 9), (1, 7, 1), (1, 2, 3), (3, 5, 4), (1, 15, 16), (2, 33, 18)]


@lru_cache
def model_of(
    ins: int, outs: int, kernel: int = 3, pads: Sequence[int] = (1, 1, 1, 1),
    strides: Sequence[int] = (1, 1), height: int | str = "height", before: str = "",
) -> bytes:  # fmt: skip
    """A convolution, a bias and a Relu, after max pooling with an automatic padding if given."""
    rng = np.random.default_rng(ins * outs + kernel)
    weights = rng.standard_normal((outs, ins, kernel, kernel)) / (kernel**2 * ins) ** 0.5
    constants = [
        numpy_helper.from_array(weights.astype(np.float32), "w"),
        numpy_helper.from_array(rng.standard_normal(outs).astype(np.float32), "b"),
    ]
    window: dict[str, Any] = {"kernel_shape": (2, 2), "strides": (2, 2), "auto_pad": before}
    nodes = [helper.make_node("MaxPool", ["x"], ["p"], **window)] if before else []
    source = "p" if before else "x"
    nodes.append(helper.make_node("Conv", [source, "w", "b"], ["c"], pads=pads, strides=strides))
    nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    inputs = [helper.make_tensor_value_info("x", 1, ["n", ins, height, "width"])]
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "conv", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


@lru_cache
def compiled(model: bytes, target: str = "x86-64-v3") -> ingot.Executable:
    return ingot.compile(model, target=target, threads=2)


def check(model: bytes, shape: tuple[int, ...]) -> None:
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    (want,) = onnxruntime.InferenceSession(model).run(None, feeds)
    (got,) = compiled(model)(**feeds)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("batch", "height", "width"), [*SIZES, (1, 130, 70), (3, 61, 59)])
@pytest.mark.parametrize(("ins", "outs"), [(32, 32), (17, 33)])
def test_winograd_in_blocks_of_consecutive_tiles(ins, outs, batch, height, width):
    model = model_of(ins, outs)
    assert nests(compiled(model)) == 1  # the three stages are one kernel
    check(model, (batch, ins, height, width))


@pytest.mark.parametrize(("batch", "width"), [(1, 1), (1, 2), (2, 5), (1, 63), (3, 40)])
def test_winograd_with_weights_that_exceed_the_cache(batch, width):
    model = model_of(256, 256, height=4)
    assert nests(compiled(model)) == 3
    check(model, (batch, 256, 4, width))


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (0, 1, 2, 0), (2, 2, 2, 2), (1, 0, 0, 3)])
@pytest.mark.parametrize(("height", "width"), [(3, 3), (4, 9), (31, 22)])
def test_edges(pads, height, width):
    check(model_of(24, 24, pads=pads), (2, 24, height, width))


@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
@pytest.mark.parametrize(
    ("kernel", "pads", "strides"),
    [(1, (0, 0, 0, 0), (1, 1)), (1, (0, 0, 0, 0), (2, 2)), (3, (1, 1, 1, 1), (2, 2)),
     (5, (2, 2, 2, 2), (1, 1))],
)  # fmt: skip
def test_direct_convolutions(kernel, pads, strides, batch, height, width):
    check(model_of(5, 19, kernel, pads, strides), (batch, 5, height, width))


@pytest.mark.parametrize("before", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("height", "width"), [(5, 5), (6, 9), (17, 30)])
def test_pooling_with_automatic_padding(before, height, width):
    check(model_of(10, 16, pads=(0, 0, 0, 0), before=before), (1, 10, height, width))


def test_a_convolution_without_padding_is_parallel():
    """Its extents are sizes minus two, whose product has four terms."""
    session = api.make_session(target="x86-64-v3")
    model = model_of(3, 10, pads=(0, 0, 0, 0))
    program = pipeline.run_stages(model, session, stop_after="barriers")
    launches = [s for s in tables.walk(program.body) if isinstance(s, ir.Launch)]
    (conv,) = [s for s in launches if s.kernel.startswith("conv")]
    assert arith.free_vars(conv.extent) == {"n", "height", "width"}


def test_a_padded_copy_divides_once_per_row():
    """Its parallel loop is over rows; the loop along a row is inside, with one test per point."""
    session = api.make_session(target="x86-64-v3")
    model = model_of(16, 16, 5, (2, 2, 2, 2))
    program = pipeline.run_stages(model, session, stop_after="schedule")
    loops = [s for _, k in program.kernels for s in visit.walk_stmts(k.body)]
    copies = [s for s in loops if isinstance(s, For) and s.kind is LoopKind.PARALLEL]
    (copy,) = [s for s in copies if any(b.name == "padded" for b in visit.blocks(s.body))]
    assert len(arith.free_vars(copy.extent)) == 2  # images and rows
    inside = [s for s in visit.walk_stmts(copy.body) if isinstance(s, For)]
    assert any(len(arith.free_vars(s.extent)) == 1 for s in inside)  # columns


def test_a_padded_copy_of_one_row_is_parallel_along_it():
    """A batch is probably 1: rows of a map of one row would be one iteration."""
    session = api.make_session(target="x86-64-v3")
    model = model_of(16, 16, 5, (2, 2, 2, 2), height=1)
    program = pipeline.run_stages(model, session, stop_after="schedule")
    loops = [s for _, k in program.kernels for s in visit.walk_stmts(k.body)]
    copies = [s for s in loops if isinstance(s, For) and s.kind is LoopKind.PARALLEL]
    (copy,) = [s for s in copies if any(b.name == "padded" for b in visit.blocks(s.body))]
    assert len(arith.free_vars(copy.extent)) == 2  # images and columns


@lru_cache
def depthwise_model(channels: int, kernel: int, pads: Sequence[int], stride: int) -> bytes:
    """A 1 × 1 convolution, a depthwise one and a Relu: the middle of an inverted bottleneck."""
    rng = np.random.default_rng(channels + kernel)
    shapes = {"w": (channels, 3, 1, 1), "d": (channels, 1, kernel, kernel)}
    constants = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    window: dict[str, Any] = {"pads": pads, "strides": (stride, stride), "group": channels}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Conv", ["a", "d"], ["c"], **window),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 3, "height", "width"])]
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph(nodes, "depthwise", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


@pytest.mark.parametrize(
    ("batch", "height", "width"), [(1, 1, 1), (1, 2, 9), (2, 3, 48), (1, 9, 5)]
)
@pytest.mark.parametrize(
    ("channels", "kernel", "pads", "stride"),
    [(40, 5, (2, 2, 2, 2), 1), (16, 3, (1, 1, 1, 1), 2), (7, 5, (4, 1, 3, 3), 1)],
)
def test_depthwise_with_rows_of_padding(channels, kernel, pads, stride, batch, height, width):
    check(depthwise_model(channels, kernel, pads, stride), (batch, 3, height, width))


def test_depthwise_rows_of_padding_are_skipped():
    """A row of taps is behind one test, its terms have no mask, and only columns are padded."""
    session = api.make_session(target="x86-64-v3")
    model = depthwise_model(40, 5, (2, 2, 2, 2), 1)
    program = pipeline.run_stages(model, session, stop_after="legalize")
    loops = [s for _, k in program.kernels for s in visit.walk_stmts(k.body)]
    taps = [s for s in loops if isinstance(s, For) and s.var.startswith("k")]
    rows = [s for s in taps if s.extent == arith.Const(5)]
    assert rows and all(isinstance(s.body, If) and s.body.orelse is None for s in rows)
    assert all(terms.value_vars(s.body.cond) >= {s.var, "height"} for s in rows)
    assert all(e.mask is None for s in rows for e in visit.loads(s.body))
    (copy,) = {b for _, k in program.kernels for b in k.params if b.name == "padded"}
    sizes = {"n": 1, "height": 3, "width": 48}
    assert arith.evaluate(copy.shape[0], sizes) == 3 * 52 * 40
