"""Graph → Graph in which what can be computed now is a constant. Called by the pipeline.

The numbers come from the operators' references. Models are untrusted, so a result must be small:
its size is known from the declared types before anything is computed. All results together are
bounded too: a few hundred bytes of nodes can double a constant a hundred times over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.interp import run_node
from ingot.graph.ir import ConstRef, Graph, Node, Value, make_attrs
from ingot.graph.opdef import defn
from ingot.graph.store import ConstantStore
from ingot.graph.types import Symbol, TensorType
from ingot.graph.verify import bound_symbols
from ingot.passes.edit import (
    Editor,
    constant_ref,
    map_subgraphs,
    mentioned_symbols,
    result_symbols,
    substitute_type,
)
from ingot.support.errors import IngotError

SMALL_BYTES = 64 << 10
GROWTH = 4
TOTAL_BYTES = 256 << 20  # of all results, beside as much as the constants take already
TOTAL_STEPS = 4 << 30  # of all references: a few seconds


@dataclass
class _Budget:
    """What may still be computed in this pass."""

    each: int  # the most bytes one node may make
    bytes_left: float
    steps_left: float = TOTAL_STEPS

    def spend(self, made: float, given: int, steps_per_byte: float, is_move: bool) -> bool:
        """Whether a node may be computed; if so, it is paid for. A transposed weight is as large as
        the weight, whatever that is, and would otherwise be transposed in every run."""
        steps = (made + given) * steps_per_byte
        is_grown = made > max(SMALL_BYTES, GROWTH * given)
        most = self.bytes_left if is_move else min(self.each, self.bytes_left)
        if is_grown or made > most or steps > self.steps_left:
            return False
        self.bytes_left -= made
        self.steps_left -= steps
        return True


def fold_constants(graph: Graph, store: ConstantStore, limit_bytes: int = 64 << 20) -> Graph:
    """A node whose operands are all constants, and whose attributes are numbers, is a constant: if
    its results take at most `limit_bytes` (a transpose as much as its operand), and either little
    (64 KiB) or no more than four times its operands. Sizes such a node binds become numbers. A
    node that fails is left to fail when run."""
    budget = _Budget(limit_bytes, TOTAL_BYTES + store.total_bytes)
    return _fold(graph, store, budget, frozenset())


def _fold(graph: Graph, store: ConstantStore, budget: _Budget, fixed: frozenset[str]) -> Graph:
    """`fixed` are symbols that must stay: a sub-graph's result types are known outside."""
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(
            edit.current(original),
            lambda g: _fold(g, store, budget, result_symbols(g)),
        )
        arrays = _results(edit, node, budget, fixed)
        if arrays is None:
            edit.keep(node)
            continue
        edit.sizes |= _bound(node, arrays)
        for value, array in zip(node.outputs, arrays):
            typed = Value(value.name, substitute_type(value.type, edit.sizes))
            attrs = make_attrs({"value": _kept(edit, node, array)})
            edit.keep(Node("constant", (), (typed,), attrs, node.origin))
    return edit.finish()


def _kept(edit: Editor, node: Node, array: np.ndarray) -> ConstRef:
    if not defn(node).permutes:
        return edit.store.add(array)
    maker = edit.maker(node.inputs[0])
    source = None if maker is None else constant_ref(maker)
    assert source is not None, "only nodes of constants are folded"
    return edit.store.derive(source, f"{node.op} {node.attrs}", array)


def _results(
    edit: Editor, node: Node, budget: _Budget, fixed: frozenset[str]
) -> list[np.ndarray] | None:
    """The node's values, if they can and may be computed now."""
    if constant_ref(node) is not None or any(True for _ in node.subgraphs):
        return None
    if not defn(node).may_fold(node.attr_map):
        return None
    own = set(bound_symbols(node))
    if mentioned_symbols(node) - own or own & fixed:
        return None
    inputs = [edit.constant(v) for v in node.inputs]
    if any(a is None and v is not None for a, v in zip(inputs, node.inputs)):
        return None
    given = sum(a.nbytes for a in inputs if a is not None)
    made = sum(_most_bytes(v, edit.g.symbols) for v in node.outputs)
    steps = defn(node).steps_per_byte(inputs, node.attr_map)
    if not budget.spend(made, given, steps, is_move=defn(node).permutes):
        return None
    try:
        arrays = run_node(node, edit.store, inputs, {})
    except IngotError:
        return None
    if not all(_fits(v, a) for v, a in zip(node.outputs, arrays)):
        return None
    sizes = _bound(node, arrays)
    return arrays if all(_allows(edit.g.symbols[n], size) for n, size in sizes.items()) else None


def _most_bytes(value: Value, symbols: dict[str, Symbol]) -> float:
    """The largest a value can be; infinite where a symbol has no upper end."""
    if not isinstance(value.type, TensorType):
        return math.inf
    highs = {n: symbols[n].high for d in value.shape for n in arith.free_vars(d)}
    if None in highs.values():
        return math.inf
    sizes = {n: high for n, high in highs.items() if high is not None}
    return arith.evaluate(value.type.numel, sizes) * value.dtype.storage_bytes


def _fits(value: Value, array: np.ndarray) -> bool:
    """A reference that answers in another type is not to be trusted with a constant."""
    return array.dtype == value.dtype.numpy and array.ndim == value.tensor.rank


def _allows(symbol: Symbol, size: int) -> bool:
    in_range = symbol.low <= size and (symbol.high is None or size <= symbol.high)
    return in_range and size % symbol.divisor == 0


def _bound(node: Node, arrays: list[np.ndarray]) -> dict[str, int]:
    names = bound_symbols(node)
    if not names:
        return {}
    types = [v.type for v in node.outputs]
    return dict(zip(names, defn(node).bound_values(arrays, types, node.attr_map), strict=True))
