"""Every pass on random graphs and on the model set: verified, idempotent, equal outputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.onnx.walker import import_model
from ingot.graph.builder import GraphBuilder
from ingot.graph.interp import run
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, tensor
from ingot.graph.verify import verify
from ingot.passes.decompose import decompose
from ingot.passes.fold_batch_norm import fold_batch_norm
from ingot.passes.fold_constants import fold_constants
from ingot.passes.hoist_invariants import hoist_invariants
from ingot.passes.inline_branches import inline_branches
from ingot.passes.merge_common import merge_common
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.passes.simplify_algebra import simplify_algebra
from tests.graph.graphs import agree
from tests.models.build import HARD

PASSES: list[Callable[[Graph, ConstantStore], Graph]] = [
    fold_constants,
    inline_branches,
    hoist_invariants,
    simplify_algebra,
    fold_batch_norm,
    decompose,
    merge_common,
    remove_dead_code,
]
NUMBERS = (0.0, 1.0, 2.0, 3.0, 0.5, -4.0)
MOVES: dict[str, dict] = {
    "transpose": {"perm": (1, 0)},
    "softmax": {"axis": 1},
    "cast": {"to": dtypes.f32},
    "tile": {"repeats": (1, 1)},
}
STEPS = ("neg", "relu", "abs", "identity", *MOVES, "reshape", "slice", "rows", "if",
         "add", "sub", "mul", "div", "pow", "max", "matmul")  # fmt: skip


def branch(op: str, size: arith.Expr) -> Graph:
    g = GraphBuilder(op, ConstantStore())
    return g.finish([g.add(op, [g.input("a", tensor(dtypes.f32, size, size))])])


@st.composite
def random_graphs(draw) -> tuple[Graph, ConstantStore]:
    g = GraphBuilder("random", ConstantStore())
    n = arith.Var("n")
    size: arith.Expr = draw(st.sampled_from([arith.Const(3), n]))
    if size is n:
        g.symbols["n"] = Symbol("n", 1, 5)
    x = g.input("x", tensor(dtypes.f32, size, size))
    values = [x, g.add("abs", [x])]
    constants = [g.constant(np.float32(v)) for v in NUMBERS]
    if size is not n:
        values.append(g.constant(np.arange(9, dtype=np.float32).reshape(3, 3)))
    for _ in range(draw(st.integers(1, 10))):
        op = draw(st.sampled_from(STEPS))
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from([*values, *constants]))
        g.origin = f"step {len(g.nodes)}"
        if op in MOVES:
            values.append(g.add(op, [a], **MOVES[op]))
        elif op == "reshape":
            flat = g.add(op, [a], shape=(size * size,))
            values.append(g.add(op, [flat], shape=(size, size)))
        elif op == "slice":
            values.append(g.add(op, [a], starts=(0, 0), sizes=(size, size), steps=(1, 1)))
        elif op == "rows":
            symbol = g.symbol("k")
            count = g.add("nonzero", [a], symbols=(symbol,)).shape[1]
            number = g.add("index_tensor", [], values=(count,), shape=())
            values.append(g.add("add", [a, g.add("cast", [number], to=dtypes.f32)]))
        elif op == "if":
            flag = draw(st.sampled_from([None, True, False]))
            sums = g.add("reduce_sum", [a], axes=(0, 1), keepdims=False)
            cond = g.constant(np.array(flag)) if flag is not None else g.add("gt", [sums, sums])
            branches = {"then_branch": branch("neg", size), "else_branch": branch("relu", size)}
            values.append(g.add("if", [cond, a], **branches))
        elif op == "matmul":
            values.append(g.add(op, [a, draw(st.sampled_from(values))]))
        elif op in ("add", "sub", "mul", "div", "pow", "max"):
            values.append(g.add(op, [a, b]))
        else:
            values.append(g.add(op, [a]))
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=id))
    return g.finish(outputs), g.store


def nearly(a: np.ndarray, b: np.ndarray) -> None:
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
    np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5 * scale)


@given(random_graphs(), st.permutations(range(len(PASSES))))
@settings(max_examples=60, deadline=None)
def test_passes_in_any_order_keep_the_outputs(made, order):
    graph, store = made
    x = np.random.default_rng(1).uniform(-2, 2, (3, 3)).astype(np.float32)
    wanted = run(graph, store, [x])
    for index in order:
        graph = PASSES[index](graph, store)
        verify(graph)
        assert PASSES[index](graph, store) == graph, PASSES[index].__name__
        for a, b in zip(wanted, run(graph, store, [x]), strict=True):
            nearly(a, b)


@pytest.mark.parametrize("name", sorted(HARD))
def test_the_model_set_keeps_its_outputs(name):
    model, feeds = HARD[name]()
    store = ConstantStore()
    graph = import_model(model, store)
    arrays = [np.asarray(feeds[v.name]) for v in graph.inputs]
    wanted = run(graph, store, arrays)
    outputs = [v.name for v in graph.outputs]
    for function in (*PASSES, *PASSES):
        graph = function(graph, store)
        verify(graph)
        assert function(graph, store) == graph, function.__name__
    assert [v.name for v in graph.outputs] == outputs
    for a, b in zip(wanted, run(graph, store, arrays), strict=True):
        nearly(a, b)


def test_agree_can_fail():
    g = GraphBuilder("g", ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 3))
    one = g.finish([g.add("neg", [x], "y")])
    h = GraphBuilder("h", ConstantStore())
    other = h.finish([h.add("abs", [h.input("x", tensor(dtypes.f32, 3))], "y")])
    with pytest.raises(AssertionError):
        agree(one, other, g.store)
