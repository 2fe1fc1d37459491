"""Rule: row reductions: softmax, layer-norm and other normalisations, sums.

    for rows (parallel):  every stage of the row, one after the other, in thread-local scratch

The row axes are those of the last block that index all intermediates it loads. The other blocks
move under the row loop (compute_at), last first; element-wise ones are vectorised along the row. A
reduction along the row accumulates in several vectors of partial results (rfactor), combined at the
end. Where the output's last axis is itself a row axis (the reduction is over an earlier one), a
tile of it stays inside and every block is vectorised along it.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.cost.shape import PARALLEL_WORK
from ingot.loops import ir
from ingot.loops.ir import Axis
from ingot.schedule import tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.itermap import IterMap
from ingot.schedule.rules.block_info import (
    BlockInfo,
    accesses,
    block_info_of,
    block_infos,
    elements,
    extent,
    index_vars,
    intermediates,
    loop_of,
    math_ops,
    own_loops,
    widest_type,
)
from ingot.schedule.rules.elementwise import (
    MATH_WEIGHT,
    MAX_UNROLL,
    interleave_factor,
    vector_width,
    vectorize_loop,
)
from ingot.schedule.rules.explain import too_small
from ingot.schedule.rules.roles import find_lanes, is_contiguous
from ingot.schedule.schedule import Schedule
from ingot.support import options
from ingot.target import Target

TILE_VECTORS = 4  # vectors of the last axis per row tile, at most; heuristic
# Accumulators of a row, at most, to hide the latency of add; measured.
PARTIAL_VECTORS = 4
MIN_ROW_LANES = 8  # lanes of a vector along a short row; heuristic
MIN_VECTORS_PER_PARTIAL = 4  # vectors of a row per accumulator; heuristic


def schedule_row_reductions(sch: Schedule, target: Target) -> None:
    """Move as many blocks as possible under one row loop. The nests it leaves stay serial."""
    if not has_rows(sch):
        return
    last = block_infos(sch)[-1]
    rows = row_axes(sch, last)
    is_big = _has_work(sch, last)
    lane = _lane_axis(sch, last, rows)
    if lane is None:
        for info in [s for s in block_infos(sch) if s.is_reduction]:
            with sch.attempt(info.ref, ir.SCALAR_CODE):
                rfactor_lanes(sch, target, info)
    with sch.attempt(last.ref):
        row_loop = _row_loop(sch, target, last, rows, lane)
        for info in reversed(block_infos(sch)[:-1]):
            _move_under_row_loop(sch, info, row_loop)
        for info in block_infos(sch):
            if any(x == row_loop for x in sch.loops(info.ref)):
                vectorize_in_row(sch, target, info, row_loop, lane is not None)
        if is_big:
            sch.parallel(row_loop)
            _set_thread_scope(sch, row_loop)
            _prefetch_next_row(sch, target, row_loop)


def has_rows(sch: Schedule) -> bool:
    """Is the last block element-wise, with row axes?"""
    last = block_infos(sch)[-1]
    return last.is_elementwise and bool(row_axes(sch, last)) and elements(sch, last) != 0


def _set_thread_scope(sch: Schedule, row_loop: LoopRef) -> None:
    """Put the intermediates of a row into thread scope; with dynamic sizes legalize could not prove
    later that they are private."""
    made = intermediates(sch)
    for info in block_infos(sch):
        if info.outputs <= made and any(x == row_loop for x in sch.loops(info.ref)):
            with sch.attempt(info.ref):
                sch.set_scope(info.ref, ir.THREAD)


def _prefetch_next_row(sch: Schedule, target: Target, row_loop: LoopRef) -> None:
    """While the most expensive block of a row computes, prefetch what the next row reads and the
    lines that this row writes: the hardware prefetcher stops at page boundaries."""
    found = block_infos(sch)
    inner = [s for s in found[:-1] if any(x == row_loop for x in sch.loops(s.ref))]
    if not inner or not options.current().has("prefetch"):
        return
    busiest = max(inner, key=lambda s: _work(sch, s))
    loops = [x for x in sch.loops(busiest.ref) if sch.at_loop(x).kind is ir.LoopKind.SERIAL]
    if not loops or not _exceeds_cache(sch, target, busiest):
        return
    params = {p.name for p in sch.kernel.params}
    for name in sorted(_row_dependent_buffers(found, row_loop) & params):
        with sch.attempt(busiest.ref):
            sch.prefetch(loops[-1], name, row_loop, ahead=0 if name in found[-1].outputs else 1)


def _row_dependent_buffers(found: list[BlockInfo], row_loop: LoopRef) -> set[str]:
    """The buffers whose accessed elements depend on the row."""
    names: set[str] = set()
    for info in found:
        rows = {a.var for a in info.block.axes if row_loop.name in arith.free_vars(a.binding)}
        touched = [x for x in accesses(info.block) if any(rows & index_vars(i) for i in x.indices)]
        names |= {x.buffer.name for x in touched}
    return names


def _exceeds_cache(sch: Schedule, target: Target, busiest: BlockInfo) -> bool:
    """Do operands and outputs exceed the last-level cache? With Math calls to overlap with, already
    prefetching into L2 pays."""
    if len(target.caches) < 2:
        return False
    sizes = [arith.as_int(arith.product(list(p.shape))) for p in sch.kernel.params]
    touched = sum((n or 0) * p.dtype.storage_bytes for n, p in zip(sizes, sch.kernel.params))
    return touched > (target.caches[1] if math_ops(busiest) else target.caches[-1])


def _work(sch: Schedule, info: BlockInfo) -> int:
    return (elements(sch, info) or 0) * (1 + MATH_WEIGHT * math_ops(info))


def _has_work(sch: Schedule, last: BlockInfo) -> bool:
    """Is there enough work for several threads? A remark on the last block says if there is not."""
    counts = [elements(sch, s) for s in block_infos(sch)]
    total = sum(n or 0 for n in counts)
    if None in counts or total >= PARALLEL_WORK:
        return True
    sch.remark(last.ref, ir.SERIAL_LOOPS, too_small(total))
    return False


def row_axes(sch: Schedule, last: BlockInfo) -> list[Axis]:
    """The axes of the last block that index every intermediate it loads."""
    made = intermediates(sch)
    found = {a.var for a in last.block.axes}
    loads = [x for x in last.loads if x.buffer.name in made]
    for load in loads:
        found &= {i.name for i in load.indices if isinstance(i, arith.Var)}
    return [a for a in last.block.axes if a.var in found] if loads else []


def _lane_axis(sch: Schedule, last: BlockInfo, rows: list[Axis]) -> Axis | None:
    """The last axis, if it is a row axis and every reduction loads contiguously along it."""
    axis = last.block.axes[-1]
    reductions = [s for s in block_infos(sch) if s.is_reduction]
    if axis not in rows or axis.extent == 1 or not reductions:
        return None
    return axis if all(find_lanes(s, eager=False) is not None for s in reductions) else None


def _row_loop(
    sch: Schedule, target: Target, last: BlockInfo, rows: list[Axis], lane: Axis | None
) -> LoopRef:
    """One loop over all rows, outside the other loops of the last block."""
    loops = {a.var: loop_of(sch, last, a) for a in last.block.axes}
    outer = [loops[a.var] for a in rows if a is not lane]
    rest = [loops[a.var] for a in last.block.axes if a not in rows]
    if lane is not None:
        loop = loops[lane.var]
        assert loop is not None
        stored = [s for s in block_infos(sch) if s.outputs]  # a check stores nothing
        widest = max((widest_type(s) for s in stored), key=lambda t: t.bits)
        width = _tile(extent(sch, loop), target.lanes(widest))
        out, inner = sch.split(loop, None, width)
        outer.append(out)
        rest.append(inner)
    order = [x for x in (*outer, *rest) if x is not None]
    assert len(order) == len(outer) + len(rest), "each axis of the block has a loop"
    sch.reorder(*order)
    first = order[: len(outer)]
    return sch.fuse(*first) if len(first) > 1 else first[0]


def _tile(count: int | None, lanes: int) -> int:
    """Lanes of a row tile: several vectors where they divide the axis."""
    width = vector_width(count, lanes)
    for vectors in range(TILE_VECTORS, 1, -1):
        if count is not None and count % (width * vectors) == 0:
            return width * vectors
    return width


def rfactor_lanes(
    sch: Schedule, target: Target, info: BlockInfo, vectors: int | None = None
) -> BlockRef | None:
    """total += x[j]  →  partial[lane] += x[j + lane]; total += partial[lane]. The first block."""
    axis = info.reduced[-1]
    if not any(is_contiguous(info, x, axis) for x in info.loads):
        names = ", ".join(dict.fromkeys(x.buffer.name for x in info.loads))
        sch.remark(info.ref, ir.SCALAR_CODE, f"strided access to {names}")
        return None
    loop = loop_of(sch, info, axis)
    assert loop is not None, "each axis of the block has a loop"
    count = extent(sch, loop)
    lanes = _row_lanes(count, target.lanes(info.dtype))
    if count is not None and count < 2 * lanes:
        sch.remark(info.ref, ir.SCALAR_CODE, f"short row: {count} elements")
        return None
    most = vectors if count is None or vectors is None else min(vectors, count // (2 * lanes))
    width = lanes * (most or _partial_vectors(count, lanes))  # at least two steps
    _, lane = sch.split(loop, None, width)
    return sch.rfactor(lane, axis=len(info.spatial))


def _row_lanes(count: int | None, lanes: int) -> int:
    """Lanes for a row: half vectors for one that is shorter than two whole ones."""
    while count is not None and count < 2 * lanes and lanes > MIN_ROW_LANES:
        lanes //= 2
    return lanes


def _partial_vectors(count: int | None, lanes: int) -> int:
    """Vectors of partial results. More hide the latency of add in a long row, but each costs in the
    final reduction. A dynamic row may be short: two."""
    most = 2 if count is None else count // (lanes * MIN_VECTORS_PER_PARTIAL)
    return next((n for n in (PARTIAL_VECTORS, 2) if n <= most), 1)


def _move_under_row_loop(sch: Schedule, info: BlockInfo, row_loop: LoopRef) -> None:
    """Move a block under the row loop, unless rows would then repeat the same work."""
    saved = sch.save()
    with sch.attempt(info.ref):
        sch.compute_at(info.ref, row_loop)
    if sch.kernel is saved[0]:
        return  # refused
    if not _is_own_work(sch, block_info_of(sch, info.ref), row_loop):
        sch.restore(saved)


def _is_own_work(sch: Schedule, info: BlockInfo, row_loop: LoopRef) -> bool:
    loop = sch.at_loop(row_loop)
    around = tree.loops_above(sch.kernel.body, info.block)
    inner = [loop, *tree.loops_between(loop, info.block)]
    bindings = [a.binding for a in info.block.axes if a.kind is ir.AxisKind.SPATIAL]
    return loop.var in IterMap(inner, Analyzer(sch.kernel, around)).determined(bindings)


def vectorize_in_row(
    sch: Schedule, target: Target, info: BlockInfo, row_loop: LoopRef, has_lanes: bool
) -> None:
    """Vectorise one block under the row loop."""
    own = own_loops(sch, info.ref)
    loops = [x for x in own if x != row_loop and extent(sch, x) != 1] or own[-1:]
    info = block_info_of(sch, info.ref)
    if not loops:
        sch.remark(info.ref, ir.SCALAR_CODE, "one value per row")
        return
    has_lanes = has_lanes or any(a.kind is ir.AxisKind.SPATIAL for a in _inner_axes(info, loops))
    if info.is_elementwise:
        registers = interleave_factor(sch, target, info, loops[-1])
        vectorize_loop(sch, target, info, loops[-1], registers)
    elif info.is_reduction and not has_lanes and len(loops) == 1:
        vectorize_final_reduction(sch, target, info, loops[0])
    elif info.is_reduction and has_lanes:
        with sch.attempt(info.ref, ir.SCALAR_CODE):
            spatial = [x for x in loops if _feeds_spatial(sch, info, x)]
            reduced = [x for x in loops if x not in spatial]
            if spatial and reduced:
                sch.reorder(*spatial[:-1], *reduced, spatial[-1])
            if spatial:
                for loop in vectorize_loop(sch, target, info, spatial[-1])[:-1]:
                    if (extent(sch, loop) or MAX_UNROLL + 1) <= MAX_UNROLL:
                        sch.unroll(loop)


def _inner_axes(info: BlockInfo, loops: list[LoopRef]) -> list[Axis]:
    """The axes that the loops inside the row feed."""
    names = {x.name for x in loops}
    return [a for a in info.block.axes if arith.free_vars(a.binding) & names]


def vectorize_final_reduction(
    sch: Schedule, target: Target, info: BlockInfo, loop: LoopRef
) -> None:
    """Reduce the partial results as lanes of one wide vector, in a tree."""
    count = extent(sch, loop)
    lanes = min(target.lanes(info.dtype), max(count or 0, MIN_ROW_LANES))
    if count is None or count % lanes or count > lanes * PARTIAL_VECTORS:
        sch.remark(info.ref, ir.SCALAR_CODE, f"short row: {count} elements")
        return
    with sch.attempt(info.ref, ir.SCALAR_CODE):
        sch.vectorize(loop)


def _feeds_spatial(sch: Schedule, info: BlockInfo, loop: LoopRef) -> bool:
    fed = [a for a in info.block.axes if loop.name in arith.free_vars(a.binding)]
    return all(a.kind is ir.AxisKind.SPATIAL for a in fed)
