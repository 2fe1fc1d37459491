"""x · sigmoid(x)  →  silu(x)"""

from __future__ import annotations

from ingot.graph.ir import Node
from ingot.passes.patterns.matcher import Matcher, composite, either

LAST = ("mul",)
MAKES = "silu"


def find(matcher: Matcher, node: Node) -> Node | None:
    for x, gate in either(node):
        sigmoid = matcher.producer(gate, "sigmoid")
        if sigmoid is not None and sigmoid.inputs[0] == x:
            return composite(node, MAKES, x)
    return None
