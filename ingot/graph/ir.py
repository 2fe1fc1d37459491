"""The grammar of the graph IR: one Node class, SSA values, and a table of operators (opdef.py).

    graph ::= Graph(name, inputs: Value*, outputs: Value*, nodes: Node*, symbols: Symbol*, state,
                    views: View*, growth: Growth | None, bundles: Bundle*)
    view  ::= View(value, base, offsets: int*)
    node  ::= Node(op, inputs: (Value | None)*, outputs: Value*, attrs, origin)
    attr  ::= int | float | str | bool | None | arith.Expr | DType | ConstRef | Graph | attr*

Nodes are in topological order. A sub-graph sees only its own inputs: outer values are passed as
operands. Constants are nodes (`constant`, attr `value: ConstRef`)
that point into a store; the data is never in the IR. `state` pairs an input with the output that
replaces it after a run; `growth` says which of these pairs gain rows in a run. `views` are values
that share another's buffer (views.py). `bundles` are sequences and optionals among a model's
inputs and outputs, each made of tensors. Graphs are frozen: a pass builds a new one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

import numpy as np

from ingot.arith.expr import Expr
from ingot.graph.types import Symbol, TensorType, Type
from ingot.support import lazy
from ingot.support.node import Node as Frozen
from ingot.support.node import node


@node
class Value(Frozen):
    """A name, unique in its graph, and its type."""

    name: str
    type: Type

    @property
    def tensor(self) -> TensorType:
        return self.type

    @property
    def shape(self) -> tuple:
        return self.tensor.shape

    @property
    def dtype(self):
        return self.tensor.dtype


@node
class ConstRef(Frozen):
    """A constant's key in the store: the digest of its bytes, its element type and its shape."""

    digest: str
    dtype: str
    shape: tuple[int, ...]


@node
class Node(Frozen):
    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: tuple[tuple[str, Any], ...] = ()  # sorted by name
    origin: str = field(default="", compare=False)

    def attr(self, name: str, default: Any = None) -> Any:
        return dict(self.attrs).get(name, default)

    @property
    def attr_map(self) -> dict[str, Any]:
        return dict(self.attrs)

    @property
    def subgraphs(self) -> Iterator[tuple[str, Graph]]:
        return ((name, value) for name, value in self.attrs if isinstance(value, Graph))


@node
class View(Frozen):
    """The value is stored in the base's buffer, from `offsets` on; one for each physical axis."""

    value: str
    base: str
    offsets: tuple[int, ...]


@node
class Bundle(Frozen):
    """Inputs, or outputs, that are one argument or result of a call, called `name`. `kinds` is
    one of ("sequence",), ("mixed sequence",), ("optional", "tensor"), ("optional", "sequence"), …;
    `values` are, in this order: of an optional its flag (bool scalar), then its content; of a
    sequence its elements one after the other, T[total], and their shapes, i64[count, rank]. The
    elements of a mixed one differ in rank: their shapes begin with -1 for each axis they lack."""

    name: str
    kinds: tuple[str, ...]
    values: tuple[str, ...]


@node
class Growth(Frozen):
    """States with a capacity (a KV cache), of which only the first rows are in use. `rows` is the
    symbol of the rows in use after a run, `added` how many of them the run adds, and `axes` has the
    axis of the rows for each state that grows, by the name of its input."""

    rows: str
    added: Expr
    axes: tuple[tuple[str, int], ...]


@node
class Graph(Frozen):
    name: str = field(compare=False)
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    symbols: tuple[Symbol, ...] = ()
    state: tuple[tuple[str, str], ...] = ()
    views: tuple[View, ...] = ()
    growth: Growth | None = None
    bundles: tuple[Bundle, ...] = ()

    def producers(self) -> dict[str, Node]:
        """Value name → the node that produces it."""
        return {out.name: n for n in self.nodes for out in n.outputs}

    def uses(self) -> dict[str, list[Node]]:
        """Value name → the nodes that read it, in order; graph outputs are not counted."""
        table: dict[str, list[Node]] = {}
        for n in self.nodes:
            for value in n.inputs:
                if value is not None:
                    table.setdefault(value.name, []).append(n)
        return table

    def _repr_html_(self) -> str:
        return lazy.load("graph.html")(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        """The text format too, for a terminal and for files that hold no HTML."""
        return {"text/plain": lazy.load("graph.show")(self), "text/html": self._repr_html_()}

    @property
    def symbol_map(self) -> dict[str, Symbol]:
        return {s.name: s for s in self.symbols}


def make_attrs(attrs: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Attributes in canonical form: sorted, lists as tuples, numpy scalars as Python's."""
    return tuple((name, _freeze(attrs[name])) for name in sorted(attrs))


def _freeze(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_freeze(v) for v in value)
    if isinstance(value, np.generic) and not isinstance(value, float):
        value = value.item()
    if isinstance(value, float):
        return math.nan if math.isnan(value) else float(value)  # one NaN, so that it equals itself
    return value


__all__ = [
    "Bundle",
    "ConstRef",
    "Graph",
    "Growth",
    "Node",
    "Value",
    "View",
    "make_attrs",
    "replace",
]
