"""Tiles of a short sum: those inside a dynamic size have no guard and no clamped row."""

from __future__ import annotations

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.schedule import Schedule
from ingot.schedule.default import schedule_kernel
from ingot.support import options
from ingot.target import parse
from tests.native import legal_kernels
from tests.schedule.equivalence import assert_everywhere

TARGET = parse("x86-64-v3")
n, batch = arith.Var("n"), arith.Var("batch")


def frames(taps: int, filters: int, length: arith.IntLike = n) -> ir.Kernel:
    """A filter bank over a batch of signals."""
    b = Build("conv")
    is_fixed = not arith.free_vars(arith.wrap(length))
    signals, count = 1 if is_fixed else batch, (arith.wrap(length) - taps) // 3 + 1
    x = b.param("x", dtypes.f32, (signals, length))
    w = b.param("w", dtypes.f32, (taps, filters))
    y = b.reduce(
        "y", (signals, count, filters), (taps,), "add",
        lambda s, i, o, k: x[s, i * 3 + k] * w[k, o],
    )  # fmt: skip
    out = b.compute("out", (signals, count, filters), lambda s, i, o: y[s, i, o])
    sizes = [ir.Size("batch", 1, likely=1), ir.Size("n", taps)]
    return b.finish([out], [] if is_fixed else sizes)


def versions(kernel: ir.Kernel) -> list[ir.If]:
    """Branches that have a sum in both arms."""
    *_, tile = legal_kernels(schedule_kernel(kernel, TARGET, "conv").kernel, TARGET).kernels
    found = [s for s in visit.walk_stmts(tile.body) if isinstance(s, ir.If) and s.orelse]
    return [s for s in found if has_sum(s.then) and has_sum(s.orelse)]


def has_sum(s: ir.Stmt | None) -> bool:
    return s is not None and any(isinstance(x, ir.For) for x in visit.walk_stmts(s))


def guards_and_clamps(s: ir.Stmt | None) -> int:
    assert s is not None
    guards = sum(isinstance(x, ir.If) for x in visit.walk_stmts(s))
    indices = (i for load in visit.loads(s) for i in load.indices)
    return guards + sum(isinstance(e, arith.Min) for i in indices for e in arith.walk(i))


@pytest.mark.parametrize("taps, filters", [(7, 2), (14, 3), (23, 8)])
def test_a_whole_tile_has_no_guard_and_no_clamp(taps, filters):
    (tile,) = versions(frames(taps, filters))
    assert guards_and_clamps(tile.then) == 0
    assert guards_and_clamps(tile.orelse) > 0


def test_a_long_sum_and_a_fixed_size_are_left_alone():
    assert not versions(frames(400, 16))
    assert not versions(frames(7, 2, length=200_000))
    with options.override(off="hoist_guards"):
        assert not versions(frames(7, 2))


@pytest.mark.parametrize("taps, filters", [(7, 2), (5, 1), (9, 8), (3, 20)])
def test_lengths_around_a_tile(taps, filters):
    kernel = frames(taps, filters)
    sch: Schedule = schedule_kernel(kernel, TARGET, "conv")
    lengths = (taps, taps + 1, taps + 3 * 7, taps + 3 * 8, 61, 3 * 64 + taps)
    values = [{"batch": b, "n": length} for length in lengths for b in (1, 3)]
    assert_everywhere(kernel, sch, *values)
