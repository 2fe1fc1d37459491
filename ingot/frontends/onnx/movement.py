"""ONNX converters of the movement family: Reshape, Slice, Split, Pad and the like.

In: ONNX nodes. Out: nodes of ops/movement.py and ops/concat_pad.py. Called by walker. Sizes that
are operands are read with `ctx.dims`, so they may be expressions over symbols.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.frontends.common.elements import (
    Dims,
    as_scalar,
    broadcast,
    cast,
    reshape,
    scalar,
    tidy,
)
from ingot.frontends.onnx.common import (
    axes_of,
    axis_of,
    bad_model,
    known_int,
    known_ints,
    number_of_axes,
    runtime_operand,
)
from ingot.frontends.onnx.registry import Importer, OnnxNode, onnx_op
from ingot.frontends.onnx.runtime_axes import RuntimeAxes, bound_sizes, with_named, without_named
from ingot.frontends.onnx.runtime_shapes import expanded_at_run_time, reshaped_at_run_time
from ingot.frontends.onnx.runtime_slice import runtime_slice
from ingot.graph.ir import Value
from ingot.graph.opdef import SizeMismatch
from ingot.ops.common import same_dim

# --- Reshape, Flatten, Squeeze ------------------------------------------------------------------


@onnx_op("Reshape")
def reshape_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [reshaped(ctx, node, [arith.wrap(d) for d in node.attr("shape")], False)]


@onnx_op("Reshape", since=5)
def reshape_input(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    allow_zero = bool(node.attr("allowzero", 0))
    if ctx.is_input(node, 1):
        return [reshaped_at_run_time(ctx, ctx.value(node, 0), ctx.value(node, 1), allow_zero)]
    return [reshaped(ctx, node, ctx.dims(node, 1), allow_zero)]


def reshaped(ctx: Importer, node: OnnxNode, wanted: Dims, allow_zero: bool) -> Value:
    """0 copies the input's size (unless allowzero), -1 is inferred from the other sizes."""
    x = ctx.value(node, 0)
    shape = list(wanted)
    if not allow_zero:
        shape[: x.tensor.rank] = map(partial(kept_if_zero, ctx), shape, x.shape)
    for axis, size in enumerate(shape):
        if arith.is_const(size, 0) and not allow_zero:
            if axis >= x.tensor.rank:
                raise bad_model(node, f"shape {shape} copies axis {axis}, missing in {x.type}")
            shape[axis] = x.shape[axis]
    inferred = [axis for axis, size in enumerate(shape) if arith.is_const(size, -1)]
    if len(inferred) > 1:
        raise bad_model(node, f"shape {shape} has more than one -1")
    for axis in inferred:
        shape[axis] = quotient(ctx, node, x.shape, [*shape[:axis], *shape[axis + 1 :]])
    return ctx.g.add("reshape", [x], shape=tuple(tidy(ctx, d) for d in shape))


def kept_if_zero(ctx: Importer, size: arith.Expr, kept: arith.Expr) -> arith.Expr:
    """A data-dependent size may be 0 at run time, which copies the input's size. The result is a
    symbol of its own: products of such sums would be sizes about which nothing can be proved."""
    if not isinstance(size, arith.Var) or same_dim(size, kept):
        return size
    if size.name not in {s for n in ctx.g.nodes if n.op == "bind" for s in n.attr("symbols")}:
        return size
    is_zero = 1 - arith.minimum(size, 1)
    found = tidy(ctx, size + kept * is_zero)
    if isinstance(found, arith.Var | arith.Const):
        return found
    chosen = ctx.g.add("index_tensor", [], values=(found,), shape=(1,))
    return bound_sizes(ctx, chosen)[0]


def quotient(ctx: Importer, node: OnnxNode, dividend: Dims, divisor: Dims) -> arith.Expr:
    """product(dividend) / product(divisor), common factors cancelled: n·12·64 / (n·12) is 64."""
    above, below = factors(ctx, dividend), factors(ctx, divisor)
    common = above & below
    top = arith.product(list((above - common).elements()))
    bottom = arith.product(list((below - common).elements()))
    if arith.is_const(bottom, 0):
        raise bad_model(node, "-1 cannot be inferred with an axis of size 0")
    a, b = arith.as_int(top), arith.as_int(bottom)
    if a is not None and b is not None and a % b:
        raise bad_model(node, f"{a} elements are not divisible by {b}")
    return top // tidy(ctx, arith.maximum(bottom, 1))  # nothing is left to infer where it is 0


def factors(ctx: Importer, dims: Dims) -> Counter[arith.Expr]:
    """Symbolic factors, and prime ones, so that 768 / 64 cancels in products with symbols too."""
    found: Counter[arith.Expr] = Counter()
    pending = [tidy(ctx, d) for d in dims]
    while pending:
        factor = pending.pop()
        number = arith.as_int(factor)
        if isinstance(factor, arith.Mul):
            pending += [factor.a, factor.b]
        elif number is None or number < 2:
            found[factor] += 1
        else:
            found.update(arith.Const(p) for p in primes(number))
    del found[arith.Const(1)]
    return found


def primes(number: int) -> list[int]:
    found, divisor = [], 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found


@onnx_op("Flatten")
def flatten(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    axis, rank = node.attr("axis", 1), x.tensor.rank
    if not -rank <= axis <= rank:
        raise bad_model(node, f"axis {axis} is out of range for a tensor of rank {rank}")
    axis = axis + rank if axis < 0 else axis
    halves = [arith.product(list(half)) for half in (x.shape[:axis], x.shape[axis:])]
    return [ctx.g.add("reshape", [x], shape=tuple(tidy(ctx, d) for d in halves))]


@onnx_op("Squeeze")
def squeeze_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [squeezed(ctx, node, node.attr("axes"))]


@onnx_op("Squeeze", since=13)
def squeeze(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    axes = runtime_operand(ctx, node, 1)
    if axes is None:
        return [squeezed(ctx, node, known_ints(ctx, node, 1, "the axes"))]
    x, count = ctx.value(node, 0), number_of_axes(ctx, node, axes)
    chosen = RuntimeAxes(ctx, axes, x.tensor.rank)
    return [without_named(ctx, x, chosen, x.tensor.rank - count)]


def squeezed(ctx: Importer, node: OnnxNode, axes: Sequence[int] | None) -> Value:
    x = ctx.value(node, 0)
    if axes is None:
        dropped = [k for k, d in enumerate(x.shape) if arith.is_const(tidy(ctx, d), 1)]
    else:
        dropped = axes_of(node, axes, x.tensor.rank)
    for axis in dropped:
        size = arith.as_int(x.shape[axis])
        if size is not None and size != 1:
            raise bad_model(node, f"axis {axis} of {x.type} does not have size 1")
    kept = [tidy(ctx, d) for k, d in enumerate(x.shape) if k not in dropped]
    made = ctx.g.add("reshape", [x], shape=tuple(kept))
    return made if axes is not None else none_is_one(ctx, made)


def none_is_one(ctx: Importer, x: Value) -> Value:
    """x, whose dynamic axes were kept by a Squeeze that names none: at size 1 they would be
    dropped, which no type can express, so that is an error at run time."""
    dynamic = tuple(d for d in x.shape if arith.as_int(d) is None)
    if not dynamic:
        return x
    sizes = ctx.g.add("index_tensor", [], values=dynamic, shape=(len(dynamic),))
    is_one = ctx.g.add("eq", [sizes, ctx.g.constant(np.ones(1, np.int64))])
    found = ctx.g.add("reduce_max", [cast(ctx, is_one, dtypes.i32)], axes=(0,), keepdims=False)
    fine = ctx.g.add("eq", [found, scalar(ctx, 0, dtypes.i32)])
    reason = "Squeeze without axes: an axis of dynamic size is 1, name the axes to drop"
    return ctx.g.add("require", [x, fine], expected=True, reason=reason)


@onnx_op("Unsqueeze")
def unsqueeze_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [unsqueezed(ctx, node, node.attr("axes"))]


@onnx_op("Unsqueeze", since=13)
def unsqueeze(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    axes = runtime_operand(ctx, node, 1)
    if axes is None:
        return [unsqueezed(ctx, node, known_ints(ctx, node, 1, "the axes") or [])]
    x = ctx.value(node, 0)
    rank = x.tensor.rank + number_of_axes(ctx, node, axes)
    return [with_named(ctx, x, RuntimeAxes(ctx, axes, rank))]


def unsqueezed(ctx: Importer, node: OnnxNode, axes: Sequence[int]) -> Value:
    x = ctx.value(node, 0)
    rank = x.tensor.rank + len(axes)
    new, old = axes_of(node, axes, rank), iter(x.shape)
    shape = tuple(arith.Const(1) if k in new else next(old) for k in range(rank))
    return ctx.g.add("reshape", [x], shape=shape)


# --- Transpose, Concat, Expand, Tile, Trilu -----------------------------------------------------


@onnx_op("Transpose")
def transpose(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    perm = node.attr("perm") or list(reversed(range(x.tensor.rank)))
    return [ctx.g.add("transpose", [x], perm=tuple(perm))]


@onnx_op("Concat")
def concat(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    operands = [ctx.value(node, i) for i in range(len(node.inputs))]
    axis = axis_of(node, node.attr("axis", 1), operands[0].tensor.rank)
    return [ctx.g.add("concat", operands, axis=axis)]


@onnx_op("Expand")
def expand(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    if ctx.is_input(node, 1) and x.tensor.static_shape is not None:
        return [expanded_at_run_time(ctx, x, ctx.value(node, 1))]
    return [ctx.g.add("expand", [x], shape=broadcast(ctx, x.shape, ctx.dims(node, 1)))]


@onnx_op("Tile")
def tile_one(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Opset 1: one axis is repeated."""
    x = ctx.value(node, 0)
    repeats: list[arith.Expr] = [arith.Const(1)] * x.tensor.rank
    (count,) = ctx.dims(node, 1)
    repeats[axis_of(node, known_int(ctx, node, 2, "the axis", 0), x.tensor.rank)] = count
    return [ctx.g.add("tile", [x], repeats=tuple(repeats))]


@onnx_op("Tile", since=6)
def tile(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    return [ctx.g.add("tile", [ctx.value(node, 0)], repeats=ctx.dims(node, 1))]


@onnx_op("Trilu")
def trilu(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    k, upper = ctx.optional(node, 1), bool(node.attr("upper", 1))
    if k is not None and not is_size(ctx, k):
        return [trilu_by_value(ctx, ctx.value(node, 0), as_scalar(ctx, k), upper)]
    diagonal = arith.Const(0) if k is None else ctx.dims(node, 1)[0]
    return [ctx.g.add("trilu", [ctx.value(node, 0)], upper=upper, k=diagonal)]


def is_size(ctx: Importer, x: Value) -> bool:
    """Whether the elements follow from constants and sizes: known values are such nodes."""
    sources = (n for n in ctx.g.nodes if n.op in ("constant", "index_tensor"))
    return any(x.name == out.name for node in sources for out in node.outputs)


def trilu_by_value(ctx: Importer, x: Value, k: Value, upper: bool) -> Value:
    """The diagonal is data: it may be negative, which no size is."""
    g, (rows, columns) = ctx.g, x.shape[-2:]
    zero, one = (scalar(ctx, n, dtypes.i64) for n in (0, 1))

    def positions(size: arith.Expr) -> Value:
        end = g.add("index_tensor", [], values=(size,), shape=())
        return g.add("range", [zero, end, one], size=size)

    row = reshape(ctx, positions(rows), (rows, 1))
    start = g.add("add", [row, cast(ctx, k, dtypes.i64)])
    keep = g.add("ge" if upper else "le", [positions(columns), start])
    return g.add("where", [keep, x, scalar(ctx, 0, x.dtype)])


@onnx_op("DepthToSpace")
def depth_to_space(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, block = ctx.value(node, 0), node.attr("blocksize")
    n, c, h, w = x.shape
    depth = tidy(ctx, c // (block * block))
    if node.attr("mode", "DCR") == "CRD":
        split, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    else:
        split, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    moved = ctx.g.add("transpose", [reshape(ctx, x, split)], perm=perm)
    return [reshape(ctx, moved, (n, depth, h * block, w * block))]


@onnx_op("SpaceToDepth")
def space_to_depth(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x, block = ctx.value(node, 0), node.attr("blocksize")
    n, c, h, w = x.shape
    rows, columns = tidy(ctx, h // block), tidy(ctx, w // block)
    split = reshape(ctx, x, (n, c, rows, block, columns, block))
    perm = (0, 1, 3, 5, 2, 4) if node.attr("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    moved = ctx.g.add("transpose", [split], perm=perm)
    return [reshape(ctx, moved, (n, c * (block * block), rows, columns))]


# --- Slice and Split ----------------------------------------------------------------------------

OPEN_END = (1 << 31) - 1  # exporters write INT32_MAX or INT64_MAX for "to the end"


@onnx_op("Slice")
def slice_attrs(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    starts = [arith.wrap(v) for v in node.attr("starts")]
    ends = [arith.wrap(v) for v in node.attr("ends")]
    axes = node.attr("axes") or list(range(len(starts)))
    return [sliced(ctx, node, starts, ends, axes, [1] * len(starts))]


@onnx_op("Slice", since=10)
def slice_inputs(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    axes, steps = (runtime_operand(ctx, node, i) for i in (3, 4))
    if axes is not None or steps is not None:
        starts, ends = ctx.value(node, 1), ctx.value(node, 2)
        number_of_axes(ctx, node, starts)  # an error where it is not known
        given = ctx.optional(node, 3), ctx.optional(node, 4)
        return [runtime_slice(ctx, ctx.value(node, 0), starts, ends, *given)]
    return slice_known(ctx, node)


def slice_known(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Axes and steps are constant; starts and ends may be sizes."""
    starts, ends = ctx.dims(node, 1), ctx.dims(node, 2)
    axes = known_ints(ctx, node, 3, "the axes")
    steps = known_ints(ctx, node, 4, "the steps")
    axes = list(range(len(starts))) if axes is None else axes
    return [sliced(ctx, node, starts, ends, axes, steps or [1] * len(starts))]


def sliced(
    ctx: Importer, node: OnnxNode, starts: Dims, ends: Dims, axes: Sequence[int],
    steps: Sequence[int],
) -> Value:  # fmt: skip
    x = ctx.value(node, 0)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise bad_model(node, "starts, ends, axes and steps differ in length")
    begin: list[arith.Expr] = [arith.Const(0)] * x.tensor.rank
    sizes, strides = list(x.shape), [1] * x.tensor.rank
    for axis, start, end, step in zip(
        axes_of(node, axes, x.tensor.rank), starts, ends, steps, strict=True
    ):
        if step == 0:
            raise bad_model(node, f"the step of axis {axis} is zero")
        begin[axis], sizes[axis] = span(ctx, x.shape[axis], start, end, step)
        strides[axis] = step
    return slice_of(ctx, x, begin, sizes, strides)


def slice_of(ctx: Importer, x: Value, begin: Dims, sizes: Dims, strides: Sequence[int]) -> Value:
    return ctx.g.add("slice", [x], starts=tuple(begin), sizes=tuple(sizes), steps=tuple(strides))


def span(
    ctx: Importer, extent: arith.Expr, start: arith.Expr, end: arith.Expr, step: int
) -> tuple[arith.Expr, arith.Expr]:
    """The start and the size of a slice by ONNX's rules, as expressions over symbols. Unlike
    numpy's, a start before the axis is its first element if the step is negative too."""
    high = extent if step > 0 else extent - 1
    first = clamped(ctx, start, extent, tidy(ctx, arith.minimum(high, 0)), high)
    last = clamped(ctx, end, extent, arith.Const(0 if step > 0 else -1), high)
    if _is_empty(start, end, step):
        return first, arith.Const(0)
    gap = last - first if step > 0 else first - last
    count = tidy(ctx, arith.maximum(arith.ceildiv(gap, abs(step)), 0))
    return first, count


def _is_empty(start: arith.Expr, end: arith.Expr, step: int) -> bool:
    """Whether constant bounds leave nothing of an axis of any size: clamping keeps their order."""
    a, b = arith.as_int(start), arith.as_int(end)
    if a is None or b is None:
        return False
    return (a >= b and (a < 0) == (b < 0)) if step > 0 else 0 <= a <= b


def clamped(
    ctx: Importer, bound: arith.Expr, extent: arith.Expr, low: arith.Expr, high: arith.IntLike
) -> arith.Expr:
    """A bound, with a negative one wrapped, clamped to low … high."""
    number = arith.as_int(bound)
    if number is not None and number >= OPEN_END:
        return tidy(ctx, high)
    if number is not None and number < -OPEN_END:
        return low
    # 1 where the bound is negative, 0 elsewhere: integer expressions have no select
    is_negative = arith.minimum(arith.maximum(-bound, 0), 1)
    front = bound + extent * tidy(ctx, is_negative)
    return tidy(ctx, arith.maximum(arith.minimum(front, high), low))


@onnx_op("Split")
def split_attr(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    given = node.attr("split")
    if given is None and len(node.inputs) > 1:  # opset 1 also has the sizes as an operand
        given = ctx.dims(node, 1)
    return splits(ctx, node, given)


@onnx_op("Split", since=13)
def split(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    given = ctx.dims(node, 1) if ctx.optional(node, 1) is not None else None
    return splits(ctx, node, given)


def splits(ctx: Importer, node: OnnxNode, given: Sequence[arith.IntLike] | None) -> Sequence[Value]:
    x = ctx.value(node, 0)
    axis = axis_of(node, node.attr("axis", 0), x.tensor.rank)
    extent, count = x.shape[axis], node.attr("num_outputs", len(node.outputs))
    are_given = given is not None
    if count != len(node.outputs):
        raise bad_model(node, f"num_outputs is {count}, but there are {len(node.outputs)} outputs")
    if given is None:
        given = equal_sizes(ctx, extent, count)
    total = tidy(ctx, sum((arith.wrap(s) for s in given), arith.Const(0)))
    excess = arith.as_int(tidy(ctx, total - extent))
    if excess not in (0, None) or len(given) != len(node.outputs):
        raise bad_model(node, f"sizes {list(given)} do not add up to axis {axis} of {x.type}")
    if excess is None and are_given:
        x = with_size(ctx, x, axis, total)
    found, offset = [], arith.wrap(0)
    for size in given:
        begin: list[arith.Expr] = [arith.Const(0)] * x.tensor.rank
        sizes = list(x.shape)
        begin[axis], sizes[axis] = tidy(ctx, offset), arith.wrap(size)
        found.append(slice_of(ctx, x, begin, sizes, [1] * x.tensor.rank))
        offset = offset + size
    return found


def with_size(ctx: Importer, x: Value, axis: int, size: arith.Expr) -> Value:
    """x, whose axis must have `size`: a dynamic dimension of an input is constrained to it, any
    other size is checked at run time."""
    extent = x.shape[axis]
    symbol = ctx.g.symbols.get(extent.name) if isinstance(extent, arith.Var) else None
    if symbol is not None and symbol.source == "input" and arith.as_int(size) is not None:
        what = f"sizes of {size} in total do not add up to an axis of {extent}"
        ctx.g.unify(SizeMismatch(extent, size, "split", what))
        return ctx.g.current(x)
    return reshape(ctx, x, [size if i == axis else d for i, d in enumerate(x.shape)])


def equal_sizes(ctx: Importer, extent: arith.Expr, count: int) -> list[arith.Expr]:
    """`count` equal sizes; the last is smaller if they do not divide the axis."""
    each = tidy(ctx, arith.ceildiv(extent, count))
    if arith.is_const(tidy(ctx, extent % count), 0):
        return [tidy(ctx, extent // count)] * count
    left = [tidy(ctx, extent - each * k) for k in range(count)]
    return [tidy(ctx, arith.maximum(arith.minimum(each, rest), 0)) for rest in left]


# --- Pad ----------------------------------------------------------------------------------------


@onnx_op("Pad")
def pad_attrs(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    x = ctx.value(node, 0)
    amounts = node.attr("pads", node.attr("paddings"))
    value = scalar(ctx, node.attr("value", 0.0), x.dtype)
    return [padded(ctx, node, [arith.wrap(v) for v in amounts], value, None)]


@onnx_op("Pad", since=11)
def pad_inputs(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    value, named = ctx.optional(node, 2), runtime_operand(ctx, node, 3)
    fill = None if value is None else as_scalar(ctx, value)
    if named is not None:
        return [padded(ctx, node, amounts_at_run_time(ctx, node, named), fill, None)]
    axes = known_ints(ctx, node, 3, "the axes")
    return [padded(ctx, node, ctx.dims(node, 1), fill, axes)]


def amounts_at_run_time(ctx: Importer, node: OnnxNode, axes: Value) -> Dims:
    """The amounts for every axis, in front and then behind, of those for axes that are data."""
    x, pads, g = ctx.value(node, 0), ctx.value(node, 1), ctx.g
    count = number_of_axes(ctx, node, axes)
    if not same_dim(pads.tensor.numel, 2 * count):
        raise bad_model(node, f"{pads.type} has no two pads for each of {count} axes")
    named = RuntimeAxes(ctx, axes, x.tensor.rank)
    pairs = reshape(ctx, pads, (2, count))
    none = scalar(ctx, 0, dtypes.i64)
    sides = [g.add("gather", [pairs, scalar(ctx, i, dtypes.i64)], axis=0) for i in range(2)]
    return tuple(d for side in sides for d in named.bound(named.spread(side, none)))


def padded(
    ctx: Importer, node: OnnxNode, amounts: Dims, value: Value | None, axes: Sequence[int] | None
) -> Value:
    x, mode = ctx.value(node, 0), node.attr("mode", "constant")
    rank = x.tensor.rank
    padded_axes = list(range(rank)) if axes is None else axes_of(node, axes, rank)
    count = len(padded_axes)
    if len(amounts) != 2 * count:
        raise bad_model(node, f"{len(amounts)} pads for {count} axes")
    before: list[arith.Expr] = [arith.Const(0)] * rank
    after = list(before)
    for k, axis in enumerate(padded_axes):
        before[axis], after[axis] = amounts[k], amounts[k + count]
    operands = [x, value if mode == "constant" else None]
    return ctx.g.add("pad", operands, before=tuple(before), after=tuple(after), mode=mode)


@onnx_op("CenterCropPad")
def center_crop_pad(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
    """Cropped or padded to `shape` around the centre: a pad with possibly negative amounts."""
    x, wanted = ctx.value(node, 0), ctx.dims(node, 1)
    rank = x.tensor.rank
    axes = axes_of(node, node.attr("axes", list(range(rank))), rank)
    before: list[arith.Expr] = [arith.Const(0)] * rank
    after = list(before)
    for axis, size in zip(axes, wanted, strict=True):
        more = size - x.shape[axis]
        added, cropped = arith.maximum(more, 0), arith.maximum(-more, 0)
        before[axis] = tidy(ctx, added // 2 - cropped // 2)
        after[axis] = tidy(ctx, more - before[axis])
    return [ctx.g.add("pad", [x, None], before=tuple(before), after=tuple(after), mode="constant")]
