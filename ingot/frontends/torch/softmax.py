"""Converters of softmax and log-softmax.

In: a tensor and an axis. Out: nodes of ops/softmax.py. Called by the importer. Torch computes f16
in f32 and rounds once.
"""

from __future__ import annotations

from typing import Any

from ingot.frontends.common.elements import reshape
from ingot.frontends.torch.common import axis_of, cast, widened
from ingot.frontends.torch.registry import Converter, Importer, TorchNode, aten
from ingot.graph.ir import Value


def along_axis(op: str) -> Converter:
    def convert(ctx: Importer, node: TorchNode, x: Value, dim: int, *rest: Any) -> Value:
        return softmax_along(ctx, op, x, dim, node)

    return convert


def softmax_along(ctx: Importer, op: str, x: Value, dim: int, node: TorchNode) -> Value:
    dtype, rank = node.output.dtype, x.tensor.rank
    x = cast(ctx, x, dtype) if x.dtype.bits < dtype.bits or not x.dtype.is_float else x
    flat = x if rank else reshape(ctx, x, (1,))
    made = ctx.g.add(op, [widened(ctx, flat)], axis=axis_of(dim, rank))
    return cast(ctx, reshape(ctx, made, x.shape), dtype)


for op in ("softmax", "log_softmax"):
    aten(f"aten._{op}.default", f"aten.{op}.int")(along_axis(op))


@aten("aten._safe_softmax.default")
def safe_softmax(ctx: Importer, node: TorchNode, x: Value, dim: int, dtype: Any = None) -> Value:
    """A row of -inf gives zeros."""
    made = softmax_along(ctx, "softmax", x, dim, node)
    low = ctx.scalar(float("-inf"), x.dtype)
    axes = (axis_of(dim, x.tensor.rank),)
    top = ctx.g.add("reduce_max", [x], axes=axes, keepdims=True)
    is_masked = ctx.g.add("eq", [top, low])
    return ctx.g.add("where", [is_masked, ctx.scalar(0, made.dtype), made])
