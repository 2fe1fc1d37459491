"""Overlap analysis of dynamic-size buffers: distant offsets are ordered because neighbours are."""

from __future__ import annotations

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.types import Symbol
from ingot.plan.barriers import insert_barriers
from ingot.plan.memory import plan_memory
from ingot.program import ir
from ingot.program.access import AccessAnalysis, Threads
from ingot.program.tables import walk

N, M = arith.Var("n"), arith.Var("m")
SIZES = [N * ((M + 3) // 8) * 60, M * ((N + 1) // 2), (M + 1) // 2 * N * 7, M + N, N * M * 3]


def program() -> ir.Program:
    """Buffers of awkward dynamic sizes, all live at once."""
    shapes = [(arith.Const(5),), *[(size,) for size in SIZES]]
    buffers = tuple(
        ir.Buffer(f"b{k}", dtypes.f32, shape, ir.Storage.TEMP) for k, shape in enumerate(shapes)
    )
    names = tuple(b.name for b in buffers)
    symbols = (Symbol("n", 1), Symbol("m", 1))
    body = ir.seq(ir.HostStep("all", (), names), ir.HostStep("all", (), names))
    return ir.Program("p", symbols, buffers, (), body, (), (), ())


def test_live_buffers_provably_do_not_overlap() -> None:
    placed = plan_memory(program())
    accesses = AccessAnalysis(placed)
    ranges = [accesses.access(b.name, True, Threads.FIRST) for b in placed.buffers]
    for i, a in enumerate(ranges):
        for k, b in enumerate(ranges):
            assert accesses.may_overlap(a, b) == (i == k), (a, b)


def test_an_allocation_that_overlaps_the_next_is_found() -> None:
    placed = plan_memory(program())
    first, second = placed.buffers[1], placed.buffers[2]
    wide = ir.replace(first, shape=(SIZES[0] + 17,))
    others = tuple(wide if b.name == first.name else b for b in placed.buffers)
    accesses = AccessAnalysis(ir.replace(placed, buffers=others))
    a, b = (accesses.access(name, True, Threads.FIRST) for name in (wide.name, second.name))
    assert accesses.may_overlap(a, b)


def copied(elements: arith.IntLike) -> ir.Program:
    """Thread 0 makes a value, a copy follows, thread 0 reads the copy."""
    names = ("a", "b")
    buffers = tuple(
        ir.Buffer(n, dtypes.f32, (arith.wrap(elements),), ir.Storage.TEMP) for n in names
    )
    steps = (ir.HostStep("make", (), ("a",)), ir.Copy("b", "a"), ir.HostStep("read", ("b",)))
    symbols = (Symbol("n", 1), Symbol("m", 1))
    return ir.Program("p", symbols, buffers, (), ir.seq(*steps), (), (), ())


@pytest.mark.parametrize(("elements", "barriers"), [(96, 0), (1024, 0), (1025, 2), (N, 2)])
def test_a_short_copy_is_made_by_thread_0_and_needs_no_barrier(elements, barriers) -> None:
    placed = insert_barriers(plan_memory(copied(elements)))
    assert sum(isinstance(s, ir.Barrier) for s in walk(placed.body)) == barriers
