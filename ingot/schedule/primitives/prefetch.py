"""prefetch: prefetch instructions for memory that a later iteration accesses.

    for i: for k in range(32): …
    →  for i: for k in range(32): prefetch(X[i + 1:i + 2, 32*k:32*k + 32]); …

The part of a parameter that one iteration of `over` accesses, `ahead` iterations later (0: later in
this one), is divided along its longest dimension among the iterations of `loop` and of the loops
between. The hardware prefetcher follows a stream within a page; it does not where rows are on
different pages, strides are long, or cold data follows data in cache. A prefetch changes no value
and may name unmapped memory, so it is legal wherever the accessed part is known and its sizes are
constants.
"""

from __future__ import annotations

import math

from ingot.arith import expr as arith
from ingot.loops import ir, regions, visit
from ingot.loops.ir import For, Kernel
from ingot.schedule import checks, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if


def prefetch(kernel: Kernel, loop: For, buffer: str, over: For, ahead: int = 1) -> Result:
    what = f"prefetch({loop.var}, {buffer!r}, {over.var}, {ahead})"
    between = _between(kernel, loop, over)
    raise_if(kernel, loop, what, _misplaced(loop, over, between, ahead))
    reads, writes = regions.regions(over.body, _around(kernel, over).env)
    region = reads.get(buffer) or writes.get(buffer)
    raise_if(kernel, loop, what, _untouched(kernel, buffer, over, region))
    assert region is not None
    box = _slice_per_iteration(region, between, over, ahead)
    raise_if(kernel, loop, what, box if isinstance(box, Problem) else None)
    assert isinstance(box, ir.Slice)
    hint = ir.Prefetch(box, writes=buffer not in reads)
    return put(kernel, loop, ir.replace(loop, body=ir.seq(hint, loop.body))), []


def _around(kernel: Kernel, over: For) -> Analyzer:
    return Analyzer(kernel, [*tree.loops_above(kernel.body, over), over])


def _between(kernel: Kernel, loop: For, over: For) -> list[For]:
    """The loops inside `over` down to `loop`, without those of one iteration; none if `over` is the
    loop itself, or not around it."""
    above = [*tree.loops_above(kernel.body, loop), loop]
    places = [i for i, x in enumerate(above) if x.uid == over.uid]
    inside = above[places[0] + 1 :] if places else []
    return [x for x in inside if not arith.is_const(x.extent, 1)]


def _misplaced(loop: For, over: For, between: list[For], ahead: int) -> Problem | None:
    if loop.uid != over.uid and not between:
        return Problem(
            f"{loop.var} is not inside {over.var}", "choose a loop inside it, or that loop itself"
        )
    if ahead < (0 if between else 1):
        return Problem(f"ahead={ahead} is too small", "ahead=1: the next iteration")
    problems = (checks.expect_serial(x) for x in between)
    return next((p for p in problems if p is not None), None)


def _untouched(
    kernel: Kernel, buffer: str, over: For, region: regions.Region | None
) -> Problem | None:
    params = [p.name for p in kernel.params]
    if buffer not in params:
        return Problem(f"{buffer} is not a parameter", f"one of: {', '.join(params)}")
    if region is None:
        touched = visit.read(over.body) | visit.written(over.body)
        have = ", ".join(sorted(touched & set(params)))
        return Problem(f"nothing under {over.var} accesses {buffer}", f"one of: {have}")
    if region.is_whole:
        return Problem(f"the accessed part of {buffer} depends on data", "prefetch another buffer")
    return None


def _slice_per_iteration(
    region: regions.Region, between: list[For], over: For, ahead: int
) -> ir.Slice | Problem:
    """The part of the region that one iteration of the innermost loop prefetches."""
    later = {over.var: arith.Var(over.var) + ahead}
    offsets = [arith.substitute(offset, later) for offset, _ in region.box]
    extents = [arith.as_int(extent) for _, extent in region.box]
    counts = [arith.as_int(x.extent) for x in between]
    if None in extents or None in counts:
        why = f"the part of {region.buffer.name} that {over.var} accesses has no constant size"
        return Problem(why, "static dimensions, or constant split factors")
    whole = [
        arith.as_int(size) for size in region.buffer.shape
    ]  # guarded iterations reach beyond it
    sizes = [e if w is None else min(e, w) for e, w in zip(extents, whole) if e is not None]
    along = max(range(len(sizes)), key=lambda d: (sizes[d], d))
    count = math.prod(n for n in counts if n is not None)
    if count > max(1, sizes[along]):
        why = f"{count} iterations are more than {sizes[along]} elements of {region.buffer.name}"
        return Problem(why, f"split {between[-1].var}, and choose the outer loop")
    sizes[along] = -(-sizes[along] // max(1, count))
    number: arith.Expr = arith.Const(0)
    for x in between:
        number = number * x.extent + (arith.Var(x.var) - x.start)
    if count > 1:
        offsets[along] = offsets[along] + number * sizes[along]
    return ir.Slice(region.buffer, tuple(offsets), tuple(arith.Const(e) for e in sizes))
