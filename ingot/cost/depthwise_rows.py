"""Decide: depthwise convolutions of row-major maps (NCHW), with vector lanes along the columns.

    cycles of a tile = columns of the window · max(FMAs / ports, loads / ports, K · FMA latency)

A register tile is `rows` output rows of one vector of columns, or of a few. For each column of the
window (a serial loop) its K weights are broadcast once, and an input row is loaded once for all
output rows that it is part of: a load serves K FMAs. The input is a thread-private copy of the map
with its zero padding, with room for whole tiles, so that no tile has a guard. In: a Contraction and
the target, or the sizes of a convolution. Out: plans; whether a convolution should stay row-major
(passes/row_major_depthwise.py), which saves the relayouts before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ingot.cost import contraction as cost
from ingot.cost.plan import Blocking, ContractionPlan
from ingot.cost.shape import Contraction
from ingot.cost.tile import Tile
from ingot.dtypes import DType
from ingot.target import Target

MAX_UNROLL_TAPS = 16  # rows of a window that are unrolled, fewer than this; heuristic
MAX_LANE_STRIDE = 2  # columns from lane to lane: two loads and a shuffle make such a vector
MIN_LANES = 4  # of the narrower vectors that are tried; heuristic
MAX_VECTORS = 4  # vectors of a tile's row, at most; heuristic
# Copied bytes from which the first are in L1 when they are read: with fewer, loads wait for the
# store buffer (64 stores on Zen 4). Measured: four 7 x 7 maps at a time are 10 % faster than one.
COPIED_BYTES = 2048


@dataclass(frozen=True)
class MapWindow:
    """A window over one channel's map: output sizes, taps, strides, dilations; (rows, columns)."""

    sizes: tuple[int, int]
    taps: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]

    def input_rows(self, rows: int) -> int:
        """Distinct input rows that `rows` output rows depend on."""
        step, gap = self.strides[0], self.dilations[0]
        return len({r * step + t * gap for r in range(rows) for t in range(self.taps[0])})

    def span(self, axis: int, outputs: int) -> int:
        """Input elements along an axis from the first to the last that `outputs` depend on."""
        return (outputs - 1) * self.strides[axis] + (self.taps[axis] - 1) * self.dilations[axis] + 1


def decide_depthwise_rows(c: Contraction, target: Target) -> list[ContractionPlan]:
    found = _map_window(c)
    if found is None or not _fits(found[0], c.dtype, target):
        return []
    window, k = found
    tile = map_tile(window, c.dtype, target)
    channels = c.outer[0] if c.batch_loops == 1 else None
    count = _channels_per_copy(window, tile, channels, c.dtype.storage_bytes, target.cores)
    return [
        ContractionPlan(
            "depthwise_rows", c.rows, c.lanes, k if len(k) > 1 else (), tile,
            blocking=None if count == 1 else Blocking("channels_copied", (count,)),
            k_unroll=window.taps[0], tail="pad",
        )
    ]  # fmt: skip


def is_row_major_cheaper(window: MapWindow, channels: int, dtype: DType, target: Target) -> bool:
    """Is the row-major convolution estimated to be faster than the channels-last one together with
    the relayouts of its input and output?"""
    if not _fits(window, dtype, target):
        return False
    tile = map_tile(window, dtype, target)
    here = channels * _map_cycles(window, tile, dtype, target)
    return here < _channels_last_cycles(window, channels, dtype, target)


def map_tile(window: MapWindow, dtype: DType, target: Target) -> Tile:
    """The register tile with the fewest cycles; the narrower and simpler one of equals."""
    return min(_tiles(window, dtype, target), key=lambda t: _map_cycles(window, t, dtype, target))


def _fits(window: MapWindow, dtype: DType, target: Target) -> bool:
    """Are windows and maps of sizes that this algorithm is for?"""
    if target.lanes(dtype) < MIN_LANES or 1 in window.sizes:
        return False
    is_window = 1 not in window.taps and window.taps[0] < MAX_UNROLL_TAPS
    is_window = is_window and window.strides[1] <= MAX_LANE_STRIDE
    copied = math.prod(window.span(axis, window.sizes[axis]) for axis in (0, 1))
    room = target.caches[min(1, len(target.caches) - 1)] * cost.L2_FRACTION
    return is_window and copied * dtype.storage_bytes <= room


def _tiles(window: MapWindow, dtype: DType, target: Target) -> Iterator[Tile]:
    full, registers = target.lanes(dtype), target.vector_registers
    # the weights of a window's column stay in registers, or half of the registers accumulate
    most = max(registers - cost.RESERVED_REGISTERS - window.taps[0], registers // 2)
    for lanes in (full // 2, full):
        for vectors in range(1, MAX_VECTORS + 1) if lanes >= MIN_LANES else ():
            for rows in range(min(most // vectors, window.sizes[0]), 0, -1):
                yield Tile(rows, vectors, lanes)


def _map_cycles(window: MapWindow, tile: Tile, dtype: DType, target: Target) -> float:
    """Cycles for the map of one channel: its tiles, the copy of its input, its output."""
    rows, columns = window.sizes
    row_tiles, panels = -(-rows // tile.rows), -(-columns // tile.columns)
    steps = _passes(tile.lanes, dtype, target)
    full = target.lanes(dtype)
    copied = window.span(0, row_tiles * tile.rows) * -(-window.span(1, columns) // full)
    moved = copied * _passes(full, dtype, target) + rows * panels * tile.vectors * steps
    return row_tiles * panels * window.taps[1] * _tile_cycles(window, tile, dtype, target) + moved


def _tile_cycles(window: MapWindow, tile: Tile, dtype: DType, target: Target) -> float:
    """Cycles of a register tile for one column of the window. Each accumulator sums its K terms one
    after the other; a load that crosses a cache line counts twice."""
    core, taps = target.machine.core, window.taps[0]
    steps = tile.vectors * _passes(tile.lanes, dtype, target)
    crossing = 1 + tile.lanes * dtype.storage_bytes / core.line_bytes
    loads = window.input_rows(tile.rows) * steps * window.strides[1] * crossing + taps
    fmas = tile.rows * taps * steps
    return max(fmas / core.fma_ports, loads / core.load_ports, taps * core.fma_latency_cycles)


def _passes(lanes: int, dtype: DType, target: Target) -> int:
    """Cycles that a port takes for one vector."""
    return max(1, lanes * dtype.storage_bytes * 8 // target.machine.core.datapath_bits)


def _channels_last_cycles(window: MapWindow, channels: int, dtype: DType, target: Target) -> float:
    """The same for all channels, vectors along them (cost/depthwise.py), and both relayouts."""
    lanes, core = min(target.lanes(dtype), channels), target.machine.core
    (rows, columns), size = window.sizes, dtype.storage_bytes
    tile = cost.register_tile(
        columns, channels, lanes, target.vector_registers, is_depthwise=True, core=core
    )
    steps = _passes(lanes, dtype, target)
    tiles = rows * -(-columns // tile.rows) * -(-channels // tile.columns)
    copied = window.span(0, rows) * window.span(1, columns)
    compute = tiles * math.prod(window.taps) * tile.cycles_per_k(core) * steps
    copy = copied * -(-channels // lanes) * steps
    inputs = math.prod(n * s for n, s in zip(window.sizes, window.strides))
    moved_bytes = 2 * channels * size * (inputs + rows * columns)
    return compute + copy + moved_bytes / target.machine.cache_bytes_per_cycle[-1]


def _channels_per_copy(
    window: MapWindow, tile: Tile, channels: int | None, element_bytes: int, cores: int
) -> int:
    """Maps that a thread copies before it convolves them: a divisor of the channels."""
    rows = -(-window.sizes[0] // tile.rows) * tile.rows
    map_bytes = window.span(0, rows) * window.span(1, window.sizes[1]) * element_bytes
    if channels is None:
        return 1
    most = min(COPIED_BYTES // map_bytes, channels // (4 * cores))
    return next((n for n in range(most, 1, -1) if channels % n == 0), 1)


def _map_window(c: Contraction) -> tuple[MapWindow, tuple[int, ...]] | None:
    """The window over a row-major map, and the order of its reduce axes: the columns of the window,
    then its rows. None where the contraction is none, or a size is dynamic."""
    if c.window is None or c.window.sliding is None or c.rows is None:
        return None
    by_rows, by_lanes = (
        next((dict(strides) for strides in c.window.sliding if axis in dict(strides)), {})
        for axis in (c.rows, c.lanes)
    )
    extents = {axis: c.extents[axis] for axis in (*by_rows, *by_lanes, *c.k)}
    sizes = {axis: n for axis, n in extents.items() if n is not None}
    down, across = ([a for a in x if a in c.k and extents[a] != 1] for x in (by_rows, by_lanes))
    if len(down) != 1 or len(across) != 1 or len(sizes) < len(extents):
        return None  # along the lanes of a channels-last map no window slides
    if len(by_rows) != 2 or len(by_lanes) != 2 or min(*by_rows.values(), *by_lanes.values()) < 1:
        return None
    window = MapWindow(
        (sizes[c.rows], sizes[c.lanes]), (sizes[down[0]], sizes[across[0]]),
        (by_rows[c.rows], by_lanes[c.lanes]), (by_rows[down[0]], by_lanes[across[0]]),
    )  # fmt: skip
    others = tuple(axis for axis in c.k if axis not in (*down, *across))
    return window, (*others, *across, *down)
