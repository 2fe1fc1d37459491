"""Between callable kernels and schedules: no step is applied that was not asked for."""

from __future__ import annotations

import numpy as np

import ingot
from ingot.loops import ir, visit
from ingot.schedule.schedule import Schedule as PlainSchedule
from tests.kernels.samples import floats, mm_relu
from tests.refusal import refused

A, B = floats(13, 17), floats(17, 21, seed=1)
WANT = np.maximum(A @ B, 0)


def steps(sch: ingot.Schedule) -> None:
    block = sch.block("C")
    i, j = sch.loops(block)
    _, lanes = sch.split(j, None, 8)
    sch.vectorize(lanes)
    sch.parallel(i)


def kinds(kernel: ir.Kernel) -> set[ir.LoopKind]:
    return {s.kind for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For)}


def test_what_is_written_is_what_runs():
    assert kinds(mm_relu.ir) == {ir.LoopKind.SERIAL}
    legal = mm_relu.source("legal")
    assert "for i, j in grid(n, m)" in legal
    assert "parallel(" not in legal and "load(" not in legal


def test_schedule_with_a_function():
    fast = mm_relu.schedule(steps)
    assert kinds(fast.ir) == {ir.LoopKind.SERIAL, ir.LoopKind.VECTOR, ir.LoopKind.PARALLEL}
    assert kinds(mm_relu.ir) == {ir.LoopKind.SERIAL}, "the kernel itself is as it was"
    np.testing.assert_allclose(fast(A, B), WANT, 1e-5, 1e-5)
    np.testing.assert_allclose(fast.interpret(A, B), WANT, 1e-5, 1e-5)


def test_schedule_by_hand():
    sch = ingot.Schedule(mm_relu)
    steps(sch)
    fast = sch.build()
    assert fast.ir == sch.kernel == mm_relu.schedule(steps).ir
    assert fast.name == "mm_relu"
    np.testing.assert_allclose(fast(A, B), WANT, 1e-5, 1e-5)


def test_the_default_schedule_when_asked():
    fast = mm_relu.schedule()
    assert ir.LoopKind.VECTOR in kinds(fast.ir)
    np.testing.assert_allclose(fast(A, B), WANT, 1e-5, 1e-5)


def test_wrap_takes_whatever_holds_a_kernel():
    plain = PlainSchedule(mm_relu.ir)
    for held in (mm_relu, mm_relu.ir, plain, ingot.Schedule(mm_relu.ir)):
        assert ingot.kernels.wrap(held) == mm_relu
    with refused("bad-option", "str", hint="@ingot.kernel"):
        ingot.kernels.wrap("kernel")
    with refused("bad-option", "int", hint="@ingot.kernel"):
        ingot.Schedule(3)


def test_a_scheduled_kernel_prints_and_parses_back():
    fast = mm_relu.schedule(steps)
    again = ingot.kernels.parse(str(fast))
    assert again == fast
    np.testing.assert_array_equal(again(A, B), fast(A, B))


def test_what_was_known_survives_a_schedule():
    fast = mm_relu.schedule()
    assert mm_relu.filled == fast.filled == ("C",)
