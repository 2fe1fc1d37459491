"""Offsets in an arena with dynamic sizes: which of two live buffers is below the other.

    In:  buffers with sizes and lifetimes.   Out: offsets by name, each a definition over sizes and
    earlier offsets (program/offsets.py), the last of them the arena's size.

The buffers are packed at a few typical sizes by first fit, as static ones are. What is kept of that
is only the order: a buffer begins where the buffers below it end that are live at the same time.
That is right for all sizes, and as small as the packing at typical ones. The order that is best on
average over the typical sizes is taken. Called by plan/memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval
from ingot.graph.types import Symbol
from ingot.plan.first_fit import POSITIONS, Item, largest_live_bytes, pack
from ingot.plan.lifetimes import Lifetime
from ingot.program.offsets import Definitions, rounded_up

TYPICAL_SIZES = (48, 300, 2000)  # of a dynamic dimension of which nothing is known; heuristic
TYPICAL_BATCHES = (1, 1, 8)  # over the likely value, where there is one; heuristic
Request = tuple[str, arith.Expr, Lifetime]  # buffer, size in bytes, lifetime
Sample = Mapping[str, int]


def place(
    requests: Sequence[Request], symbols: Sequence[Symbol]
) -> tuple[dict[str, str], Definitions]:
    """Buffer → the name of its offset; and the definitions. The last one is the arena's size."""
    env = {s.name: Interval(s.low, s.high) for s in symbols}
    needs = [rounded_up(size, env) for _, size, _ in requests]
    samples = typical(symbols)
    numbers = [[arith.evaluate(need, sample) for need in needs] for sample in samples]
    spans = [span for _, _, span in requests]
    orders = [_order(sizes, spans) for sizes in numbers]
    below = min(
        (_directly_below(order, spans) for order in orders), key=lambda b: _score(b, numbers, spans)
    )
    prefix = "offset"
    while any(s.name.startswith(prefix) for s in symbols):
        prefix += "_"
    return _defined([name for name, _, _ in requests], needs, below, prefix)


def typical(symbols: Sequence[Symbol]) -> list[Sample]:
    """Sizes at which plans are compared, in the range of each symbol."""
    return [
        {s.name: _in_range(s, size if s.likely is None else s.likely * batch) for s in symbols}
        for size, batch in zip(TYPICAL_SIZES, TYPICAL_BATCHES)
    ]


def _in_range(s: Symbol, value: int) -> int:
    value = max(s.low, value if s.high is None else min(value, s.high))
    return max(value - value % s.divisor, -(-s.low // s.divisor) * s.divisor)


def _order(sizes: Sequence[int], spans: Sequence[Lifetime]) -> list[int]:
    """The buffers by their offsets in a packing at these sizes."""
    items = [Item(str(i), size, span) for i, (size, span) in enumerate(zip(sizes, spans))]
    offsets, _ = pack(items)
    return sorted(range(len(sizes)), key=lambda i: (offsets[str(i)], i))


def _directly_below(order: Sequence[int], spans: Sequence[Lifetime]) -> dict[int, list[int]]:
    """Of each buffer, those live at the same time and before it in the order, without those that
    are below one of these. In the given order."""
    found: dict[int, list[int]] = {}
    under: dict[int, int] = {}  # all that are below, directly or not, as a bit set
    near = Nearby()
    height = {i: position for position, i in enumerate(order)}
    for i in order:
        direct, covered = list[int](), 0
        for j in sorted(near.live_with(i, spans), key=height.__getitem__, reverse=True):
            if not covered >> j & 1:  # the highest first: it covers most
                direct.append(j)
                covered |= under[j] | 1 << j
        found[i], under[i] = direct, covered
        near.add(i, spans[i])
    return found


class Nearby:
    """Buffers by blocks of positions that they are live in: most are live for a short time."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[int]] = {}

    def add(self, i: int, span: Lifetime) -> None:
        for block in range(span.first // POSITIONS, span.last // POSITIONS + 1):
            self._blocks.setdefault(block, []).append(i)

    def live_with(self, i: int, spans: Sequence[Lifetime]) -> set[int]:
        blocks = range(spans[i].first // POSITIONS, spans[i].last // POSITIONS + 1)
        near = (j for block in blocks for j in self._blocks.get(block, ()))
        return {j for j in near if spans[j].overlaps(spans[i])}


def _score(
    below: Mapping[int, Sequence[int]], numbers: Sequence[Sequence[int]], spans: Sequence[Lifetime]
) -> float:
    """The arena's size over the least possible, summed over the typical sizes."""
    total = 0.0
    for sizes in numbers:
        ends: dict[int, int] = {}
        for i, under in below.items():
            ends[i] = max((ends[j] for j in under), default=0) + sizes[i]
        least = largest_live_bytes([Item("", size, span) for size, span in zip(sizes, spans)])
        total += max(ends.values(), default=0) / max(1, least)
    return total


def _defined(
    names: Sequence[str],
    needs: Sequence[arith.Expr],
    below: Mapping[int, Sequence[int]],
    prefix: str,
) -> tuple[dict[str, str], Definitions]:
    offset = {i: f"{prefix}_{number}" for number, i in enumerate(below)}
    has_above = {j for under in below.values() for j in under}

    def end(i: int) -> arith.Expr:
        return arith.Var(offset[i]) + needs[i]

    definitions = [(offset[i], _maximum([end(j) for j in under])) for i, under in below.items()]
    tops = [end(i) for i in below if i not in has_above]
    definitions.append((f"{prefix}_end", _maximum(tops)))
    return {names[i]: name for i, name in offset.items()}, tuple(definitions)


def _maximum(terms: Sequence[arith.Expr]) -> arith.Expr:
    made: arith.Expr = arith.Const(0)
    for number, term in enumerate(terms):
        made = term if number == 0 else arith.maximum(made, term)
    return made
