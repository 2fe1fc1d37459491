"""x · clip(x + 3, 0, 6) / 6  →  hard_swish(x)
x · hard_sigmoid(x) {alpha=1/6, beta=1/2}  →  hard_swish(x)

The factors may stand in any order. If x · 6 overflows, the result is x.
"""

from __future__ import annotations

import math

from ingot.graph.ir import Node, Value
from ingot.passes.patterns.matcher import Matcher, composite

LAST = ("mul", "div")
MAKES = "hard_swish"


def find(matcher: Matcher, node: Node) -> Node | None:
    for gate in matcher.factors(node.outputs[0])[0]:
        found = _gate(matcher, gate)
        if found is not None and matcher.is_product(1 / found[1], found[0], gate):
            return composite(node, MAKES, found[0])
    return None


def _gate(matcher: Matcher, value: Value) -> tuple[Value, float] | None:
    """x of a gate that rises from 0 at x = -3 to its maximum at x = 3, and that maximum."""
    smooth = matcher.producer(value, "hard_sigmoid")
    if smooth is not None and smooth.inputs[0] is not None:
        is_sixth = math.isclose(smooth.attr("alpha"), 1 / 6, rel_tol=1e-5)
        return (smooth.inputs[0], 1.0) if is_sixth and smooth.attr("beta") == 0.5 else None
    clip = matcher.producer(value, "clip")
    if clip is None or len(clip.inputs) != 3:
        return None
    inside = matcher.with_number(matcher.producer(clip.inputs[0], "add"))
    is_wide = matcher.is_number(clip.inputs[1], 0) and matcher.is_number(clip.inputs[2], 6)
    return (inside[0], 6.0) if inside is not None and inside[1] == 3 and is_wide else None
