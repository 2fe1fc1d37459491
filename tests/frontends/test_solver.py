"""Sizes solved by unification: classes of equal sizes, ranges, divisors, in one walk."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.arith.expr import Const, Expr, Var, minimum
from ingot.frontends.common.names import claim, identifier
from ingot.frontends.common.solver import SizeSolver
from ingot.frontends.onnx.graph_walk import Walker
from ingot.frontends.onnx.walker import import_model
from ingot.graph.opdef import SizeMismatch
from ingot.graph.store import ConstantStore
from ingot.graph.text import parse, show
from tests.frontends.walker_models import simple
from tests.models.parts import info, node
from tests.refusal import refused


def solver(*names: str, **given: int | tuple[int, int | None]) -> SizeSolver:
    made = SizeSolver([], given)
    for name in names:
        made.named(name, name, 0, f"input {name!r}")
    return made


def unify(made: SizeSolver, a: Expr, b: Expr) -> bool:
    return made.unify(SizeMismatch(a, b))


def test_classes_of_equal_sizes_have_one_representative() -> None:
    made = solver("a", "b", "c", "d")
    a, b, c, d = map(Var, "abcd")
    assert unify(made, c, d) and unify(made, b, a) and unify(made, d, b)
    assert {made.resolve(size) for size in (a, b, c, d)} == {a}
    assert list(made.symbols) == ["a"]
    assert unify(made, c, Const(7))
    assert made.resolve(b * 2 + d) == Const(21) and not made.symbols


def test_an_expression_represents_a_size_until_its_own_symbols_do_not() -> None:
    made = solver("total", "past", "n")
    assert unify(made, Var("total"), Var("past") + 1)
    assert unify(made, Var("past"), Var("n"))
    assert made.resolve(Var("total")) == Var("past") + 1
    assert not unify(made, Var("past"), Var("past") + 1), "no size is one more than itself"


def test_ranges_of_a_class_are_intersected() -> None:
    made = solver("n", "m", n=(2, 9), m=(4, 20))
    assert unify(made, Var("n"), Var("m"))
    (symbol,) = made.symbols.values()
    assert (symbol.name, symbol.low, symbol.high) == ("n", 4, 9)
    with refused("bad-option", "'n'", 3, where="'n'", hint=False):
        unify(made, Var("m"), Const(3))
    apart = solver("n", "m", n=(2, 9), m=(10, 20))
    with refused("bad-option", "10", where="'n'", hint=False):
        unify(apart, Var("n"), Var("m"))


def test_a_range_and_a_divisor_are_learnt_from_two_expressions() -> None:
    made = solver("n")
    n: Expr = Var("n")
    assert unify(made, n, minimum(n, 128))
    assert made.symbols["n"].high == 128
    assert unify(made, n, minimum(n, 128)), "they are equal now: stale types are no mismatch"
    assert unify(made, (n + 1) // 2 * 2, n)
    assert list(made.symbols) == ["n_by_2"] and made.symbols["n_by_2"].high == 64
    assert made.resolve(n) == Var("n_by_2") * 2


def test_builders_follow_what_is_learnt() -> None:
    made = solver("n", "m")
    table: dict = {}
    made.share_with(table)
    assert unify(made, Var("n"), Var("m"))
    assert list(table) == ["n"]


def test_names_become_identifiers_used_once() -> None:
    taken: set[str] = {"n"}
    assert [claim(text, taken) for text in ("n", "n", "my batch")] == ["n_1", "n_2", "my_batch"]
    assert identifier("for") == "for_" and identifier("") == "dim"


def test_a_model_is_walked_once_however_many_sizes_are_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walks = []
    walk = Walker.walk_graph
    monkeypatch.setattr(Walker, "walk_graph", lambda *a: (walks.append(1), walk(*a))[1])
    count = 40
    inputs = [info(f"x{i}", [f"n{i}", 3]) for i in range(count)]
    nodes = [node("Relu", "x0", "s0")]
    nodes += [node("Add", f"s{i - 1} x{i}", f"s{i}") for i in range(1, count)]
    last = f"s{count - 1}"
    graph = import_model(
        simple(*nodes, inputs=inputs, outputs=[info(last, [None, 3])]), ConstantStore()
    )
    assert len(walks) == 1
    assert {str(v.type) for v in graph.inputs} == {"f32[n0, 3]"}
    assert {str(n.outputs[0].type) for n in graph.nodes} == {"f32[n0, 3]"}


def test_what_is_learnt_late_reaches_earlier_nodes() -> None:
    """A Reshape by a shape computed before the sizes were known to be equal."""
    nodes = [
        node("Shape", "x", "sizes"), node("Reshape", "flat sizes", "square"),
        node("Add", "x z", "sum"), node("Add", "square sum", "y"),
    ]  # fmt: skip
    inputs = [info("x", ["n", "m"]), info("flat", ["k"]), info("z", [4, "q"])]
    graph = import_model(
        simple(*nodes, inputs=inputs, outputs=[info("y", [None, None])]), ConstantStore()
    )
    assert [str(v.type) for v in graph.inputs] == ["f32[4, m]", "f32[k]", "f32[4, m]"]
    assert {str(n.outputs[0].type) for n in graph.nodes[1:]} == {"f32[4, m]"}


def test_no_size_is_negative() -> None:
    """Two convolutions: a signal that is shorter than their windows has no valid run."""
    weights = np.ones((1, 1, 5), np.float32)
    nodes = [
        node("Conv", "x w", "a", strides=[2]), node("Conv", "a w", "y", strides=[2]),
    ]  # fmt: skip
    given = {"inputs": [info("x", [1, 1, "n"])], "outputs": [info("y", [1, 1, None])]}
    graph = import_model(simple(*nodes, **given, w=weights), ConstantStore())
    (symbol,) = graph.symbols
    assert symbol.low == 9, "9 samples give 3, which give an empty signal"


def test_the_first_dimension_is_probably_a_batch_of_1() -> None:
    graph = import_model(
        simple(
            node("Add", "x z", "y"),
            inputs=[info("x", ["n", "m"]), info("z", ["k"])],
            outputs=[info("y", [None, None])],
        ),
        ConstantStore(),
    )
    assert {s.name: s.likely for s in graph.symbols} == {"n": 1, "m": None}
    assert parse(show(graph)).symbols == graph.symbols
