"""The hard kinds, compiled: equal to ONNX Runtime and to our interpreters, on 1 and 2 threads."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from ingot import api, pipeline
from ingot.graph import interp as graph_interp
from ingot.program import interp as program_interp
from tests.models.build import HARD, dynamic_sequence, gather_rows, kv_cache, nonzero_gather
from tests.models.peers import assert_all_agree, onnxruntime_answers
from tests.refusal import refused

# sums of f16 products: ONNX Runtime rounds each to f16, Ingot once at the end
LIMITS = {"f16_weights": 2e-3}


@pytest.mark.parametrize("name", HARD)
def test_compiled_equals_everyone(name: str):
    model, feeds = HARD[name]()
    limit = LIMITS.get(name, 1e-4)
    want = onnxruntime_answers(model, feeds)
    session = api.make_session()
    graph = pipeline.run_stages(model, session, stop_after="dce_2")
    inputs = [feeds[value.name] for value in graph.inputs]
    assert_all_agree(graph_interp.run(graph, session.store, inputs), want, limit)
    unplanned = pipeline.run_stages(graph, session, "lower", "lower")
    assert_all_agree(program_interp.run(unplanned, session.store, feeds), want, limit)
    planned = pipeline.run_stages(unplanned, session, "merge_axes", "barriers")
    assert_all_agree(program_interp.run(planned, session.store, feeds), want, limit)
    exe = ingot.Executable(pipeline.run_stages(planned, session, "codegen"))
    answers = []
    for threads in (1, 2):
        exe.threads = threads
        answers.append(exe.run(None, feeds))
        assert_all_agree(answers[-1], want, limit)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*answers)), "threads change the answer"


def test_one_build_serves_every_size():
    model, _ = dynamic_sequence()
    exe = ingot.compile(model)
    for batch, length in ((1, 1), (2, 5), (3, 17), (7, 31), (5, 2)):
        _, feeds = dynamic_sequence(batch, length)
        assert_all_agree(exe.run(None, feeds), onnxruntime_answers(model, feeds))


def test_one_build_finds_any_count():
    model, _ = nonzero_gather()
    exe = ingot.compile(model)
    for kept in (0, 1, 5, 8):
        _, feeds = nonzero_gather(kept)
        assert_all_agree(exe.run(None, feeds), onnxruntime_answers(model, feeds))


def test_index_out_of_range_is_an_error_with_the_nodes_name():
    model, feeds = gather_rows(bad=True)
    exe = ingot.compile(model)
    for threads in (1, 2):
        exe.threads = threads
        with refused("run-failed", 10, where="'Gather_y'", hint=False):
            exe.run(None, feeds)
    _, good = gather_rows()
    assert_all_agree(exe.run(None, good), onnxruntime_answers(model, good))


@pytest.mark.parametrize("write", ["scatter", "mask"])
def test_kv_cache_is_updated_in_place(write: str):
    model, feeds = kv_cache(0, write)
    past = [n for n in feeds if n.startswith("past")]
    pairs = {n: n.replace("past", "present") for n in past}
    exe = ingot.compile(model, state=pairs)
    ours = {n: a.copy() for n, a in feeds.items()}
    theirs = {n: a.copy() for n, a in feeds.items()}
    rng = np.random.default_rng(0)
    for position in range(3):
        for name, array in feeds.items():
            if name == "pos":
                ours[name] = theirs[name] = np.full_like(array, position)
            elif name not in past and array.dtype.kind == "f":
                ours[name] = theirs[name] = rng.standard_normal(array.shape).astype(array.dtype)
        want = onnxruntime_answers(model, theirs)
        got = exe.run(None, ours)
        assert_all_agree(got, want)
        for name, new in pairs.items():
            index = [port.name for port in exe.outputs].index(new)
            assert got[index] is ours[name], "the state's own array is the output"
            theirs[name] = want[index]
