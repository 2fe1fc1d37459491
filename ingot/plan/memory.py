"""Static memory planning: constants go to the blob, temporaries share arenas by lifetime.

In: a legal program. Out: the same with arenas, an allocation for every constant and temporary, and
a Reserve after each Bind of a symbol that sizes depend on. Sizes known from the inputs' shapes use
one arena (`main`, reserved by the host); each data-dependent dimension starts an arena of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.arith.simplify import simplify
from ingot.plan.lifetimes import Lifetime, lifetimes
from ingot.program import ir
from ingot.program.tables import CONSTANTS, walk
from ingot.support.abi import ALIGNMENT

MAIN = "main"


def plan_memory(program: ir.Program) -> ir.Program:
    """Allocate every constant and temporary, and size the arenas."""
    env = {s.name: Interval(s.low, s.high) for s in program.symbols}
    allocations = _constant_allocations(program)
    spans = lifetimes(program)
    arenas = []
    for name, members in _members(program).items():
        if not members and name != MAIN:
            continue
        found, size = assign_offsets([(b.name, b.size_bytes, spans[b.name]) for b in members], env)
        allocations.update({n: ir.Allocation(name, offset) for n, offset in found.items()})
        arenas.append(ir.Arena(name, size))
    buffers = tuple(ir.replace(b, allocation=allocations.get(b.name)) for b in program.buffers)
    body = _reserve(program.body, {a.name: a for a in arenas})
    return ir.replace(program, buffers=buffers, arenas=tuple(arenas), body=body)


def _constant_allocations(program: ir.Program) -> dict[str, ir.Allocation]:
    allocations, offset = {}, 0
    for buffer in program.buffers:
        if buffer.storage is ir.Storage.CONSTANT:
            allocations[buffer.name] = ir.Allocation(CONSTANTS, arith.Const(offset))
            size = arith.as_int(buffer.size_bytes)
            assert size is not None, f"constant {buffer.name} has a dynamic size"
            offset += -(-size // ALIGNMENT) * ALIGNMENT
    return allocations


def arena_after(symbol: str) -> str:
    return f"after {symbol}"


def _members(program: ir.Program) -> dict[str, list[ir.Buffer]]:
    """The temporaries of each arena: one arena for sizes known from the inputs, one for each
    data-dependent symbol, which holds those whose size depends on no symbol bound after it."""
    nodes = (s.name for s in program.symbols if s.source == "node")
    members: dict[str, list[ir.Buffer]] = {MAIN: [], **{arena_after(n): [] for n in nodes}}
    binds = [s.symbol for s in walk(program.body) if isinstance(s, ir.Bind)]
    order = {name: i for i, name in enumerate(dict.fromkeys(binds))}
    for b in program.buffers:
        if b.storage is ir.Storage.TEMP:
            bound = [n for d in b.shape for n in arith.free_vars(d) if n in order]
            last = max(bound, key=order.__getitem__, default=None)
            members[MAIN if last is None else arena_after(last)].append(b)
    return members


def _reserve(s: ir.Stmt, arenas: dict[str, ir.Arena]) -> ir.Stmt:
    """bind n  →  bind n; reserve the arena of n"""
    match s:
        case ir.Seq(stmts=stmts):
            return ir.seq(*(_reserve(x, arenas) for x in stmts))
        case ir.If(then=then, orelse=orelse) | ir.IfSize(then=then, orelse=orelse):
            return ir.replace(s, then=_reserve(then, arenas), orelse=_reserve(orelse, arenas))
        case ir.Loop(body=body):
            return ir.replace(s, body=_reserve(body, arenas))
        case ir.Bind(symbol=symbol) if arena_after(symbol) in arenas:
            arena = arenas[arena_after(symbol)]
            return ir.seq(s, ir.Reserve(arena.name, arena.size_bytes))
    return s


# --- offsets ------------------------------------------------------------------------------------


@dataclass
class _Slot:
    """A range of an arena with dynamic size, shared by buffers of disjoint lifetimes."""

    size: arith.Expr
    last: int  # position at which the last of its lifetimes ends


Request = tuple[str, arith.Expr, Lifetime]  # name, size in bytes, lifetime


def assign_offsets(
    requests: list[Request], env: dict[str, Interval]
) -> tuple[dict[str, arith.Expr], arith.Expr]:
    """Offsets and the arena's size. Static sizes are packed; dynamic ones share slots."""
    static = [(n, size, span) for n, size, span in requests if arith.as_int(size) is not None]
    dynamic = [r for r in requests if arith.as_int(r[1]) is None]
    offsets, total = _pack(static)
    base: arith.Expr = arith.Const(total)
    for slot, names in _slots(dynamic, env):
        for name in names:
            offsets[name] = base
        base = simplify(base + slot.size, env)
    return offsets, base


MAX_REPAIRS = 60  # reorderings tried for each initial order; heuristic
GOOD_ENOUGH = 1.01  # arena size over the largest live set at which the search stops; heuristic
POSITIONS = 64  # positions of a block: buffers of other blocks are not looked at; heuristic
PACK_STEPS = 4_000_000  # limit of all tries, in pairs of buffers: about a second


def _pack(requests: list[Request]) -> tuple[dict[str, arith.Expr], int]:
    """First fit: each buffer gets the lowest offset that is free during its lifetime. Orders are
    tried from largest first and from longest-lived first. A repair moves a buffer at the top of
    the arena before the first one whose lifetime overlaps; repairs stop when the arena is hardly
    larger than the largest live set, which is a lower bound."""
    least = largest_live_bytes(requests)
    by_size = sorted(requests, key=lambda r: (-_aligned(r[1]), r[2].first, r[0]))
    by_life = sorted(by_size, key=lambda r: r[2].first - r[2].last)
    best, best_total = _first_fit(by_size)
    tries = min(MAX_REPAIRS, PACK_STEPS // max(1, len(requests)) ** 2)
    for order in (by_size, by_life):
        for _ in range(tries):
            if best_total <= least * GOOD_ENOUGH:
                break
            offsets, total = _first_fit(order)
            if total < best_total:
                best, best_total = offsets, total
            order = _repaired(order, offsets, total)
    return {name: arith.Const(offset) for name, offset in best.items()}, best_total


def _first_fit(order: list[Request]) -> tuple[dict[str, int], int]:
    placed: dict[int, list[tuple[int, int, Lifetime]]] = {}  # by blocks of positions they live in
    offsets: dict[str, int] = {}
    total = 0
    for name, size, span in order:
        need, offset = _aligned(size), 0
        blocks = range(span.first // POSITIONS, span.last // POSITIONS + 1)
        near = (x for block in blocks for x in placed.get(block, ()))
        for start, stop in sorted({(a, b) for a, b, other in near if other.overlaps(span)}):
            if start >= offset + need:
                break
            offset = max(offset, stop)
        for block in blocks:
            placed.setdefault(block, []).append((offset, offset + need, span))
        offsets[name] = offset
        total = max(total, offset + need)
    return offsets, total


def _repaired(order: list[Request], offsets: dict[str, int], total: int) -> list[Request]:
    """The order with a buffer at the top moved before the first whose lifetime overlaps."""
    at = next(i for i, r in enumerate(order) if offsets[r[0]] + _aligned(r[1]) == total)
    span = order[at][2]
    first = next(i for i, r in enumerate(order) if r[2].overlaps(span))
    return [*order[:first], order[at], *order[first:at], *order[at + 1 :]]


def largest_live_bytes(requests: list[Request]) -> int:
    """The most bytes of static-size buffers live at once: a lower bound of the arena's size."""
    changes: dict[int, int] = {}
    for _, size, span in requests:
        changes[span.first] = changes.get(span.first, 0) + _aligned(size)
        changes[span.last + 1] = changes.get(span.last + 1, 0) - _aligned(size)
    alive = most = 0
    for position in sorted(changes):
        alive += changes[position]
        most = max(most, alive)
    return most


def _aligned(size: arith.Expr) -> int:
    number = arith.as_int(size)
    assert number is not None
    return max(1, -(-number // ALIGNMENT)) * ALIGNMENT


def _slots(requests: list[Request], env: dict[str, Interval]) -> list[tuple[_Slot, list[str]]]:
    """Buffers of dynamic size share a slot when their lifetimes are disjoint and it is provably
    large enough; so no comparison of sizes is left to run time."""
    slots: list[tuple[_Slot, list[str]]] = []
    for name, size, span in sorted(requests, key=lambda r: (r[2].first, r[0])):
        need = _rounded_up(size, env)
        for slot, names in slots:
            free = slot.last < span.first  # the requests come by their first position
            if free and (need == slot.size or _fits(size, need, slot.size, env)):
                slot.last = span.last
                names.append(name)
                break
        else:
            slots.append((_Slot(need, span.last), [name]))
    return slots


def _fits(size: arith.Expr, need: arith.Expr, room: arith.Expr, env: dict[str, Interval]) -> bool:
    """Both must be proved: the verifier checks the size before rounding."""
    return prove("le", size, room, env) and prove("le", need, room, env)


def _rounded_up(size: arith.Expr, env: dict[str, Interval]) -> arith.Expr:
    """The size rounded up to the alignment, in a form that the verifier can prove: no less than the
    size, a multiple of the alignment, and zero for a negative size."""
    units = arith.ceildiv(size, ALIGNMENT)
    if not prove("le", size, units * ALIGNMENT, env):
        units = size // ALIGNMENT + 1
    if not prove("ge", units, 0, env):
        units = arith.maximum(units, 0)
    return simplify(units * ALIGNMENT, env)
