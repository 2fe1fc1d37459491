"""What rules ask of a kernel's stages: the blocks, what they read, how their accesses run.

A stage is a block with its handle. Facts are derived anew from the IR each time: steps change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.dependences import top_blocks
from ingot.loops.ir import Axis, AxisKind, Block, Expr, Load
from ingot.schedule import tree
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.schedule import Schedule


@dataclass(frozen=True)
class Stage:
    ref: BlockRef
    block: Block

    @property
    def spatial(self) -> list[Axis]:
        return [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]

    @property
    def reduced(self) -> list[Axis]:
        return [a for a in self.block.axes if a.kind is not AxisKind.SPATIAL]

    @property
    def is_map(self) -> bool:
        """One plain store, spatial axes only."""
        store = self.block.body
        return not self.reduced and self.block.init is None and isinstance(store, ir.Store)

    @property
    def is_reduction(self) -> bool:
        kinds = {a.kind for a in self.reduced}
        return kinds == {AxisKind.REDUCE} and self.block.init is not None

    @property
    def outputs(self) -> set[str]:
        return {s.buffer.name for s in visit.stores(self.block)}

    @property
    def loads(self) -> list[Load]:
        """Loads of other buffers than its own."""
        mine = self.outputs
        return [x for x in visit.loads(self.block.body) if x.buffer.name not in mine]

    @property
    def dtype(self):
        """Of what it stores: the vector width follows it."""
        return next(iter(visit.stores(self.block.body))).buffer.dtype


def stages(sch: Schedule) -> list[Stage]:
    now = {block.uid: block for block in top_blocks(sch.kernel.body)}
    return [Stage(ref, now[ref.uid]) for ref in sch.blocks()]


def stage_of(sch: Schedule, ref: BlockRef) -> Stage:
    return Stage(ref, sch.at_block(ref))


def accesses(block: Block) -> list[ir.Load | ir.Store]:
    return [*visit.loads(block.body), *visit.stores(block.body)]


def own_loops(sch: Schedule, ref: BlockRef) -> list[LoopRef]:
    """The loops of the block's own nest, outermost first."""
    top = tree.own_nest(sch.kernel.body, sch.at_block(ref))
    inside = tree.uids(top)
    return [loop for loop in sch.loops(ref) if loop.uid in inside]


def top_nests(sch: Schedule) -> list[Stage]:
    """Stages that stand alone in a nest that does something and that no rule has marked yet."""
    found = []
    for stage in stages(sch):
        above = tree.loops_above(sch.kernel.body, stage.block)
        alone = len(own_loops(sch, stage.ref)) == len(above)
        is_fresh = all(x.kind is ir.LoopKind.SERIAL for x in above)
        if alone and is_fresh and elements(sch, stage) != 0:
            found.append(stage)
    return found


def intermediates(sch: Schedule) -> set[str]:
    return {s.buffer.name for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Alloc)}


def extent(sch: Schedule, loop: LoopRef) -> int | None:
    return arith.as_int(sch.at_loop(loop).extent)


def loop_of(sch: Schedule, stage: Stage, axis: Axis) -> LoopRef | None:
    """The loop that alone is the axis, if one is."""
    loops = {loop.name: loop for loop in sch.loops(stage.ref)}
    # a step since the stage was read may have renamed loops, or made the place in one of them 0
    for block in (sch.at_block(stage.ref), stage.block):
        binding = next(a.binding for a in block.axes if a.var == axis.var)
        if isinstance(binding, arith.Var) and binding.name in loops:
            return loops[binding.name]
    return None


def index_vars(e: arith.Expr) -> frozenset[str]:
    """Variables of an index, those inside loaded values included."""
    found = set(arith.free_vars(e))
    for value in visit.opaque_values(e):
        found |= value_vars(value)
    return frozenset(found)


def value_vars(value: Expr) -> frozenset[str]:
    """Variables anywhere in a value."""
    found: set[str] = set()

    def on_index(i: arith.Expr) -> arith.Expr:
        found.update(arith.free_vars(i))
        return i

    for e in visit.walk_exprs(value):
        visit.rebuild_expr(e, lambda x: x, on_index)
    return frozenset(found)


def plain_index(block: Block, e: arith.Expr) -> arith.Expr:
    """An index over the block's axes, simplified: an axis of one point is gone."""
    env = {a.var: _range(a.extent) for a in block.axes}
    return simplify(e, env)


def _range(size: arith.Expr) -> Interval:
    number = arith.as_int(size)
    return Interval(0, None if number is None else number - 1)


def reads_axes(stage: Stage) -> bool:
    """Is every index of what the stage reads just one of its axes?"""
    indices = [plain_index(stage.block, i) for x in stage.loads for i in x.indices]
    return all(isinstance(i, arith.Var | arith.Const) for i in indices)


def node_count(value: Expr) -> int:
    """Nodes of the tree a value prints as."""
    return _count(value)


@lru_cache(maxsize=4096)
def _count(value: Expr) -> int:
    children: list[Expr] = []

    def on_expr(e: Expr) -> Expr:
        children.append(e)
        return e

    def on_index(i: arith.Expr) -> arith.Expr:
        children.extend(visit.opaque_values(i))
        return i

    visit.rebuild_expr(value, on_expr, on_index)
    return 1 + sum(_count(c) for c in children)


def math_count(value: Expr) -> int:
    return sum(isinstance(e, ir.Math) for e in visit.walk_exprs(value))


def formula_count(stage: Stage) -> int:
    """Functions that the stage works out at each point."""
    return sum(math_count(s.value) for s in visit.stores(stage.block.body))


def elements(sch: Schedule, stage: Stage) -> int | None:
    """Instances of the block; None where a size is symbolic, which counts as many."""
    return arith.as_int(arith.product([a.extent for a in stage.block.axes]))
