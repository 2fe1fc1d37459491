"""Sequences and optionals against ONNX Runtime: lists known when compiling, and ragged ones that
only a run knows, in loops and branches and as arguments and results of a call."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as P
from onnx import helper

import ingot
from ingot.support.errors import IngotError
from tests.ops.every_way import EveryWay, assert_same
from tests.refusal import refused

RNG = np.random.default_rng(18)
LONG = pytest.mark.long


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


LIST = [floats(2, 3), floats(1, 3), floats(4, 3), floats(0, 3)]

# --- arguments and results ------------------------------------------------------------------------


def test_a_sequence_comes_in_and_goes_out(tmp_path):
    both = EveryWay("""
    m (seq(float[a, 3]) xs, float[b, 3] y, int64 at) =>
        (seq(float[c, 3]) zs, int64 n, float[e, 3] z) {
      zs = SequenceInsert (xs, y, at)
      n = SequenceLength (zs)
      z = SequenceAt (zs, at)
    }""")
    for at in (0, 2, -1, 4):
        both.check(xs=LIST, y=floats(5, 3), at=np.array(at))
    both.check(xs=[], y=floats(5, 3), at=np.array(0))
    both.check_saved(tmp_path, xs=LIST, y=floats(5, 3), at=np.array(1))
    assert [port.name for port in both.exe.inputs] == ["xs", "y", "at"]
    assert str(both.exe.inputs[0]) == "xs: sequence of f32"


@LONG
def test_elements_are_removed():
    both = EveryWay("""
    m (seq(float[a, 3]) xs, int64 at) => (seq(float[c, 3]) zs, seq(float[d, 3]) ys) {
      zs = SequenceErase (xs, at)
      ys = SequenceErase (xs)
    }""")
    for at in (0, 3, -4, -1):
        both.check(xs=LIST, at=np.array(at))


def test_a_position_out_of_range_names_the_node():
    exe = EveryWay("""
    m (seq(float[a, 3]) xs, int64 at) => (float[c, 3] z) { z = SequenceAt (xs, at) }""").exe
    for at in (4, -5):
        with pytest.raises(IngotError, match="SequenceAt") as caught:
            exe(LIST, np.array(at))
        assert caught.value.code == "run-failed"
    (z,) = exe(LIST, np.array(2))
    np.testing.assert_array_equal(z, LIST[2])


def test_arguments_are_checked():
    exe = EveryWay("""
    m (seq(float[a, 3]) xs) => (int64 n) { n = SequenceLength (xs) }""").exe
    assert exe(xs=[np.zeros((1, 3), np.float32)])[0] == 1
    with refused("bad-input", "list of arrays", where="'xs'", hint="list"):
        exe(np.zeros((1, 3), np.float32))
    with refused("bad-input", "2", where="xs[0]", hint=True):
        exe([np.zeros(3, np.float32)])
    with refused("bad-input", "float64", where="xs[1]", hint=True):
        exe([np.zeros((1, 3), np.float32), np.zeros((1, 3))])
    with refused("bad-input", "xs", hint=True):
        exe.run(None, {})
    with refused("bad-input", "'nothing'", hint=True):
        exe.run(["nothing"], {"xs": []})
    with refused("bad-input", "out=", hint=True):
        exe([], out=np.zeros(()))


@LONG
def test_elements_of_a_rank_that_the_file_does_not_give():
    """They pass through; to take one out, its rank must be declared."""
    xs = helper.make_tensor_sequence_value_info("xs", P.FLOAT, None)
    y = helper.make_tensor_value_info("y", P.FLOAT, ["n"])
    nodes = [helper.make_node("SequenceInsert", ["xs", "y"], ["zs"])]
    zs = helper.make_tensor_sequence_value_info("zs", P.FLOAT, None)
    both = EveryWay(_model(nodes, [xs, y], [zs]))
    both.check(xs=[floats(2, 3), floats(), floats(2, 1, 2)], y=floats(4))
    both.check(xs=[], y=floats(4))
    nodes = [
        helper.make_node("SequenceAt", ["xs", "zero"], ["first"]),
        helper.make_node("Add", ["first", "y"], ["sum"]),
    ]
    zero = helper.make_tensor("zero", P.INT64, [], [0])
    total = helper.make_tensor_value_info("sum", P.FLOAT, None)
    model = _model(nodes, [xs, y], [total], [zero])
    with refused("unsupported-op", "rank", where="SequenceAt", hint="value_info"):
        ingot.compile(model)
    model.graph.value_info.append(helper.make_tensor_value_info("first", P.FLOAT, ["a", "b"]))
    both = EveryWay(model)
    both.check(xs=[floats(2, 3), floats()], y=floats(3))
    with pytest.raises(IngotError, match="rank"):
        both.exe([floats(3)], floats(3))


def _model(nodes, inputs, outputs, constants=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "m", inputs, outputs, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


# --- along an axis --------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, *(pytest.param(a, marks=LONG) for a in (2, -1))])
def test_split_by_sizes_and_join_again(axis):
    both = EveryWay(f"""
    m (float[a, b, c] x, int64 chunk, int64[k] sizes) =>
        (seq(float[d, e, f]) xs, seq(float[g, h, i]) ys, float[j, l, m] z, seq(float[n, o]) ones) {{
      xs = SplitToSequence <axis = {axis}> (x, chunk)
      ys = SplitToSequence <axis = {axis}> (x, sizes)
      z = ConcatFromSequence <axis = {axis}> (ys)
      ones = SplitToSequence <axis = {axis}, keepdims = 0> (x)
    }}""")
    both.check(x=floats(5, 5, 5), chunk=np.array(2), sizes=np.array([1, 3, 0, 1]))
    x = floats(*[7 if i == axis % 3 else 2 for i in range(3)])
    both.check(x=x, chunk=np.array(9), sizes=np.array([7]))
    with pytest.raises(IngotError, match="SplitToSequence"):
        both.exe(x, np.array(9), np.array([6]))


@pytest.mark.parametrize("axis", [0, pytest.param(1, marks=LONG), -1])
def test_elements_are_joined_along_a_new_axis(axis):
    both = EveryWay(f"""
    m (seq(float[a, b]) xs) => (float[c, d, e] y) {{
      y = ConcatFromSequence <axis = {axis}, new_axis = 1> (xs)
    }}""")
    both.check(xs=[floats(2, 3), floats(2, 3), floats(2, 3)])
    both.check(xs=[floats(1, 4)])
    with pytest.raises(IngotError, match="ConcatFromSequence"):
        both.exe([floats(2, 3), floats(3, 2)])
    with pytest.raises(IngotError, match="ConcatFromSequence"):
        both.exe([])


# --- loops, branches, functions -------------------------------------------------------------------


def test_a_loop_collects_tensors_of_different_sizes(tmp_path):
    both = EveryWay("""
    m (int64 trips, float[n] x) => (seq(float[k]) parts, float[m] whole, int64 count) {
      none = SequenceEmpty ()
      one = Constant <value = int64[1] {1}> ()
      parts = Loop (trips, , none) <body = b (int64 i, bool c, seq(float[p]) before) =>
          (bool c2, seq(float[q]) after) {
        c2 = Identity (c)
        axis = Constant <value = int64[1] {0}> ()
        start = Constant <value = int64[1] {0}> ()
        end = Unsqueeze (i, axis)
        cut = Slice (x, start, end)
        wide = Concat <axis = 0> (cut, x)
        after = SequenceInsert (before, wide)
      }>
      count = SequenceLength (parts)
      extra = SequenceInsert (parts, x)
      whole = ConcatFromSequence <axis = 0> (extra)
    }""")
    for trips in (0, 1, 6):
        both.check(trips=np.array(trips), x=floats(4))
    both.check_saved(tmp_path, trips=np.array(3), x=floats(4))


@LONG
def test_a_list_is_changed_in_a_loop():
    both = EveryWay("""
    m (int64 trips, float[2] x, float[3] y) => (seq(float[k]) out, float[j] last) {
      start = SequenceConstruct (x, y)
      out = Loop (trips, , start) <body = b (int64 i, bool c, seq(float[p]) before) =>
          (bool c2, seq(float[q]) after) {
        c2 = Identity (c)
        zero = Constant <value = int64 {0}> ()
        first = SequenceAt (before, zero)
        rest = SequenceErase (before, zero)
        double = Concat <axis = 0> (first, first)
        after = SequenceInsert (rest, double)
      }>
      minus = Constant <value = int64 {-1}> ()
      last = SequenceAt (out, minus)
    }""")
    for trips in (0, 1, 5):
        both.check(trips=np.array(trips), x=floats(2), y=floats(3))


@LONG
def test_sequences_in_nested_loops():
    both = EveryWay("""
    m (int64 trips, float[n] x) => (seq(float[k]) out) {
      none = SequenceEmpty ()
      out = Loop (trips, , none) <body = b (int64 i, bool c, seq(float[p]) before) =>
          (bool c2, seq(float[q]) after) {
        c2 = Identity (c)
        after = Loop (i, , before) <body = inner (int64 j, bool d, seq(float[r]) inside) =>
            (bool d2, seq(float[s]) more) {
          d2 = Identity (d)
          step = Cast <to = 1> (j)
          y = Add (x, step)
          zero = Constant <value = int64 {0}> ()
          more = SequenceInsert (inside, y, zero)
        }>
      }>
    }""")
    for trips in (0, 1, 4):
        both.check(trips=np.array(trips), x=floats(3))


@pytest.mark.parametrize("flag", [True, False])
def test_branches_return_sequences_of_different_lengths(flag):
    both = EveryWay("""
    m (bool flag, float[2, n] x, float[3, n] y) =>
        (seq(float[k, l]) out, int64 n2, seq(float[k2, l2]) same, seq(float[e]) none) {
      out, same, none = If (flag) <
        then_branch = t () => (seq(float[a, b]) p, seq(float[c, d]) p2, seq(float[f]) p3) {
          p = SequenceConstruct (x, y, x)
          p2 = SequenceConstruct (x, y)
          p3 = SequenceEmpty ()
        },
        else_branch = e () => (seq(float[a2, b2]) q, seq(float[c2, d2]) q2, seq(float[f2]) q3) {
          q = SequenceConstruct (y)
          q2 = SequenceConstruct (y, x)
          q3 = SequenceEmpty ()
        }
      >
      n2 = SequenceLength (out)
    }""")
    both.check(flag=np.array(flag), x=floats(2, 4), y=floats(3, 4))


@LONG
def test_positions_of_a_list_that_are_known_only_when_running():
    both = EveryWay("""
    m (float[2] x, float[2] y, float[3] z, int64 at) => (float[2] a, float[k] b, seq(float[l]) c) {
      alike = SequenceConstruct (x, y, x)
      a = SequenceAt (alike, at)
      others = SequenceConstruct (x, z, y)
      b = SequenceAt (others, at)
      c = SequenceInsert (others, b, at)
    }""")
    for at in (0, 1, -1):
        both.check(x=floats(2), y=floats(2), z=floats(3), at=np.array(at))


MAP = """
m (SEQUENCE, float[1] bias) => (seq(float[c, d]) ys, seq(int64[2]) shapes) {
  LIST
  ys, shapes = SequenceMap (xs, bias) <body = b (float[e, f] x, float[1] more) =>
      (float[g, h] y, int64[2] shape) { y = Add (x, more)  shape = Shape (y) }>
}"""


def test_a_function_over_the_elements():
    text = MAP.replace("SEQUENCE", "seq(float[a, b]) xs").replace("LIST", "")
    both = EveryWay(text)
    for xs in (LIST, LIST[:1], []):
        want = [x + np.float32(0.5) for x in xs]
        shapes = [np.array(x.shape) for x in xs]
        got = both.check([want, shapes], xs=xs, bias=np.array([0.5], np.float32))
        assert len(got[0]) == len(xs)


def test_a_function_over_the_elements_of_a_list():
    text = MAP.replace("SEQUENCE", "float[2, 3] p, float[1, 3] q")
    both = EveryWay(text.replace("LIST", "xs = SequenceConstruct (p, q)"))
    p, q, bias = floats(2, 3), floats(1, 3), floats(1)
    both.check([[p + bias, q + bias], [np.array([2, 3]), np.array([1, 3])]], p=p, q=q, bias=bias)
    assert "loop" not in [node.op for node in both.graph.nodes]


# --- optionals ------------------------------------------------------------------------------------


def test_an_optional_argument_may_be_left_out(tmp_path):
    both = EveryWay("""
    m (optional(float[n]) x, float[k] y) => (bool has, float[l] z) {
      has = OptionalHasElement (x)
      z = If (has) <
        then_branch = t () => (float[p] a) { b = OptionalGetElement (x)  a = Neg (b) },
        else_branch = e () => (float[q] c) { c = Exp (y) }
      >
    }""")
    x, y = floats(4), floats(3)
    both.check([np.array(True), -x], x=x, y=y)
    both.check([np.array(False), np.exp(y)], x=None, y=y)
    both.check([np.array(False), np.exp(y)], y=y)
    both.check_saved(tmp_path, x=None, y=y)
    assert str(both.exe.inputs[0]) == "x: optional tensor of f32"


def test_an_optional_result_may_be_absent():
    both = EveryWay("""
    m (bool flag, float[n] x) => (optional(seq(float[k])) out, optional(float[l]) one) {
      out, one = If (flag) <
        then_branch = t () => (optional(seq(float[a])) p, optional(float[b]) p2) {
          s = SequenceConstruct (x, x)  p = Optional (s)  y = Exp (x)  p2 = Optional (y)
        },
        else_branch = e () => (optional(seq(float[c])) q, optional(float[d]) q2) {
          q = Optional <type: type_proto = seq(float[n])> ()
          q2 = Optional <type: type_proto = float[n]> ()
        }
      >
    }""")
    x = floats(3)
    both.check([[x, x], np.exp(x)], flag=np.array(True), x=x)
    both.check([None, None], flag=np.array(False), x=x)


def test_an_element_that_is_not_there():
    both = EveryWay("""
    m (optional(float[n]) x) => (float[l] z) { b = OptionalGetElement (x)  z = Neg (b) }""")
    x = floats(4)
    both.check([-x], x=x)
    with pytest.raises(IngotError, match="OptionalGetElement"):
        both.exe(None)


def test_a_loop_makes_a_sequence_of_an_optional_one():
    """Elements of rank 0 and of rank 1 in one sequence, as in ONNX's test_loop16_seq_none."""
    both = EveryWay("""
    m (int64 trips, optional(seq(float)) start, float[5] x) => (seq(float[k]) out) {
      out = Loop (trips, , start) <body = b (int64 i, bool c, optional(seq(float)) before) =>
          (bool c2, seq(float) after) {
        c2 = Identity (c)
        has = OptionalHasElement (before)
        list = If (has) <
          then_branch = t () => (seq(float) p) { p = OptionalGetElement (before) },
          else_branch = e () => (seq(float) q) {
            zero = Constant <value = float {0.0}> ()  q = SequenceConstruct (zero)
          }
        >
        one = Constant <value = int64[1] {1}> ()
        none = Constant <value = int64[1] {0}> ()
        axis = Constant <value = int64[1] {0}> ()
        at = Unsqueeze (i, axis)
        end = Add (at, one)
        cut = Slice (x, none, end)
        after = SequenceInsert (list, cut)
      }>
    }""")
    x = floats(5)
    rows = [x[: i + 1] for i in range(3)]
    zero, two = np.array(0, np.float32), np.array(2, np.float32)
    both.check([[zero, *rows]], trips=np.array(3), start=None, x=x)
    both.check([[two, zero, *rows]], trips=np.array(3), start=[two, zero], x=x)


def test_other_operators_refuse_a_sequence():
    with refused("bad-type", "sequence", where="(Neg)", hint=False):
        EveryWay("m (seq(float[n]) xs) => (float[n] y) { y = Neg (xs) }")
    with refused("bad-type", "a tensor of type f32[n]", where="(SequenceLength)", hint=False):
        EveryWay("m (float[n] x) => (int64 y) { y = SequenceLength (x) }")


TYPES = ["float16", *(pytest.param(t, marks=LONG) for t in ("int64", "double", "bool", "uint8"))]


@pytest.mark.parametrize("dtype", TYPES)
def test_element_types(dtype):
    both = EveryWay(f"""
    m (seq({dtype}[n]) xs, int64 at) => ({dtype}[k] y, seq({dtype}[l]) zs) {{
      y = SequenceAt (xs, at)
      zs = SequenceErase (xs, at)
    }}""")
    kind = np.dtype({"double": "float64"}.get(dtype, dtype))
    xs = [np.arange(n).astype(kind) for n in (3, 0, 5)]
    got = both.exe(xs, np.array(2))
    assert_same(list(got), [xs[2], xs[:2]])
