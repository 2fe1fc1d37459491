"""A kernel as an operator of a graph: types, sizes, splicing, references, compiled answers."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph import interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.text import parse, show
from ingot.graph.types import Symbol, tensor
from ingot.graph.verify import verify
from ingot.loops import ir
from ingot.loops.coverage import covers
from ingot.passes.fold_constants import fold_constants
from ingot.script import *
from tests.kernels.samples import floats, mm_relu
from tests.kernels.test_call import accumulate, blur, interior, split_signs
from tests.refusal import refused

f32_ = dtypes.f32


def graph_of(kernel: ingot.KernelFunction, *shapes, after: str = "", symbols=()) -> Graph:
    g = GraphBuilder("g", ConstantStore())
    for name in symbols:
        g.symbols[name] = Symbol(name)
    dims = [[arith.Var(d) if isinstance(d, str) else d for d in shape] for shape in shapes]
    inputs = [g.input(f"x{i}", tensor(f32_, *shape)) for i, shape in enumerate(dims)]
    outputs = g.add_all("kernel", inputs, **kernel.attrs)
    graph = g.finish([g.add(after, [v]) for v in outputs] if after else outputs)
    verify(graph)
    return graph


def answers(graph: Graph, *arrays: np.ndarray) -> list[np.ndarray]:
    """The compiled answer, seen to be the interpreter's."""
    compiled = ingot.compile(graph)(*arrays)
    for have, want in zip(compiled, interp.run(graph, ConstantStore(), list(arrays)), strict=True):
        np.testing.assert_allclose(have, want, 1e-5, 1e-5)
    return compiled


def test_in_a_graph_between_other_operators():
    a, b = floats(4, 5), floats(5, 6, seed=1)
    (y,) = answers(graph_of(mm_relu, (4, 5), (5, 6), after="neg"), a, b)
    np.testing.assert_allclose(y, -np.maximum(a @ b, 0), 1e-5, 1e-5)


def test_with_symbolic_sizes():
    graph = graph_of(mm_relu, ("n", 5), (5, "j"), symbols=("n", "j"))
    assert [str(v.type) for v in graph.outputs] == ["f32[n, j]"]
    for n, j in ((3, 4), (1, 9)):
        a, b = floats(n, 5), floats(5, j, seed=1)
        np.testing.assert_allclose(answers(graph, a, b)[0], np.maximum(a @ b, 0), 1e-5, 1e-5)


def test_sizes_are_solved_in_symbols():
    graph = graph_of(blur, ("batch",), symbols=("batch",))
    assert str(graph.outputs[0].type) in ("f32[batch - 2]", "f32[-2 + batch]")
    x = floats(9)
    np.testing.assert_allclose(answers(graph, x)[0], x[:-2] + x[1:-1] + x[2:], 1e-5)
    with refused("bad-input", -1, "batch - 2", where="kernel"):
        ingot.compile(graph)(floats(1))


def test_what_is_updated_in_place_is_operand_and_result():
    x, s = floats(5), floats(5, seed=1)
    before = s.copy()
    (y,) = answers(graph_of(accumulate, (5,), (5,)), x, s)
    np.testing.assert_array_equal(y, x + s)
    np.testing.assert_array_equal(s, before)


def test_several_results():
    x = floats(8)
    p, q = answers(graph_of(split_signs, (8,)), x)
    np.testing.assert_array_equal(p + q, x)


def test_what_is_not_written_is_zero():
    assert interior.filled == ()
    x = np.ones(6, np.float32)
    exe = ingot.compile(graph_of(interior, (6,)))
    for _ in range(3):
        np.testing.assert_array_equal(exe(x)[0], [0, 1, 1, 1, 1, 0])


def test_twice_in_one_graph():
    g = GraphBuilder("g", ConstantStore())
    x = g.input("Y", tensor(f32_, 4, 4))  # called as a buffer of the kernel
    y = g.add("kernel", [x, x], source=str(mm_relu))
    z = g.add("kernel", [y, x], source=str(mm_relu))
    a = floats(4, 4)
    once = np.maximum(a @ a, 0)
    np.testing.assert_allclose(answers(g.finish([z]), a)[0], np.maximum(once @ a, 0), 1e-4, 1e-4)


def test_the_graph_prints_and_parses_back():
    graph = graph_of(mm_relu, (4, 5), (5, 6))
    assert parse(show(graph)) == graph


def test_a_scheduled_kernel_as_an_operator():
    fast = mm_relu.schedule()
    a, b = floats(24, 40), floats(40, 32, seed=1)
    exe = ingot.compile(graph_of(fast, (24, 40), (40, 32)))
    np.testing.assert_allclose(exe(a, b)[0], np.maximum(a @ b, 0), 1e-4, 1e-4)


def test_names_of_kernel_and_graph_do_not_meet():
    """Sizes, allocs and loops called as the graph's own symbols and values."""

    @ingot.kernel
    def crossed(m: size, n: size, x1: f32[m, n], x0: f32[n, m]):
        batch = alloc(f32[n, m])
        for i, j in grid(n, m):
            batch[i, j] = x1[j, i]
        for i, j in grid(n, m):
            x0[i, j] = batch[i, j] + 1.0

    graph = graph_of(crossed, ("n", "m"), symbols=("n", "m", "batch"))
    x = floats(3, 5)
    np.testing.assert_array_equal(answers(graph, x)[0], x.T + 1)


# --- demands and refusals -------------------------------------------------------------------------


def test_demands_on_sizes_are_checked_when_the_model_runs():
    exe = ingot.compile(graph_of(split_signs, ("batch",), symbols=("batch",)))
    np.testing.assert_array_equal(exe(np.ones(8, np.float32))[0], np.ones(8))
    with refused("run-failed", "n", 1, 64, 4, where="split_signs", hint=False):
        exe(np.ones(6, np.float32))


@pytest.mark.parametrize(
    ("shapes", "facts"),
    [
        (((4, 5),), (2, "A, B", 1)),
        (((4, 5), (5,)), ("B", "f32[5]", "f32[k, m]")),
        (((4, 5), (6, 7)), (5, 6, "axis 0", "B", "k")),
    ],
)
def test_operands_that_do_not_fit(shapes, facts):
    with refused("bad-type", *facts, where="mm_relu", hint=False):
        graph_of(mm_relu, *shapes)


def test_static_sizes_are_checked_at_once():
    with refused("bad-type", "n", 6, 1, 64, where="split_signs", hint=False):
        graph_of(split_signs, (6,))


# --- references -----------------------------------------------------------------------------------


def test_a_reference_of_the_users_own():
    calls: list[int] = []

    def by_numpy(x):
        calls.append(1)
        return np.cumsum(x, dtype=np.float32)

    @ingot.kernel(reference=by_numpy)
    def running(n: size, X: f32[n], Y: f32[n]):
        for i in serial(n):
            Y[i] = X[i]
        for i in serial(1, n):
            Y[i] += Y[i - 1]

    x = floats(7)
    graph = graph_of(running, (7,))
    np.testing.assert_allclose(answers(graph, x)[0], np.cumsum(x), 1e-5, 1e-5)
    assert calls == [1], "the interpreter asks it, compiled code does not"
    answers(graph_of(running.schedule(lambda sch: None), (7,)), x)
    assert calls == [1, 1]


@pytest.mark.parametrize("is_quick", [False, True])
def test_constants_are_folded_by_a_reference_of_the_users_only(is_quick):
    """The interpreter could take hours over a large constant."""

    def by_numpy(x):
        return x[:-2] + x[1:-1] + x[2:]

    k = ingot.KernelFunction(ir.replace(blur.ir, sizes=(ir.Size("n", 0, 99 + is_quick),)))
    if is_quick:
        k = ingot.KernelFunction(k.ir, reference=by_numpy)
    store = ConstantStore()
    g = GraphBuilder("g", store)
    x = g.input("x", tensor(f32_, 6))
    c = g.add("kernel", [g.constant(np.arange(8, dtype=np.float32))], **k.attrs)
    folded = fold_constants(g.finish([g.add("add", [x, c])]), store)
    assert ("kernel" in {n.op for n in folded.nodes}) is not is_quick
    a = floats(6)
    np.testing.assert_allclose(interp.run(folded, store, [a])[0], a + np.arange(3, 21, 3))


# --- coverage -------------------------------------------------------------------------------------


def test_coverage_sees_through_schedules():
    k = mm_relu
    assert covers(k.ir, "C") and not covers(k.ir, "A")

    def split(sch):
        i, j = sch.loops(sch.block("C"))
        sch.split(i, None, 4)
        sch.split(j, None, 8)

    assert covers(k.schedule(split).ir, "C")


def test_coverage_is_not_claimed_without_reason():
    text = """
def k(n: size, m: size, A: f32[n], B: f32[n], C: f32[n], D: f32[n], E: f32[n, n], F: f32[n]):
    for i in serial(n):
        if A[i] > 0.0:
            B[i] = 1.0
        E[i, i] = 0.0
    for i2 in serial(1, n):
        C[i2] = 1.0
    for i3 in serial(n // 2):
        D[2 * i3] = 1.0
    for i4, q in grid(n, m):
        F[i4] = 1.0
"""
    made = ingot.kernels.parse(text.replace("m: size,", "m: size, Z: f32[m],"))
    assert [p.name for p in made.ir.params if covers(made.ir, p.name)] == []
