"""reverse_compute_at: a consumer moves under a loop of its producer (epilogue fusion).

    for t: for r in range(8): Y[8t + r] = …        for t:
    for i: Z[i] = f(Y[i])                      →       for r in range(8): Y[8t + r] = …
                                                       for i in range(8): Z[8t + i] = f(Y[8t + i])

Legal when the consumer has spatial axes only and indexes the producer's output by its axes, one to
one (in any order; its other axes keep their full extent), the tile that one iteration computes is a
full box and complete there (all reduce loops of the producer are inside), and everything else that
the consumer reads is computed before.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Expr, For, Kernel
from ingot.schedule import access, checks, guards, tree
from ingot.schedule.access import DimRange
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.itermap import IterMap
from ingot.schedule.primitives.base import Result, put, raise_if
from ingot.schedule.primitives.compute_at import find_loop, movable, rebuild_nest
from ingot.schedule.primitives.recheck import recheck
from ingot.support.stack import segmented


def reverse_compute_at(kernel: Kernel, block: Block, loop: For) -> Result:
    what = f"reverse_compute_at({block.name}, {loop.var})"
    raise_if(kernel, block, what, movable(kernel, block, loop) or _not_spatial(block))
    raise_if(kernel, block, what, _order_violation(kernel, block, loop))
    tile = ConsumerTile(kernel, block, loop, what)
    without = put(kernel, tree.own_nest(kernel.body, block), None)
    made = rebuild_nest(without, block, tile.extents, tile.analyzer)
    here = find_loop(without, loop)
    body = ir.seq(here.body, guard_block(made, tile.terms))
    new = put(without, here, ir.replace(here, body=body))
    recheck(kernel, new, what)
    return new, []


def _not_spatial(block: Block) -> Problem | None:
    bad = next((a for a in block.axes if a.kind is not AxisKind.SPATIAL), None)
    if bad is not None:
        why = f"its axis {bad.var} is {bad.kind.value}: it may need more than one tile"
        return Problem(why, "move its producer with compute_at instead")
    own = {a.buffer.name for a in access.writes(block)} & {
        a.buffer.name for a in access.reads(block)
    }
    return Problem(f"it reads its own output {min(own)}", "leave it where it is") if own else None


def _order_violation(kernel: Kernel, block: Block, loop: For) -> Problem | None:
    """Is there a block that must run before this one but runs after the loop?"""
    position = tree.block_order(kernel.body)
    inside = {b.uid for b in dependences.top_blocks(loop.body)}
    last = max(position[uid] for uid in inside)
    if last > position[block.uid]:
        return Problem(f"the block comes before {loop.var}", "compute_at moves producers")
    outputs = {a.buffer.name for a in access.writes(block)}
    inputs = {a.buffer.name for a in access.reads(block)}
    for other in dependences.top_blocks(kernel.body):
        if other.uid == block.uid:
            continue
        writes = {a.buffer.name for a in access.writes(other)}
        reads = {a.buffer.name for a in access.reads(other)}
        is_late = position[other.uid] > last or _shares_outer_loop(kernel, other, loop, inside)
        if other.uid in inside and reads & outputs:
            why = f"block {other.name} reads {min(reads & outputs)}, which would change in between"
            return Problem(why, "leave it where it is")
        clash = (writes & (outputs | inputs)) or (reads & outputs)
        if clash and is_late and position[other.uid] < position[block.uid]:
            why = f"block {other.name} accesses {min(clash)} between {loop.var} and the block"
            return Problem(why, f"move {other.name} first")
        if writes & (outputs | inputs) and position[other.uid] > position[block.uid]:
            why = f"block {other.name} writes {min(writes & (outputs | inputs))} after the block"
            return Problem(why, "leave it where it is")
    return None


def _shares_outer_loop(kernel: Kernel, other: Block, loop: For, inside: set[int]) -> bool:
    """Does `other`, not under the loop, run again after it because a loop is around both?"""
    if other.uid in inside:
        return False
    around = {x.uid for x in tree.loops_above(kernel.body, loop)}
    return any(x.uid in around for x in tree.loops_above(kernel.body, other))


class ConsumerTile:
    """The part of the consumer's domain that one iteration of the producer's loop covers."""

    def __init__(self, kernel: Kernel, block: Block, loop: For, what: str):
        self.kernel, self.block, self.loop = kernel, block, loop
        self.analyzer = Analyzer(kernel, [*tree.loops_above(kernel.body, loop), loop])
        self.extents: dict[str, DimRange] = {}
        self.terms: list[Expr] = []
        producers = self._producers()
        if not producers:
            why = f"no block under {loop.var} produces what it reads"
            raise_if(kernel, loop, what, Problem(why, "choose a loop around its producer"))
        for producer in producers:
            raise_if(kernel, producer, what, self._add(producer))

    def _producers(self) -> list[Block]:
        wanted = {a.buffer.name for a in access.reads(self.block)}
        blocks = dependences.top_blocks(self.loop.body)
        return [b for b in blocks if wanted & {a.buffer.name for a in access.writes(b)}]

    def _add(self, producer: Block) -> Problem | None:
        late = checks.outer_reduce_loops(self.kernel, self.loop, producer)
        if late:
            why = f"{late[0].var} outside feeds its reduction, so its tile is not complete here"
            return Problem(why, f"choose a loop outside {late[0].var}, or reorder")
        inner = tree.loops_between(self.loop, producer)
        for x in inner:
            self.analyzer.add(x)
        problem = self._guards(producer, inner) or self._match(producer, inner)
        return problem or self._other_writers(producer)

    def _other_writers(self, producer: Block) -> Problem | None:
        """If other nests write a part of a buffer too, this producer must write all of it: the
        consumer moves to this producer."""
        inside = {b.uid for b in dependences.top_blocks(self.loop.body)}
        read = {a.buffer.name for a in access.reads(self.block)}
        for name in sorted(read & {a.buffer.name for a in access.writes(producer)}):
            others = [w for w in dependences.writers(self.kernel.body, name) if w.uid not in inside]
            if others and not self._makes_all(producer, name):
                why = f"block {others[0].name} in another nest writes a part of {name}"
                return Problem(why, "leave it where it is, or partition its loops in the same way")
        return None

    def _makes_all(self, producer: Block, name: str) -> bool:
        """Do all iterations of the loop together write every element of the buffer?"""
        loops = tree.loops_above(self.kernel.body, producer)
        analyzer = Analyzer(self.kernel, loops)
        store = next(a for a in access.writes(producer) if a.buffer.name == name)
        maps = IterMap(loops, analyzer)
        if not all(maps.covers_exactly(e) for e in store.indices):
            return False
        if guards.extra(producer, analyzer) or not checks.spans_box(store.indices, loops):
            return False
        box = access.box([store], loops, store.buffer.rank, analyzer)
        return all(e is not None and self._is_whole(e, n) for e, n in zip(box, store.buffer.shape))

    def _guards(self, producer: Block, inner: list[For]) -> Problem | None:
        """Guards that are uniform over the tile are copied to the consumer; others are illegal."""
        varying = {x.var for x in inner}
        for term in guards.extra(producer, self.analyzer):
            if guards.free_vars(term) & varying:
                why = f"a guard of block {producer.name} makes tiles partial"
                return Problem(why, "use factors that divide the extent")
            self.terms.append(term)
        return None

    def _match(self, producer: Block, inner: list[For]) -> Problem | None:
        made = access.writes(producer)
        for load in _loads(self.block, {a.buffer.name for a in made}):
            mine = next(a for a in made if a.buffer.name == load.buffer.name)
            stored = [s for s in visit.stores(producer.body) if s.buffer.name == load.buffer.name]
            if len({s.indices for s in stored}) > 1 or not checks.always_writes(
                producer, load.buffer.name
            ):
                return Problem(
                    f"{producer.name} does not store unconditionally at one index",
                    "leave it where it is",
                )
            problem = self._match_load(load, mine, inner)
            if problem is not None:
                return problem
        return None

    def _match_load(
        self, load: ir.Load, store: access.BlockAccess, inner: list[For]
    ) -> Problem | None:
        if load.mask is not None:
            why = f"its load of {load.buffer.name} is guarded, so it also runs beyond it"
            return Problem(why, "leave it where it is")
        maps = IterMap(inner, self.analyzer)
        if not all(maps.covers_exactly(e) for e in store.indices):
            why = f"the part of {load.buffer.name} written by one iteration has gaps"
            return Problem(why, "choose an outer loop")
        if not checks.spans_box(store.indices, inner):
            why = f"the part of {load.buffer.name} written by one iteration is not a box"
            return Problem(why, "choose an outer loop")
        axes = {axis.var: axis for axis in self.block.axes}
        box = access.box([store], inner, load.buffer.rank, self.analyzer)
        used: set[str] = set()
        for d, (index, extent, size) in enumerate(zip(load.indices, box, load.buffer.shape)):
            if self._is_complete(load.buffer.name, d):
                continue
            if extent is None:
                why = (
                    f"the part of {load.buffer.name} written by one iteration has no constant size"
                )
                return Problem(why, "choose an outer loop")
            if self._is_whole(extent, size):
                continue
            if not isinstance(index, arith.Var) or index.name not in axes or index.name in used:
                why = f"it reads {load.buffer.name} at {index}, which is not one of its axes"
                return Problem(why, "choose a loop around all of that dimension")
            used.add(index.name)
            if not self.analyzer.at_most(axes[index.name].extent, size):
                why = f"its axis {index.name} is longer than {load.buffer.name} there"
                return Problem(why, "leave it where it is")
            if self.extents.setdefault(index.name, extent) != extent:
                return Problem(f"two tiles differ along {index.name}", "leave it where it is")
        return None

    def _is_complete(self, name: str, d: int) -> bool:
        """Does each iteration write everything that any block writes in this dimension?"""
        inside = {b.uid for b in dependences.top_blocks(self.loop.body)}
        outer = {x.var for x in (*tree.loops_above(self.kernel.body, self.loop), self.loop)}
        for writer in dependences.writers(self.kernel.body, name):
            if writer.uid not in inside:
                return False
            moving = set(outer)
            for x in tree.loops_between(self.loop, writer):
                if (visit.index_vars(x.start) | visit.index_vars(x.stop)) & moving:
                    moving.add(x.var)
            stores = [a for a in access.writes(writer) if a.buffer.name == name]
            if any(visit.index_vars(a.indices[d]) & moving or a.inner for a in stores):
                return False
        return True

    def _is_whole(self, extent: DimRange, size: arith.Expr) -> bool:
        """Does one iteration write the whole dimension, so that any index may be read?"""
        end = extent.offset + extent.count
        return self.analyzer.at_most(extent.offset, 0) and self.analyzer.at_most(size, end)


def _loads(block: Block, names: set[str]) -> list[ir.Load]:
    return [x for x in visit.loads(block.body) if x.buffer.name in names]


@segmented
def guard_block(s: ir.Stmt, terms: list[Expr]) -> ir.Stmt:
    """Add guards to the only block of a new nest."""
    if isinstance(s, Block):
        return guards.with_guards(s, terms)
    return visit.rebuild_stmt(s, lambda x: guard_block(x, terms), lambda e: e, lambda i: i)
