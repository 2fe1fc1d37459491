"""Offsets of a dynamic memory plan: each the maximum of where buffers below it end.

    offset("offset_0", 0)
    offset("offset_1", offset_0 + (n * 12 + 63) // 64 * 64)
    offset("offset_2", max(offset_0 + (n * 12 + 63) // 64 * 64, offset_1 + 128))

The planner decides which of two buffers that are live at once is below the other; where each begins
follows from the sizes of a call. So no two can overlap, whatever the sizes are, and the arena is
about as large as for static sizes. A definition mentions sizes and earlier offsets, no others. Here
are the invariants of such definitions, and the order that they imply; program/access.py and
program/bounds.py ask it. In: `Program.offsets`. Out: answers about two offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, prove
from ingot.arith.simplify import simplify
from ingot.support.abi import ALIGNMENT

Definitions = tuple[tuple[str, arith.Expr], ...]


def rounded_up(size: arith.Expr, env: Mapping[str, Interval]) -> arith.Expr:
    """The size rounded up to the alignment; zero for a negative one."""
    least = size if prove("ge", size, 0, dict(env)) else arith.maximum(size, 0)
    return arith.ceildiv(least, ALIGNMENT) * ALIGNMENT


class Offsets:
    """`env` has the ranges of the sizes."""

    def __init__(self, definitions: Definitions, env: Mapping[str, Interval]):
        self.definitions, self.env = definitions, dict(env)
        self.names = {name: number for number, (name, _) in enumerate(definitions)}
        # of each: the offsets below it, with the bytes that are left for the buffer there
        self.below = [list(self._terms(expr)) for _, expr in definitions]

    def _terms(self, e: arith.Expr) -> Iterator[tuple[str | None, arith.Expr]]:
        """The operands of nested maxima, each as an offset and what is added to it."""
        todo = [e]
        while todo:
            term = todo.pop()
            match term:
                case arith.Max(a=a, b=b):
                    todo += [b, a]
                case _:
                    yield self._split(term)

    def _split(self, term: arith.Expr) -> tuple[str | None, arith.Expr]:
        """offset + bytes  →  the two; a term that is no such sum has no offset"""
        if not arith.free_vars(term) & self.names.keys():
            return None, term
        parts, rest = [term], list[arith.Expr]()
        found: list[str] = []
        while parts:
            match parts.pop():
                case arith.Add(a=a, b=b):
                    parts += [b, a]
                case arith.Var(name=name) if name in self.names:
                    found.append(name)
                case other:
                    rest.append(other)
        total = sum(rest, start=arith.Const(0))
        return (found[0], total) if len(found) == 1 else (None, term)

    def name_of(self, e: arith.Expr) -> str | None:
        """The offset that an expression is; None if it is another one."""
        return e.name if isinstance(e, arith.Var) and e.name in self.names else None

    def expanded(self, e: arith.Expr) -> arith.Expr:
        """The expression over sizes alone. It may be long: only for a plan that was edited."""
        while arith.free_vars(e) & self.names.keys():
            e = arith.substitute(e, dict(self.definitions))
        return e

    def faults(self) -> Iterator[tuple[str, str]]:
        """Definitions that break an invariant, and why."""
        for number, (name, _) in enumerate(self.definitions):
            for below, bytes in self.below[number]:
                if below is not None and self.names[below] >= number:
                    yield name, f"it mentions {below}, which is defined later"
                if arith.free_vars(bytes) & self.names.keys():
                    yield name, f"{bytes} is no sum of one offset and a size"
                elif not prove("ge", bytes, 0, self.env):
                    yield name, f"{bytes} may be negative"
                elif not arith.is_const(simplify(bytes % ALIGNMENT, self.env), 0):
                    yield name, f"{bytes} is not a multiple of {ALIGNMENT}"

    @cached_property
    def _ancestors(self) -> list[int]:
        """Of each offset, those below it, directly or not, as a bit set."""
        found: list[int] = []
        for terms in self.below:
            numbers = [self.names[name] for name, _ in terms if name is not None]
            bits = 0
            for n in numbers:
                bits |= 1 << n | (found[n] if n < len(found) else 0)
            found.append(bits)
        return found

    @cached_property
    def _least_room(self) -> dict[str, list[arith.Expr]]:
        """Offset → the distinct sizes that offsets directly above it leave free."""
        rooms: dict[str, dict[arith.Expr, None]] = {}
        for terms in self.below:
            for name, bytes in terms:
                if name is not None:
                    rooms.setdefault(name, {})[bytes] = None
        return {name: list(found) for name, found in rooms.items()}

    def is_below(self, name: str, size: arith.Expr, above: str) -> bool:
        """Does a buffer of `size` bytes at one offset end before another offset begins?"""
        if not self._ancestors[self.names[above]] >> self.names[name] & 1:
            return False
        return all(self._fits(size, room) for room in self._least_room[name])

    def _fits(self, size: arith.Expr, room: arith.Expr) -> bool:
        return room == rounded_up(size, self.env) or prove("le", size, room, self.env)
