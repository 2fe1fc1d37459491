"""Helpers of all converters: casts and promotion by torch's rules, axes, scalars.

In: the importer, values and numbers as the schema of an operator gives them. Out: values of one
element type, axes from the front. Called by converters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype


def cast(ctx: Importer, x: Value, to: DType) -> Value:
    """Conversions of torch: a float wraps in a narrow integer, and overflows in a float8."""
    if x.dtype is to:
        return x
    wraps = x.dtype.is_float and ((to.is_int and to.bits < 32) or (to.is_float and to.bits <= 8))
    return ctx.g.add("cast", [x], to=to, mode="wrap" if wraps else "saturate")


def promoted(ctx: Importer, x: Scalar, to: DType) -> Value:
    """A tensor, number or size as a value of the type that the operator computes in."""
    return cast(ctx, x, to) if isinstance(x, Value) else ctx.scalar(x, to)


def promote(ctx: Importer, node: TorchNode, *operands: Scalar) -> list[Value]:
    """Scalars in the type of the node's result, which tracing has promoted."""
    return [promoted(ctx, x, node.output.dtype) for x in operands]


def widened(ctx: Importer, x: Value) -> Value:
    """f16 and bf16 as f32, in which arithmetic on them is done."""
    return cast(ctx, x, wide_dtype(x.dtype))


def filled(ctx: Importer, value: Scalar, dtype: DType, shape: Sequence[arith.IntLike]) -> Value:
    """A tensor of one value."""
    return ctx.g.add("fill", [promoted(ctx, value, dtype)], shape=tuple(map(arith.wrap, shape)))


# --- promotion ----------------------------------------------------------------------------------


def common_dtype(*operands: Scalar | None) -> DType:
    """The type in which torch computes: tensors of a rank decide before those of rank 0, and these
    before numbers, unless the latter are of a higher kind (bool, integer, float)."""
    ranked: list[DType | None] = [None, None, None]
    for x in operands:
        if x is None:
            continue
        place = 2 if not isinstance(x, Value) else 0 if x.tensor.rank else 1
        dtype = x.dtype if isinstance(x, Value) else number_type(x)
        before = ranked[place]
        ranked[place] = dtype if before is None else common_type(before, dtype)
    found: DType | None = None
    for kept in reversed(ranked):
        found = kept if found is None else found if kept is None else over(kept, found)
    assert found is not None, "an operator without operands has no common type"
    return found


def over(higher: DType, lower: DType) -> DType:
    """The type of operands of which the first take precedence."""
    if higher.is_float or kind(higher) >= kind(lower):
        return higher
    if higher.is_bool or lower.is_float:
        return lower
    return common_type(higher, lower)


def kind(dtype: DType) -> int:
    return 0 if dtype.is_bool else 1 if dtype.is_int else 2


def number_type(x: Scalar) -> DType:
    if isinstance(x, bool):
        return dtypes.bool_
    return dtypes.f32 if isinstance(x, float) else dtypes.i64


def common_type(a: DType, b: DType) -> DType:
    """torch.promote_types."""
    if a is b or kind(a) != kind(b):
        return a if kind(a) >= kind(b) else b
    if a.is_float:
        return dtypes.f32 if a.bits == b.bits else max(a, b, key=lambda d: d.bits)
    if a.is_signed == b.is_signed:
        return max(a, b, key=lambda d: d.bits)
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    wider = {8: dtypes.i16, 16: dtypes.i32, 32: dtypes.i64}
    return signed if signed.bits > unsigned.bits else wider.get(unsigned.bits, dtypes.i64)


# --- axes and attributes ------------------------------------------------------------------------


def axis_of(dim: int, rank: int) -> int:
    """An axis from the front; a scalar counts as a tensor of rank 1."""
    return dim % max(rank, 1)


def axes_of(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes from the front, in order; none given means all."""
    if isinstance(dims, int):
        dims = (dims,)
    if not dims:
        return tuple(range(rank))
    return tuple(sorted({axis_of(d, rank) for d in dims})) if rank else ()


def numbers_for(given: Any, count: int) -> tuple:
    """An attribute as one entry for each axis: torch repeats a single one."""
    found = tuple(given) if isinstance(given, list | tuple) else (given,)
    return found * count if len(found) == 1 else found


def moved_axis(ctx: Importer, x: Value, source: int, to: int) -> Value:
    """x with one axis at another place."""
    order = [k for k in range(x.tensor.rank) if k != source]
    order.insert(to, source)
    return transposed(ctx, x, order)


def transposed(ctx: Importer, x: Value, perm: Sequence[int]) -> Value:
    if list(perm) == list(range(x.tensor.rank)):
        return x
    return ctx.g.add("transpose", [x], perm=tuple(perm))


def known_int(ctx: Importer, node: TorchNode, size: arith.IntLike, what: str) -> int:
    """A size that must be known."""
    found = arith.as_int(arith.wrap(size))
    if found is None:
        raise ctx.unsupported(node, f"{what} is {size}, known only when running")
    return found
