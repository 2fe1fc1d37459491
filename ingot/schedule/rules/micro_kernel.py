"""The register tile of a GEMM: the one microkernel of matmul, convolution, attention and Winograd.

    for k…: for rows (unrolled): for vectors (unrolled): for lanes (vector)

A long float sum is split into chunks of k, each accumulated in registers:

    for k_outer: for k_inner: partial += …
                 total += partial

The rounding error of one accumulator grows with its number of terms; with chunks of c terms, it is
that of c terms plus that of n / c totals. The total stays in memory. Everything is in the plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.cost.plan import ContractionPlan
from ingot.loops import ir
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import extent
from ingot.schedule.rules.elementwise import vectorize_and_unroll
from ingot.schedule.schedule import Schedule
from ingot.target import Target


@dataclass(frozen=True)
class TileLoops:
    """The loops of a block that become its register tile, and those around, outermost first."""

    outer: list[LoopRef]
    k: list[LoopRef]
    row: LoopRef | None
    lane: LoopRef
    terms: LoopRef | None = None  # of one dot product


def micro_kernel(
    sch: Schedule, target: Target, block: BlockRef, plan: ContractionPlan, loops: TileLoops
) -> list[LoopRef]:
    """Make the tile: split the lanes into vectors, put k outside, unroll; the loops of k."""
    assert plan.tile is not None
    vectors, lane = _vectors(sch, loops.lane, plan.tile.lanes)
    rows = [] if loops.row is None else [loops.row]
    terms = [] if loops.terms is None else [loops.terms]
    sch.reorder(*loops.outer, *loops.k, *rows, *vectors, lane, *terms)
    k = loops.k
    if plan.partial_sums is not None:
        with sch.attempt(block):
            k = _split_sum(sch, target, block, k, *plan.partial_sums)
    if loops.terms is None:  # else they become an instruction, when the epilogue is in place
        sch.vectorize(lane)
    for loop in (*rows, *vectors):
        sch.unroll(loop)
    if k:  # K = 1 has no loop
        unroll_k(sch, k[-1], plan.k_unroll)
    return k


def _vectors(sch: Schedule, loop: LoopRef, lanes: int) -> tuple[list[LoopRef], LoopRef]:
    width = extent(sch, loop)
    if width is None or width <= lanes or width % lanes:
        return [], loop
    vectors, lane = sch.split(loop, None, lanes)
    return [vectors], lane


def unroll_k(sch: Schedule, loop: LoopRef, factor: int) -> None:
    """The innermost k loop, unrolled: all of it, or by an annotation for LLVM."""
    if factor == 1:
        return
    if factor == extent(sch, loop):
        sch.unroll(loop)
    else:
        sch.annotate(loop, ir.K_UNROLL, factor)


def _split_sum(
    sch: Schedule, target: Target, block: BlockRef, k: list[LoopRef], position: int, step: int
) -> list[LoopRef]:
    """A chunk is `step` iterations of loop `position` and all iterations of the loops inside it."""
    before, inside = k[:position], k[position:]
    if step != extent(sch, inside[0]):
        outer, inner = sch.split(inside[0], None, step)
        before, inside = [*before, outer], [inner, *inside[1:]]
    chunks = sch.fuse(*before) if len(before) > 1 else before[0]
    sch.rfactor(chunks, within=True)
    vectorize_and_unroll(sch, target, block)
    return [chunks, *inside]
