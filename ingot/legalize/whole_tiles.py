"""Tiles of a short sum that are inside a dynamic size run without guards and clamped rows.

    for t: for k: for u in unrolled(8): acc[u] += x[min(n - 1, t*8 + u) + k] * w[k]
           for u in unrolled(8): if t*8 + u < n: y[t*8 + u] = acc[u]
    →  for t: if t*8 + 7 < n: for k: for u in unrolled(8): acc[u] += x[t*8 + u + k] * w[k]
                              for u in unrolled(8): y[t*8 + u] = acc[u]
              else:           as before

The rows of a whole tile then have one address, and constant distances from it. A tile of a long sum
is left alone: it would double the code to save little. So are kernels of fixed sizes, where clamps
are by constants. A legalize pass, after hoist_guards.py, which does the same for serial loops; in:
flat kernel, its VECTOR and UNROLL loops not expanded yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.context import PassContext
from ingot.legalize.copies import copy_stmt
from ingot.legalize.hoist_guards import (
    EXPANDED_KINDS,
    MAX_STMTS,
    count_unrolled,
    in_all_iterations,
    inner_loops,
    without,
)
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.loops.ir import For, Kernel, LoopKind, Stmt
from ingot.support import options
from ingot.support.stack import segmented

# Vector statements that a tile runs, most of them FMAs: most cores execute two in a cycle. Clamps
# and guards of 8 rows took 38 cycles together (measured on Zen 4), 7 % of such a tile.
MAX_TILE_WORK = 1024
MATH_WORK = 32  # vector statements that a Math call (exp, erf, …) expands to, about; heuristic


def whole_tiles(kernel: Kernel, ctx: PassContext) -> Kernel:
    if not kernel.sizes or not options.current().has("hoist_guards"):
        return kernel
    ranges = Ranges(kernel)

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not LoopKind.PARALLEL or not _is_short(s.body):
            return s
        return _versioned(s, ranges, ctx)

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _is_short(body: Stmt) -> bool:
    return count_unrolled(body) <= MAX_STMTS and _work(body) <= MAX_TILE_WORK


@segmented
def _work(s: Stmt) -> int:
    """The vector statements that a run of `s` executes; more than the limit where it is dynamic."""
    match s:
        case For(body=body):
            count = 1 if s.kind is LoopKind.VECTOR else arith.as_int(s.extent)
            return MAX_TILE_WORK + 1 if count is None else count * _work(body)
        case ir.Store(value=value):
            calls = sum(isinstance(e, ir.Math) for e in visit.walk_exprs(value))
            return 1 + MATH_WORK * calls
    return sum(map(_work, visit.sub_stmts(s)))


def _versioned(loop: For, ranges: Ranges, ctx: PassContext) -> Stmt:
    guards = {c: in_all_iterations(c, loop, ranges) for c in _guards(loop, ranges)}
    inside = {c: full for c, full in guards.items() if full is not None}
    clamps: dict[arith.Expr, arith.Expr] = {}
    for clamp, row, bound in _clamps(loop, ranges):
        full = in_all_iterations(_less(row, bound), loop, ranges)
        if full is not None:
            clamps[clamp], inside[_less(row, bound)] = row, full
    has_sum = clamps or any(f.kind is LoopKind.SERIAL for f in inner_loops(loop.body))
    is_whole = visit.conjoin(dict.fromkeys(inside.values()))
    if is_whole is None or not has_sum:
        return loop
    whole = _unclamped(without(loop.body, set(inside)), clamps, ranges)
    rest = copy_stmt(loop.body, {}, ctx.names)
    return ir.replace(loop, body=ir.If(is_whole, whole, rest))


def _less(a: arith.Expr, b: arith.Expr) -> ir.Expr:
    return ir.Compare("lt", ir.Index(a), ir.Index(b))


def _guards(loop: For, ranges: Ranges) -> dict[ir.Expr, None]:
    """Guards by a dynamic size that depend on the tile, and on no loop inside that stays one."""
    conditions = [s.cond for s in visit.walk_stmts(loop.body) if isinstance(s, ir.If)]
    conditions += [x.mask for x in visit.loads(loop.body) if x.mask is not None]
    found = (c for cond in conditions for c in visit.conjuncts(cond))
    return {c: None for c in found if _follows_tile(terms.value_vars(c), loop, ranges)}


def _clamps(loop: For, ranges: Ranges) -> Iterator[tuple[arith.Min, arith.Expr, arith.Expr]]:
    """(min(last, row), row, last + 1) in indices, where the last row is a dynamic size."""
    for load in visit.loads(loop.body):
        for atom in (a for i in load.indices for a in arith.walk(i) if isinstance(a, arith.Min)):
            for row, last in ((atom.a, atom.b), (atom.b, atom.a)):
                names = terms.index_vars(last)
                is_size = bool(names) and names <= ranges.sizes and not arith.opaques(last)
                if is_size and _follows_tile(terms.index_vars(atom), loop, ranges):
                    yield atom, row, ranges.simplify(last + 1)


def _follows_tile(names: frozenset[str], loop: For, ranges: Ranges) -> bool:
    kept = {f.var for f in inner_loops(loop.body) if f.kind not in EXPANDED_KINDS}
    return loop.var in names and bool(names & ranges.sizes) and not names & kept


def _unclamped(s: Stmt, clamps: Mapping[arith.Expr, arith.Expr], ranges: Ranges) -> Stmt:
    def on_binary(e: arith.Binary, a: arith.Expr, b: arith.Expr) -> arith.Expr:
        return clamps[e] if e in clamps else arith.BUILD[type(e)](a, b)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if not isinstance(e, ir.Load) or not clamps:
            return e
        free = (arith.fold(i, lambda leaf: leaf, on_binary) for i in e.indices)
        return ir.replace(e, indices=tuple(map(ranges.simplify, free)))

    return visit.map_stmt(s, on_expr=on_expr)
