"""ONNX converters of object detection: NonMaxSuppression, RoiAlign, MaxRoiPool.

In: ONNX nodes. Out: nodes of ops/nms.py and ops/regions.py. Called by walker.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import as_scalar, cast, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

LIKELY_REGIONS = 100  # of a detector's second stage; heuristic
TAPS = 4  # elements that a bin reads at least


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


@onnx_op("RoiAlign", since=10)
def roi_align(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    mode = node.attr("mode", "avg")
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    transform = node.attr("coordinate_transformation_mode", default)
    if mode not in ("avg", "max") or transform not in ("half_pixel", "output_half_pixel"):
        raise bad_model(node, f"mode {mode!r} with coordinates {transform!r} is unknown")
    attrs = {
        "mode": mode,
        "half_pixel": transform == "half_pixel",
        "samples": max(int(node.attr("sampling_ratio", 0)), 0),
        "shape": (int(node.attr("output_height", 1)), int(node.attr("output_width", 1))),
    }
    batch = cast(ctx, ctx.value(node, 2), dtypes.i64)
    return [pooled_regions(ctx, node, "roi_align", [batch], attrs)]


@onnx_op("MaxRoiPool")
def max_roi_pool(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    shape = node.attr("pooled_shape")
    if not shape or len(shape) != 2:
        raise bad_model(node, f"pooled_shape {shape} has not two sizes")
    return [pooled_regions(ctx, node, "max_roi_pool", [], {"shape": tuple(map(int, shape))})]


def pooled_regions(
    ctx: Importer, node: OnnxNode, op: str, more: Sequence[Value], attrs: dict[str, Any]
) -> Value:
    """The regions' maps. With its channels last x is read in vectors: it is transposed unless there
    are so few regions that most of it would be copied in vain."""
    x, rois = ctx.value(node, 0), ctx.value(node, 1)
    if x.tensor.rank != 4 or min(attrs["shape"]) < 1:
        raise bad_model(node, f"it pools {attrs['shape']} of {x.type}")
    wide = wide_dtype(x.dtype)
    attrs |= {"scale": float(node.attr("spatial_scale", 1.0)), "layout": "first"}
    operands = [cast(ctx, x, wide), cast(ctx, rois, wide), *more]
    is_last = reads_most(x, rois, attrs["shape"])
    if is_last:
        operands[0] = ctx.g.add("transpose", [operands[0]], perm=(0, 2, 3, 1))
        attrs["layout"] = "last"
    found = ctx.g.add(op, operands, **attrs)
    if is_last:
        found = ctx.g.add("transpose", [found], perm=(0, 3, 1, 2))
    return cast(ctx, found, x.dtype)


def reads_most(x: Value, rois: Value, bins: Sequence[int]) -> bool:
    """Do the regions read as many elements of a channel as there are? A dynamic number of regions
    counts as LIKELY_REGIONS, a dynamic size of x as small."""
    elements = [arith.as_int(d) for d in (x.shape[0], *x.shape[2:])]
    if None in elements:
        return True
    regions = arith.as_int(rois.shape[0])
    samples = (LIKELY_REGIONS if regions is None else regions) * bins[0] * bins[1] * TAPS
    return samples >= math.prod(n or 0 for n in elements)
