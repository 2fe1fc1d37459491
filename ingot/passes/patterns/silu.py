"""x · sigmoid(x)  →  silu(x)"""

from __future__ import annotations

from ingot.graph.ir import Node
from ingot.passes.patterns.look import Look, either, rich

LAST = ("mul",)
MAKES = "silu"


def find(look: Look, node: Node) -> Node | None:
    for x, gate in either(node):
        sigmoid = look.made(gate, "sigmoid")
        if sigmoid is not None and sigmoid.inputs[0] == x:
            return rich(node, MAKES, x)
    return None
