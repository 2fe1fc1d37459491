"""pipeline: what one iteration loads is fetched while earlier ones still compute.

    for k in range(16): load S; use S   →   the same   [pipeline: 3]

A note for targets with asynchronous copies, which realise it; others run the loop as it is. Legal
when a block under the loop fills an intermediate that only this loop uses, from what nothing under
the loop writes, and later blocks of the same iteration read it: such a block may run ahead.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import Block, For, Kernel
from ingot.schedule import checks, tree
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, insist, put

NOTE = "pipeline"
MAX_STAGES = 8


def pipeline(kernel: Kernel, loop: For, stages: int) -> Result:
    what = f"pipeline({loop.var}, {stages})"
    insist(kernel, loop, what, checks.expect_serial(loop) or _bad_stages(loop, stages))
    insist(kernel, loop, what, _nothing_ahead(kernel, loop))
    notes = {**dict(loop.annotations), NOTE: stages}
    return put(kernel, loop, ir.replace(loop, annotations=tuple(sorted(notes.items())))), []


def _bad_stages(loop: For, stages: int) -> Problem | None:
    if not 2 <= stages <= MAX_STAGES:
        return Problem(f"{stages} stages", f"2 to {MAX_STAGES}: one computes, the others load")
    extent = arith.as_int(loop.extent)
    if extent is not None and extent < stages:
        return Problem(f"it has only {extent} iterations", "as many stages, or fewer")
    return None


def _nothing_ahead(kernel: Kernel, loop: For) -> Problem | None:
    blocks = dependences.top_blocks(loop.body)
    if any(runs_ahead(kernel, loop, block) for block in blocks):
        return None
    return Problem(
        "no block under it loads ahead: one that fills an intermediate of each iteration, from "
        f"what nothing under {loop.var} writes",
        f"cache_read, then compute_at({loop.var})",
    )


def runs_ahead(kernel: Kernel, loop: For, block: Block) -> bool:
    """May the block run for a later iteration while this one still computes?"""
    written = visit.written(loop.body)
    outputs = visit.written(block)
    if visit.read(block) & written or checks.only_writer(kernel, block) is not None:
        return False
    inside = {b.uid for b in dependences.top_blocks(loop.body)}
    for name in outputs:
        readers = dependences.readers(kernel.body, name)
        if not readers or any(b.uid not in inside for b in readers):
            return False
        if not all(checks.covered(kernel, loop, block, b, name) for b in readers):
            return False
    return not checks.open_loops(kernel, loop, block) and _before_all(loop, block, outputs)


def _before_all(loop: For, block: Block, outputs: set[str]) -> bool:
    places = tree.order(loop.body)
    readers = (b for name in outputs for b in dependences.readers(loop.body, name))
    return all(places[block.uid] < places[b.uid] for b in readers)
