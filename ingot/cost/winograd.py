"""The cost model of Winograd convolutions F(2x2, 3x3): where they are faster, and in which blocks.

An output tile is 2 x 2. It takes 16 multiplications per pair of channels where the direct
convolution takes 36; ops/winograd.py has the transforms. In exchange, 16 values per tile and
channel are computed from the pixels and read by the GEMMs, and as many results are written and read
again:

    cycles = 16 · channels · cycles per k of a GEMM of all tiles and outputs
             + TRANSFORM_CYCLES · tiles · (channels + outputs) / lanes

The intermediates between the stages are 64 bytes per tile and channel in f32. Where they exceed a
fraction of the last-level cache, each thread takes one block of tiles through all stages before the
next block. Integers of 8 bits take dot products of i16, of two terms; where the direct convolution
has one of four, Winograd does not pay. Called by passes/use_winograd.py, which pads the grid of
tiles to whole blocks and puts both on the operator; a block of a dynamic grid is a number of
consecutive tiles. `decide_winograd` makes the plan that schedule/rules/winograd.py applies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ingot import dtypes
from ingot.cost import contraction as cost
from ingot.cost.dot_products import dot_product
from ingot.cost.gemm import k_unroll
from ingot.cost.plan import Blocking, ContractionPlan, Packing
from ingot.cost.shape import Contraction
from ingot.cost.tile import Tile
from ingot.dtypes import DType
from ingot.machine import Core
from ingot.target import Target

OUTPUT_TILE = 2  # outputs along each axis of a tile
TRANSFORM_POINTS = 16  # values of a transformed tile, 4 x 4: GEMMs of one convolution
TRANSFORM_CYCLES = 40  # to transform 16 vectors and store and reload them; heuristic
SUM_BYTES = 4  # of an i32 or f32 between the GEMMs and the output transform
BARRIER_CYCLES = 3000  # of the barriers between the three stages, per convolution; heuristic
MIN_SPEEDUP = 1.1  # predicted, over the direct convolution: pays for 16/9 of the weights; heuristic
LLC_INTERMEDIATE_FRACTION = 1 / 8  # of the last-level cache, for the intermediates; heuristic
# Tiles of a block, which reads all weights once. Measured at 64 to 256 channels: 28 tiles are best,
# 84 to 112 take 6 to 18 % longer, measured.
MIN_BLOCK_TILES, BEST_BLOCK_TILES, MAX_BLOCK_TILES = 20, 28, 40
MAX_SLOWDOWN = 1.08  # of a register tile with fewer rows, relative to the best tile; heuristic


@dataclass(frozen=True)
class ConvShape:
    """The sizes of a convolution; a dynamic batch (None) counts as one image, and a dynamic map has
    the assumed height and width."""

    batch: int | None
    channels: int
    outputs: int
    height: int
    width: int
    is_dynamic: bool = False  # the height or the width

    @property
    def min_grid(self) -> tuple[int, int]:
        """Rows and columns of tiles that cover an image."""
        return -(-self.height // OUTPUT_TILE), -(-self.width // OUTPUT_TILE)


@dataclass(frozen=True)
class Grid:
    """Rows and columns of tiles of an image, padding included; `block`: the rows and columns of a
    block, or how many consecutive tiles of all images; None without blocking."""

    rows: int
    columns: int
    block: tuple[int, ...] | None = None
    is_dynamic: bool = False  # the grid is as large as a run needs; rows and columns are assumed

    @property
    def blocks(self) -> int:
        """Blocks per image."""
        high, wide = self.block or (self.rows, self.columns)
        return (self.rows // high) * (self.columns // wide)


@dataclass(frozen=True)
class Products:
    """How sums of products are computed: bytes of an operand's element, lanes of a vector of sums,
    terms that an instruction adds to each, the core as a register tile's cost sees it."""

    operand_bytes: int
    lanes: int
    terms: int
    core: Core


def transformed_products(dtype: DType, target: Target) -> Products | None:
    """Those of the GEMMs between the transforms, for a map of this type: of i16 for integers. None
    where the target has no dot product for these."""
    return _products(dtypes.i16 if dtype.is_int else dtype, target)


def _products(dtype: DType, target: Target) -> Products | None:
    core = target.machine.core
    if not dtype.is_int:
        return Products(dtype.storage_bytes, target.lanes(dtype), 1, core)
    row = dot_product(target, dtype, dtype)
    return None if row is None else Products(2, row.lanes, row.group, row.core(core))


def _direct_products(dtype: DType, target: Target) -> Products | None:
    """Those of the direct convolution: of its own types, or of i16, which holds 8-bit integers."""
    row = dot_product(target, dtypes.u8, dtypes.i8) if dtype.is_int else None
    if row is None:
        return transformed_products(dtype, target)
    return Products(1, row.lanes, row.group, row.core(target.machine.core))


def is_profitable(conv: ConvShape, dtype: DType, target: Target) -> bool:
    """Is Winograd predicted to be faster than the direct convolution, by MIN_SPEEDUP?"""
    images, made = conv.batch or 1, transformed_products(dtype, target)
    direct = _direct_products(dtype, target)
    if made is None or direct is None or conv.outputs < made.lanes:
        return False
    if conv.channels % made.terms:
        return False  # the last term of a transformed pixel would be beyond it
    found = grid(conv, dtype, target)
    count = images * found.rows * found.columns
    moved = conv.channels * made.operand_bytes / SUM_BYTES + conv.outputs  # sums are i32 or f32
    moves = TRANSFORM_CYCLES * count * moved / target.lanes(dtypes.f32)

    def cycles(how: Products, rows: int, taps: int) -> float:
        per_k = cost.gemm_cycles_per_k(
            rows, conv.outputs, how.lanes, target.vector_registers, how.core
        )
        size = taps * conv.channels * conv.outputs * how.operand_bytes
        steps = -(-conv.channels // how.terms)
        return max(taps * steps * per_k, _weight_read_cycles(size, target))

    plain = cycles(direct, images * conv.height * conv.width, 9)
    return plain > MIN_SPEEDUP * (cycles(made, count, TRANSFORM_POINTS) + moves + BARRIER_CYCLES)


def _weight_read_cycles(size: int, target: Target) -> float:
    """Cycles of all cores together for reading `size` bytes of weights once."""
    machine = target.machine
    in_cache = size <= target.caches[-1] * cost.LLC_PANELS_FRACTION if target.caches else False
    per_core = machine.memory_bytes_per_ns / machine.clock_ghz / target.cores
    return size / (machine.cache_bytes_per_cycle[-1] if in_cache else per_core)


def grid(conv: ConvShape, dtype: DType, target: Target) -> Grid:
    """The grid with the fewest cycles; in blocks where the intermediates exceed the cache."""
    rows, columns = conv.min_grid
    how = transformed_products(dtype, target)
    assert how is not None, "is_profitable has found the instructions"
    each = TRANSFORM_POINTS * (conv.channels * how.operand_bytes + conv.outputs * SUM_BYTES)
    total = (conv.batch or 1) * rows * columns * each
    weights = TRANSFORM_POINTS * conv.channels * conv.outputs * how.operand_bytes
    exceeds_cache = len(target.caches) < 2 or weights > target.caches[-1] * cost.LLC_PANELS_FRACTION
    if exceeds_cache or total <= target.caches[-1] * LLC_INTERMEDIATE_FRACTION:
        return Grid(rows, columns, is_dynamic=conv.is_dynamic)
    best = register_tile(conv, target, how)
    core = how.core
    heights = tile_rows(best, core)
    if conv.is_dynamic:
        return Grid(rows, columns, (_consecutive_tiles(heights),), is_dynamic=True)
    blocks = [
        *_row_segments(rows, columns, heights), *_row_bands(rows, columns, heights)
    ]  # fmt: skip

    def cycles(found: Grid) -> float:
        height = rows_dividing(best, math.prod(found.block or (1,)), core) or 1
        per_row = replace(best, rows=height).cycles_per_k(core) / height
        return found.rows * found.columns * per_row

    balanced = [x for x in blocks if _is_balanced((conv.batch or 1) * x.blocks, target.cores)]
    return min(balanced, key=cycles, default=Grid(rows, columns))


def decide_winograd(
    gemm: Contraction, block: tuple[int, ...], panel: int, target: Target
) -> list[ContractionPlan]:
    """The plan of the GEMMs with all stages fused over blocks of tiles, rows x columns; `panel` is
    the panel width of the weights."""
    core, lanes = target.machine.core, target.lanes(gemm.dtype)
    if gemm.dot is not None:
        core, lanes = gemm.dot.core(core), gemm.dot.lanes
    best = cost.register_tile(
        cost.ASSUMED_EXTENT, gemm.columns, lanes, target.vector_registers, panel, core=core
    )
    tile = replace(best, rows=rows_dividing(best, math.prod(block), core) or 1)
    packing, blocking = (
        Packing("given", panel),
        Blocking("tiles" if len(block) == 2 else "flat_tiles", block),
    )
    made = ContractionPlan("winograd_f2", 1, 2, (), tile, packing, blocking, tail="pad")
    terms = None if gemm.dot is None else gemm.dot.group
    return [replace(made, dot=terms, k_unroll=k_unroll(tile.rows, gemm.k_extents[-1]))]


def _consecutive_tiles(heights: list[int]) -> int:
    """Tiles of a block of whole register tiles, about BEST_BLOCK_TILES. Blocks of one row would pad
    each row of a grid whose width is dynamic; blocks of consecutive tiles pad the last block."""
    counts = (height * max(1, round(BEST_BLOCK_TILES / height)) for height in heights)
    return min(counts, key=lambda count: abs(count - BEST_BLOCK_TILES))


def _is_balanced(blocks: int, cores: int) -> bool:
    """Do all threads get about as many blocks?"""
    return -(-blocks // cores) * cores <= blocks * cost.MAX_IMBALANCE


def _row_segments(rows: int, columns: int, heights: list[int]) -> list[Grid]:
    """Blocks that are a segment of one row, padded to whole register tiles."""
    found = []
    for height in heights:
        for count in range(1, columns // MIN_BLOCK_TILES + 2):
            width = -(-columns // (count * height)) * height
            if MIN_BLOCK_TILES <= width <= MAX_BLOCK_TILES:
                found.append(Grid(rows, count * width, (1, width)))
    return found


def _row_bands(rows: int, columns: int, heights: list[int]) -> list[Grid]:
    """Blocks of one or more whole rows, the last block padded."""
    found = []
    for height in heights:
        for wide in range(columns, columns + height):
            for high in range(1, min(rows, MAX_BLOCK_TILES // wide) + 1):
                if high * wide % height == 0 and high * wide >= MIN_BLOCK_TILES:
                    found.append(Grid(-(-rows // high) * high, wide, (high, wide)))
    return found


def register_tile(conv: ConvShape, target: Target, how: Products) -> Tile:
    """The register tile of the GEMMs; its columns are the panel width of the weights."""
    return cost.register_tile(
        cost.ASSUMED_EXTENT, conv.outputs, how.lanes, target.vector_registers, core=how.core
    )


def tile_rows(best: Tile, core: Core) -> list[int]:
    """Rows of register tiles whose FMA rate is within MAX_SLOWDOWN of the best tile's."""

    def cycles(rows: int) -> float:
        return replace(best, rows=rows).cycles_per_k(core) / rows

    return [n for n in range(best.rows, 0, -1) if cycles(n) <= cycles(best.rows) * MAX_SLOWDOWN]


def rows_dividing(best: Tile, count: int, core: Core) -> int | None:
    """The most of those rows that divide a block of `count` tiles."""
    return next((n for n in tile_rows(best, core) if count % n == 0), None)
