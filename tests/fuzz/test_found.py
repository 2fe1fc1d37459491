"""What the fuzzers found, each as small as it gets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ingot
from ingot import api, dtypes, pipeline
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, TensorType
from tests.fuzz.harness import Case, beside_a_wall, check
from tests.refusal import refused


def _numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _tanh_times(type: TensorType) -> Graph:
    """A branch that calls its values what the outer graph may call its own."""
    g = GraphBuilder("branch", ConstantStore())
    x = g.input("x", type)
    return g.finish([g.add("mul", [g.add("tanh", [x]), x])])


def test_an_output_whose_name_a_branch_uses_too() -> None:
    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        branch = _tanh_times(v[0].tensor)
        first = g.add("if", [v[1], v[0]], then_branch=branch, else_branch=branch)
        return [first, g.add("mul", [v[0], v[0]])]

    check([Case("names", [_numbers(4), np.array(True)], build)])


def test_a_view_of_what_only_the_run_can_size() -> None:
    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        found = g.symbol("found")
        points = g.add("nonzero", v, symbols=(found,))
        return [g.add("reshape", [points], shape=(arith.Var(found), 1)), points]

    check([Case("view", [np.array([0, 3, 0, 4], np.int32)], build)])


def test_rows_of_a_size_only_the_run_knows() -> None:
    """Their scratch cannot be reserved before the run."""

    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        found = g.symbol("found")
        points = g.add("nonzero", [v[1]], symbols=(found,))
        places = g.add("reshape", [points], shape=(arith.Var(found),))
        kept = g.add("gather", [v[0], places], axis=0)
        turned = g.add("gather", [g.add("transpose", [v[0]], perm=(1, 0)), places], axis=1)
        return [g.add("log_softmax", [kept], axis=0), g.add("softmax", [turned], axis=1)]

    keep = np.arange(40) % 3 > 0
    check([Case("rows", [_numbers(40, 9), keep], build)])


def test_a_float_wraps_into_an_integer_exactly() -> None:
    numbers = [1e19, -1e19, 9.3e18, 2.0**63, -(2.0**63), 2.0**64, 1e30, -7.9, 300.0]
    x = np.array([*numbers, np.inf, -np.inf, np.nan])
    cases = [
        Case(f"to {to}", [x.astype(source)], lambda g, v, to=to: [
            g.add("cast", v, to=to, mode="wrap")
        ])
        for source in (np.float32, np.float64)
        for to in (dtypes.u64, dtypes.i64, dtypes.i32, dtypes.u8)
    ]  # fmt: skip
    check(cases)


def test_an_operator_without_elements() -> None:
    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        cut = g.add("slice", v, starts=(0, 0), sizes=(0, 5), steps=(1, 1))
        return [cut, g.add("softmax", [cut], axis=1), g.add("matmul", [cut, v[0]])]

    check([Case("empty", [_numbers(5, 5)], build)])


def test_halved_sizes_lie_apart_in_the_arena() -> None:
    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        x = v[0]
        return [g.add("group_norm", [x, v[1], v[2]], groups=2, epsilon=1e-5)]

    arrays = [_numbers(1, 4, 3), _numbers(4), _numbers(4)]
    rng = np.random.default_rng(1)
    check([Case("halves", arrays, build)] * 3, rng)


def _compiled(
    build: Callable[[GraphBuilder, Value], list[Value]], *shape: arith.IntLike
) -> ingot.Executable:
    store = ConstantStore()
    g = GraphBuilder("small", store)
    g.symbols["n"] = Symbol("n")
    type = TensorType(dtypes.f32, tuple(arith.wrap(d) for d in shape))
    session = api.make_session(jobs=1)
    session.store = store
    graph = g.finish(build(g, g.input("x", type)))
    return ingot.Executable(pipeline.run_stages(graph, session), threads=2)


def test_a_window_larger_than_its_input_is_refused() -> None:
    def build(g: GraphBuilder, x: Value) -> list[Value]:
        y = g.add("conv", [x, g.constant(np.ones((3, 2, 5), np.float32)), None])
        return [g.add("reduce_mean", [y], axes=(2,), keepdims=False)]

    exe = _compiled(build, 1, 2, arith.Var("n"))
    assert exe(np.ones((1, 2, 5), np.float32))[0].tolist() == [[10.0] * 3]
    with refused("bad-input", -2, "n - 4", where="'conv'"):
        exe(np.ones((1, 2, 2), np.float32))


def test_a_slice_of_what_is_not_there_is_refused() -> None:
    def build(g: GraphBuilder, x: Value) -> list[Value]:
        return [g.add("slice", [x], starts=(3,), sizes=(4,), steps=(1,))]

    exe = _compiled(build, arith.Var("n"))
    assert exe(np.arange(9, dtype=np.float32))[0].tolist() == [3, 4, 5, 6]
    for size in (0, 2, 6):
        walled = beside_a_wall(np.ones(size, np.float32), at_end=True)
        with refused("run-failed", where="slice", hint=False):
            exe(walled)


def test_one_value_as_two_outputs() -> None:
    def build(g: GraphBuilder, x: Value) -> list[Value]:
        y = g.add("neg", [x])
        return [y, g.add("reshape", [y], shape=(2, 2)), y, x, x]

    x = _numbers(4)
    answers = _compiled(build, 4)(x)
    for got, want in zip(answers, [-x, -x.reshape(2, 2), -x, x, x], strict=True):
        np.testing.assert_array_equal(got, want)


def test_points_of_a_tensor_without_elements() -> None:
    """Its loops have no turns and vanish, and so does the store that fills the answer."""

    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        found = g.symbol("found")
        points = g.add("nonzero", [g.add("gt", [v[0], v[1]])], symbols=(found,))
        return [g.add("tanh", [g.add("cast", [points], to=dtypes.f32)])]

    check([Case("points", [np.zeros((0, 3), np.float32), np.float32(0).reshape(())], build)])


@pytest.mark.parametrize("shape", [(2, 3, 4, 0), (0, 3, 4), (2, 0, 4)])
def test_axes_without_elements_are_not_merged(shape: tuple[int, ...]) -> None:
    def build(g: GraphBuilder, v: list[Value]) -> list[Value]:
        return [g.add("sin", v)]

    check([Case("empty", [np.zeros(shape, np.float32)], build)])
