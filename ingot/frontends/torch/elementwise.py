"""ATen converters of element-wise operators. In: nodes. Out: values. Called by walker."""

from __future__ import annotations

from ingot.frontends.torch.common import promote
from ingot.frontends.torch.registry import Importer, Scalar, TorchNode, aten
from ingot.graph.ir import Value


@aten("aten.add.Tensor", "aten.add.Scalar")
def add(ctx: Importer, node: TorchNode, x: Value, other: Scalar, alpha: Scalar = 1) -> Value:
    a, b = promote(ctx, node, x, other)
    if alpha != 1:
        b = ctx.g.add("mul", [b, *promote(ctx, node, alpha)])
    return ctx.g.add("add", [a, b])


@aten("aten.relu.default")
def relu(ctx: Importer, node: TorchNode, x: Value) -> Value:
    return ctx.g.add("relu", [x])
