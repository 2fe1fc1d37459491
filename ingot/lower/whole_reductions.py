"""Orders the axes of a reduction to one value as they are in memory.

    for c, y, x: m = min(m, X[y, x, c])   →   for y, x, c: m = min(m, X[y, x, c])

The tensor is stored channels-last, and the loops of its operator are in logical order: no two of
them are adjacent in memory, so that nothing merges and no vector is loaded. Minimum, maximum and
sum have no order of their own. In: a kernel whose stages are plain nests. Out: the same, with other
orders of axes. Called by merge_axes.py.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import nest
from ingot.loops.ir import Axis, AxisKind, Block, Kernel, Stmt

UNORDERED = ("min", "max", "add", "mul", "and", "or")


def order_whole_reductions(kernel: Kernel) -> Kernel:
    """Every reduction of one operand to one value, along its memory."""
    stmt = visit.map_stmt(kernel.body, _ordered)
    return kernel if stmt is kernel.body else ir.replace(kernel, body=stmt)


def _ordered(s: Stmt) -> Stmt:
    loops: list[str] = []
    inner = s
    while isinstance(inner, ir.For):
        loops.append(inner.var)
        inner = inner.body
    if not isinstance(inner, Block) or [a.binding for a in inner.axes] != [*map(arith.Var, loops)]:
        return s
    order = _order_in_memory(inner)
    if order is None or order == list(inner.axes):
        return s
    names = iter([loops[inner.axes.index(a)] for a in order])
    return nest(order, lambda bound: ir.replace(inner, axes=bound), lambda _: next(names))


def _order_in_memory(block: Block) -> list[Axis] | None:
    """The axes in the order of the operand's dimensions; None for any other block."""
    store = block.body
    if not isinstance(store, ir.Store) or block.where is not None or block.init is None:
        return None
    if {a.kind for a in block.axes} != {AxisKind.REDUCE} or not _is_unordered(store):
        return None
    loads = [x for x in visit.loads(store) if x.buffer.name != store.buffer.name]
    if len(loads) != 1:
        return None
    order = [i.name for i in loads[0].indices if isinstance(i, arith.Var)]
    axes = {a.var: a for a in block.axes}
    used = {name for i in loads[0].indices for name in visit.index_vars(i)}
    if len(order) != len(set(order)) or set(order) != used or not used <= axes.keys():
        return None
    ones = [a for a in block.axes if a.var not in used]
    return [*ones, *(axes[name] for name in order)]


def _is_unordered(store: ir.Store) -> bool:
    """Is it one accumulator of an operation whose operands may be taken in any order?"""
    value = store.value
    if not isinstance(value, ir.Binary) or value.op not in UNORDERED:
        return False
    names = [x.buffer.name for x in (value.a, value.b) if isinstance(x, ir.Load)]
    return store.buffer.name in names
