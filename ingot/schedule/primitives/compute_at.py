"""compute_at: a producer moves under a loop of its consumers and computes what one iteration reads.

    for i: Y[i] = …                          for j:
    for j: for r in range(8): … Y[8j + r]  →     for i in range(8): Y[8j + i] = …
                                                 for r in range(8): … Y[8j + r]

Legal for an intermediate with one writer, when all its readers are under the loop and nothing
overwrites its inputs in between. Its nest is rebuilt: loops over the box that is read, reduce and
ordered axes over their whole extent; guards where the box may leave the domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, rename, visit
from ingot.loops.ir import AxisKind, Block, Expr, For, Kernel, LoopKind, Stmt
from ingot.schedule import access, checks, guards, tree
from ingot.schedule.access import DimRange
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.primitives.base import Result, analyzer_at, put, raise_if
from ingot.schedule.primitives.recheck import recheck


def compute_at(kernel: Kernel, block: Block, loop: For) -> Result:
    what = f"compute_at({block.name}, {loop.var})"
    raise_if(kernel, block, what, movable(kernel, block, loop) or checks.only_writer(kernel, block))
    raise_if(kernel, block, what, checks.inputs_unchanged(kernel, block))
    outputs = {a.buffer.name for a in access.writes(block)}
    raise_if(kernel, loop, what, _readers_elsewhere(kernel, block, loop, outputs))
    analyzer, extents = required_ranges(kernel, block, loop, outputs)
    without = put(kernel, tree.own_nest(kernel.body, block), None)
    made = rebuild_nest(without, block, extents, analyzer, _common_guards(block, loop, outputs))
    here = find_loop(without, loop)
    stmts = tree.body_stmts(here.body)
    first = next(n for n, s in enumerate(stmts) if visit.read(s) & outputs)
    body = ir.seq(*stmts[:first], made, *stmts[first:])
    new = put(without, here, ir.replace(here, body=body))
    recheck(kernel, new, what)
    return new, []


def movable(kernel: Kernel, block: Block, loop: For) -> Problem | None:
    """The conditions of compute_at and reverse_compute_at on the block they move."""
    if loop.kind is LoopKind.VECTOR:
        return Problem(f"{loop.var} is a vector loop", "move the block before vectorising")
    if any(isinstance(s, Block) and s.uid == block.uid for s in visit.walk_stmts(loop.body)):
        return Problem(f"it is under {loop.var} already", "choose a loop of another block")
    around = next((s for s in tree.path_to(kernel.body, loop) if isinstance(s, Block)), None)
    if around is not None:
        return Problem(f"{loop.var} is inside block {around.name}", "choose a loop around blocks")
    if any(axis.kind is AxisKind.OPAQUE for axis in block.axes):
        return Problem("the block is opaque", "leave it where it is")
    own = ir.replace(block, where=guards.conjunction(guards.over_axes(block, kernel)))
    kept = guards.over_loops(own)
    if any(t not in kept for t in guards.extra(block, analyzer_at(kernel, block))):
        return Problem(
            "a guard of its own nest would be lost", "move it before splitting its loops"
        )
    for name in {a.buffer.name for a in access.writes(block)}:
        alloc = tree.allocated(kernel.body, name)
        if alloc is not None and tree.find(alloc.body, loop.uid) is None:
            return Problem(f"{name} is not allocated around {loop.var}", "choose an inner loop")
    return None


def _readers_elsewhere(
    kernel: Kernel, block: Block, loop: For, outputs: set[str]
) -> Problem | None:
    inside = {b.uid for b in dependences.top_blocks(loop.body)}
    readers = [b for name in sorted(outputs) for b in dependences.readers(kernel.body, name)]
    others = [b for b in readers if b.uid != block.uid]
    for reader in others:
        if reader.uid not in inside:
            return Problem(
                f"block {reader.name}, which reads it, is not under {loop.var}",
                "choose a loop around all readers, or move those under it first",
            )
    return None if others else Problem("nothing under the loop reads it", "choose another loop")


def required_ranges(
    kernel: Kernel, block: Block, loop: For, outputs: set[str]
) -> tuple[Analyzer, dict[str, DimRange | None]]:
    """For every spatial axis of the block, the range that one iteration of the loop reads."""
    analyzer = Analyzer(kernel, [*tree.loops_above(kernel.body, loop), loop])
    found: dict[str, DimRange | None] = {}
    for name in sorted(outputs):
        reads: list[access.BlockAccess] = []
        loops: dict[int, For] = {}
        for reader in dependences.top_blocks(loop.body):
            mine = [a for a in access.reads(reader) if a.buffer.name == name]
            reads += mine
            loops |= {x.uid: x for x in tree.loops_between(loop, reader) if mine}
        for inner in loops.values():
            analyzer.add(inner)
        stores = [s for s in visit.stores(block.body) if s.buffer.name == name]
        if not reads or len({s.indices for s in stores}) > 1:
            continue  # not read, or several stores write different elements
        box = access.box(reads, list(loops.values()), stores[0].buffer.rank, analyzer)
        for index, extent in zip(stores[0].indices, box):
            _merge_range(found, index, extent)
    return analyzer, found


def _common_guards(block: Block, loop: For, outputs: set[str]) -> list[Expr]:
    """Guards that all readers have and that are uniform over one iteration: where they are false,
    nothing that the block writes is read."""
    inner = {s.var for s in visit.walk_stmts(loop.body) if isinstance(s, For)}
    blocks = dependences.top_blocks(loop.body)
    readers = [b for b in blocks if b.uid != block.uid and visit.read(b) & outputs]
    shared = [t for t in guards.over_loops(readers[0]) if not guards.free_vars(t) & inner]
    return [t for t in shared if all(t in guards.over_loops(r) for r in readers) and not _loads(t)]


def _loads(e: Expr) -> bool:
    return any(isinstance(x, ir.Load) for x in visit.walk_exprs(e))


def _merge_range(
    found: dict[str, DimRange | None], index: arith.Expr, extent: DimRange | None
) -> None:
    """Merge the range of an axis; two different ranges give the whole extent."""
    if not isinstance(index, arith.Var):
        return
    if found.setdefault(index.name, extent) != extent:
        found[index.name] = None


def rebuild_nest(
    kernel: Kernel,
    block: Block,
    extents: Mapping[str, DimRange | None],
    analyzer: Analyzer,
    common_guards: Sequence[Expr] = (),
) -> Stmt:
    """The block in a new nest of serial loops over the given ranges of its spatial axes.

    Where a range may leave the domain, a guard is added: one of `common_guards`, if it suffices,
    since it is invariant in the inner loops.
    """
    names = tree.FreshNames(kernel)
    names.taken |= set(rename.bound_names(block))  # the block is not in the kernel now
    axes, loops, terms = [], [], guards.over_axes(block, kernel)
    for axis in block.axes:
        part = _clipped(axis, extents.get(axis.var), analyzer)
        var = names.fresh(axis.var[1:] if axis.var[:1] == "v" and axis.var[1:] else axis.var)
        loop = ir.serial(var, part.count, block)
        analyzer.add(loop)
        binding = analyzer.simplify(part.offset + arith.Var(var))
        if not analyzer.at_most(binding + 1, axis.extent):
            enough = (
                t for t in common_guards if guards.implies_below(t, binding, axis.extent, analyzer)
            )
            terms.append(next(enough, guards.less(binding, axis.extent)))
        if not analyzer.at_most(0, binding):
            terms.append(guards.nonnegative(binding))
        loops.append(loop)
        axes.append(ir.replace(axis, binding=binding))
    body: Stmt = ir.replace(block, axes=tuple(axes), where=guards.conjunction(terms))
    for loop in reversed(loops):
        body = ir.replace(loop, body=body)
    return body


def _clipped(axis: ir.Axis, extent: DimRange | None, analyzer: Analyzer) -> DimRange:
    """The whole axis where no smaller range is known, or it is not spatial."""
    whole = DimRange(arith.Const(0), axis.extent)
    if extent is None or axis.kind is not AxisKind.SPATIAL:
        return whole
    is_larger = analyzer.at_most(axis.extent, extent.count)
    return whole if is_larger else extent


def find_loop(kernel: Kernel, loop: For) -> For:
    path = tree.find(kernel.body, loop.uid)
    assert path is not None and isinstance(path[-1], For)
    return path[-1]
