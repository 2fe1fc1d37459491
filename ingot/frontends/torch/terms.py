"""Formulas on graph values: `Term` has the arithmetic operators of Python.

    @formula("aten.hypot.default")
    def hypot(a: Term, b: Term) -> Term:
        return (a * a + b * b).op("sqrt")

In: the operands of an element-wise operator. Out: nodes that compute it, in the result's element
type, or f32 where that is narrower, and rounded once. Called by the converters of element-wise
operators, activations, normalisations and losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ingot import dtypes
from ingot.arith.expr import Expr
from ingot.dtypes import DType
from ingot.frontends.torch.common import cast, common_dtype, promoted
from ingot.frontends.torch.registry import DROPPED, Importer, Scalar, TorchNode, aten
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype


@dataclass(frozen=True, eq=False)
class Term:
    """A value of the graph; Python numbers become constants of its element type."""

    ctx: Importer
    value: Value

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    def lifted(self, other: Term | Scalar) -> Term:
        if isinstance(other, Term):
            return other
        return Term(self.ctx, promoted(self.ctx, other, self.dtype))

    def op(self, name: str, *others: Term | Scalar, **attrs: Any) -> Term:
        """The node `name` of this and other operands."""
        values = [self.value, *(self.lifted(o).value for o in others)]
        return Term(self.ctx, self.ctx.g.add(name, values, **attrs))

    def to(self, dtype: DType) -> Term:
        return Term(self.ctx, cast(self.ctx, self.value, dtype))

    def __add__(self, other: Term | Scalar) -> Term:
        return self.op("add", other)

    def __sub__(self, other: Term | Scalar) -> Term:
        return self.op("sub", other)

    def __mul__(self, other: Term | Scalar) -> Term:
        return self.op("mul", other)

    def __truediv__(self, other: Term | Scalar) -> Term:
        return self.op("div", other)

    def __rsub__(self, other: Scalar) -> Term:
        return self.lifted(other) - self

    def __rtruediv__(self, other: Scalar) -> Term:
        return self.lifted(other) / self

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Term:
        return self.op("neg")

    def __abs__(self) -> Term:
        return self.op("abs")

    def __lt__(self, other: Term | Scalar) -> Term:
        return self.op("lt", other)

    def __le__(self, other: Term | Scalar) -> Term:
        return self.op("le", other)

    def __gt__(self, other: Term | Scalar) -> Term:
        return self.op("gt", other)

    def __ge__(self, other: Term | Scalar) -> Term:
        return self.op("ge", other)

    def equals(self, other: Term | Scalar) -> Term:
        return self.op("eq", other)

    def differs(self, other: Term | Scalar) -> Term:
        return ~self.op("eq", other)

    def __and__(self, other: Term) -> Term:
        return self.op("and", other)

    def __or__(self, other: Term) -> Term:
        return self.op("or", other)

    def __xor__(self, other: Term) -> Term:
        return self.op("xor", other)

    def __invert__(self) -> Term:
        return self.op("not" if self.dtype.is_bool else "bitwise_not")


def where(condition: Term, a: Term | Scalar, b: Term | Scalar) -> Term:
    """a where the condition holds, else b; one of the two is a term."""
    like = a if isinstance(a, Term) else b
    assert isinstance(like, Term), "a choice of two numbers has no element type"
    chosen = [condition.value, like.lifted(a).value, like.lifted(b).value]
    return Term(like.ctx, like.ctx.g.add("where", chosen))


def formula(*names: str, common: bool = False) -> Callable[[Callable], Callable]:
    """Register a converter of an element-wise operator: its tensors and sizes are terms of the type
    in which torch computes, that of the result, or of the operands if `common`. Other arguments
    are as they are."""

    def register(fn: Callable[..., Term]) -> Callable[..., Term]:
        def convert(ctx: Importer, node: TorchNode, *args: Any, **kwargs: Any) -> Value:
            values = [x for x in (*args, *kwargs.values()) if isinstance(x, Value)]
            shared = [x for x in args if is_operand(x)]
            dtype = wide_dtype(common_dtype(*shared) if common else node.output.dtype)
            terms = {x.name: Term(ctx, cast(ctx, x, dtype)) for x in values}

            def term(x: Any) -> Any:
                if isinstance(x, Value):
                    return terms[x.name]
                return Term(ctx, ctx.scalar(x, dtype)) if isinstance(x, Expr) else x

            named = {name: term(x) for name, x in kwargs.items() if name not in DROPPED}
            made = fn(*map(term, args), **named)
            return cast(ctx, made.value, node.output.dtype)

        aten(*names)(convert)
        return fn

    return register


def is_operand(x: Any) -> bool:
    return isinstance(x, Value | int | float | bool | Expr)


def is_float(x: Term) -> bool:
    return x.dtype.is_float


def truth(x: Term) -> Term:
    return x.to(dtypes.bool_)
