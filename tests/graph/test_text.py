"""Text of graphs: what is printed parses back to an equal graph; damage names its line."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.ir import ConstRef, Graph, Node, Value, make_attrs
from ingot.graph.text import parse, show, show_node
from ingot.graph.types import (
    Layout,
    Quant,
    Symbol,
    TensorType,
    tensor,
)
from tests.refusal import refused

n = arith.Var("n")


def one_node(attrs: dict, type=None) -> Graph:
    out = Value("y", type or tensor(dtypes.f32))
    return Graph("g", (), (out,), (Node("op", (), (out,), make_attrs(attrs), "somewhere"),))


def round_trip(g: Graph) -> Graph:
    text = show(g)
    back = parse(text)
    assert back == g
    assert show(back) == text
    return back


def test_a_graph_reads_like_this():
    text = """\
graph mlp(%x: f32[batch, 64], %past: f32[2]) {
  symbol batch: 1..512 step 8
  symbol k: 0.. from node  # the count
  %w: f32[64, 8] = @8c0e31d5  # fc1.weight
  %y: f32[batch, 8] = matmul(%x, %w)  # fc1
  %"/a/b.0": f32[batch, 8] = clip(%y, _, %x) {axis=-1, by=batch + 1, to=i8}
  state %past -> %y
  return %y, %"/a/b.0"
}
"""
    g = parse(text)
    assert show(g) == text
    assert g.symbols == (Symbol("batch", 1, 512, 8), Symbol("k", 0, None, 1, "node"))
    assert g.symbols[1].origin == "the count"
    assert g.state == (("past", "y"),)
    assert g.nodes[0].attr("value") == ConstRef("8c0e31d5", "f32", (64, 8))
    assert [node.origin for node in g.nodes] == ["fc1.weight", "fc1", ""]
    assert g.nodes[2].inputs == (g.nodes[1].outputs[0], None, g.inputs[0])
    assert g.nodes[2].attr_map == {"axis": -1, "by": arith.Add(arith.Var("batch"), arith.Const(1)),
                                   "to": dtypes.i8}  # fmt: skip


@pytest.mark.parametrize(
    "value",
    [
        0, -3, 1 << 70, 1.0, -1.0, 1e-30, 1e22, math.inf, -math.inf, math.nan, True, False, None,
        "", 'a "quoted"\n# string', "ü\u2028", dtypes.bf16, ConstRef("ab12", "i64", (2, 0)),
        n, n + 1, 2 * n, arith.Sub(n, arith.Const(-1)), arith.Mul(arith.Const(-1), n),
        arith.minimum(n, 4) % 3, (n + 1) // 2, arith.Var("f32"), arith.Var("past len + 1"),
        arith.Var("`"), arith.Var("none"), (), (1,), (1, (2.5, n), ("x",)), (None, True, dtypes.i4),
        one_node({"deep": one_node({"deeper": (1, 2)})}),
    ],
    ids=repr,
)  # fmt: skip
def test_every_kind_of_attribute_comes_back(value):
    g = one_node({"a": value, "b": 1})
    back = round_trip(g).nodes[0].attr("a")
    assert type(back) is type(value)
    assert back == value or back is value


def test_a_constant_size_and_a_number_are_the_same_attribute():
    assert parse(show(one_node({"a": arith.Const(3)}))) == one_node({"a": 3})


@pytest.mark.parametrize(
    "type",
    [
        tensor(dtypes.f8e4m3fn),
        TensorType(dtypes.f32, (n, arith.Const(3)), Layout(((0, 0), (1, 0), (1, 8)))),
        TensorType(dtypes.i8, (n,), None, "gpu:0", Quant((0.5, 1e-7), (0, -3), 1, None)),
        TensorType(dtypes.i4, (n,), Layout(()), "npu", Quant((math.inf,), (0,), None, 32)),
    ],
    ids=str,
)
def test_every_kind_of_type_comes_back(type):
    assert round_trip(one_node({}, type)).outputs[0].type == type


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "x.1",
        "_",
        "/model/layer.0/Add_output_0",
        "1",
        "a b",
        'q"',
        "%",
        "",
        "return",
        "ü",
        "a\nb",
    ],
)
def test_names_onnx_allows_come_back(name):
    x = Value(name, tensor(dtypes.f32))
    y = Value(name + "'", tensor(dtypes.f32))
    node = Node(name, (x, None), (y,), make_attrs({name or "k": 1}), name)
    g = Graph(name, (x,), (y,), (node,), (Symbol(name or "k"),), ((x.name, y.name),))
    back = round_trip(g)
    assert back.name == name
    assert back.nodes[0].origin == name


def test_nodes_without_results_and_several_results_come_back():
    outs = (Value("a", tensor(dtypes.f32)), Value("b", tensor(dtypes.i64, n)))
    g = Graph("g", (), (), (Node("return", (), ()), Node("odd op", (), ()), Node("two", (), outs)))
    assert round_trip(g).nodes[2].outputs == outs


def test_constants_print_as_references():
    ref = ConstRef("ab12", "f32", (2,))
    plain = one_node({}, tensor(dtypes.f32, 2)).nodes[0]
    node = Node("constant", (), plain.outputs, make_attrs({"value": ref}), "w")
    assert show_node(node) == "%y: f32[2] = @ab12  # w"


names = st.text(max_size=6)
sizes = st.recursive(
    st.integers(-9, 9).map(arith.Const) | names.map(arith.Var),
    lambda inner: st.builds(lambda op, a, b: op(a, b), st.sampled_from(arith.BINARY), inner, inner),
    max_leaves=6,
)
attributes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | names | sizes
    | st.sampled_from(sorted(dtypes.TABLE)).map(dtypes.of),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)  # fmt: skip


@given(st.dictionaries(names, attributes, max_size=3), sizes, names)
def test_any_attribute_and_size_comes_back(attrs, size, origin):
    out = Value("y", tensor(dtypes.f32, size))
    node = Node("op", (), (out,), make_attrs(attrs), origin)
    back = round_trip(Graph("g", (), (out,), (node,)))
    assert back.nodes[0].origin == origin


@pytest.mark.parametrize(
    "text, line, facts",
    [
        ("graph g() {\n  return %x\n}", 2, ["%x"]),
        ("graph g() {\n  %x: f33[] = op()\n  return %x\n}", 2, ["'f33'"]),
        ("graph g() {\n  %x: f32[] = op()\n  %x: f32[] = op()\n}", 3, ["%x"]),
        ("graph g() {\n\n  ?\n}", 3, ["'?'"]),
        ("graph g() {\n  %x: f32[n] = @ab\n  return\n}", 2, ["'@ab'"]),
        ("graph g() {\n  return\n}\nmore", 4, ["'more'"]),
        ("graph g() {\n  return", 2, ["'%'"]),
        ("graph g(%x: f32[min(1)]) {\n}", 1, ["min"]),
        ("graph g(%x: f32[]{color=1}) {\n}", 1, ["'color'"]),
        ('graph g() {\n  op() {s="\\q"}\n  return\n}', 2, ['"\\q"']),
        ("graph g(%x: f32[]{quant=3}) {\n}", 1, ["quant=3"]),
        ("", 1, ["'graph'"]),
    ],
)
def test_damage_names_its_line(text, line, facts):
    with refused("bad-text", *facts, where=f"line {line}", hint=False):
        parse(text)


def test_comments_of_ones_own_are_welcome():
    g = parse(
        '# a dump\ngraph g() {  # "odd" one\n  # here\n  op()  # "half" quoted\n  return\n}\n'
    )
    assert g.nodes[0].origin == '"half" quoted'
