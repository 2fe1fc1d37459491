"""Views: when a reshape or a transpose keeps its operand's bytes in place and needs no kernel.

    (n, c, h, w) as n, h, w, c   →  (n, c, h·w) as n, h·w, c
    (n, g·c, h, w) as n, h, w, g·c  →  (n, g, c, h, w) as n, h, w, g, c

Axes that are merged or split together must be contiguous. Used by the passes
from sink_reshapes on, and by lower.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.arith import expr as arith
from ingot.graph.ir import Node
from ingot.graph.layouts import axis_order, channels_last, permutation_layout, same_bytes
from ingot.graph.opdef import defn
from ingot.graph.types import Layout, TensorType, same_size
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


def is_view(node: Node) -> bool:
    """Whether a node is a view of its operand's bytes, so that it needs no kernel."""
    if defn(node).permutes:
        return _is_transpose_view(node)
    if not defn(node).is_view or node.inputs[0] is None:
        return False
    has_layout = any(v.tensor.layout is not None for v in (node.inputs[0], *node.outputs))
    if has_layout and not is_copy_free(node):
        return False
    return same_size(node.inputs[0].type.numel, node.outputs[0].type.numel)


def _is_transpose_view(transpose: Node) -> bool:
    """Whether a transpose keeps the bytes in place, given the layouts of operand and output."""
    source, (out,) = transpose.inputs[0], transpose.outputs
    assert source is not None
    before, after = axis_order(source.tensor), axis_order(out.tensor)
    if before is None or after is None:
        return False
    perm = transpose.attr("perm")
    return tuple(perm[axis] for axis in after) == before
