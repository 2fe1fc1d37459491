"""Which matmuls of a graph take the time of reading their weights. In: a graph and its target.

Used by widen_weights.py and narrow_weights.py; cost/weight_types.py decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.cost.weight_types import WeightGemm, is_bound_by_weights
from ingot.graph.ir import Graph, Node
from ingot.passes.edit import constant_ref
from ingot.target import Target

CONTRACTIONS = ("conv", "matmul")  # with weights as their second operand
Likely = Mapping[str, int]  # values of dynamic sizes


def likely_sizes(graph: Graph, outside: Likely) -> Likely:
    """The likely sizes of a graph's symbols, and of those around it."""
    return {**outside, **{s.name: s.likely for s in graph.symbols if s.likely is not None}}


class WeightReader:
    """Which matmuls take the time of reading their weights."""

    def __init__(self, graph: Graph, target: Target):
        self.target = target
        self.model_bytes = weight_bytes(graph)

    def bounds(self, node: Node, likely: Likely) -> bool:
        """Does reading the weights of this node take its time?"""
        if node.op != "matmul":
            return False
        x, weights = node.inputs
        if x is None or weights is None or weights.tensor.rank != 2:
            return False
        depth, columns = (arith.as_int(n) for n in weights.shape)
        if depth is None or columns is None or not x.tensor.rank:
            return False
        rows = arith.assumed(arith.product(list(x.shape[:-1])), likely)
        return is_bound_by_weights(WeightGemm(rows, depth, columns), self.model_bytes, self.target)


def weight_bytes(graph: Graph) -> int:
    """The bytes, in f32, of all constant weights of contractions, those in sub-graphs included."""
    constants = {n.outputs[0].name: ref for n in graph.nodes if (ref := constant_ref(n))}
    operands = (n.inputs[1] for n in graph.nodes if n.op in CONTRACTIONS)
    used = {v.name for v in operands if v is not None and v.name in constants}
    elements = sum(math.prod(constants[name].shape) for name in used)
    inside = sum(weight_bytes(g) for n in graph.nodes for _, g in n.subgraphs)
    return inside + elements * dtypes.f32.storage_bytes
