"""Depthwise convolutions: the order in which tiles go over the map."""

from __future__ import annotations

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.schedule import Schedule
from ingot.schedule.rules import schedule_kernel
from ingot.support import knobs
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


def places(sch: Schedule) -> list[tuple[int, ...]]:
    """Row, column and channel where each tile begins, in the order of the shared loop."""
    block = sch.block("Y")
    shared, *inner = (sch.at_loop(x) for x in sch.loops(block))
    start = {x.var: 0 for x in inner}
    bindings = [a.binding for a in sch.at_block(block).axes[:3]]
    tiles = range(arith.as_int(shared.extent) or 0)
    return [tuple(arith.evaluate(b, {**start, shared.var: t}) for b in bindings) for t in tiles]


@pytest.mark.parametrize(
    ("taps", "is_on", "down"),
    [(5, True, True), (7, True, True), (3, True, False), (5, False, False)],
)
def test_a_large_window_goes_down_the_map_with_few_channels(taps, is_on, down):
    with knobs.override(windows=is_on):
        sch = schedule_kernel(depthwise(taps), parse("x86-64-v3"), "conv")
    found = places(sch)
    assert sorted(set(found)) == sorted(found) and {row for row, _, _ in found} == {0, 1, 2}
    first_row = found[: next(i for i, (row, _, _) in enumerate(found) if row)]
    channels, columns = {c for _, _, c in first_row}, {column for _, column, _ in first_row}
    assert (len(columns) == 1, len(channels) < CHANNELS // 8) == (down, down)
    assert_same(depthwise(taps), sch.kernel)
