"""Pattern recognition: formulas of primitive operators become composite operators.

Exporters write a layer-norm as nine nodes and a gelu as five. As one operator, a row is normalised
in one pass while it is in cache, and the report names the operator. Each pattern is a file in
passes/patterns; a composite operator is made only if the target keeps it whole. Attention is not a
pattern: passes/match_attention.py matches its structure. `INGOT_OFF=recognize` switches it off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from ingot.graph.ir import Graph, Node
from ingot.graph.store import ConstantStore
from ingot.passes.edit import Editor, map_subgraphs
from ingot.passes.patterns import gelu, hard_swish, layer_norm, rms_norm, silu, softmax
from ingot.passes.patterns.matcher import Matcher


class Pattern(NamedTuple):
    makes: str
    last: tuple[str, ...]  # operators of a formula's last node
    find: Callable[[Matcher, Node], Node | None]


PATTERNS = tuple(
    Pattern(p.MAKES, p.LAST, p.find)
    for p in (gelu, silu, hard_swish, softmax, layer_norm, rms_norm)
)


def recognize(graph: Graph, store: ConstantStore, keeps: Collection[str]) -> Graph:
    """Apply every pattern of `PATTERNS` whose operator the target keeps."""
    edit, uses = Editor(graph, store), _uses(graph)
    for original in graph.nodes:
        node = map_subgraphs(edit.current(original), lambda g: recognize(g, store, keeps))
        edit.keep(_matched(Matcher(edit, uses, node), keeps) or node)
    return edit.finish()


def _matched(matcher: Matcher, keeps: Collection[str]) -> Node | None:
    for pattern in PATTERNS:
        if pattern.makes in keeps and matcher.node.op in pattern.last:
            whole = pattern.find(matcher, matcher.node)
            if whole is not None:
                return whole
    return None


def _uses(graph: Graph) -> Counter[str]:
    """The number of uses of each value; a graph output counts as a use."""
    found = Counter(v.name for v in graph.outputs)
    for node in graph.nodes:
        found.update(v.name for v in node.inputs if v is not None)
    return found
