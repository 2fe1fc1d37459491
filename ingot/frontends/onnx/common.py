"""Helpers of all converters: axes, sizes simplified with the symbols' ranges, reshapes and casts.

In: the importer and sizes. Out: values and sizes. Called by the converter modules.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplify
from ingot.dtypes import DType
from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.graph.ir import Value
from ingot.support.errors import IngotError

Dims = Sequence[arith.Expr]


def tidy(ctx: Importer, size: arith.IntLike) -> arith.Expr:
    """A size, simplified with the ranges of the symbols."""
    env = {s.name: Interval(s.low, s.high) for s in ctx.g.symbols.values()}
    return simplify(arith.wrap(size), env)


def bad_model(node: OnnxNode, what: str) -> IngotError:
    return IngotError("bad-model", what, where=node.where)


def axis_of(node: OnnxNode, axis: int, rank: int) -> int:
    """`axis` as a non-negative number; a bad-model error if it is out of range."""
    if not -rank <= axis < rank:
        raise bad_model(node, f"axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank


def axes_of(node: OnnxNode, axes: Sequence[int], rank: int) -> list[int]:
    found = [axis_of(node, int(axis), rank) for axis in axes]
    if len(set(found)) != len(found):
        raise bad_model(node, f"duplicate axis in axes {list(axes)}")
    return found


def known_ints(ctx: Importer, node: OnnxNode, index: int, what: str) -> list[int] | None:
    """An integer operand that must be constant; None if it is absent."""
    if ctx.optional(node, index) is None:
        return None
    array = ctx.known(node, index)
    if array is None:
        raise ctx.unsupported(node, f"{what} are computed at run time, not constant")
    return [int(v) for v in array.reshape(-1)]


def known_int(ctx: Importer, node: OnnxNode, index: int, what: str, default: int) -> int:
    found = known_ints(ctx, node, index, what)
    return default if not found else found[0]


def reshape(ctx: Importer, x: Value, shape: Sequence[arith.IntLike]) -> Value:
    """x reshaped; x itself if it already has the shape."""
    sizes = tuple(tidy(ctx, d) for d in shape)
    return x if sizes == x.shape else ctx.g.add("reshape", [x], shape=sizes)


def as_scalar(ctx: Importer, x: Value) -> Value:
    """A tensor of one element as a tensor of rank 0."""
    return reshape(ctx, x, ())


def cast(ctx: Importer, x: Value, to: DType) -> Value:
    return x if x.dtype is to else ctx.g.add("cast", [x], to=to, mode="saturate")


def scalar(ctx: Importer, value: float, dtype: DType) -> Value:
    """A constant of rank 0."""
    return ctx.g.constant(np.array(value).astype(dtype.numpy))


def indices(ctx: Importer, x: Value) -> Value:
    """Indices of any integer type, cast to one that the operators accept."""
    return x if x.dtype in (dtypes.i32, dtypes.i64) else cast(ctx, x, dtypes.i64)
