"""Attention matching: finds softmax(Q·Kᵀ·scale + mask)·V by its structure.

In: a graph's nodes and a contraction (Q·Kᵀ). Out: the nodes from it to the contraction with V. They
become one kernel that computes a few rows of the scores at a time, in per-thread scratch memory.
Called by passes/fuse.py.

Between the two matmuls are only elementwise nodes (scale, mask, casts) and reductions along the
last axis (a softmax, composite or in primitive operators), and no other node reads the scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.graph.ir import Node
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import TensorType, same_size
from ingot.passes.edit import same_shape


@dataclass(frozen=True)
class AttentionLimits:
    """Sizes for which one kernel pays; all heuristic."""

    min_rows: int = 24  # rows of Q; fewer do not amortise packing K and V into panels
    max_keys: int = 8192  # scores in a row; a register tile of rows stays in the L2 cache
    max_kv_elements: int = 1 << 19  # of K, and of V: both are read for each row tile, from cache
    max_nodes: int = 32  # between the two matmuls


@dataclass(frozen=True)
class GraphIndex:
    """A graph's nodes, fusion kinds, operands and readers, by node index."""

    nodes: Sequence[Node]
    kinds: Sequence[Kind]
    operands: Sequence[Sequence[int]]  # the producers of each node's operands
    readers: Mapping[int, Sequence[int]]
    visible: Sequence[bool]  # whether it produces a graph output
    limits: AttentionLimits

    def type(self, i: int) -> TensorType:
        return self.nodes[i].outputs[0].tensor


def match_attention(index: GraphIndex, first: int) -> list[int]:
    """The contraction `first`, the nodes after it, and the contraction with V; empty if the match
    fails or another node reads the scores."""
    if not _is_matmul(index, first) or not _is_tileable(index, first):
        return []
    region = {first}
    for i in range(first + 1, len(index.nodes)):
        if (
            all(r < i for j in region for r in index.readers[j])
            or len(region) > index.limits.max_nodes
        ):
            return []
        if not any(j in region for j in index.operands[i]):
            continue
        if _is_second_matmul(index, first, region, i):
            members = sorted({*region, i})
            has_softmax = any(index.kinds[j] is Kind.REDUCTION for j in members)
            return members if has_softmax and _is_hidden(index, members) else []
        if not _is_row_wise(index, first, i):
            return []
        region.add(i)
    return []


def _is_matmul(index: GraphIndex, i: int) -> bool:
    return index.kinds[i] is Kind.CONTRACTION and defn(index.nodes[i]).reads_axes


def _is_tileable(index: GraphIndex, first: int) -> bool:
    """Are there enough rows for row tiles, and do a row's scores fit in cache?"""
    shape = index.type(first).shape
    if len(shape) < 2:
        return False
    rows, keys = arith.as_int(shape[-2]), arith.as_int(shape[-1])
    limits = index.limits
    enough = rows is None or rows >= limits.min_rows
    return enough and (keys is None or 1 < keys <= limits.max_keys)


def _is_row_wise(index: GraphIndex, first: int, i: int) -> bool:
    """Does the node compute rows of scores, or one number per row?"""
    if len(index.nodes[i].outputs) != 1 or index.type(i).layout is not None:
        return False
    scores, mine = index.type(first), index.type(i)
    per_row = TensorType(mine.dtype, (*scores.shape[:-1], arith.Const(1)))
    if not same_shape(mine, scores) and not same_shape(mine, per_row):
        return False
    match index.kinds[i]:
        case Kind.ELEMENTWISE:
            return True
        case Kind.REDUCTION:
            return _axes(index.nodes[i]) == [scores.rank - 1]
    return False


def _axes(reduction: Node) -> list[int]:
    axes = reduction.attr("axes", None)
    found = [reduction.attr("axis", None)] if axes is None else list(axes)
    source = reduction.inputs[0]
    assert source is not None
    return [axis % source.tensor.rank for axis in found if axis is not None]


def _is_second_matmul(index: GraphIndex, first: int, region: set[int], i: int) -> bool:
    """Is it a matmul whose left operand is the scores?"""
    left, *others = index.nodes[i].inputs[:2]
    if not _is_matmul(index, i) or left is None or not others or others[0] is None:
        return False
    made = {v.name for j in region for v in index.nodes[j].outputs}
    scores, out = index.type(first), index.type(i)
    if left.name not in made or others[0].name in made or not same_shape(left.tensor, scores):
        return False
    if out.rank != scores.rank or out.shape[-1] == 1:
        return False
    pairs = zip(out.shape[:-1], scores.shape[:-1])
    return all(same_size(a, b) for a, b in pairs) and all(
        _fits_cache(index.nodes[j], index.limits) for j in (first, i)
    )


def _fits_cache(matmul: Node, limits: AttentionLimits) -> bool:
    right = matmul.inputs[1]
    assert right is not None
    if right.tensor.rank < 2:
        return False
    size = arith.as_int(arith.product(list(right.tensor.shape[-2:])))
    return size is None or size <= limits.max_kv_elements


def _is_hidden(index: GraphIndex, members: list[int]) -> bool:
    """Are all but the last node read, and only inside the group?"""
    inner = members[:-1]
    return not any(index.visible[i] for i in inner) and all(
        index.readers[i] and all(r in members for r in index.readers[i]) for i in inner
    )
