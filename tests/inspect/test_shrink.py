"""Parts of graphs stand alone, and smaller sizes fit."""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph import interp
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, tensor
from ingot.inspect.case import Case
from ingot.inspect.shrink import cut, fewer_nodes, resized, smaller_sizes
from ingot.inspect.subgraph import computing


def chain() -> Case:
    """relu → matmul → tanh → nonzero …, with a dynamic batch."""
    g = GraphBuilder("chain", ConstantStore())
    g.symbols["batch"] = Symbol("batch", 1)
    x = g.input("x", tensor(dtypes.f32, arith.Var("batch"), 20))
    w = g.constant(np.ones((20, 20), np.float32))
    for op in ("relu", "neg", "tanh"):
        x = g.add(op, [x], op)
    y = g.add("matmul", [x, w], "product")
    symbol = g.symbol("k")
    places = g.add("nonzero", [y], "places", symbols=(symbol,))
    floats = g.add("cast", [places], "floats", to=dtypes.f32)
    graph = g.finish([g.add("abs", [floats], "last"), g.add("add", [y, x], "sum")])
    return Case(graph, g.store, {"x": np.full((3, 20), 0.5, np.float32)})


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if n.op != "constant"]


@pytest.mark.parametrize("wanted", range(8))
def test_every_node_stands_alone(wanted):
    case = chain()
    piece = cut(case, [computing(case.graph)[wanted]])
    assert piece is not None
    outputs = interp.run(piece.graph, piece.store, piece.arrays)
    for value, array in zip(piece.graph.outputs, outputs, strict=True):
        np.testing.assert_array_equal(array, case.values[value.name])


@pytest.mark.parametrize("guilty", [{"tanh"}, {"nonzero"}, {"neg", "add"}, {"abs", "add"}])
def test_only_what_is_needed_is_left(guilty):
    left = fewer_nodes(chain(), lambda case: guilty <= set(ops(case.graph)))
    assert set(ops(left.graph)) == guilty


def test_a_case_that_needs_all_of_it_stays():
    case = chain()
    every = sorted(ops(case.graph))
    left = fewer_nodes(case, lambda x: sorted(ops(x.graph)) == every)
    assert ops(left.graph) == ops(case.graph)


def test_smaller_sizes_keep_the_remainder():
    case = cut(chain(), computing(chain().graph)[:4])
    assert case is not None
    left = smaller_sizes(case, lambda x: x.feeds["x"].shape[1] % 16 == 4)
    assert left.feeds["x"].shape == (3, 4)
    assert left.graph.outputs[0].shape[1] == 4


def test_sizes_that_do_not_fit_are_refused():
    g = GraphBuilder("fixed", ConstantStore())
    x = g.input("x", tensor(dtypes.f32, 12))
    graph = g.finish([g.add("reshape", [x], shape=(3, 4))])
    assert resized(Case(graph, g.store, {"x": np.zeros(12, np.float32)}), 12, 5) is None
