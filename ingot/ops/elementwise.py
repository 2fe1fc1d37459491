"""Element-wise operators: arithmetic, comparison, logic, rounding, math, where, clip, identity.

In: tensors that broadcast, of one element type (importers insert casts). Out: rows of
`graph.opdef.TABLE`. Called by ops/__init__.py; imported from ONNX by frontends/onnx/elementwise.py.

Integers wrap; integer division truncates and by zero is a run-time error; max, min, relu and clip
propagate NaN; round goes half to even. Activations are in activation.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ingot import dtypes
from ingot.graph.opdef import Attrs, Kind, OpDef, Sample, register, type_error
from ingot.graph.types import TensorType, Type
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.ir import Buffer, Expr
from ingot.ops import common
from ingot.ops.pointwise import SAMPLED, Row, define


def lit(value: float, like: Expr) -> Expr:
    """A constant of `like`'s element type."""
    return ir.value_of(value, like.dtype)


def unary(op: str) -> Callable[[Expr], Expr]:
    return lambda x: ir.Unary(op, x)


def binary(op: str) -> Callable[[Expr, Expr], Expr]:
    return lambda x, y: ir.Binary(op, x, y)


def compare(op: str) -> Callable[[Expr, Expr], Expr]:
    return lambda x, y: ir.Compare(op, x, y)


def call(fn: str) -> Callable[..., Expr]:
    return lambda *xs: ir.Math(fn, xs)


def precise(fn: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """`fn` computed in f64: the reference of a function whose result is rounded once."""
    return lambda *xs, **attrs: fn(*(x.astype(np.float64) for x in xs), **attrs)


def erf_array(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid_array(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


# --- formulas -----------------------------------------------------------------------------------


def abs_value(x: Expr) -> Expr:
    return ir.Unary("abs", x) if x.dtype.is_signed else x


def sign_value(x: Expr) -> Expr:
    """NaN gives NaN; +0 and -0 give 0."""
    zero, one = lit(0, x), lit(1, x)
    positive = ir.Compare("gt", x, zero)
    if not x.dtype.is_signed:
        return ir.Select(positive, one, zero)
    known = ir.Select(positive, one, ir.Select(ir.Compare("lt", x, zero), lit(-1, x), zero))
    return ir.Select(ir.Unary("isnan", x), x, known) if x.dtype.is_float else known


def isinf_array(x: np.ndarray, positive: bool, negative: bool) -> np.ndarray:
    return (positive & np.isposinf(x)) | (negative & np.isneginf(x))


def isinf_value(x: Expr, positive: bool, negative: bool) -> Expr:
    inf = float("inf")
    wanted = [inf] * positive + [-inf] * negative
    found: Expr = ir.Lit(False, dtypes.bool_)
    for value in wanted:
        found = ir.Compare("eq", x, lit(value, x)) | found
    return found


def div_array(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Floats divide; integers truncate towards zero, as C and ONNX Runtime do."""
    if not np.issubdtype(x.dtype, np.integer):
        return x / y
    quotient = x // y
    inexact = quotient * y != x
    return quotient + (inexact & ((x < 0) != (y < 0))).astype(x.dtype)


def safe_divisor(y: Expr) -> Expr:
    """`y`, or 1 where a division traps: 0 (a separate check reports it) and -1 (overflow)."""
    trap: Expr = ir.Compare("eq", y, lit(0, y))
    if y.dtype.is_signed:
        trap = trap | ir.Compare("eq", y, lit(-1, y))
    return ir.Select(trap, lit(1, y), y)


def div_value(x: Expr, y: Expr) -> Expr:
    if x.dtype.is_float:
        return x / y
    quotient = x / safe_divisor(y)
    if not x.dtype.is_signed:
        return quotient
    return ir.Select(ir.Compare("eq", y, lit(-1, y)), ir.Unary("neg", x), quotient)


def mod_array(x: np.ndarray, y: np.ndarray, fmod: bool) -> np.ndarray:
    return np.fmod(x, y) if fmod else np.mod(x, y)


def mod_value(x: Expr, y: Expr, fmod: bool) -> Expr:
    """`fmod`: the remainder has the dividend's sign, as in C; otherwise the divisor's."""
    if x.dtype.is_int:
        return ir.Binary("rem" if fmod else "mod", x, safe_divisor(y))
    remainder = ir.Math("fmod", (x, y))
    if fmod:
        return remainder
    zero = lit(0, x)
    signs_differ = ir.Binary("xor", ir.Compare("lt", remainder, zero), ir.Compare("lt", y, zero))
    wrong_sign = ir.Compare("ne", remainder, zero) & signs_differ
    return ir.Select(wrong_sign, remainder + y, remainder)


def shift_array(x: np.ndarray, y: np.ndarray, left: bool) -> np.ndarray:
    """A shift by a negative amount or by the width or more gives the sign (right) or 0 (left)."""
    width = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < width)
    amount = np.where(inside, y, 0).astype(x.dtype)
    beyond = np.where(x < 0, -1, 0) if not left else np.zeros_like(x)
    return np.where(inside, x << amount if left else x >> amount, beyond).astype(x.dtype)


def shr_value(x: Expr, y: Expr) -> Expr:
    """Arithmetic shift right: an out-of-range amount gives the sign of a signed number."""
    if not x.dtype.is_signed:
        return ir.Binary("shr", x, y)
    last = lit(x.dtype.bits - 1, y)
    out_of_range = ir.Compare("lt", y, lit(0, y)) | ir.Compare("gt", y, last)
    return ir.Binary("shr", x, ir.Select(out_of_range, last, y))


def relu_value(x: Expr) -> Expr:
    return ir.Binary("max", x, lit(0, x))


def _isinf_samples() -> list[Sample]:
    flags = [(True, False), (False, True), (False, False)]
    return [Sample((common.edge_floats(),), {"positive": p, "negative": n}) for p, n in flags]


def _fmod_samples() -> list[Sample]:
    x = np.array([-4, 7, 5, 4, -7, 8])
    y = np.array([2, -3, 8, -2, 3, 5])
    edge = common.edge_floats()
    cases = [(x, y), (x.astype(np.int8), y.astype(np.int8)), (x * 0.75, y * 1.5)]
    found = [Sample(pair, {"fmod": fmod}) for pair in cases for fmod in (True, False)]
    return [*found, Sample((edge[:, None], edge[None, :]), {"fmod": True})]


# --- the table ----------------------------------------------------------------------------------

BOOL = dtypes.bool_

UNARY = [
    Row("neg", np.negative, unary("neg"), "number", cheap=True),
    Row("abs", np.abs, abs_value, "number", cheap=True),
    Row("sign", np.sign, sign_value, "number", cheap=True),
    Row("reciprocal", lambda x: 1 / x, lambda x: 1 / x),
    Row("sqrt", np.sqrt, unary("sqrt")),
    Row("rsqrt", precise(lambda x: 1 / np.sqrt(x)), call("rsqrt")),
    Row("floor", np.floor, unary("floor"), cheap=True),
    Row("ceil", np.ceil, unary("ceil"), cheap=True),
    Row("round", np.rint, unary("round"), cheap=True),
    Row("trunc", np.trunc, unary("trunc"), cheap=True),
    Row("exp", precise(np.exp), call("exp")),
    Row("exp2", precise(np.exp2), call("exp2")),
    Row("expm1", precise(np.expm1), call("expm1")),
    Row("log", precise(np.log), call("log")),
    Row("log2", precise(np.log2), call("log2")),
    Row("log1p", precise(np.log1p), call("log1p")),
    Row("erf", precise(erf_array), call("erf")),
    Row("sigmoid", precise(sigmoid_array), call("sigmoid")),
    Row("tanh", precise(np.tanh), call("tanh")),
    Row("sin", precise(np.sin), call("sin")),
    Row("cos", precise(np.cos), call("cos")),
    Row("tan", precise(np.tan), call("tan")),
    Row("asin", precise(np.arcsin), call("asin")),
    Row("acos", precise(np.arccos), call("acos")),
    Row("atan", precise(np.arctan), call("atan")),
    Row("sinh", precise(np.sinh), call("sinh")),
    Row("cosh", precise(np.cosh), call("cosh")),
    Row("asinh", precise(np.arcsinh), call("asinh")),
    Row("acosh", precise(np.arccosh), call("acosh")),
    Row("atanh", precise(np.arctanh), call("atanh")),
    Row("relu", lambda x: np.maximum(x, x.dtype.type(0)), relu_value, "number", cheap=True),
    Row("not", np.logical_not, unary("not"), "bool", cheap=True),
    Row("bitwise_not", np.invert, unary("not"), "int", cheap=True),
    Row("isnan", np.isnan, unary("isnan"), result=BOOL, cheap=True),
    Row(
        "isinf", isinf_array, isinf_value, result=BOOL, cheap=True, more=_isinf_samples,
        attrs={"positive": True, "negative": True},
    ),
]  # fmt: skip

BINARY = [
    Row("add", np.add, binary("add"), "number", 2, cheap=True),
    Row("sub", np.subtract, binary("sub"), "number", 2, cheap=True),
    Row("mul", np.multiply, binary("mul"), "number", 2, cheap=True),
    Row("div", div_array, div_value, "number", 2, divides=True),
    Row(
        "mod", mod_array, mod_value, "number", 2, divides=True, more=_fmod_samples,
        attrs={"fmod": False},
    ),
    Row("min", np.minimum, binary("min"), "number", 2, cheap=True),
    Row("max", np.maximum, binary("max"), "number", 2, cheap=True),
    Row("and", np.bitwise_and, binary("and"), "bits", 2, cheap=True),
    Row("or", np.bitwise_or, binary("or"), "bits", 2, cheap=True),
    Row("xor", np.bitwise_xor, binary("xor"), "bits", 2, cheap=True),
    Row("shl", lambda x, y: shift_array(x, y, True), binary("shl"), "int", 2, cheap=True),
    Row("shr", lambda x, y: shift_array(x, y, False), shr_value, "int", 2, cheap=True),
    Row("eq", np.equal, compare("eq"), "any", 2, BOOL, cheap=True),
    Row("lt", np.less, compare("lt"), "number", 2, BOOL, cheap=True),
    Row("le", np.less_equal, compare("le"), "number", 2, BOOL, cheap=True),
    Row("gt", np.greater, compare("gt"), "number", 2, BOOL, cheap=True),
    Row("ge", np.greater_equal, compare("ge"), "number", 2, BOOL, cheap=True),
]  # fmt: skip

define([*UNARY, *BINARY])


# --- operators whose operands differ in type ----------------------------------------------------


@register
class Where(OpDef):
    """a where the condition holds, else b."""

    name = "where"
    takes_strings = True
    kind = Kind.ELEMENTWISE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        cond, a, b = common.tensor_types(self.name, inputs, 3)
        common.require_dtype(self.name, cond, dtypes.bool_)
        dtype = common.require_same_dtype(self.name, a, b)
        return [TensorType(dtype, common.broadcast_shapes(cond.shape, a.shape, b.shape))]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        cond, a, b = (np.asarray(x) for x in inputs)
        return [np.where(cond, a, b).astype(a.dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        operands = [x for x in inputs if x is not None]

        def formula(*point):
            return ir.Select(*(common.broadcast_load(x, point) for x in operands))

        return [b.compute("where", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        shapes: list[tuple[tuple[int, ...], ...]] = [
            ((2, 3), (2, 3), (2, 3)), ((), (3,), (2, 1)), ((4, 1), (), (1, 3)), ((), (), ()),
            ((0, 2), (1, 2), ()),
        ]  # fmt: skip
        found = []
        for c, x, y in shapes:
            found.append(Sample((common.bools(*c), common.floats(*x), common.floats(*y, key=1))))
        for dtype in SAMPLED["any"]:
            pair = common.data(4, dtype=dtype), common.data(4, dtype=dtype, key=1)
            found.append(Sample((common.bools(4), *pair)))
        return [*found, Sample((common.bools(14), common.edge_floats(), -common.edge_floats()))]


@register
class Clip(OpDef):
    """min(max(x, lo), hi); either bound may be absent. NaN propagates; lo > hi gives hi."""

    name = "clip"
    kind = Kind.ELEMENTWISE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        x = common.tensor_type(self.name, inputs[0])
        bounds = [common.tensor_type(self.name, t) for t in inputs[1:] if t is not None]
        common.require_same_dtype(self.name, x, *bounds)
        if x.dtype.is_bool:
            raise type_error(self.name, "bool is not ordered")
        shape = common.broadcast_shapes(x.shape, *(t.shape for t in bounds))
        return [TensorType(x.dtype, shape)]

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        x, low, high = (*inputs, None, None)[:3]
        out = common.widen_array(np.asarray(x))
        if low is not None:
            out = np.maximum(out, common.widen_array(np.asarray(low)))
        if high is not None:
            out = np.minimum(out, common.widen_array(np.asarray(high)))
        return [np.asarray(out).astype(np.asarray(x).dtype)]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        x, low, high = (*inputs, None, None)[:3]
        assert x is not None

        def formula(*point):
            out = common.widen(common.broadcast_load(x, point))
            if low is not None:
                out = ir.Binary("max", out, common.widen(common.broadcast_load(low, point)))
            if high is not None:
                out = ir.Binary("min", out, common.widen(common.broadcast_load(high, point)))
            return common.narrow(out, x.dtype)

        return [b.compute("clip", outputs[0].shape, formula)]

    def samples(self) -> list[Sample]:
        found = []
        for dtype in SAMPLED["number"]:
            x = common.data(3, 4, dtype=dtype)
            one, four = common.scalar(1, dtype), common.scalar(4, dtype)
            bounds = [(one, four), (four, one), (None, one), (one, None)]
            found += [Sample((x, low, high)) for low, high in bounds]
        nan = common.scalar(float("nan"))
        found += [Sample((common.edge_floats(), common.scalar(-1), common.scalar(1)))]
        found += [Sample((common.floats(3), nan, None)), Sample((common.floats(),))]
        return [*found, Sample((common.floats(2, 0), common.scalar(0), None))]


@register
class Identity(OpDef):
    """x, unchanged."""

    name = "identity"
    takes_strings = True
    kind = Kind.ELEMENTWISE
    cheap = True

    def infer(self, inputs: Sequence[Type | None], attrs: Attrs) -> list[TensorType]:
        return common.tensor_types(self.name, inputs, 1)

    def reference(self, inputs: Sequence[np.ndarray | None], attrs: Attrs) -> list[np.ndarray]:
        return [np.array(inputs[0])]

    def compute(
        self, b: Build, inputs: Sequence[Buffer | None], outputs: Sequence[TensorType], attrs: Attrs
    ) -> list[Buffer]:
        (x,) = inputs
        assert x is not None
        return [b.compute("identity", x.shape, lambda *point: x[point])]

    def samples(self) -> list[Sample]:
        found = [Sample((common.data(2, 3, dtype=d),)) for d in SAMPLED["any"]]
        return [*found, Sample((common.floats(),)), Sample((common.edge_floats(),))]
