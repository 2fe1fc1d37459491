"""reorder: perfectly nested loops in another order.

    for i: for j: for k: B   →   reorder(k, i)   →   for k: for j: for i: B

Legal when the loops are perfectly nested, their bounds do not use each other's variables, and the
blocks allow it: reduce axes may be reordered, ordered axes keep their order, opaque blocks never
move; loops around a reduction must each change its instance, and loops that feed spatial and reduce
axes at once keep their order.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.loops import dependences
from ingot.loops.ir import AxisKind, Block, For, Kernel
from ingot.schedule import checks, tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.itermap import IterMap
from ingot.schedule.primitives.base import Result, nest, put, raise_if


def reorder(kernel: Kernel, *loops: For) -> Result:
    what = f"reorder({', '.join(x.var for x in loops)})"
    if len(loops) < 2:
        return kernel, []
    if len({x.uid for x in loops}) < len(loops):
        raise_if(kernel, loops[0], what, Problem("a loop is named twice", "name each loop once"))
    chain = _chain(kernel, loops, what)
    wanted = iter(loops)
    moved = {x.uid for x in loops}
    after = [next(wanted) if x.uid in moved else x for x in chain]
    for loop in loops:
        raise_if(kernel, loop, what, checks.expect_serial(loop))
    raise_if(kernel, chain[0], what, _bounds_depend(chain, after))
    for block in dependences.top_blocks(chain[-1].body):
        raise_if(kernel, block, what, _block_objects(kernel, block, chain, after))
    if len(list(dependences.top_blocks(chain[-1].body))) > 1:
        for loop in _out_of_place(chain, after):
            raise_if(kernel, loop, what, checks.independent(kernel, loop, private=True))
    return put(kernel, chain[0], nest(after, chain[-1].body)), []


def _chain(kernel: Kernel, loops: tuple[For, ...], what: str) -> list[For]:
    """The loops from the outermost to the innermost of those named."""
    ordered = sorted(loops, key=lambda x: len(tree.path_to(kernel.body, x)))
    chain = tree.chain(ordered[0], ordered[-1]) or []
    if not {x.uid for x in loops} <= {x.uid for x in chain}:
        names = " … ".join(x.var for x in ordered)
        why = f"{names} are not perfectly nested"
        hint = "reorder only perfectly nested loops"
        raise_if(kernel, ordered[-1], what, Problem(why, hint))
    return chain


def _bounds_depend(chain: list[For], after: list[For]) -> Problem | None:
    """A loop's bounds may use only the loops outside it."""
    for position, loop in enumerate(after):
        inside = {x.var for x in after[position:]}
        used = (arith.free_vars(loop.start) | arith.free_vars(loop.stop)) & inside
        if used:
            why = f"the bounds of {loop.var} use {', '.join(sorted(used))}"
            return Problem(why, f"keep {loop.var} inside that loop")
    return None


def _out_of_place(chain: list[For], after: list[For]) -> list[For]:
    return [x for x, y in zip(chain, after) if x.uid != y.uid]


def _block_objects(
    kernel: Kernel, block: Block, chain: list[For], after: list[For]
) -> Problem | None:
    kinds = {axis.kind for axis in block.axes}
    if AxisKind.OPAQUE in kinds:
        return Problem(f"block {block.name} is opaque", "leave its loops in order")
    if AxisKind.ORDERED in kinds and _in_order(block, chain) != _in_order(block, after):
        return Problem(
            f"an axis of block {block.name} is ordered: its instances must run in order",
            "move spatial loops only",
        )
    if _mixed(block, chain) != _mixed(block, after):
        return Problem(
            f"loops fused from spatial and reduce ones feed block {block.name}: in another order "
            "a reduction would not start at its first point",
            "reorder before fusing them",
        )
    repeated = _repeated(kernel, block, chain) if kinds != {AxisKind.SPATIAL} else []
    if repeated:
        return Problem(
            f"{repeated[0].var} may run block {block.name} again for the same output, which "
            "restarts its reduction",
            "move loops that index the block's output",
        )
    return None


def _in_order(block: Block, loops: list[For]) -> list[str]:
    """The loops that feed non-spatial axes, in their current order."""
    return [x.var for x in loops if _kinds(block, x) - {AxisKind.SPATIAL}]


def _mixed(block: Block, loops: list[For]) -> list[str]:
    """The loops that feed spatial and other axes at once, in their current order."""
    return [x.var for x in loops if len(_kinds(block, x)) > 1]


def _repeated(kernel: Kernel, block: Block, chain: list[For]) -> list[For]:
    """Loops of the chain that are not proved to change the block's instance."""
    around = tree.loops_above(kernel.body, block)
    first = next(n for n, x in enumerate(around) if x is chain[0])
    maps = IterMap(around[first:], Analyzer(kernel, around))
    spatial = [axis for axis in block.axes if axis.kind is AxisKind.SPATIAL]
    known = maps.determined([a.binding for a in spatial], [a.extent for a in spatial])
    return [x for x in chain if not _kinds(block, x) - {AxisKind.SPATIAL} and x.var not in known]


def _kinds(block: Block, loop: For) -> set[AxisKind]:
    return {a.kind for a in block.axes if loop.var in arith.free_vars(a.binding)}
