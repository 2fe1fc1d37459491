"""First fit: numbers of bytes with lifetimes → offsets in one arena. Called by plan/memory.py for
static sizes, and by plan/place.py for typical values of dynamic ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ingot.plan.lifetimes import Lifetime
from ingot.support.abi import ALIGNMENT

MAX_REPAIRS = 60  # reorderings tried for each initial order; heuristic
GOOD_ENOUGH = 1.01  # arena size over the largest live set at which the search stops; heuristic
POSITIONS = 64  # positions of a block: buffers of other blocks are not looked at; heuristic
PACK_STEPS = 4_000_000  # limit of all tries, in pairs of buffers: about a second


class Item(NamedTuple):
    """A buffer to place."""

    name: str
    size_bytes: int
    span: Lifetime


def pack(items: Sequence[Item]) -> tuple[dict[str, int], int]:
    """First fit: each buffer gets the lowest offset that is free during its lifetime. Orders are
    tried from largest first and from longest-lived first. A repair moves a buffer at the top of
    the arena before the first one whose lifetime overlaps; repairs stop when the arena is hardly
    larger than the largest live set, which is a lower bound."""
    least = largest_live_bytes(items)
    by_size = sorted(items, key=lambda r: (-aligned(r.size_bytes), r.span.first, r.name))
    by_life = sorted(by_size, key=lambda r: r.span.first - r.span.last)
    best, best_total = _first_fit(by_size)
    tries = min(MAX_REPAIRS, PACK_STEPS // max(1, len(items)) ** 2)
    for order in (by_size, by_life):
        for _ in range(tries):
            if best_total <= least * GOOD_ENOUGH:
                break
            offsets, total = _first_fit(order)
            if total < best_total:
                best, best_total = offsets, total
            order = _repaired(order, offsets, total)
    return best, best_total


def _first_fit(order: Sequence[Item]) -> tuple[dict[str, int], int]:
    placed: dict[int, list[tuple[int, int, Lifetime]]] = {}  # by blocks of positions they live in
    offsets: dict[str, int] = {}
    total = 0
    for name, size, span in order:
        need, offset = aligned(size), 0
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


def _repaired(order: Sequence[Item], offsets: dict[str, int], total: int) -> list[Item]:
    """The order with a buffer at the top moved before the first whose lifetime overlaps."""
    at = next(i for i, r in enumerate(order) if offsets[r.name] + aligned(r.size_bytes) == total)
    span = order[at].span
    first = next(i for i, r in enumerate(order) if r.span.overlaps(span))
    return [*order[:first], order[at], *order[first:at], *order[at + 1 :]]


def largest_live_bytes(items: Sequence[Item]) -> int:
    """The most bytes of static-size buffers live at once: a lower bound of the arena's size."""
    changes: dict[int, int] = {}
    for _, size, span in items:
        changes[span.first] = changes.get(span.first, 0) + aligned(size)
        changes[span.last + 1] = changes.get(span.last + 1, 0) - aligned(size)
    alive = most = 0
    for position in sorted(changes):
        alive += changes[position]
        most = max(most, alive)
    return most


def aligned(size_bytes: int) -> int:
    return max(1, -(-size_bytes // ALIGNMENT)) * ALIGNMENT
