"""Linear algebra on the last two axes: det and inverse, by elimination with partial pivoting.

In: a batch of square matrices of any float type (narrow ones are computed in f32). Out: rows of
`graph.opdef.TABLE`. Called by ops/__init__.py; imported from ONNX by frontends/onnx/linalg.py.
Matrices are independent, so threads share a batch; the steps of one matrix run in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.opdef import Attrs, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.statements import Scalar, compare, let, loop, with_scalars

Point = tuple[arith.Expr, ...]


class OfSquareMatrices(OpDef):
    """Operators of a batch of square matrices."""

    def result_shape(self, x: TensorType) -> tuple[arith.Expr, ...]:
        raise NotImplementedError(self.name)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        if x.rank < 2 or not x.dtype.is_float:
            raise type_error(self.name, f"{x} is no batch of float matrices")
        common.require_same_dim(self.name, x.shape[-2], x.shape[-1], f"{x} is not square")
        return [TensorType(x.dtype, self.result_shape(x))]

    def samples(self) -> list[Sample]:
        shapes = [(3, 3), (2, 4, 4), (1, 1), (2, 2, 5, 5), (0, 3, 3)]
        found = [Sample((matrices(*s),), {}, 1e-4, 1e-4) for s in shapes]
        needs_swap = np.array([[0, 2, 1], [4, 0, 3], [1, 1, 0]])
        found += [Sample((needs_swap.astype(k),), {}, 1e-5) for k in (np.float32, np.float64)]
        return [*found, Sample((matrices(2, 3, 3).astype(np.float16),), {}, 1e-2, 1e-2)]


def matrices(*shape: int) -> np.ndarray:
    """Random matrices far from singular."""
    return common.floats(*shape) + 3 * np.eye(shape[-1], dtype=np.float32)


def pivot_row(b: Build, work: Buffer, at: Point, k: arith.Expr, row: Scalar, best: Scalar) -> Stmt:
    """row := the row from k on whose element of column k is the largest in magnitude."""

    def look(i: arith.Expr) -> Stmt:
        def keep(size: Expr) -> Stmt:
            larger = ir.Compare("gt", size, best.value)
            return ir.If(larger, ir.seq(best.set(size), row.set(ir.Index(i))))

        return let(b, ir.Unary("abs", work[(*at, i, k)]), keep)

    start = [best.set(ir.Unary("abs", work[(*at, k, k)])), row.set(ir.Index(k))]
    return ir.seq(*start, loop(b, work.shape[-1], look, start=k + 1))


def swap_rows(b: Build, work: Buffer, at: Point, one: arith.Expr, other: arith.Expr) -> Stmt:
    def swap(j: arith.Expr) -> Stmt:
        def stores(old: Expr) -> Stmt:
            first = ir.Store(work, (*at, one, j), work[(*at, other, j)])
            return ir.seq(first, ir.Store(work, (*at, other, j), old))

        return let(b, work[(*at, one, j)], stores)

    return loop(b, work.shape[-1], swap)


def subtract_row(
    b: Build, work: Buffer, at: Point, i: arith.Expr, k: arith.Expr, factor: Expr
) -> Stmt:
    """work[i] -= factor · work[k]"""

    def step(j: arith.Expr) -> Stmt:
        point = (*at, i, j)
        return ir.Store(work, point, work[point] - factor * work[(*at, k, j)])

    return loop(b, work.shape[-1], step)


@register
class Det(OfSquareMatrices):
    """The determinant: the product of the pivots of an LU factorisation, its sign by the swaps."""

    name = "det"

    def result_shape(self, x: TensorType) -> tuple[arith.Expr, ...]:
        return x.shape[:-2]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        return [np.asarray(np.linalg.det(x.astype(np.float64))).astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        work = b.compute("work", x.shape, lambda *p: common.widen(x[p]))
        out = b.buffer("det", x.dtype, outputs[0].shape)
        n, dtype = x.shape[-1], work.dtype

        def body(*at: arith.Expr) -> Stmt:
            product, best = Scalar(b, "product", dtype), Scalar(b, "best", dtype)
            row = Scalar(b, "row")

            def eliminate(k: arith.Expr, pivot: Expr) -> Stmt:
                def reduce_row(i: arith.Expr) -> Stmt:
                    ratio = work[(*at, i, k)] / pivot
                    return let(b, ratio, lambda f: subtract_row(b, work, at, i, k, f))

                rows = ir.If(
                    ir.Compare("ne", pivot, ir.value_of(0, dtype)), loop(b, n, reduce_row, k + 1)
                )
                return ir.seq(product.set(product.value * pivot), rows)

            def step(k: arith.Expr) -> Stmt:
                negate = product.set(ir.Unary("neg", product.value))
                swap = ir.seq(swap_rows(b, work, at, k, row.index), negate)
                return ir.seq(
                    pivot_row(b, work, at, k, row, best),
                    ir.If(compare("ne", row.index, k), swap),
                    let(b, work[(*at, k, k)], lambda pivot: eliminate(k, pivot)),
                )

            start = product.set(ir.value_of(1, dtype))
            end = ir.Store(out, tuple(at), common.narrow(product.value, x.dtype))
            return with_scalars([product, best, row], start, loop(b, n, step), end)

        common.stage(b, "det", outputs[0].shape, body)
        return [out]


@register
class Inverse(OfSquareMatrices):
    """The inverse, by Gauss-Jordan elimination. A singular matrix gives infinities or NaN."""

    name = "inverse"

    def result_shape(self, x: TensorType) -> tuple[arith.Expr, ...]:
        return x.shape

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = np.asarray(inputs[0])
        return [np.linalg.inv(x.astype(np.float64)).astype(x.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        work = b.compute("work", x.shape, lambda *p: common.widen(x[p]))
        n, dtype = x.shape[-1], work.dtype
        one, zero = ir.value_of(1, dtype), ir.value_of(0, dtype)
        out = b.compute(
            "inverse", x.shape, lambda *p: ir.Select(compare("eq", p[-2], p[-1]), one, zero)
        )

        def body(*at: arith.Expr) -> Stmt:
            best, row = Scalar(b, "best", dtype), Scalar(b, "row")

            def subtract(i: arith.Expr, k: arith.Expr) -> Stmt:
                both = lambda f: ir.seq(*(subtract_row(b, m, at, i, k, f) for m in (work, out)))  # noqa: E731
                return ir.If(compare("ne", i, k), let(b, work[(*at, i, k)], both))

            def step(k: arith.Expr) -> Stmt:
                swaps = [swap_rows(b, m, at, k, row.index) for m in (work, out)]
                scale = lambda pivot: ir.seq(  # noqa: E731
                    *(_divide_row(b, m, at, k, pivot) for m in (work, out))
                )
                return ir.seq(
                    pivot_row(b, work, at, k, row, best),
                    ir.If(compare("ne", row.index, k), ir.seq(*swaps)),
                    let(b, work[(*at, k, k)], scale),
                    loop(b, n, lambda i: subtract(i, k)),
                )

            return with_scalars([best, row], loop(b, n, step))

        common.stage(b, "eliminate", x.shape[:-2], body)
        if dtype is x.dtype:
            return [out]
        return [b.compute("narrow", x.shape, lambda *p: common.narrow(out[p], x.dtype))]


def _divide_row(b: Build, work: Buffer, at: Point, k: arith.Expr, pivot: Expr) -> Stmt:
    def step(j: arith.Expr) -> Stmt:
        return ir.Store(work, (*at, k, j), work[(*at, k, j)] / pivot)

    return loop(b, work.shape[-1], step)
