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
from ingot.schedule.primitives.base import Result, analyzer_at, put, raise_if, substitute_loops
from ingot.support.errors import IngotError


def fuse(kernel: Kernel, *loops: For) -> Result:
    what = f"fuse({', '.join(x.var for x in loops)})"
    if not loops:
        what = "fuse takes one loop or more"
        raise IngotError("bad-schedule", what, hint="fuse(outer, inner), outermost first")
    for loop in loops:
        raise_if(kernel, loop, what, checks.expect_serial(loop))
    for loop in loops:
        if arith.is_const(loop.extent, 0):
            raise_if(kernel, loop, what, Problem("its extent is 0", "do not fuse empty loops"))
    for outer, inner in pairwise(loops):
        raise_if(kernel, inner, what, _not_perfectly_nested(loops, outer, inner))
    analyzer = analyzer_at(kernel, loops[0])
    extents = [analyzer.simplify(x.extent) for x in loops]
    name = tree.FreshNames(kernel).fresh("_".join(x.var for x in loops))
    fused = For(
        name, arith.Const(0), analyzer.simplify(arith.product(list(extents))), loops[-1].body
    )
    env: dict[str, arith.Expr] = {}
    for position, loop in enumerate(loops):
        digit = arith.Var(name) // arith.product(list(extents[position + 1 :]))
        env[loop.var] = loop.start + (digit if position == 0 else digit % extents[position])
    analyzer.add(fused)
    made = For(name, fused.start, fused.stop, substitute_loops(loops[-1].body, env, analyzer))
    return put(kernel, loops[0], made), [made]


def _not_perfectly_nested(loops: tuple[For, ...], outer: For, inner: For) -> Problem | None:
    if outer.body is not inner:
        return Problem(
            f"{inner.var} is not the whole body of {outer.var}",
            "reorder first, or fuse perfectly nested loops",
        )
    used = arith.free_vars(inner.start) | arith.free_vars(inner.stop)
    bad = used & {x.var for x in loops}
    if bad:
        return Problem(f"the bounds of {inner.var} use {', '.join(sorted(bad))}", "do not fuse it")
    return None
