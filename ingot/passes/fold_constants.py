"""Constant folding: replaces nodes with constant operands by constants. Called by the pipeline.

The values come from the operators' references. Models are untrusted, so the size of a result is
limited: it is computed from the declared types before the reference runs. The total size is limited
too, since a few hundred bytes of nodes can double a constant a hundred times. A result much larger
than its operands is left to run, where it is fused with its reader (a mask of positions), unless it
becomes the weights of a contraction: these would be computed and packed in every call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ingot.arith import expr as arith
from ingot.graph.interp import run_node
from ingot.graph.ir import ConstRef, Graph, Node, Value, make_attrs
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.graph.substitute import substitute_type
from ingot.graph.types import Symbol
from ingot.graph.verify import bound_symbols
from ingot.passes.edit import (
    Editor,
    constant_ref,
    map_subgraphs,
    mentioned_symbols,
    result_symbols,
)
from ingot.support.errors import IngotError

SMALL_BYTES = 64 << 10  # a result up to this size is folded whatever its operands' size (heuristic)
GROWTH = 4  # a larger result may be this many times its operands' size (heuristic)
WEIGHT_BYTES = 16 << 20  # weights that are computed from small constants, at most (heuristic)
# Bytes of all results, in addition to the size of the model's constants (heuristic).
TOTAL_BYTES = 256 << 20
TOTAL_WORK = 4 << 30  # of all references, in OpDef.work_per_byte units: a few seconds (heuristic)


@dataclass
class _Budget:
    """The remaining budget of this pass."""

    each: int  # the most bytes of one node's results
    bytes_left: float
    is_first: bool = False
    work_left: float = TOTAL_WORK

    def spend(
        self, made: float, given: int, work_per_byte: float, is_move: bool, is_weight: bool
    ) -> bool:
        """Whether a node may be folded; if so, its cost is deducted. The limit of one node does not
        apply to a transposed weight, which would otherwise be transposed in every run."""
        work = (made + given) * work_per_byte
        is_grown = made > max(WEIGHT_BYTES if is_weight else SMALL_BYTES, GROWTH * given)
        most = self.bytes_left if is_move else min(self.each, self.bytes_left)
        if is_grown or made > most or work > self.work_left:
            return False
        self.bytes_left -= made
        self.work_left -= work
        return True


def fold_constants(
    graph: Graph,
    store: ConstantStore,
    limit_bytes: int = 64 << 20,
    is_first: bool = False,
) -> Graph:
    """Fold a node if all its operands are constants and its attributes have no symbols; if its
    results take at most `limit_bytes` (no limit for a transpose); and if they are small (64 KiB,
    weights 16 MiB) or at most four times its operands. Symbols that the node binds become
    constants. A node whose reference fails is kept, and fails at run time. The first folding keeps
    what `folds_late`. A limit of 0 switches folding off."""
    if not limit_bytes:
        return graph
    budget = _Budget(limit_bytes, TOTAL_BYTES + store.total_bytes, is_first)
    return _fold(graph, store, budget, frozenset())


def _fold(graph: Graph, store: ConstantStore, budget: _Budget, fixed: frozenset[str]) -> Graph:
    """`fixed` are symbols that must stay: those in the output types of a sub-graph."""
    edit = Editor(graph, store)
    weights = _weights(graph)
    for original in graph.nodes:
        node = map_subgraphs(
            edit.current(original),
            lambda g: _fold(g, store, budget, result_symbols(g)),
        )
        is_weight = any(v.name in weights for v in node.outputs)
        arrays = _results(edit, node, budget, fixed, is_weight)
        if arrays is None:
            edit.keep(node)
            continue
        edit.sizes |= _bound(node, arrays)
        for value, array in zip(node.outputs, arrays):
            typed = Value(value.name, substitute_type(value.type, edit.sizes))
            attrs = make_attrs({"value": _kept(edit, node, array)})
            edit.keep(Node("constant", (), (typed,), attrs, node.origin))
    return edit.finish()


def _weights(graph: Graph) -> set[str]:
    """Values computed from constants alone that a contraction reads, itself or after other nodes of
    constants."""
    constant: set[str] = set()
    for node in graph.nodes:
        is_constant = constant_ref(node) is not None or (
            bool(node.inputs)
            and not any(node.subgraphs)
            and all(v is None or v.name in constant for v in node.inputs)
        )
        if is_constant:
            constant |= {v.name for v in node.outputs}
    weights: set[str] = set()
    for node in reversed(graph.nodes):
        is_read = defn(node).kind is Kind.CONTRACTION or any(
            v.name in weights for v in node.outputs
        )
        if is_read:
            weights |= {v.name for v in node.inputs if v is not None and v.name in constant}
    return weights


def _kept(edit: Editor, node: Node, array: np.ndarray) -> ConstRef:
    if not defn(node).permutes:
        return edit.store.add(array)
    producer = edit.producer(node.inputs[0])
    source = None if producer is None else constant_ref(producer)
    assert source is not None, "only nodes of constants are folded"
    return edit.store.derive(source, f"{node.op} {node.attrs}", array)


def _results(
    edit: Editor, node: Node, budget: _Budget, fixed: frozenset[str], is_weight: bool
) -> list[np.ndarray] | None:
    """The node's outputs, if it may be folded."""
    if constant_ref(node) is not None or any(True for _ in node.subgraphs):
        return None
    if budget.is_first and defn(node).folds_late:
        return None
    if not defn(node).may_fold(node.attr_map):
        return None
    own = set(bound_symbols(node))
    if mentioned_symbols(node) - own or own & fixed:
        return None
    if not all(v is None or edit.is_constant(v) for v in node.inputs):
        return None
    inputs = [edit.constant(v) for v in node.inputs]
    given = sum(a.nbytes for a in inputs if a is not None)
    made = sum(_most_bytes(v, edit.g.symbols) for v in node.outputs)
    work = defn(node).work_per_byte(inputs, node.attr_map)
    if not budget.spend(made, given, work, defn(node).permutes, is_weight):
        return None
    try:
        arrays = run_node(node, edit.store, inputs, {})
    except (IngotError, ArithmeticError, LookupError, ValueError, MemoryError):
        return None  # operands that make no sense: the file is untrusted
    if not all(_fits(v, a) for v, a in zip(node.outputs, arrays)):
        return None
    sizes = _bound(node, arrays)
    return arrays if all(_allows(edit.g.symbols[n], size) for n, size in sizes.items()) else None


def _most_bytes(value: Value, symbols: dict[str, Symbol]) -> float:
    """The upper bound of a value's size; infinite where a dynamic dimension has none."""
    highs = {n: symbols[n].high for d in value.shape for n in arith.free_vars(d)}
    if None in highs.values():
        return math.inf
    sizes = {n: high for n, high in highs.items() if high is not None}
    return arith.evaluate(value.type.numel, sizes) * value.dtype.storage_bytes


def _fits(value: Value, array: np.ndarray) -> bool:
    """Does the reference's result have the declared element type and rank?"""
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
