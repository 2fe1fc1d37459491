"""Converters of element-wise operators that are one node: functions, arithmetic, comparisons,
logic, bits, casts, choices.

In: operands in any mix of element types, numbers among them. Out: nodes of ops/elementwise.py and
ops/cast.py. Called by the importer. Divisions and powers are in division.py, longer formulas in
formulas.py.
"""

from __future__ import annotations

from typing import Any

from ingot import dtypes
from ingot.dtypes import DType
from ingot.frontends.torch.common import cast, common_dtype, filled, kind, promoted
from ingot.frontends.torch.registry import Converter, Importer, Scalar, TorchNode, aten
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

FUNCTIONS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2", "expm1",
    "log", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip
KEEPS_TYPE = ("abs", "neg", "ceil", "floor", "round", "trunc", "sign", "relu")
IDENTITY_OF_INTEGERS = ("ceil", "floor", "round", "trunc")
OTHER_NAMES = {
    "special_expm1": "expm1", "special_exp2": "exp2", "special_log1p": "log1p",
    "special_erf": "erf", "special_expit": "sigmoid", "sgn": "sign",
}  # fmt: skip

ARITHMETIC = {"maximum": "max", "minimum": "min"}
COMPARISONS = {"eq": "eq", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
SHIFTS = {
    "bitwise_left_shift": "shl", "__lshift__": "shl", "bitwise_right_shift": "shr",
    "__rshift__": "shr",
}  # fmt: skip


def function(op: str) -> Converter:
    """A function of floats: integers become the result's type."""

    def convert(ctx: Importer, node: TorchNode, x: Value) -> Value:
        return ctx.g.add(op, [cast(ctx, x, node.output.dtype)])

    return convert


def same_type(op: str) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value) -> Value:
        if x.dtype.is_bool or (op in IDENTITY_OF_INTEGERS and not x.dtype.is_float):
            return x
        return ctx.g.add(op, [x])

    return convert


for name in FUNCTIONS:
    aten(f"aten.{name}.default")(function(name))
for name in KEEPS_TYPE:
    aten(f"aten.{name}.default")(same_type(name))
for name, op in OTHER_NAMES.items():
    aten(f"aten.{name}.default")((function if op in FUNCTIONS else same_type)(op))


def binary(ctx: Importer, op: str, x: Scalar, y: Scalar, dtype: DType) -> Value:
    """Computed in this type; next to a number, f16 and bf16 are widened, as the number is exact."""
    is_exact = isinstance(x, Value) and isinstance(y, Value)
    inner = dtype if is_exact else wide_dtype(dtype)
    made = ctx.g.add(op, [promoted(ctx, x, inner), promoted(ctx, y, inner)])
    return cast(ctx, made, dtype) if made.dtype is inner else made


def scaled(ctx: Importer, x: Scalar, factor: Any, dtype: DType) -> Scalar:
    if isinstance(factor, bool | int | float) and factor == 1:
        return x
    if isinstance(x, Value):
        return binary(ctx, "mul", cast(ctx, x, dtype), factor, dtype)
    return binary(ctx, "mul", ctx.scalar(x, dtype), factor, dtype)


@aten("aten.add.Tensor", "aten.add.Scalar")
def add(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar, alpha: Any = 1) -> Value:
    dtype = node.output.dtype
    return binary(ctx, "or" if dtype.is_bool else "add", x, scaled(ctx, y, alpha, dtype), dtype)


@aten("aten.sub.Tensor", "aten.sub.Scalar")
def sub(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar, alpha: Any = 1) -> Value:
    dtype = node.output.dtype
    return binary(ctx, "sub", x, scaled(ctx, y, alpha, dtype), dtype)


@aten("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar, alpha: Any = 1) -> Value:
    return sub(ctx, node, y, x, alpha)


@aten("aten.mul.Tensor", "aten.mul.Scalar")
def mul(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
    dtype = node.output.dtype
    return binary(ctx, "and" if dtype.is_bool else "mul", x, y, dtype)


def arithmetic(op: str) -> Converter:
    """bool counts as 0 and 1: the larger of two is `or`."""

    def convert(ctx: Importer, node: TorchNode, x: Value, y: Value) -> Value:
        dtype = node.output.dtype
        if dtype.is_bool:
            return ctx.g.add({"max": "or", "min": "and"}[op], [x, y])
        return binary(ctx, op, x, y, dtype)

    return convert


for name, op in ARITHMETIC.items():
    aten(f"aten.{name}.default")(arithmetic(op))
aten("aten.max.other")(arithmetic("max"))
aten("aten.min.other")(arithmetic("min"))


def compared(op: str) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
        dtype = common_dtype(x, y)
        if dtype.is_bool and op != "eq":
            dtype = dtypes.u8
        return binary(ctx, op, x, y, dtype)

    return convert


def not_equal(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
    return ctx.g.add("not", [compared("eq")(ctx, node, x, y)])


for name, op in COMPARISONS.items():
    aten(f"aten.{name}.Tensor", f"aten.{name}.Scalar")(compared(op))
aten("aten.ne.Tensor", "aten.ne.Scalar")(not_equal)


def logic(op: str) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value, y: Value) -> Value:
        return ctx.g.add(op, [cast(ctx, v, dtypes.bool_) for v in (x, y)])

    return convert


for name, op in LOGIC.items():
    aten(f"aten.{name}.default")(logic(op))


@aten("aten.logical_not.default")
def logical_not(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return ctx.g.add("not", [cast(ctx, x, dtypes.bool_)])


def overloads_of(name: str) -> tuple[str, ...]:
    if name.startswith("__"):
        return "Tensor", "Scalar"
    scalar = "Tensor_Scalar" if "shift" in name else "Scalar"
    return "Tensor", scalar, "Scalar_Tensor"


def bits(op: str) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
        return binary(ctx, op, x, y, node.output.dtype)

    return convert


for name, op in {**BITS, **SHIFTS}.items():
    aten(*(f"aten.{name}.{overload}" for overload in overloads_of(name)))(bits(op))


@aten("aten.bitwise_not.default")
def bitwise_not(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return ctx.g.add("not" if x.dtype.is_bool else "bitwise_not", [x])


# --- tests of floats ----------------------------------------------------------------------------


@aten("aten.isnan.default")
def isnan(ctx: Importer, node: TorchNode, x: Value) -> Value:
    if not x.dtype.is_float:
        return filled(ctx, False, dtypes.bool_, x.shape)
    return ctx.g.add("isnan", [x])


def isinf(positive: bool, negative: bool) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value) -> Value:
        if not x.dtype.is_float:
            return filled(ctx, False, dtypes.bool_, x.shape)
        return ctx.g.add("isinf", [x], positive=positive, negative=negative)

    return convert


aten("aten.isinf.default")(isinf(True, True))
aten("aten.isposinf.default")(isinf(True, False))
aten("aten.isneginf.default")(isinf(False, True))


@aten("aten.isfinite.default")
def isfinite(ctx: Importer, node: TorchNode, x: Value) -> Value:
    if not x.dtype.is_float:
        return filled(ctx, True, dtypes.bool_, x.shape)
    return ctx.g.add("lt", [ctx.g.add("abs", [x]), ctx.scalar(float("inf"), x.dtype)])


# --- choices ------------------------------------------------------------------------------------


@aten("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(ctx: Importer, node: TorchNode, condition: Value, x: Scalar, y: Scalar) -> Value:
    chosen = [promoted(ctx, v, node.output.dtype) for v in (x, y)]
    return ctx.g.add("where", [cast(ctx, condition, dtypes.bool_), *chosen])


@aten("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(ctx: Importer, node: TorchNode, x: Value, mask: Value, value: Scalar) -> Value:
    return where(ctx, node, mask, value, x)


@aten("aten.clamp.default", "aten.clamp.Tensor", "aten.hardtanh.default", "aten.clip.default")
def clamp(
    ctx: Importer, node: TorchNode, x: Value, low: Scalar | None = None,
    high: Scalar | None = None,
) -> Value:  # fmt: skip
    dtype = node.output.dtype
    exact = all(v is None or isinstance(v, Value) for v in (low, high))
    inner = dtype if exact else wide_dtype(dtype)
    bounds = [None if v is None else promoted(ctx, v, inner) for v in (low, high)]
    return cast(ctx, ctx.g.add("clip", [cast(ctx, x, inner), *bounds]), dtype)


@aten("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(ctx: Importer, node: TorchNode, x: Value, low: Scalar) -> Value:
    return clamp(ctx, node, x, low, None)


@aten("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(ctx: Importer, node: TorchNode, x: Value, high: Scalar) -> Value:
    return clamp(ctx, node, x, None, high)


@aten("aten.relu6.default")
def relu6(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return clamp(ctx, node, x, 0, 6)


def ignoring_nan(op: str) -> Converter:
    """fmax and fmin: of a NaN and another number, the number."""

    def convert(ctx: Importer, node: TorchNode, x: Value, y: Value) -> Value:
        dtype, g = node.output.dtype, ctx.g
        x, y = cast(ctx, x, dtype), cast(ctx, y, dtype)
        if kind(dtype) < 2:
            return arithmetic(op)(ctx, node, x, y)
        made = g.add("where", [g.add("isnan", [x]), y, g.add(op, [x, y])])
        return g.add("where", [g.add("isnan", [y]), x, made])

    return convert


aten("aten.fmax.default")(ignoring_nan("max"))
aten("aten.fmin.default")(ignoring_nan("min"))


# --- casts and copies ---------------------------------------------------------------------------


@aten("aten._to_copy.default", "prims.convert_element_type.default")
def to_copy(ctx: Importer, node: TorchNode, x: Value, *dtype: Any, **options: Any) -> Value:
    return cast(ctx, x, node.output.dtype)


@aten(
    "aten.clone.default", "aten.alias.default", "aten.detach.default", "aten.detach_.default",
    "aten.lift_fresh_copy.default", "aten.lift_fresh.default", "aten.lift.default",
    "aten.contiguous.default", "prims.clone.default",
    "aten._conj.default", "aten.conj_physical.default", "aten.resolve_conj.default",
    "aten.resolve_neg.default",
    "aten.alias_copy.default", "aten.detach_copy.default", "prims.view_of.default",
)  # fmt: skip
def same(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return x


@aten("aten.copy.default")
def copy(ctx: Importer, node: TorchNode, x: Value, source: Value, *rest: Any) -> Value:
    source = cast(ctx, source, x.dtype)
    return source if source.shape == x.shape else ctx.g.add("expand", [source], shape=x.shape)


@aten("aten.view.dtype")
def bits_as(ctx: Importer, node: TorchNode, x: Value, dtype: Any) -> Value:
    to = node.output.dtype
    if to.bits != x.dtype.bits:
        raise ctx.unsupported(node, f"a view of {x.dtype} as {to}, of another width")
    return x if to is x.dtype else ctx.g.add("bitcast", [x], to=to)
