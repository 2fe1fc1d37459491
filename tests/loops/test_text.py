"""The text form: everything prints, and what is printed parses back equal."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import f16, f32, i8, i64, u8
from ingot.loops import ir
from ingot.loops.script_parse import parse
from ingot.loops.script_print import show
from tests.loops import kernels
from tests.loops.kernels import X, Y, buf, const, kernel, num, store
from tests.refusal import refused


@pytest.mark.parametrize("make", kernels.ALL, ids=lambda make: make.__name__)
def test_round_trip(make):
    made = make()
    text = show(made)
    again = parse(text)
    assert again == made
    assert show(again) == text


def test_the_example_of_the_design():
    text = '''
@ingot.kernel
def mm_relu(A: f32[128, 64], n: size, B: f32[64, n], C: f32[128, n]):
    """Comments and a docstring are allowed."""
    Y = alloc(f32[128, n])
    for i, j, k in grid(128, n, 64):
        with block("Y", spatial=(i, j), reduce=(k,)) as (vi, vj, vk):
            with init(): Y[vi, vj] = 0.0
            Y[vi, vj] += A[vi, vk] * B[vk, vj]
    for i2, j2 in grid(128, n):
        with block("C", spatial=(i2, j2)) as (wi, wj):
            C[wi, wj] = max(Y[wi, wj], 0.0)
'''
    made = parse(text)
    assert [p.name for p in made.params] == ["A", "B", "C"]
    assert made.sizes == (ir.Size("n"),)
    assert isinstance(made.body, ir.Alloc)
    assert parse(show(made)) == made
    assert "Y[vi, vj] += A[vi, vk] * B[vk, vj]" in show(made)


@pytest.mark.parametrize("name", ["conv_1", "conv/1:0", "not", "🔥"])
def test_name_origin_and_family_survive(name):
    made = ir.Kernel(name, (X,), (), store(X, 0, num(1.0)), "node 'a'\n\"b\"\\", "conv")
    again = parse(show(made))
    assert (again.name, again.origin, again.family) == (made.name, made.origin, made.family)


def test_a_buffer_may_be_called_like_a_function():
    worst = [buf(word, f32, 4) for word in ("max", "select", "f32", "serial", "block", "where")]
    body = ir.seq(*(store(b, 0, ir.Binary("max", b[1], num(0.0))) for b in worst))
    made = kernel(worst, body)
    assert parse(show(made)) == made


def test_untyped_numbers_take_the_type_of_the_other_operands():
    made = parse(
        "def k(a: f16[4], b: u8[4]):\n    a[0] = 2 * a[1]\n    b[1] = select(True, b[0], 7)"
    )
    assert made.body.stmts[0].value.a == num(2.0, f16)
    assert made.body.stmts[1].value.b == num(7, u8)


def test_constants_come_from_outside():
    made = parse("def k(a: f32[N]):\n    for i in range(N):\n        a[i] = 0.0", {"N": 12})
    assert made.params[0].shape == (const(12),)
    assert made.body.stop == const(12)


@pytest.mark.parametrize(
    ("line", "facts", "column"),
    [
        ("X[0] = q", ("q",), 12),
        ("X[0] = 1.0 if", (), 18),
        ("X[0] = nothing(1.0)", ("nothing",), 12),
        ("X[0] = select(True, X[0])", ("select", 3, 2), 12),
        ("W[0] = 0.5", (0.5, "i64"), 12),
        ("t = 1.0", (1.0, "f32"), 9),
        ("X[0] = True and False", ("&", "|"), 12),
        ("q[0] = 1.0", ("q",), 5),
        ("import os", (), 5),
        ("X[0] **= 2.0", ("+=", "-=", "*=", "/="), 5),
        ("for i in walk(4):\n        pass", ("walk",), 14),
        ("with block('b', spatial=(i + 1,)) as (vi,):\n        pass", ("i",), 30),
        ("with block('b') as (vi,):\n        pass", (0, 1), 10),
        ("X[0] = X[0] < X[1] < X[2]", (), 12),
        ("call(dot, X[0:4])", ("dot",), 5),
        ("X[0] = load(X[0], lanes=3)", ("load", "lanes"), 29),
        ("__import__('os')", ("__import__",), 5),
    ],
)
def test_errors_have_line_and_column(line, facts, column):
    with refused("bad-text", *facts, where=f"line 3, column {column}", hint=False):
        parse(f"@ingot.kernel\ndef k(X: f32[16], W: i64[16]):\n    {line}\n")


def test_only_one_function():
    with refused("bad-text", where="line 1, column 1", hint=False):
        parse("x = 1")


def test_annotations_without_a_text_form_are_refused():
    with refused("bad-text", "frozenset()"):
        show(kernels.loop("i", 4, store(X, 0, num(0.0)), annotations=(("bad", frozenset()),)))


# --- random expressions ------------------------------------------------------------------------

KINDS = [f32, f16, i64, i8, u8]
BUFFERS = {kind: buf(f"b_{kind.name}", kind, 16) for kind in KINDS}


def indices() -> st.SearchStrategy[arith.Expr]:
    leaves = st.one_of(
        st.integers(-20, 20).map(arith.Const), st.sampled_from(["i", "n"]).map(arith.Var)
    )
    loaded = st.sampled_from(["i", "n"]).map(lambda v: arith.Opaque(BUFFERS[i64][arith.Var(v)]))

    def grow(inner):
        return st.builds(lambda make, a, b: make(a, b), st.sampled_from(arith.BINARY), inner, inner)

    return st.recursive(st.one_of(leaves, loaded), grow, max_leaves=8)


def literals(kind: dtypes.DType) -> st.SearchStrategy[ir.Expr]:
    if kind.is_float:
        return st.floats(width=64).map(lambda x: num(x, kind))
    return st.integers(int(kind.lowest), int(kind.highest)).map(lambda x: num(x, kind))


@st.composite
def values(draw, kind: dtypes.DType, depth: int = 2) -> ir.Expr:
    if depth == 0:
        leaf = draw(st.integers(0, 2))
        if leaf == 0:
            return draw(literals(kind))
        if leaf == 1 and kind is i64:
            return ir.Index(draw(indices()))
        return BUFFERS[kind][draw(indices())]
    inner = values(kind, depth - 1)
    form = draw(st.sampled_from(["unary", "binary", "select", "cast", "fma", "leaf"]))
    match form:
        case "unary":
            op = draw(st.sampled_from(["neg", "abs"] if kind.is_float else ["neg", "not"]))
            return ir.Unary(op, draw(inner))
        case "binary":
            ops = ["add", "sub", "mul", "div", "min", "max"]
            ops = ops if kind.is_float else list(ir.BINARY)
            return ir.Binary(draw(st.sampled_from(ops)), draw(inner), draw(inner))
        case "select":
            other = draw(st.sampled_from(KINDS))
            pair = values(other, depth - 1)
            cond = ir.Compare(draw(st.sampled_from(ir.COMPARE)), draw(pair), draw(pair))
            return ir.Select(cond, draw(inner), draw(inner))
        case "cast":
            return ir.Cast(draw(values(draw(st.sampled_from(KINDS)), depth - 1)), kind)
        case "fma":
            return ir.Fma(draw(inner), draw(inner), draw(inner))
    return draw(values(kind, 0))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_expressions_round_trip(data):
    kind = data.draw(st.sampled_from(KINDS))
    at, value = data.draw(indices()), data.draw(values(kind))
    body = kernels.loop("i", 4, ir.Store(BUFFERS[kind], (at,), value))
    made = kernel(BUFFERS.values(), body, [ir.Size("n")])
    assert parse(show(made)) == made


def test_nan_payloads_and_signed_zero_survive():
    for value in (math.nan, -math.nan, -0.0, 5e-324, 1.7976931348623157e308):
        made = kernel([X, Y], store(X, 0, num(value)))
        assert parse(show(made)) == made
    assert num(-0.0) != num(0.0)
