"""Square tiles that are read across become rows and a transposition in registers. A step.

    for i unroll in 8: Y[i*n : +8] = X[j*m + i : +8 by m]
    →  r0 = X[j*m : +8]; r1 = X[j*m + m : +8] …; c0, c1, … = transposed r0, r1, …; Y[i*n : +8] = ci

In: an UNROLL loop around one wide store that reads vectors whose lanes lie apart, while those of
successive turns lie side by side. Out: contiguous loads, and shuffles that move blocks of 16 bytes
first, then interleave inside them: what vector units do in one instruction each.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize.context import Context
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt

BLOCK_BYTES = 16  # shuffles of wider vectors move such blocks, or elements inside each


def transpose_tiles(kernel: Kernel, ctx: Context) -> Kernel:
    if not any(_is_candidate(s) for s in visit.walk_stmts(kernel.body)):
        return kernel
    ranges = Ranges(kernel)

    def on_stmt(s: Stmt) -> Stmt:
        if isinstance(s, For) and _is_candidate(s):
            return _Tile(s, ctx, ranges).written_out()
        return s

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _is_candidate(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind is LoopKind.UNROLL and isinstance(s.body, ir.Store)


class _Tile:
    """One such loop: its turns are the rows of what is stored."""

    def __init__(self, loop: For, ctx: Context, ranges: Ranges):
        assert isinstance(loop.body, ir.Store)
        self.loop, self.store, self.ctx, self.ranges = loop, loop.body, ctx, ranges
        self.side = arith.as_int(loop.extent) or 0

    def written_out(self) -> Stmt:
        found = [x for x in visit.walk_exprs(self.store.value) if isinstance(x, ir.Load)]
        across = [x for x in dict.fromkeys(found) if self.is_across(x)]
        if not across:
            return self.loop
        lets: list[tuple[str, ir.Expr]] = []
        made = {load: self.transposed(load, lets) for load in across}
        body = ir.seq(*(self.turn(n, made) for n in range(self.side)))
        for name, value in reversed(lets):
            body = ir.Let(name, value, body)
        return body

    def is_across(self, load: ir.Load) -> bool:
        """Do the lanes lie apart, and those of the next turn right after them?"""
        if load.width != self.side or self.side & (self.side - 1) or self.side == 1:
            return False
        if load.mask is not None or load.dtype.is_bool or arith.is_const(load.stride, 1):
            return False  # a bool is one bit in a register: those are not shuffled by bytes
        if load.buffer.name == self.store.buffer.name or load.buffer.scope == ir.REGISTER:
            return False
        if visit.opaque_values(load.indices[0]):
            return False
        form = self.ranges.affine(load.indices[0], self.loop.var)
        return form is not None and arith.is_const(form[0], 1)

    def transposed(self, load: ir.Load, lets: list[tuple[str, ir.Expr]]) -> list[ir.Expr]:
        """What the load is in each turn: names, whose values are appended to `lets`."""
        first = arith.substitute(load.indices[0], {self.loop.var: self.loop.start})

        def named(value: ir.Expr) -> ir.Expr:
            name = self.ctx.names.fresh("row")
            lets.append((name, value))
            return ir.Ref(name, value.dtype, value.lanes)

        rows = [
            named(ir.Load(load.buffer, (self.ranges.simplify(first + load.stride * n),), self.side))
            for n in range(self.side)
        ]
        block = min(self.side, max(1, BLOCK_BYTES // load.dtype.storage_bytes))
        step = self.side // 2
        while step >= block:
            rows = _in_pairs(rows, step, lambda a, b, s=step: tuple(map(named, _swapped(a, b, s))))
            step //= 2
        return [
            column
            for at in range(0, self.side, block)
            for column in _interleaved(rows[at : at + block], block, named)
        ]

    def turn(self, n: int, made: dict[ir.Load, list[ir.Expr]]) -> Stmt:
        env = {self.loop.var: self.loop.start + n}

        def on_expr(e: ir.Expr) -> ir.Expr:
            return made[e][n] if isinstance(e, ir.Load) and e in made else e

        return visit.substitute(visit.map_stmt(self.store, lambda s: s, on_expr), env)


def _in_pairs(rows: list[ir.Expr], apart: int, join) -> list[ir.Expr]:
    """Rows `apart` from each other, joined two by two, each in its place."""
    out = list(rows)
    for n in range(len(rows)):
        if not n & apart:
            out[n], out[n + apart] = join(rows[n], rows[n + apart])
    return out


def _swapped(a: ir.Expr, b: ir.Expr, step: int) -> tuple[ir.Expr, ir.Expr]:
    """Every second stretch of `step` lanes of `a`, for every other one of `b`."""
    low = tuple(n if not n & step else a.lanes + n - step for n in range(a.lanes))
    return ir.Shuffle(a, b, low), ir.Shuffle(a, b, tuple(n + step for n in low))


def _interleaved(rows: list[ir.Expr], block: int, named) -> list[ir.Expr]:
    """As many rows as a block has lanes: each of the blocks across them, transposed. Lanes of the
    first half of the rows meet those of the second, as often as it can be halved."""
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
