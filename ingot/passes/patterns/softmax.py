"""p / sum(p) with p = exp(x - max(x)), both along one axis  →  softmax(x)

Without the maximum taken off, the formula overflows where softmax does not: it stays as it is.
"""

from __future__ import annotations

from ingot.graph.ir import Node, Value
from ingot.passes.patterns.look import Look, rich

LAST = ("div",)
MAKES = "softmax"


def find(look: Look, node: Node) -> Node | None:
    power, total = look.made(node.inputs[0], "exp"), look.made(node.inputs[1], "reduce_sum")
    if power is None or total is None or total.inputs[0] != node.inputs[0]:
        return None
    shifted = look.made(power.inputs[0], "sub")
    top = None if shifted is None else look.made(shifted.inputs[1], "reduce_max")
    if shifted is None or top is None or top.inputs[0] != shifted.inputs[0]:
        return None
    axis = _axis(total, shifted.inputs[0])
    if axis is None or axis != _axis(top, shifted.inputs[0]) or shifted.inputs[0] is None:
        return None
    return rich(node, MAKES, shifted.inputs[0], axis=axis)


def _axis(reduction: Node, x: Value | None) -> int | None:
    """The one axis that a reduction is along, and keeps."""
    axes = reduction.attr("axes")
    if x is None or len(axes) != 1 or not reduction.attr("keepdims"):
        return None
    return axes[0] % x.tensor.rank
