"""Barrier insertion: a barrier before each statement whose accesses conflict with earlier ones.

In: a program with allocations. Out: the same with Barrier statements. Last stage of planning.
"""

from __future__ import annotations

from ingot.program import ir
from ingot.program.access import AccessAnalysis, ByteAccess

Pending = list[ByteAccess]  # accesses since the last barrier: slower threads may still perform them


def insert_barriers(program: ir.Program) -> ir.Program:
    """s; t  →  s; barrier; t   where an access of t conflicts with one of s"""
    body, _ = _Barriers(AccessAnalysis(program)).stmt(program.body, [])
    return ir.replace(program, body=body, is_planned=True)


class _Barriers:
    def __init__(self, accesses: AccessAnalysis):
        self.accesses = accesses

    def stmt(self, s: ir.Stmt, pending: Pending) -> tuple[ir.Stmt, Pending]:
        """The statement with barriers before and inside it, and the accesses pending after it."""
        if isinstance(s, ir.Seq):
            return self.sequence(s, pending)
        if isinstance(s, ir.Loop):  # it has barriers before each test and each iteration
            body, _ = self.stmt(s.body, [])
            return ir.replace(s, body=body), []
        mine = self.accesses.of(s)
        wait = self.needs_barrier(pending, mine)
        pending = [] if wait else pending
        if isinstance(s, ir.If):
            then, after_then = self.stmt(s.then, [*pending, *mine])
            orelse, after_else = self.stmt(s.orelse, [*pending, *mine])
            new: ir.Stmt = ir.replace(s, then=then, orelse=orelse)
            return _after(wait, new), _merged(after_then, after_else)
        if isinstance(s, ir.Par):
            raise AssertionError("nothing makes Par statements yet")
        return _after(wait, s), [*pending, *mine]

    def sequence(self, s: ir.Seq, pending: Pending) -> tuple[ir.Stmt, Pending]:
        done: list[ir.Stmt] = []
        for each in s.stmts:
            new, pending = self.stmt(each, pending)
            done.append(new)
        return ir.seq(*done), pending

    def needs_barrier(self, pending: Pending, mine: list[ByteAccess]) -> bool:
        return any(self.accesses.conflict(a, b) for a in pending for b in mine)


def _after(wait: bool, s: ir.Stmt) -> ir.Stmt:
    return ir.seq(ir.Barrier(), s) if wait else s


def _merged(a: Pending, b: Pending) -> Pending:
    return list(dict.fromkeys([*a, *b]))
