"""Helpers of all converters: element types, type promotion, axes. In: the importer and operands."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith.expr import Expr
from ingot.dtypes import DType
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode
from ingot.graph.ir import Value


def cast(ctx: Importer, x: Value, to: DType) -> Value:
    """x converted as PyTorch converts: floats are truncated towards zero, integers wrap."""
    return x if x.dtype is to else ctx.g.add("cast", [x], to=to, mode="wrap")


def promoted(ctx: Importer, x: Scalar, to: DType) -> Value:
    """A tensor, number or size as a value of the type that the operator computes in."""
    return cast(ctx, x, to) if isinstance(x, Value) else ctx.scalar(x, to)


def promote(ctx: Importer, node: TorchNode, *operands: Scalar) -> list[Value]:
    """Operands in the type of the node's result, which tracing has promoted."""
    return [promoted(ctx, x, node.output.dtype) for x in operands]


def axis_of(axis: int, rank: int) -> int:
    """A non-negative axis; one of a scalar, which PyTorch counts as rank 1, is 0."""
    return axis % max(rank, 1)


def sizes(values: Sequence[int | Expr]) -> tuple[int | Expr, ...]:
    return tuple(values)
