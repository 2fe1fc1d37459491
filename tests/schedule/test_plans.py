"""Kernels carry plans: decided once, printed, parsed, applied as they are written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingot.cost import plan as plans
from ingot.cost.tile import Tile
from ingot.loops import ir, visit
from ingot.loops.ir import LoopKind
from ingot.loops.script_parse import parse
from ingot.loops.script_print import show
from ingot.schedule import rules
from ingot.schedule.decide import plan_kernel
from ingot.schedule.default import CPU_RULES, schedule_kernel
from ingot.target import parse as target
from tests.refusal import is_told
from tests.schedule.common import assert_same, matmul
from tests.schedule.test_rules import CONV, op_kernel

AVX2 = target("x86-64-v3")


def unrolled_rows(kernel: ir.Kernel) -> set[int]:
    """Extents of the unrolled loops."""
    loops = (s for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For))
    return {int(str(x.extent)) for x in loops if x.kind is LoopKind.UNROLL}


def test_a_kernel_prints_its_plan_and_parses_back():
    kernel, family = op_kernel("matmul", [(48, 40), (40, 96)], {})
    made = schedule_kernel(kernel, AVX2, family).finished()
    ((block, plan),) = made.plans
    assert (block, plan.algorithm, plan.tile) == ("matmul", "gemm", Tile(6, 2, 8))
    assert plan.packing is not None and plan.packing.by == "kernel"
    text = show(made)
    assert str(plan) in text
    again = parse(text)
    assert again == made and again.plans == made.plans and again.remarks == made.remarks


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_an_edited_tile_is_the_one_that_is_compiled(rows: int):
    kernel, family = op_kernel("matmul", [(48, 40), (40, 64)], {})
    ((block, plan),) = schedule_kernel(kernel, AVX2, family).finished().plans
    planned = ir.replace(kernel, plans=((block, plan),))
    edited = parse(show(planned).replace("tile=6x2x8", f"tile={rows}x2x8"))
    made = schedule_kernel(edited, AVX2, family).finished()
    assert made.plans == ((block, replace(plan, tile=Tile(rows, 2, 8))),)
    assert rows in unrolled_rows(made) and 6 not in unrolled_rows(made)
    assert_same(kernel, made)


def test_a_given_plan_is_kept_and_nothing_is_decided(monkeypatch):
    kernel, family = op_kernel("conv", [(1, 16, 9, 9), (32, 16, 3, 3), (32,)], CONV)
    first = schedule_kernel(kernel, AVX2, family).finished()

    def decide(self, c, machine):
        raise AssertionError("the cost model was asked again")

    monkeypatch.setattr(rules.Rules, "decide", decide)
    again = schedule_kernel(ir.replace(kernel, plans=first.plans), AVX2, family).finished()
    assert again == first and again.plans == first.plans


def test_a_plan_that_cannot_be_applied_gives_way_and_is_a_remark():
    """To its alternatives, and at last to a scalar nest."""
    kernel, family = op_kernel("matmul", [(48, 40), (40, 64)], {})
    odd = "winograd_f2 axes=0,1 tile=6x2x8"
    for text, applied in (
        (odd, "plain"),
        (f"{odd} | gemm axes=0,1 tile=2x2x8 blocking=panels", "gemm"),
    ):
        given = (("matmul", plans.parse_plan(text)),)
        made = schedule_kernel(ir.replace(kernel, plans=given), AVX2, family).finished()
        ((_, plan),) = made.plans
        assert plan.algorithm == applied and plan.otherwise is None
        check_remark(kernel, made)


def check_remark(kernel: ir.Kernel, made: ir.Kernel) -> None:
    assert any(r.block == "matmul" and is_told("winograd_f2", r.why) for r in made.remarks)
    assert_same(kernel, made)


def test_a_plan_has_alternatives_and_prints_them():
    kernel, family = op_kernel("matmul", [(64, 40), (40, 96)], {})
    ((_, plan),) = plan_kernel(kernel, AVX2, family, CPU_RULES)
    assert [x.packing is None for x in plan.choices] == [False, True]
    assert all(x.otherwise is None for x in plan.choices)
    assert plans.parse_plan(str(plan)) == plan == plans.preferred(plan.choices)


def test_without_the_row_of_an_algorithm_the_others_schedule_its_blocks():
    kernel, family = op_kernel("matmul", [(1, 256), (256, 96)], {})
    few = {"split_k", "small_m_gemm"}
    fewer = tuple(x for x in CPU_RULES.algorithms if x.name not in few)
    whole = schedule_kernel(kernel, AVX2, family).finished()
    made = schedule_kernel(kernel, AVX2, family, replace(CPU_RULES, algorithms=fewer)).finished()
    assert dict(whole.plans)["matmul"].algorithm in few
    assert dict(made.plans)["matmul"].algorithm == "gemm"
    assert_same(kernel, made)


def test_refused_steps_are_remarks_and_leave_no_trace():
    kernel = matmul(4, 8, 5)
    sch = schedule_kernel(kernel, AVX2, "matmul")
    before = sch.kernel
    loop = sch.loops(sch.block("Z"))[-1]
    with sch.attempt(sch.block("Z")):
        sch.split(loop, None, 0)
    assert sch.kernel is before
    assert sch.remarks[-1].block == "Z" and sch.remarks[-1].about == ir.STEP
    assert is_told(loop.name, sch.remarks[-1].why)
