"""Rule: spatial nests whose block has several statements, or loops of its own.

In: a nest of independent points, each of which stores several values or loops as often as data
says (the taps of an interpolation, the samples of a region). Out: lanes along the last axis where
everything inside is uniform or contiguous along it, parallel outside.
"""

from __future__ import annotations

from ingot.loops import ir, visit
from ingot.loops.ir import SERIAL_LOOPS
from ingot.schedule.rules.block_info import BlockInfo, likely_extent, own_loops
from ingot.schedule.rules.elementwise import has_work, vectorize_loop
from ingot.schedule.schedule import Schedule
from ingot.target import Target

REGISTERS = 4  # vectors per operation of a block with loops, whose scalars serve all; heuristic
MIN_ITERATIONS_PER_CORE = 4  # of the parallel loop; heuristic


def is_point_block(info: BlockInfo) -> bool:
    """All axes are spatial, and the block stores without checks that may fail."""
    if info.reduced or info.block.init is not None or isinstance(info.block.body, ir.Store):
        return False
    stmts = list(visit.walk_stmts(info.block.body))
    has_stores = any(isinstance(s, ir.Store) for s in stmts)
    return has_stores and not any(isinstance(s, ir.Fail | ir.Call) for s in stmts)


def schedule_point_block(sch: Schedule, target: Target, info: BlockInfo) -> None:
    loops = own_loops(sch, info.ref)
    if not loops:
        return
    has_loops = any(isinstance(s, ir.For | ir.While) for s in visit.walk_stmts(info.block.body))
    is_big = has_loops or has_work(sch, info)  # a loop inside may be long
    registers = REGISTERS if has_loops else 1
    pieces = vectorize_loop(sch, target, info, loops[-1], registers)
    if not is_big:
        return
    outer, wanted = [*loops[:-1], pieces[0]], MIN_ITERATIONS_PER_CORE * target.cores
    taken, count = 1, likely_extent(sch, outer[0]) or 1
    while taken < len(outer) and count < wanted:
        count *= likely_extent(sch, outer[taken]) or 1
        taken += 1
    with sch.attempt(info.ref, SERIAL_LOOPS):
        sch.parallel(sch.fuse(*outer[:taken]) if taken > 1 else outer[0])
