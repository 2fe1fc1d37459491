"""The report: one row a launch, and a reason wherever a kernel is left serial or scalar."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto
from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info
from onnx.numpy_helper import from_array

from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.backends.report import (
    AS_WRITTEN,
    KernelSummary,
    report,
    summarize_kernel,
    summarize_kernels,
)
from ingot.legalize import legalize_kernel
from ingot.legalize.split_kernels import split_kernel
from ingot.loops.script_parse import parse
from ingot.loops.work import kernel_flops
from ingot.runtime.report import HEAD, LaunchRow, MachineModel, lines, refused_steps, table
from ingot.schedule import Schedule
from ingot.schedule.default import CPU_RULES, schedule_kernel
from ingot.schedule.rules import schedule_minimal
from ingot.schedule.rules.explain import UNEXPLAINED
from ingot.target import parse as parse_target
from tests.models.build import HARD
from tests.refusal import is_told
from tests.schedule.common import matmul

AVX2 = parse_target("x86-64-v3")

SERIAL = {
    "too small: 8 elements": """
def k(x: f32[8], y: f32[8]):
    for i in serial(8):
        with block("y", spatial=(i,)) as (v,):
            y[v] = x[v] + 1.0
""",
    "ordered axis: y is read back": """
def k(x: f32[100000], y: f32[100000]):
    for i in serial(99999):
        with block("y", ordered=(i,)) as (v,):
            y[v + 1] = y[v] + x[v]
""",
    "one result: y is updated by every iteration": """
def k(x: f32[100000], y: f32[1]):
    for i in serial(100000):
        with block("y", reduce=(i,)) as (v,):
            with init():
                y[0] = 0.0
            y[0] = y[0] + x[v]
""",
    "parallel(i): block y is not proved to write distinct elements": """
def k(x: f32[100000], at: i64[100000], y: f32[100000]):
    for i in serial(100000):
        with block("y", spatial=(i,)) as (v,):
            y[at[v]] = x[v]
""",
    "opaque loop": """
def k(go: i64[1], y: f32[1]):
    while go[0] > 0:
        y[0] = y[0] * 0.5
""",
}

SCALAR = {
    "too small: 1 element": """
def k(x: f32[1], y: f32[1]):
    for i in serial(1):
        with block("y", spatial=(i,)) as (v,):
            y[v] = x[v]
""",
    "data-dependent index into x": """
def k(x: f32[100000], at: i64[100000], y: f32[100000]):
    for i in serial(100000):
        with block("y", spatial=(i,)) as (v,):
            y[v] = x[at[v]]
""",
    "strided access to x": """
def k(x: f32[1000, 100], y: f32[1000]):
    for i, j in grid(1000, 100):
        with block("y", spatial=(i,), reduce=(j,)) as (v, w):
            with init():
                y[v] = 0.0
            y[v] = y[v] + x[v, w]
""",
    "a check that may fail at each element": """
def k(at: i64[100000]):
    for i in serial(100000):
        with block("check", spatial=(i,)) as (v,):
            if at[v] < 0:
                fail("negative", at[v])
""",
}


def scheduled(text: str) -> KernelSummary:
    """The summary of the only nest of a kernel under its default schedule."""
    made = schedule_kernel(parse(text), AVX2, "elementwise").finished()
    (nest,) = split_kernel(made).kernels
    return summarize_kernel(legalize_kernel(nest, AVX2))


@pytest.mark.parametrize("reason", SERIAL)
def test_serial_reasons(reason: str):
    summary = scheduled(SERIAL[reason])
    assert not summary.is_parallel and reason in summary.why_serial


@pytest.mark.parametrize("reason", SCALAR)
def test_scalar_reasons(reason: str):
    summary = scheduled(SCALAR[reason])
    assert summary.lanes == 1 and reason in summary.why_scalar


def test_a_kernel_of_size_0_says_why_it_is_serial_and_scalar():
    program = pipeline.run_stages(empty_sum(), api.make_session("x86-64-v3"), stop_after="barriers")
    (row,) = report(program, summarize_kernels(program))
    assert row.is_serial and row.lanes == 1
    assert is_told("0 elements", row.why_serial) and is_told("0 elements", row.why_scalar)


def empty_sum() -> ModelProto:
    names = {name: make_tensor_value_info(name, 1, (0, 8)) for name in ("x", "y", "z")}
    node = make_node("Add", ["x", "y"], ["z"])
    return make_model(make_graph([node], "empty", [names["x"], names["y"]], [names["z"]]))


def test_a_kernel_that_no_rule_scheduled_says_so():
    summary = summarize_kernel(
        parse("""
def k(x: f32[100000], y: f32[100000]):
    for i in serial(100000):
        y[i] = x[i]
""")
    )
    assert summary.why_serial == summary.why_scalar == AS_WRITTEN


def test_what_legalize_could_not_do_is_a_reason():
    sch = Schedule(matmul(4, 8, 3))
    sch.parallel(sch.loops(sch.block("Z"))[-1])
    *_, last = split_kernel(sch.kernel).kernels
    summary = summarize_kernel(legalize_kernel(last, AVX2))
    assert not summary.is_parallel and is_told("outermost", summary.why_serial)


def test_a_limit_that_was_reached_is_a_reason():
    written = parse(SERIAL["one result: y is updated by every iteration"])
    made = schedule_minimal(written, CPU_RULES).finished()
    summary = summarize_kernel(legalize_kernel(split_kernel(made).kernels[-1], AVX2))
    assert is_told("limit", summary.why_serial) and is_told("limit", summary.why_scalar)


def test_a_good_kernel_has_nothing_to_explain():
    kernel = parse("""
def k(n: size(1), x: f32[n * 80], y: f32[n * 80]):
    for i in parallel(n):
        for j in serial(10):
            y[i * 80 + j * 8] = fma(load(x[j * 8], 8), broadcast(2.0, 8), broadcast(1.0, 8))
""")
    summary = summarize_kernel(kernel)
    assert (summary.is_parallel, summary.lanes) == (True, 8)
    assert (summary.why_serial, summary.why_scalar) == ("", "")
    assert str(kernel_flops(kernel)) == "n * 160"


def test_a_scalar_sum_in_a_vectorised_kernel_is_reported():
    kernel = parse("""
def k(x: f32[8000], y: f32[8000]):
    for i in parallel(8):
        sum = alloc(f32[1], "thread")
        sum[0] = 0.0
        for j in serial(1000):
            sum[0] = sum[0] + x[i * 1000 + j]
        for j2 in serial(125):
            y[i * 1000 + j2 * 8] = load(x[i * 1000 + j2 * 8], 8) * broadcast(sum[0], 8)
""")
    summary = summarize_kernel(kernel)
    assert summary.lanes == 8
    assert summary.why_scalar == f"in part: {AS_WRITTEN}"
    assert str(kernel_flops(kernel)) == "16000"


def test_a_gemm_reports_its_tile_and_layouts():
    """Four rows of weights in panels of sixteen, as the machine's registers ask for it."""
    weights = np.ones((64, 32), np.float32)
    node = make_node("MatMul", ["x", "w"], ["y"])
    graph = make_graph([node], "product", [make_tensor_value_info("x", 1, ("n", 64))],
                       [make_tensor_value_info("y", 1, ("n", 32))],
                       [from_array(weights, "w")])  # fmt: skip
    session = api.make_session("x86-64-v3", {"n": 32})
    program = pipeline.run_stages(make_model(graph), session, stop_after="barriers")
    (row,) = report(program, summarize_kernels(program))
    assert row.tile == "4 x 16" and row.plan.startswith("gemm ")
    assert is_told("tile=4x2x8", row.plan) and is_told("packing=given:16", row.plan)
    assert row.plan in row.cells(None, None)
    assert row.layouts == "32 x 64, 2 x 64 x 16 -> 32 x 32"


def test_a_single_accumulator_has_no_tile():
    summary = summarize_kernel(
        parse("""
def k(x: f32[800], y: f32[8]):
    sum = alloc(f32[8], "thread")
    for j in serial(100):
        sum[0] = fma(load(x[j * 8], 8), broadcast(2.0, 8), load(sum[0], 8))
    y[0] = load(sum[0], 8)
""")
    )
    assert summary.tile == ""


def test_flops_of_data_dependent_loops_are_unknown():
    assert kernel_flops(parse(SERIAL["opaque loop"])) is None


@pytest.mark.parametrize("name", ["loop", "nonzero_gather", "transformer_block", "lstm_both"])
def test_every_serial_or_scalar_kernel_has_a_reason(name: str):
    model, _ = HARD[name]()
    program = pipeline.run_stages(model, api.make_session(), stop_after="barriers")
    rows = report(program, summarize_kernels(program))
    assert rows
    for row in rows:
        assert row.origin, row
        assert bool(row.why_serial) == row.is_serial, row
        assert row.lanes > 1 or row.why_scalar, row
        assert UNEXPLAINED not in row.why and AS_WRITTEN not in row.why, row


def test_the_table_is_plain_and_aligned():
    one, four, many = arith.Const(1), arith.Const(4), arith.Const(512)
    wide = LaunchRow("relu", "node 'r' (Relu)", "elementwise", four, 8, many, many)
    slow = LaunchRow("sum", "node 's'", "reduce", one, 1, None, four, "too small", "one result")
    head, first, second = table(lines((wide, slow), None)).splitlines()
    assert all(name in head for name in HEAD)
    column = head.index("origin")
    assert first[column:] == "node 'r' (Relu)" and second[column:] == "node 's'"
    assert "serial: too small; scalar: one result" in second and " ? " in second
    assert "4 iterations" in first and "4 iterations" in str(wide)
    assert "\x1b" not in head + first + second


def test_refused_steps_are_listed_once():
    one = arith.Const(1)
    rows = [LaunchRow("gemm", "", "matmul", one, 1, one, one, remarks=("Y: pad(Y): no room",))] * 2
    (line,) = refused_steps(rows)
    assert is_told("gemm", line) and is_told("pad(Y)", line)


def test_a_prediction_is_the_roofline():
    """By hand: 4 flops a lane and ns, a near level of 1000 bytes at 10 a ns, memory at 2."""
    machine_model = MachineModel(4.0, 8, ((1000, 10.0), (None, 2.0)))
    n = arith.Var("n")

    def row(flops: int, moved: int, lanes: int = 8, parallel_extent: int = 100) -> LaunchRow:
        wrapped = (arith.Const(x) for x in (flops, moved))
        return LaunchRow("k", "", "", arith.Const(parallel_extent), lanes, *wrapped)

    cases = [
        (row(32_000, 1000), 1, 1.0),  # computing: 32 flops a ns
        (row(32_000, 1000), 2, 0.5),
        (row(32_000, 1000, parallel_extent=1), 2, 1.0),  # the second thread has nothing to do
        (row(32_000, 1000, lanes=1), 1, 8.0),
        (row(32_000, 1000, lanes=32), 1, 1.0),  # as many lanes as count
        (row(0, 1000), 1, 0.1),
        (row(0, 2000), 1, 1.0),  # more than the near level holds
        (row(0, 2000), 2, 0.1),  # each has its own
        (row(0, 8000), 2, 4.0),  # memory is shared
    ]
    for launch, threads, expected in cases:
        assert launch.predicted_us(machine_model, threads, {}) == pytest.approx(expected), launch
    dynamic_row = LaunchRow("k", "", "", n, 8, n * 320, n)
    assert dynamic_row.predicted_us(machine_model, 1, {}) is None
    assert dynamic_row.predicted_us(machine_model, 1, {"n": 100}) == pytest.approx(1.0)
    place = HEAD.index("predicted µs")
    assert lines([dynamic_row], machine_model)[0][place] == "-"
    cells = lines([dynamic_row], machine_model, 1, {"n": 100}, [2.0])[0]
    assert cells[place : place + 2] == ("1.00", "2.00")
