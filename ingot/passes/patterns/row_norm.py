"""What layer-norm and RMS-norm share: y / √(mean(y²) + ε) over the last axes, and their scale."""

from __future__ import annotations

from typing import NamedTuple

from ingot.graph.ir import Node, Value, replace
from ingot.passes.patterns.look import Look, either, trailing_axis

LAST = ("div", "mul")


class Normed(NamedTuple):
    """y of y / √(mean(y²) + epsilon), the mean from `axis` on."""

    value: Value
    axis: int
    epsilon: float


def normed(look: Look, node: Node) -> Normed | None:
    """A node that divides by the root, or multiplies by its inverse."""
    if node.op == "div":
        value, root = node.inputs
        return None if value is None else _of_root(look, value, look.made(root, "sqrt"))
    for value, factor in either(node):
        inverse = look.made(factor, "reciprocal", "div")
        if inverse is None or (inverse.op == "div" and not look.is_number(inverse.inputs[0], 1)):
            continue
        found = _of_root(look, value, look.made(inverse.inputs[-1], "sqrt"))
        if found is not None:
            return found
    return None


def _of_root(look: Look, value: Value, root: Node | None) -> Normed | None:
    total = None if root is None else look.with_number(look.made(root.inputs[0], "add"))
    mean = None if total is None else look.made(total[0], "reduce_mean")
    square = None if mean is None else look.made(mean.inputs[0], "mul")
    if total is None or mean is None or square is None or not mean.attr("keepdims"):
        return None
    axis = trailing_axis(mean.attr("axes"), value.tensor.rank)
    if axis is None or square.inputs != (value, value):
        return None
    return Normed(value, axis, total[1])


def absorbed(look: Look, node: Node, op: str, place: int) -> Node | None:
    """op(norm(x, …), p)  →  norm(x, …, p), where p is the operand at `place` and broadcasts."""
    if node.op != op:
        return None
    for value, param in either(node):
        norm = look.made(value, "layer_norm", "rms_norm")
        if norm is None or len(norm.inputs) != place or not look.is_used_once(value):
            continue
        is_same = param.dtype is value.dtype and node.outputs[0].type == value.type
        if is_same and param.tensor.rank <= value.tensor.rank:
            return replace(norm, inputs=(*norm.inputs, param), outputs=node.outputs)
    return None
