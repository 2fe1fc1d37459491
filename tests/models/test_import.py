"""Every test model imports, verifies, and gives ONNX Runtime's outputs through the interpreter."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ingot.arith import expr as arith
from ingot.frontends.onnx.walker import import_model
from ingot.graph.interp import run
from ingot.graph.ir import Graph
from ingot.graph.store import ConstantStore
from ingot.graph.verify import verify
from tests.models import build
from tests.models.peers import assert_agree, onnxruntime_answers
from tests.models.zoo import light_model
from tests.refusal import refused

TOLERANCE = {"f16_weights": 1e-3}  # half a unit in the last place of an f16

CASES = {
    **build.HARD,
    "bert": build.bert_two_layers,
    "bert_one": partial(build.bert_two_layers, batch=1, length=1),
    "bert_long": partial(build.bert_two_layers, batch=3, length=29),
    "squeezenet": partial(light_model, "squeezenet"),
}


def imported(case: build.Case) -> tuple[Graph, ConstantStore]:
    store = ConstantStore()
    graph = import_model(case[0], store)
    verify(graph)
    return graph, store


def answers(case: build.Case) -> list[np.ndarray]:
    graph, store = imported(case)
    assert [v.name for v in graph.outputs] == [v.name for v in case[0].graph.output]
    return run(graph, store, [case[1][v.name] for v in graph.inputs])


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(name: str) -> None:
    case = CASES[name]()
    expected = onnxruntime_answers(*case)
    for got, want in zip(answers(case), expected, strict=True):
        assert_agree(got, want, TOLERANCE.get(name, 1e-4))


@pytest.mark.parametrize("name", ["resnet50", "shufflenet"])
def test_large_models_import(name: str) -> None:
    """Their answers are compared where they are compiled: numpy takes its time."""
    graph, store = imported(light_model(name))
    assert graph.outputs[0].tensor.static_shape == (1, 1000)
    assert store.total_bytes > 4_000_000


@pytest.mark.parametrize("name", ["dynamic_sequence", "bert", "transformer_block", "residual_cnn"])
def test_shapes_are_in_the_inputs_symbols(name: str) -> None:
    """Nothing of the shape arithmetic is left to data: no symbol is bound by a node."""
    graph, _ = imported(CASES[name]())
    assert {s.source for s in graph.symbols} == {"input"}
    sizes = {n for v in graph.outputs for d in v.tensor.shape for n in arith.free_vars(d)}
    assert sizes <= {"batch", "length"}


def test_bert_knows_its_longest_sequence() -> None:
    """The table of positions has 128 rows, so the length is at most that."""
    graph, store = imported(build.bert_two_layers())
    assert graph.symbol_map["length"].high == 128
    ids = np.zeros((1, 129), np.int64)
    with refused("bad-input", 129, "1..128", where="'length'", hint=False):
        run(graph, store, [ids, ids])


def test_an_index_out_of_range_names_its_node() -> None:
    case = build.gather_rows(bad=True)
    graph, store = imported(case)
    with refused("run-failed", where="'Gather_y'", hint=False):
        run(graph, store, [case[1]["rows"]])


def test_a_cache_filled_step_by_step() -> None:
    """The cache that comes out goes in again; each step sees one more place."""
    proto, feeds = build.kv_cache(0)
    graph, store = imported((proto, feeds))
    for pos in range(8):
        feeds["pos"] = np.array(pos)
        got = run(graph, store, [feeds[v.name] for v in graph.inputs])
        for a, b in zip(got, onnxruntime_answers(proto, feeds)):
            assert_agree(a, b)
        feeds["past_k"], feeds["past_v"] = got[1], got[2]


def test_importing_twice_gives_equal_graphs() -> None:
    for name in ("bert", "loop", "lstm_both", "dynamic_sequence"):
        case = CASES[name]()
        assert imported(case)[0] == imported(case)[0]


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "shufflenet"])
def test_refilled_weights_give_answers_worth_comparing(name: str) -> None:
    for answer in onnxruntime_answers(*light_model(name), threads=2):
        assert np.isfinite(answer).all() and len(np.unique(answer)) > 500
