"""Kernel variants: one row and few steps of a sequence have kernels of their own. A run chooses by
its sizes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.backends.plan_contractions import plan_kernels
from ingot.cost.plan import parse_plan
from ingot.program import interp, ir
from ingot.program.tables import walk
from ingot.program.text import parse, show
from ingot.schedule.table import CPU_RULES
from ingot.support.errors import IngotError
from tests.refusal import check, refused

WEIGHT = np.random.default_rng(0).standard_normal((48, 80)).astype(np.float32) / 7


def model(batch: int | str, length: int | str = 1, dtype: int = TensorProto.FLOAT):
    """A GEMM with an epilogue over (batch, length) rows; the length 1 leaves its axis out."""
    dims = [batch] if length == 1 else [batch, length]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes, "gemm",
        [helper.make_tensor_value_info("x", dtype, [*dims, 48])],
        [helper.make_tensor_value_info("y", dtype, [*dims, 80])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def stage(name: str, given: onnx.ModelProto, target: str = "x86-64-v3", **shapes):
    session = api.make_session(target, shapes, jobs=1)
    return pipeline.run_stages(given, session, stop_after=name), session.store


def choices(program: ir.Program) -> list[ir.IfSize]:
    return [s for s in walk(program.body) if isinstance(s, ir.IfSize)]


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_the_predicate_is_printed_with_the_plan_and_in_the_program(target: str):
    graph, _ = stage("plan_contractions", model("n"), target)
    (plan,) = [n.attr("plans")[0] for n in graph.nodes if n.op == "fused"]
    one, many = parse_plan(plan.partition(": ")[2]).variants
    assert one.max_rows == 1 and many.max_rows is None and "when=rows<=1" in plan
    assert many.tile.rows > 1 and one.tile.columns == many.tile.columns, "they share the panels"
    program, _ = stage("split_variants", model("n"), target)
    (choice,) = choices(program)
    assert "if 1 <= size(n) <= 1:" in show(program) and parse(show(program)) == program
    assert choice.then.sizes == (), "the kernel for one row has the size as a constant"


def test_kernels_whose_rows_are_many_have_no_variants():
    assert not choices(stage("split_variants", model(4))[0])
    assert not choices(stage("split_variants", model("n"), n=(2, 64))[0])
    assert len(choices(stage("split_variants", model("b", "n"))[0])) == 1
    assert len(choices(stage("split_variants", model("b", "n"), n=7)[0])) == 0


@pytest.mark.parametrize("rows", [1, 2, 5, 33])
def test_variants_agree_with_numpy_at_every_level(rows: int):
    x = np.random.default_rng(rows).standard_normal((rows, 48)).astype(np.float32)
    want = np.maximum(x @ WEIGHT, 0)
    for name in ("split_variants", "schedule", "chunk_launches"):
        program, store = stage(name, model("n"))
        (got,) = interp.run(program, store, {"x": x})
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    exe = ingot.compile(model("n"))
    for exe.threads in (1, 2):
        np.testing.assert_allclose(exe(x)[0], want, rtol=1e-5, atol=1e-5)


def test_one_row_agrees_with_a_build_for_one_row():
    """The variant is the kernel that a static size would have, but for the panel width."""
    x = np.random.default_rng(1).standard_normal((1, 48)).astype(np.float32)
    dynamic, static = (ingot.compile(model("n"), shapes=s)(x)[0] for s in ({}, {"n": 1}))
    np.testing.assert_allclose(dynamic, static, rtol=1e-6)


def convolution(length: int | str, space: int = 1, groups: int = 1, outputs: int = 96):
    """A convolution over a sequence, or over `space` axes of that length."""
    taps = np.random.default_rng(2).standard_normal((outputs, 32 // groups, *[3] * space))
    dims = [length] * space
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 2 * space, group=groups)
    graph = helper.make_graph(
        [node], "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, *dims])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, outputs, *[None] * space])],
        [numpy_helper.from_array(taps.astype(np.float32), "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def conv_plans(given: onnx.ModelProto, target: str = "x86-64-v4", **shapes):
    graph, _ = stage("plan_contractions", given, target, **shapes)
    (text,) = [n.attr("plans")[0] for n in graph.nodes if n.op == "fused" and n.attr("plans", ())]
    return parse_plan(text.partition(": ")[2]).variants


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
def test_few_steps_of_a_sequence_have_smaller_tiles(target: str):
    *special, general = conv_plans(convolution("n"), target)
    rows = [plan.max_rows for plan in special]
    assert rows == sorted(rows) and rows and rows[-1] == general.tile.rows // 2
    for plan in special:
        assert plan.tile.rows == plan.max_rows and plan.packing == general.packing
        assert 96 % plan.tile.columns == 0 and plan.tile.columns % general.packing.width == 0
    program, _ = stage("split_variants", convolution("n"), target)
    assert [s.most for s in choices(program)] == rows and parse(show(program)) == program


def test_a_short_tile_spans_panels_to_hide_latency():
    *special, general = conv_plans(convolution("n", outputs=128))
    assert special[0].tile.columns > general.packing.width


def test_maps_long_sequences_and_static_ones_have_no_short_variants():
    assert len(conv_plans(convolution("n", space=2))) == 1
    assert len(conv_plans(convolution("n"), n=(64, 512))) == 1
    assert len(conv_plans(convolution(5))) == 1
    assert len(conv_plans(convolution("n", groups=2))) == 1
    assert all(p.max_rows != 1 for p in conv_plans(convolution("n"), n=(2, 512)))


@pytest.mark.parametrize(("outputs", "groups"), [(96, 1), (128, 1), (100, 1), (64, 2)])
def test_convolutions_of_every_short_length_agree_with_onnxruntime(outputs: int, groups: int):
    given = convolution("n", groups=groups, outputs=outputs)
    exe = ingot.compile(given, threads=2)
    session = onnxruntime.InferenceSession(given.SerializeToString())
    for n in (*range(1, 11), 17, 1):
        x = np.random.default_rng(n).standard_normal((1, 32, n)).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        np.testing.assert_allclose(exe(x)[0], want, rtol=1e-4, atol=1e-4)


def test_variants_of_a_plan_without_rows_are_refused():
    """By an edited text: there are no rows to compare with, so the first could never be chosen."""
    program, _ = stage("dedupe_kernels", model("n"))
    ((name, kernel),) = program.kernels
    ((block, _),) = kernel.plans
    plan = parse_plan("gemm when=rows<=1 axes=0,1 tile=1x2x8 else gemm axes=-,1 tile=1x2x8")
    edited = ir.replace(kernel, plans=((block, plan),))
    with pytest.raises(IngotError) as caught:
        plan_kernels(
            ir.replace(program, kernels=((name, edited),)), api.make_session().target, CPU_RULES
        )
    check(caught.value, "bad-graph", "rows")


@pytest.mark.parametrize(
    "text",
    [
        "gemm when=rows<=1 else gemm when=rows<=2",
        "gemm axes=0,1 else gemm axes=0,1",
        "gemm when=rows<=0 axes=0,1",
    ],
)
def test_bad_variants_are_refused(text: str):
    with pytest.raises(IngotError) as caught:
        parse_plan(text)
    check(caught.value, "bad-text")


@pytest.mark.parametrize("n", [2, 4, 8, 64])
def test_the_estimated_work_is_that_of_the_variants_that_run(n: int):
    """It decides how many threads a call wakes."""
    dynamic, static = (
        ingot.compile(convolution("n", outputs=128), shapes=shapes).package.work_ns
        for shapes in ({}, {"n": n})
    )
    assert arith.evaluate(dynamic, {"n": n}) <= 1.5 * arith.evaluate(static, {})


def test_a_window_that_exceeds_its_input_is_refused_before_any_variant_runs():
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["x"], axis=2),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {"a": [1, 32, "n"], "b": [1, 32, "m"], "y": [1, 96, None]}.items()
    ]
    taps = np.ones((96, 32, 5), np.float32)
    graph = helper.make_graph(
        nodes, "conv", values[:2], values[2:], [numpy_helper.from_array(taps, "w")]
    )
    exe = ingot.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    )
    a, b = np.ones((1, 32, 1), np.float32), np.ones((1, 32, 2), np.float32)
    with refused("bad-input", "small"):
        exe(a, b)
    assert exe(b, np.ones((1, 32, 3), np.float32))[0].shape == (1, 96, 1)
