"""partition: one loop → two loops over consecutive ranges.

    for i in range(100): B   →   partition(i, 90)   →   for i in range(90): B
                                                        for i_2 in range(10): B_rest   at 90 + i_2

Always legal, since the order does not change; the split point must be proved to be inside the loop.
Guards that are always true in one range are removed there.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops.ir import For, Kernel
from ingot.schedule import checks
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, analyzer_at, raise_if
from ingot.schedule.primitives.copies import partition_at


def partition(kernel: Kernel, loop: For, at: int) -> Result:
    what = f"partition({loop.var}, {at})"
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _outside(kernel, loop, at))
    made = partition_at(kernel, loop, arith.Const(at), "rest")
    return made.kernel, [made.main, made.copy]


def _outside(kernel: Kernel, loop: For, at: int) -> Problem | None:
    analyzer = analyzer_at(kernel, loop)
    if analyzer.at_most(loop.start, at) and analyzer.at_most(at, loop.stop):
        return None
    return Problem(
        f"{at} is not proved to be between {loop.start} and {loop.stop}",
        "a point inside the loop; a size can be declared with a lower bound",
    )
