"""ONNX converters of element-wise operators: arithmetic, comparison, math, Where, Cast, Clip.

In: ONNX nodes. Out: nodes of ops/elementwise.py, ops/power.py and ops/cast.py. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from ingot import dtypes
from ingot.dtypes import DType
from ingot.frontends.common.elements import cast, reshape, scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.ir import Value
from ingot.ops.cast import POWERS, ROUNDS

UNARY = {
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Reciprocal": "reciprocal", "Exp": "exp",
    "Log": "log", "Sqrt": "sqrt", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Erf": "erf",
    "Sigmoid": "sigmoid", "Tanh": "tanh", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin",
    "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh", "Relu": "relu", "Not": "not", "BitwiseNot": "bitwise_not",
    "IsNaN": "isnan", "Identity": "identity",
}  # fmt: skip

BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and", "Or": "or", "Xor": "xor",
    "Equal": "eq", "Less": "lt", "Greater": "gt",
}  # fmt: skip

NEWER_BINARY = {
    "LessOrEqual": "le", "GreaterOrEqual": "ge", "BitwiseAnd": "and", "BitwiseOr": "or",
    "BitwiseXor": "xor",
}  # fmt: skip


def one_operand(op: str) -> Converter:
    return lambda ctx, node: [ctx.g.add(op, [ctx.value(node, 0)])]


def two_operands(op: str) -> Converter:
    return lambda ctx, node: [ctx.g.add(op, [ctx.value(node, 0), ctx.value(node, 1)])]


def two_aligned(op: str) -> Converter:
    return lambda ctx, node: [ctx.g.add(op, aligned(ctx, node))]


def aligned(ctx: Importer, node: OnnxNode) -> list[Value]:
    """Before opset 7 the second operand is aligned with axis `axis` of the first."""
    a, b = ctx.value(node, 0), ctx.value(node, 1)
    rank = a.tensor.rank
    if not node.attr("broadcast", 0) or "axis" not in node.attrs:
        return [a, b]
    trailing = rank - node.attr("axis") % max(rank, 1) - b.tensor.rank
    if trailing < 0:
        raise bad_model(node, f"{b.type} at axis {node.attr('axis')} does not fit {a.type}")
    return [a, reshape(ctx, b, (*b.shape, *[1] * trailing))]


for name, op in UNARY.items():
    onnx_op(name)(one_operand(op))
for name, op in BINARY.items():
    onnx_op(name)(two_aligned(op))
    onnx_op(name, since=7)(two_operands(op))
for name, op in NEWER_BINARY.items():
    onnx_op(name)(two_operands(op))


@onnx_op("IsInf")
def isinf(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    positive, negative = (bool(node.attr(n, 1)) for n in ("detect_positive", "detect_negative"))
    return [ctx.g.add("isinf", [ctx.value(node, 0)], positive=positive, negative=negative)]


@onnx_op("Mod")
def mod(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [ctx.value(node, 0), ctx.value(node, 1)]
    return [ctx.g.add("mod", operands, fmod=bool(node.attr("fmod", 0)))]


@onnx_op("BitShift")
def bit_shift(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    direction = node.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise bad_model(node, f"direction {direction!r} is neither LEFT nor RIGHT")
    op = "shl" if direction == "LEFT" else "shr"
    return [ctx.g.add(op, [ctx.value(node, 0), ctx.value(node, 1)])]


@onnx_op("Pow")
def pow_aligned(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    base, exponent = aligned(ctx, node)
    return [power(ctx, base, exponent, ctx.known(node, 1))]


@onnx_op("Pow", since=7)
def pow_broadcast(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [power(ctx, ctx.value(node, 0), ctx.value(node, 1), ctx.known(node, 1))]


def power(ctx: Importer, base: Value, exponent: Value, known: np.ndarray | None) -> Value:
    """The result has the base's type. It is computed in a type that holds the exponent too."""
    dtype = power_dtype(base.dtype, exponent.dtype)
    if known is not None and base.dtype.is_float:  # mostly a 2 or a 0.5, of any type
        with np.errstate(all="ignore"):
            narrowed = known.astype(base.dtype.numpy).astype(known.dtype)
        dtype = base.dtype if np.array_equal(narrowed, known) else dtype
    raised = ctx.g.add("pow", [cast(ctx, x, dtype) for x in (base, exponent)])
    return cast(ctx, raised, base.dtype)


def power_dtype(base: DType, exponent: DType) -> DType:
    if base.is_int and exponent.is_int:
        return base if exponent.bits <= base.bits else dtypes.i64
    if base.is_int or (exponent.is_int and exponent.bits >= 32):
        return dtypes.f64
    return exponent if exponent.is_float and exponent.bits > base.bits else base


def variadic(op: str) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        return [folded(ctx, node, op)]

    return convert


def folded(ctx: Importer, node: OnnxNode, op: str) -> Value:
    total = ctx.value(node, 0)
    for index in range(1, len(node.inputs)):
        total = ctx.g.add(op, [total, ctx.value(node, index)])
    return total if len(node.inputs) > 1 else ctx.g.add("identity", [total])


for name, op in {"Sum": "add", "Max": "max", "Min": "min"}.items():
    onnx_op(name)(variadic(op))


@onnx_op("Mean")
def mean(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    total = folded(ctx, node, "add")
    return [ctx.g.add("div", [total, scalar(ctx, len(node.inputs), total.dtype)])]


@onnx_op("Where")
def where(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("where", [ctx.value(node, i) for i in range(3)])]


@onnx_op("Clip")
def clip_attrs(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    bounds = [node.attr(name) for name in ("min", "max")]
    given = [None if v is None else scalar(ctx, v, x.dtype) for v in bounds]
    return [ctx.g.add("clip", [x, *given])]


@onnx_op("Clip", since=11)
def clip(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("clip", [ctx.value(node, 0), ctx.optional(node, 1), ctx.optional(node, 2)])]


@onnx_op("Cast")
def cast_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    to = node.attr("to")
    if isinstance(to, str):  # before opset 6 the type is given by name
        if to.upper() not in dict(onnx.TensorProto.DataType.items()):
            raise bad_model(node, f"{to!r} is not an element type")
        to = onnx.TensorProto.DataType.Value(to.upper())
    return [converted(ctx, node, dtype_of(to, node.where))]


@onnx_op("CastLike")
def cast_like(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [converted(ctx, node, ctx.value(node, 1).dtype)]


def converted(ctx: Importer, node: OnnxNode, to: DType) -> Value:
    """`saturate=0` applies to float8 only: overflow gives NaN or infinity. Integers of 2 and 4 bits
    keep the low bits, as ONNX specifies; for wider ones overflow is unspecified: they saturate."""
    x = ctx.value(node, 0)
    overflows = to.is_float and to.bits <= 8 and not node.attr("saturate", 1)
    keeps_bits = to.is_int and to.bits < 8
    mode = "wrap" if overflows or keeps_bits else "saturate"
    rounding = node.attr("round_mode", "up")
    if to is not POWERS:
        return ctx.g.add("cast", [x], to=to, mode=mode)
    if rounding not in ROUNDS:
        raise bad_model(node, f"round_mode {rounding!r} is not one of {', '.join(ROUNDS)}")
    return ctx.g.add("cast", [x], to=to, mode=mode, round=rounding)
