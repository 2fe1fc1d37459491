"""Statements of a legal kernel with the loops around them, for the report's estimates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit

ASSUMED_SIZE = 64  # of a dynamic dimension, to compare trip counts; heuristic


@dataclass(frozen=True)
class NestedStmt:
    """A statement with an effect and the loops around it; `is_tail`: the masked tail of another."""

    stmt: ir.Store | ir.Let | ir.Fail
    loops: tuple[ir.For | ir.While, ...]
    is_tail: bool

    @cached_property
    def values(self) -> list[ir.Expr]:
        return [e for own in visit.own_exprs(self.stmt) for e in visit.walk_exprs(own)]

    @cached_property
    def loads(self) -> list[ir.Load]:
        return [e for e in self.values if isinstance(e, ir.Load)]

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


def nested_stmts(
    s: ir.Stmt, loops: tuple[ir.For | ir.While, ...] = (), is_tail: bool = False
) -> Iterator[NestedStmt]:
    """Every statement with an effect, and the loops around it, outermost first."""
    match s:
        case ir.Store() | ir.Let() | ir.Fail():
            yield NestedStmt(s, loops, is_tail)
    for child in visit.sub_stmts(s):
        inside = (*loops, s) if isinstance(s, ir.For | ir.While) else loops
        # the else branch is the masked tail of the then branch: estimates count only one
        tail = is_tail or (isinstance(s, ir.If) and child is s.orelse)
        yield from nested_stmts(child, inside, tail)
