"""c / √(mean(c²) + ε) with c = x - mean(x), over the last axes  →  layer_norm(x)
layer_norm(x) · scale  →  layer_norm(x, scale)
layer_norm(x, scale) + bias  →  layer_norm(x, scale, bias)
"""

from __future__ import annotations

from ingot.graph.ir import Node
from ingot.passes.patterns.matcher import Matcher, composite, trailing_axis
from ingot.passes.patterns.row_norm import absorbed, normed

LAST = ("div", "mul", "add")
MAKES = "layer_norm"


def find(matcher: Matcher, node: Node) -> Node | None:
    return (
        _plain(matcher, node)
        or absorbed(matcher, node, "mul", 1)
        or absorbed(matcher, node, "add", 2)
    )


def _plain(matcher: Matcher, node: Node) -> Node | None:
    found = None if node.op == "add" else normed(matcher, node)
    centred = None if found is None else matcher.producer(found.value, "sub")
    mean = None if centred is None else matcher.producer(centred.inputs[1], "reduce_mean")
    if found is None or centred is None or mean is None or not mean.attr("keepdims"):
        return None
    x = centred.inputs[0]
    if x is None or mean.inputs[0] != x:
        return None
    if trailing_axis(mean.attr("axes"), x.tensor.rank) != found.axis:
        return None
    return composite(node, MAKES, x, axis=found.axis, epsilon=found.epsilon)
