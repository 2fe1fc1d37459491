"""Symbolic shape inference: the elements of small tensors as constants or expressions over symbols.

In: the nodes just added to a graph. Out: their elements, where derivable, and the same nodes with
every known small value replaced by `constant` or `index_tensor`. Called by walker after each ONNX
node, so that a shape computed as Shape → Gather → Mul → Concat → Reshape is a shape, not data.

Evaluation is defined on Ingot's operators, not ONNX's, so it works for every converter. An element
that depends on data is an opaque leaf with its tensor and index; the walker binds the leaf to a
symbol when a size needs it, only once, so that equal sizes have equal expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.expr import Expr, Opaque, Var
from ingot.dtypes import DType
from ingot.frontends.common.limits import is_small_expr
from ingot.frontends.common.symbolic_arithmetic import Ratio, SymbolicArithmetic, lift
from ingot.frontends.common.symbolic_ops import SYMBOLIC_OPS, depends_on_data, object_array
from ingot.graph.builder import GraphBuilder
from ingot.graph.ir import ConstRef, Node, Value, make_attrs, replace
from ingot.graph.opdef import Kind, lookup
from ingot.graph.types import Symbol, tensor
from ingot.support import options
from ingot.support.errors import IngotError

MAX_ELEMENTS = 1024  # elements of an integer tensor that is evaluated; heuristic
MAX_FLOATS = 64  # elements of a float tensor that is evaluated; heuristic
MAX_UNKNOWN = 16  # elements of a data tensor that may be used as sizes; heuristic

Arrays = list["np.ndarray | None"]  # of numbers, or of dtype object: Expr, Ratio, None


@dataclass(frozen=True)
class Unknown:
    """A data-dependent element of a tensor. `owner` is the number of its graph."""

    owner: int
    value: str
    index: int


class ShapeValues:
    """The known elements of one graph's values."""

    def __init__(self, g: GraphBuilder, owner: int, symbol_of: Callable[[Unknown], Expr]):
        self.g, self.owner, self.symbol_of = g, owner, symbol_of
        self.arrays: dict[str, np.ndarray] = {}
        self.holders: dict[str, Value] = {}  # values with data-dependent elements
        self._refs: dict[str, ConstRef] = {}
        self._elements: tuple[tuple[Symbol, ...], SymbolicArithmetic] | None = None

    @property
    def elements(self) -> SymbolicArithmetic:
        """Symbolic arithmetic with the ranges of the symbols declared so far."""
        symbols = tuple(self.g.symbols.values())
        if self._elements is None or self._elements[0] != symbols:
            self._elements = (symbols, SymbolicArithmetic(self.g.symbols))
        return self._elements[1]

    # queries

    def numbers(self, value: Value) -> np.ndarray | None:
        """The value as an array, if it is constant."""
        array = self._current(value)
        return None if array is None or array.dtype == object else array

    def _current(self, value: Value) -> np.ndarray | None:
        """The known elements, with sizes as they are known now."""
        array = self.arrays.get(value.name)
        if array is None or array.dtype != object or self.g.unifier is None:
            return array
        flat = array.reshape(-1).tolist()
        if any(isinstance(e, Expr) and self.g.unifier.resolve(e) != e for e in flat):
            array = self._tidy(value, array)
            assert array is not None, "an expression stays one"
            self.arrays[value.name] = array
        return array

    def constant_ref(self, value: Value) -> ConstRef | None:
        """The value's reference into the constant store, if a `constant` node produces it."""
        return self._refs.get(value.name)

    def inherit(self, value: Value, outer: ShapeValues, original: Value) -> None:
        """`value` is an input that equals `original` of the enclosing graph."""
        known = outer._current(original)
        known = outer.lifted(original) if known is None else known
        if known is not None:
            self.arrays[value.name] = known

    def lifted(self, value: Value) -> np.ndarray | None:
        """The value's elements as expressions, unknown ones as opaque leaves; None if the tensor is
        too large, dynamic or of another type."""
        array = self._current(value)
        shape = _static(value)
        if shape is None or math.prod(shape) > _limit(value.dtype):
            return None
        if array is None:
            return self._unknown(value, shape)
        if array.dtype == object:
            return array
        return object_array([lift(x, value.dtype) for x in array.reshape(-1).tolist()], array.shape)

    def _unknown(self, value: Value, shape: tuple[int, ...]) -> np.ndarray | None:
        count = math.prod(shape)
        if value.dtype not in (dtypes.i32, dtypes.i64, dtypes.bool_):
            return None
        if len(shape) > 1 or count > MAX_UNKNOWN:
            return None
        return object_array([self._leaf(value, i) for i in range(count)], shape)

    def _leaf(self, value: Value, index: int) -> Expr:
        self.holders[value.name] = value
        return Opaque(Unknown(self.owner, value.name, index))

    # evaluation

    def observe(self, start: int) -> dict[str, Value]:
        """Evaluate the nodes from `start` on; known ones are replaced. Returns the new values by
        name: their types may be more precise."""
        fresh = self.g.nodes[start:]
        del self.g.nodes[start:]
        refined: dict[str, Value] = {}
        for position, node in enumerate(fresh):
            inputs = tuple(v and refined.get(v.name, v) for v in node.inputs)
            node = replace(node, inputs=inputs)
            later = {v.name for n in fresh[position + 1 :] for v in n.inputs if v is not None}
            if node.op == "range" and node.outputs[0].name not in later:
                node = self._sized_range(node)
            for new in self._replaced(node, self._evaluate(node), later):
                self.g.nodes.append(new)
                if new.op == "constant":
                    self._refs[new.outputs[0].name] = new.attr("value")
                refined |= {v.name: v for v in new.outputs}
        return refined

    def _sized_range(self, node: Node) -> Node:
        """A range whose length is an expression has it in its type, and binds no symbol."""
        start, limit, delta = (None if v is None else self.lifted(v) for v in node.inputs)
        if start is None or limit is None or delta is None:
            return node
        size = self.elements.range_length(start.item(), limit.item(), delta.item())
        if size is None:
            return node
        size = arith.substitute(size, {}, self.symbol_of)  # declares symbols: before `elements`
        size = self.g.simplified(size)
        for symbol in node.attr("symbols", ()):
            self.g.symbols.pop(symbol, None)
        out = Value(node.outputs[0].name, tensor(node.outputs[0].dtype, size))
        return replace(node, outputs=(out,), attrs=make_attrs({"size": size}))

    def _replaced(self, node: Node, arrays: Arrays, later: set[str]) -> list[Node]:
        """Record the known elements. Returns the nodes that replace `node`."""
        known = [self._tidy(out, array) for out, array in zip(node.outputs, arrays)]
        for out, array in zip(node.outputs, known):
            if array is not None:
                self.arrays[out.name] = array
        if node.op in ("constant", "index_tensor", "bind", "require"):
            return [node]
        nodes: list[Node] = []
        for out, array in zip(node.outputs, known):
            made = self._source(out, array, node.origin) if array is not None else []
            changed = bool(made) and made[-1].outputs[0].type != out.type
            if not made or (changed and out.name in later):
                return [node]
            nodes += made
        for symbol in node.attr("symbols", ()):
            self.g.symbols.pop(symbol, None)
        return nodes

    def _source(self, out: Value, array: np.ndarray, origin: str) -> list[Node]:
        """Source nodes for a known value; none if elements depend on data or are fractions."""
        if array.dtype != object:
            ref = self.g.store.add(array)
            value = Value(out.name, tensor(out.dtype, *array.shape))
            return [Node("constant", (), (value,), make_attrs({"value": ref}), origin)]
        exprs = array.reshape(-1).tolist()
        if out.dtype not in (dtypes.i64, dtypes.i32) or any(depends_on_data(e) for e in exprs):
            return []
        attrs = make_attrs({"values": tuple(exprs), "shape": tuple(array.shape)})
        name = out.name if out.dtype is dtypes.i64 else self.g.fresh(f"{out.name}.i64")
        wide = Value(name, tensor(dtypes.i64, *array.shape))
        index = Node("index_tensor", (), (wide,), attrs, origin)
        if out.dtype is dtypes.i64:
            return [index]
        to = make_attrs({"to": dtypes.i32, "mode": "wrap"})
        value = Value(out.name, tensor(dtypes.i32, *array.shape))
        return [index, Node("cast", (wide,), (value,), to, origin)]

    def _tidy(self, out: Value, array: np.ndarray | None) -> np.ndarray | None:
        """Simplified elements; a numeric array if all are constant; None if all are unknown."""
        if array is None or array.dtype != object:
            return array
        flat = array.reshape(-1).tolist()
        if flat and all(element is None for element in flat):
            return None
        if out.dtype.is_float:
            return object_array([e if _is_small_ratio(e) else None for e in flat], array.shape)
        for index, element in enumerate(flat):
            tidy = self._tidy_element(element)
            flat[index] = self._leaf(out, index) if tidy is None else tidy
        numbers = [arith.as_int(element) for element in flat]
        if None not in numbers:
            return np.array(numbers, np.int64).astype(out.dtype.numpy).reshape(array.shape)
        return object_array(flat, array.shape)

    def _tidy_element(self, element: Any) -> Expr | None:
        """The element simplified; None if it depends on data or the expression is too long."""
        if not isinstance(element, Expr) or not is_small_expr(element):
            return None
        if self.g.unifier is not None:
            element = self.g.unifier.resolve(element)
        tidy = self.elements.simplify(element)
        return tidy if is_small_expr(tidy) else None

    def _evaluate(self, node: Node) -> Arrays:
        match node.op:
            case "constant":
                ref = node.attr("value")
                return [None if ref.digest in self.g.store.lent else self.g.store.get(ref)]
            case "index_tensor":
                return [object_array(list(node.attr("values")), node.attr("shape"))]
            case "bind":
                return [
                    object_array([Var(s) for s in node.attr("symbols")], _static(node.outputs[0]))
                ]
        folded = self._fold(node)
        if folded is not None:
            return list(folded)
        out = node.outputs[0] if node.outputs else None
        if out is None or _static(out) is None or len(node.outputs) != 1:
            return [None] * len(node.outputs)
        if math.prod(_static(out) or ()) > _limit(out.dtype):
            return [None]
        return [self._symbolic(node, out)]

    def _symbolic(self, node: Node, out: Value) -> np.ndarray | None:
        operands = [None if v is None else self.lifted(v) for v in node.inputs]
        if any(v is not None and o is None for v, o in zip(node.inputs, operands)):
            return None
        if node.op in SYMBOLIC_OPS:
            return SYMBOLIC_OPS[node.op](node, operands, _static(out) or ())
        function = self._elementwise(node)
        if function is None:
            return None
        vectorized = np.frompyfunc(function, len(operands), 1)
        result = vectorized(*[np.asarray(o, dtype=object) for o in operands])
        return object_array(np.asarray(result, dtype=object).reshape(-1).tolist(), _static(out))

    def _elementwise(self, node: Node) -> Callable[..., Any] | None:
        elements = self.elements
        match node.op:
            case "cast":
                source, to = node.inputs[0].dtype, node.attr("to")  # type: ignore[union-attr]
                return lambda a: elements.cast(a, source, to)
            case "mod":
                fmod = bool(node.attr("fmod", False))
                return lambda a, b: elements.mod(a, b, fmod)
        return elements.table.get(node.op)

    def _fold(self, node: Node) -> list[np.ndarray] | None:
        """Constant folding with the operator's reference, if all operands are small constants and
        folding is not switched off. Sizes are then still evaluated, as expressions."""
        if any(node.subgraphs) or not node.inputs or not options.current().fold_limit_bytes:
            return None
        operands = [None if v is None else self.numbers(v) for v in node.inputs]
        if any(v is not None and o is None for v, o in zip(node.inputs, operands)):
            return None
        if not _is_small(node, [o for o in operands if o is not None]):
            return None
        attrs = {name: _plain(value) for name, value in node.attrs}
        if any(_is_symbolic(value) for value in attrs.values()):
            return None
        try:
            results = lookup(node.op).reference(operands, attrs)
        except (IngotError, ArithmeticError, ValueError, IndexError, NotImplementedError):
            return None  # an error at run time, if the node is executed: not reported here
        small = all(r.size <= _limit(out.dtype) for r, out in zip(results, node.outputs))
        return [np.asarray(r) for r in results] if small else None


# --- helpers ------------------------------------------------------------------------------------


def _static(value: Value) -> tuple[int, ...] | None:
    return value.type.static_shape


def _limit(dtype: DType) -> int:
    return MAX_FLOATS if dtype.is_float else MAX_ELEMENTS


def _is_small(node: Node, operands: Sequence[np.ndarray]) -> bool:
    """Whether there are few elements in and out; floats only in element-wise and movement ops."""
    is_float, op = any(out.dtype.is_float for out in node.outputs), lookup(node.op)
    if is_float and op.kind_of(node) not in (Kind.ELEMENTWISE, Kind.INJECTIVE):
        return False
    limit = MAX_FLOATS if is_float else MAX_ELEMENTS
    limit = 1 if op.folds_late else limit
    if any(array.size > limit for array in operands):
        return False
    if node.op == "range":
        return _range_length(*operands) <= limit
    shapes = [_static(out) for out in node.outputs]
    return all(shape is None or math.prod(shape) <= limit for shape in shapes)


def _is_small_ratio(element: Any) -> bool:
    return (
        isinstance(element, Ratio) and is_small_expr(element.top) and is_small_expr(element.bottom)
    )


def _range_length(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> float:
    """The approximate length of a range; infinite if it is invalid."""
    step = float(delta)
    length = (float(limit) - float(start)) / step if step else math.inf
    return length if math.isfinite(length) else math.inf


def _plain(value: Any) -> Any:
    """An attribute with constant expressions converted to integers."""
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    number = arith.as_int(value) if isinstance(value, Expr) else None
    return value if number is None else number


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_is_symbolic(v) for v in value)
    return isinstance(value, Expr)


__all__ = ["ShapeValues", "Unknown"]
