"""What each statement of a program touches: byte ranges, read or written, and by which threads.

The planner inserts barriers from this and the verifier checks them against it, each in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.loops import visit
from ingot.program import ir


class Who(Enum):
    """Which threads perform an access."""

    FIRST = "first"  # thread 0 alone
    SPLIT = "split"  # each thread its share; which bytes fall to whom is not analysed
    ALL = "all"  # every thread the same


@dataclass(frozen=True)
class Access:
    """Bytes start … stop-1 of `root`: an arena, or a buffer with memory of its own."""

    buffer: str
    root: str
    start: arith.Expr
    stop: arith.Expr
    is_write: bool
    who: Who


class Accesses:
    """Answers for one program; kernels' written parameters are looked up once."""

    def __init__(self, program: ir.Program):
        self.program = program
        self.buffers = program.buffer_map
        self.env = {s.name: Interval(s.low, s.high) for s in program.symbols}
        self._roles: dict[str, tuple[set[int], set[int]]] = {}
        self._order: dict[tuple[arith.Expr, arith.Expr], bool] = {}
        self._fences: dict[str, _Fences] = {}

    def roles(self, kernel: str) -> tuple[set[int], set[int]]:
        """Positions of the parameters whose old content a kernel reads, and of those it writes. A
        parameter it never touches counts as written: its stores were in loops of no turns, which
        legalize left out, so whatever has that size is complete."""
        if kernel not in self._roles:
            body = self.program.kernel_map[kernel].body
            reads, writes = visit.read_first(body), visit.written(body)
            names = [p.name for p in self.program.kernel_map[kernel].params]
            self._roles[kernel] = (
                {i for i, n in enumerate(names) if n in reads},
                {i for i, n in enumerate(names) if n in writes or n not in reads},
            )
        return self._roles[kernel]

    def of(self, s: ir.Stmt) -> list[Access]:
        """The accesses of one statement itself (not of those inside it)."""
        match s:
            case ir.Launch(kernel=kernel, args=args):
                who = Who.FIRST if arith.is_const(s.extent, 1) else Who.SPLIT
                reads, writes = self.roles(kernel)
                found = [self.access(args[i], False, who) for i in sorted(reads)]
                return found + [self.access(args[i], True, who) for i in sorted(writes)]
            case ir.Copy(dst=dst, src=src):
                return [self.access(src, False, Who.SPLIT), self.access(dst, True, Who.SPLIT)]
            case ir.Append(dst=dst, src=src):
                return [self.access(src, False, Who.FIRST), self.access(dst, True, Who.FIRST)]
            case ir.If(flag=flag):
                return [self.access(flag, False, Who.ALL)]
            case ir.Bind(buffer=buffer):
                return [self.access(buffer, False, Who.ALL)]
            case ir.Loop(counter=counter, trips=trips, keep_going=keep):
                tests = [self.access(n, False, Who.ALL) for n in (trips, keep) if n is not None]
                return [*tests, self.access(counter, True, Who.FIRST)]
            case ir.Reserve(arena=arena):
                zero = arith.Const(0)
                return [Access("", arena, zero, arith.Const(1 << 62), True, Who.FIRST)]
            case ir.HostStep(args=args):
                return [self.access(name, True, Who.FIRST) for name in args]
        return []

    def access(self, name: str, is_write: bool, who: Who) -> Access:
        buffer = self.buffers[name]
        if buffer.place is None:
            return Access(name, f"buffer {name}", arith.Const(0), buffer.size_bytes, is_write, who)
        start = buffer.place.offset
        return Access(name, buffer.place.arena, start, start + buffer.size_bytes, is_write, who)

    def may_overlap(self, a: Access, b: Access) -> bool:
        if a.root != b.root:
            return False
        return not (self._ends_before(a, b) or self._ends_before(b, a))

    def _ends_before(self, a: Access, b: Access) -> bool:
        """Asked again for the same two buffers at every statement that follows."""
        key = (a.stop, b.start)
        if key not in self._order:
            self._order[key] = self._is_fenced(a, b) or prove("le", a.stop, b.start, self.env)
        return self._order[key]

    def _is_fenced(self, a: Access, b: Access) -> bool:
        """Whether a ends before the next place of its arena, and b begins there or later."""
        if a.root not in self._fences:
            starts = [
                buffer.place.offset
                for buffer in self.program.buffers
                if buffer.place is not None and buffer.place.arena == a.root
                if arith.as_int(buffer.size_bytes) is None
            ]
            self._fences[a.root] = _Fences(starts, self.env)
        following = self._fences[a.root].between(a.start, b.start)
        return following is not None and prove("le", a.stop, following, self.env)

    def conflict(self, earlier: Access, later: Access) -> bool:
        """Whether two threads could meet on the same bytes, one of them writing."""
        if not (earlier.is_write or later.is_write):
            return False
        if earlier.who is Who.FIRST and later.who is Who.FIRST:
            return False
        return self.may_overlap(earlier, later)


class _Fences:
    """The places of an arena's buffers of open size, in order; those of known size come before.

    Each offset is the one before it and a size, which is easy to show; that two far apart are in
    order follows, and would be hard to show by itself."""

    def __init__(self, starts: list[arith.Expr], env: dict[str, Interval]):
        trials = [{name: _inside(range_, n) for name, range_ in env.items()} for n in (5, 77, 1009)]
        known = {
            s: tuple(arith.evaluate(s, trial) for trial in trials)
            for s in starts
            if arith.free_vars(s) <= env.keys()
        }
        self.starts = sorted(known, key=lambda s: known[s])
        self.place = {s: index for index, s in enumerate(self.starts)}
        pairs = zip(self.starts, self.starts[1:])
        self.breaks = [k for k, (a, b) in enumerate(pairs) if not prove("le", a, b, env)]

    def between(self, start: arith.Expr, later: arith.Expr) -> arith.Expr | None:
        """The place after `start`, if `later` is that or one that follows it."""
        first, last = self.place.get(start, -1), self.place.get(later, -1)
        if first >= last or any(first < k < last for k in self.breaks):
            return None
        return self.starts[first + 1]


def _inside(range_: Interval, number: int) -> int:
    """A number of the range, apart from others as `number` is."""
    low = range_.low or 0
    return low + number if range_.high is None else min(range_.high, low + number)
