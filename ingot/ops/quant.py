"""Linear quantisation to integers (or float8) with a scale and a zero point, and dequantisation.

In: x, `scale` and maybe a `zero` point: per tensor, per index of `axis`, or, with `block`, per
block of that axis. Out: quantize gives `dtype`, dequantize the scale's type. Called by graph, lower
and front ends through the operator table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Value
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import Dim, TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops.common import (
    floats,
    integers,
    narrow,
    normalize_axis,
    require_same_dim,
    require_same_dtype,
    same_dim,
    tensor_type,
)


def param_load(param: Buffer, point: Sequence[arith.Expr], attrs: Attrs) -> Expr:
    """The scale or zero point of element `point`."""
    if param.rank == 0:
        return param[()]
    if param.rank == 1 and (arith.is_const(param.shape[0], 1) or len(point) == 0):
        return param[arith.Const(0)]
    axis = attrs.get("axis", 1)
    axis = axis + len(point) if axis < 0 else axis
    block = attrs.get("block", 0)
    if not block:
        return param[point[axis]]
    return param[(*point[:axis], point[axis] // block, *point[axis + 1 :])]


def param_array(param: np.ndarray, x: np.ndarray, attrs: Attrs) -> np.ndarray:
    """`param_load` for the references: the parameter broadcast to x's shape."""
    if param.size == 1 and param.ndim < 2:
        return param.reshape(())
    axis = attrs.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    block = attrs.get("block", 0)
    if block:
        spread = np.repeat(param, block, axis=axis)
        return np.take(spread, np.arange(x.shape[axis]), axis=axis)
    return param.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def _is_per_tensor(param: TensorType) -> bool:
    """Whether there is one value for the whole tensor."""
    return param.rank == 0 or (param.rank == 1 and arith.is_const(param.shape[0], 1))


class Quantised(OpDef):
    kind = Kind.ELEMENTWISE

    def operands(
        self, inputs: Sequence[Type | None], attrs: Attrs
    ) -> tuple[TensorType, TensorType, TensorType | None]:
        x, scale = (tensor_type(self.name, t) for t in inputs[:2])
        zero = tensor_type(self.name, inputs[2]) if len(inputs) > 2 and inputs[2] else None
        if not scale.dtype.is_float:
            raise type_error(self.name, f"the scale is {scale.dtype}, not a float")
        both_per_tensor = zero is not None and _is_per_tensor(zero) and _is_per_tensor(scale)
        if zero is not None and zero.shape != scale.shape and not both_per_tensor:
            raise type_error(self.name, f"scale {scale} and zero point {zero} differ in shape")
        self.check_scale(x, scale, attrs)
        return x, scale, zero

    def check_scale(self, x: TensorType, scale: TensorType, attrs: Attrs) -> None:
        if _is_per_tensor(scale):
            return
        axis, block = normalize_axis(self.name, attrs.get("axis", 1), x.rank), attrs.get("block", 0)
        if not block and scale.rank == 1:
            why = f"scale {scale} does not fit axis {axis} of {x}"
            return require_same_dim(self.name, scale.shape[0], x.shape[axis], why)
        if not block:
            fits = False
        else:
            want = [arith.ceildiv(d, block) if i == axis else d for i, d in enumerate(x.shape)]
            fits = scale.rank == x.rank and all(map(same_dim, scale.shape, want))
        if not fits:
            raise type_error(self.name, f"scale {scale} does not fit axis {axis} of {x}")

    def attrs_of_rows(
        self, inputs: Sequence[Type | None], attrs: Attrs, batched: Collection[int], rows: Dim
    ) -> Attrs | None:
        x, scale = (tensor_type(self.name, t) for t in inputs[:2])
        if set(batched) != {0} or attrs.get("block", 0):
            return None
        is_equal = not scale.rank or normalize_axis(self.name, attrs.get("axis", 1), x.rank) > 0
        return attrs if is_equal else None


@register
class QuantizeLinear(Quantised):
    """saturate(round_half_even(x / scale) + zero) as `dtype`; to a float8, the cast rounds."""

    name = "quantize_linear"

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, _, zero = self.operands(inputs, attrs)
        if zero is not None and zero.dtype is not attrs["dtype"]:
            raise type_error(self.name, f"zero point {zero} is not of type {attrs['dtype']}")
        return [TensorType(attrs["dtype"], x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, scale, zero = (*inputs, None)[:3]
        assert x is not None and scale is not None
        dtype: DType = attrs["dtype"]
        with np.errstate(all="ignore"):
            real = x.astype(np.float32) / param_array(scale.astype(np.float32), x, attrs)
            real = np.rint(real) if dtype.is_int else real
            if zero is not None:
                real = real + param_array(zero.astype(np.float32), x, attrs)
        return [saturate_array(real, dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, scale, zero = (*inputs, None)[:3]
        assert x is not None and scale is not None
        dtype: DType = attrs["dtype"]

        def value(*point: arith.Expr) -> Expr:
            factor = narrow(param_load(scale, point, attrs), dtypes.f32)
            real = narrow(x[point], dtypes.f32) / factor
            real = ir.Unary("round", real) if dtype.is_int else real
            if zero is not None:
                real = real + narrow(param_load(zero, point, attrs), dtypes.f32)
            return ir.Cast(real, dtype, "saturate")

        return [b.compute("quantized", x.shape, value)]

    def samples(self) -> list[Sample]:
        x = np.array([[-300, -0.5, 0.5, 1.5], [2.5, 126.5, 400, -1.5]], np.float32)
        one, scales = np.array(1, np.float32), np.array([0.5, 2, 1, 0.25], np.float32)
        zeros = np.array([0, 3, -5, 7], np.int8)
        blocks = np.array([[0.5, 2], [1, 0.25]], np.float32)
        half = floats(3, 2, dtype=dtypes.f16)
        edges = np.array([np.inf, -np.inf, np.nan, -0.0], np.float32)
        return [
            Sample((x, one), {"dtype": dtypes.u8}),
            Sample((x, one, np.array(128, np.uint8)), {"dtype": dtypes.u8}),
            Sample((x, scales, zeros), {"dtype": dtypes.i8, "axis": 1}),
            Sample((x, scales[:2], zeros[:2]), {"dtype": dtypes.i8, "axis": -2}),
            Sample((x, scales[:1], np.array([40000], np.uint16)), {"dtype": dtypes.u16}),
            Sample((x, blocks), {"dtype": dtypes.i16, "axis": 1, "block": 2}),
            Sample((half, np.array(0.1, np.float16)), {"dtype": dtypes.i8}),
            Sample((integers(5, dtype=dtypes.i32, low=-900, high=900), one), {"dtype": dtypes.i8}),
            Sample((edges, one, np.array(3, np.int8)), {"dtype": dtypes.i8}),
        ]


def saturate_array(real: np.ndarray, dtype: DType) -> np.ndarray:
    """The loop IR's saturating cast, in numpy: NaN becomes 0."""
    if dtype.is_float:
        top = float(np.finfo(np.float32).max) if dtype.bits >= 32 else _float_max(dtype)
        return np.clip(real, -top, top).astype(dtype.numpy)
    safe = np.where(np.isnan(real), 0, real).astype(np.float64)
    return np.clip(safe, dtype.lowest, dtype.highest).astype(np.int64).astype(dtype.numpy)


def _float_max(dtype: DType) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype.numpy).max)


@register
class DequantizeLinear(Quantised):
    """(x - zero) · scale, in the scale's type."""

    name = "dequantize_linear"
    cheap = True
    folds_late = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x, scale, zero = self.operands(inputs, attrs)
        if zero is not None:
            require_same_dtype(self.name, x, zero)
        return [TensorType(scale.dtype, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, scale, zero = (*inputs, None)[:3]
        assert x is not None and scale is not None
        middle = _difference_type(dtypes.from_numpy(x.dtype)).numpy
        offset = x.astype(middle)
        if zero is not None:
            offset = offset - param_array(zero.astype(middle), x, attrs)
        factor = param_array(scale.astype(np.float32), x, attrs)
        return [(offset.astype(np.float32) * factor).astype(scale.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, scale, zero = (*inputs, None)[:3]
        assert x is not None and scale is not None
        middle = _difference_type(x.dtype)

        def value(*point: arith.Expr) -> Expr:
            offset = narrow(x[point], middle)
            if zero is not None:
                offset = offset - narrow(param_load(zero, point, attrs), middle)
            factor = narrow(param_load(scale, point, attrs), dtypes.f32)
            return narrow(narrow(offset, dtypes.f32) * factor, outputs[0].dtype)

        return [b.compute("real", x.shape, value)]

    def samples(self) -> list[Sample]:
        x = integers(3, 4, dtype=dtypes.i8, low=-128, high=127)
        wide = integers(3, 4, dtype=dtypes.i32, low=-(1 << 30), high=1 << 30)
        scales, zeros = np.array([0.5, 2, 1, 0.25], np.float32), np.array([0, 3, -5, 7], np.int8)
        blocks = np.array([[0.5, 2], [1, 0.25], [3, 4]], np.float32)
        return [
            Sample((x, np.array(0.1, np.float32))),
            Sample((x, scales, zeros), {"axis": 1}),
            Sample((x, scales[:3], zeros[:3]), {"axis": 0}),
            Sample((x, scales[1:2], zeros[1:2])),
            Sample((wide, np.array(0.25, np.float32))),
            Sample((x, blocks), {"axis": -1, "block": 2}),
            Sample((x.astype(np.uint8), np.array(0.1, np.float16), np.array(200, np.uint8))),
        ]


def _difference_type(dtype: DType) -> DType:
    """A type in which x - zero is exact."""
    return dtypes.i32 if dtype.is_int else dtypes.f32


@register
class DynamicQuantizeLinear(OpDef):
    """f32 → u8 with a scale and zero point computed from the data's range, extended to include 0.
    Outputs: the quantised tensor, the scale and the zero point."""

    name = "dynamic_quantize_linear"
    composite = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x = tensor_type(self.name, inputs[0])
        if x.dtype is not dtypes.f32:
            raise type_error(self.name, f"expects f32, got {x.dtype}")
        scalar = TensorType(dtypes.f32, ())
        return [TensorType(dtypes.u8, x.shape), scalar, TensorType(dtypes.u8, ())]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x = inputs[0]
        assert x is not None
        low = np.minimum(np.min(x, initial=np.float32(0)), np.float32(0))
        high = np.maximum(np.max(x, initial=np.float32(0)), np.float32(0))
        scale = np.asarray((high - low) / np.float32(255), np.float32)
        scale = scale if scale != 0 else np.asarray(1, np.float32)
        zero = saturate_array(np.rint(np.asarray(-low / scale)), dtypes.u8)
        quantised = QUANTIZE.reference([x, scale, zero], {"dtype": dtypes.u8})
        return [*quantised, scale, zero]

    def decompose(
        self,
        g: GraphBuilder,
        inputs: Sequence[Value | None],
        outputs: Sequence[TensorType],
        attrs: Attrs,
    ) -> list[Value]:
        x = inputs[0]
        assert x is not None
        axes = tuple(range(x.tensor.rank))

        def number(value: float) -> Value:
            return g.constant(np.array(value, np.float32))

        least = g.add("reduce_min", [x], axes=axes, keepdims=False)
        most = g.add("reduce_max", [x], axes=axes, keepdims=False)
        low, high = g.add("min", [least, number(0)]), g.add("max", [most, number(0)])
        span = g.add("div", [g.add("sub", [high, low]), number(255)])
        flat = g.add("eq", [span, number(0)])
        scale = g.add("where", [flat, number(1), span])
        rounded = g.add("round", [g.add("div", [g.add("neg", [low]), scale])])
        zero = g.add("cast", [rounded], to=dtypes.u8, mode="saturate")
        y = g.add("quantize_linear", [x, scale, zero], dtype=dtypes.u8, axis=0)
        return [y, scale, zero]

    def samples(self) -> list[Sample]:
        arrays = [floats(3, 5), np.abs(floats(7)) + 1, np.zeros((2, 2), np.float32), -floats(4) - 9]
        return [Sample((x.astype(np.float32),)) for x in arrays]


QUANTIZE = QuantizeLinear()
