"""Rule: element-wise and data-movement nests. Fuse contiguous axes, vectorise, parallelise.

In: a nest whose axes are all spatial. Out: parallel outside, vectors inside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.cost.shape import PARALLEL_WORK
from ingot.loops import ir, visit
from ingot.loops.ir import Axis, Block, Load
from ingot.loops.work import nested_stmts
from ingot.schedule import guards
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    accesses,
    block_info_of,
    elements,
    extent,
    index_vars,
    likely_extent,
    loop_of,
    math_ops,
    own_loops,
    value_vars,
    widest_type,
)
from ingot.schedule.rules.byte_lookup import schedule_byte_lookup
from ingot.schedule.rules.explain import too_small
from ingot.schedule.rules.transposes import schedule_transpose
from ingot.schedule.schedule import Schedule
from ingot.target import Target

MAX_UNROLL = 16  # iterations of a loop that is fully unrolled; heuristic
MATH_WEIGHT = 8  # cost of one Math call in plain operations; heuristic
MIN_PANELS_TO_PEEL = 4  # panels from which the masked last one is peeled; heuristic
UNROLL = 4  # vectors per iteration of a small element-wise loop; heuristic
CHUNKS_PER_CORE = 32  # iterations of the parallel loop per core; measured
MIN_ROWS_PER_CORE = 4  # of a nest whose loop along a row stays serial; heuristic
LONG_EXTENT = 256  # iterations of a dynamic loop of which nothing is known; heuristic
MAX_ELEMENTS_TO_DIVIDE = 16  # work that takes no longer than three divisions; heuristic
MATH_INTERLEAVE = (
    2  # vector registers per operation with Math calls; measured on gelu, erf, sigmoid
)
# Expression nodes up to which loops are unrolled; heuristic. A Math call expands to dozens of
# operations, which out-of-order execution overlaps without unrolling.
MAX_UNROLL_NODES = 40


def schedule_elementwise(sch: Schedule, target: Target, info: BlockInfo) -> None:
    """Schedule the whole nest of an element-wise block."""
    with sch.attempt(info.ref):
        _peel_last_panel(sch, info)
    loops = own_loops(sch, info.ref)
    if not loops:
        return
    is_big = has_work(sch, info)
    if schedule_transpose(sch, target, info, is_big):
        return
    flat = flat_suffix(info.block, list(info.block.axes))
    inner = sch.fuse(*loops[flat:]) if len(loops) - flat > 1 else loops[-1]
    if schedule_byte_lookup(sch, target, info, inner, is_big):
        return
    first = min(flat, len(loops) - 1)
    outer = _outermost(sch, target, _around_rows(sch, target, info, loops[:first], inner))
    pieces = vectorize_loop(sch, target, info, inner, interleave_factor(sch, target, info, inner))
    if not is_big:
        return
    with sch.attempt(info.ref, ir.SERIAL_LOOPS):
        sch.parallel(_parallel_loop(sch, target, outer, pieces))


def _outermost(sch: Schedule, target: Target, loops: list[LoopRef]) -> LoopRef | None:
    """The outer loops fused to one, as many as give each thread enough iterations. Fusing all of
    them would cost divisions in every iteration, to recover the indices."""
    if not loops:
        return None
    taken, iterations = 0, 1
    while taken < len(loops) and iterations < CHUNKS_PER_CORE * target.cores:
        iterations *= extent(sch, loops[taken]) or 1  # a dynamic extent may be 1
        taken += 1
    return sch.fuse(*loops[:taken]) if taken > 1 else loops[0]


def _around_rows(
    sch: Schedule, target: Target, info: BlockInfo, loops: list[LoopRef], inner: LoopRef
) -> list[LoopRef]:
    """Without the last loop, if it is long and dynamic, and finding its index again by division
    would cost more than the work inside: few elements, or masks that depend on it, as in a padded
    copy, of which other loops' masks are then tested once per row. Not where too few rows would be
    left for the threads."""
    if not loops or extent(sch, loops[-1]) is not None:
        return loops
    rows = math.prod(_likely_extent(sch, loop) for loop in loops[:-1])
    if rows < MIN_ROWS_PER_CORE * target.cores:
        return loops
    masks = [x.mask for x in info.loads if x.mask is not None]
    own = {a.var for a in info.block.axes if loops[-1].name in arith.free_vars(a.binding)}
    is_masked = any(value_vars(mask) & own for mask in masks)
    is_short = _likely_extent(sch, inner) <= MAX_ELEMENTS_TO_DIVIDE
    return loops[:-1] if is_masked or is_short else loops


def _likely_extent(sch: Schedule, loop: LoopRef) -> int:
    likely = {size.name: size.likely for size in sch.kernel.sizes if size.likely is not None}
    return arith.assumed(sch.at_loop(loop).extent, likely) or LONG_EXTENT


def _peel_last_panel(sch: Schedule, info: BlockInfo) -> None:
    """Packing with a zero-padded last panel: peel that panel, so that the others need no mask."""
    masks = [e for x in info.loads for e in guards.conjuncts(x.mask)]
    for axis in info.spatial:
        loop = loop_of(sch, info, axis)
        if loop is not None and any(_bounds_panel(e, axis) for e in masks):
            count = extent(sch, loop)
            if count is None or count >= MIN_PANELS_TO_PEEL:
                sch.reorder(loop, *(x for x in own_loops(sch, info.ref) if x != loop))
                sch.peel(loop, 1)
            return


def _bounds_panel(mask: ir.Expr, axis: Axis) -> bool:
    """Is the mask `c · axis + … < size` with a panel width c > 1?"""
    match mask:
        case ir.Compare(op="lt", a=ir.Index(expr=a)):
            width = coefficient(a, axis.var)
            return width is not None and (arith.as_int(width) or 0) > 1
    return False


def _parallel_loop(
    sch: Schedule, target: Target, outer: LoopRef | None, pieces: list[LoopRef]
) -> LoopRef:
    """The outer loop, fused with the next one if it is too short for the threads, or likely is: a
    dynamic batch."""
    if outer is None:
        return pieces[0]
    count = likely_extent(sch, outer)
    if count is not None and count < 4 * target.cores and len(pieces) > 1:
        return sch.fuse(outer, pieces[0])
    return outer


def has_work(sch: Schedule, info: BlockInfo) -> bool:
    """Is there enough work for several threads? Dynamic sizes count as large. If there is not, a
    remark says so."""
    count = elements(sch, info)
    each = (1 + MATH_WEIGHT * math_ops(info)) * inner_trips(info)
    if count is None or count * each >= PARALLEL_WORK:
        return True
    sch.remark(info.ref, ir.SERIAL_LOOPS, too_small(count))
    return False


def inner_trips(info: BlockInfo) -> int:
    """How often the innermost statement of a block runs in one instance: operators that sort or
    select have loops of their own."""
    return max((nested.estimated_trips[0] for nested in nested_stmts(info.block.body)), default=1)


def flat_suffix(block: Block, axes: Sequence[Axis]) -> int:
    """The first of the trailing axes that are contiguous together in every access."""
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
    """Do the indices use none of the axes, or exactly these last, in order and over whole sizes?"""
    names = [a.var for a in axes]
    if not any(index_vars(i) & set(names) for i in indices):
        return True
    count = len(names)
    if len(indices) < count or not all(map(_is_axis, indices[-count:], axes)):
        return False
    if any(index_vars(i) & set(names) for i in indices[:-count]):
        return False
    return all(a.extent == size for a, size in zip(axes[1:], shape[len(shape) - count + 1 :]))


def _is_axis(index: arith.Expr, axis: Axis) -> bool:
    """Is the index the axis itself? An axis of extent 1 may appear as the constant 0."""
    if index == arith.Var(axis.var):
        return True
    return arith.is_const(axis.extent, 1) and arith.is_const(index, 0)


def _in_values(block: Block, axes: Sequence[Axis]) -> bool:
    """Are the axes used as values, for instance in a guard?"""
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


def interleave_factor(sch: Schedule, target: Target, info: BlockInfo, loop: LoopRef) -> int:
    """Vector registers per operation. Two for Math calls: the dependency chains overlap, and both
    use each constant that is loaded."""
    count, lanes = extent(sch, loop), target.lanes(info.dtype)
    if target.lanes(widest_type(info)) * MATH_INTERLEAVE <= lanes:
        return 1  # a vector of what is stored has several registers of what is computed
    is_long = count is None or count >= MATH_INTERLEAVE * lanes
    return MATH_INTERLEAVE if math_ops(info) and is_long and lanes > 1 else 1


def vectorize_loop(
    sch: Schedule, target: Target, info: BlockInfo, loop: LoopRef, registers: int = 1,
    most: int | None = None,
) -> list[LoopRef]:  # fmt: skip
    """Vectorise a loop, and unroll a few vectors; the new loops, outermost first. The loop stays
    as it was where vectorising is illegal. `most`: lanes of a vector, at most."""
    count = extent(sch, loop)
    gathered = _gathered(block_info_of(sch, info.ref), sch, loop)
    lanes = registers * target.lanes(info.dtype)
    least = min(lanes, registers * target.lanes(widest_type(info)))
    width = vector_width(count, lanes if most is None else min(lanes, most), least)
    if count == 1 or gathered or width == 1:
        why = (
            f"data-dependent index into {gathered}" if gathered else f"no vector along {loop.name}"
        )
        sch.remark(info.ref, ir.SCALAR_CODE, too_small(1) if count == 1 else why)
        return [loop]
    pieces = [loop]
    with sch.attempt(info.ref, ir.SCALAR_CODE):
        made = _split(sch, info, loop, count, width)
        sch.vectorize(made[-1])
        if len(made) == 3:
            sch.unroll(made[1])
        pieces = made
    return pieces


def _split(
    sch: Schedule, info: BlockInfo, loop: LoopRef, count: int | None, width: int
) -> list[LoopRef]:
    if count == width:
        return [loop]
    values = list(visit.all_exprs(info.block.body))
    is_small = len(values) <= MAX_UNROLL_NODES and not any(isinstance(e, ir.Math) for e in values)
    if count is not None and count % (width * UNROLL) == 0 and is_small:
        if count == width * UNROLL:
            return sch.split(loop, UNROLL, width)
        return sch.split(loop, None, UNROLL, width)
    return sch.split(loop, None, width)


def _gathered(info: BlockInfo, sch: Schedule, loop: LoopRef) -> str:
    """The buffer whose loaded index varies along the loop, so that its vectors would be gathers."""
    varying = {a.var for a in info.block.axes if loop.name in arith.free_vars(a.binding)}
    found = [
        (x, value)
        for x in accesses(info.block)
        for i in x.indices
        for value in visit.opaque_values(i)
        if varying & value_vars(value)
    ]
    if found and all(_is_loaded(x, value) for x, value in found) and _has_arithmetic(info, found):
        return ""
    return found[0][0].buffer.name if found else ""


def _is_loaded(access: Load | ir.Store, index: ir.Expr) -> bool:
    """Is the index of a load a plain element of an index tensor, so that each lane loads it?"""
    while isinstance(index, ir.Cast):
        index = index.a
    return isinstance(access, Load) and isinstance(index, Load) and access.mask is None


def _has_arithmetic(info: BlockInfo, gathers: Sequence[object]) -> bool:
    """Is there arithmetic for each gathered element? Its vectors then pay for collecting lanes one
    by one, which a gather alone does not."""
    values = [e for s in visit.stores(info.block.body) for e in visit.walk_exprs(s.value)]
    work = sum(isinstance(e, ir.Binary | ir.Select | ir.Fma) for e in values)
    loads = sum(isinstance(e, Load) for e in values)
    return work >= loads // 2


def vector_width(count: int | None, lanes: int, least: int | None = None) -> int:
    """Lanes for a loop of `count` iterations: a full vector, or what divides a short loop. Bytes
    that are computed on in wider registers, of `least` lanes, fill these."""
    if count is None or count % lanes == 0 or lanes == 1:
        return lanes
    if count < lanes:
        return count
    while least is not None and lanes > least and -count % lanes >= lanes // 2:
        lanes //= 2
    if count % lanes == 0:
        return lanes
    half = lanes // 2
    return half if half >= 4 and count % half == 0 and count < 16 * lanes else lanes


def vectorize_and_unroll(
    sch: Schedule, target: Target, ref: BlockRef, is_short: bool = True, most: int | None = None
) -> None:
    """Vectorise an element-wise block along its last loop that has several iterations and unroll
    its short loops; unless `is_short`, only those that came from the last one. `most`: lanes of a
    vector, at most."""
    loops = own_loops(sch, ref)
    if not loops:
        return
    last = next((x for x in reversed(loops) if extent(sch, x) != 1), loops[-1])
    made = vectorize_loop(sch, target, block_info_of(sch, ref), last, most=most)
    for loop in [*(x for x in loops if x != last), *made] if is_short else made:
        node = sch.at_loop(loop)
        count = arith.as_int(node.extent)
        if node.kind.value == "serial" and count is not None and count <= MAX_UNROLL:
            sch.unroll(loop)
