"""transform_layout: an intermediate is kept in another physical layout.

    X_pack[i, k]   →   transform_layout("X_pack", "i, k -> i // 6, k, i % 6")   →   X_pack[a, k, b]

Every access is rewritten by the map. A stage that only fills the buffer, point by point in a nest
of its own, is made anew over the new layout, in its order; elements that no old index leads to are
set to zero. Legal for intermediates, for maps that can be undone: each new index a sum of digits of
the old ones, without gaps.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Buffer, Expr, Kernel, Stmt
from ingot.schedule import guards, tree
from ingot.schedule.facts import Facts
from ingot.schedule.index_map import IndexMap, Layout
from ingot.schedule.primitives.base import Result, put, with_body
from ingot.schedule.primitives.compute_at import remake
from ingot.schedule.primitives.compute_inline import guarded
from ingot.schedule.primitives.recheck import recheck
from ingot.schedule.primitives.set_scope import intermediate, output
from ingot.schedule.primitives.stages import Names, find_block, points
from ingot.schedule.show import refuse_buffer


def transform_layout(kernel: Kernel, target: Block | str, index_map: str) -> Result:
    how = IndexMap.of(index_map)
    buffer = target if isinstance(target, str) else output(kernel, target, "transform_layout")
    what = f"transform_layout({buffer!r}, {how.text()!r})"
    old = intermediate(kernel, buffer, what)
    layout = how.on(old.shape, Facts(kernel))
    if isinstance(layout, str):
        hint = 'a map such as "i, k -> i // 6, k, i % 6"'
        raise refuse_buffer(kernel, old, what, layout, hint)
    strange = _hidden(kernel, buffer)
    if strange is not None:
        raise refuse_buffer(kernel, old, what, strange, "transform layouts before that")
    new = ir.replace(old, shape=layout.shape)
    filler = _filler(kernel, buffer)
    changed = _rewritten(kernel, new, how)
    if filler is not None:
        changed = _refilled(changed, filler, new, layout)
    recheck(kernel, changed, what)
    return changed, []


def _hidden(kernel: Kernel, name: str) -> str | None:
    """Accesses that one index does not tell all of."""
    for s in visit.walk_stmts(kernel.body):
        if isinstance(s, ir.Call | ir.CopyAsync) and name in visit.read(s) | visit.written(s):
            return f"an instruction works on a box of {name}"
        if isinstance(s, ir.Store) and s.buffer.name == name and s.value.lanes > 1:
            return f"{name} is accessed by vectors already"
    if any(x.buffer.name == name and x.width > 1 for x in visit.loads(kernel.body)):
        return f"{name} is accessed by vectors already"
    return None


def _filler(kernel: Kernel, name: str) -> Block | None:
    """The one block that fills the buffer, if it does nothing else and is not scheduled yet."""
    writers = dependences.writers(kernel.body, name)
    if len(writers) != 1 or not is_plain_nest(kernel, writers[0]):
        return None
    block = writers[0]
    store = block.body
    if not isinstance(store, ir.Store) or store.mask is not None or block.init is not None:
        return None
    if any(a.kind is not AxisKind.SPATIAL for a in block.axes) or name in visit.read(block):
        return None
    is_own = set(store.indices) == set(points(block.axes)) and len(store.indices) == len(block.axes)
    return block if is_own else None


def is_plain_nest(kernel: Kernel, block: Block) -> bool:
    """One serial loop for each axis, over all of it, with nothing else inside: as it was made."""
    nest = tree.own_nest(kernel.body, block)
    loops = tree.loops_above(kernel.body, block)
    own = {x.var: x for x in loops if tree.find(nest, x.uid) is not None}
    facts = Facts(kernel, loops)
    if block.where is not None or any(x.kind is not ir.LoopKind.SERIAL for x in own.values()):
        return False
    for axis in block.axes:
        if arith.is_const(axis.binding, 0) and facts.equal(axis.extent, 1):
            continue  # its loop runs once, and is not named
        loop = own.pop(axis.binding.name, None) if isinstance(axis.binding, arith.Var) else None
        if loop is None or not facts.equal(loop.start, 0):
            return False
        if not facts.equal(loop.stop, axis.extent):
            return False
    return all(facts.equal(x.extent, 1) for x in own.values())


def _refilled(kernel: Kernel, block: Block, new: Buffer, layout: Layout) -> Kernel:
    """The block over the points of the new layout, its value guarded where there was no point."""
    store = block.body
    assert isinstance(store, ir.Store)
    names = Names(kernel)
    axes = names.axes(layout.shape)
    outs = dict(zip(layout.point, points(axes)))
    back = [arith.substitute(e, outs) for e in layout.back]
    env = {i.name: e for i, e in zip(store.indices, back) if isinstance(i, arith.Var)}
    facts = Facts(kernel, [ir.serial(a.var, a.extent, ir.Seq(())) for a in axes])
    env = {name: facts.simplify(e) for name, e in env.items()}
    sizes = {a.var: a.extent for a in block.axes}
    terms = [guards.less(e, sizes[n]) for n, e in env.items() if not facts.at_most(e + 1, sizes[n])]
    value = within(visit.substitute(store.value, env), guards.conjunction(terms))
    made = ir.replace(block, axes=axes, body=ir.Store(new, points(axes), value))
    here = find_block(kernel, block.uid)
    nest = tree.own_nest(kernel.body, here)
    above = [x for x in tree.loops_above(kernel.body, here) if tree.find(nest, x.uid) is None]
    return put(kernel, nest, remake(kernel, made, {}, Facts(kernel, above)))


def within(value: Expr, mask: Expr | None) -> Expr:
    """The value where the mask holds, zero elsewhere, touching nothing there."""
    if mask is None:
        return value
    zero = ir.value_of(0, value.dtype)
    if isinstance(value, ir.Load) and value.mask is None:
        return ir.replace(value, mask=mask, other=zero)
    return ir.Select(mask, guarded(value, mask), zero)


def _rewritten(kernel: Kernel, new: Buffer, how: IndexMap) -> Kernel:
    """Every access of the buffer in terms of its new layout."""

    def on_expr(e: Expr) -> Expr:
        if isinstance(e, ir.Load) and e.buffer.name == new.name:
            return ir.replace(e, buffer=new, indices=how.apply(e.indices))
        return e

    def on_stmt(s: Stmt) -> Stmt:
        match s:
            case ir.Alloc(buffer=buffer) if buffer.name == new.name:
                return ir.replace(s, buffer=new)
            case ir.Store(buffer=buffer) if buffer.name == new.name:
                return ir.replace(s, buffer=new, indices=how.apply(s.indices))
        return s

    return with_body(kernel, visit.map_stmt(kernel.body, on_stmt, on_expr))
