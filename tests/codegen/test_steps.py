"""Steps of a product's sum that are written out: fewer instructions, the same numbers."""

from __future__ import annotations

import pytest

from ingot.codegen.llvm import kernel_assembly
from ingot.loops import ir, visit
from ingot.schedule import Schedule
from ingot.schedule.rules import schedule_kernel
from ingot.support import knobs
from ingot.support.errors import IngotError
from ingot.target import parse
from tests.native import legal_parts
from tests.schedule.agree import assert_everywhere
from tests.schedule.common import matmul

TARGET = parse("x86-64-v3")


def products(steps: int, rows: int, depth: int) -> tuple[int, int]:
    """How many loops are noted, and the multiply-adds in the code of the kernel's product."""
    with knobs.override(steps=steps):
        sch = schedule_kernel(matmul(rows, 64, depth), TARGET, "matmul")
        loops = [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.For)]
        *_, part = legal_parts(sch.kernel).kernels
        noted = sum((ir.STEPS, steps) in s.annotations for s in loops)
        return noted, kernel_assembly(part, TARGET).count("vfmadd")


@pytest.mark.parametrize(
    ("steps", "rows", "depth", "noted", "multiplies"),
    [
        (4, 120, 32, 1, 48),  # tiles of six rows and two vectors, four steps of them
        (2, 120, 32, 1, 24),
        (1, 120, 32, 0, 12),  # switched off
        (4, 120, 34, 1, 48),  # LLVM leaves the loop half-way where it knows when
        (4, 120, 7, 0, 12),  # too short
    ],
)
def test_so_many_steps_at_once(steps, rows, depth, noted, multiplies):
    assert products(steps, rows, depth) == (noted, multiplies)


@pytest.mark.parametrize("depth", [8, 9, 11, 34])
def test_every_step_counts_once(depth):
    kernel = matmul(31, 37, depth)
    assert_everywhere(kernel, schedule_kernel(kernel, TARGET, "matmul"))


@pytest.mark.parametrize("steps", [0, 65, "4", True, 2.0, None])
def test_no_number_of_steps(steps):
    sch = Schedule(matmul(4, 8, 16))
    with pytest.raises(IngotError, match="no number of steps"):
        sch.annotate(sch.loops(sch.block("Y"))[-1], ir.STEPS, steps)
