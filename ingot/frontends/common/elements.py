"""Helpers of all converters: sizes simplified with the symbols' ranges, reshapes, casts, scalars.

In: an importer's graph builder (`ctx.g`) and sizes. Out: values and sizes. Called by converters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.opdef import SizeMismatch
from ingot.ops.common import broadcast_shapes

Dims = Sequence[arith.Expr]


class HasBuilder(Protocol):
    """Any importer: it builds the graph `g`."""

    g: GraphBuilder


def tidy(ctx: HasBuilder, size: arith.IntLike) -> arith.Expr:
    """A size as it is known now: equal sizes unified, simplified with the symbols' ranges."""
    return ctx.g.simplified(arith.wrap(size))


def broadcast(ctx: HasBuilder, *shapes: Dims) -> tuple[arith.Expr, ...]:
    """The shape that all broadcast to."""
    while True:
        try:
            return broadcast_shapes(*[[tidy(ctx, d) for d in shape] for shape in shapes])
        except SizeMismatch as mismatch:
            ctx.g.unify(mismatch)


def reshape(ctx: HasBuilder, x: Value, shape: Sequence[arith.IntLike]) -> Value:
    """x reshaped; x itself if it already has the shape."""
    sizes = tuple(tidy(ctx, d) for d in shape)
    return x if sizes == x.shape else ctx.g.add("reshape", [x], shape=sizes)


def as_scalar(ctx: HasBuilder, x: Value) -> Value:
    """A tensor of one element as a tensor of rank 0."""
    return reshape(ctx, x, ())


def cast(ctx: HasBuilder, x: Value, to: DType) -> Value:
    return x if x.dtype is to else ctx.g.add("cast", [x], to=to, mode="saturate")


def scalar(ctx: HasBuilder, value: float, dtype: DType) -> Value:
    """A constant of rank 0."""
    return ctx.g.constant(np.array(value).astype(dtype.numpy))


def indices(ctx: HasBuilder, x: Value) -> Value:
    """Indices of any integer type, cast to one that the operators accept."""
    return x if x.dtype in (dtypes.i32, dtypes.i64) else cast(ctx, x, dtypes.i64)
