"""prefetch: memory that a later iteration touches is fetched while this one computes.

    for i: for k in range(32): …
    →  for i: for k in range(32): prefetch(X[i + 1:i + 2, 32*k:32*k + 32]); …

What one iteration of `over` touches of a parameter, `ahead` iterations later (0: later in this
one), is shared out along its longest dimension over the iterations of `loop`. A machine follows a
stream by itself within a page; where rows are pages, or strides are long, it must be told. A hint
changes no value and may name memory that is not there, so it is legal wherever the part touched is
known and the sizes are numbers.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, regions, visit
from ingot.loops.ir import For, Kernel
from ingot.schedule import checks, tree
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.primitives.base import Result, insist, put


def prefetch(kernel: Kernel, loop: For, buffer: str, over: For, ahead: int = 1) -> Result:
    what = f"prefetch({loop.var}, {buffer!r}, {over.var}, {ahead})"
    insist(kernel, loop, what, _misplaced(kernel, loop, over, ahead))
    reads, writes = regions.regions(over.body, _around(kernel, over).env)
    region = reads.get(buffer) or writes.get(buffer)
    insist(kernel, loop, what, _untouched(kernel, buffer, over, region))
    assert region is not None
    box = _share(region, loop, over, ahead)
    insist(kernel, loop, what, box if isinstance(box, Problem) else None)
    assert isinstance(box, ir.Slice)
    hint = ir.Prefetch(box, writes=buffer not in reads)
    return put(kernel, loop, ir.replace(loop, body=ir.seq(hint, loop.body))), []


def _around(kernel: Kernel, over: For) -> Facts:
    return Facts(kernel, [*tree.loops_above(kernel.body, over), over])


def _misplaced(kernel: Kernel, loop: For, over: For, ahead: int) -> Problem | None:
    above = [x for x in tree.loops_above(kernel.body, loop) if not arith.is_const(x.extent, 1)]
    if loop.uid != over.uid and not (above and above[-1].uid == over.uid):
        why = f"{loop.var} is not right inside {over.var}"
        return Problem(why, f"a loop with none but {over.var} around it there, or that itself")
    if ahead < (1 if loop.uid == over.uid else 0):
        return Problem(f"{ahead} iterations ahead", "1: the next one")
    return checks.expect_serial(loop) if loop.uid != over.uid else None


def _untouched(
    kernel: Kernel, buffer: str, over: For, region: regions.Region | None
) -> Problem | None:
    params = [p.name for p in kernel.params]
    if buffer not in params:
        return Problem(f"{buffer} is not a parameter", f"one of: {', '.join(params)}")
    if region is None:
        touched = visit.read(over.body) | visit.written(over.body)
        have = ", ".join(sorted(touched & set(params)))
        return Problem(f"nothing under {over.var} touches {buffer}", f"one of: {have}")
    if region.is_whole:
        return Problem(f"which part of {buffer} is touched depends on data", "another buffer")
    return None


def _share(region: regions.Region, loop: For, over: For, ahead: int) -> ir.Slice | Problem:
    """The part of the region that an iteration of `loop` asks for."""
    later = {over.var: arith.Var(over.var) + ahead}
    offsets = [arith.substitute(offset, later) for offset, _ in region.box]
    extents = [arith.as_int(extent) for _, extent in region.box]
    count = 1 if loop.uid == over.uid else arith.as_int(loop.extent)
    if None in extents or count is None:
        why = f"how much of {region.buffer.name} an iteration of {over.var} touches is no number"
        return Problem(why, "fixed sizes, or factors of split that are numbers")
    sizes = [e for e in extents if e is not None]
    along = max(range(len(sizes)), key=lambda d: (sizes[d], d))
    if count > max(1, sizes[along]):
        what = f"{count} iterations would share out {sizes[along]} elements of {region.buffer.name}"
        return Problem(what, f"split {loop.var}, and take the outer part")
    sizes[along] = -(-sizes[along] // max(1, count))
    if count > 1:
        offsets[along] = offsets[along] + (arith.Var(loop.var) - loop.start) * sizes[along]
    return ir.Slice(region.buffer, tuple(offsets), tuple(arith.Const(e) for e in sizes))
