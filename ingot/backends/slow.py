"""Why a legal kernel runs on one thread, or one element at a time. Called by backends/report.py.

In: a kernel without blocks, and its statements with the loops around them. Out: a few words, empty
where there is nothing to explain. The schedule's own decisions are gone by then, so the reasons are
found again in what the code does; where none fits, the reason says that the schedule left it so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import ir, visit
from ingot.loops.work import NestedStmt
from ingot.schedule.rules.elementwise import PARALLEL_WORK

MIN_LANES = 4  # a shorter loop gains nothing from vectorisation; heuristic
ASSUMED_SIZE = 64  # of a dynamic dimension, to compare trip counts; heuristic


# --- parallel -----------------------------------------------------------------------------------


def why_serial(kernel: ir.Kernel, stmts: Sequence[NestedStmt]) -> str:
    """The reason for a kernel without a parallel loop."""
    if any(isinstance(loop, ir.While) for s in stmts for loop in s.loops[:1]):
        return "opaque loop"
    outer = list(_outermost(kernel.body))
    if not outer:
        return _too_small(stmts)
    work, accumulates = _elements(stmts), _accumulates(stmts)
    if work is not None and accumulates:
        work = int(work * _useful_fraction(kernel, stmts))
    if work is not None and work < PARALLEL_WORK * (2 if accumulates else 1):
        return _too_small(stmts)
    found = (reason for loop in outer if (reason := _why_ordered(loop)))
    return next(found, "the schedule left it so")


def _outermost(s: ir.Stmt) -> Iterator[ir.For]:
    todo = [s]
    while todo:
        s = todo.pop()
        if isinstance(s, ir.For):
            yield s
        else:
            todo.extend(reversed(visit.sub_stmts(s)))


def _too_small(stmts: Sequence[NestedStmt]) -> str:
    count = _elements(stmts) or 0
    return f"too small: {count} element{'' if count == 1 else 's'}"


def _elements(stmts: Sequence[NestedStmt]) -> int | None:
    """Elements computed or checked, at every step of a reduction; None for dynamic dimensions."""
    total = 0
    for nested in stmts:
        if not isinstance(nested.stmt, ir.Let) and not nested.is_tail:
            trips = None if nested.trips is None else arith.as_int(nested.trips)
            if trips is None:
                return None
            total += trips * nested.lanes
    return total


def _accumulates(stmts: Sequence[NestedStmt]) -> bool:
    return any(_reads_its_target(nested) for nested in stmts)


def _useful_fraction(kernel: ir.Kernel, stmts: Sequence[NestedStmt]) -> float:
    """How much of what tiles compute is wanted: those at the edges hang over the results. A rule
    that left a kernel serial for being small counted what is wanted."""
    sizes = {b.name: arith.as_int(arith.product(b.shape)) for b in kernel.params}
    wanted = stored = 0
    for name in {s.stmt.buffer.name for s in stmts if isinstance(s.stmt, ir.Store)} & sizes.keys():
        writes = [s for s in stmts if isinstance(s.stmt, ir.Store) and s.stmt.buffer.name == name]
        count = _elements([s for s in writes if not _reads_its_target(s)])
        if count is not None and sizes[name]:
            wanted, stored = wanted + (sizes[name] or 0), stored + count
    return min(1.0, wanted / stored) if stored else 1.0


def _reads_its_target(nested: NestedStmt) -> bool:
    s = nested.stmt
    return isinstance(s, ir.Store) and any(x.buffer.name == s.buffer.name for x in nested.loads)


def _why_ordered(loop: ir.For) -> str:
    """What the iterations of a loop owe each other."""
    own = {s.buffer.name for s in visit.walk_stmts(loop) if isinstance(s, ir.Alloc)}
    read = {x.buffer.name for x in visit.loads(loop)}
    for store in visit.stores(loop):
        name = store.buffer.name
        if name in own:
            continue
        if any(visit.opaque_values(i) for i in store.indices):
            return f"data-dependent index into {name}"
        if name in read and loop.var in _index_vars(store.indices):
            return f"ordered axis: {name} is read back"
        if name in read:
            return f"one result: {name} takes every step"
    return ""


def _index_vars(indices: Sequence[arith.Expr]) -> set[str]:
    return {name for i in indices for name in visit.index_vars(i)}


# --- vectorised ---------------------------------------------------------------------------------


def why_scalar(stmts: Sequence[NestedStmt], lanes: int) -> str:
    """The reason, if most of a kernel's time goes into scalar statements."""
    effects = [s for s in stmts if not isinstance(s.stmt, ir.Let) and not s.is_tail]
    if not effects:
        return ""
    hot = max(effects, key=_estimated_trips)
    if hot.lanes > 1:
        return ""
    reason = _why_stmt_is_scalar(hot, effects)
    return f"in part: {reason}" if lanes > 1 else reason


def _estimated_trips(nested: NestedStmt) -> tuple[int, int, int]:
    """Executions of a statement, with ASSUMED_SIZE for dynamic dimensions; ties go to the deeper
    one, then to one with lanes."""
    if nested.trips is None:
        return ASSUMED_SIZE ** len(nested.loops), len(nested.loops), nested.lanes
    sizes = dict.fromkeys(arith.free_vars(nested.trips), ASSUMED_SIZE)
    return arith.evaluate(nested.trips, sizes), len(nested.loops), nested.lanes


def _why_stmt_is_scalar(nested: NestedStmt, effects: Sequence[NestedStmt]) -> str:
    if any(isinstance(loop, ir.While) for loop in nested.loops):
        return "opaque loop"
    elements = _elements(effects)
    if not nested.loops or (elements is not None and elements <= 2):
        return _too_small(effects)
    if isinstance(nested.stmt, ir.Fail):
        return "a check that may fail at each element"
    inner = nested.loops[-1]
    assert isinstance(nested.stmt, ir.Store) and isinstance(inner, ir.For)
    accesses: list[ir.Load | ir.Store] = [*nested.loads, nested.stmt]
    gathered = [x for x in accesses if _is_gathered(x, nested)]
    if gathered:
        return f"data-dependent index into {gathered[0].buffer.name}"
    if _reads_its_target(nested):
        return _why_reduction(nested.stmt, inner, nested)
    strided = [x for x in accesses if not _is_dense(x, inner.var)]
    if strided:
        return f"strided access to {strided[0].buffer.name}"
    return "the schedule left it so"


def _is_gathered(x: ir.Load | ir.Store, nested: NestedStmt) -> bool:
    """Is it stored where data says, or loaded from where data says anew at each iteration?"""
    moving = {loop.var for loop in nested.loops if isinstance(loop, ir.For)}
    payloads = [p for i in x.indices for p in visit.opaque_values(i)]
    if isinstance(x, ir.Store):
        return bool(payloads)
    return any(visit.value_vars(p) & moving for p in payloads)


def _why_reduction(store: ir.Store, inner: ir.For, nested: NestedStmt) -> str:
    if inner.var in _index_vars(store.indices):
        return f"ordered axis: {store.buffer.name} is read back"
    others = [x for x in nested.loads if x.buffer.name != store.buffer.name]
    if not others:
        return f"one result: {store.buffer.name} takes every step"
    extent = arith.as_int(inner.extent)
    along = [x for x in others if _stride(x, inner.var) == 1]
    if along and (extent is None or extent >= MIN_LANES):
        return f"reduction along the contiguous axis of {along[0].buffer.name}"
    return f"strided access to {others[0].buffer.name}"


def _is_dense(x: ir.Load | ir.Store, var: str) -> bool:
    return _stride(x, var) in (0, 1)


def _stride(x: ir.Load | ir.Store, var: str) -> int | None:
    """Elements between two iterations; None where it is not one number."""
    stride = coefficient(x.indices[-1], var)
    return None if stride is None else arith.as_int(stride)
