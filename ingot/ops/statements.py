"""Statements of operators that are algorithms and not formulas: mutable scalars, loops, lets.

In: a `Build` and expressions. Out: loop statements for the body of one block. Called by operators
that sort, select or factorise (ops/topk.py, ops/sorting.py, ops/linalg.py, ops/dft.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, IndexLike, Stmt


class Scalar:
    """A mutable scalar of one block. It is a buffer of one element, which LLVM keeps in a
    register."""

    def __init__(self, b: Build, name: str, dtype: DType = dtypes.i64):
        self.buffer = Buffer(b.fresh(name), dtype, (arith.Const(1),), ir.THREAD)

    @property
    def value(self) -> Expr:
        return self.buffer[0]

    @property
    def index(self) -> arith.Expr:
        """The value (i64) as an index."""
        return ir.index_of(self.value)

    def set(self, value: Expr | int) -> Stmt:
        made = ir.value_of(value, self.buffer.dtype) if isinstance(value, int | float) else value
        return ir.Store(self.buffer, (arith.Const(0),), made)


def with_scalars(scalars: Sequence[Scalar], *stmts: Stmt) -> Stmt:
    """The statements, in which the scalars exist."""
    body = ir.seq(*stmts)
    for scalar in reversed(scalars):
        body = ir.Alloc(scalar.buffer, body)
    return body


def loop(
    b: Build, stop: IndexLike, body: Callable[[arith.Expr], Stmt], start: IndexLike = 0
) -> Stmt:
    """for i in start … stop-1: body(i)"""
    var = b.fresh("s")
    return ir.For(var, ir.index_of(start), ir.index_of(stop), body(arith.Var(var)))


def let(b: Build, value: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    """The value, evaluated once."""
    name = b.fresh("t")
    return ir.Let(name, value, body(ir.Ref(name, value.dtype)))


def number(value: int) -> Expr:
    return ir.Lit(value, dtypes.i64)


def compare(op: str, a: IndexLike, b: IndexLike) -> Expr:
    """A comparison of two indices."""
    return ir.Compare(op, ir.Index(ir.index_of(a)), ir.Index(ir.index_of(b)))
