"""How large a register tile is: rows × vectors of a reduction's outputs kept while it runs.

In: extents, lanes, registers. Out: `Tile`. Plain arithmetic on the target's description; `tiles.py`
will own this choice once layouts are chosen with it.
"""

from __future__ import annotations

from dataclasses import dataclass

GUESS = 256  # an extent not known yet: large, and not a multiple of anything
TAIL = 1.3  # what a guarded tail costs the whole tile, about
VECTOR_LOAD = 2  # a vector comes from further away than the row values, which are used again
TIE = 0.05  # of two tiles as fast, the one that loads less
MAX_ROWS = 8
MAX_VECTORS = 4


@dataclass(frozen=True)
class Tile:
    """`rows` times `vectors` vectors of `width` lanes."""

    rows: int
    vectors: int
    width: int


def choose(rows: int | None, count: int | None, lanes: int, registers: int) -> Tile:
    """The tile with the least estimated time for `rows` × `count` outputs."""
    width = lanes if count is None or count >= lanes else max(count, 1)
    best, best_time = Tile(1, 1, width), float("inf")
    for vectors in range(1, MAX_VECTORS + 1):
        for height in range(1, MAX_ROWS + 1):
            # accumulators, one row of loaded vectors and one broadcast value live at once
            if height * vectors + vectors + 1 > registers and (height, vectors) != (1, 1):
                continue
            time = _time(rows, height) * _time(count, vectors * width)
            loads = height + VECTOR_LOAD * vectors
            time *= max(height * vectors, loads) * (1 + TIE * loads / (height * vectors))
            if time < best_time * 0.999:
                best, best_time = Tile(height, vectors, width), time
    return best


def _time(extent: int | None, step: int) -> float:
    """Steps to cover the extent, more where the last one is guarded."""
    size = GUESS + 1 if extent is None else extent
    if extent is None:
        return -(-size // step) * (1.0 if step == 1 else TAIL)
    steps = -(-size // step)
    return steps * (TAIL if size % step else 1.0)
