"""Softmax and log-softmax along one axis.

In: a float tensor and `axis`. Out: the same shape. A row of only -inf gives NaN, as in numpy and
ONNX Runtime. Both are composite operators: one row reduction where the target keeps them (a row
stays in cache), otherwise reductions and element-wise operators. Called through the operator table.

Softmax of f16 rounds x - max, its exponential and their sum to f16, as the function body in ONNX
does: it agrees with that bit for bit. bf16 has too few bits for this and is computed in f32.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import (
    edge_floats,
    floats,
    is_narrow,
    narrow,
    normalize_axis,
    tensor_types,
    widen,
    widen_array,
)
from ingot.ops.reduce import check_floats, full_point


class RowSoftmax(OpDef):
    """A row reduction: the maximum, the sum of exponentials, then the result of each element."""

    kind = Kind.REDUCTION
    family = "softmax"
    composite = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = tensor_types(self.name, inputs, 1)
        check_floats(self.name, x)
        normalize_axis(self.name, attrs.get("axis", -1), x.rank)
        return [TensorType(x.dtype, x.shape)]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        (x,) = tensor_types(self.name, inputs, 1)
        return attrs if normalize_axis(self.name, attrs.get("axis", -1), x.rank) > 0 else None

    rounds_f16 = False  # round every intermediate value of f16, as ONNX's function body does

    def row_term(self, total: Expr) -> Expr:
        """A function of the row's sum of exp(x - max), computed once for each row."""
        raise NotImplementedError(self.name)

    def result(self, shifted: Expr, power: Expr, row_term: Expr) -> Expr:
        """The output, from x - max, exp(x - max) and the row's term."""
        raise NotImplementedError(self.name)

    def rounded(self, power: Expr, total: Expr) -> Expr:
        """The output in f16, where all is rounded."""
        raise NotImplementedError(self.name)

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x = inputs[0]
        assert x is not None
        axis = normalize_axis(self.name, attrs.get("axis", -1), x.rank)
        rows, over = (*x.shape[:axis], *x.shape[axis + 1 :]), (x.shape[axis],)

        def row(point: Sequence[arith.Expr]) -> tuple[arith.Expr, ...]:
            return (*point[:axis], *point[axis + 1 :])

        def source(point: Sequence[arith.Expr]) -> tuple[arith.Expr, ...]:
            return full_point(point[:-1], point[-1:], (axis,), False)

        is_rounded = self.rounds_f16 and x.dtype is dtypes.f16

        def rounded(e: Expr) -> Expr:
            return widen(narrow(e, x.dtype)) if is_rounded else e

        def power_of(*point: arith.Expr) -> Expr:
            return rounded(ir.Math("exp", (rounded(widen(x[point]) - top[row(point)]),)))

        top = b.reduce("top", rows, over, "max", lambda *p: widen(x[source(p)]))
        power = b.compute("power", x.shape, power_of)
        total = b.reduce("total", rows, over, "add", lambda *p: power[source(p)])

        if is_rounded:
            sums = b.compute("row_term", rows, lambda *p: rounded(total[p]))
            return [b.compute("out", x.shape, lambda *p: self.rounded(power[p], sums[row(p)]))]
        row_term = b.compute("row_term", rows, lambda *p: self.row_term(total[p]))

        def value(*point: arith.Expr) -> Expr:
            shifted = widen(x[point]) - top[row(point)]
            return narrow(self.result(shifted, power[point], row_term[row(point)]), x.dtype)

        return [b.compute("out", x.shape, value)]

    def samples(self) -> list[Sample]:
        inf, nan = np.inf, np.nan
        rows = np.array(
            [[-inf, -inf, -inf], [0, -inf, 1], [nan, 1, 2], [inf, 1, 2], [1e4, 1e4, -1e4]],
            np.float32,
        )
        cases = [
            (floats(3, 17), -1), (floats(2, 5, 3), 1), (floats(2, 3, 1), 2), (floats(4, 6), 0),
            (rows, 1), (edge_floats(), 0), (floats(1), 0), (floats(2, 3, 2, dtype=dtypes.f64), -2),
        ]  # fmt: skip
        narrow_cases = [floats(2, 9, dtype=dtypes.f16), floats(2, 9, dtype=dtypes.bf16)]
        return [Sample((x,), {"axis": axis}) for x, axis in cases] + [
            Sample((x,), {"axis": -1}, rtol=1e-2, atol=1e-2) for x in narrow_cases
        ]


def _shift(
    g: GraphBuilder, x: Value, axis: int, is_rounded: bool = False
) -> tuple[Value, Value, Value]:
    """x - max, its exponential, and the row's sum of exponentials; narrow floats as f32, unless
    each is rounded."""
    is_widened = is_narrow(x.dtype) and not is_rounded
    wide = g.add("cast", [x], to=dtypes.f32, mode="saturate") if is_widened else x
    shifted = g.add("sub", [wide, g.add("reduce_max", [wide], axes=(axis,), keepdims=True)])
    power = g.add("exp", [shifted])
    return shifted, power, g.add("reduce_sum", [power], axes=(axis,), keepdims=True)


def _narrowed(g: GraphBuilder, value: Value, like: Value) -> list[Value]:
    if value.dtype is like.dtype:
        return [value]
    return [g.add("cast", [value], to=like.dtype, mode="saturate")]


@register
class Softmax(RowSoftmax):
    """exp(x - max) / Σ exp(x - max)"""

    name = "softmax"
    rounds_f16 = True

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, axis = inputs[0], attrs.get("axis", -1)
        assert x is not None
        wide = x if x.dtype == np.float16 else widen_array(x)  # numpy rounds every step of f16
        with np.errstate(all="ignore"):
            power = np.exp(wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf))
            return [(power / np.sum(power, axis=axis, keepdims=True)).astype(x.dtype)]

    def row_term(self, total: Expr) -> Expr:
        return 1.0 / total  # the total is at least 1, or NaN

    def result(self, shifted: Expr, power: Expr, row_term: Expr) -> Expr:
        return power * row_term

    def rounded(self, power: Expr, total: Expr) -> Expr:
        return narrow(power / total, dtypes.f16)

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        x = inputs[0]
        assert x is not None
        _, power, total = _shift(g, x, attrs.get("axis", -1), is_rounded=x.dtype is dtypes.f16)
        return _narrowed(g, g.add("div", [power, total]), x)


@register
class LogSoftmax(RowSoftmax):
    """x - max - log Σ exp(x - max)"""

    name = "log_softmax"

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, axis = inputs[0], attrs.get("axis", -1)
        assert x is not None
        wide = widen_array(x)
        with np.errstate(all="ignore"):
            shifted = wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf)
            total = np.sum(np.exp(shifted), axis=axis, keepdims=True)
            return [(shifted - np.log(total)).astype(x.dtype)]

    def row_term(self, total: Expr) -> Expr:
        return ir.Math("log", (total,))

    def result(self, shifted: Expr, power: Expr, row_term: Expr) -> Expr:
        return shifted - row_term

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        x = inputs[0]
        assert x is not None
        shifted, _, total = _shift(g, x, attrs.get("axis", -1))
        return _narrowed(g, g.add("sub", [shifted, g.add("log", [total])]), x)
