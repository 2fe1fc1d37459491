"""Reshapes of values that are not in the plain order: where one still moves nothing.

    (n, c, h, w) as n, h, w, c   →  (n, c, h·w) as n, h·w, c
    (n, g·c, h, w) as n, h, w, g·c  →  (n, g, c, h, w) as n, h, w, g, c

Axes that become others together must lie one after the other. Used by choose_layouts and fuse.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.arith import expr as arith
from ingot.graph.ir import Node
from ingot.graph.layouts import channels_last, in_order, order, same_bytes
from ingot.graph.types import Layout, TensorType
from ingot.ops.movement import matching_groups


def reshaped(x: TensorType, out: TensorType) -> TensorType | None:
    """The type of a reshape of x to the shape of `out` whose bytes are those of x; None if there is
    none. Axes of one element stand where a layout in use has them."""
    axes = order(x)
    if axes is None:
        return None
    long, long_out = _long_axes(x), _long_axes(out)
    runs = matching_groups([x.shape[a] for a in long], [out.shape[a] for a in long_out])
    starts = {long[before[0]]: (before, after) for before, after in runs if before}
    todo = [axis for axis in axes if axis in long]
    made = [axis for axis in range(out.rank) if axis not in long_out]
    while todo:
        before, after = starts.get(todo[0], ([], []))
        if not before or todo[: len(before)] != [long[i] for i in before]:
            return None
        made += [long_out[i] for i in after]
        todo = todo[len(before) :]
    if len(made) != out.rank:
        return None  # of no elements
    laid = replace(out, layout=in_order(made))
    usual = (None, channels_last(out.rank)) if out.rank > 1 else (None,)
    return replace(out, layout=next((u for u in usual if same_bytes(laid, u)), laid.layout))


def _long_axes(type: TensorType) -> list[int]:
    return [axis for axis, size in enumerate(type.shape) if not arith.is_const(size, 1)]


def layout_after(reshape: Node) -> Layout | None:
    """How its result lies if not a byte moves; None too where some do."""
    (x, (out,)) = reshape.inputs[0], reshape.outputs
    made = None if x is None else reshaped(x.tensor, out.tensor)
    return None if made is None else made.layout


def moves_nothing(reshape: Node) -> bool:
    """Whether the layouts on both sides make it the same bytes."""
    (x, (out,)) = reshape.inputs[0], reshape.outputs
    assert x is not None
    made = reshaped(x.tensor, out.tensor)
    return made is not None and same_bytes(made, out.tensor.layout)
