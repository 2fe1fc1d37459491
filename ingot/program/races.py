"""Data-race check: a barrier separates conflicting accesses. It does not rely on plan/.

Threads run the same statements, but a thread may be ahead of another by all statements since the
last barrier. So each statement is compared with every statement since that barrier.
"""

from __future__ import annotations

from ingot.program import ir
from ingot.program.access import AccessAnalysis, ByteAccess
from ingot.support.errors import IngotError

Done = list[tuple[ir.Stmt, ByteAccess]]


def check_races(program: ir.Program, accesses: AccessAnalysis) -> None:
    """Raises IngotError("bad-program") naming the two statements and the buffer."""
    _since_barrier(program.body, [], accesses)


def _since_barrier(s: ir.Stmt, done: Done, accesses: AccessAnalysis) -> Done:
    match s:
        case ir.Seq(stmts=stmts):
            for each in stmts:
                done = _since_barrier(each, done, accesses)
            return done
        case ir.Barrier():
            return []
        case ir.Loop(body=body):
            _since_barrier(body, [], accesses)
            return []
    mine = [(s, access) for access in accesses.of(s)]
    for before, earlier in done:
        for _, later in mine:
            if accesses.conflict(earlier, later):
                raise _race(before, s, earlier, later)
    if isinstance(s, ir.If):
        start = [*done, *mine]
        then = _since_barrier(s.then, start, accesses)
        orelse = _since_barrier(s.orelse, start, accesses)
        return [*then, *(x for x in orelse if x not in then)]
    return [*done, *mine]


def _race(before: ir.Stmt, after: ir.Stmt, earlier: ByteAccess, later: ByteAccess) -> IngotError:
    names = " and ".join(dict.fromkeys(f"{a.buffer!r}" for a in (earlier, later)))
    return IngotError(
        "bad-program",
        f"a barrier is missing between {_name(before)} and {_name(after)}",
        where=f"bytes of {names} in {later.base}",
        why="one thread may still run the first statement while another runs the second",
    )


def _name(s: ir.Stmt) -> str:
    return f"launch of {s.kernel}" if isinstance(s, ir.Launch) else type(s).__name__
