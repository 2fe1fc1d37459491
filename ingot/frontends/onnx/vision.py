"""ONNX converters of the vision family: GridSample, AffineGrid, Col2Im, MaxUnpool, DeformConv.

In: ONNX nodes. Out: nodes of ops/grid_sample.py and ops/columns.py, and compositions. Called by
walker.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.frontends.common.elements import cast, indices, reshape, scalar, tidy
from ingot.frontends.onnx.common import bad_model
from ingot.frontends.onnx.conv import kernel_of, window_attrs
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.runtime_axes import bound_sizes
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


@onnx_op("Col2Im", since=18)
def col2im(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """The columns (n, c · kernel, blocks) under the shape (n, c, *kernel, *blocks)."""
    x, image, kernel = ctx.value(node, 0), ctx.dims(node, 1), ctx.dims(node, 2)
    axes = len(image)
    strides, dilations = (tuple(node.attr(n) or (1,) * axes) for n in ("strides", "dilations"))
    pads = tuple(node.attr("pads") or (0,) * (2 * axes))
    lengths = {len(kernel), len(strides), len(dilations), len(pads) // 2}
    if x.tensor.rank != 3 or lengths != {axes} or min((*strides, *dilations), default=1) < 1:
        raise bad_model(node, f"block_shape or attributes do not fit {axes} axes of {x.type}")
    channels = x.shape[1] // arith.maximum(arith.product(list(kernel)), 1)
    rows = zip(image, kernel, strides, dilations, pads[:axes], pads[axes:])
    blocks = [(n + lo + hi - d * (k - 1) - 1) // s + 1 for n, k, s, d, lo, hi in rows]
    channels, *blocks = settled(ctx, [channels, *blocks])
    columns = ctx.g.add("reshape", [x], shape=(x.shape[0], channels, *kernel, *blocks))
    found = ctx.g.add(
        "col2im", [columns], image=image, strides=strides, dilations=dilations, pads=pads
    )
    return [found]


def settled(ctx: Importer, sizes: Sequence[arith.Expr]) -> list[arith.Expr]:
    """Sizes as symbols of their own where they are computed from data, about which little can be
    proved; numbers and sizes of inputs stay as they are."""
    known = [tidy(ctx, size) for size in sizes]
    late = {name for name, s in ctx.g.symbols.items() if s.source == "node"}
    if not any(arith.free_vars(size) & late for size in known):
        return known
    table = ctx.g.add("index_tensor", [], values=tuple(known), shape=(len(known),))
    return list(bound_sizes(ctx, table))


@onnx_op("MaxUnpool", since=9)
def max_unpool(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Elements stored where a max pool found them; zeros elsewhere. Indices count in the size that
    the pool's window implies; a larger output_shape has zeros behind it."""
    x, places = ctx.value(node, 0), ctx.value(node, 1)
    kernel = node.attr("kernel_shape")
    axes = x.tensor.rank - 2
    if not kernel or len(kernel) != axes or places.tensor.rank != x.tensor.rank:
        raise bad_model(node, f"kernel_shape {kernel} and {places.type} do not fit {x.type}")
    strides = node.attr("strides") or [1] * axes
    pads = node.attr("pads") or [0] * (2 * axes)
    if len(strides) != axes or len(pads) != 2 * axes:
        raise bad_model(node, f"strides or pads do not fit {x.type}")
    rows = zip(x.shape[2:], kernel, strides, pads[:axes], pads[axes:])
    space = [tidy(ctx, (n - 1) * s - lo - hi + k) for n, k, s, lo, hi in rows]
    shape = (*x.shape[:2], *space)
    count = tidy(ctx, arith.product(list(shape)))
    zeros = ctx.g.add("fill", [scalar(ctx, 0, x.dtype)], shape=(count,))
    flat = [reshape(ctx, v, (v.tensor.numel,)) for v in (indices(ctx, places), x)]
    filled = ctx.g.add("scatter_elements", [zeros, *flat], axis=0)
    found = reshape(ctx, filled, shape)
    if ctx.optional(node, 2) is None:
        return [found]
    wanted = ctx.dims(node, 2)
    if len(wanted) != x.tensor.rank:
        raise bad_model(node, f"output_shape has {len(wanted)} sizes for {x.type}")
    after = tuple(tidy(ctx, w - n) for w, n in zip(wanted, shape))
    return [ctx.g.add("pad", [found], before=(0,) * len(shape), after=after)]


@onnx_op("DeformConv", since=19)
def deform_conv(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Columns at the places that offsets move the window's elements to, times the weights."""
    g = ctx.g
    x, w, offsets = (ctx.value(node, k) for k in range(3))
    bias, mask = ctx.optional(node, 3), ctx.optional(node, 4)
    if x.tensor.rank != 4:
        raise ctx.unsupported(node, f"it convolves {x.type}, not two spatial axes")
    kernel = kernel_of(ctx, node, w)
    attrs = window_attrs(ctx, node, x.shape[2:], kernel)
    groups, per_offset = node.attr("group", 1), node.attr("offset_group", 1)
    n, outs, space = x.shape[0], w.shape[0], offsets.shape[2:]
    points = arith.product(list(space))
    moved = [None if v is None else reshape(ctx, v, (n, v.shape[1], points))
             for v in (offsets, mask)]  # fmt: skip
    columns = g.add(
        "deform_columns", [x, *moved], kernel=tuple(kernel), groups=per_offset, width=space[1],
        **attrs,
    )  # fmt: skip
    depth = tidy(ctx, w.shape[1] * kernel[0] * kernel[1])
    if not arith.is_const(tidy(ctx, outs % groups), 0):
        raise bad_model(node, f"weights {w.type} have no {groups} groups")
    columns = reshape(ctx, columns, (n, groups, depth, points))
    weights = reshape(ctx, w, (groups, outs // groups, depth))
    found = reshape(ctx, g.add("matmul", [weights, columns]), (n, outs, *space))
    if bias is not None:
        found = g.add("add", [found, reshape(ctx, bias, (outs, 1, 1))])
    return [found]
