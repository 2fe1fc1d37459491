"""Rule: elementwise and movement nests. Fuse what stays contiguous, vectorise along it, share out.

In: a nest whose axes are all spatial. Out: parallel outside, vectors inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import ir, visit
from ingot.loops.ir import Axis, Block, Load
from ingot.schedule import guards
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.stages import (
    Stage,
    accesses,
    elements,
    extent,
    formula_count,
    index_vars,
    loop_of,
    own_loops,
    stage_of,
    value_vars,
)
from ingot.schedule.rules.transposes import schedule_transpose
from ingot.schedule.schedule import Schedule
from ingot.target import Target

MAX_UNROLL = 16
PARALLEL_WORK = 16 << 10  # elements below which waking threads costs more than it saves
MATH_WEIGHT = 8  # plain operations one Math costs, about
WORTH_PEELING = 4  # panels, that the last one be a nest of its own
UNROLL = 4
PARTS = 32  # of a core, so that what is left over at the end is little
MATH_ABREAST = 2  # registers of a vector: more gain little and need more registers than there are
UNROLL_NODES = 40  # formulas larger than this are not written out, nor are those with Math: one
# expands to dozens of operations, and wide vectors of such work overlap in the machine as they are


def schedule_map(sch: Schedule, target: Target, stage: Stage) -> None:
    """The whole nest of a map stage."""
    with sch.attempt():
        _peel_last_panel(sch, stage)
    loops = own_loops(sch, stage.ref)
    if not loops:
        return
    is_big = has_work(sch, stage)
    if schedule_transpose(sch, target, stage, is_big):
        return
    flat = flat_suffix(stage.block, list(stage.block.axes))
    inner = sch.fuse(*loops[flat:]) if len(loops) - flat > 1 else loops[-1]
    outer = _outermost(sch, target, loops[: min(flat, len(loops) - 1)])
    pieces = vectorize_loop(sch, target, stage, inner, abreast(sch, target, stage, inner))
    if not is_big:
        return
    with sch.attempt():
        sch.parallel(_shared(sch, target, outer, pieces))


def _outermost(sch: Schedule, target: Target, loops: list[LoopRef]) -> LoopRef | None:
    """The loop that threads share: as many of the outer ones as give each thread enough parts. All
    of them would cost divisions at every step, to tell the indices apart again."""
    if not loops:
        return None
    taken, parts = 0, 1
    while taken < len(loops) and parts < PARTS * target.cores:
        parts *= extent(sch, loops[taken]) or 1  # an open size may be one
        taken += 1
    return sch.fuse(*loops[:taken]) if taken > 1 else loops[0]


def _peel_last_panel(sch: Schedule, stage: Stage) -> None:
    """A copy into panels, the last one filled up with zeros: that one becomes a nest of its own, so
    that the others ask nothing."""
    masks = [e for x in stage.loads for e in guards.conjuncts(x.mask)]
    for axis in stage.spatial:
        loop = loop_of(sch, stage, axis)
        if loop is not None and any(_cuts(e, axis) for e in masks):
            count = extent(sch, loop)
            if count is None or count >= WORTH_PEELING:
                sch.reorder(loop, *(x for x in own_loops(sch, stage.ref) if x != loop))
                sch.peel(loop, 1)
            return


def _cuts(mask: ir.Expr, axis: Axis) -> bool:
    """Is the mask c · axis + something < size, with c > 1?"""
    match mask:
        case ir.Compare(op="lt", a=ir.Index(expr=a)):
            step = coefficient(a, axis.var)
            return step is not None and (arith.as_int(step) or 0) > 1
    return False


def _shared(sch: Schedule, target: Target, outer: LoopRef | None, pieces: list[LoopRef]) -> LoopRef:
    """The loop that threads share: the outer one, with the next if it is too short for them."""
    if outer is None:
        return pieces[0]
    count = extent(sch, outer)
    if count is not None and count < 4 * target.cores and len(pieces) > 1:
        return sch.fuse(outer, pieces[0])
    return outer


def has_work(sch: Schedule, stage: Stage) -> bool:
    """Enough to share between threads; sizes not known yet count as large."""
    count = elements(sch, stage)
    if count is None:
        return True
    return count * (1 + MATH_WEIGHT * formula_count(stage)) >= PARALLEL_WORK


def flat_suffix(block: Block, axes: Sequence[Axis]) -> int:
    """The first of the trailing axes that every access runs through as one contiguous stretch."""
    first = len(axes) - 1
    while first > 0 and all(
        _is_flat(x.indices, x.buffer.shape, axes[first - 1 :]) for x in accesses(block)
    ):
        if _in_values(block, axes[first - 1 :]):
            break
        first -= 1
    return max(first, 0)


def _is_flat(
    indices: tuple[arith.Expr, ...], shape: tuple[arith.Expr, ...], axes: Sequence[Axis]
) -> bool:
    """Either none of the axes is in the indices, or they are the last ones, in order and whole."""
    names = [a.var for a in axes]
    if not any(index_vars(i) & set(names) for i in indices):
        return True
    count = len(names)
    if len(indices) < count or not all(map(_follows, indices[-count:], axes)):
        return False
    if any(index_vars(i) & set(names) for i in indices[:-count]):
        return False
    return all(a.extent == size for a, size in zip(axes[1:], shape[len(shape) - count + 1 :]))


def _follows(index: arith.Expr, axis: Axis) -> bool:
    """Is the index the axis itself? Where that has one step, its only number may stand for it."""
    if index == arith.Var(axis.var):
        return True
    return arith.is_const(axis.extent, 1) and arith.is_const(index, 0)


def _in_values(block: Block, axes: Sequence[Axis]) -> bool:
    """Are the axes used as numbers, in a guard for instance?"""
    names = {a.var for a in axes}
    for e in visit.all_exprs(block.body):
        match e:
            case ir.Index(expr=i):
                if index_vars(i) & names:
                    return True
            case Load(mask=mask) if mask is not None:
                if value_vars(mask) & names:
                    return True
    return False


def abreast(sch: Schedule, target: Target, stage: Stage, loop: LoopRef) -> int:
    """How many registers make a vector. Of long formulas two: their chains run side by side, and
    share the constants that are loaded for each step."""
    count, lanes = extent(sch, loop), target.lanes(stage.dtype)
    is_long = count is None or count >= MATH_ABREAST * lanes
    return MATH_ABREAST if formula_count(stage) and is_long and lanes > 1 else 1


def vectorize_loop(
    sch: Schedule, target: Target, stage: Stage, loop: LoopRef, registers: int = 1
) -> list[LoopRef]:
    """Split a loop into vectors (and a few of them written out); the loops made, outermost first.

    If vectors are refused the loop stays as it was.
    """
    count = extent(sch, loop)
    if count == 1 or _gathers(stage_of(sch, stage.ref), sch, loop):
        return [loop]
    width = vector_width(count, registers * target.lanes(stage.dtype))
    if width == 1:
        return [loop]
    pieces = [loop]
    with sch.attempt():
        made = _split(sch, stage, loop, count, width)
        sch.vectorize(made[-1])
        if len(made) == 3:
            sch.unroll(made[1])
        pieces = made
    return pieces


def _split(
    sch: Schedule, stage: Stage, loop: LoopRef, count: int | None, width: int
) -> list[LoopRef]:
    if count == width:
        return [loop]
    values = list(visit.all_exprs(stage.block.body))
    is_small = len(values) <= UNROLL_NODES and not any(isinstance(e, ir.Math) for e in values)
    if count is not None and count % (width * UNROLL) == 0 and is_small:
        if count == width * UNROLL:
            return sch.split(loop, UNROLL, width)
        return sch.split(loop, None, UNROLL, width)
    return sch.split(loop, None, width)


def _gathers(stage: Stage, sch: Schedule, loop: LoopRef) -> bool:
    """Does a loaded index vary along the loop? Its lanes would be loads of their own."""
    moving = {a.var for a in stage.block.axes if loop.name in arith.free_vars(a.binding)}
    return any(
        moving & value_vars(value)
        for x in accesses(stage.block)
        for i in x.indices
        for value in visit.opaque_values(i)
    )


def vector_width(count: int | None, lanes: int) -> int:
    """Lanes for a loop of `count`: a full vector, or what divides a short loop evenly."""
    if count is None or count % lanes == 0 or lanes == 1:
        return lanes
    if count < lanes:
        return count
    half = lanes // 2
    return half if half >= 4 and count % half == 0 and count < 16 * lanes else lanes


def write_out(sch: Schedule, target: Target, ref: BlockRef, is_short: bool = True) -> None:
    """A map in vectors along its last loop, all its short loops unrolled; if it is not short, only
    what the last one has become."""
    loops = own_loops(sch, ref)
    if not loops:
        return
    made = vectorize_loop(sch, target, stage_of(sch, ref), loops[-1])
    for loop in [*loops[:-1], *made] if is_short else made:
        node = sch.at_loop(loop)
        count = arith.as_int(node.extent)
        if node.kind.value == "serial" and count is not None and count <= MAX_UNROLL:
            sch.unroll(loop)
