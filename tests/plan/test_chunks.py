"""Launches are split into chunks by their estimated time; results are bit-equal for any count."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot import api, pipeline
from ingot.machine import GENERIC
from ingot.plan.chunks import chunk_launches
from ingot.program import ir
from ingot.program.tables import tables
from ingot.program.text import parse, show
from ingot.support import options
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


def chunks_of(program: ir.Program) -> list[int]:
    return [s.chunks for s in tables(program).launches if isinstance(s, ir.Launch)]


def test_long_launches_have_more_chunks():
    assert max(chunks_of(chunked(matmul(256)))) == 16
    assert max(chunks_of(chunked(matmul(4, 16, 16)))) == 1
    assert set(chunks_of(chunked(matmul("n")))) <= {1, 8} and 8 in chunks_of(chunked(matmul("n")))
    assert all(p <= 8 for p in chunks_of(chunked(small_model())))


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
