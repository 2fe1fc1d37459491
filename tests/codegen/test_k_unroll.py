"""Unrolled k loops of a GEMM: fewer instructions, the same values."""

from __future__ import annotations

import pytest

from ingot.codegen.llvm import kernel_assembly
from ingot.loops import ir, visit
from ingot.schedule import Schedule
from ingot.schedule.default import schedule_kernel
from ingot.support import options
from ingot.target import parse
from tests.native import legal_kernels
from tests.refusal import refused
from tests.schedule.common import matmul
from tests.schedule.equivalence import assert_everywhere

TARGET = parse("x86-64-v3")


def noted_and_multiplies(k_unroll: int, rows: int, depth: int) -> tuple[int, int]:
    """How many loops are annotated, and the FMAs in the code of the kernel's GEMM."""
    with options.override(k_unroll=k_unroll):
        sch = schedule_kernel(matmul(rows, 64, depth), TARGET, "matmul")
        loops = [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.For)]
        *_, gemm = legal_kernels(sch.kernel, TARGET).kernels
        noted = sum((ir.K_UNROLL, k_unroll) in s.annotations for s in loops)
        return noted, kernel_assembly(gemm, TARGET).count("vfmadd")


@pytest.mark.parametrize(
    ("k_unroll", "rows", "depth", "noted", "multiplies"),
    [
        (4, 120, 32, 1, 48),  # tiles of six rows and two vectors, unrolled by four
        (2, 120, 32, 1, 24),
        (1, 120, 32, 0, 12),  # switched off
        (4, 120, 34, 1, 48),  # LLVM leaves the loop half-way where it knows when
        (4, 120, 7, 0, 12),  # too short
    ],
)
def test_the_k_loop_is_unrolled(k_unroll, rows, depth, noted, multiplies):
    assert noted_and_multiplies(k_unroll, rows, depth) == (noted, multiplies)


@pytest.mark.parametrize("depth", [8, 9, 11, 34])
def test_remainder_iterations_run_once(depth):
    kernel = matmul(31, 37, depth)
    assert_everywhere(kernel, schedule_kernel(kernel, TARGET, "matmul"))


@pytest.mark.parametrize("factor", [0, 65, "4", True, 2.0, None])
def test_an_invalid_unroll_factor(factor):
    sch = Schedule(matmul(4, 8, 16))
    with refused("bad-schedule", where="annotate", why=repr(factor), hint=(1, 64)):
        sch.annotate(sch.loops(sch.block("Y"))[-1], ir.K_UNROLL, factor)
