"""Two products with rows between them: softmax(Q·Kᵀ·scale + mask)·V, found by its structure.

In: the nodes of a graph, what fusion knows of them, and a contraction. Out: the nodes from it to
the contraction that takes its rows as left operand, which become one kernel: a few rows of the
scores at a time, in a thread's own memory. Called by passes/fuse.py.

Between the two stand elementwise nodes (scale, mask, casts) and reductions along the last axis (a
softmax, whole or in small operators), and nothing of it is seen outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.graph.ir import Node
from ingot.graph.opdef import Kind, defn
from ingot.graph.types import TensorType
from ingot.passes.edit import same_shape, same_size

MIN_ROWS = 24  # fewer do not pay for the copies of K and V in panels
MAX_ROW = 8192  # scores of a row: a tile of rows stays in a second-level cache
MAX_MATRIX = 1 << 19  # elements of K and of V: read again for each tile of rows, from a cache
MAX_BETWEEN = 32


@dataclass(frozen=True)
class Facts:
    """What fusion knows of a graph, by the nodes' places in it."""

    nodes: Sequence[Node]
    kinds: Sequence[Kind]
    operands: Sequence[Sequence[int]]  # the nodes that make each node's operands
    readers: Mapping[int, Sequence[int]]
    visible: Sequence[bool]  # outputs of the graph

    def type(self, i: int) -> TensorType:
        return self.nodes[i].outputs[0].tensor


def rows_between(facts: Facts, first: int) -> list[int]:
    """The contraction `first`, the nodes that its scores go through, and the contraction that takes
    them; nothing where they are not all there is to see of the scores."""
    if not _is_product(facts, first) or not _suits(facts, first):
        return []
    region = {first}
    for i in range(first + 1, len(facts.nodes)):
        if all(r < i for j in region for r in facts.readers[j]) or len(region) > MAX_BETWEEN:
            return []
        if not any(j in region for j in facts.operands[i]):
            continue
        if _takes_rows(facts, first, region, i):
            members = sorted({*region, i})
            has_rows = any(facts.kinds[j] is Kind.REDUCTION for j in members)
            return members if has_rows and _is_hidden(facts, members) else []
        if not _is_between(facts, first, i):
            return []
        region.add(i)
    return []


def _is_product(facts: Facts, i: int) -> bool:
    return facts.kinds[i] is Kind.CONTRACTION and defn(facts.nodes[i]).reads_axes


def _suits(facts: Facts, first: int) -> bool:
    """Enough rows for tiles, and few enough scores in one for a cache."""
    shape = facts.type(first).shape
    if len(shape) < 2:
        return False
    rows, keys = arith.as_int(shape[-2]), arith.as_int(shape[-1])
    return (rows is None or rows >= MIN_ROWS) and (keys is None or 1 < keys <= MAX_ROW)


def _is_between(facts: Facts, first: int, i: int) -> bool:
    """Does the node work on rows of scores, or on one number for each?"""
    if len(facts.nodes[i].outputs) != 1 or facts.type(i).layout is not None:
        return False
    scores, mine = facts.type(first), facts.type(i)
    per_row = TensorType(mine.dtype, (*scores.shape[:-1], arith.Const(1)))
    if not same_shape(mine, scores) and not same_shape(mine, per_row):
        return False
    match facts.kinds[i]:
        case Kind.ELEMENTWISE:
            return True
        case Kind.REDUCTION:
            return _axes(facts.nodes[i]) == [scores.rank - 1]
    return False


def _axes(reduction: Node) -> list[int]:
    axes = reduction.attr("axes", None)
    found = [reduction.attr("axis", None)] if axes is None else list(axes)
    source = reduction.inputs[0]
    assert source is not None
    return [axis % source.tensor.rank for axis in found if axis is not None]


def _takes_rows(facts: Facts, first: int, region: set[int], i: int) -> bool:
    """Is it a product of the rows, as they are, with something else?"""
    left, *others = facts.nodes[i].inputs[:2]
    if not _is_product(facts, i) or left is None or not others or others[0] is None:
        return False
    made = {v.name for j in region for v in facts.nodes[j].outputs}
    scores, out = facts.type(first), facts.type(i)
    if left.name not in made or others[0].name in made or not same_shape(left.tensor, scores):
        return False
    if out.rank != scores.rank or out.shape[-1] == 1:
        return False
    pairs = zip(out.shape[:-1], scores.shape[:-1])
    return all(same_size(a, b) for a, b in pairs) and all(
        _is_small(facts.nodes[j]) for j in (first, i)
    )


def _is_small(product: Node) -> bool:
    right = product.inputs[1]
    assert right is not None
    if right.tensor.rank < 2:
        return False
    size = arith.as_int(arith.product(list(right.tensor.shape[-2:])))
    return size is None or size <= MAX_MATRIX


def _is_hidden(facts: Facts, members: list[int]) -> bool:
    """Is all but the last read inside only, and read at all?"""
    inner = members[:-1]
    return not any(facts.visible[i] for i in inner) and all(
        facts.readers[i] and all(r in members for r in facts.readers[i]) for i in inner
    )
