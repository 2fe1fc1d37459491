"""Builds a graph node by node and infers each type. Front ends and passes use it.

g = GraphBuilder("mlp", store)
x = g.input("x", tensor(f32, "batch", 64))
y = g.add("relu", [g.add("matmul", [x, g.constant(w)])])
graph = g.finish([y])
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import bounds_of
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplifier
from ingot.graph.ir import ConstRef, Graph, Node, Value, make_attrs
from ingot.graph.opdef import OpDef, SizeMismatch, infer_types, lookup
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, TensorType, Type, tensor
from ingot.support.errors import IngotError


class Unifier(Protocol):
    """Knows or learns that sizes are equal (frontends/common/solver.py)."""

    def share_with(self, symbols: dict[str, Symbol]) -> None:
        """Keep a builder's symbols up to date."""
        ...

    def resolve(self, size: arith.Expr) -> arith.Expr:
        """The size as it is known now."""
        ...

    def resolve_value(self, value: Value) -> Value: ...

    def resolve_attr(self, value: Any) -> Any: ...

    def unify(self, mismatch: SizeMismatch) -> bool:
        """Make the two sizes fit; False if they cannot."""
        ...

    def mark(self) -> Callable[[], None]:
        """What is known now, as a function that returns to it."""
        ...


class GraphBuilder:
    def __init__(
        self,
        name: str,
        store: ConstantStore,
        taken: Sequence[str] = (),
        unifier: Unifier | None = None,
    ):
        self.name, self.store, self.unifier = name, store, unifier
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.symbols: dict[str, Symbol] = {}
        if unifier is not None:
            unifier.share_with(self.symbols)
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
            inputs, attrs, types = self._inferred(definition, inputs, attrs)
        except IngotError as error:
            if error.where or not self.origin:
                raise
            raise IngotError(
                error.code, error.what, where=self.origin, why=error.why, hint=error.hint
            ) from error
        return self.raw(op, inputs, attrs, [self._simplified(type) for type in types], names)

    def _inferred(
        self, definition: OpDef, inputs: Sequence[Value | None], attrs: dict[str, Any]
    ) -> tuple[list[Value | None], dict[str, Any], Sequence[TensorType]]:
        """Operands, attributes and output types, after sizes that must be equal were unified."""
        sizes: tuple = ()
        while True:
            inputs = [None if v is None else self.current(v) for v in inputs]
            if self.unifier is not None:
                attrs = {name: self.unifier.resolve_attr(value) for name, value in attrs.items()}
            try:
                given = [None if v is None else v.type for v in inputs]
                types = infer_types(definition, given, attrs)
                return inputs, attrs, types
            except SizeMismatch as error:
                if self.unifier is None:
                    raise
                if error.sizes == sizes or not self.unifier.unify(error):
                    inputs = self._assumed_equal(inputs, error)
                sizes = error.sizes

    def _assumed_equal(
        self, inputs: Sequence[Value | None], mismatch: SizeMismatch
    ) -> list[Value | None]:
        """Operands whose sizes are the same under two forms: a reshape, which checks it at run
        time, gives them one. Raises the mismatch where they are never equal."""
        a, b = map(self.simplified, mismatch.sizes)
        ranges = {s.name: Interval(s.low, s.high) for s in self.symbols.values()}
        apart = bounds_of(a - b, ranges)
        if not apart.contains(0):
            raise mismatch
        for kept, other in ((a, b), (b, a)):
            changed = [self._resized(value, other, kept) for value in inputs]
            if arith.free_vars(other) and changed != list(inputs):
                return changed
        raise mismatch

    def _resized(self, value: Value | None, old: arith.Expr, new: arith.Expr) -> Value | None:
        if value is None or old not in map(self.simplified, value.type.shape):
            return value
        shape = tuple(new if self.simplified(d) == old else d for d in value.type.shape)
        (made,) = self.raw(
            "reshape", [value], {"shape": shape}, [replace(value.tensor, shape=shape)]
        )
        return made

    def current(self, value: Value) -> Value:
        """The value with its sizes as they are known now."""
        return value if self.unifier is None else self.unifier.resolve_value(value)

    def unify(self, mismatch: SizeMismatch) -> None:
        """Make two sizes fit, or raise the mismatch."""
        if self.unifier is None or not self.unifier.unify(mismatch):
            raise mismatch

    def simplified(self, size: arith.Expr) -> arith.Expr:
        """A size as it is known now, simplified under the symbols' ranges."""
        size = size if self.unifier is None else self.unifier.resolve(size)
        ranges = {s.name: Interval(s.low, s.high) for s in self.symbols.values()}
        return simplifier(ranges).simplify(size)

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
