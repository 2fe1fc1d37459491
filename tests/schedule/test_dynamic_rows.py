"""Contractions whose rows are a dynamic dimension: padded to whole tiles, parallel, never guarded.

The rows of the last tile that are beyond the end read the last row again, whatever it takes to
prove an access: a window over a signal of dynamic length, of which nothing pads the input.
"""

from __future__ import annotations

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.loops.ir import LoopKind
from ingot.loops.verify import verify
from ingot.schedule.default import schedule_kernel
from ingot.target import parse
from tests.schedule.common import assert_same

n = arith.Var("n")


def frames(taps: int, stride: int, filters: int) -> ir.Kernel:
    """A filter bank over a signal of n samples: as many frames as fit."""
    b = Build("conv")
    count = (n - taps) // stride + 1
    x, w = b.param("x", dtypes.f32, (n,)), b.param("w", dtypes.f32, (taps, filters))
    y = b.reduce("y", (count, filters), (taps,), "add", lambda i, o, k: x[i * stride + k] * w[k, o])
    out = b.compute("out", (count, filters), lambda i, o: y[i, o])
    return b.finish([out], [ir.Size("n", taps)])


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("taps, stride, filters", [(16, 4, 48), (7, 3, 20)])
def test_a_window_over_a_dynamic_signal_is_padded_to_tiles(target, taps, stride, filters):
    kernel = frames(taps, stride, filters)
    sch = schedule_kernel(kernel, parse(target), "conv")
    verify(sch.kernel)
    assert not [r for r in sch.remarks if r.block == "y"], "no step was refused"
    blocks = {block.name: block for block in visit.blocks(sch.kernel.body)}
    assert blocks["y"].where is None, "the sum is not guarded"
    loops = [s for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.For)]
    assert LoopKind.PARALLEL in {loop.kind for loop in loops}
    for size in (taps, taps + 1, 40, 61):
        assert_same(kernel, sch.kernel, n=size)
