"""Sinks allocations to the narrowest statement with all their uses, and shrinks them there.

In: kernel without blocks. Out: every Alloc is as deep as dataflow allows, and in thread scope. An
allocation enters a loop only where each iteration writes what it reads: a loop-carried value keeps
it outside. Iterations of a parallel loop carry no values. Adjacent statements that pass no values
on (such as the pieces of a split loop) get an allocation each. A legalize pass.
"""

from __future__ import annotations

from ingot.legalize import flow, terms
from ingot.legalize.compact import compact, rescope
from ingot.legalize.context import PassContext
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.loops.alignment import Align
from ingot.loops.ir import Alloc, Buffer, For, If, Kernel, Let, LoopKind, Seq, Stmt
from ingot.support.stack import segmented


def place_allocs(kernel: Kernel, ctx: PassContext) -> Kernel:
    buffers, body = _take_allocs(kernel.body)
    if not buffers:
        return kernel
    ranges = Ranges(kernel)
    for buffer in buffers:
        body = _Sink(buffer, ranges, ctx).stmt(body)
    return ir.replace(kernel, body=body)


def is_private(buffer: Buffer, kernel: Kernel) -> bool:
    """Can `buffer` be private to one iteration of the kernel's outermost loop?"""
    return isinstance(kernel.body, For) and _may_enter(buffer, kernel.body, Ranges(kernel))


def _take_allocs(body: Stmt) -> tuple[list[Buffer], Stmt]:
    """The allocated buffers, and the body without their Allocs (names are unique)."""
    buffers: list[Buffer] = []

    def on_stmt(s: Stmt) -> Stmt:
        if isinstance(s, Alloc):
            buffers.append(s.buffer)
            return s.body
        return s

    return buffers, visit.map_stmt(body, on_stmt)


class _Sink:
    """Sinks the allocation of one buffer as deep as it may go; drops it if it is unused."""

    def __init__(
        self, buffer: Buffer, ranges: Ranges, ctx: PassContext, align: Align | None = None
    ):
        self.buffer, self.ranges, self.ctx = buffer, ranges, ctx
        self.align = align or ctx.aligned.get(buffer.name)

    @segmented
    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Seq(stmts=stmts):
                return self.sequence(stmts)
            case For(body=body) if self.may_enter(s):
                return ir.replace(s, body=self.stmt(body))
            case If(cond=cond, then=then, orelse=None) if not _reads(cond, self.buffer):
                return ir.If(cond, self.stmt(then))
            case Let(name=name, value=value, body=body) if not _reads(value, self.buffer):
                return Let(name, value, self.stmt(body))
            case Alloc(buffer=other, body=body):
                return Alloc(other, self.stmt(body))
        return self.wrap(s)

    def may_enter(self, loop: For) -> bool:
        return loop.kind is LoopKind.PARALLEL or _may_enter(self.buffer, loop, self.ranges)

    def sequence(self, stmts: tuple[Stmt, ...]) -> Stmt:
        using = [n for n, s in enumerate(stmts) if self.buffer.name in terms.accessed(s)]
        if not using:
            return ir.Seq(stmts)
        if len(using) > 1 and all(self.is_self_contained(stmts[n]) for n in using):
            made = [self.with_own_buffer(s) if n in using else s for n, s in enumerate(stmts)]
            return ir.seq(*made)
        first, last = using[0], using[-1] + 1
        is_single = last - first == 1
        inner = self.stmt(stmts[first]) if is_single else self.wrap(ir.Seq(stmts[first:last]))
        return ir.seq(*stmts[:first], inner, *stmts[last:])

    def is_self_contained(self, s: Stmt) -> bool:
        """Does the statement read the buffer, and only elements that it has written itself?"""
        found = flow.accesses(self.buffer.name, s)
        has_reads = found is not None and any(not a.is_write for a in found)
        return found is not None and has_reads and flow.is_written_first(found, self.ranges)

    def with_own_buffer(self, s: Stmt) -> Stmt:
        """The statement with a buffer of its own instead of this one."""
        own = ir.replace(self.buffer, name=self.ctx.names.fresh(self.buffer.name))
        inside = visit.replace_buffers(s, {self.buffer.name: own})
        return _Sink(own, self.ranges, self.ctx, self.align).stmt(inside)

    def wrap(self, s: Stmt) -> Stmt:
        found = flow.accesses(self.buffer.name, s)
        if found is None:
            return rescope(self.buffer, s)
        return compact(self.buffer, s, found, self.ranges, self.align) if found else s


def _may_enter(buffer: Buffer, loop: For, ranges: Ranges) -> bool:
    found = flow.accesses(buffer.name, loop.body)
    return found is not None and flow.is_written_first(found, ranges)


def _reads(e: ir.Expr, buffer: Buffer) -> bool:
    return any(isinstance(x, ir.Load) and x.buffer.name == buffer.name for x in visit.walk_exprs(e))
