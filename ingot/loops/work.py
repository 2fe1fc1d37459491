"""The work of a legal kernel: its statements with the loops around them, and its float operations.

In: a kernel without blocks. Out: how often each statement runs, and an estimate of the arithmetic,
in terms of the kernel's sizes. Called by program/estimate.py and by the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit

ASSUMED_SIZE = 64  # of a dynamic dimension, to compare trip counts; heuristic
_ARITHMETIC = ("add", "sub", "mul", "div", "min", "max")
_UNARY_ARITHMETIC = ("neg", "abs", "sqrt", "floor", "ceil", "round", "trunc")


@dataclass(frozen=True)
class NestedStmt:
    """A statement with an effect and the loops around it; `is_tail`: the masked tail of another."""

    stmt: ir.Store | ir.Let | ir.Fail
    loops: tuple[ir.For | ir.While, ...]
    is_tail: bool

    @cached_property
    def values(self) -> list[ir.Expr]:
        return [e for own in visit.own_exprs(self.stmt) for e in visit.walk_exprs(own)]

    @property
    def lanes(self) -> int:
        if isinstance(self.stmt, ir.Fail):
            return 1
        reduced = [e.a.lanes for e in self.values if isinstance(e, ir.LaneReduce)]
        return max([self.stmt.value.lanes, *reduced])

    @cached_property
    def trips(self) -> arith.Expr | None:
        """How often it runs, an inner extent that depends on an outer loop taken at its largest."""
        total: arith.Expr = arith.Const(1)
        last: dict[str, arith.IntLike] = {}
        for loop in self.loops:
            if isinstance(loop, ir.While):
                return None
            stop, start = (arith.substitute(e, last) for e in (loop.stop, loop.start))
            if any(visit.opaque_values(e) for e in (stop, start)):
                return None
            last[loop.var] = stop - 1
            total = total * (stop - start)
        return simplify(total)

    @property
    def estimated_trips(self) -> tuple[int, int, int]:
        """Executions, with ASSUMED_SIZE for dynamic dimensions; ties go to the deeper statement,
        then to one with lanes."""
        if self.trips is None:
            return ASSUMED_SIZE ** len(self.loops), len(self.loops), self.lanes
        sizes = dict.fromkeys(arith.free_vars(self.trips), ASSUMED_SIZE)
        return arith.evaluate(self.trips, sizes), len(self.loops), self.lanes


def nested_stmts(body: ir.Stmt) -> Iterator[NestedStmt]:
    """Every statement with an effect, and the loops around it, outermost first."""
    todo: list[tuple[ir.Stmt, tuple[ir.For | ir.While, ...], bool]] = [(body, (), False)]
    while todo:
        s, loops, is_tail = todo.pop()
        if isinstance(s, ir.Store | ir.Let | ir.Fail):
            yield NestedStmt(s, loops, is_tail)
        inside = (*loops, s) if isinstance(s, ir.For | ir.While) else loops
        for child in reversed(visit.sub_stmts(s)):
            # the else branch is the masked tail of the then branch: estimates count only one
            tail = is_tail or (isinstance(s, ir.If) and child is s.orelse)
            todo.append((child, inside, tail))


@lru_cache(maxsize=512)
def kernel_flops(kernel: ir.Kernel) -> arith.Expr | None:
    """Float operations, an FMA counted as two; None where a trip count is data-dependent."""
    return _flops(list(nested_stmts(kernel.body)))


@lru_cache(maxsize=512)
def accessed_bytes(kernel: ir.Kernel, *names: str) -> arith.Expr | None:
    """Bytes of these parameters that are loaded and stored, each access as often as it runs; None
    where a trip count is data-dependent. Where it is less than they hold, the kernel uses parts of
    them: a gather, one step of a sequence, a state that is not full."""
    return _weighted(list(nested_stmts(kernel.body)), lambda nested: _moved(nested, names))


@lru_cache(maxsize=512)
def data_dependent_loops(kernel: ir.Kernel) -> arith.Expr:
    """How often loops whose length depends on data are entered: While loops, by the loops of known
    length around them."""
    total: arith.Expr = arith.Const(0)
    seen: set[int] = set()
    for nested in nested_stmts(kernel.body):
        first = next((i for i, x in enumerate(nested.loops) if isinstance(x, ir.While)), None)
        if first is None or id(nested.loops[first]) in seen:
            continue
        seen.add(id(nested.loops[first]))
        trips = NestedStmt(nested.stmt, nested.loops[:first], nested.is_tail).trips
        total = total if trips is None else total + trips
    return simplify(total)


def _moved(nested: NestedStmt, names: tuple[str, ...]) -> int:
    stmt, total = nested.stmt, 0
    if isinstance(stmt, ir.Store) and stmt.buffer.name in names:
        total += stmt.value.lanes * stmt.buffer.dtype.storage_bytes
    loads = (e for e in nested.values if isinstance(e, ir.Load) and e.buffer.name in names)
    return total + sum(e.lanes * e.buffer.dtype.storage_bytes for e in loads)


def _flops(stmts: Sequence[NestedStmt]) -> arith.Expr | None:
    return _weighted(stmts, lambda nested: sum(map(_operations, nested.values)))


def _weighted(stmts: Sequence[NestedStmt], cost: Callable[[NestedStmt], int]) -> arith.Expr | None:
    """The cost of every statement times its trip count; None where one is data-dependent."""
    total: arith.Expr = arith.Const(0)
    for nested in stmts:
        work = 0 if nested.is_tail else cost(nested)
        if work == 0:
            continue
        trips = nested.trips
        if trips is None:
            return None
        total = total + trips * work
    return simplify(total)


def _operations(e: ir.Expr) -> int:
    if not e.dtype.is_float:
        return 0
    match e:
        case ir.Fma():
            return 2 * e.lanes
        case ir.Binary(op=op) if op in _ARITHMETIC:
            return e.lanes
        case ir.Unary(op=op) if op in _UNARY_ARITHMETIC:
            return e.lanes
        case ir.LaneReduce(a=a):
            return a.lanes - 1
    return 0
