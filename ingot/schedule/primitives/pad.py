"""pad: a block's domain is padded to multiples, so that splits of it have no tails.

    Y[i, j] += A_pack[i, k] * B_pack[k, j]  over 7 x 20 x 5
    →  pad(Y, 4, 8, 1)  →  the same over 8 x 24 x 5; A_pack, B_pack and Y are padded,
       the padding of A_pack and B_pack is zero, nothing reads the padding of Y

Legal for a block in its own plain nest that writes intermediates. An intermediate with one
element-wise producer (such as the stage of cache_read) is padded with the block, if it is indexed
by the axes directly. What is read of any other buffer for the padding does not matter, since
nothing reads the result: the index is clamped to the axis' last old point, or unchanged where the
buffer has room (a packed operand ends with a whole panel) or a mask keeps the load in bounds (the
copy of a zero-padded map). A mask that does not depend on a padded axis is as true for the clamped
index. `beyond="zero"` masks loads instead of clamping them, so that vectors of
them stay vectors.
A padded reduce axis must contribute nothing, so it needs padded operands: a product of zeros is
zero in a sum; otherwise the identity of the reduction is selected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import Axis, AxisKind, Block, Buffer, Expr, Kernel
from ingot.schedule import checks, guards, reducers, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, put, raise_if, with_body
from ingot.schedule.primitives.cache_stage import FreshBlockNames, find_block
from ingot.schedule.primitives.compute_at import rebuild_nest
from ingot.schedule.primitives.recheck import recheck
from ingot.schedule.primitives.transform_layout import is_plain_nest, zero_where_false
from ingot.support.stack import segmented

BEYOND = ("last", "zero")
PLAIN = (ir.Seq, ir.Let, ir.Store, ir.If)
Sizes = Mapping[str, arith.Expr]  # axis → its new extent


def pad(kernel: Kernel, block: Block, *multiples: int, beyond: str = "last") -> Result:
    option_text = "" if beyond == "last" else f', beyond="{beyond}"'
    what = f"pad({block.name}, {', '.join(map(str, multiples))}{option_text})"
    raise_if(kernel, block, what, _bad_options(block, multiples, beyond))
    sizes = _new_sizes(kernel, block, multiples)
    if not sizes:
        return kernel, []
    raise_if(kernel, block, what, checks.only_writer(kernel, block) or _scheduled(kernel, block))
    grown: dict[str, Buffer] = {}
    raise_if(kernel, block, what, _grow_outputs(block, sizes, grown))
    producers: dict[int, tuple[Block, Sizes]] = {}
    inside = _inside(block, sizes) if beyond == "zero" else {}
    block, clamped = _clamped(kernel, block, sizes, inside)
    for load in visit.loads(ir.seq(block.init, block.body)):
        if load not in clamped:
            raise_if(kernel, block, what, _grow_input(kernel, block, load, sizes, grown, producers))
    new = kernel
    for producer, more in producers.values():
        new = _rebuilt(new, producer, _zero_filled(producer, more), more)
    new = _rebuilt(new, block, _neutral_reduction(kernel, block, sizes, what), sizes)
    new = with_body(new, visit.replace_buffers(new.body, grown))
    recheck(kernel, new, what)
    return new, []


def _bad_options(block: Block, multiples: tuple[int, ...], beyond: str) -> Problem | None:
    if beyond not in BEYOND:
        return Problem(f"beyond={beyond!r} is not an option", " or ".join(BEYOND))
    if len(multiples) != len(block.axes):
        axes = ", ".join(a.var for a in block.axes)
        return Problem(f"it takes one multiple for each axis: {axes}", "1 leaves an axis as it is")
    if any(m < 1 for m in multiples):
        return Problem("a multiple must be at least 1", "1 leaves an axis as it is")
    return None


def _new_sizes(kernel: Kernel, block: Block, multiples: tuple[int, ...]) -> dict[str, arith.Expr]:
    analyzer = Analyzer(kernel)
    return {
        axis.var: analyzer.simplify(arith.ceildiv(axis.extent, arith.Const(m)) * m)
        for axis, m in zip(block.axes, multiples)
        if not analyzer.divides(arith.Const(m), axis.extent)
    }


def _scheduled(kernel: Kernel, block: Block) -> Problem | None:
    bad = next((a for a in block.axes if a.kind in (AxisKind.ORDERED, AxisKind.OPAQUE)), None)
    if bad is not None:
        return Problem(f"its axis {bad.var} is {bad.kind.value}", "leave it as it is")
    inside = next((s for s in visit.walk_stmts(block.body) if not isinstance(s, PLAIN)), None)
    if inside is not None:
        kind = type(inside).__name__.lower()
        return Problem(f"block {block.name} contains a {kind}", "pad before that")
    if not is_plain_nest(kernel, block):
        return Problem(f"the loops of {block.name} are scheduled already", "pad before that")
    return None


def _grow_outputs(block: Block, sizes: Sizes, grown: dict[str, Buffer]) -> Problem | None:
    for store in visit.stores(ir.seq(block.init, block.body)):
        problem = _grow(store.buffer, store.indices, sizes, block, grown)
        if problem is not None:
            return problem
    return None


def _grow(
    buffer: Buffer,
    indices: tuple[arith.Expr, ...],
    sizes: Sizes,
    block: Block,
    grown: dict[str, Buffer],
) -> Problem | None:
    """Grow the buffer by the padded axes that index it."""
    shape = list(grown.get(buffer.name, buffer).shape)
    extents = {a.var: a.extent for a in block.axes}
    for d, index in enumerate(indices):
        used = arith.free_vars(index) & sizes.keys()
        if not used:
            continue
        if not isinstance(index, arith.Var) or buffer.shape[d] != extents[index.name]:
            why = f"{buffer.name} is indexed by {index}, which is not the axis {min(used)} itself"
            return Problem(why, "reindex the block first")
        shape[d] = sizes[index.name]
    grown[buffer.name] = ir.replace(buffer, shape=tuple(shape))
    return None


def _clamped(
    kernel: Kernel, block: Block, sizes: Sizes, inside: Mapping[str, Expr]
) -> tuple[Block, set[ir.Load]]:
    """The block with loads of buffers that cannot grow kept in range: masked by the conditions
    `inside` of the axes, else clamped to an axis' last point; and the clamped loads. Those read
    what the last point read before, so they need no proof: a padded domain is empty where the old
    one is."""
    spatial = [a for a in block.axes if a.var in sizes and a.kind is AxisKind.SPATIAL]
    padded_reduce = sizes.keys() - {a.var for a in spatial}
    clamped: set[ir.Load] = set()
    last = {a.var: arith.minimum(arith.Var(a.var), a.extent - 1) for a in spatial}

    def on_expr(e: Expr) -> Expr:
        if not isinstance(e, ir.Load) or e.buffer.name in visit.written(block):
            return e
        if _may_grow(kernel, e, sizes) or _has_room(kernel, block, e, sizes):
            return e
        used = {v: i for v, i in last.items() if any(v in visit.index_vars(i) for i in e.indices)}
        is_gathered = any(visit.opaque_values(i) for i in e.indices)
        if inside and e.mask is not None and not is_gathered:
            free = [
                inside[v] for v in used if not _is_masked_in_range(kernel, block, e, sizes, {v})
            ]
            return ir.replace(e, mask=guards.conjunction([*guards.conjuncts(e.mask), *free]))
        is_masked = e.mask is not None and bool(guards.free_vars(e.mask) & sizes.keys())
        if not used or is_masked or is_gathered:
            return e
        if inside:
            return zero_where_false(e, guards.conjunction(inside[v] for v in used))
        made = ir.replace(e, indices=tuple(arith.substitute(i, used) for i in e.indices))
        if not padded_reduce & {v for i in e.indices for v in visit.index_vars(i)}:
            clamped.add(made)
        return made

    return ir.replace(block, body=visit.map_stmt(block.body, lambda s: s, on_expr)), clamped


def _inside(block: Block, sizes: Sizes) -> dict[str, Expr]:
    """For each padded spatial axis, the condition that a point is not padding."""
    spatial = [a for a in block.axes if a.var in sizes and a.kind is AxisKind.SPATIAL]
    return {a.var: guards.less(arith.Var(a.var), a.extent) for a in spatial}


def _may_grow(kernel: Kernel, load: ir.Load, sizes: Sizes) -> bool:
    """Is it an intermediate with one element-wise producer, indexed by the padded axes directly?"""
    used = [i for i in load.indices if visit.index_vars(i) & sizes.keys()]
    is_plain = all(isinstance(i, arith.Var) for i in used)
    return is_plain and _producer(kernel, load.buffer.name) is not None


def _has_room(kernel: Kernel, block: Block, load: ir.Load, sizes: Sizes) -> bool:
    """Is every index within the buffer for all points of the padded domain?"""
    if load.mask is not None or any(visit.opaque_values(i) for i in load.indices):
        return False
    analyzer = Analyzer(kernel)
    for axis in block.axes:
        extent = sizes.get(axis.var, axis.extent)
        analyzer.add(ir.For(axis.var, arith.Const(0), extent, ir.Seq(())))
    return all(
        analyzer.at_most(0, i) and analyzer.at_most(i + 1, n)
        for i, n in zip(load.indices, load.buffer.shape)
    )


def _grow_input(
    kernel: Kernel,
    block: Block,
    load: ir.Load,
    sizes: Sizes,
    grown: dict[str, Buffer],
    producers: dict[int, tuple[Block, Sizes]],
) -> Problem | None:
    name = load.buffer.name
    used = {v for i in load.indices for v in visit.index_vars(i)} & sizes.keys()
    if not used or name in visit.written(block) or _is_safe(kernel, block, load, sizes):
        return None
    if load.mask is not None or any(visit.opaque_values(i) for i in load.indices):
        return Problem(f"its load of {name} is guarded or gathered", "reindex the block first")
    producer = _producer(kernel, name)
    if producer is None:
        why = f"it reads {name} beyond its end, and {name} has no element-wise producer to pad"
        return Problem(why, f"cache_read(…, {name!r}) first")
    problem = _grow(load.buffer, load.indices, sizes, block, grown)
    if problem is not None:
        return problem
    store = producer.body
    assert isinstance(store, ir.Store)
    more = {
        own.name: sizes[mine.name]
        for own, mine in zip(store.indices, load.indices)
        if isinstance(own, arith.Var) and isinstance(mine, arith.Var) and mine.name in sizes
    }
    known = producers.get(producer.uid, (producer, {}))[1]
    if any(known.get(n, size) != size for n, size in more.items()):
        return Problem(f"it reads {name} at two axes that are padded differently", "pad one")
    producers[producer.uid] = producer, {**known, **more}
    return None


def _is_safe(kernel: Kernel, block: Block, load: ir.Load, sizes: Sizes) -> bool:
    """Is the load, over padded spatial axes, within its buffer, masked by their conditions, or
    masked by conditions of its own that keep it in its buffer, as a zero-padded copy's is?"""
    used = {v for i in load.indices for v in visit.index_vars(i)}
    if any(a.var in used & sizes.keys() for a in block.axes if a.kind is AxisKind.REDUCE):
        return False
    stops = [c for v, c in _inside(block, sizes).items() if v in used]
    if load.mask == guards.conjunction(stops) or _has_room(kernel, block, load, sizes):
        return True
    return load.mask is not None and _is_masked_in_range(kernel, block, load, sizes, sizes)


def _is_masked_in_range(
    kernel: Kernel, block: Block, load: ir.Load, sizes: Sizes, axes: Collection[str]
) -> bool:
    """Does the mask keep every index that depends on one of the `axes` within the buffer, over the
    padded domain?"""
    analyzer, terms = Analyzer(kernel), guards.conjuncts(load.mask)
    for axis in block.axes:
        extent = sizes.get(axis.var, axis.extent)
        analyzer.add(ir.For(axis.var, arith.Const(0), extent, ir.Seq(())))
    moved = [
        (index, size)
        for index, size in zip(load.indices, load.buffer.shape)
        if not visit.index_vars(index).isdisjoint(axes)
    ]
    return all(
        any(guards.keeps_below(t, i, n, analyzer) for t in terms)
        and (analyzer.at_most(0, i) or any(guards.keeps_nonnegative(t, i) for t in terms))
        for i, n in moved
    )


def _producer(kernel: Kernel, name: str) -> Block | None:
    """The only writer of an intermediate, if it is element-wise, in a plain nest."""
    writers = dependences.writers(kernel.body, name)
    if tree.allocated(kernel.body, name) is None or len(writers) != 1:
        return None
    block, store = writers[0], writers[0].body
    if not isinstance(store, ir.Store) or store.mask is not None or block.init is not None:
        return None
    axes = {a.var for a in block.axes if a.kind is AxisKind.SPATIAL}
    own = [i.name for i in store.indices if isinstance(i, arith.Var)]
    is_own = len(own) == len(store.indices) == len(block.axes) and set(own) == axes
    return block if is_own and is_plain_nest(kernel, block) else None


def _zero_filled(block: Block, sizes: Sizes) -> Block:
    """The producer, storing zero in the padding."""
    store = block.body
    assert isinstance(store, ir.Store)
    terms = [guards.less(arith.Var(a.var), a.extent) for a in block.axes if a.var in sizes]
    value = zero_where_false(store.value, guards.conjunction(terms))
    return ir.replace(block, body=ir.replace(store, value=value))


def _neutral_reduction(kernel: Kernel, block: Block, sizes: Sizes, what: str) -> Block:
    """The block, whose padded reduce points contribute nothing."""
    reduced = [a for a in block.axes if a.var in sizes and a.kind is AxisKind.REDUCE]
    if not reduced:
        return block
    found = reducers.recognise(block)
    if isinstance(found, str):
        raise_if(kernel, block, what, Problem(found, "pad its spatial axes only"))
    assert isinstance(found, reducers.Reducer)
    if found.ops == ("add",) and _is_zero_in_padding(found.terms[0], reduced):
        return block
    terms = [guards.less(arith.Var(a.var), a.extent) for a in reduced]
    mask = guards.conjunction(terms)
    assert mask is not None
    return ir.replace(block, body=found.masked(mask, FreshBlockNames(kernel).fresh))


@segmented
def _is_zero_in_padding(e: Expr, reduced: list[Axis]) -> bool:
    """Is the term a product of loads that are zero in the padding of each axis?"""
    match e:
        case ir.Binary(op="mul", a=a, b=b):
            return _is_zero_in_padding(a, reduced) and _is_zero_in_padding(b, reduced)
        case ir.Load(indices=indices):
            return all(arith.Var(axis.var) in indices for axis in reduced)
        case ir.Cast(a=a):
            return _is_zero_in_padding(a, reduced)
    return False


def _rebuilt(kernel: Kernel, old: Block, new: Block, sizes: Sizes) -> Kernel:
    """The block in a new nest over its padded domain."""
    axes = tuple(ir.replace(a, extent=sizes.get(a.var, a.extent)) for a in old.axes)
    here = find_block(kernel, old.uid)
    nest = tree.own_nest(kernel.body, here)
    above = [x for x in tree.loops_above(kernel.body, here) if tree.find(nest, x.uid) is None]
    without = put(kernel, nest, None)
    made = rebuild_nest(without, ir.replace(new, axes=axes), {}, Analyzer(kernel, above))
    return put(kernel, nest, made)
