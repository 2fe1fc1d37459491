"""Builds a graph node by node and infers each type. Front ends and passes use it.

g = GraphBuilder("mlp", store)
x = g.input("x", tensor(f32, "batch", 64))
y = g.add("relu", [g.add("matmul", [x, g.constant(w)])])
graph = g.finish([y])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplifier
from ingot.graph.ir import ConstRef, Graph, Node, Value, make_attrs
from ingot.graph.opdef import lookup
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, TensorType, Type, tensor
from ingot.support.errors import IngotError


class GraphBuilder:
    def __init__(self, name: str, store: ConstantStore, taken: Sequence[str] = ()):
        self.name, self.store = name, store
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.symbols: dict[str, Symbol] = {}
        self.origin = ""  # the origin of every node added from here on
        self._used: Counter[str] = Counter(taken)

    def fresh(self, base: str) -> str:
        """A value name not yet in the graph."""
        name = base
        while name in self._used:
            name = f"{base}.{self._used[base]}"
            self._used[base] += 1
        self._used[name] = 1
        return name

    def input(self, name: str, type: Type) -> Value:
        value = Value(self.fresh(name), type)
        self.inputs.append(value)
        return value

    def symbol(self, base: str, low: int = 0, high: int | None = None, source: str = "node") -> str:
        """Declare a new symbol: a dynamic dimension that a node binds when it runs."""
        name, count = base, 1
        while name in self.symbols or name in self._used:
            name, count = f"{base}_{count}", count + 1
        self.symbols[name] = Symbol(name, low, high, source=source, origin=self.origin)
        return name

    def constant(self, value: np.ndarray | ConstRef, name: str = "c") -> Value:
        ref = value if isinstance(value, ConstRef) else self.store.add(value)
        type = tensor(dtypes.of(ref.dtype), *ref.shape)
        return self.raw("constant", [], {"value": ref}, [type], [name])[0]

    def add(self, op: str, inputs: Sequence[Value | None], name: str = "", **attrs: Any) -> Value:
        """Append a node of one output."""
        (value,) = self.add_all(op, inputs, [name] if name else (), **attrs)
        return value

    def add_all(
        self, op: str, inputs: Sequence[Value | None], names: Sequence[str] = (), **attrs: Any
    ) -> list[Value]:
        """Append a node; the operator infers its output types."""
        definition = lookup(op)
        try:
            types = definition.infer([v.type if v is not None else None for v in inputs], attrs)
        except IngotError as error:
            if error.where or not self.origin:
                raise
            raise IngotError(
                error.code, error.what, where=self.origin, why=error.why, hint=error.hint
            ) from error
        return self.raw(op, inputs, attrs, [self._simplified(type) for type in types], names)

    def _simplified(self, type: TensorType) -> TensorType:
        """The type with its dimensions simplified under the symbols' ranges: n // 4 is 1 where n
        is in 4..7. Operators infer types without knowing the ranges."""
        if all(isinstance(d, arith.Const | arith.Var) for d in type.shape):
            return type
        known = simplifier({s.name: Interval(s.low, s.high) for s in self.symbols.values()})
        shape = tuple(known.simplify(d) for d in type.shape)
        return type if shape == type.shape else replace(type, shape=shape)

    def raw(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attrs: Mapping[str, Any],
        types: Sequence[TensorType],
        names: Sequence[str] = (),
    ) -> list[Value]:
        """Append a node whose output types are already known."""
        wanted = [*names, *[op] * (len(types) - len(names))]
        outputs = tuple(Value(self.fresh(n or op), t) for n, t in zip(wanted, types))
        self.nodes.append(Node(op, tuple(inputs), outputs, make_attrs(attrs), self.origin))
        return list(outputs)

    def finish(self, outputs: Sequence[Value], state: Sequence[tuple[str, str]] = ()) -> Graph:
        symbols = tuple(self.symbols.values())
        return Graph(
            self.name, tuple(self.inputs), tuple(outputs), tuple(self.nodes), symbols, tuple(state)
        )
