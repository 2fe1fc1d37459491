"""Depthwise convolutions: the loop order around register tiles, and padding per block."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import LoopKind
from ingot.schedule import Schedule
from ingot.schedule.default import schedule_kernel
from ingot.support import options
from ingot.target import parse
from tests.schedule.common import assert_same, f32

HEIGHT, WIDTH, CHANNELS = 3, 26, 64


def depthwise(taps: int) -> ir.Kernel:
    b = Build("depthwise")
    x = b.param("X", f32, (HEIGHT + taps - 1, WIDTH + taps - 1, CHANNELS))
    w = b.param("W", f32, (taps, taps, CHANNELS))
    y = b.reduce("Y", (HEIGHT, WIDTH, CHANNELS), (taps, taps), "add",
                 lambda i, j, c, u, v: x[i + u, j + v, c] * w[u, v, c])  # fmt: skip
    return b.finish([b.compute("Z", y.shape, lambda *p: y[p])])


def tile_origins(sch: Schedule) -> list[tuple[int, ...]]:
    """Row, column and channel of each tile's origin, in the order of the parallel loop."""
    block = sch.block("Y")
    parallel_loop, *inner = (sch.at_loop(x) for x in sch.loops(block))
    start = {x.var: 0 for x in inner}
    bindings = [a.binding for a in sch.at_block(block).axes[:3]]
    tiles = range(arith.as_int(parallel_loop.extent) or 0)
    return [
        tuple(arith.evaluate(b, {**start, parallel_loop.var: t}) for b in bindings) for t in tiles
    ]


@pytest.mark.parametrize(
    ("taps", "is_on", "by_rows"),
    [(5, True, True), (7, True, True), (3, True, False), (5, False, False)],
)
def test_a_large_window_is_ordered_by_channel_blocks_then_rows(taps, is_on, by_rows):
    with options.override(off=() if is_on else {"depthwise_order"}):
        sch = schedule_kernel(depthwise(taps), parse("x86-64-v3"), "conv")
    found = tile_origins(sch)
    assert sorted(set(found)) == sorted(found) and {row for row, _, _ in found} == {0, 1, 2}
    first_row = found[: next(i for i, (row, _, _) in enumerate(found) if row)]
    channels, columns = {c for _, _, c in first_row}, {column for _, column, _ in first_row}
    assert (len(columns) == 1, len(channels) < CHANNELS // 8) == (by_rows, by_rows)
    assert_same(depthwise(taps), sch.kernel)


def padded(taps: int) -> ir.Kernel:
    """The same with "same" padding: the input is as large as the output."""
    b, room = Build("padded"), taps // 2
    x, w = b.param("X", f32, (30, 30, CHANNELS)), b.param("W", f32, (taps, taps, CHANNELS))

    def inside(i: arith.Expr, j: arith.Expr, c: arith.Expr) -> ir.Expr:
        at = [ir.Index(i - room), ir.Index(j - room)]
        low = [ir.Compare("ge", a, ir.Lit(0, dtypes.i64)) for a in at]
        high = [ir.Compare("lt", a, ir.Lit(30, dtypes.i64)) for a in at]
        mask = low[0] & high[0] & low[1] & high[1]
        return ir.Load(x, (i - room, j - room, c), mask=mask, other=ir.Lit(0.0, f32))

    around = b.compute("around", (30 + 2 * room, 30 + 2 * room, CHANNELS), inside)
    y = b.reduce("Y", (30, 30, CHANNELS), (taps, taps), "add",
                 lambda i, j, c, u, v: around[i + u, j + v, c] * w[u, v, c])  # fmt: skip
    return b.finish([b.compute("Z", y.shape, lambda *p: y[p])])


@pytest.mark.parametrize(
    ("taps", "cores", "l2_bytes", "by_block"),
    [
        (3, 2, 512 << 10, True),
        (5, 2, 512 << 10, True),
        (5, 3, 512 << 10, False),  # four blocks of channels for three threads
        (5, 2, 64 << 10, False),  # a block of the image does not fit in L2
    ],
)
def test_padding_is_done_per_block_of_channels(taps, cores, l2_bytes, by_block):
    target = replace(parse("x86-64-v3"), cores=cores, caches=(32 << 10, l2_bytes, 32 << 20))
    sch = schedule_kernel(padded(taps), target, "conv")
    first = [sch.loops(sch.block(name))[0] for name in ("around", "Y", "Z")]
    assert (first[0] == first[1], first[1] == first[2]) == (by_block, True)
    assert sch.at_loop(first[1]).kind is LoopKind.PARALLEL
    if by_block:  # the other order is that of depthwise convolutions without padding, above
        assert_same(padded(taps), sch.kernel)
