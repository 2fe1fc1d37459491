"""Data-race check: a barrier separates conflicting accesses. It does not rely on plan/.

Threads run the same statements, but a thread may be ahead of another by all statements since the
last barrier. So each statement is compared with every statement since that barrier.
"""

from __future__ import annotations

from ingot.program import ir
from ingot.program.access import AccessAnalysis, ByteAccess, Pending
from ingot.support.errors import IngotError


def check_races(program: ir.Program, accesses: AccessAnalysis) -> None:
    """Raises IngotError("bad-program") naming the two statements and the buffer."""
    _since_barrier(program.body, Pending(), accesses)


def _since_barrier(s: ir.Stmt, done: Pending, accesses: AccessAnalysis) -> Pending:
    """The accesses since the last barrier after `s`, from those before it, which this changes."""
    match s:
        case ir.Seq(stmts=stmts):
            for each in stmts:
                done = _since_barrier(each, done, accesses)
            return done
        case ir.Barrier():
            return Pending()
        case ir.Loop(body=body):
            _since_barrier(body, Pending(), accesses)
            return Pending()
    mine = accesses.of(s)
    found = done.conflict(mine, accesses)
    if found is not None:
        before, earlier, later = found
        raise _race(before, s, earlier, later)
    done.add(s, mine)
    if isinstance(s, ir.If | ir.IfSize):
        then = _since_barrier(s.then, done.copy(), accesses)
        then.merge(_since_barrier(s.orelse, done, accesses))
        return then
    return done


def _race(before: ir.Stmt, after: ir.Stmt, earlier: ByteAccess, later: ByteAccess) -> IngotError:
    names = " and ".join(dict.fromkeys(f"{a.buffer!r}" for a in (earlier, later)))
    return IngotError(
        "bad-program",
        f"a barrier is missing between {_name(before)} and {_name(after)}",
        where=f"bytes of {names} in {later.base}",
        why="one thread may still run the first statement while another runs the second",
    )


def _name(s: ir.Stmt) -> str:
    if not isinstance(s, ir.Launch):
        return type(s).__name__
    return f"launch of {s.kernel}" + (f" for {s.origin}" if s.origin else "")
