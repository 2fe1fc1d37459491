"""What the scales and zero points of quantised operators must be, as far as the file tells.

In: a node of `POINTS`. Out: nothing, or an error that names the node, the operand and the first bad
element. Called by the walker before a node is converted. A scale that is computed when the model
runs follows IEEE arithmetic; of a constant, no arithmetic makes sense of 0, of a NaN or infinity,
or of a subnormal number, by which a division overflows. A scale of 0 is left alone where it does
not matter: all elements are the zero point, as a quantiser writes it for a block of zeros. So is a
subnormal scale of an i32 bias, which only multiplies: quantisers write the product of two small
scales there. A negative scale has a meaning, and is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.onnx.nbits_checks import check_nbits
from ingot.frontends.onnx.registry import Importer, OnnxNode
from ingot.frontends.onnx.tensors import dtype_of
from ingot.graph.ir import Value
from ingot.graph.types import Dim
from ingot.ops.quant import param_array
from ingot.support.errors import IngotError

MICROSOFT = "com.microsoft"
SMALLEST = float(np.finfo(np.float32).tiny)  # normal f32
REQUANTISE = "quantise the model again, with a larger range for this tensor"


@dataclass(frozen=True)
class Point:
    """Operands of one quantised tensor: its scale, its zero point, itself (None: the result).
    `per`: axes of the tensor along which there may be a value for each index."""

    scale: int | None
    zero: int | None
    of: int | None = None
    per: tuple[int, ...] = ()


def _unary(node: OnnxNode) -> list[Point]:
    return [Point(1, 2, 0), Point(3, 4)]


def _binary(node: OnnxNode) -> list[Point]:
    return [Point(1, 2, 0), Point(4, 5, 3), Point(6, 7)]


def _concat(node: OnnxNode) -> list[Point]:
    return [Point(0, 1), *(Point(i + 1, i + 2, i) for i in range(2, len(node.inputs) - 2, 3))]


def _gemm(node: OnnxNode) -> list[Point]:
    columns = 0 if node.attr("transB", 0) else 1
    return [Point(1, 2, 0), Point(4, 5, 3, (columns,)), Point(7, 8)]


Points = Callable[[OnnxNode], list[Point]]
ROWS, COLUMNS, OUTPUTS = (-2,), (-1,), (0,)


def _fixed(*points: Point) -> Points:
    return lambda node: list(points)


_CONV = _fixed(Point(1, 2, 0), Point(4, 5, 3, OUTPUTS), Point(6, 7))
POINTS: dict[tuple[str, str], Points] = {
    ("", "QLinearConv"): _CONV,
    ("", "QLinearMatMul"): _fixed(Point(1, 2, 0, ROWS), Point(4, 5, 3, COLUMNS), Point(6, 7)),
    ("", "MatMulInteger"): _fixed(Point(None, 2, 0, ROWS), Point(None, 3, 1, COLUMNS)),
    ("", "ConvInteger"): _fixed(Point(None, 2, 0), Point(None, 3, 1, OUTPUTS)),
    (MICROSOFT, "QLinearConv"): _CONV,
    (MICROSOFT, "QLinearAdd"): _binary,
    (MICROSOFT, "QLinearMul"): _binary,
    (MICROSOFT, "QLinearConcat"): _concat,
    (MICROSOFT, "QLinearWhere"): _fixed(Point(2, 3, 1), Point(5, 6, 4), Point(7, 8)),
    (MICROSOFT, "QGemm"): _gemm,
    (MICROSOFT, "MatMulIntegerToFloat"): _fixed(Point(2, 4, 0), Point(3, 5, 1, COLUMNS)),
    (MICROSOFT, "DynamicQuantizeMatMul"): _fixed(Point(2, 3, 1, COLUMNS)),
    **dict.fromkeys(
        [(MICROSOFT, f"QLinear{op}") for op in (
            "Sigmoid", "LeakyRelu", "Softmax", "AveragePool", "GlobalAveragePool", "ReduceMean",
        )],
        _unary,
    ),
}  # fmt: skip


def check_quantised(ctx: Importer, node: OnnxNode) -> None:
    if node.op in ("QuantizeLinear", "DequantizeLinear"):
        _check_linear(ctx, node)
    elif (node.domain, node.op) in POINTS:
        for point in POINTS[node.domain, node.op](node):
            _check_point(ctx, node, point)
    elif (node.domain, node.op) == (MICROSOFT, "MatMulNBits"):
        check_nbits(ctx, node)
        _refuse_scales(ctx, node, 2, _bad_scales(ctx, node, 2, may_be_zero=True))


def _check_linear(ctx: Importer, node: OnnxNode) -> None:
    x, scale, zero = (ctx.optional(node, i) for i in range(3))
    if x is None or scale is None:
        return  # the converter says so
    _check_shapes(node, x, scale, zero)
    quantises = node.op == "QuantizeLinear"
    if quantises and zero is not None:
        _check_result_type(node, zero)
    smallest = 0.0 if x.dtype is dtypes.i32 and not quantises else SMALLEST
    bad = _bad_scales(ctx, node, 1, smallest=smallest)
    if bad is not None and bad.any() and not quantises and _is_meaningless(ctx, node, bad):
        return
    _refuse_scales(ctx, node, 1, bad)


def _check_shapes(node: OnnxNode, x: Value, scale: Value, zero: Value | None) -> None:
    """One scale for the tensor, one for each index of an axis, or one for each block of it."""
    rank, axis, block = x.tensor.rank, node.attr("axis", 1), node.attr("block_size", 0)
    if zero is not None and _differ(scale, zero):
        why = "each scale has a zero point"
        raise _bad_shape(node, f"scale {scale.type}, zero point {zero.type}", why)
    if _is_single(scale):
        return
    if not -rank <= axis < rank:
        why = f"axis {axis} is out of range for {x.name!r}, {x.type}"
        raise _bad_shape(node, f"the scale is {scale.type}", why, f"axes are 0 to {rank - 1}")
    if block < 0:
        raise _bad_shape(node, f"attribute 'block_size' is {block}", "it is at least 1, or 0")
    wanted = [x.shape[axis % rank]] if not block else list(x.shape)
    if block:
        wanted[axis % rank] = arith.ceildiv(x.shape[axis % rank], block)
    fits = len(wanted) == scale.tensor.rank and all(map(_may_equal, wanted, scale.shape))
    if not fits:
        blocks = f" in blocks of {block}" if block else ""
        why = f"axis {axis} of {x.name!r}, {x.type}{blocks}, needs [{', '.join(map(str, wanted))}]"
        raise _bad_shape(node, f"the scale is {scale.type}", why)


def _is_single(param: Value) -> bool:
    return param.tensor.rank < 2 and arith.is_const(param.tensor.numel, 1)


def _differ(scale: Value, zero: Value) -> bool:
    """Both are for the whole tensor, or they have one shape."""
    if _is_single(scale) and _is_single(zero):
        return False
    pairs = zip(scale.shape, zero.shape)
    return scale.tensor.rank != zero.tensor.rank or not all(_may_equal(a, b) for a, b in pairs)


def _bad_shape(node: OnnxNode, what: str, why: str, hint: str = "") -> IngotError:
    hint = hint or "a scalar for the whole tensor, or another axis or block_size"
    return IngotError("bad-type", what, where=node.where, why=why, hint=hint)


def _check_result_type(node: OnnxNode, zero: Value) -> None:
    is_narrow = zero.dtype.bits <= 16 and (zero.dtype.is_int or zero.dtype.bits <= 8)
    if not is_narrow:
        raise _bad_zero(node, 2, f"it is {zero.type}: its type is that of the result", "u8 or i8")
    code = node.attr("output_dtype", 0)
    wanted = dtype_of(code, node.where) if code else zero.dtype
    if wanted is not zero.dtype:
        raise _bad_zero(node, 2, f"it is {zero.type}, output_dtype is {wanted}", str(wanted))


def _check_point(ctx: Importer, node: OnnxNode, point: Point) -> None:
    x = None if point.of is None else ctx.optional(node, point.of)
    if x is not None and x.dtype.bits > 8:
        what = f"operand {point.of} ({x.name!r}) is {x.type}, not 8-bit integers"
        why = f"{node.op} takes quantised tensors"
        raise IngotError("bad-type", what, where=node.where, why=why, hint="quantise it first")
    for index in (point.scale, point.zero):
        value = None if index is None else ctx.optional(node, index)
        if value is not None:
            _check_count(node, index or 0, value, x, point.per)
    zero = None if point.zero is None else ctx.optional(node, point.zero)
    if zero is not None:
        _check_zero_type(node, point.zero or 0, zero, x)
    if point.scale is not None and ctx.optional(node, point.scale) is not None:
        _refuse_scales(ctx, node, point.scale, _bad_scales(ctx, node, point.scale))


def _check_zero_type(node: OnnxNode, index: int, zero: Value, x: Value | None) -> None:
    is_narrow = zero.dtype.bits <= 8
    wanted: Sequence[DType] = (dtypes.u8, dtypes.i8) if x is None else (x.dtype,)
    if not is_narrow if x is None else zero.dtype is not x.dtype:
        names = " or ".join(map(str, wanted))
        raise _bad_zero(node, index, f"it is {zero.type}", names)


def _check_count(
    node: OnnxNode, index: int, value: Value, x: Value | None, per: tuple[int, ...]
) -> None:
    """One value, or one for each index of an axis; the standard also lets a batch have its own."""
    if value.tensor.rank > 1 or arith.is_const(value.tensor.numel, 1):
        return
    rank = 0 if x is None else x.tensor.rank
    sizes: list[Dim] = [] if x is None else [x.shape[a] for a in per if -rank <= a < rank]
    count = value.tensor.numel
    if arith.as_int(count) is None or any(_may_equal(count, size) for size in sizes):
        return
    allowed = " or ".join(["1", *map(str, sizes)])
    what = f"operand {index} ({value.name!r}) has {count} elements, not {allowed}"
    why = "it belongs to the result" if x is None else f"it belongs to {x.name!r}, {x.type}"
    raise IngotError("bad-model", what, where=node.where, why=why, hint="one for the whole tensor")


def _may_equal(a: arith.Expr, b: Dim) -> bool:
    one, other = arith.as_int(a), arith.as_int(b)
    return one is None or other is None or one == other


def _bad_zero(node: OnnxNode, index: int, why: str, wanted: str) -> IngotError:
    what = f"the zero point, operand {index} ({node.inputs[index]!r}), has the wrong type"
    return IngotError("bad-type", what, where=node.where, why=why, hint=f"make it {wanted}")


# --- scales -------------------------------------------------------------------------------------


def _bad_scales(
    ctx: Importer,
    node: OnnxNode,
    index: int,
    may_be_zero: bool = False,
    smallest: float = SMALLEST,
) -> np.ndarray | None:
    """Which elements of a constant scale are not numbers to divide by; None if none is known."""
    found = _constant(ctx, node, index)
    if found is None or not dtypes.from_numpy(found.dtype).is_float:
        return None
    with np.errstate(all="ignore"):
        size = np.abs(found.astype(np.float64))
    # powers of two in 8 bits (f8e8m0) have no zero, and the least is 2^-127
    smallest = 0.0 if found.dtype.itemsize == 1 else smallest
    small = (size < smallest) | (size == 0)
    return ~np.isfinite(size) | (small & (size != 0) if may_be_zero else small)


def _constant(ctx: Importer, node: OnnxNode, index: int) -> np.ndarray | None:
    found = ctx.stored(node, index)
    return ctx.known(node, index) if found is None else found


def _refuse_scales(ctx: Importer, node: OnnxNode, index: int, bad: np.ndarray | None) -> None:
    if bad is None or not bad.any():
        return
    found = _constant(ctx, node, index)
    assert found is not None
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    value = float(found[first])
    place = f"element {list(first)} of the scale" if first else "the scale"
    kind = "is subnormal" if value and np.isfinite(value) else "is no number to scale by"
    raise IngotError(
        "bad-model",
        f"{place}, operand {index} ({node.inputs[index]!r}), is {value:g}",
        where=node.where,
        why=f"{value:g} {kind}: {int(bad.sum())} of {bad.size} scales are such",
        hint=REQUANTISE,
    )


def _is_meaningless(ctx: Importer, node: OnnxNode, bad: np.ndarray) -> bool:
    """Whether the scales multiply nothing but zeros: constant elements that are the zero point. An
    infinity and a NaN do not, since their products with 0 are NaN."""
    x, scale, zero = (_constant(ctx, node, i) for i in range(3))
    unknown = x is None or (zero is None and ctx.optional(node, 2) is not None)
    if x is None or scale is None or unknown or not np.isfinite(scale.astype(np.float64)).all():
        return False
    attrs = {"axis": node.attr("axis", 1), "block": node.attr("block_size", 0)}
    try:
        scaled = np.broadcast_to(param_array(bad, x, attrs), x.shape)
        zeros = 0.0 if zero is None else param_array(zero.astype(np.float64), x, attrs)
        return not bool((scaled & (x.astype(np.float64) != zeros)).any())
    except (ValueError, LookupError):  # shapes that do not fit, which the operator will say
        return False
