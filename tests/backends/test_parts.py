"""Launches are cut into parts by what they cost; parts change no bit of the result."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot import api, pipeline
from ingot.backends.parts import cut_launches
from ingot.backends.report import facts_of
from ingot.program import ir
from ingot.program.tables import tables
from ingot.program.text import parse, show
from ingot.support import knobs
from tests.small import small_model


def product(rows: int | str, depth: int = 256, columns: int = 256) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["y"]), helper.make_node("Exp", ["y"], ["z"])],
        "product",
        [
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [rows, depth]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, [depth, columns]),
        ],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [rows, columns])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def cut(model: onnx.ModelProto) -> ir.Program:
    session = api.make_session("cpu", {}, jobs=1)
    program = pipeline.run_stages(model, session, stop_after="barriers")
    return cut_launches(program, facts_of(program))


def parts_of(program: ir.Program) -> list[int]:
    return [s.parts for s in tables(program).launches if isinstance(s, ir.Launch)]


def test_what_takes_long_is_cut_fine():
    assert max(parts_of(cut(product(256)))) == 16
    assert max(parts_of(cut(product(4, 16, 16)))) == 1
    assert set(parts_of(cut(product("n")))) <= {1, 8} and 8 in parts_of(cut(product("n")))
    assert all(p <= 8 for p in parts_of(cut(small_model())))


def test_parts_are_in_the_text():
    program = cut(product(256))
    assert ", 16)" in show(program) and parse(show(program)) == program


def test_a_knob_fixes_the_shares():
    with knobs.override(parts=1):
        assert set(parts_of(cut(product(256)))) == {1}


@pytest.mark.parametrize("rows", [1, 7, 100, 250])
def test_results_are_equal_for_all_parts_and_threads(rows):
    rng = np.random.default_rng(rows)
    a = rng.standard_normal((rows, 256)).astype(np.float32) / 16
    b = rng.standard_normal((256, 256)).astype(np.float32) / 16
    found = []
    for parts in (1, 3, 64):
        with knobs.override(parts=parts):
            exe = ingot.compile(product("n"))
        for exe.threads in (1, 2, 3):
            found += [exe(a, b)[0] for _ in range(5)]
    np.testing.assert_allclose(found[0], np.exp(a @ b), rtol=1e-4)
    assert all(np.array_equal(found[0], each) for each in found)
