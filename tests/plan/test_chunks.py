"""Launches are split into chunks by their estimated time; results are bit-equal for any count."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.machine import GENERIC
from ingot.plan.chunks import chunk_launches
from ingot.program import ir
from ingot.program.tables import map_launches, tables
from ingot.program.text import parse, show
from ingot.program.verify import verify
from ingot.support import options
from tests.refusal import refused
from tests.small import small_model


def matmul(rows: int | str, depth: int = 256, columns: int = 256) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"]), helper.make_node("Exp", ["y"], ["z"])],
        "matmul",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [rows, depth]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [depth, columns]),
        ],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [rows, columns])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def chunked(model: onnx.ModelProto) -> ir.Program:
    session = api.make_session("cpu", {}, jobs=1)
    return pipeline.run_stages(model, session, stop_after="chunk_launches")


def chunks_of(program: ir.Program, **sizes: int) -> list[int]:
    launches = [s for s in tables(program).launches if isinstance(s, ir.Launch)]
    return [arith.evaluate(s.chunks, sizes) for s in launches]


def test_long_launches_have_more_chunks():
    assert max(chunks_of(chunked(matmul(256)))) == 16
    assert max(chunks_of(chunked(matmul(4, 16, 16)))) == 1
    assert all(p <= 8 for p in chunks_of(chunked(small_model()), batch=1, n=1))


def test_the_chunks_of_dynamic_launches_follow_from_the_sizes_of_the_call():
    """A launch that is short at these sizes is run by one thread, however long it could be."""
    program = chunked(matmul("n", 16, 16))
    assert max(chunks_of(program, n=1)) <= 1 and 0 in chunks_of(program, n=1)
    assert max(chunks_of(program, n=100_000)) == 8
    assert parse(show(program)) == program


def test_one_iteration_is_not_split_however_long_it_is():
    """The rows of a dynamic GEMM may be one tile: thread 0 runs it, and no queue is asked."""
    program = chunked(matmul("n", 4096, 16))
    launches = [s for s in tables(program).launches if isinstance(s, ir.Launch)]
    dynamic = [s for s in launches if arith.free_vars(s.extent)]
    assert dynamic
    for n in (1, 2, 8, 9, 1000):
        for s in dynamic:
            chunks, extent = (arith.evaluate(e, {"n": n}) for e in (s.chunks, s.extent))
            assert chunks < max(1, extent)


def test_chunks_that_may_exceed_the_counter_are_refused():
    program = chunked(matmul("n"))
    (first, *_) = [s for s in tables(program).launches if isinstance(s, ir.Launch)]
    for chunks in (arith.Var("n"), arith.Const(65), arith.Const(-1), arith.Var("m")):

        def changed(s: ir.Launch, chunks: arith.Expr = chunks) -> ir.Stmt:
            return ir.replace(s, chunks=chunks) if s is first else s

        with refused("bad-program", hint=False):
            verify(ir.replace(program, body=map_launches(program.body, changed)))


def test_slower_memory_makes_launches_longer_and_chunks_more():
    program = chunked(matmul(64, 16, 4096))
    fast = replace(GENERIC, core_memory_bytes_per_ns=1000.0)
    slow = replace(GENERIC, core_memory_bytes_per_ns=1.0)
    few, many = (chunks_of(chunk_launches(program, m)) for m in (fast, slow))
    assert all(a <= b for a, b in zip(few, many)) and few != many


def test_chunks_are_in_the_text():
    program = chunked(matmul(256))
    assert ", 16)" in show(program) and parse(show(program)) == program


def test_a_knob_turns_chunks_off():
    with options.override(chunks=1):
        assert set(chunks_of(chunked(matmul(256)))) == {1}


@pytest.mark.parametrize("rows", [1, 7, 100, 250])
def test_results_are_equal_for_all_chunks_and_threads(rows):
    rng = np.random.default_rng(rows)
    a = rng.standard_normal((rows, 256)).astype(np.float32) / 16
    b = rng.standard_normal((256, 256)).astype(np.float32) / 16
    found = []
    for chunks in (1, 3, 64):
        with options.override(chunks=chunks):
            exe = ingot.compile(matmul("n"))
        for exe.threads in (1, 2, 3):
            found += [exe(a, b)[0] for _ in range(5)]
    np.testing.assert_allclose(found[0], np.exp(a @ b), rtol=1e-4)
    assert all(np.array_equal(found[0], each) for each in found)
