"""Converters of matrix products and distances.

In: vectors, matrices, batches of them. Out: `matmul` nodes, scales and sums. Called by the
importer. Sums of products of f16 and bf16 are f32, rounded once after a bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape
from ingot.frontends.torch.common import cast, filled
from ingot.frontends.torch.elementwise import binary
from ingot.frontends.torch.reduce import norm_of
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode, aten
from ingot.frontends.torch.terms import Term
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype


def swapped(ctx: Importer, x: Value) -> Value:
    """x with its last two axes exchanged."""
    order = (*range(x.tensor.rank - 2), x.tensor.rank - 1, x.tensor.rank - 2)
    return ctx.g.add("transpose", [x], perm=order)


def product(ctx: Importer, a: Value, b: Value) -> Value:
    """In the operands' type; an empty sum is zero. Narrow integers are summed as i32, and wrap."""
    dtype = a.dtype
    if dtype.is_bool:
        a, b = cast(ctx, a, dtypes.i32), cast(ctx, b, dtypes.i32)
    return cast(ctx, ctx.g.add("matmul", [a, b]), dtype)


@aten(
    "aten.mm.default", "aten.bmm.default", "aten.matmul.default", "aten.dot.default",
    "aten.mv.default", "aten.vdot.default", "aten.inner.default",
)  # fmt: skip
def matmul(ctx: Importer, node: TorchNode, a: Value, b: Value) -> Value:
    if node.target.startswith("aten.inner"):
        if not a.tensor.rank or not b.tensor.rank:
            return ctx.g.add("mul", [a, b])
        b = swapped(ctx, b) if b.tensor.rank == 2 else b
    return product(ctx, a, b)


@aten("aten.linear.default")
def linear(
    ctx: Importer, node: TorchNode, x: Value, weight: Value, bias: Value | None = None
) -> Value:
    y = product(ctx, x, swapped(ctx, weight) if weight.tensor.rank == 2 else weight)
    return y if bias is None else ctx.g.add("add", [y, bias])


@aten(
    "aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default", "aten.addbmm.default",
    "aten.addr.default",
)  # fmt: skip
def addmm(
    ctx: Importer, node: TorchNode, c: Value, a: Value, b: Value, *, beta: Scalar = 1,
    alpha: Scalar = 1, **options: Any,
) -> Value:  # fmt: skip
    """beta · c + alpha · a·b; a beta of 0 ignores c, also its NaNs."""
    dtype = node.output.dtype
    y = update(ctx, node, *(cast(ctx, v, dtype) for v in (a, b)))
    if alpha != 1:
        y = binary(ctx, "mul", y, alpha, dtype)
    if beta == 0:
        return y if y.shape == node.output.shape else ctx.g.add(
            "expand", [y], shape=node.output.shape
        )  # fmt: skip
    c = cast(ctx, c, dtype)
    if beta != 1:
        c = binary(ctx, "mul", c, beta, dtype)
    return ctx.g.add("or" if dtype.is_bool else "add", [y, c])


def update(ctx: Importer, node: TorchNode, a: Value, b: Value) -> Value:
    if node.target.startswith("aten.addr"):
        column = reshape(ctx, a, (*a.shape, 1))
        return ctx.g.add("and" if a.dtype.is_bool else "mul", [column, b])
    y = product(ctx, a, b)
    if node.target.startswith("aten.addbmm"):
        return ctx.g.add("reduce_sum", [y], axes=(0,), keepdims=False)
    return y


@aten("aten.outer.default", "aten.ger.default")
def outer(ctx: Importer, node: TorchNode, a: Value, b: Value) -> Value:
    return binary(ctx, "mul", reshape(ctx, a, (*a.shape, 1)), b, node.output.dtype)


# --- distances ----------------------------------------------------------------------------------


@aten("aten._cdist_forward.default", "aten.cdist.default", "aten._euclidean_dist.default")
def cdist(
    ctx: Importer, node: TorchNode, a: Value, b: Value, p: float = 2.0, mode: int | None = None
) -> Value:
    """The norm of the difference of every two rows."""
    if arith.is_const(node.output.numel, 0) or arith.is_const(a.shape[-1], 0):
        return filled(ctx, 0, node.output.dtype, node.output.shape)
    wide = wide_dtype(node.output.dtype)
    left = reshape(ctx, cast(ctx, a, wide), (*a.shape[:-1], 1, a.shape[-1]))
    right = reshape(ctx, cast(ctx, b, wide), (*b.shape[:-2], 1, *b.shape[-2:]))
    gap = ctx.g.add("sub", [left, right])
    return cast(ctx, norm_of(ctx, gap, float(p), -1, False), node.output.dtype)


@aten("aten._pdist_forward.default", "aten.pdist.default")
def pdist(ctx: Importer, node: TorchNode, x: Value, p: float = 2.0) -> Value:
    """The distance of every two rows i < j."""
    count = arith.as_int(x.shape[0])
    if count is None:
        raise ctx.unsupported(node, f"{x.shape[0]} rows, known only when running")
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    if not pairs or arith.is_const(x.shape[1], 0):
        return filled(ctx, 0, x.dtype, node.output.shape)
    sides = [ctx.g.constant(np.array(row, np.int64)) for row in zip(*pairs)]
    a, b = (ctx.g.add("gather", [x, side], axis=0) for side in sides)
    return norm_of(ctx, ctx.g.add("sub", [a, b]), float(p), -1, False)


@aten("aten._trilinear.default")
def trilinear(
    ctx: Importer, node: TorchNode, a: Value, b: Value, c: Value, expand1: list[int],
    expand2: list[int], expand3: list[int], sumdim: list[int], unroll_dim: int = 1,
) -> Value:  # fmt: skip
    """The sum of the product of three tensors under common axes."""
    wide = []
    for x, axes in ((a, expand1), (b, expand2), (c, expand3)):
        shape: list[Any] = list(x.shape)
        for axis in sorted(axes):
            shape.insert(axis, 1)
        wide.append(Term(ctx, cast(ctx, reshape(ctx, x, shape), wide_dtype(x.dtype))))
    total = wide[0] * wide[1] * wide[2]
    made = ctx.g.add("reduce_sum", [total.value], axes=tuple(sorted(sumdim)), keepdims=False)
    return cast(ctx, made, node.output.dtype)


@aten("aten.kron.default")
def kron(ctx: Importer, node: TorchNode, a: Value, b: Value) -> Value:
    rank = max(a.tensor.rank, b.tensor.rank)
    shapes = [(*(1,) * (rank - v.tensor.rank), *v.shape) for v in (a, b)]
    left = reshape(ctx, a, [d for size in shapes[0] for d in (size, 1)])
    right = reshape(ctx, b, [d for size in shapes[1] for d in (1, size)])
    return reshape(ctx, binary(ctx, "mul", left, right, node.output.dtype), node.output.shape)
