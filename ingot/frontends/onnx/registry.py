"""The table of converters: ONNX operator → function that builds it from Ingot's operators.

    @onnx_op("Softmax", since=13)
    def softmax(ctx: Importer, node: OnnxNode) -> Sequence[Value]:
        return [ctx.g.add("softmax", [ctx.value(node, 0)], axis=node.attr("axis", -1))]

`since` is the first opset that the converter supports; the newest row not newer than the model's
opset is used. A converter gets the importer (its graph builder is `ctx.g`) and the node. It returns
a value for each output (None for an output that is not produced).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import onnx

from ingot.arith import expr as arith
from ingot.frontends.onnx.operands import Operand
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import Graph, Value
from ingot.graph.types import Symbol
from ingot.support.errors import IngotError


@dataclass
class OnnxNode:
    """A decoded ONNX node: names, attributes as Python and numpy values, and the opset."""

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
    """The interface of the walker for converters."""

    g: GraphBuilder

    def value(self, node: OnnxNode, index: int) -> Value:
        """Operand `index`; a bad-model error if it is absent."""
        ...

    def optional(self, node: OnnxNode, index: int) -> Value | None:
        """Operand `index`, or None if it is absent."""
        ...

    def named(self, node: OnnxNode, name: str) -> Value:
        """The value of a name in the model, made by a node before this one."""
        ...

    def operand(self, node: OnnxNode, index: int) -> Operand | None:
        """Operand `index`, which may be a sequence or an optional; None if it is absent."""
        ...

    def known(self, node: OnnxNode, index: int) -> np.ndarray | None:
        """The operand as an array if it is constant and small, else None (also if absent)."""
        ...

    def stored(self, node: OnnxNode, index: int) -> np.ndarray | None:
        """The operand's array, of any size, if it is a constant of the file; else None."""
        ...

    def is_input(self, node: OnnxNode, index: int) -> bool:
        """Is the operand an input of the model, of static shape? A call gives its elements."""
        ...

    def dims(self, node: OnnxNode, index: int) -> tuple[arith.Expr, ...]:
        """A 1-D integer operand as sizes. Constant and shape-derived operands give expressions;
        data-dependent ones become fresh symbols, bound at run time."""
        ...

    def subgraph(
        self, node: OnnxNode, attr: str, inputs: Sequence[Operand], symbols: Iterable[Symbol] = ()
    ) -> SubGraph:
        """Import a sub-graph; `inputs` give the types of its formal inputs, which may mention
        `symbols` of its own. Outer values that it uses are appended to its inputs and returned as
        captures."""
        ...

    def define(self, name: str, operand: Operand) -> None:
        """Give a name of this graph a meaning, for a sub-graph that a converter makes."""
        ...

    def declared(self, name: str) -> onnx.TypeProto | None:
        """The type that the file declares of a name; a hint, which may be wrong."""
        ...

    def mark(self) -> Callable[[], None]:
        """The state of the import, as a function that returns to it."""
        ...

    def random_key(self, seed: float | None) -> Value:
        """The key of random numbers (ops/random.py): of the call, or of a seed, with which every
        call gives the same numbers. In the body of a loop it is that of the iteration."""
        ...

    def random_stream(self) -> int:
        """A stream that no other node of the model has."""
        ...

    def choose(self, node: OnnxNode, question: str) -> bool:
        """A decision found by backtracking: if the walk fails, it restarts with another choice."""
        ...

    def unsupported(self, node: OnnxNode, why: str, hint: str = "") -> IngotError:
        """The error for an unsupported variant of an operator."""
        ...


@dataclass(frozen=True)
class SubGraph:
    graph: Graph
    captures: tuple[Value, ...]  # values of the outer graph, passed after the formal inputs
    results: tuple[Operand, ...]  # what its outputs stand for: parts of one are adjacent outputs


ITERATION = "ingot.iteration"  # the capture for which a Scan gives the number of the iteration

Converter = Callable[[Importer, OnnxNode], Sequence[Operand | None]]
AnyConverter = TypeVar("AnyConverter", bound=Converter)
TABLE: dict[tuple[str, str], list[tuple[int, Converter]]] = {}


def onnx_op(*ops: str, since: int = 1, domain: str = "") -> Callable[[AnyConverter], AnyConverter]:
    def add(fn: AnyConverter) -> AnyConverter:
        for op in ops:
            rows = TABLE.setdefault((domain, op), [])
            rows.append((since, fn))
            rows.sort(key=lambda row: row[0])
        return fn

    return add


def lookup(domain: str, op: str, opset: int) -> Converter | None:
    domain = "" if domain == "ai.onnx" else domain
    fitting = [fn for since, fn in TABLE.get((domain, op), []) if since <= opset]
    return fitting[-1] if fitting else None
