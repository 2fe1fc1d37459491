"""The matcher of graph patterns: a value's producer, a constant's number, the factors of a product.
Used by every file in this folder.

A pattern is a function from the last node of a formula to the equivalent composite node, or None.
Nodes that become unused are left to dead code elimination.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.graph.ir import Node, Value, make_attrs
from ingot.passes.edit import Editor, same_type

MAX_DEPTH = 4  # levels of nested mul and div nodes: more than any pattern has
EXACT = ("f32", "f64")  # narrower types round between the primitive operators


@dataclass(frozen=True)
class Matcher:
    edit: Editor
    uses: Mapping[str, int]  # value name → number of uses
    node: Node  # the last node of the formula, not yet in the new graph

    def producer(self, value: Value | None, *ops: str) -> Node | None:
        """The node that produces a value, if it is one of these operators."""
        producer = self.node if value in self.node.outputs else self.edit.producer(value)
        return producer if producer is not None and producer.op in ops else None

    def is_used_once(self, value: Value) -> bool:
        return self.uses.get(value.name, 0) == 1

    def number(self, value: Value | None) -> float | None:
        """The number in every element of a constant, if they are all equal."""
        array = self.edit.constant(value)
        if array is None or array.size == 0 or not np.all(array == array.flat[0]):
            return None
        return float(array.flat[0])

    def is_number(self, value: Value | None, wanted: float) -> bool:
        """Whether every element of a constant is `wanted`, up to rounding."""
        found = self.number(value)
        return found is not None and bool(np.isclose(found, wanted, rtol=1e-6, atol=0))

    def with_number(self, node: Node | None) -> tuple[Value, float] | None:
        """The operand that is not a constant, and the number that the other one is."""
        for a, b in either(node):
            number = self.number(b)
            if number is not None and self.edit.constant(a) is None:
                return a, number
        return None

    def scaled(self, value: Value | None) -> tuple[Value, float] | None:
        """x and c where the value is x · c or x / c' (c = 1 for any other)."""
        if value is None:
            return None
        product = self.with_number(self.producer(value, "mul"))
        if product is not None:
            return product
        quotient = self.producer(value, "div")
        divisor = None if quotient is None else self.number(quotient.inputs[1])
        if quotient is None or not divisor or quotient.inputs[0] is None:
            return value, 1.0
        return quotient.inputs[0], 1.0 / divisor

    def factors(
        self, value: Value | None, whole: Value | None = None, depth: int = MAX_DEPTH
    ) -> tuple[list[Value], float]:
        """The non-constant factors of a product, and the product of its constant factors. `whole`
        is not split, nor are products deeper than any pattern."""
        found = None if value == whole or depth == 0 else self.scaled(value)
        if found is None:
            return [] if value is None else [value], 1.0
        inner, number = found
        product = self.producer(inner, "mul") if inner == value else None
        if product is not None:
            both = [self.factors(v, whole, depth - 1) for v in product.inputs]
            return [v for values, _ in both for v in values], both[0][1] * both[1][1]
        if inner == value:
            return [inner], 1.0
        rest, more = self.factors(inner, whole, depth - 1)
        return rest, number * more

    def is_product(self, number: float, *values: Value) -> bool:
        """Whether the node is the product of a number and two values, the first one not split."""
        found, constant = self.factors(self.node.outputs[0], values[0])
        is_same = sorted(v.name for v in found) == sorted(v.name for v in values)
        return is_same and math.isclose(constant, number, rel_tol=1e-5)


def either(node: Node | None) -> Iterator[tuple[Value, Value]]:
    """The two operands of a node in both orders."""
    if node is None:
        return
    a, b = node.inputs
    if a is not None and b is not None:
        yield a, b
        yield b, a


def composite(node: Node, op: str, *inputs: Value, **attrs: Any) -> Node | None:
    """A composite node with the node's outputs; None unless both have one type of `EXACT`."""
    first, out = inputs[0].type, node.outputs[0].type
    if first.dtype.name not in EXACT:
        return None
    if not same_type(first, out):
        return None
    return Node(op, inputs, node.outputs, make_attrs(attrs), node.origin)


def trailing_axis(axes: tuple[int, ...], rank: int) -> int | None:
    """The first of `axes`, if they are the innermost axes of a tensor."""
    found = sorted(axis % rank for axis in axes) if rank else []
    return found[0] if found and found == list(range(found[0], rank)) else None
