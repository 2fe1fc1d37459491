"""ONNX converters of linear algebra: Det, and com.microsoft's Inverse.

In: ONNX nodes. Out: nodes of ops/linalg.py. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


@onnx_op("Det")
def det(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("det", [ctx.value(node, 0)])]


@onnx_op("Inverse", domain="com.microsoft")
def inverse(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("inverse", [ctx.value(node, 0)])]
