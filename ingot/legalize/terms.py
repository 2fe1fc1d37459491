"""Small queries on statements and values that several passes use. Pure functions."""

from __future__ import annotations

from functools import lru_cache

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir, visit

TRUE = ir.Lit(True, dtypes.bool_)
EMPTY = ir.Seq(())


@lru_cache(maxsize=1 << 16)
def index_vars(i: arith.Expr) -> frozenset[str]:
    """Loop variables and sizes that an index uses, also inside its opaque values."""
    return frozenset(visit.index_vars(i))


@lru_cache(maxsize=1 << 16)
def value_vars(e: ir.Expr) -> frozenset[str]:
    """Loop variables and sizes that a value uses."""
    return frozenset(visit.value_vars(e))


def stmt_vars(s: ir.Stmt) -> set[str]:
    """Loop variables and sizes that a statement uses, its own loop variables included."""
    found: set[str] = set()

    def expr(e: ir.Expr) -> ir.Expr:
        found.update(value_vars(e))
        return e

    def index(i: arith.Expr) -> arith.Expr:
        found.update(index_vars(i))
        return i

    for each in visit.walk_stmts(s):
        visit.rebuild_stmt(each, lambda x: x, expr, index)
    return found


@lru_cache(maxsize=1 << 16)
def has_load(e: ir.Expr) -> bool:
    return any(isinstance(x, ir.Load) for x in visit.walk_exprs(e))


@lru_cache(maxsize=1 << 16)
def refs(e: ir.Expr) -> frozenset[str]:
    """Names of the Lets that a value uses."""
    return frozenset(x.name for x in visit.walk_exprs(e) if isinstance(x, ir.Ref))


def guarded(cond: ir.Expr | None, body: ir.Stmt) -> ir.Stmt:
    return body if cond is None else ir.If(cond, body)


def is_empty(s: ir.Stmt) -> bool:
    return isinstance(s, ir.Seq) and not s.stmts


def accessed(s: ir.Stmt) -> set[str]:
    """Names of buffers read or written anywhere in `s`."""
    return visit.read(s) | visit.written(s)


def broadcast(e: ir.Expr, lanes: int) -> ir.Expr:
    return e if e.lanes == lanes else ir.Broadcast(e, lanes)


def extract(e: ir.Expr, lane: int) -> ir.Expr:
    """One lane of a vector, as a scalar."""
    match e:
        case ir.Broadcast(a=a):
            return a
        case ir.Lanes(items=items):
            return items[lane]
        case ir.Ramp(base=base, stride=stride):
            return ir.Index(base + stride * lane)
    return e if e.lanes == 1 else ir.Shuffle(e, e, (lane,))
