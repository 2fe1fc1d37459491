"""Converters of divisions, remainders and powers, which torch rounds in several ways.

In: operands in any mix of element types. Out: nodes of ops/elementwise.py and ops/power.py. Called
by the importer.
"""

from __future__ import annotations

from ingot.dtypes import DType
from ingot.frontends.torch.common import cast, promoted
from ingot.frontends.torch.elementwise import binary
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode, aten
from ingot.frontends.torch.terms import Term, where
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype


@aten("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def div(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
    return binary(ctx, "div", x, y, node.output.dtype)


@aten("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(
    ctx: Importer, node: TorchNode, x: Scalar, y: Scalar, rounding_mode: str | None = None
) -> Value:
    if rounding_mode is None:
        return div(ctx, node, x, y)
    if rounding_mode == "floor":
        return floor_divide(ctx, node, x, y)
    quotient = Term(ctx, div(ctx, node, x, y))  # rounded once before, as in torch
    return (quotient.op("trunc") if quotient.dtype.is_float else quotient).value


@aten("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
    a, b = operands(ctx, node.output.dtype, x, y)
    made = floored(a, b) if a.dtype.is_float else (a - a.op("mod", b, fmod=False)) / b
    return cast(ctx, made.value, node.output.dtype)


def operands(ctx: Importer, dtype: DType, x: Scalar, y: Scalar) -> tuple[Term, Term]:
    wide = wide_dtype(dtype)
    a, b = (Term(ctx, promoted(ctx, v, wide)) for v in (x, y))
    return a, b


def floored(a: Term, b: Term) -> Term:
    """Floats as torch divides them: exact for multiples of b, which a / b rounded is not."""
    rest = a.op("mod", b, fmod=True)
    whole = (a - rest) / b
    signs_differ = (b < 0) ^ (rest < 0)
    whole = where(rest.differs(0) & signs_differ, whole - 1, whole)
    down = whole.op("floor")
    nearest = where(whole - down > 0.5, down + 1, down)
    quotient = a / b
    # the sign of a zero is that of the quotient
    found = where(whole.equals(0), quotient * 0, nearest)
    return where(b.equals(0), quotient, found)


@aten("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
    return remainder_of(ctx, node, x, y, True)


@aten("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
    return remainder_of(ctx, node, x, y, False)


def remainder_of(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar, like_c: bool) -> Value:
    a, b = operands(ctx, node.output.dtype, x, y)
    return cast(ctx, a.op("mod", b, fmod=like_c).value, node.output.dtype)


# --- powers -------------------------------------------------------------------------------------


@aten("aten.pow.Tensor_Scalar")
def pow_number(ctx: Importer, node: TorchNode, x: Value, exponent: Scalar) -> Value:
    """Small exponents are products and roots, as in torch."""
    dtype = node.output.dtype
    base = Term(ctx, cast(ctx, x, wide_dtype(dtype)))
    if isinstance(exponent, bool | int | float) and dtype.is_float:
        found = power_of(base, float(exponent))
        if found is not None:
            return cast(ctx, found.value, dtype)
    return pow_tensor(ctx, node, x, exponent)


def power_of(x: Term, exponent: float) -> Term | None:
    match exponent:
        case 0.5:
            return x.op("sqrt")
        case -0.5:
            return x.op("rsqrt")
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case -1.0:
            return x.op("reciprocal")
        case -2.0:
            return (x * x).op("reciprocal")
    return None


@aten(
    "aten.pow.Tensor_Tensor", "aten.pow.Scalar", "aten.float_power.Tensor_Tensor",
    "aten.float_power.Tensor_Scalar", "aten.float_power.Scalar",
)  # fmt: skip
def pow_tensor(ctx: Importer, node: TorchNode, base: Scalar, exponent: Scalar) -> Value:
    dtype = node.output.dtype
    a, e = operands(ctx, dtype, base, exponent)
    if dtype.is_int:  # torch: 0 to a negative power is 0
        e = where(a.equals(0) & (e < 0), e * 0 + 1, e)
    return cast(ctx, a.op("pow", e).value, dtype)


@aten("aten.square.default")
def square(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return ctx.g.add("mul", [x, x])
