"""Branch inlining: removes `if`s whose condition is constant. Called after constant folding.

Exported models have many of these: checks of a rank or a size that folding made constant.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value, replace
from ingot.graph.store import ConstantStore
from ingot.graph.substitute import substitute_node
from ingot.graph.verify import bound_symbols
from ingot.passes.edit import (
    Editor,
    map_subgraphs,
    rename_values,
    result_symbols,
    symbol_names,
)


def inline_branches(graph: Graph, store: ConstantStore) -> Graph:
    """if(true, *x){then_branch, else_branch} → the nodes of then_branch(*x); same for false. The
    symbols that the `if` would have bound become the sizes of the branch's results."""
    return _inline(graph, store, symbol_names(graph), frozenset())


def _inline(graph: Graph, store: ConstantStore, taken: set[str], fixed: frozenset[str]) -> Graph:
    """`fixed` are symbols that must stay: those in the output types of a sub-graph."""
    edit = Editor(graph, store, taken)
    for original in graph.nodes:
        _inline_node(edit, edit.current(original), taken, fixed)
    return edit.finish()


def _inline_node(edit: Editor, node: Node, taken: set[str], fixed: frozenset[str]) -> None:
    """Keep a node, or replace an `if` by the nodes of the branch taken."""
    cond = edit.constant(node.inputs[0]) if node.op == "if" else None
    if cond is None or fixed & set(bound_symbols(node)):
        edit.keep(map_subgraphs(node, lambda g: _inline(g, edit.store, taken, result_symbols(g))))
        return
    branch: Graph = node.attr("then_branch" if bool(cond) else "else_branch")
    values = {v.name: x for v, x in zip(branch.inputs, node.inputs[1:]) if x is not None}
    sizes = _hoist_symbols(edit, branch, taken)
    for inner in branch.nodes:
        sized = substitute_node(inner, sizes)
        made = {v.name: Value(edit.g.fresh(v.name), v.type) for v in sized.outputs}
        values |= made
        _inline_node(edit, edit.current(rename_values(sized, values)), taken, fixed)
    results = [edit.latest(values[v.name]) for v in branch.outputs]
    for declared, result in zip(node.outputs, results):
        _resolve_symbols(edit, bound_symbols(node), declared, result)
    edit.replace(node, results)


def _hoist_symbols(edit: Editor, branch: Graph, taken: set[str]) -> dict[str, arith.IntLike]:
    """Declare the branch's symbols in the enclosing graph, under fresh names."""
    renamed: dict[str, arith.IntLike] = {}
    for node in branch.nodes:
        for name in bound_symbols(node):
            symbol = branch.symbol_map[name]
            free = edit.g.symbol(name)
            edit.g.symbols[free] = replace(symbol, name=free)
            renamed[name] = arith.Var(free)
            taken.add(free)
    return renamed


def _resolve_symbols(edit: Editor, own: tuple[str, ...], declared: Value, result: Value) -> None:
    for dim, size in zip(declared.shape, result.shape):
        if isinstance(dim, arith.Var) and dim.name in own:
            edit.sizes.setdefault(dim.name, size)
