"""Converters of complex tensors: Fourier transforms, products, and what only moves elements.

A complex tensor is a float one with a last axis of two parts, real and imaginary; so are its
shapes in `node.outputs`. In: such values. Out: GEMMs (frontends/common/fourier.py), arithmetic on
the parts. Called by the importer for calls with a complex operand or result; only the operators
registered here take those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.arith import expr as arith
from ingot.frontends.common import fourier
from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch import elementwise, movement, pad
from ingot.frontends.torch.common import axis_of, cast, transposed
from ingot.frontends.torch.formulas import atan2
from ingot.frontends.torch.movement import at_index, joined
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode, complex_aten
from ingot.frontends.torch.terms import Term
from ingot.graph.ir import Value

NONE, BY_ROOT, BY_LENGTH = range(3)  # how a transform is scaled

# --- parts --------------------------------------------------------------------------------------


def is_complex(node: TorchNode, position: int) -> bool:
    """Whether an argument is a complex tensor."""
    given = node.fx.args[position]
    value = getattr(given, "meta", {}).get("val")
    return bool(getattr(value, "is_complex", lambda: False)())


def parts(ctx: Importer, x: Value) -> tuple[Term, Term]:
    axis = x.tensor.rank - 1
    re, im = (Term(ctx, at_index(ctx, x, axis, k)) for k in (0, 1))
    return re, im


def made_of(ctx: Importer, re: Term, im: Term) -> Value:
    return joined(ctx, [re.value, im.value], re.value.tensor.rank)


def operands(
    ctx: Importer, node: TorchNode, x: Scalar, y: Scalar
) -> list[tuple[Term, Term | None]]:
    """Real and imaginary parts; None for an operand that is real."""
    dtype, found = node.output.dtype, list[tuple[Term, Term | None]]()
    for k, v in enumerate((x, y)):
        if isinstance(v, complex):
            re, im = (Term(ctx, ctx.scalar(part, dtype)) for part in (v.real, v.imag))
            found.append((re, im))
        elif isinstance(v, Value) and is_complex(node, k):
            found.append(parts(ctx, v))
        else:
            value = cast(ctx, v, dtype) if isinstance(v, Value) else ctx.scalar(v, dtype)
            found.append((Term(ctx, value), None))
    return found


@complex_aten("aten.mul.Tensor", "aten.mul.Scalar")
def mul(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
    (a, b), (c, d) = operands(ctx, node, x, y)
    if b is None or d is None:
        real, (re, im) = (a, (c, d)) if b is None else (c, (a, b))
        assert im is not None
        return made_of(ctx, re * real, im * real)
    return made_of(ctx, a * c - b * d, a * d + b * c)


@complex_aten("aten.div.Tensor", "aten.div.Scalar")
def div(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar) -> Value:
    (a, b), (c, d) = operands(ctx, node, x, y)
    b = a * 0 if b is None else b
    if d is None:
        return made_of(ctx, a / c, b / c)
    size = c * c + d * d
    return made_of(ctx, (a * c + b * d) / size, (b * c - a * d) / size)


def summed(ctx: Importer, node: TorchNode, x: Scalar, y: Scalar, alpha: Any = 1) -> Value:
    """Sums and differences, part by part."""
    (a, b), (c, d) = operands(ctx, node, x, y)
    factor = -alpha if ".sub." in node.target else alpha
    c, d = c * factor, None if d is None else d * factor
    re = a + c
    zero = re * 0
    im = (zero if b is None else b) + (zero if d is None else d)
    return made_of(ctx, re, im)


complex_aten("aten.add.Tensor", "aten.add.Scalar", "aten.sub.Tensor", "aten.sub.Scalar")(summed)


@complex_aten("aten.neg.default")
def neg(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return ctx.g.add("neg", [x])


@complex_aten("aten._conj.default", "aten.conj_physical.default", "aten._conj_physical.default")
def conjugate(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return ctx.g.add("mul", [x, ctx.g.constant(np.array([1, -1]).astype(x.dtype.numpy))])


@complex_aten("aten.abs.default")
def size_of(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return ctx.g.add("reduce_l2", [x], axes=(x.tensor.rank - 1,), keepdims=False)


@complex_aten("aten.angle.default")
def angle(ctx: Importer, node: TorchNode, x: Value) -> Value:
    re, im = parts(ctx, x)
    return atan2(im, re).value


@complex_aten("aten.complex.default")
def complex_of(ctx: Importer, node: TorchNode, re: Value, im: Value) -> Value:
    shape = node.output.shape[:-1]
    return joined(ctx, [ctx.g.add("expand", [v], shape=shape) for v in (re, im)], len(shape))


@complex_aten("aten.polar.default")
def polar(ctx: Importer, node: TorchNode, size: Value, turn: Value) -> Value:
    r, t = Term(ctx, size), Term(ctx, turn)
    return made_of(ctx, r * t.op("cos"), r * t.op("sin"))


@complex_aten("aten.real.default")
def real(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return parts(ctx, x)[0].value


@complex_aten("aten.imag.default")
def imag(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return parts(ctx, x)[1].value


@complex_aten("aten._to_copy.default", "prims.convert_element_type.default")
def to_copy(ctx: Importer, node: TorchNode, x: Value, *rest: Any, **options: Any) -> Value:
    if is_complex(node, 0):
        return cast(ctx, x, node.output.dtype)
    re = Term(ctx, cast(ctx, x, node.output.dtype))
    return made_of(ctx, re, re * 0)


# --- what only moves elements -------------------------------------------------------------------

for _name in (
    "view_as_real", "view_as_complex", "clone", "alias", "detach", "resolve_conj", "resolve_neg",
    "lift_fresh_copy",
):  # fmt: skip
    complex_aten(f"aten.{_name}.default")(elementwise.same)
for _name in (
    "view.default", "_unsafe_view.default", "reshape.default", "unsqueeze.default",
    "squeeze.dim", "squeeze.dims", "squeeze.default", "flatten.using_ints",
):  # fmt: skip
    complex_aten(f"aten.{_name}")(movement.view)
complex_aten("aten.expand.default")(movement.expand)


@complex_aten("aten.permute.default")
def permute(ctx: Importer, node: TorchNode, x: Value, dims: Sequence[int]) -> Value:
    rank = x.tensor.rank - 1
    return transposed(ctx, x, [*(axis_of(d, rank) for d in dims), rank])


@complex_aten("aten.transpose.int")
def transpose(ctx: Importer, node: TorchNode, x: Value, a: int, b: int) -> Value:
    rank = x.tensor.rank - 1
    return movement.transpose(ctx, node, x, axis_of(a, rank), axis_of(b, rank))


@complex_aten("aten.slice.Tensor")
def slice_axis(ctx: Importer, node: TorchNode, x: Value, dim: int = 0, *rest: Any) -> Value:
    return movement.slice_axis(ctx, node, x, axis_of(dim, x.tensor.rank - 1), *rest)


@complex_aten("aten.select.int")
def select(ctx: Importer, node: TorchNode, x: Value, dim: int, index: Any) -> Value:
    return movement.select(ctx, node, x, axis_of(dim, x.tensor.rank - 1), index)


@complex_aten("aten.constant_pad_nd.default")
def constant_pad(
    ctx: Importer, node: TorchNode, x: Value, amounts: Sequence[Any], value: Any = 0
) -> Value:
    if value:
        raise ctx.unsupported(node, f"a complex tensor padded with {value}")
    return pad.padded(ctx, x, (0, 0, *amounts), "constant", ctx.scalar(0, x.dtype))


# --- Fourier transforms -------------------------------------------------------------------------


@complex_aten("aten._fft_r2c.default")
def real_transform(
    ctx: Importer, node: TorchNode, x: Value, dims: Sequence[int], scale: int, onesided: bool
) -> Value:
    """The last axis as real rows, the others as complex ones."""
    rank = x.tensor.rank
    *others, last = (axis_of(d, rank) for d in dims)
    made = along(ctx, reshape(ctx, x, (*x.shape, 1)), last, x.shape[last], False, onesided)
    for axis in others:
        made = along(ctx, made, axis, x.shape[axis], False, False)
    return scaled(ctx, made, [x.shape[axis_of(d, rank)] for d in dims], scale, False)


@complex_aten("aten._fft_c2c.default")
def complex_transform(
    ctx: Importer, node: TorchNode, x: Value, dims: Sequence[int], scale: int, forward: bool
) -> Value:
    rank = x.tensor.rank - 1
    axes = [axis_of(d, rank) for d in dims]
    for axis in axes:
        x = along(ctx, x, axis, x.shape[axis], not forward, False)
    return scaled(ctx, x, [x.shape[a] for a in axes], scale, not forward)


@complex_aten("aten._fft_c2r.default")
def transform_to_real(
    ctx: Importer, node: TorchNode, x: Value, dims: Sequence[int], scale: int, size: Any
) -> Value:
    rank = x.tensor.rank - 1
    *others, last = (axis_of(d, rank) for d in dims)
    lengths = [x.shape[a] for a in others] + [arith.wrap(size)]
    for axis in others:
        x = along(ctx, x, axis, x.shape[axis], True, False)
    made = along(ctx, x, last, arith.wrap(size), True, True)
    return scaled(ctx, reshape(ctx, made, made.shape[:-1]), lengths, scale, True)


def along(
    ctx: Importer, x: Value, axis: int, length: arith.Expr, inverse: bool, onesided: bool
) -> Value:
    """x[…, parts] transformed along an axis; an inverse is divided by the length."""
    rank = x.tensor.rank
    order = [*(k for k in range(rank - 1) if k != axis), axis, rank - 1]
    made = fourier.transform(ctx, transposed(ctx, x, order), length, inverse, onesided)
    return transposed(ctx, made, np.argsort(order).tolist())


def scaled(
    ctx: Importer, x: Value, lengths: Sequence[arith.Expr], scale: int, inverse: bool
) -> Value:
    """What `along` has scaled as torch names it."""
    wanted = {NONE: 0.0, BY_ROOT: -0.5, BY_LENGTH: -1.0}[scale]
    power = wanted + (1.0 if inverse else 0.0)
    if not power:
        return x
    count = tidy(ctx, arith.product(list(lengths)))
    number = arith.as_int(count)
    if number is not None:
        return (Term(ctx, x) * math.pow(number, power)).value
    return (Term(ctx, x) * Term(ctx, ctx.scalar(count, x.dtype)).op("pow", power)).value
