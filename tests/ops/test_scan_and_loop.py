"""Scan and Loop: axes, directions, nesting, no iterations, batches; against ONNX Runtime, compiled.

ONNX Runtime is given the same models. Scan of opset 8 is compared with numpy as well.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot

onnxruntime.set_default_logger_severity(4)
LONG = pytest.mark.long
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(8)


def info(name, kind=F32, shape=()):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, opset=19, constants=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(made: onnx.ModelProto, *feeds: dict[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(made.SerializeToString())
    exe = ingot.compile(made, jobs=1)
    for given in feeds:
        feed = {name: np.asarray(value) for name, value in given.items()}
        for got, want in zip(exe.run(None, feed), session.run(None, feed), strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_scan_axes_and_directions():
    """A state, two inputs scanned along other axes, one backwards; outputs of ranks 1 to 3."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "a"], ["t"]),
            helper.make_node("Mul", ["t", "b"], ["p"]),
            helper.make_node("ReduceSum", ["p"], ["r"], keepdims=0),
            helper.make_node("Unsqueeze", ["p", "zero"], ["q"]),
        ],
        "body",
        [info("s", F32, ["k"]), info("a", F32, ["k"]), info("b", F32, ["k"])],
        [info("t", F32, ["k"]), info("r"), info("p", F32, ["k"]), info("q", F32, [1, "k"])],
        [numpy_helper.from_array(np.array([0]), "zero")],
    )
    node = helper.make_node(
        "Scan", ["init", "x", "y"], ["last", "r_all", "p_all", "q_all"], body=body,
        num_scan_inputs=2, scan_input_axes=[1, -2], scan_input_directions=[0, 1],
        scan_output_axes=[0, 1, -2], scan_output_directions=[1, 0, 1],
    )  # fmt: skip
    inputs = [info("init", F32, ["k"]), info("x", F32, ["k", "n"]), info("y", F32, ["n", "k"])]
    outputs = [info(n, F32, None) for n in ("last", "r_all", "p_all", "q_all")]
    feeds = [{"init": f32(k), "x": f32(k, n), "y": f32(n, k)} for k, n in ((4, 6), (1, 1), (7, 3))]
    check(model([node], inputs, outputs), *feeds)


def counted(cond: bool) -> onnx.ModelProto:
    """y doubles while it is below a limit, and while there are trips left; scan outputs of ranks 0
    and 2."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["y", "y"], ["y2"]),
            helper.make_node("ReduceMax", ["y2"], ["top"], keepdims=0),
            helper.make_node("Less", ["top", "limit"], ["go"]),
            helper.make_node("Cast", ["i"], ["number"], to=F32),
        ],
        "body",
        [info("i", I64), info("c", BOOL), info("y", F32, [2, 3])],
        [info("go", BOOL), info("y2", F32, [2, 3]), info("number"), info("y2", F32, [2, 3])],
    )
    given = ["trips", "cond" if cond else "", "x"]
    node = helper.make_node("Loop", given, ["last", "numbers", "all"], body=body)
    inputs = [info("trips", I64), info("x", F32, [2, 3]), info("limit")]
    inputs += [info("cond", BOOL)] if cond else []
    return model([node], inputs, [info(n, F32, None) for n in ("last", "numbers", "all")])


@pytest.mark.parametrize("cond", [False, pytest.param(True, marks=LONG)])
def test_loop_ends_by_count_or_condition(cond):
    x = np.abs(f32(2, 3)) + 0.5
    rows = [(0, 1e9), (1, 1e9), (7, 1e9), (50, 20.0)]
    feeds = [{"trips": np.int64(n), "x": x, "limit": np.float32(top)} for n, top in rows]
    if cond:
        feeds = [{**f, "cond": np.bool_(value)} for f in feeds[1:3] for value in (True, False)]
    check(counted(cond), *feeds)


@LONG
def test_nested_loops_with_captures():
    """The inner loop reads values of both graphs around it; the outer one runs 0 to 3 times."""
    inner = helper.make_graph(
        [
            helper.make_node("Mul", ["v", "w"], ["vw"]),
            helper.make_node("Add", ["vw", "u"], ["v2"]),
            helper.make_node("Identity", ["c2"], ["go2"]),
        ],
        "inner",
        [info("j", I64), info("c2", BOOL), info("v", F32, ["k"])],
        [info("go2", BOOL), info("v2", F32, ["k"]), info("vw", F32, ["k"])],
    )
    outer = helper.make_graph(
        [
            helper.make_node("Loop", ["i", "c", "u"], ["u2", "steps"], body=inner),
            helper.make_node("ReduceSum", ["steps"], ["sum"], keepdims=0),
            helper.make_node("Identity", ["c"], ["go"]),
        ],
        "outer",
        [info("i", I64), info("c", BOOL), info("u", F32, ["k"])],
        [info("go", BOOL), info("u2", F32, ["k"]), info("sum")],
    )
    node = helper.make_node("Loop", ["n", "yes", "x"], ["y", "sums"], body=outer)
    yes = numpy_helper.from_array(np.array(True), "yes")
    inputs = [info("n", I64), info("x", F32, ["k"]), info("w", F32, ["k"])]
    outputs = [info("y", F32, None), info("sums", F32, None)]
    feeds = [{"n": np.int64(n), "x": f32(5), "w": f32(5)} for n in (0, 1, 3)]
    check(model([node], inputs, outputs, constants=[yes]), *feeds)


@LONG
def test_a_scan_in_a_scan():
    inner = helper.make_graph(
        [helper.make_node("Add", ["a", "e"], ["b"]), helper.make_node("Mul", ["b", "e"], ["o"])],
        "inner", [info("a"), info("e")], [info("b"), info("o")],
    )  # fmt: skip
    outer = helper.make_graph(
        [helper.make_node("Scan", ["s", "row"], ["s2", "os"], body=inner, num_scan_inputs=1,
                          scan_input_directions=[1])],
        "outer", [info("s"), info("row", F32, ["k"])], [info("s2"), info("os", F32, ["k"])],
    )  # fmt: skip
    node = helper.make_node("Scan", ["z", "x"], ["y", "all"], body=outer, num_scan_inputs=1)
    inputs = [info("z"), info("x", F32, ["n", "k"])]
    outputs = [info("y", F32, None), info("all", F32, None)]
    check(model([node], inputs, outputs), {"z": np.float32(2), "x": f32(4, 5)})


# --- Scan of opset 8 ----------------------------------------------------------------------------


def batched(direction: int, has_lengths: bool) -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Mul", ["t", "t"], ["o"])],
        "body", [info("s", F32, [2]), info("e", F32, [2])],
        [info("t", F32, [2]), info("o", F32, [2])],
    )  # fmt: skip
    node = helper.make_node(
        "Scan", ["lens" if has_lengths else "", "init", "x"], ["last", "all"], body=body,
        num_scan_inputs=1, directions=[direction],
    )  # fmt: skip
    inputs = [info("init", F32, ["b", 2]), info("x", F32, ["b", "n", 2])]
    inputs += [info("lens", I64, ["b"])] if has_lengths else []
    outputs = [info("last", F32, ["b", 2]), info("all", F32, ["b", "n", 2])]
    return model([node], inputs, outputs, opset=8)


@pytest.mark.parametrize(("has_lengths", "direction"), [
    (True, 1), *[pytest.param(*pair, marks=LONG) for pair in ((False, 0), (False, 1), (True, 0))],
])  # fmt: skip
def test_scan_of_opset_8(direction, has_lengths):
    init, x = f32(3, 2), f32(3, 5, 2)
    lens = np.array([5, 2, 0]) if has_lengths else np.full(3, 5)
    last, every = init.copy(), np.zeros_like(x)
    for b, length in enumerate(lens):
        for t in range(length):
            last[b] = last[b] + x[b, length - 1 - t if direction else t]
            every[b, t] = last[b] ** 2
    feeds = {"init": init, "x": x} | ({"lens": lens} if has_lengths else {})
    got = ingot.compile(batched(direction, has_lengths), jobs=1).run(None, feeds)
    np.testing.assert_allclose(got[0], last, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(got[1], every, rtol=1e-6, atol=1e-6)


# --- Pad with axes that are data ----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", pytest.param("edge", marks=LONG)])
def test_pad_with_axes_at_run_time(mode):
    node = helper.make_node("Pad", ["x", "pads", "", "axes"], ["y"], mode=mode)
    inputs = [info("x", F32, ["a", "b", 3]), info("pads", I64, [4]), info("axes", I64, [2])]
    made = model([node], inputs, [info("y", F32, [None, None, None])])
    x, pads = f32(2, 4, 3), np.array([1, 2, 0, 3])
    check(made, *({"x": x, "pads": pads, "axes": np.array(a)} for a in ([0, 2], [-1, 1])))


@LONG
def test_a_pad_axis_out_of_range_fails():
    node = helper.make_node("Pad", ["x", "pads", "", "axes"], ["y"])
    inputs = [info("x", F32, [4, 3]), info("pads", I64, [2]), info("axes", I64, [1])]
    exe = ingot.compile(model([node], inputs, [info("y", F32, [None, None])]), jobs=1)
    with pytest.raises(ingot.IngotError, match="axis is out of range"):
        exe(f32(4, 3), np.array([1, 1]), np.array([2]))
