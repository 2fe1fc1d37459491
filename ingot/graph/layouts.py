"""Layouts: maps logical shapes and indices to physical ones, and packs arrays.

A layout lists physical axes as (logical axis, block). Block 0 is the whole axis, or the outer axis
where another entry is an inner tile of it; the last tile is padded with zeros. Called by lower,
which alone sees physical indices, and by passes that choose layouts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.graph.types import Layout, TensorType


def channels_last(rank: int) -> Layout:
    """(batch, channels, *space) stored as (batch, *space, channels)."""
    return Layout(((0, 0), *((axis, 0) for axis in range(2, rank)), (1, 0)))


def panels(order: Sequence[int], axis: int, width: int, k_block: int = 1) -> Layout:
    """Packed panels of `width` along `axis`: (panel, *order, index in the panel). Along the last
    axis of `order`, `k_block` elements are adjacent: the terms of one dot product in a lane."""
    inner = ((order[-1], k_block),) if k_block > 1 else ()
    return Layout(((axis, 0), *((other, 0) for other in order), (axis, width), *inner))


def panel_of(layout: Layout) -> tuple[int, int] | None:
    """The width and the k-block of a layout in panels; None for any other layout."""
    blocks, (last, size) = blocks_of(layout), layout.axes[-1]
    panel = next((axis for axis, _ in layout.axes if axis in blocks), None)
    return None if panel is None else (blocks[panel], size if last != panel else 1)


def axis_order(type: TensorType) -> tuple[int, ...] | None:
    """The logical axes from outermost to innermost in memory; None for a blocked layout."""
    if type.layout is None:
        return tuple(range(type.rank))
    return tuple(a for a, _ in type.layout.axes) if is_permutation(type.layout) else None


def transposed_layout(type: TensorType, perm: Sequence[int]) -> Layout | None:
    """The layout of transpose(x, perm) as a view; None for the default or a blocked layout."""
    axes = axis_order(type)
    if axes is None:
        return None
    return permutation_layout([list(perm).index(axis) for axis in axes])


def same_bytes(type: TensorType, layout: Layout | None) -> bool:
    """Whether another layout stores the value in the same bytes: axes of size 1 do not matter."""
    before, after = axis_order(type), axis_order(replace(type, layout=layout))
    if before is None or after is None:
        return type.layout == layout
    long = [a for a in range(type.rank) if not arith.is_const(type.shape[a], 1)]
    return [a for a in before if a in long] == [a for a in after if a in long]


def permutation_layout(axes: Sequence[int]) -> Layout | None:
    """The layout whose physical axes are these logical ones; None for the default (row-major)."""
    is_default = tuple(axes) == tuple(range(len(axes)))
    return None if is_default else Layout(tuple((axis, 0) for axis in axes))


def is_permutation(layout: Layout) -> bool:
    return all(block == 0 for _, block in layout.axes)


def blocks_of(layout: Layout) -> dict[int, int]:
    """Logical axis → the size of its inner tile."""
    return {axis: block for axis, block in layout.axes if block}


def physical_shape(type: TensorType) -> tuple[arith.Expr, ...]:
    """The shape of a value's buffer."""
    if type.layout is None:
        return type.shape
    blocks = blocks_of(type.layout)
    return tuple(
        arith.Const(block) if block
        else simplify(arith.ceildiv(type.shape[axis], arith.Const(blocks[axis])))
        if axis in blocks
        else type.shape[axis]
        for axis, block in type.layout.axes
    )  # fmt: skip


def physical_index(layout: Layout, index: Sequence[arith.Expr]) -> tuple[arith.Expr, ...]:
    """The physical index of an element with this logical index."""
    blocks = blocks_of(layout)
    return tuple(
        index[axis] % block if block
        else index[axis] // blocks[axis] if axis in blocks
        else index[axis]
        for axis, block in layout.axes
    )  # fmt: skip


def packed_shape(layout: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    blocks = blocks_of(layout)
    return tuple(b or -(-shape[a] // blocks.get(a, 1)) for a, b in layout.axes)


def pack(layout: Layout, array: np.ndarray) -> np.ndarray:
    """The array packed into its physical layout."""
    out = np.zeros(packed_shape(layout, array.shape), array.dtype)
    pack_into(layout, array, out)
    return out


def pack_into(layout: Layout, array: np.ndarray, out: np.ndarray) -> None:
    """Pack the array into `out`, which holds zeros."""
    blocks = blocks_of(layout)
    split = [(a, b) for a in range(array.ndim) for b in (0, blocks.get(a)) if b is not None]
    tiles = out.transpose([layout.axes.index(a) for a in split])
    for pairs in itertools.product(*(_slices(n, blocks.get(a)) for a, n in enumerate(array.shape))):
        source, targets = zip(*pairs) if pairs else ((), ())
        target = tiles[tuple(itertools.chain(*targets))]
        target[...] = array[tuple(source)].reshape(target.shape)


def _slices(size: int, block: int | None) -> list[tuple[slice, tuple[slice, ...]]]:
    """An axis as full blocks and the remainder: (source slice, target slices) of each."""
    if block is None:
        return [(slice(None), (slice(None),))]
    whole, rest = size // block, size % block
    first = (slice(0, whole * block), (slice(0, whole), slice(None)))
    last = (slice(whole * block, size), (slice(whole, whole + 1), slice(0, rest)))
    return [pair for pair, count in ((first, whole), (last, rest)) if count]
