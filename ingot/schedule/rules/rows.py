"""Rule: reductions along rows: softmax, normalisations, sums.

    for rows (parallel):  every stage of the row, one after the other, in the row's scratch

The last stage's axes that all its intermediates are indexed by are the rows. Stages move under the
row loop, last first; elementwise ones become vectors along the row. A reduction along the row is
kept in several vectors of partial results, combined at the row's end. Where the output's last axis
is itself a row axis (the reduction runs over an earlier one), a tile of it stays inside and every
stage is vectorised along it.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.ir import Axis
from ingot.schedule import tree
from ingot.schedule.facts import Facts
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.itermap import IterMap
from ingot.schedule.rules.maps import (
    MATH_WEIGHT,
    MAX_UNROLL,
    PARALLEL_WORK,
    abreast,
    vector_width,
    vectorize_loop,
)
from ingot.schedule.rules.roles import find_roles, is_contiguous
from ingot.schedule.rules.stages import (
    Stage,
    accesses,
    elements,
    extent,
    formula_count,
    index_vars,
    intermediates,
    loop_of,
    own_loops,
    stage_of,
    stages,
)
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.support.errors import IngotError
from ingot.target import Target

TILE_VECTORS = 4
PARTIAL_VECTORS = 4
WORTH_ONE = 4  # vectors of a row that pay for one more of partial results


def schedule_rows(sch: Schedule, target: Target) -> None:
    """Gather the stages of a row under one loop, as many as can be. Nests it leaves are serial."""
    last = stages(sch)[-1]
    rows = row_axes(sch, last)
    if not last.is_map or not rows or elements(sch, last) == 0:
        return
    is_big = _has_work(sch)
    lane = _lane_axis(sch, last, rows)
    if lane is None:
        for stage in [s for s in stages(sch) if s.is_reduction]:
            with sch.attempt():
                partial_results(sch, target, stage)
    with sch.attempt():
        shared = _row_loop(sch, target, last, rows, lane)
        for stage in reversed(stages(sch)[:-1]):
            _gather(sch, stage, shared)
        for stage in stages(sch):
            if any(x == shared for x in sch.loops(stage.ref)):
                _inside(sch, target, stage, shared, lane is not None)
        if is_big:
            sch.parallel(shared)
            _own_memory(sch, shared)
            _fetch_ahead(sch, target, shared)


def _own_memory(sch: Schedule, shared: LoopRef) -> None:
    """What only one row's stages touch is the thread's own, even where sizes are open and that
    could not be seen later."""
    made = intermediates(sch)
    for stage in stages(sch):
        if stage.outputs <= made and any(x == shared for x in sch.loops(stage.ref)):
            with sch.attempt():
                sch.set_scope(stage.ref, ir.THREAD)


def _fetch_ahead(sch: Schedule, target: Target, shared: LoopRef) -> None:
    """While the longest formula of a row is worked out, what the next row reads is fetched, and the
    lines that this one's results go to: a machine's own prefetching stops where a page ends."""
    found = stages(sch)
    inner = [s for s in found[:-1] if any(x == shared for x in sch.loops(s.ref))]
    if not inner or not knobs.current().fetch_ahead:
        return
    busiest = max(inner, key=lambda s: _work(sch, s))
    steps = [x for x in sch.loops(busiest.ref) if sch.at_loop(x).kind is ir.LoopKind.SERIAL]
    if not steps or not _is_far(sch, target, busiest):
        return
    for name in sorted(_by_row(found, shared) & {p.name for p in sch.kernel.params}):
        with sch.attempt():
            sch.prefetch(steps[-1], name, shared, ahead=0 if name in found[-1].outputs else 1)


def _by_row(found: list[Stage], shared: LoopRef) -> set[str]:
    """The buffers that another row touches other elements of."""
    names: set[str] = set()
    for stage in found:
        rows = {a.var for a in stage.block.axes if shared.name in arith.free_vars(a.binding)}
        touched = [x for x in accesses(stage.block) if any(rows & index_vars(i) for i in x.indices)]
        names |= {x.buffer.name for x in touched}
    return names


def _is_far(sch: Schedule, target: Target, busiest: Stage) -> bool:
    """Do the kernel's operands and results not stay near? Beside a long formula, fetching them from
    the last-level cache pays too."""
    if len(target.caches) < 2:
        return False
    sizes = [arith.as_int(arith.product(list(p.shape))) for p in sch.kernel.params]
    touched = sum((n or 0) * p.dtype.storage_bytes for n, p in zip(sizes, sch.kernel.params))
    return touched > (target.caches[1] if formula_count(busiest) else target.caches[-1])


def _work(sch: Schedule, stage: Stage) -> int:
    return (elements(sch, stage) or 0) * (1 + MATH_WEIGHT * formula_count(stage))


def _has_work(sch: Schedule) -> bool:
    counts = [elements(sch, s) for s in stages(sch)]
    return any(n is None for n in counts) or sum(n or 0 for n in counts) >= PARALLEL_WORK


def row_axes(sch: Schedule, last: Stage) -> list[Axis]:
    """The axes of the last stage that every intermediate it loads is indexed by."""
    made = intermediates(sch)
    found = {a.var for a in last.block.axes}
    loads = [x for x in last.loads if x.buffer.name in made]
    for load in loads:
        found &= {i.name for i in load.indices if isinstance(i, arith.Var)}
    return [a for a in last.block.axes if a.var in found] if loads else []


def _lane_axis(sch: Schedule, last: Stage, rows: list[Axis]) -> Axis | None:
    """The last axis, if it is a row axis and every reduction loads contiguously along it."""
    axis = last.block.axes[-1]
    reductions = [s for s in stages(sch) if s.is_reduction]
    if axis not in rows or axis.extent == 1 or not reductions:
        return None
    return axis if all(find_roles(s, eager=False) is not None for s in reductions) else None


def _row_loop(
    sch: Schedule, target: Target, last: Stage, rows: list[Axis], lane: Axis | None
) -> LoopRef:
    """One loop over all rows, outside everything else of the last stage."""
    loops = {a.var: loop_of(sch, last, a) for a in last.block.axes}
    outer = [loops[a.var] for a in rows if a is not lane]
    rest = [loops[a.var] for a in last.block.axes if a not in rows]
    if lane is not None:
        loop = loops[lane.var]
        assert loop is not None
        cut = _tile(extent(sch, loop), target.lanes(last.dtype))
        out, inner = sch.split(loop, None, cut)
        outer.append(out)
        rest.append(inner)
    order = [x for x in (*outer, *rest) if x is not None]
    assert len(order) == len(outer) + len(rest), "a stage has a loop for each axis"
    sch.reorder(*order)
    first = order[: len(outer)]
    return sch.fuse(*first) if len(first) > 1 else first[0]


def _tile(count: int | None, lanes: int) -> int:
    """Lanes kept inside: several vectors where they divide the axis."""
    width = vector_width(count, lanes)
    for vectors in range(TILE_VECTORS, 1, -1):
        if count is not None and count % (width * vectors) == 0:
            return width * vectors
    return width


def partial_results(
    sch: Schedule, target: Target, stage: Stage, vectors: int | None = None
) -> BlockRef | None:
    """total += x[j]  →  eight lanes or more of totals side by side, and a small sum over them; the
    block of the former"""
    axis = stage.reduced[-1]
    if not any(is_contiguous(stage, x, axis) for x in stage.loads):
        return None
    loop = loop_of(sch, stage, axis)
    assert loop is not None, "a stage has a loop for each axis"
    count, lanes = extent(sch, loop), target.lanes(stage.dtype)
    if count is not None and count < 2 * lanes:
        return None
    width = lanes * (vectors or _partial_vectors(count, lanes))
    _, lane = sch.split(loop, None, width)
    return sch.rfactor(lane, axis=len(stage.spatial))


def _partial_vectors(count: int | None, lanes: int) -> int:
    """More for a long row: an addition waits for the one before, but each vector costs at the end.
    A row of open length may be short."""
    most = 2 if count is None else count // (lanes * WORTH_ONE)
    return next((n for n in (PARTIAL_VECTORS, 2) if n <= most), 1)


def _gather(sch: Schedule, stage: Stage, shared: LoopRef) -> None:
    """Move a stage under the row loop, unless each row would do the same work again."""
    saved = sch.save()
    try:
        sch.compute_at(stage.ref, shared)
    except IngotError as error:
        if error.code != "bad-schedule":
            raise
        return
    if not _is_own_work(sch, stage_of(sch, stage.ref), shared):
        sch.restore(saved)


def _is_own_work(sch: Schedule, stage: Stage, shared: LoopRef) -> bool:
    loop = sch.at_loop(shared)
    around = tree.loops_above(sch.kernel.body, stage.block)
    inner = [loop, *tree.loops_between(loop, stage.block)]
    bindings = [a.binding for a in stage.block.axes if a.kind is ir.AxisKind.SPATIAL]
    return loop.var in IterMap(inner, Facts(sch.kernel, around)).determined(bindings)


def _inside(sch: Schedule, target: Target, stage: Stage, shared: LoopRef, has_lanes: bool) -> None:
    """Vectors for one stage under the row loop."""
    own = own_loops(sch, stage.ref)
    loops = [x for x in own if x != shared and extent(sch, x) != 1] or own[-1:]
    stage = stage_of(sch, stage.ref)
    if not loops:
        return
    has_lanes = has_lanes or any(a.kind is ir.AxisKind.SPATIAL for a in _inner_axes(stage, loops))
    if stage.is_map:
        vectorize_loop(sch, target, stage, loops[-1], abreast(sch, target, stage, loops[-1]))
    elif stage.is_reduction and not has_lanes and len(loops) == 1:
        combine(sch, target, stage, loops[0])
    elif stage.is_reduction and has_lanes:
        with sch.attempt():
            spatial = [x for x in loops if _feeds_spatial(sch, stage, x)]
            reduced = [x for x in loops if x not in spatial]
            if spatial and reduced:
                sch.reorder(*spatial[:-1], *reduced, spatial[-1])
            if spatial:
                for loop in vectorize_loop(sch, target, stage, spatial[-1])[:-1]:
                    if (extent(sch, loop) or MAX_UNROLL + 1) <= MAX_UNROLL:
                        sch.unroll(loop)


def _inner_axes(stage: Stage, loops: list[LoopRef]) -> list[Axis]:
    """The axes that the loops inside the row alone are."""
    names = {x.name for x in loops}
    return [a for a in stage.block.axes if arith.free_vars(a.binding) & names]


def combine(sch: Schedule, target: Target, stage: Stage, loop: LoopRef) -> None:
    """Partial results → one, as a reduction of lanes: halves of a wide vector meet first."""
    count, lanes = extent(sch, loop), target.lanes(stage.dtype)
    if count is None or count % lanes or count > lanes * PARTIAL_VECTORS:
        return
    with sch.attempt():
        sch.vectorize(loop)


def _feeds_spatial(sch: Schedule, stage: Stage, loop: LoopRef) -> bool:
    fed = [a for a in stage.block.axes if loop.name in arith.free_vars(a.binding)]
    return all(a.kind is ir.AxisKind.SPATIAL for a in fed)
