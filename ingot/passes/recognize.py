"""Graph → Graph: formulas in small operators become the rich operators they spell.

Exporters write a layer-norm as nine nodes and a gelu as five. Whole, a row is normalised in one
pass while it is in cache, and the report names what the model means. Each pattern is a file in
passes/patterns; a rich operator is made only where the target keeps it whole. Attention is no
pattern: passes/fuse.py finds it by its structure. `INGOT_RECOGNIZE=0` switches it off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from ingot.graph.ir import Graph, Node
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.patterns import gelu, hard_swish, layer_norm, rms_norm, silu, softmax
from ingot.passes.patterns.look import Look


class Pattern(NamedTuple):
    makes: str
    last: tuple[str, ...]  # operators of the node that a formula ends in
    find: Callable[[Look, Node], Node | None]


PATTERNS = tuple(
    Pattern(p.MAKES, p.LAST, p.find)
    for p in (gelu, silu, hard_swish, softmax, layer_norm, rms_norm)
)


def recognize(graph: Graph, store: ConstantStore, keeps: Collection[str]) -> Graph:
    """Every pattern of `PATTERNS` whose operator is kept, the largest formula last."""
    edit, uses = Editor(graph, store), _uses(graph)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: recognize(g, store, keeps))
        edit.keep(_found(Look(edit, uses, node), keeps) or node)
    return edit.finish()


def _found(look: Look, keeps: Collection[str]) -> Node | None:
    for pattern in PATTERNS:
        if pattern.makes in keeps and look.node.op in pattern.last:
            whole = pattern.find(look, look.node)
            if whole is not None:
                return whole
    return None


def _uses(graph: Graph) -> Counter[str]:
    """How often each value is read; an output is read by the caller."""
    found = Counter(v.name for v in graph.outputs)
    for node in graph.nodes:
        found.update(v.name for v in node.inputs if v is not None)
    return found
