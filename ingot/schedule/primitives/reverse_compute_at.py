"""reverse_compute_at: a consumer moves under a loop of its producer and takes the tile just made.

    for t: for r in range(8): Y[8t + r] = …        for t:
    for i: Z[i] = f(Y[i])                      →       for r in range(8): Y[8t + r] = …
                                                       for i in range(8): Z[8t + i] = f(Y[8t + i])

Legal when the consumer has spatial axes only and reads the producer at its own axes, one to one (in
any order; axes of its own run in full), the tile that one iteration makes is a filled box, complete
there (all reduce loops of the producer are inside), and everything else it reads is ready before.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences, ir, visit
from ingot.loops.ir import AxisKind, Block, Expr, For, Kernel
from ingot.schedule import access, checks, guards, tree
from ingot.schedule.access import Extent
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.itermap import IterMap
from ingot.schedule.primitives.base import Result, insist, put
from ingot.schedule.primitives.compute_at import loop_again, movable, remake
from ingot.schedule.primitives.recheck import recheck


def reverse_compute_at(kernel: Kernel, block: Block, loop: For) -> Result:
    what = f"reverse_compute_at({block.name}, {loop.var})"
    insist(kernel, block, what, movable(kernel, block, loop) or _not_a_map(block))
    insist(kernel, block, what, _too_early(kernel, block, loop))
    tile = Tile(kernel, block, loop, what)
    without = put(kernel, tree.own_nest(kernel.body, block), None)
    made = remake(without, block, tile.extents, tile.facts)
    here = loop_again(without, loop)
    body = ir.seq(here.body, also(made, tile.terms))
    new = put(without, here, ir.replace(here, body=body))
    recheck(kernel, new, what)
    return new, []


def _not_a_map(block: Block) -> Problem | None:
    bad = next((a for a in block.axes if a.kind is not AxisKind.SPATIAL), None)
    if bad is not None:
        why = f"its axis {bad.var} is {bad.kind.value}: it may need more than one tile"
        return Problem(why, "move its producer with compute_at instead")
    own = {a.buffer.name for a in access.writes(block)} & {
        a.buffer.name for a in access.reads(block)
    }
    return Problem(f"it reads its own output {min(own)}", "leave it where it is") if own else None


def _too_early(kernel: Kernel, block: Block, loop: For) -> Problem | None:
    """Is anything that must come before the block still to come after the loop?"""
    places = tree.order(kernel.body)
    inside = {b.uid for b in dependences.top_blocks(loop.body)}
    last = max(places[uid] for uid in inside)
    if last > places[block.uid]:
        return Problem(f"the block comes before {loop.var}", "compute_at moves producers")
    outputs = {a.buffer.name for a in access.writes(block)}
    inputs = {a.buffer.name for a in access.reads(block)}
    for other in dependences.top_blocks(kernel.body):
        if other.uid == block.uid:
            continue
        writes = {a.buffer.name for a in access.writes(other)}
        reads = {a.buffer.name for a in access.reads(other)}
        is_late = places[other.uid] > last or _shares_outer_loop(kernel, other, loop, inside)
        if other.uid in inside and reads & outputs:
            why = f"block {other.name} reads {min(reads & outputs)}, which would change under it"
            return Problem(why, "leave it where it is")
        clash = (writes & (outputs | inputs)) or (reads & outputs)
        if clash and is_late and places[other.uid] < places[block.uid]:
            why = f"block {other.name} touches {min(clash)} between {loop.var} and the block"
            return Problem(why, f"move {other.name} first")
        if writes & (outputs | inputs) and places[other.uid] > places[block.uid]:
            why = f"block {other.name} writes {min(writes & (outputs | inputs))} after the block"
            return Problem(why, "leave it where it is")
    return None


def _shares_outer_loop(kernel: Kernel, other: Block, loop: For, inside: set[int]) -> bool:
    """Does `other`, not under the loop, run again after it because a loop is around both?"""
    if other.uid in inside:
        return False
    around = {x.uid for x in tree.loops_above(kernel.body, loop)}
    return any(x.uid in around for x in tree.loops_above(kernel.body, other))


class Tile:
    """The part of the consumer's domain that belongs to one iteration of the loop."""

    def __init__(self, kernel: Kernel, block: Block, loop: For, what: str):
        self.kernel, self.block, self.loop = kernel, block, loop
        self.facts = Facts(kernel, [*tree.loops_above(kernel.body, loop), loop])
        self.extents: dict[str, Extent] = {}
        self.terms: list[Expr] = []
        producers = self._producers()
        if not producers:
            why = f"no block under {loop.var} makes what it reads"
            insist(kernel, loop, what, Problem(why, "choose a loop around its producer"))
        for producer in producers:
            insist(kernel, producer, what, self._add(producer))

    def _producers(self) -> list[Block]:
        wanted = {a.buffer.name for a in access.reads(self.block)}
        blocks = dependences.top_blocks(self.loop.body)
        return [b for b in blocks if wanted & {a.buffer.name for a in access.writes(b)}]

    def _add(self, producer: Block) -> Problem | None:
        late = checks.open_loops(self.kernel, self.loop, producer)
        if late:
            why = f"{late[0].var} feeds its reduction from outside, so it is not complete here"
            return Problem(why, f"choose a loop outside {late[0].var}, or reorder")
        inner = tree.loops_between(self.loop, producer)
        for x in inner:
            self.facts.add(x)
        problem = self._guards(producer, inner) or self._match(producer, inner)
        return problem or self._elsewhere(producer)

    def _elsewhere(self, producer: Block) -> Problem | None:
        """What other nests write of a buffer must be written here too: its consumer leaves with
        this producer."""
        inside = {b.uid for b in dependences.top_blocks(self.loop.body)}
        read = {a.buffer.name for a in access.reads(self.block)}
        for name in sorted(read & {a.buffer.name for a in access.writes(producer)}):
            others = [w for w in dependences.writers(self.kernel.body, name) if w.uid not in inside]
            if others and not self._makes_all(producer, name):
                why = f"block {others[0].name} makes a part of {name} elsewhere"
                return Problem(why, "leave it where it is, or partition its loops alike")
        return None

    def _makes_all(self, producer: Block, name: str) -> bool:
        """Do all runs of the loop together write every element of the buffer?"""
        loops = tree.loops_above(self.kernel.body, producer)
        facts = Facts(self.kernel, loops)
        store = next(a for a in access.writes(producer) if a.buffer.name == name)
        maps = IterMap(loops, facts)
        if not all(maps.covers_exactly(e) for e in store.indices):
            return False
        if guards.extra(producer, facts) or not checks.spans_apart(store.indices, loops):
            return False
        box = access.box([store], loops, store.buffer.rank, facts)
        return all(e is not None and self._is_whole(e, n) for e, n in zip(box, store.buffer.shape))

    def _guards(self, producer: Block, inner: list[For]) -> Problem | None:
        """Guards that decide the whole tile are the consumer's too; others must be its domain's."""
        varying = {x.var for x in inner}
        for term in guards.extra(producer, self.facts):
            if guards.mentions(term) & varying:
                why = f"a guard of block {producer.name} cuts the tile"
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
                return Problem(f"{producer.name} does not store plainly", "leave it where it is")
            problem = self._match_load(load, mine, inner)
            if problem is not None:
                return problem
        return None

    def _match_load(self, load: ir.Load, store: access.Access, inner: list[For]) -> Problem | None:
        if load.mask is not None:
            why = f"its load of {load.buffer.name} is guarded, so it also runs where there is none"
            return Problem(why, "leave it where it is")
        maps = IterMap(inner, self.facts)
        if not all(maps.covers_exactly(e) for e in store.indices):
            why = f"the part of {load.buffer.name} made in one iteration has gaps"
            return Problem(why, "choose an outer loop")
        if not checks.spans_apart(store.indices, inner):
            why = f"the part of {load.buffer.name} made in one iteration is not a box"
            return Problem(why, "choose an outer loop")
        axes = {axis.var: axis for axis in self.block.axes}
        box = access.box([store], inner, load.buffer.rank, self.facts)
        used: set[str] = set()
        for d, (index, extent, size) in enumerate(zip(load.indices, box, load.buffer.shape)):
            if self._is_complete(load.buffer.name, d):
                continue
            if extent is None:
                why = f"the part of {load.buffer.name} made in one iteration changes its size"
                return Problem(why, "choose an outer loop")
            if self._is_whole(extent, size):
                continue
            if not isinstance(index, arith.Var) or index.name not in axes or index.name in used:
                why = f"it reads {load.buffer.name} at {index}, which is not one of its axes"
                return Problem(why, "a loop around all of that dimension")
            used.add(index.name)
            if not self.facts.at_most(axes[index.name].extent, size):
                why = f"its axis {index.name} is longer than {load.buffer.name} there"
                return Problem(why, "leave it where it is")
            if self.extents.setdefault(index.name, extent) != extent:
                return Problem(f"two tiles differ along {index.name}", "leave it where it is")
        return None

    def _is_complete(self, name: str, d: int) -> bool:
        """Whatever is written in this dimension, by whomever, each iteration writes all of it."""
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

    def _is_whole(self, extent: Extent, size: arith.Expr) -> bool:
        """The iteration makes all of this dimension, so any index is ready."""
        end = extent.offset + extent.count
        return self.facts.at_most(extent.offset, 0) and self.facts.at_most(size, end)


def _loads(block: Block, names: set[str]) -> list[ir.Load]:
    return [x for x in visit.loads(block.body) if x.buffer.name in names]


def also(s: ir.Stmt, terms: list[Expr]) -> ir.Stmt:
    """The guards on the one block of a new nest."""
    if isinstance(s, Block):
        return guards.with_guards(s, terms)
    return visit.rebuild_stmt(s, lambda x: also(x, terms), lambda e: e, lambda i: i)
