"""Reductions: sums, means, extrema and norms over axes. (argmax, cumsum, topk: ordered.py.)

In: a tensor, `axes` (any order, negative allowed) and `keepdims`. Out: the reduced tensor. Narrow
floats accumulate in f32; integers wrap in their own type. Called by graph, lower and front ends
through the operator table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import (
    floats,
    integers,
    narrow,
    normalize_axes,
    tensor_types,
    wide_dtype,
    widen,
    widen_array,
)

# --- helpers of all reductions --------------------------------------------------------------------


def reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> tuple[Dim, ...]:
    if keepdims:
        return tuple(arith.Const(1) if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def full_point(
    spatial: Sequence[arith.Expr], over: Sequence[arith.Expr], axes: Sequence[int], keepdims: bool
) -> tuple[arith.Expr, ...]:
    """The input point for an output point and a point of the reduced axes."""
    rank = len(axes) + len(spatial) - (len(axes) if keepdims else 0)
    inner = dict(zip(axes, over))
    outer = iter(spatial if not keepdims else [p for i, p in enumerate(spatial) if i not in inner])
    return tuple(inner[i] if i in inner else next(outer) for i in range(rank))


def may_be_empty(over: Sequence[Dim]) -> bool:
    return any((arith.as_int(d) or 0) <= 0 for d in over)


def guard_empty(b: Build, acc: Buffer, over: Sequence[Dim], start: Expr) -> Buffer:
    """A reduction over an empty axis never executes its block. Where that may happen, a last stage
    selects the start value instead of the uninitialised accumulator."""
    if not may_be_empty(over):
        return acc
    some = ir.Compare("gt", ir.Index(arith.product(list(over))), ir.Lit(0, dtypes.i64))
    return b.compute(acc.name, acc.shape, lambda *p: ir.Select(some, acc[p], start))


def reduce_over(
    b: Build, name: str, shape: Sequence[Dim], over: Sequence[Dim], op: str, fn, start: Expr
) -> Buffer:
    """`b.reduce`, correct for empty reductions too."""
    return guard_empty(b, b.reduce(name, shape, over, op, fn, init=start), over, start)


def as_value(size: arith.Expr, dtype: DType) -> Expr:
    """A size as a value of type `dtype`."""
    number = arith.as_int(size)
    return ir.value_of(number, dtype) if number is not None else ir.Cast(ir.Index(size), dtype)


def check_floats(op: str, x: TensorType) -> None:
    if not x.dtype.is_float:
        raise type_error(op, f"element type {x.dtype} is not a float", "cast to f32 first")


class Reduction(OpDef):
    """finish(combine over axes of element(x)): a subclass gives these and a numpy reference."""

    keeps_axes = True
    kind = Kind.REDUCTION
    family = "reduce"
    combine = "add"
    floats_only = False

    def element(self, x: Expr) -> Expr:
        return x

    def finish(self, acc: Expr, count: arith.Expr) -> Expr:
        return acc

    def numpy(self, x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
        raise NotImplementedError(self.name)

    def axes_of(self, attrs: Attrs, rank: int) -> tuple[int, ...]:
        return tuple(sorted(normalize_axes(self.name, attrs["axes"], rank)))

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = tensor_types(self.name, inputs, 1)
        if self.floats_only:
            check_floats(self.name, x)
        elif x.dtype.is_bool and self.combine not in ("max", "min"):
            raise type_error(self.name, "bool is not supported", "cast to an integer first")
        axes = self.axes_of(attrs, x.rank)
        return [TensorType(x.dtype, reduced_shape(x.shape, axes, attrs.get("keepdims", True)))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        (x,) = tensor_types(self.name, inputs, 1)
        return attrs if 0 not in self.axes_of(attrs, x.rank) else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = inputs[0]
        assert x is not None
        axes, keepdims = self.axes_of(attrs, x.ndim), bool(attrs.get("keepdims", True))
        with np.errstate(all="ignore"):
            result = self.numpy(widen_array(x), axes, keepdims)
        return [np.asarray(result).astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x = inputs[0]
        assert x is not None
        axes, keepdims = self.axes_of(attrs, x.rank), bool(attrs.get("keepdims", True))
        over, shape = [x.shape[a] for a in axes], outputs[0].shape
        acc = self.accumulate(b, x, shape, over, axes, keepdims)
        count = arith.product(tuple(over))
        value = self.finish(acc[tuple(arith.Const(0) for _ in shape)], count)
        if value == acc[tuple(arith.Const(0) for _ in shape)] and acc.dtype is x.dtype:
            return [acc]
        return [b.compute("out", shape, lambda *p: narrow(self.finish(acc[p], count), x.dtype))]

    def accumulate(
        self,
        b: Build,
        x: Buffer,
        shape: Sequence[Dim],
        over: Sequence[Dim],
        axes: tuple[int, ...],
        keepdims: bool,
    ) -> Buffer:
        def element(*point: arith.Expr) -> Expr:
            spatial, inner = point[: len(shape)], point[len(shape) :]
            return self.element(widen(x[full_point(spatial, inner, axes, keepdims)]))

        op = _logical(self.combine) if x.dtype.is_bool else self.combine
        start = identity(op, wide_dtype(x.dtype))
        return reduce_over(b, "acc", shape, over, op, element, start)

    def samples(self) -> list[Sample]:
        cases: list[tuple[np.ndarray, tuple[int, ...], bool]] = [
            (floats(3, 5, 7), (1,), True),
            (floats(3, 5, 7), (-1,), False),
            (floats(3, 5, 7, dtype=dtypes.f16), (0, 2), False),
            (floats(2, 19, dtype=dtypes.bf16), (1,), True),
            (floats(2, 3, 1, 4), (3, 2, 0), False),
            (floats(17), (0,), False),
            (floats(2, 3), (), True),
            (floats(2, 5, dtype=dtypes.f64), (0, 1), False),
            (floats(4, 0), (1,), False),
        ]
        if not self.floats_only:
            cases += [(integers(3, 4, low=1), (1,), True)]
            cases += [(integers(3, 4, dtype=dtypes.i32, low=1), (0, 1), False)]
        return [self.sample(x, axes, keepdims) for x, axes, keepdims in cases]

    def sample(self, x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> Sample:
        loose = 1e-2 if x.dtype.itemsize == 2 else 1e-5
        return Sample((x,), {"axes": axes, "keepdims": keepdims}, rtol=loose, atol=loose / 10)


def _logical(combine: str) -> str:
    return {"max": "or", "min": "and"}[combine]


# --- the operators --------------------------------------------------------------------------------


@register
class ReduceSum(Reduction):
    name = "reduce_sum"

    def numpy(self, x, axes, keepdims):
        return np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


@register
class ReduceMean(Reduction):
    """Integer division truncates; the mean of an empty axis is NaN (0 for integers)."""

    name = "reduce_mean"

    def finish(self, acc: Expr, count: arith.Expr) -> Expr:
        safe = count if acc.dtype.is_float else arith.maximum(count, 1)
        return acc / as_value(safe, acc.dtype)

    def numpy(self, x, axes, keepdims):
        count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
        total = np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype)
        if np.issubdtype(x.dtype, np.integer):
            exact = np.abs(total) // max(count, 1)
            return np.where(total < 0, -exact, exact)
        return np.true_divide(total, x.dtype.type(count))


class Extremum(Reduction):
    def samples(self) -> list[Sample]:
        nan_row = np.array([[1, np.nan, 3], [np.inf, 2, -np.inf], [-0.0, -1, -2]], np.float32)
        flags = np.array([[True, False], [False, False], [True, True]])
        low = np.full((2, 3), -np.inf, np.float32)
        more = [self.sample(x, (1,), False) for x in (nan_row, flags, low, -low)]
        more.append(self.sample(integers(4, 6, dtype=dtypes.u8, high=255), (0,), True))
        more.append(self.sample(integers(4, 6, dtype=dtypes.i8, low=-128, high=127), (1,), True))
        return super().samples() + more


@register
class ReduceMax(Extremum):
    """NaN propagates. The maximum of an empty axis is the type's lowest value."""

    name = "reduce_max"
    combine = "max"

    def numpy(self, x, axes, keepdims):
        start = x.dtype.type(dtypes.from_numpy(x.dtype).lowest)
        return np.maximum.reduce(x, axis=axes, keepdims=keepdims, initial=start)


@register
class ReduceMin(Extremum):
    name = "reduce_min"
    combine = "min"

    def numpy(self, x, axes, keepdims):
        start = x.dtype.type(dtypes.from_numpy(x.dtype).highest)
        return np.minimum.reduce(x, axis=axes, keepdims=keepdims, initial=start)


@register
class ReduceProd(Reduction):
    name = "reduce_prod"
    combine = "mul"

    def numpy(self, x, axes, keepdims):
        return np.multiply.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype)


@register
class ReduceL1(Reduction):
    name = "reduce_l1"

    def element(self, x: Expr) -> Expr:
        return ir.Unary("abs", x) if x.dtype.is_signed else x

    def numpy(self, x, axes, keepdims):
        return np.add.reduce(np.abs(x), axis=axes, keepdims=keepdims, dtype=x.dtype)


@register
class ReduceSumSquare(Reduction):
    name = "reduce_sum_square"

    def element(self, x: Expr) -> Expr:
        return x * x

    def numpy(self, x, axes, keepdims):
        return np.add.reduce(x * x, axis=axes, keepdims=keepdims, dtype=x.dtype)


@register
class ReduceL2(ReduceSumSquare):
    name = "reduce_l2"
    floats_only = True

    def finish(self, acc: Expr, count: arith.Expr) -> Expr:
        return ir.Unary("sqrt", acc)

    def numpy(self, x, axes, keepdims):
        return np.sqrt(super().numpy(x, axes, keepdims))


@register
class ReduceLogSum(Reduction):
    name = "reduce_log_sum"
    floats_only = True

    def finish(self, acc: Expr, count: arith.Expr) -> Expr:
        return ir.Math("log", (acc,))

    def numpy(self, x, axes, keepdims):
        return np.log(np.add.reduce(x, axis=axes, keepdims=keepdims, dtype=x.dtype))

    def sample(self, x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> Sample:
        return super().sample(np.abs(x) + np.asarray(0.25, x.dtype), axes, keepdims)


@register
class ReduceLogSumExp(Reduction):
    """log Σ exp(x), with the maximum subtracted first to avoid overflow. An infinite or NaN
    maximum is not subtracted: the sum is then inf, 0 or NaN as it should be."""

    name = "reduce_log_sum_exp"
    floats_only = True

    def numpy(self, x, axes, keepdims):
        start = x.dtype.type(-np.inf)
        top = np.maximum.reduce(x, axis=axes, keepdims=True, initial=start)
        top = np.where(np.isfinite(top), top, np.zeros_like(top))
        total = np.log(np.add.reduce(np.exp(x - top), axis=axes, keepdims=True)) + top
        return total if keepdims else np.squeeze(total, axis=axes)

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x = inputs[0]
        assert x is not None
        axes, keepdims = self.axes_of(attrs, x.rank), bool(attrs.get("keepdims", True))
        over, shape = [x.shape[a] for a in axes], outputs[0].shape
        wide = wide_dtype(x.dtype)
        zero, rank = ir.value_of(0.0, wide), len(shape)

        def read(*point: arith.Expr) -> Expr:
            return widen(x[full_point(point[:rank], point[rank:], axes, keepdims)])

        top = reduce_over(b, "top", shape, over, "max", read, identity("max", wide))
        base = b.compute("base", shape, lambda *p: ir.Select(_is_finite(top[p]), top[p], zero))
        total = reduce_over(
            b, "total", shape, over, "add",
            lambda *p: ir.Math("exp", (read(*p) - base[p[:rank]],)), zero,
        )  # fmt: skip
        return [
            b.compute(
                "out", shape, lambda *p: narrow(ir.Math("log", (total[p],)) + base[p], x.dtype)
            )
        ]

    def samples(self) -> list[Sample]:
        rows = np.array([[-np.inf, -np.inf], [np.inf, 1], [np.nan, 1], [500, 501]], np.float32)
        return [*super().samples(), self.sample(rows, (1,), False)]


def _is_finite(x: Expr) -> Expr:
    return ir.Compare("lt", ir.Unary("abs", x), ir.Lit(float("inf"), x.dtype))
