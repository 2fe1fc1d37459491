"""Liveness of buffers: for each an interval of positions in program order.

A buffer used both inside and outside a loop is live for the whole loop; one used only in the body
is live within it. An output is live until the end, where the runtime copies it. So is a condition,
trip count or size that all threads read outside of loops: a late thread reads it later than others,
which do not wait for it (program/waits.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.program import ir
from ingot.program.waits import control_reads


@dataclass(frozen=True)
class Lifetime:
    first: int
    last: int  # inclusive

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


class _Uses:
    def __init__(self) -> None:
        self.position = 0
        self.uses: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
        self.loops: list[int] = []
        self.ends: dict[int, int] = {}
        self.read_by_all: list[str] = []

    def use(self, *names: str | None) -> None:
        for name in names:
            if name is not None:
                self.uses.setdefault(name, []).append((self.position, tuple(self.loops)))

    def stmt(self, s: ir.Stmt) -> None:
        self.position += 1
        if not self.loops:
            self.read_by_all += control_reads(s)
        match s:
            case ir.Seq(stmts=stmts):
                for each in stmts:
                    self.stmt(each)
            case ir.Launch(args=args):
                self.use(*args)
            case ir.HostStep():
                self.use(*s.buffers)
            case (
                ir.Copy(dst=dst, src=src)
                | ir.Append(dst=dst, src=src)
                | ir.Assign(dst=dst, src=src)
            ):
                self.use(dst, src)
            case ir.Bind(buffer=buffer) | ir.Resize(buffer=buffer):
                self.use(buffer)
            case ir.Swap(a=a, b=b):
                self.use(a, b)
            case ir.If(flag=flag, then=then, orelse=orelse):
                self.use(flag)
                self.stmt(then)
                self.stmt(orelse)
            case ir.IfSize(then=then, orelse=orelse):
                self.stmt(then)
                self.stmt(orelse)
            case ir.Loop():
                self.loop(s)
            case ir.Par(branches=branches):
                for branch in branches:
                    self.stmt(branch)

    def loop(self, s: ir.Loop) -> None:
        start = self.position
        self.use(s.counter, s.trips, s.keep_going)
        self.loops.append(start)
        self.stmt(s.body)
        self.position += 1
        self.ends[start] = self.position
        self.loops.pop()
        self.use(s.counter, s.trips, s.keep_going)


def lifetimes(program: ir.Program) -> dict[str, Lifetime]:
    walk = _Uses()
    walk.stmt(program.body)
    spans = {}
    for name, uses in walk.uses.items():
        common = _common_loops([loops for _, loops in uses])
        first, last = uses[0][0], uses[-1][0]
        for _, loops in uses:
            for loop in loops[len(common) :]:  # the buffer is also used outside this loop
                first, last = min(first, loop), max(last, walk.ends[loop])
        spans[name] = Lifetime(first, last)
    for name in (*program.outputs, *walk.read_by_all):
        if name in spans:
            spans[name] = Lifetime(spans[name].first, walk.position + 1)
    missing = Lifetime(0, 0)
    return {b.name: spans.get(b.name, missing) for b in program.buffers}


def _common_loops(nests: list) -> tuple:
    shared = nests[0]
    for nest in nests[1:]:
        size = 0
        while size < min(len(shared), len(nest)) and shared[size] == nest[size]:
            size += 1
        shared = shared[:size]
    return shared
