"""Element-wise functions between two quantised values become tables of 256 results.

    quantize(sigmoid(dequantize(x8, s, z)), t, y)   →   byte_lookup(x8, table)

A byte has 256 values: the table has the exact result for each, computed by the operators' numpy
references when compiling, and any chain of operators costs one look-up. The chain may quantise in
between, and may use x8 several times: x · sigmoid(x) is one table. Conditions: every other operand
is a constant of one element, and at least one operator is not cheap; a cheap chain is a few
instructions in the epilogue of the kernel that makes x8. In: a Graph. Out: a Graph, in which the
replaced nodes remain for their other readers. A stage of back ends.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingot.dtypes import DType
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.opdef import Kind, defn
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs, same_shape
from ingot.passes.remove_dead_code import remove_dead_code
from ingot.support import options
from ingot.support.stack import segmented
from ingot.target import Target

BYTES = 256
MAX_CHAIN = 32  # nodes of a chain: real ones have ten; heuristic
TABLE = "byte_lookup"
CONVERSIONS = ("quantize_linear", "dequantize_linear", "cast")
DIVISIONS = ("div", "reciprocal", "sqrt")  # one instruction of a vector unit each
FAST_LOOKUP = "avx512vbmi"


def lookup_tables(graph: Graph, store: ConstantStore, target: Target) -> Graph:
    """Replace every chain that a table pays for."""
    if not options.current().has("lookup_tables"):
        return graph
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: lookup_tables(g, store, target))
        edit.g.origin = node.origin
        chain = _Chain(edit, node, target)
        found = chain.source() if _gives_byte(node) else None
        if found is None:
            edit.keep(node)
        else:
            table = edit.g.constant(chain.table(found))
            edit.keep(replace(node, op=TABLE, inputs=(found, table), attrs=()))
    return remove_dead_code(edit.finish(), store)


def _gives_byte(node: Node) -> bool:
    if node.op not in ("quantize_linear", "cast") or len(node.outputs) != 1:
        return False
    return _is_byte(node.outputs[0])


def _is_byte(value: Value) -> bool:
    dtype: DType = value.dtype
    return dtype.is_int and dtype.bits == 8


class _Chain:
    """The element-wise nodes between one byte and the byte that `last` makes of it."""

    def __init__(self, edit: Editor, last: Node, target: Target):
        self.edit, self.last, self.target = edit, last, target

    def source(self) -> Value | None:
        """The byte that all of it depends on, as far back as there is one; None where no table
        pays."""
        found, costly = None, not self._is_cheap(self.last)
        open_values = self._varying(self.last)
        for _ in range(MAX_CHAIN):
            if open_values is None:
                break
            if len(open_values) == 1 and costly and _is_byte(next(iter(open_values.values()))):
                found = next(iter(open_values.values()))
            name = max(open_values, key=self._position, default="")
            node = self.edit.producer(open_values.pop(name, None))
            inside = None if node is None else self._varying(node)
            if node is None or inside is None:
                break
            costly |= not self._is_cheap(node)
            open_values |= inside
        return found

    def table(self, source: Value) -> np.ndarray:
        """The result for each byte, by its bits."""
        every = np.arange(BYTES, dtype=np.uint8).view(source.dtype.numpy)
        return self._evaluated(self.last, {source.name: every})

    @segmented
    def _evaluated(self, node: Node, known: dict[str, np.ndarray]) -> np.ndarray:
        operands: list[np.ndarray | None] = []
        for value in node.inputs:
            if value is None:
                operands.append(None)
                continue
            if value.name not in known:
                known[value.name] = self._operand(value, known)
            operands.append(known[value.name])
        with np.errstate(all="ignore"):
            (result,) = defn(node).reference(operands, node.attr_map)
        return np.asarray(result)

    def _operand(self, value: Value, known: dict[str, np.ndarray]) -> np.ndarray:
        array = self.edit.constant(value)
        if array is not None:
            return array.reshape(()) if array.size == 1 else array
        producer = self.edit.producer(value)
        assert producer is not None, "the chain ends at its source"
        return self._evaluated(producer, known)

    def _varying(self, node: Node) -> dict[str, Value] | None:
        """Its operands that are not constants; None where it is not element-wise on one shape, or
        has constants of several elements. (An earlier table is part of a longer one.)"""
        if node.op == TABLE:
            return {v.name: v for v in node.inputs[:1] if v is not None}
        if defn(node).kind_of(node) is not Kind.ELEMENTWISE or len(node.outputs) != 1:
            return None
        found: dict[str, Value] = {}
        for value in node.inputs:
            if value is None:
                continue
            array = self.edit.constant(value)
            if array is None and not same_shape(value.type, node.outputs[0].type):
                return None
            if array is not None and array.size != 1:
                return None
            if array is None:
                found[value.name] = value
        return found or None

    def _position(self, name: str) -> int:
        """Where the value is made, so that the last one is expanded first: -1 for an input."""
        nodes = self.edit.g.nodes
        made = (i for i in reversed(range(len(nodes))) if nodes[i].outputs[0].name == name)
        return next(made, -1)

    def _is_cheap(self, node: Node) -> bool:
        """Is it an instruction or two? A composite operator has several: as many as a look-up,
        where that takes one instruction for 64 bytes."""
        if node.op in self.target.keeps and self.target.has(FAST_LOOKUP):
            return False
        return defn(node).cheap or node.op in CONVERSIONS or node.op in DIVISIONS
