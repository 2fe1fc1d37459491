"""One ONNX graph → one Ingot graph. In: nodes, a builder. Out: Graph. Called by walker.

`Walker` is independent of operators: it sorts nodes topologically, reads them, calls the converter
of each (registry.TABLE), inlines functions, and implements the interface for converters
(`Importer`). After each node shape_values propagates the small tensors that hold sizes. A sub-graph
gets its own walker, which captures values of this one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from itertools import chain, count

import numpy as np
import onnx

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.expr import Expr, Var
from ingot.frontends.common.limits import check_size
from ingot.frontends.common.shape_values import ShapeValues, Unknown
from ingot.frontends.onnx.functions import Function, Library
from ingot.frontends.onnx.inputs import is_map
from ingot.frontends.onnx.node_order import (
    Initializer,
    check_depth,
    check_unique,
    initializers_of,
    order_nodes,
    value_names,
)
from ingot.frontends.onnx.reading import Frame, bare_node, read_node
from ingot.frontends.onnx.registry import OnnxNode, SubGraph
from ingot.frontends.onnx.tensors import sparse_to_array, to_array, type_proto
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import ConstRef, Graph, Node, Value, replace
from ingot.graph.types import Symbol
from ingot.support.errors import IngotError


@dataclass
class Scope:
    """Names of one ONNX graph or function body → values of the graph being built."""

    frame: Frame
    initializers: dict[str, Initializer] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    is_function: bool = False  # the caller's names are not visible; its own are made fresh


class Walker:
    """Builds one graph; a child walker builds each sub-graph. Implements registry.Importer."""

    def __init__(self, g: GraphBuilder, library: Library, scope: Scope, outer: Walker | None):
        self.g, self.library, self.scope, self.outer = g, library, scope, outer
        self.captures: list[Value] = []
        self._serials: Iterator[int] = outer._serials if outer is not None else count()
        self.known_values = ShapeValues(g, next(self._serials), self.symbol_of)
        self._bound: dict[Unknown, Var] = {}
        self._outputs: frozenset[str] = frozenset()

    # --- walking ----------------------------------------------------------------------------------

    def walk_graph(self, graph: onnx.GraphProto, inputs: Sequence[Value]) -> Graph:
        """Import a graph, given the values of its formal inputs."""
        where = f"graph {graph.name!r}"
        formal = [info.name for info in graph.input if info.name not in self.scope.initializers]
        check_unique(formal, where)
        maps = {info.name for info in graph.input if is_map(info)}
        parts = [[f"{n}.keys", f"{n}.values"] if n in maps else [n] for n in formal]
        self.scope.values.update(zip(chain(*parts), inputs))
        self._outputs = frozenset(info.name for info in graph.output)
        given = [*formal, *self.scope.initializers]
        self._walk_nodes(graph.node, given)
        self.g.origin = ""
        outputs: list[Value] = []
        for info in graph.output:
            outputs.append(self._output(info.name, outputs, where))
        inherited = set(self.outer.g.symbols) if self.outer is not None else set()
        result = self.g.finish(outputs)
        return replace(result, symbols=tuple(s for s in result.symbols if s.name not in inherited))

    def _walk_nodes(self, nodes: Sequence[onnx.NodeProto], given: Iterable[str]) -> None:
        frame = self.scope.frame
        for index in order_nodes(nodes, frame, given, self._is_in_outer_scope):
            proto = nodes[index]
            node = bare_node(proto, index, frame)
            body = self.library.body(proto, node, frame, self._operand_types)
            if body is not None:
                self._call(body, proto, node)
            else:
                self._convert(read_node(proto, index, frame))

    def _convert(self, node: OnnxNode) -> None:
        converter = self.library.converter(node)
        assert converter is not None, f"check_all has found a converter for {node.op}"
        self.g.origin = node.where
        start = len(self.g.nodes)
        try:
            results = list(converter(self, node))
        except IngotError as error:
            if error.where:
                raise
            raise _with_location(error, node.where) from error
        except (TypeError, ValueError, LookupError, ArithmeticError, AssertionError) as error:
            why = f"{type(error).__name__}: {error}"
            what = "its attributes or operands are inconsistent"
            raise IngotError("bad-model", what, where=node.where, why=why) from error
        self._record(node, results, start)

    def _record(self, node: OnnxNode, results: list[Value | None], start: int) -> None:
        """Give the results their ONNX names and propagate known shape values."""
        names = self._rename(node, results, start)
        for made in self.g.nodes[start:]:
            for value in made.outputs:
                check_size(value.type, node.where)
        refined = self.known_values.observe(start)
        for name, value in names.items():
            self.scope.values[name] = refined.get(value.name, value)

    def _rename(self, node: OnnxNode, results: list[Value | None], start: int) -> dict[str, Value]:
        fresh = {out.name for n in self.g.nodes[start:] for out in n.outputs}
        named: dict[str, Value] = {}
        renamed: dict[str, Value] = {}
        for name, value in zip(node.outputs, results):
            if not name or value is None:
                continue
            if value.name in fresh and value.name not in renamed:
                kept = self.g.fresh(name) if self.scope.is_function else name
                renamed[value.name] = Value(kept, value.type)
            named[name] = renamed.get(value.name, value)
        if renamed:
            self.g.nodes[start:] = [_renamed(n, renamed) for n in self.g.nodes[start:]]
        return named

    def _operand_types(self, node: OnnxNode) -> list[onnx.TypeProto]:
        """The operands' types as the standard writes them."""
        operands = [self.optional(node, i) for i in range(len(node.inputs))]
        return [onnx.TypeProto() if v is None else type_proto(v.type) for v in operands]

    def _call(self, function: Function, proto: onnx.NodeProto, node: OnnxNode) -> None:
        """Inline a function call: the body is imported in its own scope."""
        frame = self.library.call_frame(function, proto, self.scope.frame)
        if len(node.inputs) > len(function.input) or len(node.outputs) > len(function.output):
            what = f"function {function.name!r} has fewer inputs or outputs than the call"
            raise IngotError("bad-model", what, where=node.where)
        inside = Scope(with_changes(frame, path=f"{node.name}/"), is_function=True)
        for formal, actual in zip(function.input, node.inputs):
            if actual:
                inside.values[formal] = self._find(actual, node)
        nodes = [
            _without_absent(n, set(function.input) - set(inside.values)) for n in function.node
        ]
        caller, self.scope = self.scope, inside
        try:
            self._walk_nodes(nodes, list(inside.values))
            pairs = zip(function.output, node.outputs)
            made = [self._find(name, node) if wanted else None for name, wanted in pairs]
        finally:
            self.scope = caller
        self.g.origin = node.where
        for name, value in zip(node.outputs, made):
            if value is not None:
                caller.values[name] = value

    def _output(self, name: str, earlier: Sequence[Value], where: str) -> Value:
        """A graph output under its own name: a distinct value that a node produces."""
        value = self._lookup(name)
        if value is None:
            raise IngotError("bad-model", f"no node produces the output {name!r}", where=where)
        is_constant = self.known_values.constant_ref(value) is not None
        taken = {v.name for v in (*self.g.inputs, *earlier)}
        if value.name == name and is_constant and value.name not in {v.name for v in earlier}:
            value = self._rename_value(value)
        elif value.name == name and value.name not in taken:
            return value
        copy = Value(self.g.fresh(name) if name in taken else name, value.type)
        self.g.nodes.append(Node("identity", (value,), (copy,), (), f"output {name!r}"))
        return copy

    def _rename_value(self, value: Value) -> Value:
        """Rename a value, so that a graph output can use its name."""
        other = Value(self.g.fresh(f"{value.name}.value"), value.type)
        self.g.nodes[:] = [_renamed(node, {value.name: other}) for node in self.g.nodes]
        return other

    # --- names ------------------------------------------------------------------------------------

    def _lookup(self, name: str) -> Value | None:
        """The value of an ONNX name; an initializer is emitted at its first use."""
        value = self.scope.values.get(name)
        if value is None and name in self.scope.initializers:
            value = self._emit_initializer(name)
        if value is None and self.outer is not None and not self.scope.is_function:
            value = self._capture(name)
        if value is not None:
            value = self.scope.values[name] = self.g.current(value)
        return value

    def _find(self, name: str, node: OnnxNode) -> Value:
        value = self._lookup(name)
        if value is None:
            raise IngotError("bad-model", f"{name!r} is not defined", where=node.where)
        return value

    def _is_in_outer_scope(self, name: str) -> bool:
        """Whether an enclosing graph defines the name."""
        if self.scope.is_function or self.outer is None:
            return False
        scope = self.outer.scope
        here = name in scope.values or name in scope.initializers
        return here or self.outer._is_in_outer_scope(name)

    def _emit_initializer(self, name: str) -> Value:
        proto, source = self.scope.initializers[name], self.library.source
        is_top = self.outer is None and not self.scope.is_function
        if is_top and name in self.library.refs:
            return self._constant(self.library.refs[name], name)
        if isinstance(proto, onnx.TensorProto):
            array = to_array(proto, source, f"initializer {name!r}")
        else:
            array = sparse_to_array(proto, source, f"initializer {name!r}")
        ref = self.g.store.add(array)
        if is_top:
            self.library.refs[name] = ref
        return self._constant(ref, name)

    def _constant(self, ref: ConstRef, name: str) -> Value:
        """A constant node under its ONNX name, unless a graph output has that name."""
        saved, self.g.origin = self.g.origin, f"initializer {name!r}"
        start = len(self.g.nodes)
        value = self.g.constant(ref, name)
        if name in self.scope.initializers and name not in self._outputs:
            kept = Value(name, value.type)
            self.g.nodes[start] = _renamed(self.g.nodes[start], {value.name: kept})
            value = kept
        self.known_values.observe(start)
        self.g.origin = saved
        return value

    def _capture(self, name: str) -> Value | None:
        """A value of the enclosing graph: constants are duplicated, others become inputs."""
        assert self.outer is not None
        value = self.outer._lookup(name)
        if value is None:
            return None
        ref = self.outer.known_values.constant_ref(value)
        if ref is not None:
            return self._constant(ref, name)
        inner = self.g.input(value.name, value.type)
        self.captures.append(value)
        self.known_values.inherit(inner, self.outer.known_values, value)
        return inner

    # --- the interface for converters (registry.Importer) -----------------------------------------

    def value(self, node: OnnxNode, index: int) -> Value:
        found = self.optional(node, index)
        if found is None:
            raise IngotError("bad-model", f"operand {index} is missing", where=node.where)
        return found

    def optional(self, node: OnnxNode, index: int) -> Value | None:
        if index >= len(node.inputs) or not node.inputs[index]:
            return None
        return self._find(node.inputs[index], node)

    def known(self, node: OnnxNode, index: int) -> np.ndarray | None:
        value = self.optional(node, index)
        return None if value is None else self.known_values.numbers(value)

    def is_input(self, node: OnnxNode, index: int) -> bool:
        value = self.optional(node, index)
        is_input = self.outer is None and value in self.g.inputs
        return value is not None and is_input and value.tensor.static_shape is not None

    def dims(self, node: OnnxNode, index: int) -> tuple[Expr, ...]:
        value = self.value(node, index)
        exprs = self.known_values.lifted(value)
        if exprs is None or value.dtype.is_float:
            raise self.unsupported(
                node,
                f"operand {index} ({value.name!r}: {value.type}) is not a short list of integers",
            )
        bound = [self._with_symbols(e) for e in exprs.reshape(-1).tolist()]
        return tuple(map(self.g.simplified, bound))  # after the bindings, which declare symbols

    def _with_symbols(self, expr: Expr) -> Expr:
        return arith.substitute(expr, {}, self.symbol_of)

    def symbol_of(self, unknown: Unknown) -> Expr:
        """The symbol of a data-dependent element, bound in the graph that computes the element."""
        if unknown.owner != self.known_values.owner:
            assert self.outer is not None, f"{unknown} belongs to no enclosing graph"
            expr = self.outer.symbol_of(unknown)
            for name in sorted(arith.free_vars(expr)):
                self.g.symbols.setdefault(name, self.outer.g.symbols[name])
            return expr
        if unknown not in self._bound:
            self._bound[unknown] = self._bind(unknown)
        return self._bound[unknown]

    def _bind(self, unknown: Unknown) -> Var:
        g = self.g
        value = self.known_values.holders[unknown.value]
        if value.dtype is not dtypes.i64:
            value = g.add("cast", [value], to=dtypes.i64, mode="wrap")
        shape = value.tensor.static_shape
        assert shape is not None, f"{value.name} has shape values, so its shape is static"
        if shape != (1,):
            value = g.add("reshape", [value], shape=(math.prod(shape),))
            start = (arith.Const(unknown.index),)
            value = g.add("slice", [value], starts=start, sizes=(arith.Const(1),), steps=(1,))
        symbol = g.symbol("d")
        g.add("bind", [value], symbols=(symbol,))
        return Var(symbol)

    def subgraph(self, node: OnnxNode, attr: str, inputs: Sequence[tuple[str, Value]]) -> SubGraph:
        proto = node.attr(attr)
        if not isinstance(proto, onnx.GraphProto):
            what = f"attribute {attr!r} is not a graph"
            raise IngotError("bad-model", what, where=node.where)
        frame = with_changes(self.scope.frame, depth=self.scope.frame.depth + 1)
        check_depth(frame.depth, node.where)
        constants = initializers_of(proto)
        formal = [info for info in proto.input if info.name not in constants]
        if len(formal) != len(inputs):
            what = f"sub-graph {attr!r} has {len(formal)} inputs, not {len(inputs)}"
            raise IngotError("bad-model", what, where=node.where)
        names = value_names(proto)
        taken = [*names, *self.g.symbols]
        g = GraphBuilder(f"{node.name}/{attr}", self.g.store, taken, self.g.unifier)
        g.symbols.update(self.g.symbols)
        child = Walker(g, self.library, Scope(frame, constants), self)
        for info, (_, value) in zip(formal, inputs):
            g.inputs.append(Value(info.name, value.type))
        graph = child.walk_graph(proto, list(g.inputs))
        self._reserve(graph.symbols)
        return SubGraph(graph, tuple(child.captures))

    def choose(self, node: OnnxNode, question: str) -> bool:
        where = f"{self.scope.frame.path}{node.where} → {node.outputs}"
        return self.library.choices.decide(f"{where}: {question}")

    def _reserve(self, symbols: Iterable[Symbol]) -> None:
        """Reserve the names of a sub-graph's symbols in this graph."""
        for symbol in symbols:
            self.g.fresh(symbol.name)

    def unsupported(self, node: OnnxNode, why: str, hint: str = "") -> IngotError:
        what = f"this variant of {node.op} is not supported"
        return IngotError("unsupported-op", what, where=node.where, why=why, hint=hint)


# --- helpers ------------------------------------------------------------------------------------


def _renamed(node: Node, renamed: dict[str, Value]) -> Node:
    inputs = tuple(v and renamed.get(v.name, v) for v in node.inputs)
    outputs = tuple(renamed.get(v.name, v) for v in node.outputs)
    return replace(node, inputs=inputs, outputs=outputs)


def _without_absent(node: onnx.NodeProto, absent: set[str]) -> onnx.NodeProto:
    """A node of a function body, with operands that the caller omits marked as absent."""
    if not absent.intersection(node.input):
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = ["" if name in absent else name for name in node.input]
    return copy


def _with_location(error: IngotError, where: str) -> IngotError:
    return IngotError(error.code, error.what, where=where, why=error.why, hint=error.hint)
