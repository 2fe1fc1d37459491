"""ONNX converters of object detection: NonMaxSuppression.

In: ONNX nodes. Out: nodes of ops/nms.py. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import as_scalar, cast, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    boxes, scores = ctx.value(node, 0), ctx.value(node, 1)
    if boxes.tensor.rank != 3 or scores.tensor.rank != 3:
        raise bad_model(node, f"boxes {boxes.type} and scores {scores.type} have not three axes")
    limit, known = tidy(ctx, scores.shape[2]), ctx.known(node, 2)
    if ctx.optional(node, 2) is None:
        limit = arith.Const(0)
    elif known is not None and known.size:
        limit = tidy(ctx, arith.minimum(limit, max(int(known.reshape(-1)[0]), 0)))
    operands = [boxes, scores, threshold(ctx, node, 3), threshold(ctx, node, 4), most(ctx, node)]
    if operands[2] is None:
        operands[2] = ctx.g.constant(np.zeros((), np.float32))
    center = bool(node.attr("center_point_box", 0))
    found, counts = ctx.g.add_all("nms_select", operands, center=center, limit=limit)
    symbol = ctx.g.symbol("selected", high=arith.as_int(found.tensor.numel))
    return [ctx.g.add("nms_rows", [found, counts], symbols=(symbol,))]


def threshold(ctx: Importer, node: OnnxNode, index: int) -> Value | None:
    value = ctx.optional(node, index)
    return None if value is None else cast(ctx, as_scalar(ctx, value), dtypes.f32)


def most(ctx: Importer, node: OnnxNode) -> Value:
    """The number of boxes of a class; without it there are none."""
    value = ctx.optional(node, 2)
    if value is None:
        return ctx.g.constant(np.zeros((), np.int64))
    return cast(ctx, as_scalar(ctx, value), dtypes.i64)
