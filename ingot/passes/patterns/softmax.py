"""p / sum(p) with p = exp(x - max(x)), both along one axis  →  softmax(x)

A formula without the maximum overflows where softmax does not: it is not matched.
"""

from __future__ import annotations

from ingot.graph.ir import Node, Value
from ingot.passes.patterns.matcher import Matcher, composite

LAST = ("div",)
MAKES = "softmax"


def find(matcher: Matcher, node: Node) -> Node | None:
    power, total = (
        matcher.producer(node.inputs[0], "exp"),
        matcher.producer(node.inputs[1], "reduce_sum"),
    )
    if power is None or total is None or total.inputs[0] != node.inputs[0]:
        return None
    shifted = matcher.producer(power.inputs[0], "sub")
    top = None if shifted is None else matcher.producer(shifted.inputs[1], "reduce_max")
    if shifted is None or top is None or top.inputs[0] != shifted.inputs[0]:
        return None
    axis = _axis(total, shifted.inputs[0])
    if axis is None or axis != _axis(top, shifted.inputs[0]) or shifted.inputs[0] is None:
        return None
    return composite(node, MAKES, shifted.inputs[0], axis=axis)


def _axis(reduction: Node, x: Value | None) -> int | None:
    """The axis of a reduction over one axis with keepdims."""
    axes = reduction.attr("axes")
    if x is None or len(axes) != 1 or not reduction.attr("keepdims"):
        return None
    return axes[0] % x.tensor.rank
