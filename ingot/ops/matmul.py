"""Matrix multiplication (GEMM, GEMV, batched) with numpy's semantics: batch axes broadcast.

In: two tensors; a one-dimensional one is a vector. Out: their product: floats in their own type
(narrow ones accumulate in f32, and may be the right operand of f32), integers of up to 16 bits as
i32, wider ones in their own type. `matmul_integer` takes zero points.
Called by graph, lower and front ends through the operator table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.opdef import (
    Attrs,
    Kind,
    OpDef,
    Sample,
    SizeMismatch,
    register,
    rows_align,
    type_error,
)
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build, identity
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import (
    broadcast_load,
    broadcast_shapes,
    floats,
    integers,
    narrow,
    require_same_dtype,
    same_dim,
    tensor_type,
    tensor_types,
    wide_dtype,
)
from ingot.ops.reduce import reduce_over


def accumulator(dtype: DType) -> DType:
    """The element type in which products of `dtype` are accumulated."""
    if dtype.is_int and dtype.bits <= 16:
        return dtypes.i32
    return wide_dtype(dtype)


def result_dtype(dtype: DType) -> DType:
    """The output type: floats keep their own, integers the accumulator's."""
    return dtype if dtype.is_float else accumulator(dtype)


def matmul_shape(op: str, a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
    if not a or not b:
        raise type_error(op, "an operand is a scalar", "use mul")
    inner_a, inner_b = a[-1], b[-2] if len(b) > 1 else b[0]
    if not same_dim(inner_a, inner_b):
        what = f"inner sizes differ: {inner_a} and {inner_b}"
        if arith.as_int(inner_a) is None or arith.as_int(inner_b) is None:
            raise SizeMismatch(inner_a, inner_b, op, what)
        raise type_error(op, what, "transpose one operand?")
    batch = broadcast_shapes(a[:-2], b[:-2])
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def matmul_stage(b: Build, x: Buffer, y: Buffer, shape: Sequence[Dim]) -> Buffer:
    """out[batch…, m, n] = Σ_k x[batch…, m, k] · y[batch…, k, n], in the accumulator's type."""
    acc = accumulator(x.dtype)
    has_m, has_n = x.rank > 1, y.rank > 1
    batch = len(shape) - has_m - has_n

    def term(*point: arith.Expr) -> Expr:
        *spatial, k = point
        outer, rest = spatial[:batch], spatial[batch:]
        left = (*outer, rest[0], k) if has_m else (k,)
        right = (*outer, k, rest[-1]) if has_n else (k,)
        return narrow(_load(x, left), acc) * narrow(_load(y, right), acc)

    over = [x.shape[-1]]
    return reduce_over(b, "matmul", shape, over, "add", term, identity("add", acc))


def _load(x: Buffer, point: tuple[arith.Expr, ...]) -> Expr:
    """A broadcast load. Only batch axes broadcast: a matrix axis of size 1 has index 0 anyway."""
    return broadcast_load(x, point)


def matmul_work_per_byte(inputs: Sequence[np.ndarray | None]) -> float:
    """Relative to moving a byte: numpy multiplies floats with BLAS, integers without."""
    a = np.asarray(inputs[0])
    depth = a.shape[-1] if a.ndim else 1
    return max(1, depth / 16 if a.dtype.kind == "f" else depth)


def _is_mixed(a: TensorType, b: TensorType) -> bool:
    """f32 with weights that are stored in 16 bits, and widened when they are loaded."""
    return a.dtype is dtypes.f32 and b.dtype in (dtypes.f16, dtypes.bf16)


@register
class MatMul(OpDef):
    """a · b, summed over the last axis of a and the last but one of b."""

    name = "matmul"
    kind = Kind.CONTRACTION
    family = "matmul"
    reads_axes = True

    def work_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        return matmul_work_per_byte(inputs)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        a, b = tensor_types(self.name, inputs, 2)
        small = all(t.dtype.is_int and t.dtype.bits == 8 for t in (a, b))  # i8 with u8 is common
        dtype = a.dtype if small or _is_mixed(a, b) else require_same_dtype(self.name, a, b)
        if dtype.is_bool:
            raise type_error(self.name, "bool is not supported", "cast to an integer first")
        return [TensorType(result_dtype(dtype), matmul_shape(self.name, a.shape, b.shape))]

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        a, b = tensor_types(self.name, inputs, 2)
        if set(batched) == {0} and b.rank == 2:
            return attrs if a.rank >= 2 else None  # rows of the left operand
        return attrs if max(a.rank, b.rank) > 2 and rows_align(inputs, batched) else None

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        a, b = inputs
        assert a is not None and b is not None
        dtype = dtypes.from_numpy(a.dtype)
        acc = accumulator(dtype).numpy
        with np.errstate(all="ignore"):
            product = np.matmul(a.astype(acc), b.astype(acc))
        return [np.asarray(product).astype(result_dtype(dtype).numpy)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, y = inputs
        assert x is not None and y is not None
        acc = matmul_stage(b, x, y, outputs[0].shape)
        if acc.dtype is outputs[0].dtype:
            return [acc]
        return [b.compute("out", acc.shape, lambda *p: narrow(acc[p], outputs[0].dtype))]

    def samples(self) -> list[Sample]:
        pairs = [
            (floats(3, 5), floats(5, 7)),
            (floats(1, 1), floats(1, 1)),
            (floats(4), floats(4, 3)),
            (floats(3, 4), floats(4)),
            (floats(6), floats(6, key=1)),
            (floats(2, 1, 3, 4), floats(5, 4, 2)),
            (floats(4), floats(2, 4, 3)),
            (floats(2, 3, 4), floats(4)),
            (floats(2, 0), floats(0, 3)),
            (floats(0, 2), floats(2, 3)),
            (floats(4, 9, dtype=dtypes.f64), floats(9, 2, dtype=dtypes.f64)),
            (integers(3, 4), integers(4, 2, key=1)),
            (integers(3, 40, dtype=dtypes.i8, low=-128, high=127),
             integers(40, 2, dtype=dtypes.u8, high=255)),
            (np.array([[np.inf, 1], [np.nan, 0]], np.float32), np.ones((2, 2), np.float32)),
        ]  # fmt: skip
        cases = [Sample(pair, atol=1e-5) for pair in pairs]
        for dtype in (dtypes.f16, dtypes.bf16):
            pair = (floats(3, 33, dtype=dtype), floats(33, 4, dtype=dtype))
            cases.append(Sample(pair, rtol=1e-2, atol=1e-2))
            cases.append(Sample((floats(3, 33), floats(33, 4, dtype=dtype)), atol=1e-5))
        return cases


@register
class MatMulInteger(OpDef):
    """(a - a_zero) · (b - b_zero) in i32. a_zero is a scalar or one value for each row of a, b_zero
    a scalar or one value for each column of b; both may have batch axes."""

    name = "matmul_integer"
    kind = Kind.CONTRACTION
    family = "matmul"

    def work_per_byte(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> float:
        return matmul_work_per_byte(inputs)

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        a, b = (tensor_type(self.name, t) for t in inputs[:2])
        if not all(t.dtype.is_int and t.dtype.bits <= 8 for t in (a, b)):
            raise type_error(self.name, f"expects 8-bit integers, got {a.dtype} and {b.dtype}")
        for of, zero in zip((a, b), inputs[2:]):
            if zero is not None:
                require_same_dtype(self.name, of, tensor_type(self.name, zero))
        return [TensorType(dtypes.i32, matmul_shape(self.name, a.shape, b.shape))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        a, b, a_zero, b_zero = (*inputs, None, None)[:4]
        assert a is not None and b is not None
        a, b = a.astype(np.int32), b.astype(np.int32)
        if a_zero is not None:
            rows = a_zero.ndim == 1 and a_zero.size != 1
            a = a - (a_zero[:, None] if rows else a_zero).astype(np.int32)
        if b_zero is not None:
            b = b - b_zero.astype(np.int32)
        return [np.asarray(np.matmul(a, b), dtype=np.int32)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, y, x_zero, y_zero = (*inputs, None, None)[:4]
        assert x is not None and y is not None
        x = x if x_zero is None else centred(b, x, x_zero, rows=True)
        y = y if y_zero is None else centred(b, y, y_zero, rows=False)
        return [matmul_stage(b, x, y, outputs[0].shape)]

    def samples(self) -> list[Sample]:
        a = integers(2, 3, 5, dtype=dtypes.u8, high=255)
        b = integers(5, 4, dtype=dtypes.i8, low=-128, high=127)
        flat = integers(3, 5, dtype=dtypes.u8, high=255)
        one_a, one_b = np.array(200, np.uint8), np.array([-7], np.int8)
        rows, columns = np.array([1, 20, 255], np.uint8), np.array([-3, 0, 5, 127], np.int8)
        return [
            Sample((a, b)),
            Sample((a, b, one_a, one_b)),
            Sample((flat, b, rows, columns)),
            Sample((a, b, None, columns)),
            Sample((flat, b, rows, None)),
        ]


def centred(b: Build, x: Buffer, zero: Buffer, rows: bool) -> Buffer:
    """x - zero in i32, as a separate stage so that the GEMM loads its operands unchanged."""
    by_row = rows and zero.rank == 1 and x.rank > 1 and not arith.is_const(zero.shape[0], 1)

    def value(*point: arith.Expr) -> Expr:
        offset = broadcast_load(zero, point[:-1] if by_row else point)
        return ir.Cast(x[point], dtypes.i32) - ir.Cast(offset, dtypes.i32)

    return b.compute("centred", x.shape, value)
