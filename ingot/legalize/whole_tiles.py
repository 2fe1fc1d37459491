"""Guards out of inner loops: an iteration in which they hold throughout runs without them.

    for c: for i: for l in vector(8): if c*8 + l < n: …
    →  for c: if c*8 + 7 < n: for i: for l in vector(8): …
              else:           for i: for l in vector(8): if c*8 + l < n: …

Loops whose last tile is not whole test every statement otherwise, and sums cannot stay in
registers between tests. A step; in: flat kernel with vector and unrolled loops still in it. Only
where a loop stands between the guard and the last loop that it is about: else nothing is saved.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.context import Context
from ingot.legalize.copies import copy_stmt
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.loops.ir import For, If, Kernel, LoopKind, Stmt
from ingot.support import knobs

MAX_STMTS = 128  # of a body that is written twice, unrolled loops counted in full
WRITTEN_OUT = (LoopKind.VECTOR, LoopKind.UNROLL)


def whole_tiles(kernel: Kernel, ctx: Context) -> Kernel:
    if not knobs.current().whole_tiles:
        return kernel
    is_guarded = any(isinstance(s, If) for s in visit.walk_stmts(kernel.body))
    if not is_guarded and all(x.mask is None for x in visit.loads(kernel.body)):
        return kernel
    ranges = Ranges(kernel)

    def on_stmt(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.kind is not LoopKind.SERIAL:
            return s
        return _by_case(s, ranges, ctx)

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _by_case(loop: For, ranges: Ranges, ctx: Context) -> Stmt:
    found = dict.fromkeys(_guards(loop.body, loop.var, ()))
    strongest = {c: _for_all(c, loop, ranges) for c in found}
    known = {c: whole for c, whole in strongest.items() if whole is not None}
    if not known or _count(loop.body) > MAX_STMTS:
        return loop
    whole = visit.conjoin(dict.fromkeys(known.values()))
    assert whole is not None
    free = _without(loop.body, set(known))
    rest = visit.map_stmt(copy_stmt(loop.body, {}, ctx.names), _masked)
    return ir.replace(loop, body=If(whole, free, rest))


def _masked(s: Stmt) -> Stmt:
    """Vectors of the last tile are not asked one by one whether they are whole: few are there, and
    sums stay in registers where nothing branches."""
    if not isinstance(s, For) or s.kind is not LoopKind.VECTOR or ir.MASKED in s.annotations:
        return s
    return ir.replace(s, annotations=(*s.annotations, ir.MASKED))


def _guards(s: Stmt, var: str, inside: tuple[For, ...]) -> list[ir.Expr]:
    """Conjuncts of conditions that are about `var`, with a loop between that they are not about;
    of the loops inside, they are only about such as are written out."""
    match s:
        case For(body=body):
            return _guards(body, var, (*inside, s))
        case If(cond=cond, then=then, orelse=None):
            own = [c for c in visit.conjuncts(cond) if _is_hoistable(c, var, inside)]
            return own + _guards(then, var, inside)
        case ir.Store():
            masks = [x.mask for x in visit.loads(s) if x.mask is not None]
            parts = [c for mask in masks for c in visit.conjuncts(mask)]
            return [c for c in parts if _is_hoistable(c, var, inside)]
        case _:
            return [c for x in visit.sub_stmts(s) for c in _guards(x, var, inside)]


def _is_hoistable(cond: ir.Expr, var: str, inside: tuple[For, ...]) -> bool:
    used = terms.value_vars(cond)
    mine = [f for f in inside if f.var in used]
    others = [f for f in inside if f.var not in used]
    return var in used and bool(others) and all(f.kind in WRITTEN_OUT for f in mine)


def _for_all(cond: ir.Expr, loop: For, ranges: Ranges) -> ir.Expr | None:
    """What must hold for the condition to hold in every iteration of the loops inside."""
    if not isinstance(cond, ir.Compare) or cond.op != "lt":
        return None
    if not isinstance(cond.a, ir.Index) or not isinstance(cond.b, ir.Index):
        return None
    place = cond.a.expr
    if any(isinstance(x, arith.Opaque) for e in (place, cond.b.expr) for x in arith.walk(e)):
        return None  # the loop may write what it holds
    for inner in _loops(loop.body):
        if inner.var in terms.index_vars(cond.b.expr):
            return None
        if inner.var not in terms.index_vars(place):
            continue
        parts = ranges.affine(place, inner.var)
        if parts is None or not ranges.at_least(parts[0], 0):
            return None
        place = parts[0] * (inner.stop - 1) + parts[1]
    if terms.index_vars(place) & {inner.var for inner in _loops(loop.body)}:
        return None  # the end of one loop hangs on another
    return ir.Compare("lt", ir.Index(ranges.simplify(place)), cond.b)


def _loops(s: Stmt) -> list[For]:
    return [x for x in visit.walk_stmts(s) if isinstance(x, For)]


def _without(s: Stmt, known: set[ir.Expr]) -> Stmt:
    """The statement where all of those conditions hold."""

    def rest(cond: ir.Expr) -> ir.Expr | None:
        return visit.conjoin(c for c in visit.conjuncts(cond) if c not in known)

    def on_stmt(x: Stmt) -> Stmt:
        if not isinstance(x, If) or x.orelse is not None:
            return x
        return terms.guarded(rest(x.cond), x.then)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if not isinstance(e, ir.Load) or e.mask is None:
            return e
        mask = rest(e.mask)
        return ir.replace(e, mask=mask, other=None if mask is None else e.other)

    return visit.map_stmt(s, on_stmt, on_expr)


def _count(s: Stmt) -> int:
    """Statements, those of an unrolled loop as often as they will be there."""
    match s:
        case For(kind=LoopKind.UNROLL, body=body):
            return (arith.as_int(s.extent) or MAX_STMTS) * _count(body)
        case For(body=body) | ir.Alloc(body=body) | ir.Let(body=body):
            return 1 + _count(body)
        case If(then=then, orelse=orelse):
            return 1 + _count(then) + (0 if orelse is None else _count(orelse))
        case ir.Seq(stmts=stmts):
            return sum(map(_count, stmts))
    return 1
