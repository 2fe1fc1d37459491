"""In-place state update: a kernel's output aliases one of its inputs (a KV cache).

Legal if every element the kernel reads of that input is the one it then overwrites. Copy stages are
then removed (a scatter touches only the updated elements), and no element is overwritten unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ingot.arith import expr as arith
from ingot.graph.ir import Graph, Node, Value
from ingot.loops import ir, visit


def state_to_update(
    graph: Graph, node: Node, later: Iterable[Node], buffer_of: Mapping[str, str]
) -> Value | None:
    """The state whose successor the node computes, if no later node reads the old state.
    `buffer_of` maps each value to its buffer."""
    old = {new: old for old, new in graph.state}.get(node.outputs[0].name)
    found = [v for v in node.inputs if v is not None and v.name == old]
    if not found or len(node.outputs) != 1 or any(found[0] in n.inputs for n in later):
        return None
    aliased = [v for v in node.inputs if v and buffer_of[v.name] == buffer_of[found[0].name]]
    return found[0] if len(aliased) == 1 else None


def update_in_place(kernel: ir.Kernel, old: str, new: str) -> ir.Kernel | None:
    """f(old, …) → new   becomes   f(old, …) that overwrites `old`; None if not provably legal.

    `old` and `new` are parameter names; the result has no parameter `new`.
    """
    params = {p.name: p for p in kernel.params}
    if params[old].shape != params[new].shape or params[old].dtype is not params[new].dtype:
        return None
    body = visit.replace_buffers(kernel.body, {new: params[old]})
    body = visit.map_stmt(body, lambda s: ir.Seq(()) if _copies_itself(s, old) else s)
    body = visit.map_stmt(body, _without_empty)
    if not all(_reads_what_it_writes(block, old) for block in visit.blocks(body)):
        return None
    kept = tuple(p for p in kernel.params if p.name != new)
    return ir.replace(kernel, params=kept, body=body)


def _copies_itself(s: ir.Stmt, name: str) -> bool:
    """A block of x[i] = x[i]."""
    match s:
        case ir.Block(body=ir.Store(value=ir.Load(mask=None) as load) as store):
            same = store.buffer.name == load.buffer.name == name
            return same and _element(s, store.indices) == _element(s, load.indices)
    return False


def _element(block: ir.Block, indices: tuple[arith.Expr, ...]) -> tuple[arith.Expr, ...]:
    """Indices with axes of extent 1 replaced by 0, so that equal elements compare equal."""
    single = {axis.var: 0 for axis in block.axes if arith.is_const(axis.extent, 1)}
    return tuple(arith.substitute(i, single) for i in indices)


def _without_empty(s: ir.Stmt) -> ir.Stmt:
    """Remove loops and blocks with an empty body."""
    match s:
        case ir.For(body=ir.Seq(stmts=())) | ir.Block(body=ir.Seq(stmts=()), init=None):
            return ir.Seq(())
        case ir.Seq(stmts=stmts):
            return ir.seq(*(x for x in stmts if x != ir.Seq(())))
    return s


def _reads_what_it_writes(block: ir.Block, name: str) -> bool:
    """Is every load of the buffer at the element that the block then stores to?"""
    stores = [s for s in visit.stores(block) if s.buffer.name == name]
    stored = {_element(block, s.indices) for s in stores}
    loads = [e for e in visit.loads(block) if e.buffer.name == name]
    return all(stored == {_element(block, e.indices)} for e in loads)
