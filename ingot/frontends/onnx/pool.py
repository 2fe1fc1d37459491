"""ONNX converters of the pool family: MaxPool, AveragePool, LpPool and the global pools.

In: ONNX nodes. Out: nodes of ops/pool.py; global pools are reductions. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.arith import expr as arith
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.conv import window_attrs
from ingot.frontends.onnx.registry import Converter, Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


def pool_attrs(ctx: Importer, node: OnnxNode, x: Value) -> dict[str, Any]:
    kernel = node.attr("kernel_shape")
    if not kernel or x.tensor.rank != len(kernel) + 2:
        raise bad_model(node, f"kernel_shape {kernel} does not fit {x.type}")
    attrs = window_attrs(ctx, node, x.shape[2:], kernel)
    return {**attrs, "kernel": tuple(kernel), "ceil_mode": bool(node.attr("ceil_mode", 0))}


@onnx_op("MaxPool")
def max_pool(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    attrs = pool_attrs(ctx, node, x)
    if len(node.outputs) > 1 and node.outputs[1]:
        attrs |= {"indices": True, "storage_order": node.attr("storage_order", 0)}
    return ctx.g.add_all("max_pool", [x], **attrs)


@onnx_op("AveragePool")
def average_pool(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    with_pads = bool(node.attr("count_include_pad", 0))
    return [ctx.g.add("avg_pool", [x], **pool_attrs(ctx, node, x), count_include_pad=with_pads)]


@onnx_op("LpPool", since=2)
def lp_pool(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    return [ctx.g.add("lp_pool", [x], **pool_attrs(ctx, node, x), p=node.attr("p", 2))]


def global_pool(op: str) -> Converter:
    def convert(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        x = ctx.value(node, 0)
        return [ctx.g.add(op, [x], axes=tuple(range(2, x.tensor.rank)), keepdims=True)]

    return convert


onnx_op("GlobalAveragePool")(global_pool("reduce_mean"))
onnx_op("GlobalMaxPool")(global_pool("reduce_max"))


@onnx_op("GlobalLpPool", since=2)
def global_lp_pool(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Reductions for p = 1 and 2; any other p is a pool with a kernel of the input's size."""
    p, x = node.attr("p", 2), ctx.value(node, 0)
    if p in (1, 2):
        return global_pool(f"reduce_l{p}")(ctx, node)  # type: ignore[return-value]
    sizes = [arith.as_int(d) for d in x.shape[2:]]
    if None in sizes:
        raise ctx.unsupported(node, f"p = {p} over an input of dynamic size {x.type}")
    return [ctx.g.add("lp_pool", [x], kernel=tuple(sizes), p=p)]
