"""Why a block runs on one thread, or one element at a time: remarks for the report.

A rule that leaves a block serial or scalar says why where it decides so. `explain` closes the gaps
when a kernel is done: a nest without a parallel loop and a block without a vector loop get the
reason that their structure gives, or the step that was refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import SCALAR_CODE, SERIAL_LOOPS, AxisKind, Block, LoopKind
from ingot.schedule.handles import BlockRef
from ingot.schedule.schedule import Schedule

PARALLEL = (LoopKind.PARALLEL, LoopKind.BOUND)


def too_small(count: int) -> str:
    return f"too small: {count} element{'' if count == 1 else 's'}"


def explain(sch: Schedule) -> None:
    """A reason for each nest that is serial, and for each block that is scalar."""
    known = {(r.block, r.about) for r in sch.remarks}
    for nest in _nests(sch.kernel.body):
        blocks = [s for s in visit.walk_stmts(nest) if isinstance(s, Block)]
        names = [block.name for block in blocks] or [""]
        is_parallel = isinstance(nest, ir.For) and nest.kind in PARALLEL
        if is_parallel and isinstance(nest, ir.For) and arith.is_const(nest.extent, 1):
            sch.remark(_ref(blocks), SERIAL_LOOPS, "one iteration of the parallel loop")
        if not is_parallel and not any((name, SERIAL_LOOPS) in known for name in names):
            sch.remark(_ref(blocks), SERIAL_LOOPS, _why(sch, nest, blocks[:1]))
        for block, is_vector in _vectorised(nest):
            if not is_vector and (block.name, SCALAR_CODE) not in known:
                sch.remark(_ref([block]), SCALAR_CODE, _why(sch, nest, [block]))
        if not blocks and ("", SCALAR_CODE) not in known:
            sch.remark(None, SCALAR_CODE, _why(sch, nest, []))


def _ref(blocks: list[Block]) -> BlockRef | None:
    return BlockRef(blocks[0].uid, blocks[0].name) if blocks else None


def _nests(s: ir.Stmt) -> Iterator[ir.Stmt]:
    """The top-level nests: they become kernels of their own."""
    todo = [s]
    while todo:
        match todo.pop():
            case ir.Alloc(body=body) | ir.Let(body=body):
                todo.append(body)
            case ir.Seq(stmts=stmts):
                todo.extend(reversed(stmts))
            case nest:
                yield nest


def _vectorised(nest: ir.Stmt) -> Iterator[tuple[Block, bool]]:
    """Every block, and whether it is in a vector loop."""
    todo = [(nest, False)]
    while todo:
        s, inside = todo.pop()
        if isinstance(s, Block):
            yield s, inside
        here = inside or (isinstance(s, ir.For) and s.kind is LoopKind.VECTOR)
        todo.extend((child, here) for child in visit.sub_stmts(s))


def _why(sch: Schedule, nest: ir.Stmt, blocks: list[Block]) -> str:
    stmts = list(visit.walk_stmts(blocks[0] if blocks else nest))
    axes = blocks[0].axes if blocks else ()
    kinds = {a.kind for a in axes}
    stores = [s for s in stmts if isinstance(s, ir.Store)]
    gathered = [s for s in stores if any(visit.opaque_values(i) for i in s.indices)]
    if AxisKind.OPAQUE in kinds or any(isinstance(s, ir.While) for s in stmts):
        return "opaque loop"
    if any(isinstance(s, ir.Fail) for s in stmts):
        return "a check that may fail at each element"
    if AxisKind.ORDERED in kinds and stores:
        return f"ordered axis: {stores[0].buffer.name} is read back"
    if gathered:
        return f"data-dependent index into {gathered[0].buffer.name}"
    count = arith.as_int(arith.product([a.extent for a in axes]))
    if count is not None and (count <= 2 or not any(isinstance(s, ir.For) for s in [nest])):
        return too_small(count)
    steps = [
        r.why for r in sch.remarks if r.about == ir.STEP and r.block in [b.name for b in blocks]
    ]
    is_one_store = not blocks or isinstance(blocks[0].body, ir.Store)
    return (*steps, UNEXPLAINED if is_one_store else "several statements for an element")[0]


UNEXPLAINED = "no rule applies"
