"""partition: one loop → two loops, one after the other.

    for i in range(100): B   →   partition(i, 90)   →   for i in range(90): B
                                                        for i_2 in range(10): B_rest   at 90 + i_2

Always legal, since nothing changes its order; the cut must be shown to lie inside the loop. Guards
that hold all through one part go away there.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops.ir import For, Kernel
from ingot.schedule import checks
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, facts_at, insist
from ingot.schedule.primitives.copies import cut


def partition(kernel: Kernel, loop: For, at: int) -> Result:
    what = f"partition({loop.var}, {at})"
    insist(kernel, loop, what, checks.expect_serial(loop) or _outside(kernel, loop, at))
    made = cut(kernel, loop, arith.Const(at), "rest")
    return made.kernel, [made.stays, made.copy]


def _outside(kernel: Kernel, loop: For, at: int) -> Problem | None:
    facts = facts_at(kernel, loop)
    if facts.at_most(loop.start, at) and facts.at_most(at, loop.stop):
        return None
    return Problem(
        f"{at} is not shown to lie between {loop.start} and {loop.stop}",
        "a place inside the loop; a size can be declared with its least value",
    )
