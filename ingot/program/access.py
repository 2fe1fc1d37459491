"""Byte ranges that each statement of a program reads or writes, and by which threads.

The planner inserts barriers from these ranges; the verifier checks the barriers against them with
an algorithm of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.loops import visit
from ingot.loops.ir import Kernel
from ingot.program import ir
from ingot.program.offsets import Offsets


class Threads(Enum):
    """Which threads perform an access."""

    FIRST = "first"  # thread 0 alone
    SPLIT = "split"  # each thread its own chunks; which bytes those are is not analysed
    ALL = "all"  # every thread, the same bytes


@dataclass(frozen=True)
class ByteAccess:
    """Bytes start … stop-1 of `base`: an arena, or a buffer with an allocation of its own."""

    buffer: str
    base: str
    start: arith.Expr
    stop: arith.Expr
    is_write: bool
    threads: Threads


class AccessAnalysis:
    """The accesses of one program; a kernel's parameter roles are computed once."""

    def __init__(self, program: ir.Program):
        self.program = program
        self.buffers = program.buffer_map
        self.env = {s.name: Interval(s.low, s.high) for s in program.symbols}
        self._roles: dict[str, tuple[frozenset[int], frozenset[int]]] = {}
        self._order: dict[tuple[arith.Expr, arith.Expr], bool] = {}
        self._offsets: dict[str, _OrderedOffsets] = {}
        self._defined = Offsets(program.offsets, self.env)

    def roles(self, kernel: str) -> tuple[frozenset[int], frozenset[int]]:
        """Positions of the parameters whose old content a kernel reads, and of those it writes. A
        parameter that it never accesses counts as written: legalize removed its stores because
        their loops have no iterations, so there is nothing to store."""
        if kernel not in self._roles:
            self._roles[kernel] = _roles(self.program.kernel_map[kernel])
        return self._roles[kernel]

    def of(self, s: ir.Stmt) -> list[ByteAccess]:
        """The accesses of one statement itself (not of those inside it)."""
        match s:
            case ir.Launch(kernel=kernel, args=args):
                threads = Threads.FIRST if arith.is_const(s.extent, 1) else Threads.SPLIT
                reads, writes = self.roles(kernel)
                found = [self.access(args[i], False, threads) for i in sorted(reads)]
                return found + [self.access(args[i], True, threads) for i in sorted(writes)]
            case ir.Copy(dst=dst, src=src):
                size = arith.as_int(self.buffers[dst].size_bytes)
                is_short = size is not None and size <= ir.SHORT_COPY_BYTES
                return self.copy(dst, src, Threads.FIRST if is_short else Threads.SPLIT)
            case ir.Append(dst=dst, src=src) | ir.Assign(dst=dst, src=src):
                return self.copy(dst, src, Threads.FIRST)
            case ir.Resize(buffer=buffer):
                return [self.access(buffer, True, Threads.FIRST)]
            case ir.Swap(a=a, b=b):
                return [self.access(name, True, Threads.FIRST) for name in (a, b)]
            case ir.If(flag=flag):
                return [self.access(flag, False, Threads.ALL)]
            case ir.Bind(buffer=buffer):
                return [self.access(buffer, False, Threads.ALL)]
            case ir.Loop(counter=counter, trips=trips, keep_going=keep):
                tests = [self.access(n, False, Threads.ALL) for n in (trips, keep) if n is not None]
                return [*tests, self.access(counter, True, Threads.FIRST)]
            case ir.Reserve(arena=arena):
                zero = arith.Const(0)
                return [ByteAccess("", arena, zero, arith.Const(1 << 62), True, Threads.FIRST)]
            case ir.HostStep(args=args, results=results):
                found = [self.access(n, False, Threads.FIRST) for n in args if n is not None]
                return found + [self.access(n, True, Threads.FIRST) for n in results]
        return []

    def copy(self, dst: str, src: str, threads: Threads) -> list[ByteAccess]:
        return [self.access(src, False, threads), self.access(dst, True, threads)]

    def access(self, name: str, is_write: bool, threads: Threads) -> ByteAccess:
        buffer = self.buffers[name]
        if buffer.allocation is None:
            base, zero = f"buffer {name}", arith.Const(0)
            return ByteAccess(name, base, zero, buffer.size_bytes, is_write, threads)
        base, start = buffer.allocation.arena, buffer.allocation.offset
        return ByteAccess(name, base, start, start + buffer.size_bytes, is_write, threads)

    def may_overlap(self, a: ByteAccess, b: ByteAccess) -> bool:
        if a.base != b.base:
            return False
        return not (self._ends_before(a, b) or self._ends_before(b, a))

    def _ends_before(self, a: ByteAccess, b: ByteAccess) -> bool:
        """Memoised: the same two buffers are compared at every later statement."""
        key = (a.stop, b.start)
        if key not in self._order:
            self._order[key] = self._is_proved(a, b)
        return self._order[key]

    def _is_proved(self, a: ByteAccess, b: ByteAccess) -> bool:
        below, above = (self._defined.name_of(x.start) for x in (a, b))
        if below is not None and above is not None:
            return self._defined.is_below(below, self.buffers[a.buffer].size_bytes, above)
        return self._precedes_next(a, b) or prove("le", a.stop, b.start, self.env)

    def _precedes_next(self, a: ByteAccess, b: ByteAccess) -> bool:
        """Whether a ends at or before the next buffer of its arena, and b starts there or later."""
        if a.base not in self._offsets:
            starts = [
                buffer.allocation.offset
                for buffer in self.program.buffers
                if buffer.allocation is not None and buffer.allocation.arena == a.base
                if arith.as_int(buffer.size_bytes) is None
            ]
            self._offsets[a.base] = _OrderedOffsets(starts, self.env)
        following = self._offsets[a.base].next_up_to(a.start, b.start)
        return following is not None and prove("le", a.stop, following, self.env)

    def conflict(self, earlier: ByteAccess, later: ByteAccess) -> bool:
        """Whether two threads may access the same bytes at once, one of them writing."""
        if not (earlier.is_write or later.is_write):
            return False
        if earlier.threads is Threads.FIRST and later.threads is Threads.FIRST:
            return False
        return self.may_overlap(earlier, later)


class Pending:
    """Accesses since the last barrier, which slower threads may still perform: by base, and equal
    byte ranges only once, so that a long program is not compared with all of itself."""

    def __init__(self) -> None:
        self._by_base: dict[str, dict[tuple, tuple[ir.Stmt, ByteAccess]]] = {}

    def add(self, s: ir.Stmt, accesses: list[ByteAccess]) -> None:
        for a in accesses:
            key = (a.start, a.stop, a.is_write, a.threads)
            self._by_base.setdefault(a.base, {}).setdefault(key, (s, a))

    def conflict(
        self, accesses: list[ByteAccess], analysis: AccessAnalysis
    ) -> tuple[ir.Stmt, ByteAccess, ByteAccess] | None:
        """The first pending access that conflicts with one of these: its statement, and both."""
        for later in accesses:
            for before, earlier in self._by_base.get(later.base, {}).values():
                if analysis.conflict(earlier, later):
                    return before, earlier, later
        return None

    def copy(self) -> Pending:
        new = Pending()
        new.merge(self)
        return new

    def merge(self, other: Pending) -> None:
        for base, found in other._by_base.items():
            self._by_base[base] = {**found, **self._by_base.get(base, {})}


class _OrderedOffsets:
    """Offsets of an arena's dynamic-size buffers, ascending; static sizes come before them.

    Each offset is its predecessor plus a size, so neighbours are easy to order by proof. The order
    of distant offsets follows; a direct proof of it would be hard."""

    def __init__(self, starts: list[arith.Expr], env: dict[str, Interval]):
        samples = [{name: _at(range_, n) for name, range_ in env.items()} for n in (5, 77, 1009)]
        known = {
            s: tuple(arith.evaluate(s, sample) for sample in samples)
            for s in starts
            if arith.free_vars(s) <= env.keys()
        }
        self.starts = sorted(known, key=lambda s: known[s])
        self.position = {s: index for index, s in enumerate(self.starts)}
        pairs = zip(self.starts, self.starts[1:])
        self.unordered = [k for k, (a, b) in enumerate(pairs) if not prove("le", a, b, env)]

    def next_up_to(self, start: arith.Expr, later: arith.Expr) -> arith.Expr | None:
        """The offset after `start`, if `later` is that offset or a greater one."""
        first, last = self.position.get(start, -1), self.position.get(later, -1)
        if first >= last or any(first < k < last for k in self.unordered):
            return None
        return self.starts[first + 1]


def _at(range_: Interval, number: int) -> int:
    """A value of the range: `number` above its lower end, clamped."""
    low = range_.low or 0
    return low + number if range_.high is None else min(range_.high, low + number)


@lru_cache(maxsize=1024)
def _roles(kernel: Kernel) -> tuple[frozenset[int], frozenset[int]]:
    """Kept for the planner and the verifier, which ask for the same kernels."""
    reads, writes = visit.read_before_write(kernel.body), visit.written(kernel.body)
    names = [p.name for p in kernel.params]
    return (
        frozenset(i for i, n in enumerate(names) if n in reads),
        frozenset(i for i, n in enumerate(names) if n in writes or n not in reads),
    )
