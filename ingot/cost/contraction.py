"""The cost model of GEMMs and convolutions: register tile, panel width, cache blocks, roofline.

In: sizes, element type and the target's registers and caches. Out: tile and block sizes.
passes/choose_layouts.py asks for the panel width of a packed operand, which is from then on in its
layout; the decisions of this package ask for the rest. No shape and no CPU is special-cased.

tile.py has the register tile and its cycles. The best tile takes the fewest cycles for the whole
GEMM, padding of the last tiles included.

`machine_model` is the roofline behind the predicted times of exe.report(): a kernel takes the
longer of its arithmetic on all ports and of moving its arrays once from the nearest cache that
holds them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ingot.cost.tile import MAX_UNROLL_ROWS, Tile
from ingot.machine import GENERIC, Core, Machine

RESERVED_REGISTERS = 1  # vector registers left to LLVM's register allocator, which spills otherwise

# Register tiles.
TILE_OVERHEAD = 0.3  # of a tile (shared loads, prologue, epilogue) over one of its rows; heuristic
MAX_TILE_ROWS = 14  # rows of the largest tile that is tried; heuristic
MAX_TILE_VECTORS = 6  # vectors of the largest tile that is tried; heuristic
MAX_SHORT_TILE_TIME = 0.8  # of a variant for fewer rows, relative to the next larger; heuristic
ASSUMED_EXTENT = 6 * 43  # elements of a dynamic dimension: many, with few divisors; heuristic
# Elements of a dynamic dimension over which the padding of a tile is averaged; heuristic.
SAMPLED_EXTENTS = (7, 16, 32, 50, 64, 100, 128, 200, 256, 384, 512)

# Cache blocking. Fractions of a cache that one operand may take; all heuristic.
L1_WINDOW_FRACTION = 0.35  # of L1: input rows that neighbouring depthwise windows reuse
L2_FRACTION = 0.4  # of L2: a whole packed operand, a block of rows, or a thread's private copy
LLC_ROWS_FRACTION = 0.5  # of the last-level cache: rows that are reused for each panel
LLC_PANELS_FRACTION = 0.25  # of the last-level cache: panels that are reused for each block of rows
MIN_BLOCK_TILES = 8  # row tiles of a block in L2, each of which reuses a panel; heuristic
MAX_PADDED_TILES = 0.02  # padding of the last block, as a fraction of all row tiles; heuristic
MAX_IMBALANCE = 1.25  # iterations of the busiest thread, relative to the mean; heuristic
MIN_COMPUTE_TO_MOVE = 2  # FMA cycles per cycle of data movement: compute-bound from here; heuristic

# Prefetch of the next panel.
MIN_PREFETCH_STEP = 8  # iterations of k; measured: with 2, GEMMs of 7 to 12 rows took twice as long
MAX_PREFETCH_RATIO = 1.1  # prefetched lines, relative to the lines of a panel; heuristic

# Partial sums: each costs about ten terms. Measured on 128 x 768 x 3072.
LONG_SUM_TERMS = 4096  # terms from which a float sum is split: 1 to 3 % slower, smaller error
PARTIAL_SUM_TERMS = 256  # terms of one partial sum, at least


@dataclass(frozen=True)
class MachineModel:
    """The roofline of one core. `levels`: (capacity in bytes, bandwidth in bytes per ns) of each
    cache, then of memory, whose capacity is None."""

    flops_per_ns: float  # per lane
    lanes: int
    levels: tuple[tuple[int | None, float], ...]


def machine_model(
    lanes: int, has_fma: bool, caches: tuple[int, ...], machine: Machine
) -> MachineModel:
    """An FMA counts as two operations; without FMA each operation takes a port."""
    rates = map(machine.cache_bytes_per_ns, range(len(caches)))
    levels = (*zip(caches, rates), (None, machine.memory_bytes_per_ns))
    per_cycle = machine.core.fma_ports * (2 if has_fma else 1)
    return MachineModel(per_cycle * machine.clock_ghz, lanes, levels)


def may_unroll_k(rows: int) -> bool:
    """Should k be unrolled for a tile of `rows` rows? It saves the loop's own instructions, which
    cost issue slots where two threads share a core."""
    return 1 < rows <= MAX_UNROLL_ROWS


def register_tile(
    rows: int | None, columns: int | None, lanes: int, registers: int, panel: int | None = None,
    is_depthwise: bool = False, core: Core = GENERIC.core,
) -> Tile:  # fmt: skip
    """The tile with the fewest cycles for an M x N = `rows` x `columns` GEMM; None is a dynamic
    dimension. `panel` fixes the tile's columns (NR) to a packed operand's panel width."""
    best, best_cycles = Tile(1, 1, lanes), float("inf")
    for tile in _candidates(lanes, registers, panel, is_depthwise):
        if panel is None and columns is not None and tile.columns - lanes >= columns:
            continue  # the last vector would be all padding
        cycles = _cycles(tile, rows, columns, core)
        if cycles < best_cycles:
            best, best_cycles = tile, cycles
    return best


def short_tile(
    rows: int, columns: int, lanes: int, registers: int, panel: int, core: Core = GENERIC.core
) -> Tile:
    """The tile with the fewest cycles for at most `rows` rows of a packed operand. A tile of few
    rows has few accumulators and waits for each of them: it may span several panels, if these are
    a multiple of them."""
    panels = -(-columns // panel)
    counts = (n for n in range(1, panels + 1) if panels % n == 0)
    widths = [n * panel // lanes for n in counts if n * panel <= MAX_TILE_VECTORS * lanes]
    tiles = [Tile(rows, vectors, lanes) for vectors in widths or [panel // lanes]]
    fitting = [tile for tile in tiles if _fits(rows, tile.vectors, registers)]
    return min(fitting or tiles[:1], key=lambda tile: _cycles(tile, rows, columns, core))


def is_faster(few: Tile | None, many: Tile | None, core: Core) -> bool:
    """Does a tile for few rows take so much less time per column that it is worth a kernel?"""
    if few is None or many is None:
        return False
    per_column = [tile.cycles_per_k(core) / tile.columns for tile in (few, many)]
    return per_column[0] <= MAX_SHORT_TILE_TIME * per_column[1]


def shared_panel_width(
    likely: int, columns: int, lanes: int, registers: int, element_bytes: int, machine: Machine
) -> int:
    """The panel width for a dynamic number of rows, of which `likely` are probable: tiles for that
    many and tiles for many rows have the same panels (lower/variants.py). The least product of
    their cycles; each row tile reads its panel from L2."""

    def cycles(width: int, rows: int | None) -> float:
        tile = register_tile(rows, columns, lanes, registers, width, core=machine.core)
        loading = width * element_bytes / machine.cache_bytes_per_cycle[1]
        slowdown = max(1.0, loading / tile.cycles_per_k(machine.core))
        return slowdown * _cycles(tile, rows, columns, machine.core)

    widths = (n * lanes for n in range(1, MAX_TILE_VECTORS + 1))
    fitting = [width for width in widths if width - lanes < columns]
    return min(fitting, key=lambda width: cycles(width, likely) * cycles(width, None))


def group_panel_width(
    rows: int | None, columns: int, lanes: int, registers: int, core: Core = GENERIC.core
) -> int | None:
    """The panel width for a grouped convolution: it divides the group's output channels, so that no
    panel spans two groups. None: no vector width divides them."""
    width = lanes_dividing(columns, lanes)
    if width is None:
        return None
    widths = (width * n for n in range(1, MAX_TILE_VECTORS + 1) if columns % (width * n) == 0)
    best = (register_tile(rows, columns, width, registers, panel, core=core) for panel in widths)
    return min(best, key=lambda tile: _cycles(tile, rows, columns, core)).columns


def lanes_dividing(columns: int, lanes: int) -> int | None:
    """The vector width that divides `columns`: a power of two of at least half the lanes if one
    does, else the widest. None: no width above 1 divides them."""
    fitting = [n for n in range(2, lanes + 1) if columns % n == 0]
    return max(fitting, key=lambda n: (2 * n >= lanes and n & (n - 1) == 0, n), default=None)


def _cycles(tile: Tile, rows: int | None, columns: int | None, core: Core) -> float:
    cycles = _count(rows, tile.rows) * _count(columns, tile.columns) * tile.cycles_per_k(core)
    # the last term breaks ties in favour of fewer loads per FMA
    return cycles * (1 + TILE_OVERHEAD / tile.rows + 0.01 / tile.vectors)


def gemm_cycles_per_k(
    rows: int, columns: int, lanes: int, registers: int, core: Core = GENERIC.core
) -> float:
    """Cycles of one iteration of k, summed over all register tiles of the GEMM."""
    tile = register_tile(rows, columns, lanes, registers, core=core)
    return _count(rows, tile.rows) * _count(columns, tile.columns) * tile.cycles_per_k(core)


def _candidates(lanes: int, registers: int, panel: int | None, is_depthwise: bool) -> list[Tile]:
    widths = [panel // lanes] if panel else range(1, MAX_TILE_VECTORS + 1)
    found = []
    for vectors in widths:
        for rows in range(1, MAX_TILE_ROWS + 1):
            if _fits(rows, vectors, registers):
                found.append(Tile(rows, vectors, lanes, is_depthwise))
    return found


def _fits(rows: int, vectors: int, registers: int) -> bool:
    """Do the accumulators, the vectors of one k and one broadcast element fit in registers?"""
    return rows == 1 or rows * vectors + vectors + 1 <= registers - RESERVED_REGISTERS


def _count(extent: int | None, step: int) -> float:
    """Steps over an extent. For a dynamic one the mean over many extents, each scaled to the
    assumed one: a tile must waste little of a short dimension as well."""
    if extent is not None:
        return -(-extent // step)
    shares = (-(-n // step) / n for n in SAMPLED_EXTENTS)
    return ASSUMED_EXTENT * sum(shares) / len(SAMPLED_EXTENTS)


@dataclass(frozen=True)
class GemmShape:
    """N = `columns` and K = `depth` of a GEMM; `panel`: the panel width of a packed operand."""

    columns: int | None
    depth: int | None
    lanes: int
    panel: int | None = None


def common_row_tiles(
    rows: int | None, gemms: list[GemmShape], registers: int, core: Core = GENERIC.core
) -> list[Tile]:
    """A register tile for each of several fused GEMMs (attention), all with the same number of
    rows, that take the fewest cycles together."""

    def cycles(gemm: GemmShape, tile: Tile) -> float:
        columns = _count(gemm.columns, gemm.panel or tile.columns)
        return columns * _count(gemm.depth, 1) * tile.cycles_per_k(core) * (1 + 0.01 / tile.vectors)

    def best(gemm: GemmShape, count: int) -> Tile | None:
        widths = [-(-gemm.panel // gemm.lanes)] if gemm.panel else range(1, MAX_TILE_VECTORS + 1)
        fitting = [Tile(count, n, gemm.lanes) for n in widths if _fits(count, n, registers)]
        return min(fitting, key=lambda tile: cycles(gemm, tile), default=None)

    found: dict[float, list[Tile]] = {}
    for count in range(1, MAX_TILE_ROWS + 1):
        tiles = [tile for gemm in gemms if (tile := best(gemm, count)) is not None]
        if len(tiles) == len(gemms):
            each = sum(cycles(gemm, tile) for gemm, tile in zip(gemms, tiles))
            found.setdefault(_count(rows, count) * each * (1 + 0.01 / count), tiles)
    return found[min(found)]


def row_tiles_per_block(
    row_tiles: int | None,
    row_tile_bytes: int | None,
    panels_bytes: int | None,
    caches: tuple[int, ...],
) -> int | None:
    """Cache blocking of M: the row tiles that use one panel before the next panel is read.
    1 where all panels together fit in L2: rows are then read and written once. Where the rows
    exceed L2 by far and the panels fit in the last-level cache, as many as fit in L2: panels are
    read once per block. Else as many as fit in the last-level cache, since panels that are read
    again from memory cost more than rows read again from there. Blocks have equal sizes. None: one
    block."""
    if len(caches) < 2:
        return None
    if panels_bytes is not None and panels_bytes <= caches[1] * L2_FRACTION:
        return 1
    if row_tiles is None or row_tile_bytes is None:
        return None
    fitting_l2 = int(caches[1] * L2_FRACTION) // max(1, row_tile_bytes)
    panels_fit = panels_bytes is not None and panels_bytes <= caches[-1] * LLC_PANELS_FRACTION
    exceeds_l2 = row_tiles * row_tile_bytes >= 2 * caches[1]
    if panels_fit and fitting_l2 >= MIN_BLOCK_TILES and exceeds_l2:
        most = fitting_l2
    else:
        most = max(1, int(caches[-1] * LLC_ROWS_FRACTION) // max(1, row_tile_bytes))
    if most >= row_tiles:
        return None
    fewest = -(-row_tiles // most)
    sizes = [-(-row_tiles // blocks) for blocks in range(fewest, 2 * fewest + 1)]
    # the last block is padded to full size: prefer little padding, else take the least
    padding = {size: -row_tiles % size for size in reversed(sizes)}
    good = [size for size in sizes if padding[size] <= row_tiles * MAX_PADDED_TILES]
    return good[0] if good else min(sizes, key=lambda size: padding[size])


def is_compute_bound_depthwise(taps: int, vector_bytes: int, machine: Machine = GENERIC) -> bool:
    """Does a depthwise convolution take much longer to compute than to stream its feature map?"""
    moving = 2 * vector_bytes / machine.cache_bytes_per_cycle[-1]
    return taps / machine.core.fma_ports >= MIN_COMPUTE_TO_MOVE * moving


def depthwise_channel_blocks(
    panels: int,
    panel_bytes: int,
    touched_bytes: int,
    caches: tuple[int, ...],
    line_bytes: int = GENERIC.core.line_bytes,
) -> list[int]:
    """How many channel panels a depthwise convolution may process per block, the most first: the
    input rows that neighbouring windows reuse stay in L1 with their weights. A block is whole cache
    lines: a pixel has `panel_bytes` per panel, and a tile of one panel reads `touched_bytes`."""
    most = max(-(-line_bytes // panel_bytes), int(caches[0] * L1_WINDOW_FRACTION) // touched_bytes)
    counts = range(min(most, panels - 1), 0, -1)
    return [n for n in counts if panels % n == 0 and n * panel_bytes % line_bytes == 0]


def may_copy_per_thread(size_bytes: int, copies: int, cores: int, caches: tuple[int, ...]) -> bool:
    """Does a thread-private copy of `size_bytes` fit in L2, and do `copies` of them balance the
    threads' load?"""
    rounds = -(-copies // cores)
    is_balanced = rounds * cores <= copies * MAX_IMBALANCE
    return len(caches) > 1 and size_bytes <= caches[1] * L2_FRACTION and is_balanced


def prefetch_step(times: int, depth: int) -> int | None:
    """Iterations of k between two prefetches, where `times` row tiles go over a panel of `depth`
    iterations and prefetch the lines of the next panel: the smallest divisor of the depth, from
    MIN_PREFETCH_STEP on, that requests hardly more lines than there are. None: no such divisor."""

    def requested(step: int) -> float:  # relative to the lines of a panel
        requests = times * depth // step
        return -(-depth // requests) * requests / depth

    least = max(times, min(MIN_PREFETCH_STEP, depth))
    divisors = [n for n in range(least, depth + 1) if depth % n == 0]
    return min(divisors, key=lambda n: (requested(n) > MAX_PREFETCH_RATIO, n), default=None)


def partial_sums(sizes: list[int]) -> tuple[int, int] | None:
    """Where to split a sum over axes, innermost last, into partial sums: the axis, and how many of
    its iterations one partial sum takes. None: the sum is short, or no divisor fits."""
    if math.prod(sizes) < LONG_SUM_TERMS:
        return None
    inner, axis = 1, len(sizes) - 1
    while inner * sizes[axis] < PARTIAL_SUM_TERMS:
        inner, axis = inner * sizes[axis], axis - 1
    factors = range(-(-2 * PARTIAL_SUM_TERMS // inner), sizes[axis])
    factor = next((n for n in factors if sizes[axis] % n == 0), sizes[axis])
    return (axis, factor) if factor * inner < LONG_SUM_TERMS else None
