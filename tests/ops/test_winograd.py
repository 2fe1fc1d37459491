"""Winograd convolutions F(2×2, 3×3), compiled, against ONNX Runtime: sizes with and without
blocks, edges, epilogues, dynamic batches."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import ingot
from ingot import api, dtypes, pipeline
from ingot.graph.opdef import lookup
from ingot.graph.types import tensor
from ingot.loops import ir, visit
from ingot.support import options
from tests.refusal import refused

ACTIVATIONS = {
    "relu": ["Relu"], "silu": ["Sigmoid", "Mul"], "mish": ["Softplus", "Tanh", "Mul"],
    "hard_swish": ["HardSwish"], "residual": ["Add"], "none": [],
}  # fmt: skip


def model_of(
    ins: int, outs: int, height: int, width: int, pads=(1, 1, 1, 1), after: str = "relu",
    batch: int | str = 1,
) -> bytes:  # fmt: skip
    rng = np.random.default_rng(ins * outs + height)
    weights = rng.standard_normal((outs, ins, 3, 3)) / (9 * ins) ** 0.5
    constants = [
        numpy_helper.from_array(weights.astype(np.float32), "w"),
        numpy_helper.from_array(rng.standard_normal(outs).astype(np.float32), "b"),
    ]
    nodes, last = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=pads)], "c"
    for i, op in enumerate(ACTIVATIONS[after]):
        second = {"Mul": ["c"], "Add": ["x"]}.get(op, [])
        nodes.append(helper.make_node(op, [last, *second], [f"a{i}"]))
        last = f"a{i}"
    inputs = [helper.make_tensor_value_info("x", 1, [batch, ins, height, width])]
    outputs = [helper.make_empty_tensor_value_info(last)]
    graph = helper.make_graph(nodes, "conv", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def check(model: bytes, *shape: int) -> ingot.Executable:
    feeds = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    compiled = ingot.compile(model, target="x86-64-v3")  # its caches are not this machine's
    (want,) = onnxruntime.InferenceSession(model).run(None, feeds)
    (got,) = compiled(**feeds)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)
    return compiled


def quantised_model(ins: int, outs: int, size: int, extreme: bool) -> bytes:
    """A convolution of bytes; `extreme`: weights of -128, which make the largest sums."""
    rng = np.random.default_rng(ins)
    low, high = (-128, -128) if extreme else (-128, 127)
    given = {
        "sx": np.float32(0.25), "zx": np.uint8(9), "sw": np.float32(2**-9), "zw": np.int8(0),
        "sy": np.float32(2.0**4), "zy": np.uint8(128),
        "w": rng.integers(low, high, (outs, ins, 3, 3), endpoint=True).astype(np.int8),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "sx", "zx"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("QuantizeLinear", ["c", "sy", "zy"], ["y"]),
    ]
    types = [helper.make_tensor_value_info(v, 2, [1, n, size, size])
             for v, n in (("x", ins), ("y", outs))]  # fmt: skip
    constants = [numpy_helper.from_array(np.asarray(v), name) for name, v in given.items()]
    graph = helper.make_graph(nodes, "quantised", types[:1], types[1:], constants)
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


@pytest.mark.parametrize(
    ("ins", "outs", "size", "extreme"),
    [(64, 64, 15, False), (34, 40, 20, False), (128, 96, 56, False), (256, 32, 9, True)],
)
def test_integer_maps_are_exact(ins, outs, size, extreme):
    """In the transformed domain sums are of i16 products; the scales are powers of two, so that
    each output is that of the direct convolution in every bit."""
    model = quantised_model(ins, outs, size, extreme)
    x = np.random.default_rng(1).integers(0, 256, (1, ins, size, size)).astype(np.uint8)
    x = np.full_like(x, 255) if extreme else x
    exe = ingot.compile(model, target="x86-64-v3")
    plain = ingot.compile(model, target="x86-64-v3", options={"off": "winograd"})
    assert "winograd_conv" in exe.report() and "dot=2" in exe.report()
    assert "winograd_conv" not in plain.report()
    np.testing.assert_array_equal(exe(x)[0], plain(x)[0])


def nests(compiled: ingot.Executable) -> int:
    return sum(line.startswith("winograd_conv") for line in compiled.report().splitlines())


@pytest.mark.parametrize(
    ("ins", "outs", "height", "width"),
    [(32, 32, 15, 15), (17, 33, 9, 22), (24, 24, 40, 9), (64, 40, 7, 7), (40, 133, 9, 13),
     (256, 256, 12, 12)],
)  # fmt: skip
def test_stages_one_after_the_other(ins, outs, height, width):
    assert nests(check(model_of(ins, outs, height, width), 1, ins, height, width)) == 3


@pytest.mark.parametrize(
    ("ins", "outs", "height", "width"),
    [(64, 64, 56, 56), (72, 56, 61, 53), (33, 41, 90, 77), (128, 128, 60, 38), (96, 150, 75, 31),
     (100, 140, 99, 17)],
)  # fmt: skip
def test_a_block_through_all_stages(ins, outs, height, width):
    assert nests(check(model_of(ins, outs, height, width), 1, ins, height, width)) == 1


@pytest.mark.parametrize(("k_unroll", "noted"), [(1, 0), (4, 1)])
def test_the_k_loop_of_a_block_s_gemm_is_unrolled(k_unroll, noted):
    with options.override(k_unroll=k_unroll):
        session = api.make_session(target="x86-64-v3")
        program = pipeline.run_stages(model_of(64, 64, 56, 56), session, stop_after="schedule")
    (kernel,) = (k for _, k in program.kernels if k.family == "winograd")
    loops = [s for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For)]
    assert sum((ir.K_UNROLL, 4) in x.annotations for x in loops) == noted


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (0, 1, 2, 0), (2, 2, 2, 2), (1, 0, 0, 3)])
@pytest.mark.parametrize("size", [19, 60])
def test_edges(pads, size):
    check(model_of(56, 48, size, size + 1, pads), 1, 56, size, size + 1)


@pytest.mark.parametrize("after", ACTIVATIONS)
@pytest.mark.parametrize("size", [14, 57])
def test_what_follows_rides_along(after, size):
    check(model_of(64, 64, size, size, after=after), 1, 64, size, size)


@pytest.mark.parametrize("size", [14, 56])
@pytest.mark.parametrize("batch", [1, 3])
def test_dynamic_batch(size, batch):
    compiled = check(model_of(64, 64, size, size, batch="n"), batch, 64, size, size)
    assert nests(compiled) > 0


@pytest.mark.parametrize(
    ("dtype", "points", "grid", "facts", "hint"),
    [
        (dtypes.f32, 16, (2, 3), ("(2, 3)", "(7, 7)"), "(4, 4)"),
        (dtypes.f32, 9, None, (16, "f32[1, 8, 9, 9]", "f32[8, 8, 9]"), True),
        (dtypes.f16, 16, None, ("f32", "f64", "f16[1, 8, 9, 9]"), "conv"),
    ],
)
def test_what_does_not_fit_is_refused(dtype, points, grid, facts, hint):
    types = [tensor(dtype, 1, 8, 9, 9), tensor(dtype, 8, 8, points)]
    with refused("bad-type", *facts, where="winograd_conv", hint=hint):
        lookup("winograd_conv").infer(types, {"grid": grid})
    lookup("winograd_conv").infer(
        [tensor(dtypes.f32, 1, 8, 9, 9), tensor(dtypes.f32, 8, 8, 16)], {"grid": (4, 5)}
    )


@pytest.mark.parametrize(
    ("grid", "block"), [((4, 5), (2, 2)), (None, (1, 1)), ((4, 5), (0, 5)), ((4, 5), (2,))]
)
def test_blocks_of_tiles_divide_the_grid(grid, block):
    types = [tensor(dtypes.f32, 1, 8, 9, 9), tensor(dtypes.f32, 8, 8, 16)]
    with refused("bad-type", str(block), where="winograd_conv", hint="grid"):
        lookup("winograd_conv").infer(types, {"grid": grid, "tile_block": block})
    lookup("winograd_conv").infer(types, {"grid": (4, 5), "tile_block": (2, 5)})
    lookup("winograd_conv").infer(types, {"tile_block": (3,)})  # consecutive tiles


@pytest.mark.parametrize("block", [(0,), (-4,), ()])
def test_blocks_of_consecutive_tiles_are_not_empty(block):
    types = [tensor(dtypes.f32, 1, 8, 9, 9), tensor(dtypes.f32, 8, 8, 16)]
    with refused("bad-type", str(block), where="winograd_conv", hint="grid"):
        lookup("winograd_conv").infer(types, {"tile_block": block})


def test_batches():
    check(model_of(64, 72, 28, 27, batch=5), 5, 64, 28, 27)
    check(model_of(32, 32, 11, 12, batch=4), 4, 32, 11, 12)


@pytest.mark.parametrize("size", [14, 56])
def test_error_is_that_of_a_plain_convolution(size):
    """Against float64, no more than twice as large."""
    model = model_of(64, 64, size, size, after="none")
    x = np.random.default_rng(2).standard_normal((1, 64, size, size)).astype(np.float32)
    weights = numpy_helper.to_array(_constant(model, "w")).astype(np.float64)
    bias = numpy_helper.to_array(_constant(model, "b")).astype(np.float64)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    exact = np.einsum("ncyxij,ocij->noyx", windows, weights, optimize=True)
    exact += bias.reshape(1, -1, 1, 1)
    (fast,) = ingot.compile(model)(x=x)
    with options.override(off={"winograd"}):
        (plain,) = ingot.compile(model)(x=x)
    errors = [np.sqrt(np.mean((y - exact) ** 2)) for y in (fast, plain)]
    assert 0 < errors[0] <= 2 * errors[1]


def _constant(model: bytes, name: str) -> onnx.TensorProto:
    return next(c for c in onnx.load_from_string(model).graph.initializer if c.name == name)
