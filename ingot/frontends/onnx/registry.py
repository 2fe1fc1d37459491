"""The table from an ONNX operator to the function that spells it in Ingot's operators.

    @onnx_op("Softmax", since=13)
    def softmax(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        return [ctx.g.add("softmax", [ctx.value(node, 0)], axis=node.attr("axis", -1))]

`since` is the opset from which the spelling holds; the newest row not newer than the model's opset
is taken. A function gets the importer (its graph builder is `ctx.g`) and the node, and returns one
value for each output (None for one that is not produced).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.support.errors import IngotError


@dataclass
class OnnxNode:
    """An ONNX node, read: names, attributes as Python and numpy values, and the model's opset."""

    op: str
    domain: str
    name: str
    inputs: list[str]  # "" for an optional operand that is absent
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 0

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    @property
    def where(self) -> str:
        return f"node {self.name!r} ({self.op})"


class Importer(Protocol):
    """What a spelling may ask of the walker."""

    g: GraphBuilder

    def value(self, node: OnnxNode, index: int) -> Value:
        """Operand `index`; a bad-model error if it is absent."""
        ...

    def optional(self, node: OnnxNode, index: int) -> Value | None:
        """Operand `index`, or None if it is absent."""
        ...

    def known(self, node: OnnxNode, index: int) -> np.ndarray | None:
        """The operand's numbers, if they are constant; None if not (or if it is absent)."""
        ...

    def dims(self, node: OnnxNode, index: int) -> tuple[arith.Expr, ...]:
        """A 1-D integer operand as sizes. Constant and shape-derived operands give expressions;
        data-dependent ones are bound to fresh symbols when the model runs."""
        ...

    def subgraph(self, node: OnnxNode, attr: str, inputs: Sequence[tuple[str, Value]]) -> SubGraph:
        """Import a sub-graph; `inputs` give its formal inputs types. Outer values it uses are
        appended to its inputs and returned as captures."""
        ...

    def choose(self, node: OnnxNode, question: str) -> bool:
        """Yes or no, where only the rest of the walk can tell: if it fails it begins again, with
        another answer."""
        ...

    def unsupported(self, node: OnnxNode, why: str, hint: str = "") -> IngotError:
        """An error to raise for a variant of an operator that Ingot does not have."""
        ...


@dataclass(frozen=True)
class SubGraph:
    graph: Graph
    captures: tuple[Value, ...]  # values of the outer graph, for the inputs after the formal ones


Spelling = Callable[[Importer, OnnxNode], Sequence[Value | None]]
TABLE: dict[tuple[str, str], list[tuple[int, Spelling]]] = {}


def onnx_op(*ops: str, since: int = 1, domain: str = "") -> Callable[[Spelling], Spelling]:
    def add(fn: Spelling) -> Spelling:
        for op in ops:
            rows = TABLE.setdefault((domain, op), [])
            rows.append((since, fn))
            rows.sort(key=lambda row: row[0])
        return fn

    return add


def lookup(domain: str, op: str, opset: int) -> Spelling | None:
    domain = "" if domain == "ai.onnx" else domain
    fitting = [fn for since, fn in TABLE.get((domain, op), []) if since <= opset]
    return fitting[-1] if fitting else None
