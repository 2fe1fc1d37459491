"""Static memory planning: constants go to the blob, temporaries share arenas by lifetime.

In: a legal program. Out: the same with arenas, an allocation for every constant and temporary, and
a Reserve after each Bind of a symbol that sizes depend on. Sizes known from the inputs' shapes use
one arena (`main`, reserved by the host), with offsets as numbers or, if a size is dynamic, as
definitions (plan/place.py). Each data-dependent dimension starts an arena of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.arith.simplify import simplify
from ingot.plan.first_fit import Item, pack
from ingot.plan.lifetimes import lifetimes
from ingot.plan.place import Request, place
from ingot.program import ir
from ingot.program.offsets import Definitions
from ingot.program.tables import CONSTANTS, walk
from ingot.support.abi import ALIGNMENT

MAIN = "main"


def plan_memory(program: ir.Program) -> ir.Program:
    """Allocate every constant and temporary, and size the arenas."""
    env = {s.name: Interval(s.low, s.high) for s in program.symbols}
    allocations = _constant_allocations(program)
    spans = lifetimes(program)
    arenas: list[ir.Arena] = []
    definitions: Definitions = ()
    for name, members in _members(program).items():
        if not members and name != MAIN:
            continue
        wanted = [(b.name, b.size_bytes, spans[b.name]) for b in members]
        if name == MAIN and any(arith.as_int(size) is None for _, size, _ in wanted):
            given = [s for s in program.symbols if s.source != "node"]
            names, definitions = place(wanted, given)
            found: dict[str, arith.Expr] = {n: arith.Var(offset) for n, offset in names.items()}
            size: arith.Expr = arith.Var(definitions[-1][0])
        else:
            found, size = assign_offsets(wanted, env)
        allocations.update({n: ir.Allocation(name, offset) for n, offset in found.items()})
        arenas.append(ir.Arena(name, size))
    buffers = tuple(ir.replace(b, allocation=allocations.get(b.name)) for b in program.buffers)
    body = _reserve(program.body, {a.name: a for a in arenas})
    return ir.replace(
        program, buffers=buffers, arenas=tuple(arenas), offsets=definitions, body=body
    )


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


def assign_offsets(
    requests: list[Request], env: dict[str, Interval]
) -> tuple[dict[str, arith.Expr], arith.Expr]:
    """Offsets and the arena's size. Static sizes are packed; dynamic ones share slots."""
    known = ((name, arith.as_int(size), span) for name, size, span in requests)
    static = [Item(name, size, span) for name, size, span in known if size is not None]
    dynamic = [r for r in requests if arith.as_int(r[1]) is None]
    packed, total = pack(static)
    offsets: dict[str, arith.Expr] = {name: arith.Const(at) for name, at in packed.items()}
    base: arith.Expr = arith.Const(total)
    for slot, names in _slots(dynamic, env):
        for name in names:
            offsets[name] = base
        base = simplify(base + slot.size, env)
    return offsets, base


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
