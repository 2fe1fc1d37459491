"""Places for buffers: constants in the blob, temporaries in arenas by lifetime.

In: a legal program. Out: the same with arenas, a place for every constant and temporary, and a
Reserve after each Bind that new sizes depend on. One arena for what the inputs' sizes determine
(`main`, reserved by the host) and one for each place where data-dependent sizes become known.
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


def place_buffers(program: ir.Program) -> ir.Program:
    """Every constant and temporary gets a place; arenas get sizes."""
    env = {s.name: Interval(s.low, s.high) for s in program.symbols}
    places = _constant_places(program)
    spans = lifetimes(program)
    arenas = []
    for name in _arena_names(program):
        members = [
            b for b in program.buffers
            if b.storage is ir.Storage.TEMP and _home(b, program) == name
        ]  # fmt: skip
        if not members and name != MAIN:
            continue
        found, size = assign([(b.name, b.size_bytes, spans[b.name]) for b in members], env)
        places.update({n: ir.Place(name, offset) for n, offset in found.items()})
        arenas.append(ir.Arena(name, size))
    buffers = tuple(ir.replace(b, place=places.get(b.name)) for b in program.buffers)
    body = _reserve(program.body, {a.name: a for a in arenas})
    return ir.replace(program, buffers=buffers, arenas=tuple(arenas), body=body)


def _constant_places(program: ir.Program) -> dict[str, ir.Place]:
    places, offset = {}, 0
    for buffer in program.buffers:
        if buffer.storage is ir.Storage.CONSTANT:
            places[buffer.name] = ir.Place(CONSTANTS, arith.Const(offset))
            size = arith.as_int(buffer.size_bytes)
            assert size is not None, f"constant {buffer.name} has a symbolic size"
            offset += -(-size // ALIGNMENT) * ALIGNMENT
    return places


def arena_after(symbol: str) -> str:
    return f"after {symbol}"


def _arena_names(program: ir.Program) -> list[str]:
    """One arena for what the inputs determine, one opened by each data-dependent symbol."""
    return [MAIN, *(arena_after(s.name) for s in program.symbols if s.source == "node")]


def _home(buffer: ir.Buffer, program: ir.Program) -> str:
    """The arena of a temporary: that of the last symbol, in order of binding, it depends on."""
    used = {n for d in buffer.shape for n in arith.free_vars(d)}
    bound = [s.name for s in _binding_order(program) if s.name in used]
    return arena_after(bound[-1]) if bound else MAIN


def _binding_order(program: ir.Program) -> list:
    symbols = {s.name: s for s in program.symbols}
    names = [s.symbol for s in walk(program.body) if isinstance(s, ir.Bind)]
    return [symbols[n] for n in dict.fromkeys(names)]


def _reserve(s: ir.Stmt, arenas: dict[str, ir.Arena]) -> ir.Stmt:
    """bind n  →  bind n; reserve the arena that n opens"""
    match s:
        case ir.Seq(stmts=stmts):
            return ir.seq(*(_reserve(x, arenas) for x in stmts))
        case ir.If(then=then, orelse=orelse):
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
    """A stretch of an arena: its size, and the lifetimes of those who share it."""

    size: arith.Expr
    tenants: list[Lifetime]


Request = tuple[str, arith.Expr, Lifetime]


def assign(
    requests: list[Request], env: dict[str, Interval]
) -> tuple[dict[str, arith.Expr], arith.Expr]:
    """Offsets and the arena's size. Known sizes are packed; symbolic ones share slots."""
    known = [(n, size, span) for n, size, span in requests if arith.as_int(size) is not None]
    symbolic = [r for r in requests if arith.as_int(r[1]) is None]
    offsets, total = _pack(known)
    base: arith.Expr = arith.Const(total)
    for slot, names in _slots(symbolic, env):
        for name in names:
            offsets[name] = base
        base = simplify(base + slot.size, env)
    return offsets, base


REPAIRS = 60  # of one order
ENOUGH = 1.01  # of the largest live set: more is not worth looking for
PACK_STEPS = 4_000_000  # of all, in pairs of buffers: about a second


def _pack(requests: list[Request]) -> tuple[dict[str, arith.Expr], int]:
    """Each at the lowest offset free during its whole life, in the best of some orders. Largest
    first and longest-lived first are good beginnings; then whoever sticks out at the top is placed
    before the first that lives beside it, again and again, until hardly anything sticks out beyond
    the largest live set."""
    least = largest_live_bytes(requests)
    by_size = sorted(requests, key=lambda r: (-_aligned(r[1]), r[2].first, r[0]))
    by_life = sorted(by_size, key=lambda r: r[2].first - r[2].last)
    best, best_total = _first_fit(by_size)
    tries = min(REPAIRS, PACK_STEPS // max(1, len(requests)) ** 2)
    for order in (by_size, by_life):
        for _ in range(tries):
            if best_total <= least * ENOUGH:
                break
            offsets, total = _first_fit(order)
            if total < best_total:
                best, best_total = offsets, total
            order = _repaired(order, offsets, total)
    return {name: arith.Const(offset) for name, offset in best.items()}, best_total


def _first_fit(order: list[Request]) -> tuple[dict[str, int], int]:
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[str, int] = {}
    for name, size, span in order:
        need, offset = _aligned(size), 0
        for start, stop in sorted((a, b) for a, b, other in placed if other.overlaps(span)):
            if start >= offset + need:
                break
            offset = max(offset, stop)
        placed.append((offset, offset + need, span))
        offsets[name] = offset
    return offsets, max((stop for _, stop, _ in placed), default=0)


def _repaired(order: list[Request], offsets: dict[str, int], total: int) -> list[Request]:
    """The order with one that reaches the top moved before the first that lives beside it."""
    at = next(i for i, r in enumerate(order) if offsets[r[0]] + _aligned(r[1]) == total)
    span = order[at][2]
    first = next(i for i, r in enumerate(order) if r[2].overlaps(span))
    return [*order[:first], order[at], *order[first:at], *order[at + 1 :]]


def largest_live_bytes(requests: list[Request]) -> int:
    """Of buffers with known sizes: the most that are alive at one time. No plan needs less."""
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
    """Buffers of symbolic size share a slot when their lives are apart and it is provably large
    enough; so no comparison of sizes is left to run time."""
    slots: list[tuple[_Slot, list[str]]] = []
    for name, size, span in sorted(requests, key=lambda r: (r[2].first, r[0])):
        need = _rounded_up(size, env)
        for slot, names in slots:
            free = not any(tenant.overlaps(span) for tenant in slot.tenants)
            if free and (need == slot.size or _fits(size, need, slot.size, env)):
                slot.tenants.append(span)
                names.append(name)
                break
        else:
            slots.append((_Slot(need, [span]), [name]))
    return slots


def _fits(size: arith.Expr, need: arith.Expr, room: arith.Expr, env: dict[str, Interval]) -> bool:
    """Both are shown: the verifier, who knows no rounding, asks for the first alone."""
    return prove("le", size, room, env) and prove("le", need, room, env)


def _rounded_up(size: arith.Expr, env: dict[str, Interval]) -> arith.Expr:
    """The size in whole units, in a form whose laws the verifier can show: it holds the size, it is
    a multiple of the unit, and a size less than nothing takes nothing from others."""
    units = arith.ceildiv(size, ALIGNMENT)
    if not prove("le", size, units * ALIGNMENT, env):
        units = size // ALIGNMENT + 1
    if not prove("ge", units, 0, env):
        units = arith.maximum(units, 0)
    return simplify(units * ALIGNMENT, env)
