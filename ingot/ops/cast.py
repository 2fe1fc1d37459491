"""`cast` and `bitcast`: the element-wise operators that change the element type.

In: a tensor. Out: its values as `to`, or its bits as `to`. Called by ops/__init__.py.

Float to integer truncates towards zero and saturates (NaN gives 0), or wraps if `mode` is "wrap";
integer to integer wraps; anything to bool is `!= 0`; float to float rounds to nearest even, and
float8 and narrower saturate instead of overflowing unless `mode` is "wrap". f8e8m0fnu, the powers
of two, rounds as `round` says; what is out of its range, zero too, saturates or gives NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common

MODES = ("saturate", "wrap")
POWERS = dtypes.of("f8e8m0fnu")
ROUNDS = ("nearest", "up", "down")  # nearest: ties up
LEAST, MOST = 2.0**-127, 2.0**127  # of f8e8m0fnu
FRACTION = (1 << 52) - 1  # the bits of an f64 below its exponent


@register
class Cast(OpDef):
    """x as element type `to`."""

    name = "cast"
    kind = Kind.ELEMENTWISE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,) = common.tensor_types(self.name, inputs, 1)
        if not isinstance(attrs.get("to"), DType):
            raise type_error(self.name, f"attribute to={attrs.get('to')!r} is not an element type")
        if attrs.get("mode", "saturate") not in MODES:
            raise type_error(self.name, f"attribute mode={attrs['mode']!r} is not one of {MODES}")
        if attrs.get("round", "nearest") not in ROUNDS:
            raise type_error(self.name, f"attribute round={attrs['round']!r} is not of {ROUNDS}")
        return [TensorType(attrs["to"], x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, mode = np.asarray(inputs[0]), attrs.get("mode", "saturate")
        if attrs["to"] is POWERS and x.dtype != POWERS.numpy:
            return [power_array(x.astype(np.float64), mode, attrs.get("round", "nearest"))]
        return [cast_array(x, attrs["to"], mode)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        to, mode = outputs[0].dtype, attrs.get("mode", "saturate")

        def formula(*point):
            if x.dtype is to:
                return x[point]
            if to is POWERS:
                wide = power_value(ir.Cast(x[point], dtypes.f64), mode, attrs.get("round"))
                return ir.Cast(wide, to, mode)
            return ir.Cast(x[point], to, mode)

        return [b.compute("cast", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        edge = np.array([np.nan, np.inf, -np.inf, -0.0, 0.9, -0.9, 1e20, -1e20, 127.5, 255.6])
        targets = [dtypes.f32, dtypes.f64, dtypes.f16, dtypes.bf16, dtypes.i8, dtypes.u8]
        targets += [dtypes.i32, dtypes.i64, dtypes.bool_]
        found = [Sample((edge.astype(np.float32),), {"to": to}) for to in targets]
        found += [Sample((common.edge_floats(dtypes.f16),), {"to": to}) for to in targets]
        found += [Sample((common.edge_floats(dtypes.bf16),), {"to": to}) for to in targets]
        wide = np.array([0, 1, -1, 127, 128, 255, 256, -129, 2**31, -(2**40)])
        found += [Sample((wide,), {"to": to}) for to in targets]
        found += [Sample((common.bools(2, 3),), {"to": to}) for to in targets]
        for kind in (dtypes.i4, dtypes.u4, dtypes.of("i2"), dtypes.of("u2")):
            every = np.arange(1 << kind.bits).astype(np.uint8).view(kind.numpy)
            found += [Sample((every,), {"to": to}) for to in targets]
        found.append(Sample((np.array([1.5, -2.5, 300.0, -129.0], np.float32),),
                            {"to": dtypes.i8, "mode": "wrap"}))  # fmt: skip
        found += _power_samples()
        found.append(Sample((common.scalar(-3.99),), {"to": dtypes.i32}))
        found.append(Sample((common.floats(0, 2),), {"to": dtypes.i64}))
        return found


def cast_array(x: np.ndarray, to: DType, mode: str) -> np.ndarray:
    source = dtypes.from_numpy(x.dtype)
    if to.is_bool:
        return common.widen_array(x) != 0
    if source.is_float and to.is_int:
        return _float_to_int(x.astype(np.float64), to, mode)
    with np.errstate(all="ignore"):
        if source.is_float and to.bits <= 8 and mode == "saturate":
            x = _clamp_to_finite(x.astype(np.float64), to)
        return x.astype(to.numpy)


def _float_to_int(x: np.ndarray, to: DType, mode: str) -> np.ndarray:
    low, high = int(to.lowest), int(to.highest)

    def one(value: float) -> int:
        if np.isnan(value):
            return 0
        if mode == "saturate":
            if np.isinf(value):
                return high if value > 0 else low
            return min(max(int(value), low), high)
        whole = 0 if np.isinf(value) else int(value) % (1 << to.bits)
        return whole - (1 << to.bits) if whole > high else whole

    flat = [one(float(value)) for value in x.reshape(-1)]
    return np.array(flat, np.uint64 if high > 2**63 else np.int64).reshape(x.shape).astype(to.numpy)


def _clamp_to_finite(x: np.ndarray, to: DType) -> np.ndarray:
    info = ml_dtypes.finfo(to.numpy)
    return np.clip(x, float(info.min), float(info.max))


@register
class Bitcast(OpDef):
    """The bits of x as element type `to`, of the same width. A bool is a byte of 0 or 1."""

    name = "bitcast"
    kind = Kind.ELEMENTWISE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        (x,), to = common.tensor_types(self.name, inputs, 1), attrs.get("to")
        if not isinstance(to, DType) or to.bits != x.dtype.bits:
            raise type_error(self.name, f"{x.dtype} and {to} differ in width")
        return [TensorType(to, x.shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, to = np.asarray(inputs[0]), attrs["to"]
        if to.is_bool:
            return [x.view(np.uint8) != 0]
        return [x.view(to.numpy)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        to = outputs[0].dtype

        def formula(*point):
            value = x[point]
            if to.is_bool or x.dtype.is_bool:  # a byte on one side, one bit as a value
                byte = value if x.dtype.is_bool else _as_bits(value, dtypes.u8)
                return _as_bits(ir.Cast(byte, dtypes.bool_ if to.is_bool else dtypes.u8), to)
            return _as_bits(value, to)

        return [b.compute("bitcast", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        edge = common.edge_floats()
        pairs = [
            (edge, dtypes.i32), (edge.astype(np.float64), dtypes.u64),
            (edge.astype(np.float16), dtypes.bf16), (common.bools(2, 3), dtypes.u8),
            (np.arange(-3, 4, dtype=np.int8), dtypes.f8e5m2), (common.integers(0, 3), dtypes.f64),
            (np.array([0, 1, 2, 255], np.uint8), dtypes.bool_), (common.scalar(-1.5), dtypes.u32),
        ]  # fmt: skip
        return [Sample((x,), {"to": to}) for x, to in pairs]


def _as_bits(value: ir.Expr, to: DType) -> ir.Expr:
    return value if value.dtype is to else ir.Bitcast(value, to)


# --- powers of two --------------------------------------------------------------------------------


def power_value(x: Expr, mode: str, rounding: str | None) -> Expr:
    """An f64 as a power of two in f8e8m0fnu's range, or NaN."""
    added = {"up": FRACTION, "down": 0}.get(rounding or "nearest", (FRACTION + 1) >> 1)
    bits = ir.Bitcast(x, dtypes.u64) + added
    power: Expr = ir.Bitcast(bits & (((1 << 63) - 1) ^ FRACTION), dtypes.f64)
    least, most, nan = (ir.Lit(v, dtypes.f64) for v in (LEAST, MOST, float("nan")))
    is_small, is_large = ir.Compare("lt", power, least), ir.Compare("gt", power, most)
    is_small = is_small | ir.Compare("le", x, ir.Lit(0.0, dtypes.f64))
    if mode == "saturate":
        power = ir.Select(is_small, least, ir.Select(is_large, most, power))
        return ir.Select(ir.Unary("isnan", x), nan, power)
    return ir.Select(is_small | is_large | ir.Unary("isnan", x), nan, power)


def power_array(x: np.ndarray, mode: str, rounding: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(x)  # x = fraction · 2^exponent, 0.5 <= fraction < 1
        down = exponent - 1
        up = down + {"up": fraction > 0.5, "down": 0, "nearest": fraction >= 0.75}[rounding]
        power = np.where(np.isinf(x), x, np.ldexp(1.0, np.clip(up, -1000, 1000)))
        power = np.where(x > 0, power, 0.0)
        is_out = (power < LEAST) | (power > MOST)
        if mode == "saturate":
            power, is_out = np.clip(power, LEAST, MOST), np.zeros_like(is_out)
        return np.where(is_out | np.isnan(x), np.nan, power).astype(np.float32).astype(POWERS.numpy)


def _power_samples() -> list[Sample]:
    edge = [0.0, -1.0, np.nan, np.inf, 2.0**-127, 1.2 * 2**-127, 2.0**-140, 1.0, 1.2, 1.5, 1.8]
    edge += [3e38, 2.0**127, 0.124, 6.0]
    given = [{"to": POWERS, "mode": mode, "round": r} for mode in MODES for r in ROUNDS]
    found = [Sample((np.array([*edge, 1e-300, 1e300]),), attrs) for attrs in given]
    return [*found, Sample((np.array(edge, np.float32),), given[1])]
