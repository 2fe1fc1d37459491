"""Converters of tensors that are made: ranges, filled ones, identities, scalars.

In: sizes and numbers. Out: nodes of ops/sources.py. Called by the importer. What torch leaves
uninitialised is zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import reshape
from ingot.frontends.torch.common import cast, filled
from ingot.frontends.torch.registry import Converter, Importer, Scalar, TorchNode, aten
from ingot.frontends.torch.terms import Term
from ingot.graph.ir import Value

MOST_CONSTANT = 4096  # numbers of a range of floats that becomes a constant; heuristic


@aten("aten.full.default", "aten.new_full.default", "aten.full_like.default", "aten.fill.Scalar",
      "aten.fill.Tensor")  # fmt: skip
def full(ctx: Importer, node: TorchNode, *args: Any, **options: Any) -> Value:
    """The last positional argument is the value."""
    return filled(ctx, args[-1], node.output.dtype, node.output.shape)


def filled_with(value: int) -> Converter:
    def convert(ctx: Importer, node: TorchNode, *args: Any, **options: Any) -> Value:
        return filled(ctx, value, node.output.dtype, node.output.shape)

    return convert


NAMES = (
    "empty.memory_format", "empty_like.default", "new_empty.default", "empty_strided.default",
    "new_empty_strided.default", "empty_permuted.default", "zeros.default", "zeros_like.default",
    "new_zeros.default", "zero.default",
)  # fmt: skip
aten(*(f"aten.{name}" for name in NAMES))(filled_with(0))
aten("prims.empty_strided.default")(filled_with(0))
aten("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")(filled_with(1))


@aten("aten.scalar_tensor.default", "prims.scalar_tensor.default")
def scalar_tensor(ctx: Importer, node: TorchNode, value: Scalar, **options: Any) -> Value:
    return ctx.scalar(value, node.output.dtype)


@aten("aten.arange.start_step", "aten.arange.start", "aten.arange.default")
def arange(ctx: Importer, node: TorchNode, *given: Scalar, **options: Any) -> Value:
    start, _, step = (0, *given, 1) if len(given) == 1 else (*given, 1)[:3]
    (size,) = node.output.shape
    return steps(ctx, start, step, size, node.output.dtype)


@aten("prims.iota.default")
def iota(
    ctx: Importer, node: TorchNode, length: arith.IntLike, *, start: Scalar, step: Scalar,
    **options: Any,
) -> Value:  # fmt: skip
    return steps(ctx, start, step, node.output.shape[0], node.output.dtype)


def steps(ctx: Importer, start: Scalar, step: Scalar, size: arith.Expr, dtype: DType) -> Value:
    """start + step · k; floats are computed in f64."""
    wide = dtypes.f64 if dtype.is_float else dtype
    count = arith.as_int(size)
    numbers = isinstance(start, int | float) and isinstance(step, int | float)
    if dtype.is_float and numbers and count is not None and count <= MOST_CONSTANT:
        return ctx.g.constant((start + step * np.arange(count)).astype(dtype.numpy))  # type: ignore
    k = positions(ctx, size, wide)
    if numbers and (start, step) == (0, 1):
        return cast(ctx, k, dtype)
    term = Term(ctx, k) * step + start if step != 1 else Term(ctx, k) + start
    return cast(ctx, term.value, dtype)


def positions(ctx: Importer, size: arith.Expr, dtype: DType = dtypes.i64) -> Value:
    """0, 1, … size - 1."""
    ends = [ctx.scalar(v, dtypes.i64) for v in (0, size, 1)]
    return cast(ctx, ctx.g.add("range", ends, size=size), dtype)


@aten("aten.linspace.default")
def linspace(
    ctx: Importer, node: TorchNode, start: Scalar, end: Scalar, count: arith.IntLike,
    **options: Any,
) -> Value:  # fmt: skip
    """From both ends, each half from its own."""
    dtype, (size,) = node.output.dtype, node.output.shape
    wide = dtypes.f64
    first, last = (Term(ctx, cast(ctx, ctx.scalar(v, wide), wide)) for v in (start, end))
    parts = Term(ctx, ctx.scalar(tidy_max(size - 1), wide))
    k = Term(ctx, positions(ctx, size, wide))
    step = (last - first) / parts
    from_end = last - step * (parts - k)
    is_early = k * 2 < parts
    made = ctx.g.add("where", [is_early.value, (first + step * k).value, from_end.value])
    if arith.is_const(size, 1):
        made = reshape(ctx, first.value, (1,))
    return cast(ctx, made, dtype)


def tidy_max(size: arith.Expr) -> arith.Expr:
    return arith.maximum(size, 1)


@aten("aten.eye.default", "aten.eye.m")
def eye(ctx: Importer, node: TorchNode, *sizes: arith.IntLike, **options: Any) -> Value:
    rows, columns = node.output.shape
    row = reshape(ctx, positions(ctx, rows), (rows, 1))
    same = ctx.g.add("eq", [row, positions(ctx, columns)])
    return cast(ctx, same, node.output.dtype)


@aten("aten._local_scalar_dense.default")
def item(ctx: Importer, node: TorchNode, x: Value) -> Any:
    """An integer that tracing knows not to be negative is a size; another number stays a tensor of
    rank 0."""
    is_whole = x.dtype.is_int and is_size(node)
    return ctx.size_of(x) if is_whole else reshape(ctx, x, ())


def is_size(node: TorchNode) -> bool:
    """Whether tracing knows the number not to be negative."""
    value: Any = node.fx.meta.get("val")
    ranges = value.node.shape_env.var_to_range if isinstance(value, torch.SymInt) else {}
    found = ranges.get(value.node.expr) if ranges else None
    return found is not None and bool(found.lower >= 0)
