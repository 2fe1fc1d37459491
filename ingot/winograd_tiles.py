"""The cost model of 3 × 3 convolutions by Winograd's products: where they pay, what stays near.

A tile is 2 × 2 outputs, 16 products for every pair of channels where a plain convolution has 36;
ops/winograd.py has the formulas. For that, 16 numbers for each tile and channel are made from the
pixels and read by the products, and as many results are written and read again:

    cycles = 16 · channels · cycles of a step for all tiles and outputs
             + MOVE · tiles · (channels + outputs) / lanes

What goes from stage to stage is 64 bytes a tile and channel. Where that is more than the last-level
cache has room for, a thread takes a block of tiles through all stages before the next. Asked by
passes/fast_convs.py, which makes the grid of tiles divide into blocks, and by the schedule rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ingot import tiles
from ingot.dtypes import DType
from ingot.target import Target

TILE, PLACES = 2, 16
MOVE = 40  # cycles for a vector of 16 numbers, there and back
STAGE_CYCLES = 3000  # of three stages, where there was one: threads wait for one another
WORTH = 1.1  # the gain that pays for other roundings, and for more weights
ROOM = 1 / 8  # of the last-level cache, for what goes from stage to stage
LEAST_BLOCK, MOST_BLOCK = 20, 40  # tiles: each block reads all weights, and stays in a near cache
READ_BYTES_PER_NS = 20.0  # weights from memory in order, by all cores together
MAX_SLOWER = 1.08


@dataclass(frozen=True)
class Conv:
    """Sizes of a convolution; a batch that is not known yet counts as one image."""

    batch: int | None
    channels: int
    outputs: int
    height: int
    width: int

    @property
    def least(self) -> tuple[int, int]:
        """Tiles in a column and a row of an image, none of them beyond its edges."""
        return -(-self.height // TILE), -(-self.width // TILE)


@dataclass(frozen=True)
class Grid:
    """Tiles in a column and a row of an image, some beyond its edges; and those of a block, if
    there are blocks."""

    rows: int
    columns: int
    block: tuple[int, int] | None = None

    @property
    def blocks(self) -> int:
        """Of one image."""
        high, wide = self.block or (self.rows, self.columns)
        return (self.rows // high) * (self.columns // wide)


def pays(conv: Conv, dtype: DType, target: Target) -> bool:
    """Does it take less time than the plain convolution, by a margin?"""
    images, lanes = conv.batch or 1, target.lanes(dtype)
    if conv.outputs < lanes:
        return False
    found = grid(conv, dtype, target)
    count = images * found.rows * found.columns
    moves = MOVE * count * (conv.channels + conv.outputs) / lanes
    pairs = conv.channels * conv.outputs * dtype.storage_bytes

    def cycles(rows: int, taps: int) -> float:
        step = tiles.product_cycles(rows, conv.outputs, lanes, target.vector_registers)
        return max(taps * conv.channels * step, _reading(taps * pairs, target))

    plain = cycles(images * conv.height * conv.width, 9)
    return plain > WORTH * (cycles(count, PLACES) + moves + STAGE_CYCLES)


def _reading(size: int, target: Target) -> float:
    """Cycles of all cores for reading so many bytes of weights once in a call."""
    is_near = size <= target.caches[-1] * tiles.NEAR_SHARE if target.caches else False
    per_core = READ_BYTES_PER_NS / tiles.CLOCK_GHZ / target.cores
    return size / (tiles.LEVEL_BYTES_PER_CYCLE[-1] if is_near else per_core)


def grid(conv: Conv, dtype: DType, target: Target) -> Grid:
    """The grid with the fewest cycles, in blocks where the stages do not fit in a cache."""
    rows, columns = conv.least
    each = PLACES * (conv.channels + conv.outputs) * dtype.storage_bytes
    total = (conv.batch or 1) * rows * columns * each
    weights = PLACES * conv.channels * conv.outputs * dtype.storage_bytes
    is_far = len(target.caches) < 2 or weights > target.caches[-1] * tiles.NEAR_SHARE
    if is_far or total <= target.caches[-1] * ROOM:
        return Grid(rows, columns)
    best = register_tile(conv, target, dtype)
    steps = tile_rows(best)
    blocks = [
        *_parts_of_rows(rows, columns, steps), *_whole_rows(rows, columns, steps)
    ]  # fmt: skip

    def cycles(found: Grid) -> float:
        high, wide = found.block or (1, 1)
        step = rows_within(best, high * wide) or 1
        return found.rows * found.columns * replace(best, rows=step).step_cycles / step

    even = [x for x in blocks if _is_even((conv.batch or 1) * x.blocks, target.cores)]
    return min(even, key=cycles, default=Grid(rows, columns))


def _is_even(blocks: int, cores: int) -> bool:
    """Have all threads about as many of them to do?"""
    return -(-blocks // cores) * cores <= blocks * tiles.MAX_UNEVEN


def _parts_of_rows(rows: int, columns: int, steps: list[int]) -> list[Grid]:
    """Each row in equal blocks, filled up to whole register tiles."""
    found = []
    for step in steps:
        for parts in range(1, columns // LEAST_BLOCK + 2):
            width = -(-columns // (parts * step)) * step
            if LEAST_BLOCK <= width <= MOST_BLOCK:
                found.append(Grid(rows, parts * width, (1, width)))
    return found


def _whole_rows(rows: int, columns: int, steps: list[int]) -> list[Grid]:
    """Some rows at a time, the last ones filled up."""
    found = []
    for step in steps:
        for wide in range(columns, columns + step):
            for high in range(1, min(rows, MOST_BLOCK // wide) + 1):
                if high * wide % step == 0 and high * wide >= LEAST_BLOCK:
                    found.append(Grid(-(-rows // high) * high, wide, (high, wide)))
    return found


def register_tile(conv: Conv, target: Target, dtype: DType) -> tiles.Tile:
    """The tile of the products, which says how wide panels of weights are."""
    return tiles.register_tile(None, conv.outputs, target.lanes(dtype), target.vector_registers)


def tile_rows(best: tiles.Tile) -> list[int]:
    """Rows of register tiles that keep the multipliers about as busy as the best one does."""

    def cycles(rows: int) -> float:
        return replace(best, rows=rows).step_cycles / rows

    return [n for n in range(best.rows, 0, -1) if cycles(n) <= cycles(best.rows) * MAX_SLOWER]


def rows_within(best: tiles.Tile, count: int) -> int | None:
    """Of those, the most that divide a block of tiles."""
    return next((n for n in tile_rows(best) if count % n == 0), None)
