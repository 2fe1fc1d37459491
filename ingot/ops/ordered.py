"""Order-dependent reductions: argmax, argmin, cumsum and cumprod (prefixes). topk is in topk.py.

In: a tensor and `axis`. Out: indices (i64), or prefixes.
Called by graph, lower and front ends through the operator table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity, nest
from ingot.loops.ir import Axis, AxisKind, Buffer, Expr
from ingot.ops.common import (
    floats,
    integers,
    narrow,
    normalize_axis,
    refuse_empty,
    run_failed,
    tensor_types,
    wide_dtype,
    widen,
    widen_array,
)
from ingot.ops.reduce import full_point, guard_empty, reduced_shape

NO_ELEMENT = "an empty axis has no largest or smallest element"


class ArgExtreme(OpDef):
    """The index of the extreme along an axis: the first one, or the last if `select_last`. NaN is
    the extreme if there is one. The result does not depend on the order of the reduction."""

    kind = Kind.REDUCTION
    better = "gt"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = tensor_types(self.name, inputs, 1)
        axis = normalize_axis(self.name, attrs["axis"], x.rank)
        if arith.is_const(x.shape[axis], 0):
            raise type_error(self.name, f"axis {axis} has size 0")
        keepdims = bool(attrs.get("keepdims", True))
        return [TensorType(dtypes.i64, reduced_shape(x.shape, (axis,), keepdims))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, axis = widen_array(inputs[0]), attrs["axis"]  # type: ignore[arg-type]
        if x.shape[axis] == 0 and x.size == 0 and np.delete(x.shape, axis).all():
            raise run_failed(NO_ELEMENT)
        pick = np.argmax if self.better == "gt" else np.argmin
        if attrs.get("select_last", False):
            found = x.shape[axis] - 1 - pick(np.flip(x, axis), axis=axis)
        else:
            found = pick(x, axis=axis)
        found = np.expand_dims(found, axis) if attrs.get("keepdims", True) else found
        return [np.asarray(found, dtype=np.int64)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x = inputs[0]
        assert x is not None
        axis, keepdims = (
            normalize_axis(self.name, attrs["axis"], x.rank),
            attrs.get("keepdims", True),
        )
        shape, over = outputs[0].shape, [x.shape[axis]]
        start = identity("max" if self.better == "gt" else "min", wide_dtype(x.dtype))
        tie = "gt" if attrs.get("select_last", False) else "lt"

        def update(*args) -> list[Expr]:
            *spatial, k, best, best_index = args
            value = widen(x[full_point(spatial, (k,), (axis,), keepdims)])
            index = ir.Index(k)
            same = ir.Compare("eq", value, best) & ir.Compare(tie, index, best_index)
            take = ir.Compare(self.better, value, best) | same
            if value.dtype.is_float:
                nan, best_nan = ir.Unary("isnan", value), ir.Unary("isnan", best)
                take = take | (nan & (~best_nan | ir.Compare(tie, index, best_index)))
            return [ir.Select(take, value, best), ir.Select(take, index, best_index)]

        refuse_empty(b, x.shape[axis], shape, NO_ELEMENT)
        zero = ir.Lit(0, dtypes.i64)
        _, indices = b.fold(["best", "index"], shape, over, [start, zero], update)
        return [guard_empty(b, indices, over, zero)]

    def samples(self) -> list[Sample]:
        nan, inf = np.nan, np.inf
        rows = np.array(
            [[1, 3, 3, 2], [nan, 1, nan, 0], [-inf] * 4, [inf] * 4, [0, -0.0, 0, 0]], np.float32
        )
        arrays = [
            (rows, 1), (rows, 0), (floats(2, 3, 5, dtype=dtypes.f16), -1),
            (integers(4, 6, high=2, low=-2), 0), (integers(3, 1, dtype=dtypes.i32), 1),
            (integers(5, dtype=dtypes.u8, high=3), 0),
        ]  # fmt: skip
        return [
            Sample((x,), {"axis": axis, "keepdims": keepdims, "select_last": last})
            for x, axis in arrays
            for keepdims, last in ((True, False), (False, True))
        ]


@register
class ArgMax(ArgExtreme):
    name = "argmax"


@register
class ArgMin(ArgExtreme):
    name = "argmin"
    better = "lt"


# --- ordered axes: each step depends on the previous one ------------------------------------------


class Prefix(OpDef):
    """The prefix sums (or products) along `axis`: `exclusive` omits the own element, `reverse`
    starts at the end."""

    combine = "add"
    neutral = 0

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = tensor_types(self.name, inputs, 1)
        if x.dtype.is_bool:
            raise type_error(self.name, "bool is not supported", "cast to an integer first")
        normalize_axis(self.name, attrs["axis"], x.rank)
        return [TensorType(x.dtype, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, axis = inputs[0], attrs["axis"]
        assert x is not None
        rows = np.moveaxis(widen_array(x), axis, 0)
        rows = rows[::-1] if attrs.get("reverse", False) else rows
        ufunc: np.ufunc = np.add if self.combine == "add" else np.multiply
        total = ufunc.accumulate(rows, axis=0, dtype=rows.dtype)
        if attrs.get("exclusive", False):
            total = np.concatenate([np.full_like(rows[:1], self.neutral), total[:-1]])
        total = total[::-1] if attrs.get("reverse", False) else total
        return [np.ascontiguousarray(np.moveaxis(total, 0, axis)).astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x = inputs[0]
        assert x is not None
        axis = normalize_axis(self.name, attrs["axis"], x.rank)
        exclusive, reverse = attrs.get("exclusive", False), attrs.get("reverse", False)
        acc = b.buffer("sums", wide_dtype(x.dtype), x.shape)
        neutral, axes = ir.value_of(self.neutral, acc.dtype), ordered_axes(b, x.shape, axis)
        point = [arith.Var(a.var) for a in axes]
        step = point[axis]

        def at(steps_back: int) -> tuple[arith.Expr, ...]:
            time = step - steps_back
            index = x.shape[axis] - 1 - time if reverse else time
            return (*point[:axis], index, *point[axis + 1 :])

        first = ir.Compare("eq", ir.Index(step), ir.Lit(0, dtypes.i64))
        start = ir.Store(acc, at(0), neutral if exclusive else widen(x[at(0)]))
        more = ir.Binary(self.combine, acc[at(1)], widen(x[at(1 if exclusive else 0)]))
        body = ir.If(first, start, ir.Store(acc, at(0), more))
        b.emit(nest(axes, lambda bound: ir.Block(acc.name, bound, body), b.fresh))
        if acc.dtype is x.dtype:
            return [acc]
        return [b.compute("out", x.shape, lambda *p: narrow(acc[p], x.dtype))]

    def samples(self) -> list[Sample]:
        arrays = [(floats(3, 4, 5), 1), (integers(6), 0), (floats(2, 7), -1), (floats(1, 1), 0)]
        cases = [
            Sample((x,), {"axis": axis, "exclusive": exclusive, "reverse": reverse})
            for x, axis in arrays
            for exclusive in (False, True)
            for reverse in (False, True)
        ]
        half = floats(2, 9, dtype=dtypes.f16)
        return [*cases, Sample((half,), {"axis": 1}, rtol=1e-2, atol=1e-3)]


@register
class CumSum(Prefix):
    """Prefix sums along `axis`."""

    name = "cumsum"


@register
class CumProd(Prefix):
    """Prefix products along `axis`."""

    name = "cumprod"
    combine = "mul"
    neutral = 1

    def samples(self) -> list[Sample]:
        found = super().samples()
        return [found[i] for i in (0, 3, 5, 6, 9, 16)]


def ordered_axes(b: Build, shape: Sequence[Dim], ordered: int) -> tuple[Axis, ...]:
    """Block axes over `shape`: one ordered, the others independent."""
    kinds = [AxisKind.ORDERED if i == ordered else AxisKind.SPATIAL for i in range(len(shape))]
    names = [b.fresh("vi") for _ in shape]
    return tuple(Axis(n, k, d, arith.Var(n)) for n, k, d in zip(names, kinds, shape))
