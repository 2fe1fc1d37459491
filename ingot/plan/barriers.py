"""Barrier insertion: a barrier before each statement whose accesses conflict with earlier ones.

In: a program with allocations. Out: the same with Barrier statements. Last stage of planning.
"""

from __future__ import annotations

from ingot.program import ir
from ingot.program.access import AccessAnalysis, Pending


def insert_barriers(program: ir.Program) -> ir.Program:
    """s; t  →  s; barrier; t   where an access of t conflicts with one of s"""
    body, _ = _Barriers(AccessAnalysis(program)).stmt(program.body, Pending())
    return ir.replace(program, body=body, is_planned=True)


class _Barriers:
    def __init__(self, accesses: AccessAnalysis):
        self.accesses = accesses

    def stmt(self, s: ir.Stmt, pending: Pending) -> tuple[ir.Stmt, Pending]:
        """The statement with barriers before and inside it, and the accesses pending after it; it
        changes those pending before."""
        if isinstance(s, ir.Seq):
            return self.sequence(s, pending)
        if isinstance(s, ir.Loop):  # it has barriers before each test and each iteration
            body, _ = self.stmt(s.body, Pending())
            return ir.replace(s, body=body), Pending()
        mine = self.accesses.of(s)
        wait = pending.conflict(mine, self.accesses) is not None
        pending = Pending() if wait else pending
        pending.add(s, mine)
        if isinstance(s, ir.If | ir.IfSize):
            then, after_then = self.stmt(s.then, pending.copy())
            orelse, after_else = self.stmt(s.orelse, pending)
            after_then.merge(after_else)
            return _after(wait, ir.replace(s, then=then, orelse=orelse)), after_then
        if isinstance(s, ir.Par):
            raise AssertionError("nothing makes Par statements yet")
        return _after(wait, s), pending

    def sequence(self, s: ir.Seq, pending: Pending) -> tuple[ir.Stmt, Pending]:
        done: list[ir.Stmt] = []
        for each in s.stmts:
            new, pending = self.stmt(each, pending)
            done.append(new)
        return ir.seq(*done), pending


def _after(wait: bool, s: ir.Stmt) -> ir.Stmt:
    return ir.seq(ir.Barrier(), s) if wait else s
