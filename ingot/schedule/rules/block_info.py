"""Queries of the rules about a kernel's blocks: axes, loads, own loops, expression sizes.

A `BlockInfo` is a block with its handle. It is a snapshot: a schedule step may change the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ingot.arith import expr as arith
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplify
from ingot.dtypes import DType
from ingot.loops import ir, visit
from ingot.loops.dependences import top_blocks
from ingot.loops.ir import Axis, AxisKind, Block, Expr, Load
from ingot.schedule import tree
from ingot.schedule.handles import BlockRef, LoopRef
from ingot.schedule.schedule import Schedule


@dataclass(frozen=True)
class BlockInfo:
    """A block and its handle."""

    ref: BlockRef
    block: Block

    @property
    def spatial(self) -> list[Axis]:
        return [a for a in self.block.axes if a.kind is AxisKind.SPATIAL]

    @property
    def reduced(self) -> list[Axis]:
        return [a for a in self.block.axes if a.kind is not AxisKind.SPATIAL]

    @property
    def is_elementwise(self) -> bool:
        """One plain store over spatial axes: element-wise, broadcast, gather or data movement."""
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
        """Loads of buffers that the block does not write."""
        mine = self.outputs
        return [x for x in visit.loads(self.block.body) if x.buffer.name not in mine]

    @property
    def dtype(self):
        """The element type that it stores, which determines the vector width."""
        return next(iter(visit.stores(self.block.body))).buffer.dtype


def block_infos(sch: Schedule) -> list[BlockInfo]:
    blocks = {block.uid: block for block in top_blocks(sch.kernel.body)}
    return [BlockInfo(ref, blocks[ref.uid]) for ref in sch.blocks()]


def block_info_of(sch: Schedule, ref: BlockRef) -> BlockInfo:
    return BlockInfo(ref, sch.at_block(ref))


def accesses(block: Block) -> list[ir.Load | ir.Store]:
    return [*visit.loads(block.body), *visit.stores(block.body)]


def own_loops(sch: Schedule, ref: BlockRef) -> list[LoopRef]:
    """The loops of the block's own nest, outermost first."""
    top = tree.own_nest(sch.kernel.body, sch.at_block(ref))
    inside = tree.uids(top)
    return [loop for loop in sch.loops(ref) if loop.uid in inside]


def top_nests(sch: Schedule) -> list[BlockInfo]:
    """Blocks alone in a non-empty top-level nest whose loops are all still serial."""
    found = []
    for info in block_infos(sch):
        above = tree.loops_above(sch.kernel.body, info.block)
        alone = len(own_loops(sch, info.ref)) == len(above)
        is_serial = all(x.kind is ir.LoopKind.SERIAL for x in above)
        if alone and is_serial and elements(sch, info) != 0:
            found.append(info)
    return found


def intermediates(sch: Schedule) -> set[str]:
    return {s.buffer.name for s in visit.walk_stmts(sch.kernel.body) if isinstance(s, ir.Alloc)}


def extent(sch: Schedule, loop: LoopRef) -> int | None:
    return arith.as_int(sch.at_loop(loop).extent)


def likely_extent(sch: Schedule, loop: LoopRef) -> int | None:
    """The extent, or the likely one of dynamic sizes; None where nothing is known of one."""
    likely = {size.name: size.likely for size in sch.kernel.sizes if size.likely is not None}
    return arith.assumed(sch.at_loop(loop).extent, likely)


def loop_of(sch: Schedule, info: BlockInfo, axis: Axis) -> LoopRef | None:
    """The loop that the axis is bound to, if it is bound to one variable."""
    loops = {loop.name: loop for loop in sch.loops(info.ref)}
    # a step since the snapshot may have renamed loops, or simplified a binding to 0
    for block in (sch.at_block(info.ref), info.block):
        binding = next(a.binding for a in block.axes if a.var == axis.var)
        if isinstance(binding, arith.Var) and binding.name in loops:
            return loops[binding.name]
    return None


def index_vars(e: arith.Expr) -> frozenset[str]:
    """Variables of an index, including those inside loaded values."""
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
    """An index over the block's axes, simplified: axes of extent 1 drop out."""
    env = {a.var: _range(a.extent) for a in block.axes}
    return simplify(e, env)


def _range(size: arith.Expr) -> Interval:
    number = arith.as_int(size)
    return Interval(0, None if number is None else number - 1)


def reads_at_axes(info: BlockInfo) -> bool:
    """Is every index of its loads one of its axes or a constant?"""
    indices = [plain_index(info.block, i) for x in info.loads for i in x.indices]
    return all(isinstance(i, arith.Var | arith.Const) for i in indices)


def widest_type(info: BlockInfo) -> DType:
    """The widest element type that is computed on; indices and conditions do not count."""
    values = [e for s in visit.stores(info.block.body) for e in visit.walk_exprs(s.value)]
    types = [e.dtype for e in values if not isinstance(e, ir.Index | ir.Lit | ir.Compare)]
    return max([info.dtype, *types], key=lambda t: t.bits)


def node_count(value: Expr) -> int:
    """Nodes of the expression tree, shared subtrees counted at each use."""
    return _count(value)


@lru_cache(maxsize=4096)
def _count(value: Expr) -> int:
    return sum(1 for _ in visit.walk_exprs(value))


def math_count(value: Expr) -> int:
    """Math calls (exp, erf, …) in a value."""
    return sum(isinstance(e, ir.Math) for e in visit.walk_exprs(value))


def math_ops(info: BlockInfo) -> int:
    """Math calls (exp, erf, …) per instance of the block."""
    return sum(math_count(s.value) for s in visit.stores(info.block.body))


def elements(sch: Schedule, info: BlockInfo) -> int | None:
    """Instances of the block; None if a dimension is dynamic."""
    return arith.as_int(arith.product([a.extent for a in info.block.axes]))
