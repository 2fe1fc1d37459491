"""x / √(mean(x²) + ε) over the last axes  →  rms_norm(x)
rms_norm(x) · scale  →  rms_norm(x, scale), as layer_norm.py does for both
"""

from __future__ import annotations

from ingot.graph.ir import Node
from ingot.passes.patterns.matcher import Matcher, composite
from ingot.passes.patterns.row_norm import normed

LAST = ("div", "mul")
MAKES = "rms_norm"


def find(matcher: Matcher, node: Node) -> Node | None:
    found = normed(matcher, node)
    if found is None:
        return None
    return composite(node, MAKES, found.value, axis=found.axis, epsilon=found.epsilon)
