"""ONNX converters of the vision family: GridSample and AffineGrid.

In: ONNX nodes. Out: nodes of ops/grid_sample.py, and compositions. Called by walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import cast, reshape, scalar
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.graph.ir import Value
from ingot.ops.common import wide_dtype

MODES = {"bilinear": "linear", "bicubic": "cubic"}  # names before opset 20
MIN_CHANNELS = 16  # from which two transposes cost less than gathers along the points; measured


@onnx_op("GridSample", since=16)
def grid_sample(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The grid's points are one axis for the operator: it does not matter how they are arranged."""
    x, grid = ctx.value(node, 0), ctx.value(node, 1)
    axes, mode = x.tensor.rank - 2, node.attr("mode", "linear")
    mode, padding = MODES.get(mode, mode), node.attr("padding_mode", "zeros")
    if mode not in ("linear", "nearest", "cubic"):
        raise bad_model(node, f"mode {mode!r} is not linear, nearest or cubic")
    if padding not in ("zeros", "border", "reflection"):
        raise bad_model(node, f"padding_mode {padding!r} is not zeros, border or reflection")
    if axes < 1 or grid.tensor.rank != axes + 2:
        raise bad_model(node, f"a grid {grid.type} does not fit {x.type}")
    points = arith.product(list(grid.shape[1:-1]))
    flat = reshape(ctx, grid, (grid.shape[0], points, grid.shape[-1]))
    attrs = {"mode": mode, "padding": padding, "align_corners": bool(node.attr("align_corners", 0))}
    if (arith.as_int(x.shape[1]) or 0) >= MIN_CHANNELS and mode != "nearest":
        attrs["channels_last"] = True
        last = ctx.g.add("transpose", [x], perm=(0, *range(2, axes + 2), 1))
        sampled = ctx.g.add("grid_sample", [last, flat], **attrs)
        found = ctx.g.add("transpose", [sampled], perm=(0, 2, 1))
    else:
        found = ctx.g.add("grid_sample", [x, flat], **attrs)
    return [reshape(ctx, found, (*found.shape[:2], *grid.shape[1:-1]))]


@onnx_op("AffineGrid", since=20)
def affine_grid(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """theta (n, d, d + 1) applied to the coordinates of every element, the last axis first."""
    g, theta, size = ctx.g, ctx.value(node, 0), ctx.value(node, 1)
    axes = (arith.as_int(size.tensor.numel) or 0) - 2
    if axes not in (2, 3) or [arith.as_int(d) for d in theta.shape[1:]] != [axes, axes + 1]:
        raise bad_model(node, f"theta {theta.type} does not fit sizes {size.type}")
    dtype = wide_dtype(theta.dtype)
    space = ctx.dims(node, 1)[2:]
    align = bool(node.attr("align_corners", 0))
    wide = cast(ctx, theta, dtype)
    total = matrix_column(ctx, wide, axes, axes)
    for column in range(axes):
        axis = axes - 1 - column  # of space, which has the last axis last
        row = [1] * axes
        steps = axis_coordinates(ctx, space[axis], align, dtype)
        steps = reshape(ctx, steps, (1, *row[:axis], space[axis], *row[axis + 1 :], 1))
        term = g.add("mul", [matrix_column(ctx, wide, column, axes), steps])
        total = g.add("add", [total, term])
    return [cast(ctx, total, theta.dtype)]


def matrix_column(ctx: Importer, theta: Value, column: int, axes: int) -> Value:
    """A column of every matrix, (n, d, d + 1)  →  (n, 1, …, d)."""
    n = theta.shape[0]
    part = ctx.g.add("slice", [theta], starts=(0, 0, column), sizes=(n, axes, 1), steps=(1, 1, 1))
    return reshape(ctx, part, (n, *[1] * axes, axes))


def axis_coordinates(ctx: Importer, size: arith.Expr, align: bool, dtype: DType) -> Value:
    """The coordinates of an axis: -1 … 1 are its border elements' centres (align), or its ends."""
    g = ctx.g
    zero, one = (scalar(ctx, n, dtypes.i64) for n in (0, 1))
    count = g.add("index_tensor", [], values=(size,), shape=())
    steps = cast(ctx, g.add("range", [zero, count, one], size=size), dtype)
    extent = cast(ctx, count, dtype)
    two, unit = scalar(ctx, 2.0, dtype), scalar(ctx, 1.0, dtype)
    if align:
        last = g.add("max", [g.add("sub", [extent, unit]), unit])  # a single element is at -1
        return g.add("sub", [g.add("div", [g.add("mul", [steps, two]), last]), unit])
    centres = g.add("add", [g.add("mul", [steps, two]), unit])
    return g.add("sub", [g.add("div", [centres, extent]), unit])
