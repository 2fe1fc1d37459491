"""½ · x · (1 + erf(x / √2))  →  gelu(x)
½ · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))  →  gelu(x) {approximate="tanh"}

The factors may stand in any order.
"""

from __future__ import annotations

import math

from ingot.graph.ir import Node, Value
from ingot.passes.patterns.look import Look, either, rich

LAST = ("mul", "div")
MAKES = "gelu"
CUBIC = 0.044715


def find(look: Look, node: Node) -> Node | None:
    for bent in look.factors(node.outputs[0])[0]:
        found = _bend(look, bent)
        if found is not None and look.is_product(0.5, found[0], bent):
            return rich(node, MAKES, found[0], approximate=found[1])
    return None


def _bend(look: Look, value: Value) -> tuple[Value, str] | None:
    """x of 1 + bend(x), and which gelu it belongs to."""
    found = look.with_number(look.made(value, "add"))
    if found is None or found[1] != 1:
        return None
    bend = look.made(found[0], "erf", "tanh")
    inner = None if bend is None else look.scaled(bend.inputs[0])
    if bend is None or inner is None:
        return None
    value, scale = inner
    if bend.op == "erf":
        return (value, "none") if math.isclose(scale, math.sqrt(0.5), rel_tol=1e-5) else None
    x = _unbent(look, value)
    is_root = math.isclose(scale, math.sqrt(2 / math.pi), rel_tol=1e-5)
    return (x, "tanh") if x is not None and is_root else None


def _unbent(look: Look, value: Value) -> Value | None:
    """x of x + 0.044715 · x³."""
    for x, rest in either(look.made(value, "add")):
        factors, number = look.factors(rest, x)
        if factors == [x, x, x] and math.isclose(number, CUBIC, rel_tol=1e-5):
            return x
    return None
