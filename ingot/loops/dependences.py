"""Dependence analysis: producers and consumers of blocks, and loop-carried dependences. In:
statements. Out: blocks, and the dependences that a loop carries, each with its reason. It is
conservative: it reports a dependence that it cannot rule out. Called by schedule's checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.simplify import simplifier
from ingot.arith.sums import Product
from ingot.loops import ir, regions, visit
from ingot.loops.ir import AxisKind, Block, Stmt
from ingot.loops.regions import Env, RegionAccess
from ingot.support.stack import segmented


def top_blocks(root: Stmt) -> list[Block]:
    """The outermost blocks of `root` in program order."""
    found, todo = [], [root]
    while todo:
        stmt = todo.pop()
        if isinstance(stmt, Block):
            found.append(stmt)
        else:
            todo.extend(reversed(visit.sub_stmts(stmt)))
    return found


def writers(root: Stmt, buffer: str) -> list[Block]:
    return [block for block in top_blocks(root) if buffer in visit.written(block)]


def readers(root: Stmt, buffer: str) -> list[Block]:
    return [block for block in top_blocks(root) if buffer in visit.read(block)]


def producers(root: Stmt, block: Block) -> list[Block]:
    """Blocks before `block` in program order that write something it reads."""
    before, _ = _around(root, block)
    read = visit.read(block)
    return [other for other in before if visit.written(other) & read]


def consumers(root: Stmt, block: Block) -> list[Block]:
    """Blocks after `block` in program order that read something it writes."""
    _, after = _around(root, block)
    written = visit.written(block)
    return [other for other in after if visit.read(other) & written]


def _around(root: Stmt, block: Block) -> tuple[list[Block], list[Block]]:
    blocks = top_blocks(root)
    position = next(n for n, other in enumerate(blocks) if other is block)
    return blocks[:position], blocks[position + 1 :]


# --- loop-carried dependences -------------------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    """A dependence between iterations of a loop; a declared reduction may be reassociated."""

    buffer: str
    reason: str
    is_reduction: bool = False


def carried(loop: ir.For, root: Stmt | None = None, env: Env | None = None) -> list[Carried]:
    """The dependences between iterations of `loop`; none if they are independent.

    A buffer of thread or register scope that is used only in this loop (of `root`) and is written
    before it is read is private to each iteration.
    """
    found = _declared(loop)
    by_buffer: dict[str, list[RegionAccess]] = {}
    for access in regions.accesses(loop.body):
        by_buffer.setdefault(access.buffer.name, []).append(access)
    for name, uses in by_buffer.items():
        if not any(access.writes for access in uses) or _is_private(uses, loop, root):
            continue
        if _differs(uses, loop, env or {}):
            continue
        if _is_reduction(uses, loop):
            found.append(Carried(name, f"{name} is reduced over {loop.var}", True))
        else:
            what = f"two iterations of {loop.var} may access the same element of {name}"
            found.append(Carried(name, what))
    return found


def accesses_are_disjoint(loop: ir.For, buffer: str, env: Env | None = None) -> bool:
    """Whether any two iterations of `loop` provably access different elements of the buffer."""
    uses = [access for access in regions.accesses(loop.body) if access.buffer.name == buffer]
    return not uses or _differs(uses, loop, env or {})


def may_reorder(loop: ir.For, root: Stmt | None = None, env: Env | None = None) -> str | None:
    """None if the iterations may run in any order or in parallel, reductions aside; else why."""
    blocking = [c for c in carried(loop, root, env) if not c.is_reduction]
    return blocking[0].reason if blocking else None


def _declared(loop: ir.For) -> list[Carried]:
    """Ordered and opaque axes that are bound to the loop."""
    found = []
    for block in top_blocks(loop.body):
        for axis in block.axes:
            ordered = axis.kind in (AxisKind.ORDERED, AxisKind.OPAQUE)
            if ordered and loop.var in visit.index_vars(axis.binding):
                reason = f"axis {axis.var} of block {block.name} is {axis.kind.value}"
                found.append(Carried(min(visit.written(block), default=""), reason))
    return found


def _is_private(uses: Sequence[RegionAccess], loop: ir.For, root: Stmt | None) -> bool:
    buffer = uses[0].buffer
    if root is None or buffer.scope not in (ir.THREAD, ir.REGISTER):
        return False
    inside = sum(access.buffer.name == buffer.name for access in uses)
    everywhere = sum(access.buffer.name == buffer.name for access in _all_accesses(root))
    return inside == everywhere and uses[0].writes and not uses[0].is_guarded


def _all_accesses(root: Stmt) -> list[RegionAccess]:
    """Accesses to every buffer, including those that `root` allocates."""
    return list(regions.accesses(_without_allocs(root)))


def _without_allocs(root: Stmt) -> Stmt:
    return visit.map_stmt(root, lambda s: s.body if isinstance(s, ir.Alloc) else s)


def _is_reduction(uses: Sequence[RegionAccess], loop: ir.For) -> bool:
    """All uses are by one block with a reduce axis bound to the loop."""
    block = uses[0].block
    if block is None or any(access.block is not block for access in uses):
        return False
    return any(
        axis.kind is AxisKind.REDUCE and loop.var in visit.index_vars(axis.binding)
        for axis in block.axes
    )


def _differs(uses: Sequence[RegionAccess], loop: ir.For, env: Env) -> bool:
    """Whether any two iterations provably access different elements.

    A dimension whose box moves with the loop by at least its own extent determines a digit of the
    loop variable, (var // d) % c. Together the digits must determine the variable.
    """
    digits: set[tuple[int, int | None]] = set()
    for d in range(uses[0].buffer.rank):
        spans = [regions.span_of(access, d, env) for access in uses]
        dim = regions.union_of(spans, env)
        digit = None if dim is None else _digit(dim, loop.var, env)
        if digit is not None:
            digits.add(digit)
    return _determines(1, digits)


def _digit(dim: regions.Dim, var: str, env: Env) -> tuple[int, int | None] | None:
    """(d, c) where the box is at (var // d) % c times a stride no less than its extent."""
    extent = arith.as_int(dim[1])
    if extent is None:
        return None
    terms = simplifier(env).normal(dim[0])
    moving = [(p, w) for p, w in terms.items() if any(var in arith.free_vars(a) for a in p)]
    if len(moving) != 1:
        return None
    product, weight = moving[0]
    if len(product) != 1 or not 0 < extent <= abs(weight):
        return None
    return _digit_of(product, var)


@segmented
def _digit_of(product: Product, var: str) -> tuple[int, int | None] | None:
    """A variable's digit as (divisor, modulus); a quotient has no modulus."""
    match product[0]:
        case arith.Var(name=name):
            return (1, None) if name == var else None
        case arith.FloorDiv(a=a, b=arith.Const(value=by)) if by > 0:
            inner = _digit_of((a,), var)
            if inner is None:
                return None
            divisor, modulus = inner
            if modulus is None:
                return divisor * by, None
            return (divisor * by, modulus // by) if modulus % by == 0 else None
        case arith.Mod(a=a, b=arith.Const(value=by)) if by > 0:
            inner = _digit_of((a,), var)
            return (inner[0], by) if inner is not None and inner[1] is None else None
    return None


@segmented
def _determines(divisor: int, digits: set[tuple[int, int | None]]) -> bool:
    """Whether the digits determine var // divisor."""
    if (divisor, None) in digits:
        return True
    return any(
        _determines(d * c, digits) for d, c in digits if d == divisor and c is not None and c > 1
    )
