"""peel: a loop's last (or first) iterations become a separate loop.

    for i in range(n): B   →   peel(i, 1)   →   for i in range(n - 1): B
                                                for i_2 in range(1): B_tail        at n - 1

Always legal, since the order does not change; the loop must be proved to have enough iterations.
"""

from __future__ import annotations

from ingot.loops.ir import For, Kernel
from ingot.schedule import checks
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, analyzer_at, raise_if
from ingot.schedule.primitives.copies import partition_at

SIDES = ("end", "start")


def peel(kernel: Kernel, loop: For, count: int, side: str = "end") -> Result:
    what = f"peel({loop.var}, {count})"
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _too_many(kernel, loop, count, side))
    if side == "start":
        made = partition_at(kernel, loop, loop.start + count, "head", copy_first=True)
    else:
        made = partition_at(kernel, loop, loop.stop - count, "tail")
    return made.kernel, [made.main, made.copy]


def _too_many(kernel: Kernel, loop: For, count: int, side: str) -> Problem | None:
    if side not in SIDES:
        return Problem(f"there is no side {side!r}", f"one of: {', '.join(SIDES)}")
    if count < 1:
        return Problem("the count must be at least 1", "peel(i, 1)")
    if not analyzer_at(kernel, loop).at_most(count, loop.extent):
        return Problem(
            f"it is not proved to have {count} iterations: its extent is {loop.extent}",
            "fewer, or declare the size with a lower bound",
        )
    return None
