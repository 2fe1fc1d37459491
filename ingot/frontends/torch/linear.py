"""ATen converters of matrix products with weights. In: nodes. Out: values. Called by walker."""

from __future__ import annotations

from ingot.frontends.torch.common import promote
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode, aten
from ingot.graph.ir import Value


def transposed(ctx: Importer, x: Value) -> Value:
    """x with its last two axes exchanged."""
    order = (*range(x.tensor.rank - 2), x.tensor.rank - 1, x.tensor.rank - 2)
    return ctx.g.add("transpose", [x], perm=order)


@aten("aten.linear.default")
def linear(ctx: Importer, node: TorchNode, x: Value, weight: Value, bias: Value | None) -> Value:
    y = ctx.g.add("matmul", [x, transposed(ctx, weight)])
    return y if bias is None else ctx.g.add("add", [y, bias])


@aten("aten.addmm.default")
def addmm(
    ctx: Importer, node: TorchNode, c: Value, a: Value, b: Value,
    beta: Scalar = 1, alpha: Scalar = 1,
) -> Value:  # fmt: skip
    y = ctx.g.add("matmul", [a, b])
    if alpha != 1:
        y = ctx.g.add("mul", [y, *promote(ctx, node, alpha)])
    if beta == 0:  # NaNs of c are ignored then
        return y
    if beta != 1:
        c = ctx.g.add("mul", [c, *promote(ctx, node, beta)])
    return ctx.g.add("add", [y, c])
