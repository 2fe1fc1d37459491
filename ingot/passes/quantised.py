"""Quantised tensors in a graph being rewritten: dequantised activations and constants.

In: an Editor and a value. Out: the 8-bit tensor behind it with its scale and zero point, or None.
Called by the passes of quantised graphs: sink_dequantize, hoist_quantize, integer_contractions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.interp import run_node
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.types import TensorType
from ingot.graph.verify import bound_symbols
from ingot.ops.quant import param_array
from ingot.passes.edit import Editor, mentioned_symbols
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

EIGHT_BITS = (dtypes.i8, dtypes.u8)
# move elements and do not change them; the first operand is what they move
MOVES = (
    "transpose", "reshape", "slice", "identity", "gather", "gather_elements", "gather_nd",
    "reverse_sequence",
)  # fmt: skip
JOINS = ("concat", "interleave")  # the same, of several operands
SCALES = 1e-30, 1e30  # of these, q · scale / scale rounds to q: neither overflow nor underflow


@dataclass(frozen=True)
class Dequantised:
    """(x - zero) · scale in f32, per tensor, of an 8-bit x. Scale and zero point are scalars or
    vectors of one element; `scale_number` and `zero_number` are set if they are constants."""

    x: Value
    scale: Value
    zero: Value | None
    scale_number: float | None
    zero_number: int | None

    @property
    def is_constant(self) -> bool:
        """Are scale and zero point constants, and is the scale positive and not extreme?"""
        if self.scale_number is None or self.zero_number is None:
            return False
        return SCALES[0] < self.scale_number < SCALES[1]

    def has_grid_of(self, other: Dequantised) -> bool:
        """Whether equal 8-bit values are equal reals in both."""
        mine, theirs = ((d.scale_number, d.zero_number, d.x.dtype) for d in (self, other))
        return self.is_constant and mine == theirs

    def stored(self, real: float) -> int | None:
        """The 8-bit value of a real number, if there is exactly one."""
        if not self.is_constant or not np.isfinite(real):
            return None
        assert self.scale_number is not None and self.zero_number is not None
        number = round(real / self.scale_number) + self.zero_number
        dtype: DType = self.x.dtype
        exact = np.float32(number - self.zero_number) * np.float32(self.scale_number)
        is_one = dtype.lowest <= number <= dtype.highest and float(exact) == real
        return number if is_one else None


def dequantised(edit: Editor, value: Value | None) -> Dequantised | None:
    """The tensor that a value is the dequantised form of."""
    node = edit.producer(value)
    return None if node is None or node.op != "dequantize_linear" else grid_of(edit, node)


def grid_of(edit: Editor, node: Node) -> Dequantised | None:
    """The same of a dequantize_linear itself; None unless it is per tensor, 8 bits to f32."""
    x, scale, zero = (*node.inputs, None)[:3]
    assert x is not None and scale is not None
    is_single = is_one_element(scale.tensor) and (zero is None or is_one_element(zero.tensor))
    if x.dtype not in EIGHT_BITS or not is_single or scale.dtype is not dtypes.f32:
        return None
    return Dequantised(x, scale, zero, *numbers(edit, scale, zero))


@dataclass(frozen=True)
class Parameters:
    """Constant scales and zero points of a quantize_linear or dequantize_linear, per tensor or per
    channel: arrays that broadcast to its data. Zero points are in i32."""

    scale: np.ndarray
    zero: np.ndarray

    @property
    def is_usual(self) -> bool:
        """Are all scales positive, and none extreme?"""
        return bool(np.all((self.scale > SCALES[0]) & (self.scale < SCALES[1])))


def parameters(edit: Editor, node: Node) -> Parameters | None:
    """Those of a node that quantises from f32 or dequantises to it; None if they are not constant
    or of blocks."""
    x, scale, zero = (*node.inputs, None)[:3]
    factor, offset = edit.constant(scale), edit.constant(zero)
    if x is None or factor is None or (zero is not None and offset is None):
        return None
    if node.attr("block", 0) or factor.dtype != np.float32:
        return None
    offset = np.zeros((), np.int32) if offset is None else offset.astype(np.int32)
    like = np.empty((1,) * x.tensor.rank)
    spread = [param_array(a, like, node.attr_map) for a in (factor, offset)]
    return Parameters(spread[0], spread[1])


def numbers(edit: Editor, scale: Value, zero: Value | None) -> tuple[float | None, int | None]:
    """The scale and the zero point, where they are constants; an absent zero point is 0."""
    factor, offset = edit.constant(scale), edit.constant(zero)
    number = None if factor is None else float(factor.reshape(-1)[0])
    if zero is None:
        return number, 0
    return number, None if offset is None else int(offset.reshape(-1)[0])


def is_one_element(type: TensorType) -> bool:
    """Is it a scalar, or a vector of one element?"""
    return type.rank == 0 or (type.rank == 1 and arith.is_const(type.shape[0], 1))


def uses_of(graph: Graph) -> Counter[str]:
    """The number of uses of each value; a graph output counts as a use."""
    found = Counter(v.name for v in graph.outputs)
    for node in graph.nodes:
        found.update(v.name for v in node.inputs if v is not None)
    return found


@dataclass(frozen=True)
class QuantisedArray:
    """A constant (values - zero) · scale in f32: `scale` and `zero` broadcast to `values`."""

    values: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    source: Value | None = None  # the constant that `values` are, if no operator moved them

    @property
    def centred(self) -> np.ndarray:
        """values - zero, exact."""
        return self.values.astype(np.int32) - self.zero.astype(np.int32)


@segmented
def quantised_array(
    edit: Editor, value: Value | None, of: tuple[DType, ...] = EIGHT_BITS
) -> QuantisedArray | None:
    """The constant of the types `of` that a value is the dequantised form of, seen through the
    movement of its elements: transpose(dequantize(w)), concat of slices …"""
    node = edit.producer(value)
    if node is None:
        return None
    if node.op == "dequantize_linear":
        return _quantised_constant(edit, node, of)
    if node.op not in (*MOVES, *JOINS) or len(node.outputs) != 1:
        return None
    if bound_symbols(node) or mentioned_symbols(node):
        return None
    count = len(node.inputs) if node.op in JOINS else 1
    parts = [quantised_array(edit, v, of) for v in node.inputs[:count]]
    return _moved(edit, node, [p for p in parts if p is not None]) if all(parts) else None


def _quantised_constant(edit: Editor, node: Node, of: tuple[DType, ...]) -> QuantisedArray | None:
    x, scale, zero = (*node.inputs, None)[:3]
    arrays = [edit.constant(v) for v in (x, scale, zero)]
    values, factor, offset = arrays
    if x is None or values is None or factor is None or (zero is not None and offset is None):
        return None
    if x.dtype not in of or factor.dtype != np.float32 or node.attr("block", 0):
        return None
    offset = np.zeros((), values.dtype) if offset is None else offset
    spread = [param_array(a, values, node.attr_map) for a in (factor, offset)]
    return QuantisedArray(values, spread[0], spread[1], x)


def _moved(edit: Editor, node: Node, parts: list[QuantisedArray]) -> QuantisedArray | None:
    """Values, scales and zero points moved alike."""
    others = [edit.constant(v) for v in node.inputs[len(parts) :]]
    if any(a is None and v is not None for a, v in zip(others, node.inputs[len(parts) :])):
        return None
    spread = (
        [p.values for p in parts],
        [np.broadcast_to(p.scale, p.values.shape) for p in parts],
        [np.broadcast_to(p.zero, p.values.shape) for p in parts],
    )
    if len({p.values.dtype for p in parts}) != 1:
        return None
    try:
        moved = [run_node(node, edit.store, [*arrays, *others], {})[0] for arrays in spread]
    except (IngotError, ArithmeticError, LookupError, ValueError, MemoryError):
        return None  # operands that make no sense: the file is untrusted
    return QuantisedArray(moved[0], moved[1], moved[2])


def along_axis(array: np.ndarray, rank: int, axis: int, size: int) -> np.ndarray | None:
    """The array, broadcast to `rank` axes, as a vector over one axis; None if it varies along
    another."""
    aligned = array.reshape((1,) * (rank - array.ndim) + array.shape)
    first = aligned[tuple(slice(None) if i == axis else slice(0, 1) for i in range(rank))]
    if first.size not in (1, size):
        return None
    if not np.array_equal(np.broadcast_to(first, aligned.shape), aligned):
        return None
    return np.broadcast_to(first.reshape(-1), (size,))
