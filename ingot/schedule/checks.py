"""Legality checks that several primitives share. In: a kernel and nodes. Out: None, or a `Problem`.

A check that cannot prove legality reports why. `independent` is the central one: does the loop
carry no dependence, so that its iterations may run in any order or in parallel?
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, For, Kernel, Stmt
from ingot.schedule import access, guards, tree
from ingot.schedule.access import BlockAccess
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.itermap import IterMap

# Statements that may stand between loops and blocks: the schedule may change their order.
STRUCTURE = (For, ir.Seq, ir.Alloc, Block, ir.Prefetch)


@dataclass(frozen=True)
class Problem:
    """Why a step is illegal, and what to do instead."""

    why: str
    hint: str


def unknown_stmt(s: Stmt) -> Stmt | None:
    """The first statement outside blocks that is not in STRUCTURE; nothing is known about it."""
    todo = [s]
    while todo:
        s = todo.pop()
        if isinstance(s, Block):
            continue
        if not isinstance(s, STRUCTURE):
            return s
        todo.extend(reversed(visit.sub_stmts(s)))
    return None


def independent(kernel: Kernel, loop: For, private: bool) -> Problem | None:
    """Why the iterations of `loop` may not run in parallel; None if they are proved independent.

    `private` allows intermediates that every iteration fills for itself before reading them.
    """
    if Analyzer(kernel, tree.loops_above(kernel.body, loop)).at_most(loop.extent, 1):
        return None  # a single iteration carries no dependence
    unknown = unknown_stmt(loop.body)
    if unknown is not None:
        name = type(unknown).__name__
        return Problem(f"a {name} is outside any block", "schedule only loops around blocks")
    for block in dependences.top_blocks(loop.body):
        problem = _feeds_only_spatial(loop, block)
        if problem is not None:
            return problem
    local = {s.buffer.name for s in visit.walk_stmts(loop.body) if isinstance(s, ir.Alloc)}
    for name in sorted(visit.written(loop.body) - local):
        problem = _conflict(kernel, loop, name, private)
        if problem is not None:
            return problem
    return None


def _feeds_only_spatial(loop: For, block: Block) -> Problem | None:
    for axis in block.axes:
        if loop.var in arith.free_vars(axis.binding) and axis.kind is not AxisKind.SPATIAL:
            kind = axis.kind.value
            return Problem(
                f"{loop.var} feeds the {kind} axis {axis.var} of block {block.name}: it carries a "
                "dependence",
                "choose a loop that feeds spatial axes only",
            )
    return None


def _conflict(kernel: Kernel, loop: For, name: str, private: bool) -> Problem | None:
    """Does an iteration touch elements of `name` that another iteration writes? Asked in the order
    of what answers most often and most quickly."""
    problem = _conflict_by_index(kernel, loop, name, private)
    if problem is None or dependences.accesses_are_disjoint(loop, name, Analyzer(kernel).env):
        return None
    return None if _advances(kernel, loop, name) else problem


def _conflict_by_index(kernel: Kernel, loop: For, name: str, private: bool) -> Problem | None:
    writers = dependences.writers(loop.body, name)
    own = _own_indices(kernel, loop, writers, name)
    if own is None and not (private and all(_is_private(kernel, loop, w, name) for w in writers)):
        return Problem(
            f"block {writers[0].name} is not proved to write distinct elements of {name} in "
            f"different iterations of {loop.var}",
            "move the block out of the loop, or choose a loop that indexes its output",
        )
    for reader in dependences.readers(loop.body, name):
        reads = [a for a in access.reads(reader) if a.buffer.name == name]
        if own is not None and all(_at(a, own) == own for a in reads):
            continue  # only what this iteration writes, or what nothing here does
        if not _filled_before(kernel, loop, writers, reader, name):
            return Problem(
                f"block {reader.name} may read elements of {name} that another iteration of "
                f"{loop.var} writes",
                f"compute {name} under this loop with compute_at first",
            )
    return None


def _filled_before(
    kernel: Kernel, loop: For, writers: list[Block], reader: Block, name: str
) -> bool:
    """Has one of the writers, in the same iteration, written all that `reader` reads?"""
    if any(w.uid == reader.uid for w in writers) and reader.init is not None:
        return starts_reduction(kernel, reader, tree.loops_between(loop, reader)) is None
    others = [w for w in writers if w.uid != reader.uid]
    return any(covered(kernel, loop, w, reader, name) for w in others)


def _advances(kernel: Kernel, loop: For, name: str) -> bool:
    """Is what an iteration touches, in some dimension, beyond all that the one before touches?"""
    blocks = dependences.top_blocks(loop.body)
    mine = [a for b in blocks for a in access.of_block(b) if a.buffer.name == name]
    analyzer = Analyzer(kernel, [*tree.loops_above(kernel.body, loop), loop])
    inner = [s for s in visit.walk_stmts(loop.body) if isinstance(s, For)]
    for x in inner:
        analyzer.add(x)
    for extent in access.box(mine, inner, mine[0].buffer.rank, analyzer):
        step = None if extent is None else coefficient(extent.offset, loop.var, analyzer.env)
        if extent is not None and step is not None and analyzer.at_most(extent.count, step):
            return analyzer.at_most(1, step)
    return False


def _is_private(kernel: Kernel, loop: For, writer: Block, name: str) -> bool:
    """Is `name` an intermediate that only the loop uses, and that each iteration completes?"""
    if tree.allocated(kernel.body, name) is None:
        return False
    inside = {b.uid for b in dependences.top_blocks(loop.body)}
    users = dependences.readers(kernel.body, name) + dependences.writers(kernel.body, name)
    return all(block.uid in inside for block in users) and not outer_reduce_loops(
        kernel, loop, writer
    )


def outer_reduce_loops(kernel: Kernel, loop: For, block: Block) -> list[For]:
    """Loops at or outside `loop` that feed a reduce, ordered or opaque axis of `block`."""
    bindings = [axis.binding for axis in block.axes if axis.kind is not AxisKind.SPATIAL]
    fed = {name for e in bindings for name in arith.free_vars(e)}
    outside = [*tree.loops_above(kernel.body, loop), loop]
    return [x for x in outside if x.var in fed]


def starts_reduction(kernel: Kernel, block: Block, loops: list[For]) -> Problem | None:
    """Why `loops`, which feed the block's reduction, may not start at its first point."""
    if block.init is None:
        return Problem(f"block {block.name} has no init", "choose the block that has the init")
    starts = {x.var: x.start for x in loops}
    analyzer = Analyzer(kernel, tree.loops_above(kernel.body, block))
    for axis in block.axes:
        first = arith.substitute(axis.binding, starts)
        if axis.kind is AxisKind.REDUCE and not analyzer.equal(first, 0):
            why = f"these loops are not proved to start the reduction of block {block.name}"
            return Problem(why, "choose a loop around the whole reduction")
    return None


OwnIndices = dict[int, arith.Expr]  # dimension → index there


def _own_indices(kernel: Kernel, loop: For, blocks: list[Block], name: str) -> OwnIndices | None:
    """Indices that determine the loop's variable and are the same in all accesses of the blocks;
    None if there are none."""
    mine = [a for block in blocks for a in access.of_block(block) if a.buffer.name == name]
    inner = [x for block in blocks for x in tree.loops_between(loop, block)]
    inner += [x for a in mine for x in a.inner]
    analyzer = Analyzer(kernel, [*tree.loops_above(kernel.body, loop), loop, *inner])
    first = mine[0]
    part = {d: e for d, e in enumerate(first.indices) if loop.var in arith.free_vars(e)}
    if not part or any(_at(a, part) != part for a in mine):
        return None
    shape = [first.buffer.shape[d] for d in part]
    known = IterMap([loop, *inner], analyzer).determined(list(part.values()), shape)
    return part if loop.var in known else None


def _at(a: BlockAccess, part: OwnIndices) -> OwnIndices:
    return {d: a.indices[d] for d in part}


def covered(kernel: Kernel, loop: For, writer: Block, reader: Block, name: str) -> bool:
    """Has `writer`, in the same iteration, written all that `reader` reads of `name`?"""
    common = tree.common_loop(loop, writer, reader)
    assert common is not None
    position = tree.block_order(common)
    if position[writer.uid] > position[reader.uid]:
        return False
    known = Analyzer(kernel, tree.loops_above(kernel.body, writer))
    own = [t for t in guards.extra(writer, known) if t not in guards.over_loops(reader)]
    if not all(_begins_under(kernel, writer, t, reader, name) for t in own):
        return False
    if not always_writes(writer, name):
        return False
    above = tree.loops_above(kernel.body, writer) + tree.loops_between(common, reader)
    analyzer = Analyzer(kernel, above)
    writes = [a for a in access.writes(writer) if a.buffer.name == name]
    reads = [a for a in access.reads(reader) if a.buffer.name == name]
    inner = tree.loops_between(common, writer)
    maps = IterMap(inner, analyzer)
    if not all(maps.covers_exactly(e) for e in writes[0].indices) or not spans_box(
        writes[0].indices, inner
    ):
        return False
    shape = writes[0].buffer.shape
    had = access.box(writes[:1], inner, len(shape), analyzer)
    wanted = access.box(reads, tree.loops_between(common, reader), len(shape), analyzer)
    return all(_within(w, h, size, analyzer) for w, h, size in zip(wanted, had, shape))


def _begins_under(kernel: Kernel, writer: Block, term: ir.Expr, reader: Block, name: str) -> bool:
    """Does a guarded reduction still write all that `reader` reads? Its init runs at the first
    point: the guard holds there, or the reader has the same guard."""
    loops = tree.loops_above(kernel.body, writer)
    fed = {v for a in writer.axes if a.kind is AxisKind.REDUCE for v in arith.free_vars(a.binding)}
    inner = [x for x in loops if x.var in fed]
    if starts_reduction(kernel, writer, inner) is not None:
        return False
    analyzer = Analyzer(kernel, [x for x in loops if x.var not in fed])
    match visit.substitute(term, {x.var: x.start for x in inner}):
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=ir.Index(expr=b)):
            index = analyzer.simplify(a)
            if analyzer.at_most(index + 1, b):
                return True
            written = [x.indices for x in access.writes(writer) if x.buffer.name == name]
            read = [x.indices for x in access.reads(reader) if x.buffer.name == name]
            dims = [d for d, e in enumerate(written[0]) if analyzer.simplify(e) == index]
            bounds = guards.over_loops(reader)
            return any(
                all(guards.less(analyzer.simplify(r[d]), b) in bounds for r in read) for d in dims
            )
    return False


def always_writes(block: Block, name: str) -> bool:
    """Is the block's first store to `name` unconditional?"""
    s: Stmt = block.body
    while isinstance(s, ir.Let):
        s = s.body
    stores = [x for x in tree.body_stmts(s) if isinstance(x, ir.Store) and x.buffer.name == name]
    return bool(stores) and stores[0].mask is None


def spans_box(indices: tuple[arith.Expr, ...], inner: list[For]) -> bool:
    """Does no loop move two dimensions at once, so that a full box is covered, not a diagonal?"""
    names = {loop.var for loop in inner}
    used = [name for e in indices for name in arith.free_vars(e) & names]
    return len(used) == len(set(used))


def _within(
    want: access.DimRange | None, have: access.DimRange | None, size: arith.Expr, analyzer: Analyzer
) -> bool:
    """Is the range that is read, or the whole dimension, within the range that was written?"""
    if have is None:
        return False
    want = want or access.DimRange(arith.Const(0), size)
    starts = analyzer.at_most(have.offset, want.offset) or analyzer.at_most(have.offset, 0)
    last_have, last_want = have.offset + have.count, want.offset + want.count
    return starts and (analyzer.at_most(last_want, last_have) or analyzer.at_most(size, last_have))


def only_writer(kernel: Kernel, block: Block) -> Problem | None:
    """Is `block` the only writer of its output buffers, and are they intermediates?"""
    for name in sorted({a.buffer.name for a in access.writes(block)}):
        if tree.allocated(kernel.body, name) is None:
            return Problem(
                f"{name} is a parameter of the kernel, so every element must be written",
                "move its consumers or producers instead",
            )
        others = [b for b in dependences.writers(kernel.body, name) if b.uid != block.uid]
        if others:
            return Problem(f"{others[0].name} writes {name} too", "keep one writer for a buffer")
    if not access.writes(block):
        return Problem(f"block {block.name} writes nothing", "leave it where it is")
    return None


def inputs_unchanged(kernel: Kernel, block: Block) -> Problem | None:
    """Is nothing that `block` reads overwritten after it, so that it may run later?"""
    position = tree.block_order(kernel.body)
    own = {a.buffer.name for a in access.writes(block)}
    for name in sorted({a.buffer.name for a in access.reads(block)} - own):
        for writer in dependences.writers(kernel.body, name):
            if position[writer.uid] > position[block.uid]:
                return Problem(
                    f"block {writer.name} overwrites {name}, which {block.name} reads, after it",
                    "leave the block where it is",
                )
    return None


def expect_serial(loop: For) -> Problem | None:
    if loop.kind is ir.LoopKind.SERIAL:
        return None
    return Problem(
        f"{loop.var} is already {loop.kind.value}",
        "split, fuse and reorder loops before parallel, vectorize, unroll or bind",
    )
