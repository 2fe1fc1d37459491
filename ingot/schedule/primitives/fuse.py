"""fuse: perfectly nested loops → one loop over all their points, in the same order.

    for i in range(4): for j in range(8)   →   for i_j in range(32)      i = i_j // 8, j = i_j % 8

Legal when each loop's body is exactly the next loop and inner bounds do not use outer variables.
"""

from __future__ import annotations

from itertools import pairwise

from ingot.arith import expr as arith
from ingot.loops.ir import For, Kernel
from ingot.schedule import checks, tree
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, facts_at, insist, put, rebind
from ingot.support.errors import IngotError


def fuse(kernel: Kernel, *loops: For) -> Result:
    what = f"fuse({', '.join(x.var for x in loops)})"
    if not loops:
        what = "fuse takes one loop or more"
        raise IngotError("bad-schedule", what, hint="fuse(outer, inner), outermost first")
    for loop in loops:
        insist(kernel, loop, what, checks.expect_serial(loop))
    for loop in loops:
        if arith.is_const(loop.extent, 0):
            insist(kernel, loop, what, Problem("it runs no iteration", "leave empty loops alone"))
    for outer, inner in pairwise(loops):
        insist(kernel, inner, what, _apart(loops, outer, inner))
    facts = facts_at(kernel, loops[0])
    extents = [facts.simplify(x.extent) for x in loops]
    name = tree.Names(kernel).fresh("_".join(x.var for x in loops))
    fused = For(name, arith.Const(0), facts.simplify(arith.product(list(extents))), loops[-1].body)
    env: dict[str, arith.Expr] = {}
    for place, loop in enumerate(loops):
        digit = arith.Var(name) // arith.product(list(extents[place + 1 :]))
        env[loop.var] = loop.start + (digit if place == 0 else digit % extents[place])
    facts.add(fused)
    made = For(name, fused.start, fused.stop, rebind(loops[-1].body, env, facts))
    return put(kernel, loops[0], made), [made]


def _apart(loops: tuple[For, ...], outer: For, inner: For) -> Problem | None:
    if outer.body is not inner:
        return Problem(
            f"{inner.var} is not all of the body of {outer.var}",
            "reorder first, or fuse loops whose bodies are each other",
        )
    used = arith.free_vars(inner.start) | arith.free_vars(inner.stop)
    bad = used & {x.var for x in loops}
    if bad:
        return Problem(f"the bounds of {inner.var} use {', '.join(sorted(bad))}", "leave it out")
    return None
