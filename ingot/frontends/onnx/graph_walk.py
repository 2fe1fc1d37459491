"""One ONNX graph → one Ingot graph. In: nodes, a builder. Out: Graph. Called by walker.

`Walker` is independent of operators: it sorts nodes topologically, reads them, calls the converter
of each (registry.TABLE), inlines functions, and implements the interface for converters
(`Importer`). After each node shape_values propagates the small tensors that hold sizes. A sub-graph
gets its own walker, which captures values of this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from itertools import count
from typing import Any

import numpy as np
import onnx

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.expr import Expr, Var
from ingot.frontends.common.limits import check_size
from ingot.frontends.common.shape_values import ShapeValues, Unknown
from ingot.frontends.onnx.border import at_border, operand_type_proto
from ingot.frontends.onnx.functions import Function, Library
from ingot.frontends.onnx.inputs import input_names
from ingot.frontends.onnx.node_order import (
    Initializer,
    check_depth,
    check_unique,
    initializers_of,
    order_nodes,
    value_names,
)
from ingot.frontends.onnx.operands import Operand, described, mapped, part_names, parts, rebuilt
from ingot.frontends.onnx.quant_checks import check_quantised
from ingot.frontends.onnx.random_keys import folded_key, seed_key
from ingot.frontends.onnx.reading import Frame, bare_node, read_node
from ingot.frontends.onnx.registry import ITERATION, OnnxNode, SubGraph
from ingot.frontends.onnx.tensors import sparse_to_array, to_array
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import ConstRef, Graph, Node, Value, replace
from ingot.graph.types import Symbol, tensor
from ingot.ops.random import KEY
from ingot.support.abi import RANDOM_KEY
from ingot.support.errors import IngotError


@dataclass
class Scope:
    """Names of one ONNX graph or function body → values of the graph being built."""

    frame: Frame
    initializers: dict[str, Initializer] = field(default_factory=dict)
    values: dict[str, Operand] = field(default_factory=dict)
    is_function: bool = False  # the caller's names are not visible; its own are made fresh


class Walker:
    """Builds one graph; a child walker builds each sub-graph. Implements registry.Importer."""

    def __init__(self, g: GraphBuilder, library: Library, scope: Scope, outer: Walker | None):
        self.g, self.library, self.scope, self.outer = g, library, scope, outer
        self.captures: list[Value] = []
        self.results: list[Operand] = []  # of the graph that was walked: what its outputs stand for
        self._serials: Iterator[int] = outer._serials if outer is not None else count()
        self.known_values = ShapeValues(g, next(self._serials), self.symbol_of)
        self._bound: dict[Unknown, Var] = {}
        self._outputs: frozenset[str] = frozenset()
        self._keys: dict[str, Value] = {}  # of random numbers, by the seed's text
        self._loop = ""  # Loop or Scan, if this graph is its body
        self.declared_types: dict[str, onnx.TypeProto] = {}

    # --- walking ----------------------------------------------------------------------------------

    def walk_graph(self, graph: onnx.GraphProto, inputs: Sequence[Operand]) -> Graph:
        """Import a graph, given the values of its formal inputs."""
        where = f"graph {graph.name!r}"
        formal = [info.name for info in graph.input if info.name not in self.scope.initializers]
        check_unique(formal, where)
        self.scope.values.update(zip(input_names(graph.input, self.scope.initializers), inputs))
        infos = (*graph.value_info, *graph.output)
        self.declared_types = {info.name: info.type for info in infos}
        self._outputs = frozenset(info.name for info in graph.output)
        given = [*formal, *self.scope.initializers]
        self._walk_nodes(graph.node, given)
        self.g.origin = ""
        outputs: list[Value] = []
        for info in graph.output:
            found = self._result(info, where)
            pairs = zip(part_names(found, info.name), parts(found))
            made = [self._output(*pair, outputs) for pair in pairs]
            self.results.append(rebuilt(found, iter(made)))
            outputs += made
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
            check_quantised(self, node)
            results = list(converter(self, node))
        except IngotError as error:
            if error.where:
                raise
            raise _with_location(error, node.where) from error
        except MemoryError as error:
            what = "a table that this operator needs does not fit into memory"
            raise IngotError("limit", what, where=node.where, why=str(error)) from error
        except (TypeError, ValueError, LookupError, ArithmeticError, AssertionError) as error:
            why = f"{type(error).__name__}: {error}"
            what = "its attributes or operands are inconsistent"
            raise IngotError("bad-model", what, where=node.where, why=why) from error
        self._record(node, results, start)

    def _record(self, node: OnnxNode, results: list[Operand | None], start: int) -> None:
        """Give the results their ONNX names and propagate known shape values."""
        names = self._rename(node, results, start)
        for made in self.g.nodes[start:]:
            for value in made.outputs:
                check_size(value.type, node.where)
        refined = self.known_values.observe(start)
        for name, found in names.items():
            self.scope.values[name] = mapped(found, lambda v: refined.get(v.name, v))

    def _rename(
        self, node: OnnxNode, results: list[Operand | None], start: int
    ) -> dict[str, Operand]:
        fresh = {out.name for n in self.g.nodes[start:] for out in n.outputs}
        named: dict[str, Operand] = {}
        renamed: dict[str, Value] = {}
        for name, found in zip(node.outputs, results):
            if not name or found is None:
                continue
            for wanted, value in zip(part_names(found, name), parts(found)):
                if value.name in fresh and value.name not in renamed:
                    is_own = wanted == name and not self.scope.is_function
                    kept = wanted if is_own else self.g.fresh(wanted)
                    renamed[value.name] = Value(kept, value.type)
            named[name] = mapped(found, lambda v: renamed.get(v.name, v))
        if renamed:
            self.g.nodes[start:] = [_renamed(n, renamed) for n in self.g.nodes[start:]]
        return named

    def _operand_types(self, node: OnnxNode) -> list[onnx.TypeProto]:
        """The operands' types as the standard writes them."""
        operands = [self.operand(node, i) for i in range(len(node.inputs))]
        return [onnx.TypeProto() if v is None else operand_type_proto(v) for v in operands]

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

    def _result(self, info: onnx.ValueInfoProto, where: str) -> Operand:
        """What a graph output stands for. That of the model is in the form of a call's results."""
        found = self._lookup(info.name)
        if found is None:
            raise IngotError("bad-model", f"no node produces the output {info.name!r}", where=where)
        return found if self.outer is not None else at_border(self, found, info.type)

    def _output(self, name: str, value: Value, earlier: Sequence[Value]) -> Value:
        """A graph output under its own name: a distinct value that a node produces."""
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

    def _lookup(self, name: str) -> Operand | None:
        """What an ONNX name stands for; an initializer is emitted at its first use."""
        value = self.scope.values.get(name)
        if value is None and name in self.scope.initializers:
            value = self._emit_initializer(name)
        if value is None and self.outer is not None and not self.scope.is_function:
            value = self._capture(name)
        if value is not None:
            value = self.scope.values[name] = mapped(value, self.g.current)
        return value

    def _find(self, name: str, node: OnnxNode) -> Operand:
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
        to_dense = to_array if isinstance(proto, onnx.TensorProto) else sparse_to_array
        try:
            array = to_dense(proto, source, f"initializer {name!r}")  # type: ignore[operator]
        except IngotError as error:
            reader = f"{error.where}, read by {self.g.origin}" if self.g.origin else error.where
            raise _with_location(error, reader) from error
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

    def _capture(self, name: str) -> Operand | None:
        """What a name of the enclosing graph stands for, here."""
        assert self.outer is not None
        found = self.outer._lookup(name)
        if found is None:
            return None
        return mapped(found, lambda value: self._capture_value(value, name))

    def _capture_value(self, value: Value, name: str) -> Value:
        """A value of the enclosing graph: constants are duplicated, others become inputs, once."""
        assert self.outer is not None
        for inner, captured in zip(reversed(self.g.inputs), reversed(self.captures)):
            if captured.name == value.name:
                return inner
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
        found = self.operand(node, index)
        return None if found is None else _tensor(found, f"operand {index}", node)

    def operand(self, node: OnnxNode, index: int) -> Operand | None:
        if index >= len(node.inputs) or not node.inputs[index]:
            return None
        return self._find(node.inputs[index], node)

    def named(self, node: OnnxNode, name: str) -> Value:
        return _tensor(self._find(name, node), repr(name), node)

    def known(self, node: OnnxNode, index: int) -> np.ndarray | None:
        value = self.optional(node, index)
        return None if value is None else self.known_values.numbers(value)

    def stored(self, node: OnnxNode, index: int) -> np.ndarray | None:
        value = self.optional(node, index)
        ref = None if value is None else self.known_values.constant_ref(value)
        return None if ref is None else self.g.store.get(ref)

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

    def subgraph(
        self, node: OnnxNode, attr: str, inputs: Sequence[Operand], symbols: Iterable[Symbol] = ()
    ) -> SubGraph:
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
        g.symbols.update({symbol.name: symbol for symbol in symbols})
        child = Walker(g, self.library, Scope(frame, constants), self)
        child._loop = node.op if node.op in ("Loop", "Scan") and not node.domain else ""
        given: list[Operand] = []
        for info, operand in zip(formal, inputs):
            names = [n if n == info.name else g.fresh(n) for n in part_names(operand, info.name)]
            own = [Value(n, v.type) for n, v in zip(names, parts(operand))]
            given.append(rebuilt(operand, iter(own)))
            g.inputs += own
        graph = child.walk_graph(proto, given)
        self._reserve(graph.symbols)
        return SubGraph(graph, tuple(child.captures), tuple(child.results))

    def define(self, name: str, operand: Operand) -> None:
        self.scope.values[name] = operand

    def declared(self, name: str) -> onnx.TypeProto | None:
        return self.declared_types.get(name)

    def mark(self) -> Callable[[], None]:
        """The state of the import, as a function that returns to it: a sub-graph may have to be
        imported again, of other types, and what the first import assumed of sizes is then void."""
        rewind = None if self.g.unifier is None else self.g.unifier.mark()
        walker: Walker | None = self
        states: list[tuple[Any, Any]] = []
        while walker is not None:
            known = walker.known_values
            lists = (walker.g.inputs, walker.g.nodes, walker.captures)
            tables = (walker.g.symbols, walker.scope.values, walker._bound, walker._keys)
            tables += (known.arrays, known.holders, known._refs)  # type: ignore[assignment]
            states += [(x, list(x)) for x in lists] + [(x, dict(x)) for x in tables]
            walker = walker.outer

        def restore() -> None:
            if rewind is not None:
                rewind()
            for current, saved in states:
                current.clear()
                (current.extend if isinstance(current, list) else current.update)(saved)

        return restore

    def random_key(self, seed: float | None) -> Value:
        found = self._keys.get(str(seed))
        if found is None:
            found = self._keys[str(seed)] = self._random_key(seed)
        return found

    def _random_key(self, seed: float | None) -> Value:
        if self.outer is None:
            is_given = seed is not None
            return self.g.constant(seed_key(seed)) if is_given else self.g.input(RANDOM_KEY, KEY)
        key = self._capture_value(self.outer.random_key(seed), RANDOM_KEY)
        if not self._loop:
            return key
        return folded_key(self.g, key, self._iteration(), self.random_stream())

    def _iteration(self) -> Value:
        """The number of the iteration, in the body of a loop; a Scan passes it as a capture."""
        if self._loop == "Loop":
            return self.g.inputs[0]
        if ITERATION not in self.scope.values:
            self.scope.values[ITERATION] = self.g.input(ITERATION, tensor(dtypes.i64))
            self.captures.append(Value(ITERATION, tensor(dtypes.i64)))
        found = self.scope.values[ITERATION]
        assert isinstance(found, Value)
        return found

    def random_stream(self) -> int:
        return next(self._serials)

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


def _tensor(found: Operand, which: str, node: OnnxNode) -> Value:
    if not isinstance(found, Value):
        what = f"{which} is {described(found)}, not a tensor"
        raise IngotError("bad-type", what, where=node.where)
    return found


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
