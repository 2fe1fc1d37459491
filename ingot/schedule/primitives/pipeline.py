"""pipeline: software pipelining; the loads of an iteration overlap the computation of earlier ones.

    for k in range(16): load S; use S   →   the same   [pipeline: 3]

An annotation for targets with asynchronous copies, which implement it; others run the loop as it
is. Legal when a block under the loop writes an intermediate that only this loop uses, from buffers
that nothing under the loop writes, and later blocks of the same iteration read it.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import Block, For, Kernel
from ingot.schedule import checks, tree
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if

ANNOTATION = "pipeline"
MAX_STAGES = 8  # iterations in flight; heuristic


def pipeline(kernel: Kernel, loop: For, stages: int) -> Result:
    what = f"pipeline({loop.var}, {stages})"
    raise_if(kernel, loop, what, checks.expect_serial(loop) or _bad_stages(loop, stages))
    raise_if(kernel, loop, what, _nothing_ahead(kernel, loop))
    annotations = tuple(sorted({**dict(loop.annotations), ANNOTATION: stages}.items()))
    return put(kernel, loop, ir.replace(loop, annotations=annotations)), []


def _bad_stages(loop: For, stages: int) -> Problem | None:
    if not 2 <= stages <= MAX_STAGES:
        return Problem(
            f"{stages} is not a valid number of stages",
            f"2 to {MAX_STAGES}: one computes, the others load",
        )
    extent = arith.as_int(loop.extent)
    if extent is not None and extent < stages:
        return Problem(f"it has only {extent} iterations", "as many stages, or fewer")
    return None


def _nothing_ahead(kernel: Kernel, loop: For) -> Problem | None:
    blocks = dependences.top_blocks(loop.body)
    if any(runs_ahead(kernel, loop, block) for block in blocks):
        return None
    return Problem(
        "no block under it can be pipelined: one that writes an intermediate of each iteration, "
        f"from buffers that nothing under {loop.var} writes",
        f"cache_read, then compute_at({loop.var})",
    )


def runs_ahead(kernel: Kernel, loop: For, block: Block) -> bool:
    """May the block run for a later iteration while this one computes?"""
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
    return not checks.outer_reduce_loops(kernel, loop, block) and _before_all(loop, block, outputs)


def _before_all(loop: For, block: Block, outputs: set[str]) -> bool:
    position = tree.block_order(loop.body)
    readers = (b for name in outputs for b in dependences.readers(loop.body, name))
    return all(position[block.uid] < position[b.uid] for b in readers)
