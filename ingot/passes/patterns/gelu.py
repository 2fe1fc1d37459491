"""½ · x · (1 + erf(x / √2))  →  gelu(x)
½ · x · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))  →  gelu(x) {approximate="tanh"}

The factors may stand in any order.
"""

from __future__ import annotations

import math

from ingot.graph.ir import Node, Value
from ingot.passes.patterns.matcher import Matcher, composite, either

LAST = ("mul", "div")
MAKES = "gelu"
CUBIC = 0.044715  # of the tanh approximation (Hendrycks and Gimpel, 2016)


def find(matcher: Matcher, node: Node) -> Node | None:
    for gate in matcher.factors(node.outputs[0])[0]:
        found = _gate(matcher, gate)
        if found is not None and matcher.is_product(0.5, found[0], gate):
            return composite(node, MAKES, found[0], approximate=found[1])
    return None


def _gate(matcher: Matcher, value: Value) -> tuple[Value, str] | None:
    """x of 1 + erf(x / √2) or 1 + tanh(…), and the `approximate` mode of its gelu."""
    found = matcher.with_number(matcher.producer(value, "add"))
    if found is None or found[1] != 1:
        return None
    sigmoid = matcher.producer(found[0], "erf", "tanh")
    inner = None if sigmoid is None else matcher.scaled(sigmoid.inputs[0])
    if sigmoid is None or inner is None:
        return None
    value, scale = inner
    if sigmoid.op == "erf":
        return (value, "none") if math.isclose(scale, math.sqrt(0.5), rel_tol=1e-5) else None
    x = _tanh_argument(matcher, value)
    is_root = math.isclose(scale, math.sqrt(2 / math.pi), rel_tol=1e-5)
    return (x, "tanh") if x is not None and is_root else None


def _tanh_argument(matcher: Matcher, value: Value) -> Value | None:
    """x of x + 0.044715 · x³."""
    for x, rest in either(matcher.producer(value, "add")):
        factors, number = matcher.factors(rest, x)
        if factors == [x, x, x] and math.isclose(number, CUBIC, rel_tol=1e-5):
            return x
    return None
