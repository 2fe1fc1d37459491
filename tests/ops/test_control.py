"""If, Loop and Scan against ONNX Runtime: captures, sizes that differ, early exits, scans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

from ingot import dtypes
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run
from ingot.graph.ir import Graph
from ingot.graph.opdef import lookup
from ingot.graph.store import ConstantStore
from ingot.graph.types import tensor
from ingot.graph.verify import verify
from tests.ops.peers import compare, error_code, run_ours
from tests.refusal import refused

HEAD = '<ir_version: 10, opset_import: ["" : 17]>\n'


def model_of(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEAD + text)


def same(text: str, **feeds: np.ndarray) -> None:
    """ONNX Runtime and our interpreter agree on the model."""
    model = model_of(text)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    want: Sequence[np.ndarray] = session.run(None, feeds)
    for a, b in zip(run_ours(model, feeds), want, strict=True):
        compare(a, np.asarray(b), 1e-5)


X = np.random.default_rng(10).standard_normal((3, 4)).astype(np.float32)

IF_SAME = """
m (bool flag, float[3,4] x, float[4] b) => (float[3,4] y, float[4] z) {
  y, z = If (flag) <
    then_branch = t () => (float[3,4] y1, float[4] z1) { y1 = Add(x, b)  z1 = Exp(b) },
    else_branch = e () => (float[3,4] y2, float[4] z2) { y2 = Neg(x)  z2 = Abs(b) }
  >
}"""

IF_SIZES = """
m (bool flag, float[3,4] x) => (float[n,4] y, float[k,4] z) {
  one = Constant <value = int64[1] {1}> ()
  y, z = If (flag) <
    then_branch = t () => (float[3,4] y1, float[3,4] z1) { y1 = Exp(x)  z1 = Neg(x) },
    else_branch = e () => (float[1,4] y2, float[1,4] z2) {
      y2 = ReduceMax <axes = [0]> (x)  z2 = ReduceMin <axes = [0]> (x)
    }
  >
  s = Add(y, z)
}"""

IF_DATA = """
m (bool flag, float[6] x) => (int64[1,n] y) {
  y = If (flag) <
    then_branch = t () => (int64[1,p] a) { a = NonZero(x) },
    else_branch = e () => (int64[1,q] c) { f = Floor(x) c = NonZero(f) }
  >
}"""


@pytest.mark.parametrize("flag", [True, False])
def test_if_with_captures_of_either_branch(flag):
    same(IF_SAME, flag=np.array(flag), x=X, b=X[0])


@pytest.mark.parametrize("flag", [True, False])
def test_if_with_sizes_that_differ(flag):
    same(IF_SIZES, flag=np.array(flag), x=X)


@pytest.mark.parametrize("flag", [True, False])
def test_if_with_sizes_found_inside(flag):
    x = np.array([0, 0.5, 2, 0, -1, 0.2], np.float32)
    same(IF_DATA, flag=np.array(flag), x=x)


def test_one_symbol_for_each_pair_of_sizes():
    from ingot.frontends.onnx.walker import import_model

    graph = import_model(model_of(IF_SIZES), ConstantStore())
    (node,) = [n for n in graph.nodes if n.op == "if"]
    assert len(node.attr("symbols")) == 1
    assert node.outputs[0].shape == node.outputs[1].shape


def test_known_condition_leaves_no_branch():
    text = """
    m (float[3,4] x) => (float[3,4] y) {
      flag = Constant <value = bool {0}> ()
      y = If (flag) <
        then_branch = t () => (float[3,4] a) { a = Exp(x) },
        else_branch = e () => (float[3,4] c) { h = Neg(x) c = Abs(h) }
      >
    }"""
    from ingot.frontends.onnx.walker import import_model

    same(text, x=X)
    graph = import_model(model_of(text), ConstantStore())
    assert "if" not in [n.op for n in graph.nodes]


LOOP = """
m (int64 trips, bool go, float[3,4] x, float[4] step, float limit) => (float[3,4] y, float[n,4] s) {
  y, s = Loop (TRIPS, GO, x) <body = b (int64 i, bool c, float[3,4] h) =>
      (bool c2, float[3,4] h2, float[4] row) {
    h2 = Add(h, step)
    row = ReduceMax <axes = [0], keepdims = 0> (h2)
    most = ReduceMax <keepdims = 0> (h2)
    c2 = CONDITION
  }>
}"""


def loop(trips: str = "trips", go: str = "go", condition: str = "Less(most, limit)") -> str:
    text = LOOP.replace("TRIPS", trips).replace("GO", go).replace("CONDITION", condition)
    return text


FEEDS = {"x": X, "step": np.full(4, 0.5, np.float32)}


@pytest.mark.parametrize(
    "trips,go,limit", [(3, True, 99), (9, True, 3), (0, True, 9), (4, False, 9)]
)
def test_loop_ends_by_count_or_by_condition(trips, go, limit):
    feeds = {"trips": np.array(trips), "go": np.array(go), "limit": np.array(limit, np.float32)}
    same(loop(), **feeds, **FEEDS)


def test_loop_without_count_or_condition():
    feeds = {"trips": np.array(4), "go": np.array(True), "limit": np.array(3, np.float32)}
    same(loop(trips=""), **feeds, **FEEDS)
    same(loop(go="", condition="Identity(c)"), **feeds, **FEEDS)


def test_known_trip_count_is_a_size():
    from ingot.frontends.onnx.walker import import_model

    text = loop("five", "", "Identity(c)").replace(
        "y, s =", "five = Constant <value = int64 {5}> ()\n  y, s ="
    )
    graph = import_model(model_of(text), ConstantStore())
    assert graph.outputs[1].shape == (5, 4)
    feeds = {"trips": np.array(4), "go": np.array(True), "limit": np.array(3, np.float32)}
    same(text, **feeds, **FEEDS)


def test_carried_shape_that_grows_is_reported_with_the_node():
    text = """
    m (int64 trips, float[1] x) => (float[n] y) {
      y = Loop (trips, , x) <body = b (int64 i, bool c, float[k] h) =>
          (bool c2, float[j] h2) {
        c2 = Identity(c)  h2 = Concat <axis = 0> (h, x)
      }>
    }"""
    model = model_of(text)
    model.graph.node[0].name = "the_loop"
    assert error_code(model) == "unsupported-op"


def test_nested_loop():
    same(
        """
    m (int64 trips, float[4] x) => (float[4] y) {
      y = Loop (trips, , x) <body = b (int64 i, bool c, float[4] h) => (bool c2, float[4] h2) {
        c2 = Identity(c)
        h2 = Loop (i, , h) <body = inner (int64 j, bool d, float[4] k) => (bool d2, float[4] k2) {
          d2 = Identity(d)  k2 = Add(k, x)
        }>
      }>
    }""",
        trips=np.array(4),
        x=X[0],
    )


def scan_model(**attrs: object) -> onnx.ModelProto:
    """state += a · b, each state scanned; a and b are sliced along axes of their own."""
    names = ["h", "a", "b"]
    nodes = [
        helper.make_node("Mul", ["a", "b"], ["p"]),
        helper.make_node("Add", ["h", "p"], ["h2"]),
        helper.make_node("Identity", ["h2"], ["row"]),
        helper.make_node("Add", ["p", "bias"], ["other"]),
    ]
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes,
        "body",
        [info(n, TensorProto.FLOAT, [2]) for n in names],
        [info(n, TensorProto.FLOAT, [2]) for n in ("h2", "row", "other")],
    )
    scan = helper.make_node(
        "Scan",
        ["h0", "as", "bs"],
        ["last", "rows", "others"],
        body=body,
        num_scan_inputs=2,
        **attrs,
    )
    shapes = {"h0": [2], "as": ["t", 2], "bs": [2, "t"], "bias": [2]}
    graph = helper.make_graph(
        [scan],
        "m",
        [info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_empty_tensor_value_info(n) for n in ("last", "rows", "others")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    return model


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"scan_input_directions": [1, 0]},
        {"scan_output_axes": [1, 0], "scan_output_directions": [0, 1]},
        {"scan_output_axes": [-1, 1]},
    ],
)
def test_scan(attrs):
    rng = np.random.default_rng(11)
    feeds = {
        "h0": rng.standard_normal(2), "as": rng.standard_normal((5, 2)),
        "bs": rng.standard_normal((2, 5)), "bias": rng.standard_normal(2),
    }  # fmt: skip
    feeds = {k: v.astype(np.float32) for k, v in feeds.items()}
    model = scan_model(scan_input_axes=[0, 1], **attrs)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for a, b in zip(run_ours(model, feeds), session.run(None, feeds), strict=True):
        compare(a, np.asarray(b), 1e-5)


def identity_body(dtype: dtypes.DType, *shape: int) -> Graph:
    g = GraphBuilder("body", ConstantStore())
    g.input("i", tensor(dtypes.i64))
    cond = g.input("c", tensor(dtypes.bool_))
    value = g.input("v", tensor(dtype, *shape))
    return g.finish([cond, g.add("identity", [value])])


def test_carried_types_must_fit_the_operands():
    with refused("bad-type", "'v'", "f32[4]", "f32[3]", where="loop", hint=False):
        lookup("loop").infer(
            [None, None, tensor(dtypes.f32, 3)],
            {"body": identity_body(dtypes.f32, 4), "carried": 1},
        )


def test_scan_of_no_iterations_has_the_right_shape():
    g = GraphBuilder("m", ConstantStore())
    sample = lookup("loop").samples()[2]
    values = [
        None if a is None else g.input(f"x{i}", tensor(dtypes.from_numpy(a.dtype), *a.shape))
        for i, a in enumerate(sample.inputs)
    ]
    graph = g.finish(g.add_all("loop", values, **sample.attrs))
    verify(graph)
    arrays = [a for a in sample.inputs if a is not None]
    last, rows = run(graph, g.store, arrays)
    assert rows.shape == (0, 4) and last.tolist() == [0, 0, 0, 0]
