"""Compares what import made of each node with another runtime, node by node.

In: an imported case, and the values that another runtime computes for the model's own names. Out:
the first node whose value differs, computed from that runtime's operands, so that errors do not add
up. Called by verify.py for --against onnxruntime and torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ingot.graph import interp
from ingot.graph.ir import Node
from ingot.inspect.case import Case
from ingot.inspect.difference import Difference, compare
from ingot.inspect.exact import wide_array, widened
from ingot.inspect.subgraph import run_sizes


@dataclass(frozen=True)
class ImportCheck:
    """`compared` values have a name that both know. `node` makes the first that differs, and
    `value` says how far Ingot's is from the other's."""

    compared: int
    node: Node | None = None
    value: Difference | None = None


def check_import(case: Case, theirs: Mapping[str, np.ndarray]) -> ImportCheck:
    graph, sizes = case.graph, run_sizes(case.graph, case.values)
    plain: dict[str, np.ndarray] = {v.name: case.feeds[v.name] for v in graph.inputs}
    wide = {name: wide_array(array) for name, array in plain.items()}
    compared = 0
    for node, wider in zip(graph.nodes, widened(graph, case.store).nodes):
        ours = interp.run_node(node, case.store, _operands(node, plain), sizes)
        exact = interp.run_node(wider, case.store, _operands(node, wide), sizes)
        for value, own, right in zip(node.outputs, ours, exact):
            plain[value.name], wide[value.name] = own, right
            other = theirs.get(value.name)
            if other is None or other.shape != own.shape:
                continue
            compared += 1
            found = compare(value.name, other, right, own, None, own.dtype.kind == "f")
            if found.is_wrong:
                shown = compare(value.name, own, other.astype(right.dtype), own)
                return ImportCheck(compared, node, replace(shown, allowed=found.allowed))
            plain[value.name] = other.astype(own.dtype)
            wide[value.name] = wide_array(plain[value.name])
    return ImportCheck(compared)


def _operands(node: Node, known: Mapping[str, np.ndarray]) -> list[np.ndarray | None]:
    return [None if v is None else known[v.name] for v in node.inputs]
