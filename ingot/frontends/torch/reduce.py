"""Converters of reductions: sums, means, extrema, norms, variances.

In: a tensor, axes (none: all), keepdim. Out: nodes of ops/reduce.py and ops/ordered.py. Called by
the importer. Prefixes and sorting are in ordered.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import reshape
from ingot.frontends.torch.common import axes_of, axis_of, cast, widened
from ingot.frontends.torch.registry import Converter, Importer, TorchNode, aten
from ingot.frontends.torch.terms import Term, where
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

Axes = int | Sequence[int] | None


def reduced(ctx: Importer, op: str, x: Value, dims: Axes, keepdim: bool = False) -> Value:
    axes = axes_of(dims, x.tensor.rank)
    return ctx.g.add(op, [x], axes=axes, keepdims=keepdim) if x.tensor.rank else x


@aten("aten.sum.dim_IntList", "aten.sum.default")
def total(
    ctx: Importer, node: TorchNode, x: Value, dim: Axes = None, keepdim: bool = False,
    dtype: Any = None,
) -> Value:  # fmt: skip
    return reduced(ctx, "reduce_sum", cast(ctx, x, node.output.dtype), dim, keepdim)


@aten("aten.mean.dim", "aten.mean.default")
def mean(
    ctx: Importer, node: TorchNode, x: Value, dim: Axes = None, keepdim: bool = False,
    dtype: Any = None,
) -> Value:  # fmt: skip
    return reduced(ctx, "reduce_mean", cast(ctx, x, node.output.dtype), dim, keepdim)


@aten("aten.prod.dim_int", "aten.prod.default")
def prod(
    ctx: Importer, node: TorchNode, x: Value, dim: int | None = None, keepdim: bool = False,
    dtype: Any = None,
) -> Value:  # fmt: skip
    return reduced(ctx, "reduce_prod", cast(ctx, x, node.output.dtype), dim, keepdim)


def extreme(op: str) -> Converter:
    def convert(
        ctx: Importer, node: TorchNode, x: Value, dim: Axes = None, keepdim: bool = False
    ) -> Value:
        return reduced(ctx, op, x, dim, keepdim)

    return convert


for name, op in (("max", "reduce_max"), ("min", "reduce_min")):
    aten(f"aten.a{name}.default", f"aten.{name}.default")(extreme(op))


def extreme_with_index(reduce: str, index: str) -> Converter:
    def convert(
        ctx: Importer, node: TorchNode, x: Value, dim: int, keepdim: bool = False
    ) -> tuple[Value, Value]:
        values = reduced(ctx, reduce, x, dim, keepdim)
        return values, indexed(ctx, index, x, dim, keepdim)

    return convert


def indexed(ctx: Importer, op: str, x: Value, dim: int | None, keepdim: bool) -> Value:
    """The first index of the extreme, of all elements if there is no axis."""
    rank = x.tensor.rank
    x = cast(ctx, x, dtypes.u8) if x.dtype.is_bool else x
    if not rank or dim is None:
        flat = reshape(ctx, x, (x.tensor.numel,))
        found = ctx.g.add(op, [flat], axis=0, keepdims=False, select_last=False)
        return reshape(ctx, found, (1,) * rank) if keepdim else found
    return ctx.g.add(op, [x], axis=axis_of(dim, rank), keepdims=keepdim, select_last=False)


aten("aten.max.dim")(extreme_with_index("reduce_max", "argmax"))
aten("aten.min.dim")(extreme_with_index("reduce_min", "argmin"))


def arg_extreme(op: str) -> Converter:
    def convert(
        ctx: Importer, node: TorchNode, x: Value, dim: int | None = None, keepdim: bool = False
    ) -> Value:
        return indexed(ctx, op, x, dim, keepdim)

    return convert


for op in ("argmax", "argmin"):
    aten(f"aten.{op}.default")(arg_extreme(op))


@aten("aten.aminmax.default")
def aminmax(
    ctx: Importer, node: TorchNode, x: Value, dim: int | None = None, keepdim: bool = False
) -> tuple[Value, ...]:
    return tuple(reduced(ctx, op, x, dim, keepdim) for op in ("reduce_min", "reduce_max"))


def logical(op: str) -> Converter:
    """any and all: the largest or the smallest truth value."""

    def convert(
        ctx: Importer, node: TorchNode, x: Value, dim: Axes = None, keepdim: bool = False
    ) -> Value:
        if dim is not None and not isinstance(dim, int) and not len(dim) and x.tensor.rank:
            return cast(ctx, cast(ctx, x, dtypes.bool_), node.output.dtype)  # no axis at all
        found = reduced(ctx, op, cast(ctx, x, dtypes.bool_), dim, keepdim)
        return cast(ctx, found, node.output.dtype)

    return convert


for name, op in (("any", "reduce_max"), ("all", "reduce_min")):
    aten(f"aten.{name}.default", f"aten.{name}.dim", f"aten.{name}.dims")(logical(op))


@aten("aten.count_nonzero.dim_IntList", "aten.count_nonzero.default")
def count_nonzero(ctx: Importer, node: TorchNode, x: Value, dim: Axes = None) -> Value:
    flags = cast(ctx, cast(ctx, x, dtypes.bool_), dtypes.i64)
    return reduced(ctx, "reduce_sum", flags, dim)


@aten("aten.logsumexp.default")
def logsumexp(ctx: Importer, node: TorchNode, x: Value, dim: Axes, keepdim: bool = False) -> Value:
    return reduced(ctx, "reduce_log_sum_exp", cast(ctx, x, node.output.dtype), dim, keepdim)


# --- variance -----------------------------------------------------------------------------------


def variance(
    ctx: Importer, x: Value, dims: Axes, correction: Any, keepdim: bool
) -> tuple[Value, Value]:
    """The variance and the mean, of f32 or wider; two passes."""
    g, axes = ctx.g, axes_of(dims, x.tensor.rank)
    if not axes:  # of a scalar
        zero = Term(ctx, x) * 0
        return (zero / zero if correction else zero).value, x
    centre = g.add("reduce_mean", [x], axes=axes, keepdims=True)
    gap = g.add("sub", [x, centre])
    count = arith.product([x.shape[a] for a in axes])
    squares = g.add("reduce_sum", [g.add("mul", [gap, gap])], axes=axes, keepdims=keepdim)
    divisor = divisor_of(ctx, count, correction, x.dtype)
    shape = squares.shape
    return g.add("div", [squares, divisor]), reshape(ctx, centre, shape)


def divisor_of(ctx: Importer, count: arith.Expr, correction: Any, dtype: DType) -> Value:
    number = arith.as_int(count)
    if number is not None:
        return ctx.scalar(max(number - correction, 0), dtype)
    left = Term(ctx, ctx.scalar(count, dtype)) - float(correction)
    return where(left < 0, left * 0, left).value


def corrected(unbiased: bool | None, correction: Any) -> Any:
    if correction is not None:
        return correction
    return 0 if unbiased is False else 1


def spread(is_root: bool, with_mean: bool) -> Converter:
    def convert(
        ctx: Importer, node: TorchNode, x: Value, *given: Any, correction: Any = None,
        keepdim: bool = False, **options: Any,
    ) -> Any:  # fmt: skip
        dims, unbiased, keepdim = arguments(given, keepdim)
        wide = widened(ctx, x)
        var, centre = variance(ctx, wide, dims, corrected(unbiased, correction), keepdim)
        made = ctx.g.add("sqrt", [var]) if is_root else var
        made = cast(ctx, made, node.output.dtype)
        return (made, cast(ctx, centre, node.output.dtype)) if with_mean else made

    return convert


def arguments(given: tuple, keepdim: bool) -> tuple[Axes, bool | None, bool]:
    """(unbiased), (dim), or (dim, unbiased, keepdim)."""
    if len(given) == 1 and isinstance(given[0], bool):
        return None, given[0], keepdim
    dims = given[0] if given else None
    return dims, given[1] if len(given) > 1 else None, given[2] if len(given) > 2 else keepdim


for name, flags in {
    "var": (False, False), "std": (True, False), "var_mean": (False, True), "std_mean": (True, True)
}.items():  # fmt: skip
    overloads = ("default", "dim", "correction")
    aten(*(f"aten.{name}.{overload}" for overload in overloads))(spread(*flags))


# --- norms --------------------------------------------------------------------------------------


@aten("aten.linalg_vector_norm.default")
def vector_norm(
    ctx: Importer, node: TorchNode, x: Value, order: float = 2, dim: Axes = None,
    keepdim: bool = False, dtype: Any = None,
) -> Value:  # fmt: skip
    wide = cast(ctx, x, wide_dtype(node.output.dtype))
    return cast(ctx, norm_of(ctx, wide, float(order), dim, keepdim), node.output.dtype)


def norm_of(ctx: Importer, x: Value, order: float, dim: Axes, keepdim: bool) -> Value:
    size = Term(ctx, ctx.g.add("abs", [x]))
    if order == 0:
        flags = size.differs(0).to(x.dtype)
        return reduced(ctx, "reduce_sum", flags.value, dim, keepdim)
    if math.isinf(order):
        return reduced(ctx, "reduce_max" if order > 0 else "reduce_min", size.value, dim, keepdim)
    if order in (1, 2):
        op = f"reduce_l{int(order)}"
        return reduced(ctx, op, x, dim, keepdim) if x.tensor.rank else size.value
    powers = reduced(ctx, "reduce_sum", size.op("pow", order).value, dim, keepdim)
    return Term(ctx, powers).op("pow", 1 / order).value


@aten("aten.norm.ScalarOpt_dim", "aten.norm.ScalarOpt_dim_dtype")
def norm_dim(
    ctx: Importer, node: TorchNode, x: Value, order: float | None, dim: Axes,
    keepdim: bool = False, dtype: Any = None,
) -> Value:  # fmt: skip
    return vector_norm(ctx, node, x, 2 if order is None else order, dim, keepdim)


@aten("aten.norm.Scalar")
def norm_all(ctx: Importer, node: TorchNode, x: Value, order: float = 2) -> Value:
    return vector_norm(ctx, node, x, order)
