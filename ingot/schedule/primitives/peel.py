"""peel: a loop's last (or first) iterations get a loop of their own.

    for i in range(n): B   →   peel(i, 1)   →   for i in range(n - 1): B
                                                for i_2 in range(1): B_tail        at n - 1

Always legal, since nothing changes its order; the loop must be shown to have that many iterations.
"""

from __future__ import annotations

from ingot.loops.ir import For, Kernel
from ingot.schedule import checks
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, facts_at, insist
from ingot.schedule.primitives.copies import cut

SIDES = ("end", "start")


def peel(kernel: Kernel, loop: For, count: int, side: str = "end") -> Result:
    what = f"peel({loop.var}, {count})"
    insist(kernel, loop, what, checks.expect_serial(loop) or _too_many(kernel, loop, count, side))
    if side == "start":
        made = cut(kernel, loop, loop.start + count, "head", copy_first=True)
    else:
        made = cut(kernel, loop, loop.stop - count, "tail")
    return made.kernel, [made.stays, made.copy]


def _too_many(kernel: Kernel, loop: For, count: int, side: str) -> Problem | None:
    if side not in SIDES:
        return Problem(f"there is no side {side!r}", f"one of: {', '.join(SIDES)}")
    if count < 1:
        return Problem("it takes one iteration or more", "peel(i, 1)")
    if not facts_at(kernel, loop).at_most(count, loop.extent):
        return Problem(
            f"it is not shown to have {count} iterations: its extent is {loop.extent}",
            "fewer, or declare the size with its least value",
        )
    return None
