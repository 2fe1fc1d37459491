"""Skips terms of a sum that are zero: a condition on the term becomes a branch around its loops.

    for k: for u in unrolled(8): acc[u] += x[k, u] * w[k] if 0 <= k + y < h else 0
    →  for k: if 0 <= k + y < h: for u in unrolled(8): acc[u] += x[k, u] * w[k]

An operator selects terms where its domain is clipped: the rows of a window in the padding of a map
of dynamic height. A branch for each row of taps is cheaper than the taps. A legalize pass, before
hoist_guards.py; in: flat kernel. Only loops in which every statement is such a sum, under one
condition that no loop inside changes, are rewritten. Adding zero changes no sum but -0.
"""

from __future__ import annotations

from ingot.legalize import terms
from ingot.legalize.context import PassContext
from ingot.legalize.hoist_guards import inner_loops, without
from ingot.loops import ir, visit
from ingot.loops.ir import Expr, For, Kernel, LoopKind, Stmt
from ingot.support.stack import segmented


def skip_zero_terms(kernel: Kernel, ctx: PassContext) -> Kernel:
    if not any(isinstance(e, ir.Select) for e in visit.all_exprs(kernel.body)):
        return kernel

    def on_stmt(s: Stmt) -> Stmt:
        return _skipping(s) if isinstance(s, For) and s.kind is LoopKind.SERIAL else s

    return ir.replace(kernel, body=visit.map_stmt(kernel.body, on_stmt))


def _skipping(loop: For) -> For:
    """The loop with its condition around the body, where there is one."""
    stores = list(visit.stores(loop.body))
    conditions = {_condition(s) for s in stores}
    if len(conditions) != 1 or not _is_only_loops(loop.body):
        return loop
    (cond,) = conditions
    if cond is None or terms.has_load(cond) or loop.var not in terms.value_vars(cond):
        return loop  # a branch on data would be mispredicted
    if terms.value_vars(cond) & {inner.var for inner in inner_loops(loop.body)}:
        return loop
    plain = visit.map_stmt(loop.body, _without_select)
    held = set(visit.conjuncts(cond))
    return ir.replace(loop, body=ir.If(cond, without(plain, held)))


@segmented
def _is_only_loops(s: Stmt) -> bool:
    match s:
        case For(body=body) | ir.If(then=body, orelse=None):
            return _is_only_loops(body)
        case ir.Seq(stmts=stmts):
            return all(map(_is_only_loops, stmts))
    return isinstance(s, ir.Store)


def _condition(s: ir.Store) -> Expr | None:
    """The condition c of acc = acc + (term if c else 0)."""
    match s.value:
        case ir.Binary(op="add", a=ir.Load() as acc, b=ir.Select(cond=cond, b=ir.Lit(value=0))):
            is_sum = acc.buffer.name == s.buffer.name and acc.indices == s.indices
            return cond if is_sum and acc.mask is None and s.mask is None else None
    return None


def _without_select(s: Stmt) -> Stmt:
    if not isinstance(s, ir.Store):
        return s
    assert isinstance(s.value, ir.Binary) and isinstance(s.value.b, ir.Select)
    return ir.replace(s, value=ir.replace(s.value, b=s.value.b.a))
