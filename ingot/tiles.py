"""THE cost model of contractions: sizes, element type and target → register tile, panels, blocks.

Asked by passes/choose_layouts.py, whose answer is the layout of the packed operand, and by the
schedule rules, which read the panel off that layout and ask for what is left. Plain arithmetic on
the target's description; nothing here knows a shape or a CPU by name.

A tile is `rows` × `vectors` accumulators. One step along the reduction loads `vectors` vectors of
the packed operand and `rows` numbers of the other, and multiplies all pairs:

    cycles of a step = max(rows · vectors / FMA_PORTS, (rows + vectors) / LOAD_PORTS, FMA_LATENCY,
                           instructions / ISSUE_WIDTH)

since an accumulator waits for its own last sum; instructions are the loads, the multiplications
and, in tiles too tall to have steps written out, those of the loop. In a depthwise convolution each
accumulator loads a vector of its own instead, and the rows share the weights. The best tile has the
fewest cycles for the whole product, the wasted rows and columns of the last tiles included.

`pace` says what a core is taken to do, for the prediction that exe.report() sets beside the time
measured: a kernel takes as long as its arithmetic on every port, or as moving its arrays once from
the nearest cache that holds them all, whichever is longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FMA_PORTS = 2
LOAD_PORTS = 2
ISSUE_WIDTH = 4  # instructions a cycle: what a core does for long, if it is not alone in it
LOOP_INSTRUCTIONS = 2  # of each step that is not written out: a sum, and a comparison with its jump
FMA_LATENCY = 4.2  # of four, and something comes between now and then
TILE_COST = 0.3  # of a row's cycles: what a tile loads for all its rows, and begins and ends
UNKNOWN = 6 * 43  # rows not known yet: many, and a multiple of nothing in particular
MAX_ROWS = 14
MAX_VECTORS = 6
SPARE_REGISTERS = 1  # the register allocator does not manage with none
MAX_SPARE = 0.02  # of all tiles of rows
PANELS_SHARE = 0.4  # of the same, for a whole operand in panels
BLOCK_SHARE = 0.5  # of the last-level cache, for the rows that are used again for each panel
NEAR_SHARE = 0.25  # of the same, for panels that are read again for each block of rows
LEAST_TILES = 8  # of such a block: each panel is used as often before the next one comes
WINDOW_SHARE = 0.35  # of the first-level cache, for what the windows of a few rows share
MOVE_WEIGHT = 2  # a window's arithmetic takes so much longer than moving its element, or is cheap
MAX_UNEVEN = 1.25  # the longest share of work, of the mean
LINE_BYTES = 64  # of the caches of every CPU we print for
MAX_ASKED = 1.1  # lines asked for, of those that are wanted
LEAST_FETCH_STEP = 8  # steps of a sum: a loop of two between fetches takes twice as long
STEP_ROWS = 8  # each may have an address of its own, and there are hardly more registers for those
LONG_SUM = 4096  # terms: of shorter ones the error is small, and parts cost more than they bring
PART_TERMS = 256  # at least: adding a part to its total costs as much as some ten terms
CLOCK_GHZ = 3.0  # of no machine in particular: predictions are to be right within a factor or two
LEVEL_BYTES_PER_CYCLE = (64, 32, 16)  # read and written, by one core; caches beyond are as the last
MEMORY_BYTES_PER_NS = 12.0  # all cores together


@dataclass(frozen=True)
class Tile:
    """`rows` times `vectors` vectors of `lanes`; `is_apart`: each result loads its own vector."""

    rows: int
    vectors: int
    lanes: int
    is_apart: bool = False

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def step_cycles(self) -> float:
        results = self.rows * self.vectors
        loads = (results if self.is_apart else self.rows) + self.vectors
        cycles = max(results / FMA_PORTS, loads / LOAD_PORTS, FMA_LATENCY)
        return cycles if self.is_apart else max(cycles, self._instructions / ISSUE_WIDTH)

    @property
    def _instructions(self) -> int:
        loop = LOOP_INSTRUCTIONS if self.rows > STEP_ROWS else 0
        return self.rows * self.vectors + self.rows + self.vectors + loop


@dataclass(frozen=True)
class Pace:
    """What one core does. A level: the bytes it holds (None: no end), bytes moved per ns."""

    flops_per_ns: float  # for each lane
    lanes: int
    levels: tuple[tuple[int | None, float], ...]


def pace(lanes: int, has_fma: bool, caches: tuple[int, ...]) -> Pace:
    """A multiply-add is two operations where there is one for both, else each takes a port."""
    rates = [LEVEL_BYTES_PER_CYCLE[min(i, len(LEVEL_BYTES_PER_CYCLE) - 1)] * CLOCK_GHZ
             for i in range(len(caches))]  # fmt: skip
    levels = (*zip(caches, rates), (None, MEMORY_BYTES_PER_NS))
    return Pace(FMA_PORTS * (2 if has_fma else 1) * CLOCK_GHZ, lanes, levels)


def may_write_out(rows: int) -> bool:
    """Are several steps of a sum better written out than gone through by a loop, for a tile of so
    many rows? A core that runs one thread has slots to spare for the loop's own instructions, one
    that runs two has not."""
    return 1 < rows <= STEP_ROWS


def register_tile(
    rows: int | None, columns: int | None, lanes: int, registers: int, panel: int | None = None,
    is_apart: bool = False,
) -> Tile:  # fmt: skip
    """The tile with the fewest cycles for `rows` × `columns` results; `panel` fixes its columns."""
    best, best_cycles = Tile(1, 1, lanes), float("inf")
    for tile in _candidates(lanes, registers, panel, is_apart):
        if panel is None and columns is not None and tile.columns - lanes >= columns:
            continue  # a vector of nothing
        cycles = _cycles(tile, rows, columns)
        if cycles < best_cycles:
            best, best_cycles = tile, cycles
    return best


def group_panel(rows: int | None, columns: int, lanes: int, registers: int) -> int | None:
    """The width of panels that divides the columns of a group, so that none reaches into the next;
    None where no vector does."""
    width = even_lanes(columns, lanes)
    if width is None:
        return None
    widths = (width * n for n in range(1, MAX_VECTORS + 1) if columns % (width * n) == 0)
    best = (register_tile(rows, columns, width, registers, panel) for panel in widths)
    return min(best, key=lambda tile: _cycles(tile, rows, columns)).columns


def even_lanes(columns: int, lanes: int) -> int | None:
    """Lanes of vectors that fill the columns; a power of two of half the lanes or more if one does,
    else as many as can be."""
    fitting = [n for n in range(2, lanes + 1) if columns % n == 0]
    return max(fitting, key=lambda n: (2 * n >= lanes and n & (n - 1) == 0, n), default=None)


def _cycles(tile: Tile, rows: int | None, columns: int | None) -> float:
    cycles = _count(rows, tile.rows) * _count(columns, tile.columns) * tile.step_cycles
    # of two as fast, the one that loads less for each result
    return cycles * (1 + TILE_COST / tile.rows + 0.01 / tile.vectors)


def product_cycles(rows: int, columns: int, lanes: int, registers: int) -> float:
    """Of one step along the reduction, for all results together."""
    tile = register_tile(rows, columns, lanes, registers)
    return _count(rows, tile.rows) * _count(columns, tile.columns) * tile.step_cycles


def _candidates(lanes: int, registers: int, panel: int | None, is_apart: bool) -> list[Tile]:
    widths = [panel // lanes] if panel else range(1, MAX_VECTORS + 1)
    found = []
    for vectors in widths:
        for rows in range(1, MAX_ROWS + 1):
            if _fits(rows, vectors, registers):
                found.append(Tile(rows, vectors, lanes, is_apart))
    return found


def _fits(rows: int, vectors: int, registers: int) -> bool:
    """Accumulators, one step's vectors and one number live at once."""
    return rows == 1 or rows * vectors + vectors + 1 <= registers - SPARE_REGISTERS


def _count(extent: int | None, step: int) -> int:
    return -(-(UNKNOWN if extent is None else extent) // step)


@dataclass(frozen=True)
class Side:
    """One of several products that share a tile of rows; `panel` where its columns are laid out."""

    columns: int | None
    depth: int | None
    lanes: int
    panel: int | None = None


def common_tiles(rows: int | None, sides: list[Side], registers: int) -> list[Tile]:
    """A tile for each product, all of the same rows, with the fewest cycles together."""

    def cycles(side: Side, tile: Tile) -> float:
        columns = _count(side.columns, side.panel or tile.columns)
        return columns * _count(side.depth, 1) * tile.step_cycles * (1 + 0.01 / tile.vectors)

    def best(side: Side, count: int) -> Tile | None:
        widths = [-(-side.panel // side.lanes)] if side.panel else range(1, MAX_VECTORS + 1)
        may = [Tile(count, n, side.lanes) for n in widths if _fits(count, n, registers)]
        return min(may, key=lambda tile: cycles(side, tile), default=None)

    found: dict[float, list[Tile]] = {}
    for count in range(1, MAX_ROWS + 1):
        made = [tile for side in sides if (tile := best(side, count)) is not None]
        if len(made) == len(sides):
            each = sum(cycles(side, tile) for side, tile in zip(sides, made))
            found.setdefault(_count(rows, count) * each * (1 + 0.01 / count), made)
    return found[min(found)]


def row_tiles_per_block(
    row_tiles: int | None,
    row_tile_bytes: int | None,
    panels_bytes: int | None,
    caches: tuple[int, ...],
) -> int | None:
    """How many tiles of rows are gone through for one panel before the next panel comes. One where
    all panels together stay in the second-level cache: rows are then read and written in one go.
    As many as stay in that cache where all rows do not by far, but the panels stay in the last one:
    rows would come from there for every panel, and panels come once for each block. Else as many as
    stay in the last-level cache meanwhile: a row tile is read slowly enough for that, while a panel
    read again from memory is not. Blocks are of one size. None: all of them."""
    if len(caches) < 2:
        return None
    if panels_bytes is not None and panels_bytes <= caches[1] * PANELS_SHARE:
        return 1
    if row_tiles is None or row_tile_bytes is None:
        return None
    near = int(caches[1] * PANELS_SHARE) // max(1, row_tile_bytes)
    is_near = panels_bytes is not None and panels_bytes <= caches[-1] * NEAR_SHARE
    if is_near and near >= LEAST_TILES and row_tiles * row_tile_bytes >= 2 * caches[1]:
        most = near
    else:
        most = max(1, int(caches[-1] * BLOCK_SHARE) // max(1, row_tile_bytes))
    if most >= row_tiles:
        return None
    fewest = -(-row_tiles // most)
    sizes = [-(-row_tiles // blocks) for blocks in range(fewest, 2 * fewest + 1)]
    # the last block is filled up with tiles that nobody needs: hardly any, or as few as can be
    spare = {size: -row_tiles % size for size in reversed(sizes)}
    good = [size for size in sizes if spare[size] <= row_tiles * MAX_SPARE]
    return good[0] if good else min(sizes, key=lambda size: spare[size])


def is_large_window(taps: int, vector_bytes: int) -> bool:
    """Does it take a depthwise convolution much longer to compute than to move its map, which is
    fastest from end to end?"""
    moving = 2 * vector_bytes / LEVEL_BYTES_PER_CYCLE[-1]
    return taps / FMA_PORTS >= MOVE_WEIGHT * moving


def window_panels(
    panels: int, panel_bytes: int, touched_bytes: int, caches: tuple[int, ...]
) -> list[int]:
    """How many panels of channels a depthwise convolution may go down the map with, a tile wide,
    the most first: so many that what the windows of neighbouring rows share stays in the
    first-level cache, with their weights. Whole lines of a cache, where a pixel has `panel_bytes`
    in a panel; a tile of one reads `touched_bytes`."""
    most = max(-(-LINE_BYTES // panel_bytes), int(caches[0] * WINDOW_SHARE) // touched_bytes)
    counts = range(min(most, panels - 1), 0, -1)
    return [n for n in counts if panels % n == 0 and n * panel_bytes % LINE_BYTES == 0]


def may_copy_near(size_bytes: int, shares: int, cores: int, caches: tuple[int, ...]) -> bool:
    """Does a thread's own copy of so many bytes stay in the second-level cache, and have all
    threads about as many of those to do?"""
    rounds = -(-shares // cores)
    is_even = rounds * cores <= shares * MAX_UNEVEN
    return len(caches) > 1 and size_bytes <= caches[1] * PANELS_SHARE and is_even


def fetch_step(times: int, depth: int) -> int | None:
    """How many steps of a panel go by before some lines of the next panel are fetched, where a
    panel of that depth is gone through so many times: a divisor of the depth for which about as
    many lines are asked for as there are, small but no loop of hardly any step. None: no such
    divisor."""

    def asked(step: int) -> float:  # for each line that there is
        shares = times * depth // step
        return -(-depth // shares) * shares / depth

    least = max(times, min(LEAST_FETCH_STEP, depth))
    steps = [n for n in range(least, depth + 1) if depth % n == 0]
    return min(steps, key=lambda n: (asked(n) > MAX_ASKED, n), default=None)


def parts_of_sum(sizes: list[int]) -> tuple[int, int] | None:
    """Where a sum over axes, the last one innermost, is cut into parts: the axis and the steps of
    it that a part takes; all of them where they are not many. None: the sum is short, or nothing
    divides it."""
    if math.prod(sizes) < LONG_SUM:
        return None
    inside, place = 1, len(sizes) - 1
    while inside * sizes[place] < PART_TERMS:
        inside, place = inside * sizes[place], place - 1
    steps = range(-(-2 * PART_TERMS // inside), sizes[place])
    step = next((n for n in steps if sizes[place] % n == 0), sizes[place])
    return (place, step) if step * inside < LONG_SUM else None
