"""Transposes square tiles in registers: strided loads become contiguous loads and shuffles. A
legalize pass.

    for i unroll in 8: Y[i*n : +8] = X[j*m + i : +8 by m]
    →  r0 = X[j*m : +8]; r1 = X[j*m + m : +8] …; c0, c1, … = transposed r0, r1, …; Y[i*n : +8] = ci

In: an UNROLL loop around one vector store, with strided loads that are contiguous from iteration to
iteration. Out: contiguous loads, and shuffles that move blocks of 16 bytes first and then
interleave within them. Vector units do each such shuffle in one instruction.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize.context import PassContext
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt

BLOCK_BYTES = 16  # x86 shuffles of wider vectors move 128-bit blocks, or elements within each


def transpose_tiles(kernel: Kernel, ctx: PassContext) -> Kernel:
    if not any(_is_candidate(s) for s in visit.walk_stmts(kernel.body)):
        return kernel
    ranges = Ranges(kernel)

    def on_stmt(s: Stmt) -> Stmt:
        if isinstance(s, For) and _is_candidate(s):
            return _Tile(s, ctx, ranges).unrolled()
        return s

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _is_candidate(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind is LoopKind.UNROLL and isinstance(s.body, ir.Store)


class _Tile:
    """One such loop: its iterations are the rows of the stored tile."""

    def __init__(self, loop: For, ctx: PassContext, ranges: Ranges):
        assert isinstance(loop.body, ir.Store)
        self.loop, self.store, self.ctx, self.ranges = loop, loop.body, ctx, ranges
        self.size = arith.as_int(loop.extent) or 0

    def unrolled(self) -> Stmt:
        found = [x for x in visit.walk_exprs(self.store.value) if isinstance(x, ir.Load)]
        columns = [x for x in dict.fromkeys(found) if self.is_column(x)]
        if not columns:
            return self.loop
        lets: list[tuple[str, ir.Expr]] = []
        transposed_loads = {load: self.transposed(load, lets) for load in columns}
        body = ir.seq(*(self.iteration(n, transposed_loads) for n in range(self.size)))
        for name, value in reversed(lets):
            body = ir.Let(name, value, body)
        return body

    def is_column(self, load: ir.Load) -> bool:
        """Is the load strided over the lanes, and contiguous over the iterations?"""
        if load.width != self.size or self.size & (self.size - 1) or self.size == 1:
            return False
        if load.mask is not None or load.dtype.is_bool or arith.is_const(load.stride, 1):
            return False  # a bool is one bit in a register, not a byte to shuffle
        if load.buffer.name == self.store.buffer.name or load.buffer.scope == ir.REGISTER:
            return False
        if visit.opaque_values(load.indices[0]):
            return False
        form = self.ranges.affine(load.indices[0], self.loop.var)
        return form is not None and arith.is_const(form[0], 1)

    def transposed(self, load: ir.Load, lets: list[tuple[str, ir.Expr]]) -> list[ir.Expr]:
        """The value of the load in each iteration, as Refs to Lets that are appended to `lets`."""
        first = arith.substitute(load.indices[0], {self.loop.var: self.loop.start})

        def named(value: ir.Expr) -> ir.Expr:
            name = self.ctx.names.fresh("row")
            lets.append((name, value))
            return ir.Ref(name, value.dtype, value.lanes)

        rows = [
            named(ir.Load(load.buffer, (self.ranges.simplify(first + load.stride * n),), self.size))
            for n in range(self.size)
        ]
        block = min(self.size, max(1, BLOCK_BYTES // load.dtype.storage_bytes))
        step = self.size // 2
        while step >= block:
            rows = _in_pairs(
                rows, step, lambda a, b, s=step: tuple(map(named, _swap_blocks(a, b, s)))
            )
            step //= 2
        return [
            column
            for at in range(0, self.size, block)
            for column in _interleave(rows[at : at + block], block, named)
        ]

    def iteration(self, n: int, transposed_loads: dict[ir.Load, list[ir.Expr]]) -> Stmt:
        env = {self.loop.var: self.loop.start + n}

        def on_expr(e: ir.Expr) -> ir.Expr:
            return transposed_loads[e][n] if isinstance(e, ir.Load) and e in transposed_loads else e

        return visit.substitute(visit.map_stmt(self.store, lambda s: s, on_expr), env)


def _in_pairs(rows: list[ir.Expr], distance: int, combine) -> list[ir.Expr]:
    """Rows `distance` from each other, combined in pairs, in place."""
    out = list(rows)
    for n in range(len(rows)):
        if not n & distance:
            out[n], out[n + distance] = combine(rows[n], rows[n + distance])
    return out


def _swap_blocks(a: ir.Expr, b: ir.Expr, step: int) -> tuple[ir.Expr, ir.Expr]:
    """Swap every second block of `step` lanes of `a` with the block before it of `b`."""
    low = tuple(n if not n & step else a.lanes + n - step for n in range(a.lanes))
    return ir.Shuffle(a, b, low), ir.Shuffle(a, b, tuple(n + step for n in low))


def _interleave(rows: list[ir.Expr], block: int, named) -> list[ir.Expr]:
    """Transpose each block over `block` rows, in log2(block) rounds that interleave lanes of the
    first half of the rows with lanes of the second half."""
    half, lanes = block // 2, rows[0].lanes
    halves = range(2) if half else ()

    def picks(high: int) -> tuple[int, ...]:
        one = [(high * half + n // 2) + (n % 2) * lanes for n in range(block)]
        return tuple(start + p for start in range(0, lanes, block) for p in one)

    for _ in range(block.bit_length() - 1):
        pairs = zip(rows[:half], rows[half:])
        rows = [named(ir.Shuffle(a, b, picks(high))) for a, b in pairs for high in halves]
    return rows


__all__ = ["transpose_tiles"]
