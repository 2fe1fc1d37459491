"""Graph → Graph of operators the target has loops for or keeps whole. Called by the pipeline."""

from __future__ import annotations

from ingot.graph.ir import Graph, Node
from ingot.graph.opdef import defn
from ingot.graph.store import ConstantStore
from ingot.graph.verify import describe, types_agree
from ingot.passes.edit import Editor, map_subgraphs, symbol_names
from ingot.support.errors import IngotError


def decompose(graph: Graph, store: ConstantStore, keeps: frozenset[str] = frozenset()) -> Graph:
    """An operator becomes its decomposition if it has no loops of its own, or if it is rich and not
    in `keeps`; what it becomes is decomposed in turn."""
    return _decompose(graph, store, keeps, symbol_names(graph))


def _decompose(graph: Graph, store: ConstantStore, keeps: frozenset[str], taken: set[str]) -> Graph:
    edit = Editor(graph, store, taken)
    for node in graph.nodes:
        _expand(edit, edit.current(node), keeps, taken, ())
    return edit.finish()


def _expand(
    edit: Editor, node: Node, keeps: frozenset[str], taken: set[str], inside: tuple[str, ...]
) -> None:
    """Keep a node, or put its pieces in its place; `inside` are the operators being expanded."""
    if not _must_go(node, keeps):
        edit.keep(map_subgraphs(node, lambda g: _decompose(g, edit.store, keeps, taken)))
        return
    if node.op in inside:
        what = f"{node.op} decomposes into itself"
        raise IngotError("bad-graph", what, where=describe(node), why=" -> ".join(inside))
    start = len(edit.g.nodes)
    edit.g.origin = node.origin
    types = [v.tensor for v in node.outputs]
    values = defn(node).decompose(edit.g, node.inputs, types, node.attr_map)
    pieces = edit.g.nodes[start:]
    del edit.g.nodes[start:]
    taken |= edit.g.symbols.keys()
    for piece in pieces:
        _expand(edit, edit.current(piece), keeps, taken, (*inside, node.op))
    now = [edit.latest(v) for v in values]
    for old, new in zip(node.outputs, now, strict=True):
        if not types_agree(old.type, new.type, edit.g.symbols):
            what = f"{node.op} decomposes into {new.type}, not {old.type}"
            raise IngotError("bad-graph", what, where=describe(node))
    edit.replace(node, now)


def _must_go(node: Node, keeps: frozenset[str]) -> bool:
    op = defn(node)
    return op.has_decompose and (not op.has_compute or (op.rich and op.name not in keeps))
