"""Which contractions a dot-product instruction computes: one definition for the passes that ask.

In: a node whose second operand is a constant, and the target. Out: the instruction's row, or None.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.cost.dot_products import DotRow, dot_product
from ingot.graph.ir import Node
from ingot.target import Target


def columns_fill(columns: int, row: DotRow) -> bool:
    """Do so many columns use the instruction better than i32 lanes along k would?"""
    return 2 * columns * row.group >= row.lanes


def terms_axis(node: Node) -> int:
    """The axis of the weights along which an instruction takes its terms: the channels, or where
    there is one, the last axis of the window (passes/fit_windows.py)."""
    weights = node.inputs[1]
    if node.op != "conv" or weights is None:
        return 0 if node.op == "matmul" else 1
    dilation = (node.attr("dilations") or (1,))[-1]
    is_single = arith.is_const(weights.shape[1], 1) and dilation == 1
    return weights.tensor.rank - 1 if is_single else 1


def dot_of(node: Node, target: Target) -> DotRow | None:
    """The instruction for the node's operand types and sizes: K is a multiple of its group."""
    if node.op not in ("matmul", "conv", "winograd_conv") or node.attr("group", 1) != 1:
        return None
    x, w = (v and v.tensor for v in node.inputs[:2])
    if x is None or w is None or (node.op == "matmul" and (w.rank != 2 or x.rank < 2)):
        return None
    of_map = dtypes.i16 if node.op == "winograd_conv" else x.dtype  # transformed maps are i16
    row = dot_product(target, of_map, w.dtype)
    depth = arith.as_int(w.shape[terms_axis(node)])
    columns = arith.as_int(w.shape[1 if node.op == "matmul" else 0])
    if row is None or depth is None or depth % row.group or not columns:
        return None
    return row if columns_fill(columns, row) else None
