"""`pow`: a math function on floats, exact exponentiation by squaring on integers.

In: base and exponent of one element type, broadcasting. Called by ops/__init__.py.

Exponentiation by squaring reuses each square, which needs let-bindings and not one expression, so
the integer form is a stage of statements and does not fuse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph.ir import Node
from ingot.graph.opdef import Attrs, Kind, Sample, register
from ingot.graph.types import TensorType
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.ops import common
from ingot.ops.pointwise import Pointwise, Row, binary_samples

ZERO_TO_NEGATIVE = "integer zero to a negative power"


def float_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Broadcast arrays on both sides: numpy computes a scalar exponent of 0.5 as a square root,
    and the square root of -inf is NaN where the power is inf."""
    base, exponent = np.broadcast_arrays(x.astype(np.float64), y.astype(np.float64))
    return np.power(base.flatten(), exponent.flatten()).reshape(base.shape)


FLOAT_ROW = Row("pow", float_power, lambda x, y: ir.Math("pow", (x, y)), "float", 2, rtol=1e-4)


@register
class Pow(Pointwise):
    """base ** exponent; on integers it wraps, and a negative exponent truncates towards zero."""

    name = "pow"
    row = Row("pow", float_power, FLOAT_ROW.value, "number", 2)

    def kind_of(self, node: Node) -> Kind:
        return Kind.OPAQUE if node.outputs[0].dtype.is_int else Kind.ELEMENTWISE

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, y = (np.asarray(v) for v in inputs)
        dtype = dtypes.from_numpy(x.dtype)
        if dtype.is_float:
            return super().reference(inputs, attrs)
        pairs = np.broadcast(x, y)
        flat = [integer_power(int(a), int(e), dtype) for a, e in pairs]
        return [np.array(flat, x.dtype).reshape(pairs.shape)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        if outputs[0].dtype.is_float:
            return super().compute(b, inputs, outputs, attrs)
        x, y = inputs
        assert x is not None and y is not None
        shape, dtype = outputs[0].shape, outputs[0].dtype
        zero = ir.Lit(0, dtype)

        def operands(point: Sequence) -> tuple[Expr, Expr]:
            return common.broadcast_load(x, point), common.broadcast_load(y, point)

        def bad(*point) -> Expr:
            a, e = operands(point)
            return ir.Compare("eq", a, zero) & ir.Compare("lt", e, zero)

        b.check(shape, bad, ZERO_TO_NEGATIVE)
        out = b.buffer("pow", dtype, shape)
        common.stage(b, "pow", shape, lambda *p: squarings(b, *operands(p), out, p))
        return [out]

    def samples(self) -> list[Sample]:
        base = np.array([-3, -2, -1, 0, 1, 2, 3, 7])
        exponent = np.array([0, 1, 2, 3, 13, 62])
        found = binary_samples(FLOAT_ROW)
        for dtype in (dtypes.i64, dtypes.i32, dtypes.i8):
            grid = base[:, None].astype(dtype.numpy), exponent[None, :].astype(dtype.numpy)
            found.append(Sample(grid))
        found.append(Sample((np.array([2, 3, 255], np.uint8), np.array(200, np.uint8))))
        found.append(Sample((np.array([-2, -1, 1, 5]), np.array([[-1], [-2]]))))
        found.append(Sample((np.array([2, 0]), np.array([3, -1])), fails=ZERO_TO_NEGATIVE))
        return found


def integer_power(base: int, exponent: int, dtype: DType) -> int:
    """The exact power, wrapped to the element type."""
    if exponent < 0:
        if base == 0:
            raise common.run_failed(ZERO_TO_NEGATIVE)
        return {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
    low = pow(base, exponent, 1 << dtype.bits)
    return low - (1 << dtype.bits) if dtype.is_signed and low > dtype.highest else low


def squarings(b: Build, base: Expr, exponent: Expr, out: Buffer, point: tuple) -> Stmt:
    """out[point] = the product of base ** (2 ** k) over the bits k set in the exponent."""
    dtype = base.dtype
    zero, one = ir.Lit(0, dtype), ir.Lit(1, dtype)
    lets: list[tuple[str, Expr]] = []

    def let(name: str, value: Expr) -> Expr:
        lets.append((b.fresh(name), value))
        return ir.Ref(lets[-1][0], dtype)

    exponent = let("exponent", exponent)
    base = square = let("base", base)
    total: Expr = one
    for bit in range(dtype.bits):
        is_set = ir.Compare(
            "ne", exponent & (1 << bit if bit < dtype.bits - 1 else _top(dtype)), zero
        )
        total = let("total", total * ir.Select(is_set, square, one))
        square = let("square", square * square)
    if dtype.is_signed:
        total = ir.Select(ir.Compare("lt", exponent, zero), reciprocal(base, exponent), total)
    body: Stmt = ir.Store(out, point, total)
    for name, value in reversed(lets):
        body = ir.Let(name, value, body)
    return body


def _top(dtype: DType) -> int:
    """The highest bit as a value of the type."""
    return int(dtype.lowest) if dtype.is_signed else 1 << (dtype.bits - 1)


def reciprocal(base: Expr, exponent: Expr) -> Expr:
    """base ** negative, truncated: 0 unless the base is 1 or -1."""
    one, minus = ir.Lit(1, base.dtype), ir.Lit(-1, base.dtype)
    odd = ir.Compare("ne", exponent & 1, ir.Lit(0, base.dtype))
    of_minus = ir.Select(ir.Compare("eq", base, minus), ir.Select(odd, minus, one), base - base)
    return ir.Select(ir.Compare("eq", base, one), one, of_minus)
