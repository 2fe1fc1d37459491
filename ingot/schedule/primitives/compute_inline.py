"""compute_inline: inline a block's expression into its consumers; block and buffer disappear.

    Y[i] = X[i] * 2;  Z[i] = Y[i] + 1   →   Z[i] = X[i] * 2 + 1

Legal for an intermediate written by one plain store, indexed by its own spatial axes, whose inputs
are not overwritten later, and of which only elements that the block writes are read. A guarded load
becomes a Select, and the guard is added to every load of the expression, so that no new memory is
accessed.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Expr, Kernel, Stmt
from ingot.schedule import access, checks, guards, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if, with_body
from ingot.schedule.primitives.recheck import recheck
from ingot.support.stack import segmented

DIVISIONS = ("div", "floordiv", "mod", "rem")


def compute_inline(kernel: Kernel, block: Block) -> Result:
    what = f"compute_inline({block.name})"
    raise_if(kernel, block, what, checks.only_writer(kernel, block) or _not_inlinable(block))
    raise_if(kernel, block, what, checks.inputs_unchanged(kernel, block))
    raise_if(kernel, block, what, _read_beyond(kernel, block))
    store = block.body
    assert isinstance(store, ir.Store)
    without = put(kernel, tree.own_nest(kernel.body, block), None)

    def on_expr(e: Expr) -> Expr:
        if isinstance(e, ir.Load) and e.buffer.name == store.buffer.name:
            return _inlined_value(e, store)
        return e

    new = with_body(kernel, tree.drop_unused_allocs(_map_readers(without.body, store, on_expr)))
    recheck(kernel, new, what)
    return new, []


@segmented
def _map_readers(s: Stmt, store: ir.Store, on_expr: visit.ExprFn) -> Stmt:
    """Rewrite values in all blocks that read the stored buffer."""
    if isinstance(s, Block) and store.buffer.name not in visit.read(s):
        return s
    return visit.rebuild_stmt(
        s,
        lambda x: _map_readers(x, store, on_expr),
        lambda e: visit.map_expr(e, on_expr),
        lambda i: visit.map_index(i, on_expr),
    )


def _not_inlinable(block: Block) -> Problem | None:
    store = block.body
    if not isinstance(store, ir.Store) or block.init is not None or store.mask is not None:
        return Problem("its body is not one plain store", "compute_at moves any block")
    if any(axis.kind is not AxisKind.SPATIAL for axis in block.axes):
        kind = next(a for a in block.axes if a.kind is not AxisKind.SPATIAL)
        return Problem(f"its axis {kind.var} is {kind.kind.value}", "compute_at moves any block")
    if guards.extra(block):
        return Problem("a guard skips some of its instances", "inline it before splitting it")
    axes = [arith.Var(axis.var) for axis in block.axes]
    if len(axes) != len(store.indices) or set(axes) != set(store.indices):
        return Problem(
            "its store is not indexed by exactly its own axes", "compute_at moves any block"
        )
    if any(isinstance(e, ir.Ref) for e in visit.walk_exprs(store.value)):
        return Problem("its expression uses a Let outside it", "compute_at moves any block")
    if any(a.buffer.name == store.buffer.name for a in access.reads(block)):
        return Problem("it reads its own output", "leave it where it is")
    return None


def _read_beyond(kernel: Kernel, block: Block) -> Problem | None:
    """A padded reader may read any value beyond the domain; an inlined expression would load its
    inputs out of range there."""
    store = block.body
    assert isinstance(store, ir.Store)
    name, extents = store.buffer.name, {a.var: a.extent for a in block.axes}
    made = [extents[i.name] for i in store.indices if isinstance(i, arith.Var)]
    if all(map(Analyzer(kernel).equal, made, store.buffer.shape)):
        return None
    for reader in dependences.readers(kernel.body, name):
        loops = [ir.serial(a.var, a.extent, ir.Seq(())) for a in reader.axes]
        analyzer = Analyzer(kernel, loops)
        for load in visit.loads(reader):
            if load.buffer.name == name and not _is_inside(load, made, analyzer):
                why = f"block {reader.name} is not proved to read only written elements of {name}"
                return Problem(why, "inline it before padding its readers")
    return None


def _is_inside(load: ir.Load, made: list[arith.Expr], analyzer: Analyzer) -> bool:
    return all(analyzer.at_most(i + 1, n) for i, n in zip(load.indices, made))


def _inlined_value(load: ir.Load, store: ir.Store) -> Expr:
    """The stored value at the indices of the load."""
    env = {i.name: e for i, e in zip(store.indices, load.indices) if isinstance(i, arith.Var)}
    value = visit.substitute(store.value, env)
    if load.mask is None:
        return value
    assert load.other is not None, "a guarded load has an `other`"
    return ir.Select(load.mask, guarded_value(value, load.mask), load.other)


def guarded_value(value: Expr, mask: Expr) -> Expr:
    """`value` without memory accesses and divisions by zero where the mask is false."""

    def on_expr(e: Expr) -> Expr:
        match e:
            case ir.Load(mask=None):
                return ir.replace(e, mask=mask, other=ir.value_of(0, e.dtype))
            case ir.Load(mask=own) if own is not None:
                return ir.replace(e, mask=ir.Binary("and", mask, own))
            case ir.Binary(op=op, b=divisor) if op in DIVISIONS and not e.dtype.is_float:
                if isinstance(divisor, ir.Lit):
                    return e
                one = ir.value_of(1, divisor.dtype)
                return ir.replace(e, b=ir.Select(mask, divisor, one))
        return e

    assert mask.dtype is dtypes.bool_
    return visit.map_expr(value, on_expr)
