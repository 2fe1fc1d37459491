"""Random control flow for graphs.py: conditionals and loops, one in another, whose bodies hold
constants, reductions, products and sizes that each turn binds anew."""

from __future__ import annotations

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.types import TensorType
from tests.fuzz.pointwise import Rng, pick

DEPTH = 2  # of bodies in bodies


def choice(rng: Rng, g: GraphBuilder, a: Value, x: Value, depth: int = DEPTH) -> Value:
    """if(max(a) > c): f(x) else h(x)"""
    peak = g.add("reduce_max", [a], axes=tuple(range(a.tensor.rank)), keepdims=False)
    test = g.add("gt", [peak, _scalar(g, rng.uniform(-1.0, 3.0))])
    then, other = (_branch(rng, g, x.tensor, depth) for _ in range(2))
    return g.add("if", [test, x], then_branch=then, else_branch=other)


def _branch(rng: Rng, outer: GraphBuilder, type: TensorType, depth: int) -> Graph:
    g = GraphBuilder("branch", outer.store)
    return g.finish([body(rng, g, g.input("x", type), depth - 1)])


def loop(rng: Rng, g: GraphBuilder, x: Value, depth: int = DEPTH) -> tuple[Value, Value]:
    """state = f(state) · given + turn, a few times; the last state, and a row of every turn."""
    inner = GraphBuilder("body", g.store)
    turn = inner.input("i", TensorType(dtypes.i64, ()))
    go_on = inner.input("go_on", TensorType(dtypes.bool_, ()))
    state, given = inner.input("state", x.tensor), inner.input("given", x.tensor)
    number = inner.add("cast", [turn], to=dtypes.f32)
    grown = inner.add("mul", [body(rng, inner, state, depth - 1), given])
    new = inner.add("tanh", [inner.add("add", [grown, number])])
    graph = inner.finish([go_on, new, inner.add("neg", [new])])
    count = int(rng.integers(0, 4))
    trips = g.constant(np.array(count, np.int64))
    last, rows = g.add_all("loop", [trips, None, x, x], body=graph, carried=1, count=count)
    return last, rows


def body(rng: Rng, g: GraphBuilder, x: Value, depth: int) -> Value:
    """Something of x's type, from x."""
    for _ in range(int(rng.integers(1, 4))):
        x = pick(rng, BODIES if depth > 0 else FLAT)(rng, g, x, depth)
    return x


def _pointwise(rng: Rng, g: GraphBuilder, x: Value, depth: int) -> Value:
    y = g.add(pick(rng, ("neg", "tanh", "abs", "identity", "sigmoid")), [x])
    return g.add(pick(rng, ("add", "mul", "min")), [y, x])


def _centred(rng: Rng, g: GraphBuilder, x: Value, depth: int) -> Value:
    if not x.tensor.rank:
        return x
    axis = int(rng.integers(x.tensor.rank))
    return g.add("sub", [x, g.add("reduce_mean", [x], axes=(axis,), keepdims=True)])


def _normed(rng: Rng, g: GraphBuilder, x: Value, depth: int) -> Value:
    return g.add("softmax", [x], axis=x.tensor.rank - 1) if x.tensor.rank else x


def _product(rng: Rng, g: GraphBuilder, x: Value, depth: int) -> Value:
    size = arith.as_int(x.shape[-1]) if x.tensor.rank else None
    if not size:
        return x
    weights = (rng.standard_normal((size, size)) / size).astype(np.float32)
    return g.add("matmul", [x, g.constant(weights)])


def _counted(rng: Rng, g: GraphBuilder, x: Value, depth: int) -> Value:
    """x times a number that takes a size of its own to find: how many stand out by far."""
    if not x.tensor.rank:
        return x
    everything = g.add("reshape", [x], shape=(x.tensor.numel,))
    test = g.add("gt", [everything, _scalar(g, 50.0 if rng.random() < 0.5 else -50.0)])
    name = g.symbol(f"found{int(rng.integers(1 << 30))}")  # unique in all graphs around it too
    points = g.add("nonzero", [test], symbols=(name,))
    places = g.add("reshape", [points], shape=(arith.Var(name),))
    kept = g.add("gather", [everything, places], axis=0)
    mean = g.add("reduce_sum", [g.add("tanh", [kept])], axes=(0,), keepdims=False)
    return g.add("mul", [x, g.add("sigmoid", [mean])])


def _nested_choice(rng: Rng, g: GraphBuilder, x: Value, depth: int) -> Value:
    if not x.tensor.rank:
        return x
    far = g.add("mul", [g.add("sign", [x]), _scalar(g, 9.0)])
    is_empty = any(arith.as_int(d) == 0 for d in x.shape)
    return x if is_empty else choice(rng, g, g.add("abs", [far]), x, depth)


def _nested_loop(rng: Rng, g: GraphBuilder, x: Value, depth: int) -> Value:
    return loop(rng, g, x, depth)[0]


def _scalar(g: GraphBuilder, value: float) -> Value:
    return g.constant(np.float32(value).reshape(()))


FLAT = [_pointwise, _pointwise, _centred, _normed, _product, _counted]
BODIES = [*FLAT, _nested_choice, _nested_loop]
