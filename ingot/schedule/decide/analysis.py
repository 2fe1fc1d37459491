"""The analysis of a contraction block, for the decisions of cost/: sizes, roles, operands.

In: a schedule, a reduction block in a nest of its own, and the panels of its operands. Out: a
`Contraction`; None where no axis can be the lanes. Nothing is changed.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.cost.shape import Contraction, Operand, Strides, Window
from ingot.loops.ir import Axis, Load
from ingot.schedule import reducers
from ingot.schedule.decide.roles import Roles, find_roles, likely_extent
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.block_info import (
    BlockInfo,
    block_infos,
    extent,
    index_vars,
    loop_of,
    own_loops,
)
from ingot.schedule.rules.packing import panel_layout
from ingot.schedule.rules.roles import (
    Panels,
    batch_loops,
    depends_on,
    find_lanes,
    is_contiguous,
    is_contraction,
    is_depthwise,
    is_packed,
    panel_width,
    vector_loads,
)
from ingot.schedule.schedule import Schedule


def contraction_of(
    sch: Schedule, info: BlockInfo, eager: bool, panels: Panels, roles: Roles | None = None
) -> Contraction | None:
    """`eager`: vectorise even where no load is contiguous."""
    roles = roles or find_roles(sch, info, panels)
    if roles is None:
        return None
    axes = list(info.block.axes)
    vectors = vector_loads(info, roles.lanes, panels)
    scalar_loads = [x for x in info.loads if x not in vectors]
    outer = _outer_loops(sch, info, roles)
    batch = batch_loops(sch, info, outer)
    outer = [*batch, *(x for x in outer if x not in batch)]
    has_window = roles.rows is not None and is_depthwise(info, roles.lanes, roles.rows)
    return Contraction(
        dtype=info.dtype,
        extents=tuple(arith.as_int(a.extent) for a in axes),
        likely=tuple(likely_extent(sch, a) for a in axes),
        lanes=axes.index(roles.lanes),
        rows=None if roles.rows is None else axes.index(roles.rows),
        k=tuple(axes.index(a) for a in _reduce_order(info, scalar_loads)),
        separate_k=tuple(axes.index(a) for a in _non_overlapping(info, scalar_loads)),
        outer=tuple(extent(sch, x) for x in outer),
        batch_loops=len(batch),
        operand=_operand(sch, info, roles, panels),
        window=_window(sch, info, roles, outer) if has_window else None,
        is_contiguous=eager or find_lanes(info, False, panels) is not None,
        is_grouped=any(depends_on(x, roles.lanes) for x in scalar_loads),
        is_contraction=is_contraction(info),
        is_gemm=_is_gemm(info, roles, vectors, panels),
        is_float_sum=_adds_floats(info),
    )


def column_sum_of(sch: Schedule, info: BlockInfo) -> Contraction:
    """The same for one array that is reduced to one row, contiguous along its last axis."""
    axes, roles = list(info.block.axes), Roles(info.spatial[-1], None)
    return Contraction(
        dtype=info.dtype,
        extents=tuple(arith.as_int(a.extent) for a in axes),
        likely=tuple(likely_extent(sch, a) for a in axes),
        lanes=axes.index(roles.lanes),
        rows=None,
        k=tuple(axes.index(a) for a in info.reduced),
        separate_k=(),
        outer=(),
        batch_loops=0,
        operand=Operand("other"),
        window=None,
        is_contiguous=True,
        is_grouped=False,
        is_contraction=False,
        is_gemm=False,
        is_float_sum=_adds_floats(info),
        is_column_sum=True,
    )


def _reduce_order(info: BlockInfo, scalar_loads: list[Load]) -> list[Axis]:
    """The reduce axes, innermost the one along which the scalar loads are contiguous."""
    last = {name for x in scalar_loads for i in x.indices[-1:] for name in index_vars(i)}
    return sorted(info.reduced, key=lambda a: a.var in last)


def _outer_loops(sch: Schedule, info: BlockInfo, roles: Roles) -> list[LoopRef]:
    inner = [loop_of(sch, info, a) for a in (*info.reduced, roles.lanes)]
    inner += [loop_of(sch, info, roles.rows)] if roles.rows is not None else []
    return [x for x in own_loops(sch, info.ref) if x not in inner]


def _non_overlapping(info: BlockInfo, scalar_loads: list[Load]) -> list[Axis]:
    """The reduce axes along which rows share no elements; along window taps they overlap."""
    alone = {i.name for x in scalar_loads for i in x.indices if isinstance(i, arith.Var)}
    return [a for a in info.reduced if a.var in alone]


def _is_gemm(info: BlockInfo, roles: Roles, vectors: list[Load], panels: Panels) -> bool:
    """Is it a GEMM or GEMV whose operand B is row-major and not packed?"""
    if len(vectors) != 1 or panel_width(info, roles.lanes, panels) is not None:
        return False
    plain = all(isinstance(i, arith.Var | arith.Const) for x in info.loads for i in x.indices)
    return plain and len(info.loads) == 2 and is_contiguous(info, vectors[0], roles.lanes)


def _adds_floats(info: BlockInfo) -> bool:
    reducer = reducers.recognise(info.block)
    return isinstance(reducer, reducers.Reducer) and reducer.ops == ("add",) and info.dtype.is_float


def _operand(sch: Schedule, info: BlockInfo, roles: Roles, panels: Panels) -> Operand:
    panel = panel_width(info, roles.lanes, panels)
    packed = [x for x in info.loads if is_packed(x, roles.lanes, panels)]
    loads = packed or vector_loads(info, roles.lanes)
    if len(loads) != 1:
        return Operand("other", panel)
    (load,) = loads
    size = arith.as_int(arith.product(list(load.buffer.shape)))
    source = _source(sch, load)
    if panel is not None or not is_contraction(info):
        return Operand(source, panel, size)
    is_loaded_twice = any(x.buffer == load.buffer and x != load for x in info.loads)
    may_pack = not is_loaded_twice and panel_layout(info, roles.lanes, load, 1) is not None
    return Operand(source, None, size, may_pack, _dense_columns(info, load, roles.lanes))


def _source(sch: Schedule, load: Load) -> str:
    params = {p.name for p in sch.kernel.params}
    if load.buffer.name in params:
        return "param"
    producers = [s for s in block_infos(sch) if load.buffer.name in s.outputs]
    is_copy = len(producers) == 1 and producers[0].is_elementwise
    return "copy" if is_copy and {x.buffer.name for x in producers[0].loads} <= params else "other"


def _dense_columns(info: BlockInfo, load: Load, lanes: Axis) -> int | None:
    """The length of its rows, if they are adjacent along k, so that the buffer is a sequence of
    panels."""
    summed = {arith.Var(a.var) for a in info.reduced}
    before = [i for i, n in zip(load.indices[:-1], load.buffer.shape) if n != 1]
    is_dense = not before or before[-1] in summed
    is_row = load.indices[-1] == arith.Var(lanes.var)
    return arith.as_int(load.buffer.shape[-1]) if is_row and is_dense else None


def _window(sch: Schedule, info: BlockInfo, roles: Roles, outer: list[LoopRef]) -> Window:
    assert roles.rows is not None
    axes = list(info.block.axes)
    sliding = [x for x in info.loads if depends_on(x, roles.lanes) and depends_on(x, roles.rows)]
    producers = [s for s in block_infos(sch) for x in sliding if x.buffer.name in s.outputs]
    is_copy = len(sliding) == 1 and len(producers) == 1 and producers[0].is_elementwise
    down = [i for i, a in enumerate(axes) if outer and loop_of(sch, info, a) == outer[-1]]
    copied = [x.dtype for s in producers for x in s.loads]
    return Window(
        loads=tuple(_strides(info, x) for x in info.loads),
        widens=is_copy and any(t.bits < info.dtype.bits for t in copied),
        sliding=_strides(info, sliding[0]) if len(sliding) == 1 else None,
        is_padded_copy=is_copy,
        down=tuple(i for i in down if axes[i] in info.spatial),
    )


def _strides(info: BlockInfo, load: Load) -> Strides:
    """For each index, the axes it depends on and their strides; 0 where it is not one number."""
    found = []
    for index in load.indices:
        strides = {i: coefficient(index, a.var) for i, a in enumerate(info.block.axes)
                   if a.var in index_vars(index)}  # fmt: skip
        numbers = {i: arith.as_int(n) for i, n in strides.items() if n is not None}
        found.append(tuple((i, n or 0) for i, n in numbers.items()))
    return tuple(found)
