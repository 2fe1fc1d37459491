"""Loops fused over dynamic sizes: their indices are counted, and no iteration divides."""

from __future__ import annotations

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.codegen.llvm import kernel_text
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.schedule import Schedule
from tests.native import HOST, legal_kernels
from tests.schedule.equivalence import assert_everywhere

b, n = arith.Var("b"), arith.Var("n")
SIZES = [ir.Size("b", 1), ir.Size("n", 0)]


def fused(shape: tuple[arith.IntLike, ...], sizes: list[ir.Size]) -> tuple[ir.Kernel, Schedule]:
    """A transpose of all axes, its loops fused to one that is parallel."""
    build = Build("turned")
    x = build.param("x", dtypes.f32, shape[::-1])
    kernel = build.finish([build.compute("y", shape, lambda *point: x[point[::-1]])], sizes)
    sch = Schedule(kernel)
    sch.parallel(sch.fuse(*sch.loops(sch.block("y"))))
    return kernel, sch


def divisions(sch: Schedule) -> tuple[int, int]:
    """Divisions before the first loop of the kernel's code, and after its start."""
    (kernel,) = legal_kernels(sch.kernel, HOST).kernels
    before, inside = kernel_text(kernel).split("\nhead", 1)
    return tuple(text.count("udiv") + text.count("urem") for text in (before, inside))


@pytest.mark.parametrize("shape", [(b, n), (n, b), (b, 5, n), (b, n, 3), (b, 4, n, 3)])
def test_an_iteration_divides_by_no_size(shape):
    kernel, sch = fused(shape, SIZES)
    before, inside = divisions(sch)
    assert before > 0
    constants = sum(isinstance(size, int) and size == shape[-1] for size in shape)
    assert inside <= 2 * constants, "by a constant only"
    values = [{"b": 1, "n": 1}, {"b": 3, "n": 7}, {"b": 2, "n": 1}, {"b": 1, "n": 16}]
    assert_everywhere(kernel, sch, *values)


def test_a_size_of_zero_divides_nothing():
    """The quotients before a loop that runs no iteration."""
    kernel, sch = fused((b, n), SIZES)
    assert_everywhere(kernel, sch, {"b": 3, "n": 0})


def test_a_guard_by_the_fused_sizes_is_not_needed():
    """A loop over a size that may be 0 runs no iteration if it is: nothing is left to test."""
    build = Build("sums")
    x = build.param("x", dtypes.f32, (b, n, 2, 5))
    total = build.reduce("total", (b, 5, n), (2,), "add", lambda i, j, k, r: x[i, k, r, j])
    out = build.compute("out", (b, 5, n), lambda i, j, k: total[i, j, k] * 2.0)
    kernel = build.finish([out], SIZES)
    sch = Schedule(kernel)
    loop = sch.fuse(*sch.loops(sch.block("out")))
    sch.parallel(loop)
    sch.compute_at(sch.block("total"), loop)
    assert sch.at_block(sch.block("total")).where is None
    assert_everywhere(kernel, sch, {"b": 2, "n": 3}, {"b": 1, "n": 0}, {"b": 3, "n": 1})


def test_fixed_sizes_divide_by_constants():
    _, sch = fused((6, 35), [])
    assert divisions(sch)[1] > 0
