"""Bounds of allocations: inside their arena, not negative, aligned.

In: a planned program. Out: conditions `expr >= 0` for each buffer of an arena, and those that no
proof was found for; none for offsets whose definitions imply it (offsets.py). The verifier refuses
a bound that fails for some sizes in their ranges; one that is neither proved nor refuted goes into
the package, and the runtime checks it when it solves the sizes of a call (runtime/sizes.py). One
over a data-dependent size would escape that check, since such a size is bound during the run: it
must be proved. Nothing is accepted because samples agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.graph.types import Symbol
from ingot.program import ir
from ingot.program.offsets import Offsets
from ingot.support.abi import ALIGNMENT
from ingot.support.errors import IngotError

SAMPLES = 24  # sizes tried to refute a bound, besides the ends of their ranges; heuristic
FAR = 1 << 20  # upper end of an unbounded range in these samples; heuristic


class Bound(NamedTuple):
    """The expression must not be negative; the texts say what is wrong if it is."""

    buffer: str
    fault: str
    where: str
    why: str
    expr: arith.Expr


NEVER = arith.Const(-1)  # a bound that fails for all sizes


def bounds(program: ir.Program) -> Iterator[Bound]:
    sizes = {a.name: a.size_bytes for a in program.arenas}
    defined = Offsets(program.offsets, {s.name: Interval(s.low, s.high) for s in program.symbols})
    for offset, why in defined.faults():
        yield Bound(offset, "badly placed", f"offset {offset}", why, NEVER)
    for b in program.buffers:
        if b.allocation is None or b.allocation.arena not in sizes:
            continue
        start = b.allocation.offset
        stop, room = start + b.size_bytes, sizes[b.allocation.arena]
        where = f"bytes {start} to {stop} of {b.allocation.arena!r}"
        why = f"the arena has {room} bytes"
        name, end = defined.name_of(start), defined.name_of(room)
        if name is not None and end is not None:
            if not defined.is_below(name, b.size_bytes, end):
                yield Bound(b.name, "outside its arena", where, why, NEVER)
            continue
        start, stop, room = map(defined.expanded, (start, stop, room))
        yield Bound(b.name, "outside its arena", where, why, room - stop)
        yield Bound(b.name, "outside its arena", where, why, start)
        why = f"offsets are multiples of {ALIGNMENT}"
        yield Bound(b.name, "not aligned", f"offset {start}", why, 0 - start % ALIGNMENT)


def unproved(program: ir.Program) -> list[Bound]:
    """The bounds that are not proved for all sizes in their ranges."""
    env = {s.name: Interval(s.low, s.high) for s in program.symbols}
    return [bound for bound in bounds(program) if not prove("ge", bound.expr, 0, env)]


def checked_per_call(program: ir.Program) -> list[Bound]:
    """The unproved bounds, all over sizes that are known before a run; an error if one is not."""
    given = {s.name for s in program.symbols if s.source != "node"}
    found = unproved(program)
    for bound in found:
        late = sorted(arith.free_vars(bound.expr) - given)
        if late:
            what = f"buffer {bound.buffer!r} is {bound.fault}, or no proof was found that it is not"
            why = f"{', '.join(late)} is known only during the run, too late for a check"
            raise IngotError("bad-program", what, where=bound.where, why=why)
    return found


def counterexample(bound: Bound, program: ir.Program) -> dict[str, int] | None:
    """Sizes for which a bound fails, if one of a few samples is such."""
    used = arith.free_vars(bound.expr)
    symbols = [s for s in program.symbols if s.name in used]
    for sample in range(SAMPLES + 2):
        sizes = {s.name: _sampled(s, sample, number) for number, s in enumerate(symbols)}
        if arith.evaluate(bound.expr, sizes) < 0:
            return sizes
    return None


def _sampled(s: Symbol, sample: int, number: int) -> int:
    """A size in the symbol's range: different ones for each sample, and at last both its ends."""
    high = s.low + FAR if s.high is None else s.high
    steps = (sample * (number * 2 + 1) + number) % SAMPLES
    value = {SAMPLES: s.low, SAMPLES + 1: high}.get(sample, min(s.low + steps, high))
    return max(value - value % s.divisor, -(-s.low // s.divisor) * s.divisor)
