"""Converters that move elements: views, permutations, broadcasts, slices, concatenations.

In: tensors, sizes as ints or expressions. Out: nodes of ops/movement.py, slicing.py and
concat_pad.py. Called by the importer. A view has the shape that tracing found. Views by strides are
in strided.py, padding in pad.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.arith import expr as arith
from ingot.frontends.common.elements import reshape, tidy
from ingot.frontends.torch.common import axes_of, axis_of, cast, known_int, transposed
from ingot.frontends.torch.registry import Importer, TorchNode, aten
from ingot.graph.ir import Value

# --- views --------------------------------------------------------------------------------------


@aten(
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default",
    "aten._reshape_alias.default", "aten.view_copy.default", "aten.flatten.using_ints",
    "aten.unflatten.int", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
    "aten.squeeze_copy.dim", "aten.unsqueeze.default", "aten.unsqueeze_copy.default",
    "aten.ravel.default", "prims.collapse_view.default", "prims.split_dim.default",
    "prims.reshape.default", "prims.squeeze.default", "aten.view_as.default",
    "aten.reshape_as.default", "prims.collapse.default",
)  # fmt: skip
def view(ctx: Importer, node: TorchNode, x: Value, *sizes: Any) -> Value:
    return reshape(ctx, x, node.output.shape)


@aten("aten.permute.default", "aten.permute_copy.default", "prims.transpose.default")
def permute(ctx: Importer, node: TorchNode, x: Value, dims: Sequence[int]) -> Value:
    return transposed(ctx, x, [axis_of(d, x.tensor.rank) for d in dims])


@aten("aten.transpose.int", "aten.swapaxes.default", "aten.swapdims.default")
def transpose(ctx: Importer, node: TorchNode, x: Value, a: int, b: int) -> Value:
    rank = x.tensor.rank
    order = list(range(rank))
    if rank:
        a, b = axis_of(a, rank), axis_of(b, rank)
        order[a], order[b] = b, a
    return transposed(ctx, x, order)


@aten("aten.t.default", "aten.numpy_T.default", "aten.mT.default")
def matrix_transpose(ctx: Importer, node: TorchNode, x: Value) -> Value:
    order = list(range(x.tensor.rank))
    if node.target.startswith("aten.mT"):
        order[-2:] = order[:-3:-1]
    else:
        order.reverse()
    return transposed(ctx, x, order)


@aten("aten.movedim.int", "aten.movedim.intlist", "aten.moveaxis.int", "aten.moveaxis.intlist")
def movedim(
    ctx: Importer, node: TorchNode, x: Value, source: int | Sequence[int], to: int | Sequence[int]
) -> Value:
    rank = x.tensor.rank
    first = [source] if isinstance(source, int) else source
    last = [to] if isinstance(to, int) else to
    places = {axis_of(b, rank): axis_of(a, rank) for a, b in zip(first, last)}
    rest = iter(k for k in range(rank) if k not in places.values())
    return transposed(ctx, x, [places[k] if k in places else next(rest) for k in range(rank)])


@aten(
    "aten.expand.default", "aten.expand_copy.default", "aten.expand_as.default",
    "aten.broadcast_to.default",
)  # fmt: skip
def expand(ctx: Importer, node: TorchNode, x: Value, *sizes: Any, implicit: bool = False) -> Value:
    shape = node.output.shape
    return x if shape == x.shape else ctx.g.add("expand", [x], shape=shape)


@aten("prims.broadcast_in_dim.default")
def broadcast_in_dim(
    ctx: Importer, node: TorchNode, x: Value, shape: Sequence[Any], axes: Sequence[int]
) -> Value:
    """Axis k of x is axis axes[k] of the result."""
    wanted = node.output.shape
    own = dict(zip(axes, x.shape))
    aligned = reshape(ctx, x, tuple(own.get(k, 1) for k in range(len(wanted))))
    return ctx.g.add("expand", [aligned], shape=wanted)


@aten("aten.repeat.default", "aten.tile.default")
def repeat(ctx: Importer, node: TorchNode, x: Value, repeats: Sequence[arith.IntLike]) -> Value:
    rank = max(len(repeats), x.tensor.rank)
    aligned = reshape(ctx, x, (*(1,) * (rank - x.tensor.rank), *x.shape))
    counts = (*(1,) * (rank - len(repeats)), *repeats)
    return ctx.g.add("tile", [aligned], repeats=tuple(map(arith.wrap, counts)))


# --- slices -------------------------------------------------------------------------------------


def first_of(ctx: Importer, start: arith.IntLike | None, extent: arith.Expr) -> arith.Expr:
    """A start by Python's rules: a negative one counts from the end, and it is inside the axis."""
    if start is None or start == 0:
        return arith.Const(0)
    begin = arith.wrap(start)
    is_negative = arith.minimum(arith.maximum(-begin, 0), 1)
    front = begin + extent * tidy(ctx, is_negative)
    return tidy(ctx, arith.maximum(arith.minimum(front, extent), 0))


def part(
    ctx: Importer, x: Value, axis: int, start: arith.IntLike, size: arith.IntLike, step: int = 1
) -> Value:
    """size elements of one axis."""
    if step == 1 and tidy(ctx, size) == x.shape[axis]:
        return x
    rank = x.tensor.rank
    starts = tuple(arith.wrap(start) if k == axis else arith.Const(0) for k in range(rank))
    sizes = tuple(arith.wrap(size) if k == axis else d for k, d in enumerate(x.shape))
    steps = tuple(step if k == axis else 1 for k in range(rank))
    return ctx.g.add("slice", [x], starts=starts, sizes=sizes, steps=steps)


@aten("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_axis(
    ctx: Importer, node: TorchNode, x: Value, dim: int = 0, start: arith.IntLike | None = None,
    end: arith.IntLike | None = None, step: arith.IntLike = 1,
) -> Value:  # fmt: skip
    axis = axis_of(dim, x.tensor.rank)
    begin = first_of(ctx, start, x.shape[axis])
    count = known_int(ctx, node, step, "the step")
    size = node.output.shape[axis]
    begin = arith.Const(0) if arith.is_const(size, 0) else begin
    return part(ctx, x, axis, begin, size, count)


@aten("aten.narrow.default", "aten.narrow_copy.default")
def narrow(
    ctx: Importer, node: TorchNode, x: Value, dim: int, start: arith.IntLike, length: Any
) -> Value:
    axis = axis_of(dim, x.tensor.rank)
    return part(ctx, x, axis, first_of(ctx, start, x.shape[axis]), node.output.shape[axis])


@aten("aten.select.int", "aten.select_copy.int")
def select(ctx: Importer, node: TorchNode, x: Value, dim: int, index: arith.IntLike) -> Value:
    axis = axis_of(dim, x.tensor.rank)
    return at_index(ctx, x, axis, first_of(ctx, index, x.shape[axis]))


def at_index(ctx: Importer, x: Value, axis: int, index: arith.IntLike) -> Value:
    """The slice at one index, without the axis."""
    found = part(ctx, x, axis, index, 1)
    return reshape(ctx, found, tuple(d for k, d in enumerate(x.shape) if k != axis))


@aten("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default", "aten.split.sizes")
def split_with_sizes(
    ctx: Importer, node: TorchNode, x: Value, sizes: Sequence[arith.IntLike], dim: int = 0
) -> list[Value]:
    axis, start, found = axis_of(dim, x.tensor.rank), arith.wrap(0), []
    for size in sizes:
        found.append(part(ctx, x, axis, tidy(ctx, start), size))
        start = start + size
    return found


@aten("aten.split.Tensor", "aten.chunk.default", "aten.tensor_split.sections")
def split(ctx: Importer, node: TorchNode, x: Value, size: Any, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, x.tensor.rank)
    sizes = [type.shape[axis] for type in node.outputs if type is not None]
    return split_with_sizes(ctx, node, x, sizes, dim)


@aten("aten.unbind.int")
def unbind(ctx: Importer, node: TorchNode, x: Value, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, x.tensor.rank)
    return [at_index(ctx, x, axis, k) for k in range(len(node.outputs))]


@aten("aten.flip.default", "prims.rev.default")
def flip(ctx: Importer, node: TorchNode, x: Value, dims: Sequence[int]) -> Value:
    for axis in axes_of(dims, x.tensor.rank) if dims else ():
        size = x.shape[axis]
        x = part(ctx, x, axis, tidy(ctx, arith.maximum(size - 1, 0)), size, -1)
    return x


@aten("aten.roll.default")
def roll(ctx: Importer, node: TorchNode, x: Value, shifts: Any, dims: Sequence[int] = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int | arith.Expr) else shifts
    if not dims:
        flat = reshape(ctx, x, (x.tensor.numel,))
        return reshape(ctx, rolled(ctx, flat, 0, shifts[0]), x.shape)
    for shift, dim in zip(shifts, dims):
        x = rolled(ctx, x, axis_of(dim, x.tensor.rank), shift)
    return x


def rolled(ctx: Importer, x: Value, axis: int, shift: arith.IntLike) -> Value:
    if not x.tensor.rank or arith.is_const(x.shape[axis], 0):
        return x
    size = x.shape[axis]
    ahead = tidy(ctx, arith.mod(arith.wrap(shift), size))
    if arith.is_const(ahead, 0):
        return x
    last = part(ctx, x, axis, tidy(ctx, size - ahead), ahead)
    return ctx.g.add("concat", [last, part(ctx, x, axis, 0, tidy(ctx, size - ahead))], axis=axis)


# --- concatenations -----------------------------------------------------------------------------


@aten("aten.cat.default", "aten.concat.default", "prims.cat.default")
def cat(ctx: Importer, node: TorchNode, tensors: Sequence[Value], dim: int = 0) -> Value:
    """An empty vector fits everything, by an old rule."""
    rank = node.output.rank
    kept = [x for x in tensors if x.tensor.rank == rank]
    operands = [cast(ctx, x, node.output.dtype) for x in kept or tensors]
    return operands[0] if len(operands) == 1 else ctx.g.add(
        "concat", operands, axis=axis_of(dim, rank)
    )  # fmt: skip


@aten("aten.stack.default")
def stack(ctx: Importer, node: TorchNode, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = axis_of(dim, node.output.rank)
    return joined(ctx, [cast(ctx, x, node.output.dtype) for x in tensors], axis)


def joined(ctx: Importer, tensors: Sequence[Value], axis: int) -> Value:
    """Tensors of one shape along a new axis."""
    shape = tensors[0].shape
    rows = [reshape(ctx, x, (*shape[:axis], 1, *shape[axis:])) for x in tensors]
    return rows[0] if len(rows) == 1 else ctx.g.add("concat", rows, axis=axis)


def triangle(ctx: Importer, node: TorchNode, x: Value, diagonal: arith.IntLike = 0) -> Value:
    upper = ".triu." in node.target
    return ctx.g.add("trilu", [x], upper=upper, k=arith.wrap(diagonal))


aten("aten.triu.default", "aten.tril.default")(triangle)


@aten("aten.pixel_shuffle.default")
def pixel_shuffle(ctx: Importer, node: TorchNode, x: Value, factor: int) -> Value:
    *lead, c, h, w = x.shape
    depth, count = tidy(ctx, c // (factor * factor)), len(lead)
    cut = reshape(ctx, x, (*lead, depth, factor, factor, h, w))
    order = (*range(count), *(count + k for k in (0, 3, 1, 4, 2)))
    return reshape(ctx, transposed(ctx, cut, order), node.output.shape)


@aten("aten.pixel_unshuffle.default")
def pixel_unshuffle(ctx: Importer, node: TorchNode, x: Value, factor: int) -> Value:
    *lead, c, h, w = x.shape
    count = len(lead)
    rows, columns = tidy(ctx, h // factor), tidy(ctx, w // factor)
    cut = reshape(ctx, x, (*lead, c, rows, factor, columns, factor))
    order = (*range(count), *(count + k for k in (0, 2, 4, 1, 3)))
    return reshape(ctx, transposed(ctx, cut, order), node.output.shape)


@aten("aten.channel_shuffle.default")
def channel_shuffle(ctx: Importer, node: TorchNode, x: Value, groups: int) -> Value:
    n, c, *space = x.shape
    cut = reshape(ctx, x, (n, groups, tidy(ctx, c // groups), *space))
    order = (0, 2, 1, *range(3, 3 + len(space)))
    return reshape(ctx, transposed(ctx, cut, order), x.shape)
