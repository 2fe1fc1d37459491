"""Reshapes as views: when a reshape of a value in another layout needs no copy.

    (n, c, h, w) as n, h, w, c   →  (n, c, h·w) as n, h·w, c
    (n, g·c, h, w) as n, h, w, g·c  →  (n, g, c, h, w) as n, h, w, g, c

Axes that are merged or split together must be contiguous. Used by choose_layouts and fuse.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.arith import expr as arith
from ingot.graph.ir import Node
from ingot.graph.layouts import axis_order, channels_last, permutation_layout, same_bytes
from ingot.graph.types import Layout, TensorType
from ingot.ops.movement import matching_groups


def reshape_as_view(x: TensorType, out: TensorType) -> TensorType | None:
    """The type of x reshaped to the shape of `out` as a view; None if a copy is needed. Axes of
    size 1 may have any position: it follows the default or the channels-last layout if possible."""
    axes = axis_order(x)
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
        return None  # no elements
    view = replace(out, layout=permutation_layout(made))
    usual = (None, channels_last(out.rank)) if out.rank > 1 else (None,)
    return replace(out, layout=next((u for u in usual if same_bytes(view, u)), view.layout))


def _long_axes(type: TensorType) -> list[int]:
    return [axis for axis, size in enumerate(type.shape) if not arith.is_const(size, 1)]


def layout_of_view(reshape: Node) -> Layout | None:
    """The layout of a reshape's output as a view; None for the default layout or a copy."""
    (x, (out,)) = reshape.inputs[0], reshape.outputs
    made = None if x is None else reshape_as_view(x.tensor, out.tensor)
    return None if made is None else made.layout


def is_copy_free(reshape: Node) -> bool:
    """Whether a reshape keeps the bytes in place, given the layouts of operand and output."""
    (x, (out,)) = reshape.inputs[0], reshape.outputs
    assert x is not None
    made = reshape_as_view(x.tensor, out.tensor)
    return made is not None and same_bytes(made, out.tensor.layout)
