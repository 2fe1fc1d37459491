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
from tests.ops.peers import compare, run_ours
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


# --- as exporters write them ----------------------------------------------------------------------


@pytest.mark.parametrize("flag", [True, False])
def test_branches_of_one_element_may_differ_in_rank(flag):
    """Paddle mixes rank 0 and rank 1; the result has the higher one."""
    same(
        """
    m (bool flag, float[1] x) => (float[n] y) {
      one = If (flag) <
        then_branch = a () => (float s) { s = Constant <value = float {2.0}> () },
        else_branch = b () => (float[1] v) { v = Neg(x) }
      >
      y = Add(one, x)
    }""",
        flag=np.array(flag),
        x=np.array([3], np.float32),
    )


def test_a_carried_scalar_may_become_a_vector_of_one():
    same(
        """
    m (int64 trips, float h0, float[1] x) => (float[n] y) {
      h = Loop (trips, , h0) <body = b (int64 i, bool c, float h) => (bool c2, float[k] h2) {
        c2 = Identity(c)  h2 = Add(h, x)
      }>
      y = Add(h, x)
    }""",
        trips=np.array(3),
        h0=np.array(1, np.float32),
        x=np.array([2], np.float32),
    )


def test_a_placeholder_that_no_iteration_reads_takes_the_shape_of_the_result():
    same(
        """
    m (int64 trips, float[4] x) => (float[n] y) {
      none = Constant <value = float {0.0}> ()
      sum, y = Loop (trips, , x, none) <body = b (int64 i, bool c, float[4] h, float unset) =>
          (bool c2, float[4] h2, float[4] double) {
        c2 = Identity(c)  h2 = Add(h, x)  double = Add(h2, h2)
      }>
    }""",
        trips=np.array(3),
        x=X[0],
    )


def test_lengths_of_two_loops_meet():
    """Two loops that end by their conditions: that they ran equally often is checked."""
    text = """
    m (int64 first, int64 second, float[2] x) => (float[n, 2] y) {
      true = Constant <value = bool {1}> ()
      a, rows = Loop (, true, x) <body = b (int64 i, bool c, float[2] h) =>
          (bool c2, float[2] h2, float[2] row) {
        one = Constant <value = int64 {1}> ()
        next = Add(i, one)  c2 = Less(next, first)  h2 = Add(h, x)  row = Identity(h2)
      }>
      z, others = Loop (, true, x) <body = e (int64 j, bool d, float[2] k) =>
          (bool d2, float[2] k2, float[2] line) {
        uno = Constant <value = int64 {1}> ()
        more = Add(j, uno)  d2 = Less(more, second)  k2 = Mul(k, x)  line = Identity(k2)
      }>
      y = Add(rows, others)
    }"""
    x = np.array([1.5, -2], np.float32)
    same(text, first=np.array(3), second=np.array(3), x=x)
    model = model_of(text)
    feeds = {"first": np.array(3), "second": np.array(4), "x": x}
    with refused("run-failed", "number of elements", where="(Add)", hint=False):
        run_ours(model, feeds)


def test_a_branch_that_is_taken_for_granted_is_checked_even_if_its_value_is_known():
    """The then branch has the rank that Concat takes; its constant is not folded past the check."""
    text = """
    m (bool flag, int64[1] x) => (int64[2] y) {
      v = If (flag) <
        then_branch = a () => (int64[1] p) { p = Constant <value = int64[1] {7}> () },
        else_branch = b () => (int64[2, 2] q) { q = Constant <value = int64[2, 2] {1, 2, 3, 4}> () }
      >
      y = Concat <axis = 0> (v, x)
    }"""
    x = np.array([5])
    same(text, flag=np.array(True), x=x)
    with refused("run-failed", "else", where="(If)", hint=False):
        run_ours(model_of(text), {"flag": np.array(False), "x": x})
