"""transform_layout: an intermediate is kept in another physical layout.

    X_pack[i, k]   →   transform_layout("X_pack", "i, k -> i // 6, k, i % 6")   →   X_pack[a, k, b]

Every access is rewritten by the map. An element-wise producer in a nest of its own is rebuilt to
iterate over the new layout; elements that no old index maps to are set to zero (padding). Legal for
intermediates and invertible maps: each new index is a sum of digits of the old ones, without gaps.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Buffer, Expr, Kernel, Stmt
from ingot.schedule import guards, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.index_map import IndexMap, InvertedMap
from ingot.schedule.primitives.base import Result, put, with_body
from ingot.schedule.primitives.cache_stage import FreshBlockNames, find_block, points
from ingot.schedule.primitives.compute_at import rebuild_nest
from ingot.schedule.primitives.compute_inline import guarded_value
from ingot.schedule.primitives.recheck import recheck
from ingot.schedule.primitives.set_scope import intermediate, output
from ingot.schedule.show import buffer_error


def transform_layout(kernel: Kernel, target: Block | str, index_map: str) -> Result:
    how = IndexMap.of(index_map)
    buffer = target if isinstance(target, str) else output(kernel, target, "transform_layout")
    what = f"transform_layout({buffer!r}, {how.text()!r})"
    old = intermediate(kernel, buffer, what)
    layout = how.inverted_on(old.shape, Analyzer(kernel))
    if isinstance(layout, str):
        hint = 'a map such as "i, k -> i // 6, k, i % 6"'
        raise buffer_error(kernel, old, what, layout, hint)
    unsupported = _vector_access(kernel, buffer)
    if unsupported is not None:
        raise buffer_error(kernel, old, what, unsupported, "transform layouts before that")
    new = ir.replace(old, shape=layout.shape)
    producer = _producer(kernel, buffer)
    changed = _rewritten(kernel, new, how)
    if producer is not None:
        changed = _rebuild_producer(changed, producer, new, layout)
    recheck(kernel, changed, what)
    return changed, []


def _vector_access(kernel: Kernel, name: str) -> str | None:
    """Why some access of the buffer cannot be rewritten: it covers more than one element."""
    for s in visit.walk_stmts(kernel.body):
        if isinstance(s, ir.Call | ir.CopyAsync) and name in visit.read(s) | visit.written(s):
            return f"an instruction accesses a box of {name}"
        if isinstance(s, ir.Store) and s.buffer.name == name and s.value.lanes > 1:
            return f"{name} is accessed by vectors already"
    if any(x.buffer.name == name and x.width > 1 for x in visit.loads(kernel.body)):
        return f"{name} is accessed by vectors already"
    return None


def _producer(kernel: Kernel, name: str) -> Block | None:
    """The only block that writes the buffer, if it is element-wise and not scheduled yet."""
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
    """Does the block have just one serial loop for each axis, over its whole extent?"""
    nest = tree.own_nest(kernel.body, block)
    loops = tree.loops_above(kernel.body, block)
    own = {x.var: x for x in loops if tree.find(nest, x.uid) is not None}
    analyzer = Analyzer(kernel, loops)
    if block.where is not None or any(x.kind is not ir.LoopKind.SERIAL for x in own.values()):
        return False
    for axis in block.axes:
        if arith.is_const(axis.binding, 0) and analyzer.equal(axis.extent, 1):
            continue  # a loop of one iteration was simplified away
        loop = own.pop(axis.binding.name, None) if isinstance(axis.binding, arith.Var) else None
        if loop is None or not analyzer.equal(loop.start, 0):
            return False
        if not analyzer.equal(loop.stop, axis.extent):
            return False
    return all(analyzer.equal(x.extent, 1) for x in own.values())


def _rebuild_producer(kernel: Kernel, block: Block, new: Buffer, layout: InvertedMap) -> Kernel:
    """The block over the new layout, its value guarded in the padding."""
    store = block.body
    assert isinstance(store, ir.Store)
    names = FreshBlockNames(kernel)
    axes = names.axes(layout.shape)
    outs = dict(zip(layout.point, points(axes)))
    inverse = [arith.substitute(e, outs) for e in layout.inverse]
    env = {i.name: e for i, e in zip(store.indices, inverse) if isinstance(i, arith.Var)}
    analyzer = Analyzer(kernel, [ir.serial(a.var, a.extent, ir.Seq(())) for a in axes])
    env = {name: analyzer.simplify(e) for name, e in env.items()}
    sizes = {a.var: a.extent for a in block.axes}
    terms = [
        guards.less(e, sizes[n]) for n, e in env.items() if not analyzer.at_most(e + 1, sizes[n])
    ]
    value = zero_where_false(visit.substitute(store.value, env), guards.conjunction(terms))
    made = ir.replace(block, axes=axes, body=ir.Store(new, points(axes), value))
    here = find_block(kernel, block.uid)
    nest = tree.own_nest(kernel.body, here)
    above = [x for x in tree.loops_above(kernel.body, here) if tree.find(nest, x.uid) is None]
    return put(kernel, nest, rebuild_nest(kernel, made, {}, Analyzer(kernel, above)))


def zero_where_false(value: Expr, mask: Expr | None) -> Expr:
    """The value where the mask is true; zero, without any memory access, elsewhere."""
    if mask is None:
        return value
    zero = ir.value_of(0, value.dtype)
    if isinstance(value, ir.Load) and value.mask is None:
        return ir.replace(value, mask=mask, other=zero)
    return ir.Select(mask, guarded_value(value, mask), zero)


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
