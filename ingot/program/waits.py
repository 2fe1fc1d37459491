"""Which barriers must wait for every thread, and which only for the work before them.

A barrier counts finished chunks, so that no thread waits for one that was preempted or is not awake
yet (runtime/cpu/native/work_stealing.py). Such a late thread later runs through the statements that
it missed, and finds no work in them. It still reads conditions, trip counts and sizes on its way,
which must then have the values that the others saw. That is so

    outside of loops   if no later statement writes to the memory of what was read;
    in a loop          if it has a fixed number of iterations, and its body reads nothing of the
                       kind but trip counts that no statement writes. A recurrent layer is one.

Everywhere else a barrier waits for all threads. In: a planned program. Out: `Waits`, for its
printer.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingot.program import ir
from ingot.program.access import AccessAnalysis, ByteAccess
from ingot.program.tables import walk

_PLAIN = ir.Seq | ir.Launch | ir.Barrier | ir.Copy | ir.IfSize | ir.Append | ir.HostStep
_FIXED = (ir.Storage.CONSTANT, ir.Storage.INPUT)


class Waits:
    """`everywhere`: all barriers of the program wait for all threads."""

    def __init__(self, program: ir.Program):
        self._buffers = program.buffer_map
        self.everywhere = self._is_overwritten(program)

    def in_loop(self, loop: ir.Loop) -> bool:
        """Do the barriers of this loop wait for all threads?"""
        inside = [s for s in walk(loop.body) if not isinstance(s, _PLAIN)]
        return loop.keep_going is not None or not all(map(self._is_fixed, inside))

    def _is_fixed(self, s: ir.Stmt) -> bool:
        if not isinstance(s, ir.Loop) or s.keep_going is not None:
            return False
        return s.trips is not None and self._buffers[s.trips].storage in _FIXED

    def _is_overwritten(self, program: ir.Program) -> bool:
        """Does a statement write over what late threads have yet to read, outside of loops that
        wait for them?"""
        accesses, seen = AccessAnalysis(program), dict[str, ByteAccess]()
        for s, is_in_loop in _in_order(program.body, False):
            written = (a for a in accesses.of(s) if a.is_write and a.buffer)
            if any(accesses.may_overlap(a, b) for a in written for b in seen.values()):
                return True
            if not is_in_loop and not (isinstance(s, ir.Loop) and self.in_loop(s)):
                own = (a for a in accesses.of(s) if a.buffer in control_reads(s))
                seen |= {a.buffer: a for a in own if not a.is_write}
        return False


def control_reads(s: ir.Stmt) -> tuple[str, ...]:
    """The buffers that every thread reads to know what to do next."""
    match s:
        case ir.If(flag=flag):
            return (flag,)
        case ir.Bind(buffer=buffer):
            return (buffer,)
        case ir.Loop(trips=trips, keep_going=keep):
            return tuple(name for name in (trips, keep) if name is not None)
    return ()


def _in_order(s: ir.Stmt, is_in_loop: bool) -> Iterator[tuple[ir.Stmt, bool]]:
    """Statements in program order, each with whether it is in a loop."""
    todo = [(s, is_in_loop)]
    while todo:
        stmt, inside = todo.pop()
        yield stmt, inside
        match stmt:
            case ir.Seq(stmts=stmts):
                todo.extend((each, inside) for each in reversed(stmts))
            case ir.If(then=then, orelse=orelse) | ir.IfSize(then=then, orelse=orelse):
                todo.extend([(orelse, inside), (then, inside)])
            case ir.Loop(body=body):
                todo.append((body, True))
