"""Keeps weights of a few bits packed where a model dequantises them for a product of floats.

    matmul(x, dequantize_linear(w: u4 constant, scale, zero))
    →  matmul_packed(x, codes, scale, zero)

Constant folding would make them f32: four or eight times the memory to read for every row. Scales
are per block of k, per column or per tensor; the latter two are repeated for blocks of BLOCK codes.
Between the two nodes may be a transpose and casts between floats. A product whose x is dequantised
too is one of integers, and is left to the passes of those. In: a Graph, before constants are
folded. Out: a Graph.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.graph.ir import Graph, Node, Value
from ingot.graph.store import ConstantStore
from ingot.ops.packed_codes import BITS, WORD, pack_rows
from ingot.passes.edit import Editor, map_subgraphs

BLOCK = 128  # codes that repeat one scale, where it is for a whole column; 3 % of 8-bit weights
BLOCKS = (256, 128, 64, 32, 16)  # a longer block is cut into blocks of one of these
MOVES = ("transpose", "cast", "reshape", "identity")  # that quantised activations pass through


@dataclass(frozen=True)
class Weights:
    """Codes (columns, k), and scales and zero points (columns, blocks)."""

    codes: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None
    bits: int
    block: int


def keep_weights_packed(graph: Graph, store: ConstantStore) -> Graph:
    edit = Editor(graph, store)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: keep_weights_packed(g, store))
        edit.g.origin = node.origin
        found = _weights_of(edit, node)
        if found is None:
            edit.keep(node)
        else:
            edit.keep(_packed(edit, node, found))
    return edit.finish()


def _packed(edit: Editor, node: Node, weights: Weights) -> Node:
    """Appends the product of rows; the node that gives it the shape of the original."""
    g, x, out = edit.g, node.inputs[0], node.outputs[0]
    assert x is not None
    columns, depth = weights.codes.shape
    rows = x if x.dtype is dtypes.f32 else g.add("cast", [x], to=dtypes.f32)
    rows = g.add("reshape", [rows], shape=(arith.product(list(x.shape[:-1])), depth))
    padded = np.zeros((columns, weights.scale.shape[1] * weights.block), np.uint8)
    padded[:, :depth] = weights.codes
    operands = [pack_rows(padded, weights.bits), weights.scale]
    operands += [] if weights.zero is None else [weights.zero]
    y = g.add(
        "matmul_packed", [rows, *(g.constant(np.ascontiguousarray(a)) for a in operands)],
        columns=columns, bits=weights.bits, block=weights.block,
    )  # fmt: skip
    y = y if y.dtype is out.dtype else g.add("cast", [y], to=out.dtype)
    return replace(node, op="reshape", inputs=(y,), attrs=(("shape", out.shape),))


def _weights_of(edit: Editor, node: Node) -> Weights | None:
    """The weights of a matmul of floats, if they are dequantised from a constant."""
    x, w = (*node.inputs, None, None)[:2]
    if node.op != "matmul" or x is None or w is None or w.tensor.rank != 2 or x.tensor.rank < 2:
        return None
    if not x.dtype.is_float or _is_dequantised(edit, x):
        return None
    is_transposed = False
    maker = edit.producer(w)
    while maker is not None and maker.op in ("transpose", "cast"):
        (operand,) = maker.inputs
        assert operand is not None
        if not operand.dtype.is_float or operand.tensor.rank != 2:
            return None
        is_transposed ^= maker.op == "transpose" and tuple(maker.attr("perm")) == (1, 0)
        maker = edit.producer(operand)
    if maker is None or maker.op != "dequantize_linear":
        return None
    return _dequantised(edit, maker, is_transposed)


def _is_dequantised(edit: Editor, x: Value) -> bool:
    maker = edit.producer(x)
    while maker is not None and maker.op in MOVES:
        maker = edit.producer(maker.inputs[0])
    return maker is not None and maker.op == "dequantize_linear"


def _dequantised(edit: Editor, node: Node, is_transposed: bool) -> Weights | None:
    """The constant operands of dequantize_linear, with columns first."""
    w, scale, zero = (edit.constant(v) for v in (*node.inputs, None)[:3])
    first = node.inputs[0]
    has_all = w is not None and scale is not None
    if not has_all or (zero is None and any(v is not None for v in node.inputs[2:])):
        return None
    assert w is not None and scale is not None and first is not None
    dtype = first.dtype
    if not dtype.is_int or dtype.bits not in BITS or scale.dtype == np.float64:
        return None
    k_axis = 1 if is_transposed else 0
    found = _blocks(w.shape, scale, node, k_axis)
    if found is None:
        return None
    block, wanted = found
    if block * dtype.bits % WORD:
        return None
    scales = _params(scale.astype(np.float32), wanted, k_axis, block, w.shape)
    middle = 1 << (dtype.bits - 1)
    codes = _unsigned(w, dtype)
    zeros = None
    if zero is not None or not dtype.is_signed:
        given = np.zeros_like(scale, np.uint8) if zero is None else _unsigned(zero, dtype)
        zeros = _params(given, wanted, k_axis, block, w.shape)
    if zeros is not None and (zeros == middle).all():
        zeros = None
    return Weights(codes if k_axis else codes.T, scales, zeros, dtype.bits, block)


def _blocks(
    shape: tuple[int, ...], scale: np.ndarray, node: Node, k_axis: int
) -> tuple[int, int] | None:
    """The codes of a block, and how many the scale's own blocks have (0: the whole column)."""
    axis, given = node.attr("axis", 1) % 2, node.attr("block", 0)
    if given:
        if axis != k_axis or scale.ndim != 2:
            return None
        cut = next((n for n in BLOCKS if given > n and given % n == 0), given)
        return (cut if given > BLOCKS[0] else given), given
    is_per_column = scale.ndim == 1 and scale.size > 1 and axis != k_axis
    if scale.size != 1 and not is_per_column:
        return None
    return BLOCK, 0


def _params(
    param: np.ndarray, given: int, k_axis: int, block: int, shape: tuple[int, ...]
) -> np.ndarray:
    """(columns, blocks): repeated where a block of the file is several, or a whole column."""
    blocks = -(-shape[k_axis] // block)
    if not given:
        return np.broadcast_to(param.reshape(-1, 1), (shape[1 - k_axis], blocks))
    rows = param if k_axis else param.T
    return np.repeat(rows, given // block, axis=1)[:, :blocks]


def _unsigned(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Codes from 0 on."""
    offset = 1 << (dtype.bits - 1) if dtype.is_signed else 0
    return (x.astype(np.int16) + offset).astype(np.uint8)
