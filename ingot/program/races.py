"""No two threads meet on the same bytes without a barrier: checked here, not trusted from plan/.

Threads run the same statements, but one may be ahead of another by everything since their last
barrier. So each statement is held against every statement since that barrier.
"""

from __future__ import annotations

from ingot.program import ir
from ingot.program.access import Access, Accesses
from ingot.support.errors import IngotError

Done = list[tuple[ir.Stmt, Access]]


def check_races(program: ir.Program, accesses: Accesses) -> None:
    """Raises IngotError("bad-program") naming the two statements and the buffer."""
    _since_barrier(program.body, [], accesses)


def _since_barrier(s: ir.Stmt, done: Done, accesses: Accesses) -> Done:
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


def _race(before: ir.Stmt, after: ir.Stmt, earlier: Access, later: Access) -> IngotError:
    names = " and ".join(dict.fromkeys(f"{a.buffer!r}" for a in (earlier, later)))
    return IngotError(
        "bad-program",
        f"a barrier is missing between {_name(before)} and {_name(after)}",
        where=f"bytes of {names} in {later.root}",
        why="one thread may still be in the first while another is in the second",
    )


def _name(s: ir.Stmt) -> str:
    return f"launch of {s.kernel}" if isinstance(s, ir.Launch) else type(s).__name__
