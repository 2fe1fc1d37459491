"""Decomposes composite operators into primitive ones, unless the target keeps them. Called by the
pipeline."""

from __future__ import annotations

from ingot.graph.ir import Graph, Node
from ingot.graph.opdef import defn
from ingot.graph.store import ConstantStore
from ingot.graph.verify import describe, types_agree
from ingot.passes.edit import Editor, map_subgraphs, symbol_names
from ingot.support.errors import IngotError


def decompose(graph: Graph, store: ConstantStore, keeps: frozenset[str] = frozenset()) -> Graph:
    """Decompose an operator if it has no loops of its own, or if it is composite and not in
    `keeps`; the result is decomposed recursively."""
    return _decompose(graph, store, keeps, symbol_names(graph))


def _decompose(graph: Graph, store: ConstantStore, keeps: frozenset[str], taken: set[str]) -> Graph:
    edit = Editor(graph, store, taken)
    for node in graph.nodes:
        _expand(edit, edit.current(node), keeps, taken, ())
    return edit.finish()


def _expand(
    edit: Editor, node: Node, keeps: frozenset[str], taken: set[str], inside: tuple[str, ...]
) -> None:
    """Keep a node, or replace it by its decomposition; `inside` are the enclosing operators."""
    if not _must_decompose(node, keeps):
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


def _must_decompose(node: Node, keeps: frozenset[str]) -> bool:
    op = defn(node)
    return op.has_decompose and (not op.has_compute or (op.composite and op.name not in keeps))
