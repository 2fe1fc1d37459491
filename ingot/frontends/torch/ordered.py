"""Converters of prefixes and orders: cumsum, cumprod, cummax, sort, topk, kthvalue, median.

In: a tensor and an axis. Out: nodes of ops/ordered.py and ops/topk.py. Called by the importer.
"""

from __future__ import annotations

from typing import Any

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape
from ingot.frontends.torch.common import axis_of, cast
from ingot.frontends.torch.registry import Converter, Importer, TorchNode, aten
from ingot.graph.ir import Value


def prefix(op: str) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value, dim: int, dtype: Any = None) -> Value:
        x, axis = cast(ctx, x, node.output.dtype), axis_of(dim, x.tensor.rank)
        if not x.tensor.rank:
            return x
        return ctx.g.add(op, [x], axis=axis, exclusive=False, reverse=False)

    return convert


for op in ("cumsum", "cumprod"):
    aten(f"aten.{op}.default")(prefix(op))


def best(ctx: Importer, x: Value, k: arith.IntLike, dim: int, largest: bool) -> tuple[Value, Value]:
    """The k best along an axis; bool is ordered as 0 and 1."""
    flat = x if x.tensor.rank else reshape(ctx, x, (1,))
    wide = cast(ctx, flat, dtypes.u8) if x.dtype.is_bool else flat
    axis = axis_of(dim, x.tensor.rank)
    values, indices = ctx.g.add_all("topk", [wide], axis=axis, k=arith.wrap(k), largest=largest)
    if not x.tensor.rank:
        values, indices = (reshape(ctx, v, () if arith.is_const(arith.wrap(k), 1) else v.shape)
                           for v in (values, indices))  # fmt: skip
    return cast(ctx, values, x.dtype), indices


@aten("aten.topk.default")
def topk(
    ctx: Importer, node: TorchNode, x: Value, k: arith.IntLike, dim: int = -1,
    largest: bool = True, sorted: bool = True,
) -> tuple[Value, Value]:  # fmt: skip
    return best(ctx, x, k, dim, largest)


def extent(x: Value, dim: int) -> arith.IntLike:
    return x.shape[axis_of(dim, x.tensor.rank)] if x.tensor.rank else 1


@aten("aten.sort.default")
def sort(
    ctx: Importer, node: TorchNode, x: Value, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return best(ctx, x, extent(x, dim), dim, descending)


@aten("aten.sort.stable")
def sort_stable(
    ctx: Importer, node: TorchNode, x: Value, dim: int = -1, descending: bool = False,
    stable: bool | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    return best(ctx, x, extent(x, dim), dim, descending)


@aten("aten.argsort.default")
def argsort(
    ctx: Importer, node: TorchNode, x: Value, dim: int = -1, descending: bool = False
) -> Value:
    return best(ctx, x, extent(x, dim), dim, descending)[1]


@aten("aten.argsort.stable")
def argsort_stable(
    ctx: Importer, node: TorchNode, x: Value, dim: int = -1, descending: bool = False,
    stable: bool | None = None,
) -> Value:  # fmt: skip
    return best(ctx, x, extent(x, dim), dim, descending)[1]


@aten("aten.kthvalue.default")
def kthvalue(
    ctx: Importer, node: TorchNode, x: Value, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Value, Value]:
    """The last of the k smallest."""
    axis, rank = axis_of(dim, x.tensor.rank), x.tensor.rank
    if not rank:
        return x, ctx.scalar(0, dtypes.i64)
    found = best(ctx, x, k, dim, False)
    starts = tuple(k - 1 if i == axis else 0 for i in range(rank))
    sizes = tuple(1 if i == axis else d for i, d in enumerate(x.shape))
    parts = [ctx.g.add("slice", [v], starts=starts, sizes=sizes, steps=(1,) * rank) for v in found]
    if not keepdim:
        left = tuple(d for i, d in enumerate(x.shape) if i != axis)
        parts = [reshape(ctx, v, left) for v in parts]
    return parts[0], parts[1]
