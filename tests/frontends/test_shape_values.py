"""Symbolic shape inference: sizes computed in the graph become expressions."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes, ops
from ingot.arith import expr as arith
from ingot.arith.expr import Const, Expr, Opaque, Var
from ingot.frontends.common.limits import MAX_TERMS
from ingot.frontends.common.shape_values import ShapeValues, Unknown
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, tensor

assert ops.__all__
N, T = Var("n"), Var("t")


class Bench:
    """A builder that evaluates every node symbolically, as the walker does."""

    def __init__(self) -> None:
        self.g = GraphBuilder("test", ConstantStore())
        for name in ("n", "t"):
            self.g.symbols[name] = Symbol(name, low=1)
        self.follow = ShapeValues(self.g, 0, lambda unknown: Var(f"bound_{unknown.index}"))

    def add(self, op: str, *inputs: Value, **attrs) -> Value:
        start = len(self.g.nodes)
        value = self.g.add(op, list(inputs), **attrs)
        return self.follow.observe(start).get(value.name, value)

    def sizes(self, *values: arith.IntLike) -> Value:
        exprs = tuple(arith.wrap(v) for v in values)
        return self.add("index_tensor", values=exprs, shape=(len(exprs),))

    def scalar(self, value: arith.IntLike) -> Value:
        return self.add("index_tensor", values=(arith.wrap(value),), shape=())

    def numbers(self, array) -> Value:
        start = len(self.g.nodes)
        value = self.g.constant(np.asarray(array))
        self.follow.observe(start)
        return value

    def data(self, *shape: int, dtype=dtypes.i64) -> Value:
        return self.g.input("data", tensor(dtype, *shape))

    def read(self, value: Value) -> list:
        array = self.follow.lifted(value)
        assert array is not None, f"nothing is known of {value.name}"
        return array.reshape(-1).tolist()

    @property
    def last(self) -> str:
        return self.g.nodes[-1].op


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_movement_keeps_the_elements(bench: Bench) -> None:
    shape = bench.sizes(N, T, 64)
    assert bench.read(bench.add("gather", shape, bench.numbers([-1, 0]), axis=0)) == [64, N]
    assert bench.read(bench.add("slice", shape, starts=(1,), sizes=(2,), steps=(1,))) == [T, 64]
    assert bench.read(bench.add("slice", shape, starts=(2,), sizes=(3,), steps=(-1,))) == [64, T, N]
    assert bench.read(bench.add("concat", shape, bench.sizes(2), axis=0)) == [N, T, 64, 2]
    rows = bench.add("reshape", shape, shape=(3, 1))
    turned = bench.add("transpose", rows, perm=(1, 0))
    assert turned.tensor.static_shape == (1, 3)
    assert bench.read(bench.add("tile", turned, repeats=(2, 1))) == [N, T, 64] * 2
    assert bench.read(bench.add("expand", bench.scalar(N), shape=(2,))) == [N, N]
    assert bench.read(bench.add("fill", bench.scalar(T), shape=(2,))) == [T, T]


def test_known_values_become_sources(bench: Bench) -> None:
    bench.add("mul", bench.scalar(N), bench.scalar(2))
    assert bench.last == "index_tensor"
    bench.add("add", bench.scalar(1), bench.scalar(2))
    assert bench.last == "constant"
    narrow = bench.add("cast", bench.sizes(N, T), to=dtypes.i32, mode="wrap")
    assert [n.op for n in bench.g.nodes[-2:]] == ["index_tensor", "cast"]
    assert bench.read(narrow) == [N, T]


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("add", N, 3, N + 3),
        ("sub", N * 2, N, N),
        ("mul", N, T, N * T),
        ("div", N * 12, 4, N * 3),
        ("div", N + 1, 2, (N + 1) // 2),
        ("mod", N * 4, 2, Const(0)),
        ("min", N, 0, Const(0)),
        ("max", N, 1, N),
        ("max", N, T, arith.maximum(N, T)),
        ("eq", N, -1, Const(0)),
        ("eq", N, N, Const(1)),
        ("lt", N, N + 1, Const(1)),
        ("ge", N, 1, Const(1)),
        ("gt", 0, N, Const(0)),
    ],
)
def test_arithmetic(bench: Bench, op: str, a, b, expected: Expr) -> None:
    attrs = {"fmod": False} if op == "mod" else {}
    assert bench.read(bench.add(op, bench.scalar(a), bench.scalar(b), **attrs)) == [expected]


def test_an_unknown_element_is_an_opaque_leaf(bench: Bench) -> None:
    flag = bench.add("eq", bench.scalar(N), bench.scalar(4))
    assert isinstance(bench.read(flag)[0], Opaque)
    truncated = bench.add("div", bench.scalar(N - 8), bench.scalar(2))  # may be negative
    assert isinstance(bench.read(truncated)[0], Opaque)
    assert bench.last == "div"


def test_where_on_decided_flags(bench: Bench) -> None:
    """The idiom of Expand with -1: where(shape == -1, 1, shape)."""
    shape = bench.sizes(N, -1, 8)
    flags = bench.add("eq", shape, bench.numbers([-1, -1, -1]))
    assert bench.read(bench.add("where", flags, bench.sizes(1, 1, 1), shape)) == [N, 1, 8]


def test_reductions(bench: Bench) -> None:
    shape = bench.sizes(N, 3, T)
    assert bench.read(bench.add("reduce_prod", shape, axes=(0,), keepdims=False)) == [N * T * 3]
    assert bench.read(bench.add("reduce_sum", shape, axes=(0,), keepdims=True)) == [N + T + 3]
    top = bench.read(bench.add("reduce_max", bench.sizes(N, 1), axes=(0,), keepdims=False))
    assert top == [N]


def test_floats_that_serve_sizes(bench: Bench) -> None:
    """floor(cast(n) * 2.5) and ceil(cast(n) / 2): what resizing exporters write."""
    real = bench.add("cast", bench.sizes(N, T * 4), to=dtypes.f32, mode="saturate")
    scaled = bench.add("mul", real, bench.numbers(np.array([2.5, 0.5], np.float32)))
    floored = bench.add("floor", scaled)
    whole = bench.add("cast", floored, to=dtypes.i64, mode="saturate")
    assert bench.read(whole) == [N * 2 + N // 2, T * 2]
    half = bench.add("div", real, bench.numbers(np.array([2.0, 3.0], np.float32)))
    up = bench.add("cast", bench.add("ceil", half), to=dtypes.i64, mode="saturate")
    first = bench.read(up)[0]
    assert [arith.evaluate(first, {"n": n}) for n in (1, 2, 5)] == [1, 1, 3]


def test_inexact_factors_are_not_evaluated(bench: Bench) -> None:
    real = bench.add("cast", bench.scalar(N), to=dtypes.f32, mode="saturate")
    scaled = bench.add("mul", real, bench.numbers(np.float32(0.7)))
    whole = bench.add("cast", bench.add("floor", scaled), to=dtypes.i64, mode="saturate")
    assert isinstance(bench.read(whole)[0], Opaque)


def test_range_over_a_size_has_that_size(bench: Bench) -> None:
    symbol = bench.g.symbol("r")
    zero, one = bench.scalar(0), bench.scalar(1)
    value = bench.add("range", zero, bench.scalar(N), one, symbols=(symbol,))
    assert value.tensor.shape == (N,) and symbol not in bench.g.symbols
    symbol = bench.g.symbol("r")
    value = bench.add("range", bench.scalar(N), one, bench.scalar(-2), symbols=(symbol,))
    (size,) = value.tensor.shape
    assert [arith.evaluate(size, {"n": n}) for n in (1, 2, 3, 8)] == [0, 1, 1, 4]


def test_range_of_numbers_is_a_constant(bench: Bench) -> None:
    symbol = bench.g.symbol("r")
    parts = [bench.scalar(v) for v in (1, 9, 3)]
    value = bench.add("range", *parts, symbols=(symbol,))
    assert bench.last == "constant" and value.tensor.static_shape == (3,)
    assert bench.read(value) == [1, 4, 7] and symbol not in bench.g.symbols


def test_a_range_without_end_is_not_made(bench: Bench) -> None:
    parts = [bench.numbers(np.float32(v)) for v in (0, 1e30, 0.7)]
    bench.add("range", *parts, symbols=(bench.g.symbol("r"),))
    assert bench.last == "range"
    parts = [bench.scalar(v) for v in (0, 1 << 60, 1)]
    assert bench.add("range", *parts, symbols=(bench.g.symbol("r"),)).tensor.shape == (1 << 60,)


def test_data_is_an_opaque_leaf_with_its_index(bench: Bench) -> None:
    lengths = bench.data(3)
    second = bench.add("gather", lengths, bench.numbers([1]), axis=0)
    doubled = bench.add(
        "mul", bench.add("concat", second, bench.sizes(4), axis=0), bench.sizes(2, N)
    )
    leaf = Opaque(Unknown(0, "data", 1))
    assert bench.read(doubled) == [leaf * 2, N * 4]
    assert bench.last == "mul"  # it depends on data, so it stays a computation


def test_range_over_data_is_bound_by_its_element(bench: Bench) -> None:
    count = bench.data()
    symbol = bench.g.symbol("r")
    value = bench.add("range", bench.scalar(0), count, bench.scalar(1), symbols=(symbol,))
    assert value.tensor.shape == (arith.maximum(Var("bound_0"), 0),)


def test_an_index_out_of_range_is_left_to_the_run(bench: Bench) -> None:
    bench.add("gather", bench.numbers([1, 2, 3]), bench.numbers([7]), axis=0)
    assert bench.last == "gather"


def test_large_and_float_tensors_are_left_alone(bench: Bench) -> None:
    big = bench.numbers(np.arange(2000))
    bench.add("add", big, bench.scalar(1))
    assert bench.last == "add"
    weights = bench.numbers(np.ones(100, np.float32))
    bench.add("neg", weights)
    assert bench.last == "neg"


@pytest.mark.parametrize("op", ["mul", "add", "max"])
def test_expressions_that_grow_too_large_become_data(op: str) -> None:
    """n * n, squared again and again: the last are computed when the model runs."""
    bench = Bench()
    size = bench.sizes(N, T)
    for _ in range(40):
        size = bench.add(op, size, bench.add("mul", size, size))
    leaves = [list(arith.walk(e)) for e in bench.read(size)]
    assert all(len(parts) <= MAX_TERMS for parts in leaves)
    assert all(any(isinstance(p, Opaque) for p in parts) for parts in leaves), "still n and t"
    assert bench.last == op
