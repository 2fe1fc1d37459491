"""Shared by layer-norm and RMS-norm: y / √(mean(y²) + ε) over the last axes, and the scale."""

from __future__ import annotations

from typing import NamedTuple

from ingot.graph.ir import Node, Value, replace
from ingot.passes.patterns.matcher import Matcher, either, trailing_axis

LAST = ("div", "mul")


class Normed(NamedTuple):
    """y of y / √(mean(y²) + epsilon), the mean from `axis` on."""

    value: Value
    axis: int
    epsilon: float


def normed(matcher: Matcher, node: Node) -> Normed | None:
    """A node that divides by the root, or multiplies by its inverse."""
    if node.op == "div":
        value, root = node.inputs
        return None if value is None else _of_root(matcher, value, matcher.producer(root, "sqrt"))
    for value, factor in either(node):
        inverse = matcher.producer(factor, "reciprocal", "div")
        if inverse is None or (inverse.op == "div" and not matcher.is_number(inverse.inputs[0], 1)):
            continue
        found = _of_root(matcher, value, matcher.producer(inverse.inputs[-1], "sqrt"))
        if found is not None:
            return found
    return None


def _of_root(matcher: Matcher, value: Value, root: Node | None) -> Normed | None:
    total = None if root is None else matcher.with_number(matcher.producer(root.inputs[0], "add"))
    mean = None if total is None else matcher.producer(total[0], "reduce_mean")
    square = None if mean is None else matcher.producer(mean.inputs[0], "mul")
    if total is None or mean is None or square is None or not mean.attr("keepdims"):
        return None
    axis = trailing_axis(mean.attr("axes"), value.tensor.rank)
    if axis is None or square.inputs != (value, value):
        return None
    return Normed(value, axis, total[1])


def absorbed(matcher: Matcher, node: Node, op: str, position: int) -> Node | None:
    """op(norm(x, …), p)  →  norm(x, …, p), where p broadcasts and becomes operand `position`."""
    if node.op != op:
        return None
    for value, param in either(node):
        norm = matcher.producer(value, "layer_norm", "rms_norm")
        if norm is None or len(norm.inputs) != position or not matcher.is_used_once(value):
            continue
        is_same = param.dtype is value.dtype and node.outputs[0].type == value.type
        if is_same and param.tensor.rank <= value.tensor.rank:
            return replace(norm, inputs=(*norm.inputs, param), outputs=node.outputs)
    return None
