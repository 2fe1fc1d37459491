"""Changes of sign of 8-bit values: i8 as u8 plus 128, and back, at the place where they are made.

    quantize_linear(r, s, z: i8)        →  quantize_linear(r, s, z + 128: u8)
    transpose, concat, pad … of such    →  the same of the changed value
    dequantize_linear(x: i8, s, z)      →  dequantize_linear(x + 128: u8, s, z + 128)
    anything else                       →  x ^ 0x80, an element-wise node

All of it is exact: clamping to -128 … 127 and to 0 … 255 is the same after adding 128. A reader
that wants the old value gets it from the changed one. Used by passes/fit_dot_operands.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot import dtypes
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, constant_ref
from ingot.support.stack import segmented

FLIPPED = {"i8": dtypes.u8, "u8": dtypes.i8}
MOVES = ("reshape", "transpose", "slice", "concat", "pad", "max_pool", "identity", "expand", "tile")
SIGN_BIT = 0x80


def flip_array(array: np.ndarray) -> np.ndarray:
    """The same values in the other type, 128 higher or lower."""
    other = np.uint8 if array.dtype == np.int8 else np.int8
    return (array.view(np.uint8) ^ np.uint8(SIGN_BIT)).view(other)


def wanted_flips(graph: Graph, values: Sequence[Value], store: ConstantStore) -> set[str]:
    """The values whose producers can make them in the other type at no cost: those wanted, and
    those that they are moved from."""
    producers = graph.producers()
    constants = {n.outputs[0].name for n in graph.nodes if constant_ref(n) is not None}
    known: dict[str, bool] = {}

    @segmented
    def can_flip(value: Value | None) -> bool:
        if value is None or value.name in constants:
            return True
        if value.name not in known:
            known[value.name] = False
            node = producers.get(value.name)
            if node is not None and node.op == "quantize_linear":
                known[value.name] = all(v is None or v.name in constants for v in node.inputs[2:])
            elif node is not None and _moves(node):
                known[value.name] = all(map(can_flip, _moved(node)))
        return known[value.name]

    found: set[str] = set()
    todo = [v for v in values if can_flip(v)]
    while todo:
        value = todo.pop()
        if value.name in found or value.name in constants:
            continue
        found.add(value.name)
        node = producers.get(value.name)
        if node is not None and _moves(node):
            todo += [v for v in _moved(node) if v is not None]
    return found


def _moves(node: Node) -> bool:
    return node.op in MOVES and len(node.outputs) == 1


def _moved(node: Node) -> tuple[Value | None, ...]:
    """The operands whose elements the node moves."""
    return node.inputs if node.op in ("concat", "pad") else node.inputs[:1]


class Signs:
    """The values of one graph in the other type; `wanted` are changed where they are made."""

    def __init__(self, edit: Editor, wanted: set[str]):
        self.edit, self.g, self.wanted = edit, edit.g, wanted
        self._made: dict[str, Value] = {}

    def flipped(self, value: Value) -> Value:
        """The value in the other type."""
        if value.name not in self._made:
            array = self.edit.constant(value)
            made = self._xor(value) if array is None else self.g.constant(flip_array(array))
            self._made[value.name] = made
        return self._made[value.name]

    def rewrote(self, node: Node) -> bool:
        """Appends the node over changed values, if it makes or dequantises one."""
        if node.op == "dequantize_linear" and self._is_known(node.inputs[0]):
            x, scale, *zero = node.inputs
            assert x is not None and scale is not None
            moved = self._zero(x, scale, zero)
            if moved is not None:
                made = self.g.add(node.op, [self._made[x.name], scale, moved], **node.attr_map)
                self.edit.replace(node, [made])
                return True
        if not node.outputs or node.outputs[0].name not in self.wanted:
            return False
        (out,) = node.outputs
        made = self._quantised(node) if node.op == "quantize_linear" else self._moved(node)
        old = self._xor(made)
        self._made |= {out.name: made, old.name: made}
        self.edit.replace(node, [old])
        return True

    def _is_known(self, value: Value | None) -> bool:
        return value is not None and value.name in self._made

    def _xor(self, value: Value) -> Value:
        """In u8, where 128 has the one bit that changes."""
        bits = value if value.dtype is dtypes.u8 else self._as(value, dtypes.u8)
        made = self.g.add("xor", [bits, self.g.constant(np.array(SIGN_BIT, np.uint8))])
        return self._as(made, dtypes.i8) if value.dtype is dtypes.u8 else made

    def _as(self, value: Value, dtype: dtypes.DType) -> Value:
        return self.g.add("bitcast", [value], to=dtype)

    def _zero(self, x: Value, scale: Value, zero: Sequence[Value | None]) -> Value | None:
        """The zero point of the changed value; None if it is no constant."""
        given = zero[0] if zero else None
        shape = scale.tensor.static_shape
        if given is None:
            array = None if shape is None else np.zeros(shape, x.dtype.numpy)
        else:
            array = self.edit.constant(given)
        return None if array is None else self.g.constant(flip_array(array))

    def _quantised(self, node: Node) -> Value:
        x, scale, *zero = node.inputs
        (out,) = node.outputs
        assert x is not None and scale is not None
        moved, dtype = self._zero(out, scale, zero), FLIPPED[out.dtype.name]
        return self.g.add(node.op, [x, scale, moved], **{**node.attr_map, "dtype": dtype})

    def _moved(self, node: Node) -> Value:
        count = len(_moved(node))
        operands = [None if v is None else self.flipped(v) for v in node.inputs[:count]]
        if node.op == "pad" and len(operands) < 2:
            fill = np.zeros((), node.outputs[0].dtype.numpy)
            operands.append(self.g.constant(flip_array(fill)))
        return self.g.add(node.op, [*operands, *node.inputs[count:]], **node.attr_map)
