"""Hoists guards out of inner loops: an iteration in which they hold throughout runs without them.

    for c: for i: for l in vector(8): if c*8 + l < n: …
    →  for c: if c*8 + 7 < n: for i: for l in vector(8): …
              else:           for i: for l in vector(8): if c*8 + l < n: …

Otherwise loops with a partial last tile test every statement, and accumulators cannot stay in
registers between the tests. A legalize pass; in: flat kernel, its VECTOR and UNROLL loops not
expanded yet. A guard is hoisted only over a loop that it does not depend on: else nothing is saved.
Where sizes are dynamic, the masks of all points of a tile or of a window become one test, too, in
the loop over tiles or in the parallel loop.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize import terms
from ingot.legalize.conditions import as_index
from ingot.legalize.context import PassContext
from ingot.legalize.copies import copy_stmt
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.loops.ir import For, If, Kernel, LoopKind, Stmt
from ingot.support import options
from ingot.support.stack import segmented

MAX_STMTS = 128  # statements of a body that is duplicated, after unrolling; heuristic
Kinds = tuple[LoopKind, ...]
EXPANDED_KINDS: Kinds = (LoopKind.VECTOR, LoopKind.UNROLL)
TESTED_KINDS: Kinds = (LoopKind.SERIAL, *EXPANDED_KINDS)  # by one test of a parallel iteration


def hoist_guards(kernel: Kernel, ctx: PassContext) -> Kernel:
    if not options.current().has("hoist_guards"):
        return kernel
    is_guarded = any(isinstance(s, If) for s in visit.walk_stmts(kernel.body))
    if not is_guarded and all(x.mask is None for x in visit.loads(kernel.body)):
        return kernel
    for kind in (LoopKind.PARALLEL, LoopKind.SERIAL):
        kernel = _hoisted(kernel, kind, ctx)
    return kernel


def _hoisted(kernel: Kernel, kind: LoopKind, ctx: PassContext) -> Kernel:
    ranges = Ranges(kernel)

    def on_stmt(s: Stmt) -> Stmt:
        return _versioned(s, ranges, ctx) if isinstance(s, For) and s.kind is kind else s

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _versioned(loop: For, ranges: Ranges, ctx: PassContext) -> Stmt:
    is_outer = loop.kind is LoopKind.PARALLEL
    kinds = TESTED_KINDS if is_outer else EXPANDED_KINDS
    found = dict.fromkeys(_guards(loop.body, loop.var, (), kinds))
    if is_outer:  # guards of stores are tested once for many terms
        masks = [x.mask for x in visit.loads(loop.body) if x.mask is not None]
        in_masks = {c for mask in masks for c in visit.conjuncts(mask)}
        found = {c: None for c in found if c in in_masks}
    is_dynamic = any(terms.value_vars(c) & ranges.sizes for c in found)
    strongest = {c: _strongest(c, loop, ranges, is_dynamic) for c in found}
    known = {c: is_full for c, is_full in strongest.items() if is_full is not None}
    if not known or count_unrolled(loop.body) > MAX_STMTS:
        return loop
    is_full = visit.conjoin(dict.fromkeys(c for x in known.values() for c in visit.conjuncts(x)))
    assert is_full is not None
    unguarded = without(loop.body, set(known))
    rest = visit.map_stmt(copy_stmt(loop.body, {}, ctx.names), _masked)
    return ir.replace(loop, body=If(is_full, unguarded, rest))


def _masked(s: Stmt) -> Stmt:
    """Vector loops of a partial tile use masks and no branches: there are few of them, and without
    branches the accumulators stay in registers."""
    if not isinstance(s, For) or s.kind is not LoopKind.VECTOR or ir.MASKED in s.annotations:
        return s
    return ir.replace(s, annotations=(*s.annotations, ir.MASKED))


@segmented
def _guards(s: Stmt, var: str, inside: tuple[For, ...], kinds: Kinds) -> list[ir.Expr]:
    """Conjuncts that depend on `var` and not on some loop in between; of the inner loops, they
    depend on loops of these kinds only."""
    match s:
        case For(body=body):
            return _guards(body, var, (*inside, s), kinds)
        case If(cond=cond, then=then, orelse=None):
            own = [c for c in visit.conjuncts(cond) if _is_hoistable(c, var, inside, kinds)]
            return own + _guards(then, var, inside, kinds)
        case ir.Store():
            masks = [x.mask for x in visit.loads(s) if x.mask is not None]
            conjuncts = [c for mask in masks for c in visit.conjuncts(mask)]
            return [c for c in conjuncts if _is_hoistable(c, var, inside, kinds)]
        case _:
            return [c for x in visit.sub_stmts(s) for c in _guards(x, var, inside, kinds)]


def _is_hoistable(cond: ir.Expr, var: str, inside: tuple[For, ...], kinds: Kinds) -> bool:
    used = terms.value_vars(cond)
    own = [f for f in inside if f.var in used]
    others = [f for f in inside if f.var not in used]
    return var in used and bool(others) and all(f.kind in kinds for f in own)


def _strongest(cond: ir.Expr, loop: For, ranges: Ranges, is_dynamic: bool) -> ir.Expr | None:
    """A condition under which `cond` holds in all iterations of the inner loops, if one is found.
    Most conditions on static sizes are decided when loops are unrolled, and need no copy."""
    if loop.kind is LoopKind.PARALLEL and not is_dynamic:
        return None
    found = in_all_iterations(cond, loop, ranges)
    return _for_all_unrolled(cond, loop, ranges) if found is None and is_dynamic else found


def in_all_iterations(cond: ir.Expr, loop: For, ranges: Ranges) -> ir.Expr | None:
    """The condition at the last iteration of the inner loops: if it holds, it holds in all."""
    if not isinstance(cond, ir.Compare) or cond.op != "lt":
        return None
    if not isinstance(cond.a, ir.Index) or not isinstance(cond.b, ir.Index):
        return None
    index = cond.a.expr
    if arith.opaques(index) or arith.opaques(cond.b.expr):
        return None  # the loop may write the loaded data
    for inner in inner_loops(loop.body):
        if inner.var in terms.index_vars(cond.b.expr):
            return None
        if inner.var not in terms.index_vars(index):
            continue
        form = ranges.affine(index, inner.var)
        if form is None or not ranges.at_least(form[0], 0):
            return None
        index = form[0] * (inner.stop - 1) + form[1]
    if terms.index_vars(index) & {inner.var for inner in inner_loops(loop.body)}:
        return None  # the stop of one loop depends on another
    return ir.Compare("lt", ir.Index(ranges.simplify(index)), cond.b)


def _for_all_unrolled(cond: ir.Expr, loop: For, ranges: Ranges) -> ir.Expr | None:
    """The same for an index that is not affine in loops that are unrolled: the condition for each
    value of theirs, without those that follow from another."""
    if not isinstance(cond, ir.Compare) or cond.op not in ("lt", "ge"):
        return None
    index, limit = as_index(cond.a), as_index(cond.b)
    if index is None or limit is None or arith.opaques(index) or arith.opaques(limit):
        return None
    used = terms.index_vars(index) | terms.index_vars(limit)
    inner = [x for x in inner_loops(loop.body) if x.var in used]
    if any(x.kind is not LoopKind.UNROLL for x in inner):
        return None
    gap = index - limit if cond.op == "ge" else limit - index - 1  # holds where it is >= 0
    gaps = list(dict.fromkeys(_unrolled([gap], inner, ranges)))
    least = [g for g in gaps if not any(_follows(g, h, gaps, ranges) for h in gaps if h is not g)]
    return visit.conjoin(
        ir.Compare("ge", ir.Index(g), ir.Lit(0, dtypes.i64))
        for g in least
        if not ranges.at_least(g, 0)
    )


def _unrolled(gaps: list[arith.Expr], loops: list[For], ranges: Ranges) -> list[arith.Expr]:
    for loop in loops:
        values = range(arith.as_int(loop.extent) or 0)
        gaps = [arith.substitute(g, {loop.var: n}) for g in gaps for n in values]
    return [ranges.simplify(g) for g in gaps]


def _follows(gap: arith.Expr, other: arith.Expr, order: list[arith.Expr], ranges: Ranges) -> bool:
    """Is `gap` at least `other`? Of two that are always equal, the first is kept."""
    is_equal = ranges.at_least(other - gap, 0)
    return ranges.at_least(gap - other, 0) and not (
        is_equal and order.index(gap) < order.index(other)
    )


def inner_loops(s: Stmt) -> list[For]:
    return [x for x in visit.walk_stmts(s) if isinstance(x, For)]


def without(s: Stmt, known: set[ir.Expr]) -> Stmt:
    """The statement, simplified where all of those conditions hold."""

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


@segmented
def count_unrolled(s: Stmt) -> int:
    """The number of statements after unrolling."""
    match s:
        case For(kind=LoopKind.UNROLL, body=body):
            return (arith.as_int(s.extent) or MAX_STMTS) * count_unrolled(body)
        case For(body=body) | ir.Alloc(body=body) | ir.Let(body=body):
            return 1 + count_unrolled(body)
        case If(then=then, orelse=orelse):
            return 1 + count_unrolled(then) + (0 if orelse is None else count_unrolled(orelse))
        case ir.Seq(stmts=stmts):
            return sum(map(count_unrolled, stmts))
    return 1
