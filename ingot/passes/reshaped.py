"""Reshapes of values that are not in the plain order: where one still moves nothing.

    (n, c, h, w) as n, h, w, c   →  (n, c, h·w) as n, h·w, c
    (n, g·c, h, w) as n, h, w, g·c  →  (n, g, c, h, w) as n, h, w, g, c

Axes that become others together must lie one after the other. Used by choose_layouts and fuse.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.arith import expr as arith
from ingot.graph.ir import Node
from ingot.graph.layouts import in_order, order
from ingot.graph.types import Layout, TensorType
from ingot.ops.movement import matching_groups


def reshaped(x: TensorType, shape: Sequence[arith.Expr]) -> tuple[int, ...] | None:
    """The order of the axes of a reshape of x whose bytes are those of x; None if they are not."""
    axes = order(x)
    if axes is None:
        return None
    runs = matching_groups(x.shape, shape)
    made = [axis for before, after in runs if not before for axis in after]  # of one element
    starts = {before[0]: (before, after) for before, after in runs if before}
    place = 0
    while place < x.rank:
        before, after = starts.get(axes[place], ([], []))
        if not before or list(axes[place : place + len(before)]) != before:
            return None
        made += after
        place += len(before)
    return tuple(made)


def layout_after(reshape: Node) -> Layout | None:
    """How its result lies if not a byte moves, where that is not the plain order."""
    (x, (out,)) = reshape.inputs[0], reshape.outputs
    axes = None if x is None else reshaped(x.tensor, out.tensor.shape)
    return None if axes is None else in_order(axes)


def moves_nothing(reshape: Node) -> bool:
    """Whether the layouts on both sides make it the same bytes."""
    (x, (out,)) = reshape.inputs[0], reshape.outputs
    assert x is not None
    axes = reshaped(x.tensor, out.tensor.shape)
    return axes is not None and axes == order(out.tensor)
