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

MAX_UNROLL_TAPS = 31  # rows of a window that are unrolled, at most; heuristic
MAX_LANE_STRIDE = 2  # columns from lane to lane: two loads and a shuffle make such a vector
MIN_LANES = 4  # of the narrower vectors that are tried; heuristic
MAX_VECTORS = 4  # vectors of a tile's row, at most; heuristic
# Copied bytes from which the first are in L1 when they are read: with fewer, loads wait for the
# store buffer (64 stores on Zen 4). Measured: four 7 x 7 maps at a time are 10 % faster than one.
COPIED_BYTES = 2048
# FMAs of a map that a core overlaps with those of the next one (reorder buffers have 224 to 512
# instructions). Measured, 7 x 7 maps, two in a tile: windows of 3 x 3 are 8 % slower (63 FMAs), of
# 5 x 5 are 6 % faster (175).
OVERLAPPED_FMAS = 128


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
    channels = c.outer[0]  # the loop over a batch: its iterations share no operand
    together = _maps_per_tile(window, tile, target)
    together = together if channels is not None and channels % together == 0 else 1
    count = _maps_per_copy(window, tile, channels, c.dtype.storage_bytes, target.cores, together)
    return [
        ContractionPlan(
            "depthwise_rows", c.rows, c.lanes, k if len(k) > 1 else (), tile,
            blocking=Blocking("maps", (count, together)),
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
    """The register tile with the fewest cycles; of equals, the one with narrower vectors."""
    return min(_tiles(window, dtype, target), key=lambda t: _map_cycles(window, t, dtype, target))


def _fits(window: MapWindow, dtype: DType, target: Target) -> bool:
    """Are windows and maps of sizes that this algorithm is for?"""
    if target.lanes(dtype) < MIN_LANES or 1 in window.sizes:
        return False
    is_window = window.taps != (1, 1) and window.taps[0] <= MAX_UNROLL_TAPS
    is_window = is_window and window.strides[1] <= MAX_LANE_STRIDE
    copied = math.prod(window.span(axis, window.sizes[axis]) for axis in (0, 1))
    room = target.caches[min(1, len(target.caches) - 1)] * cost.L2_FRACTION
    return is_window and copied * dtype.storage_bytes <= room


def _tiles(window: MapWindow, dtype: DType, target: Target) -> Iterator[Tile]:
    full, most = target.lanes(dtype), _most_accumulators(window, target)
    for lanes in (full // 2, full):
        for vectors in range(1, MAX_VECTORS + 1) if lanes >= MIN_LANES else ():
            for rows in range(min(most // vectors, window.sizes[0]), 0, -1):
                yield Tile(rows, vectors, lanes)


def _most_accumulators(window: MapWindow, target: Target) -> int:
    """The weights of a window's column stay in registers, or half of the registers accumulate."""
    registers = target.vector_registers
    return max(registers - cost.RESERVED_REGISTERS - window.taps[0], registers // 2)


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
    latency = taps * core.fma_latency_cycles / _maps_per_tile(window, tile, target)
    cycles = max(fmas / core.fma_ports, loads / core.load_ports, latency)
    # the last term breaks ties in favour of fewer instructions
    return cycles + 0.01 * tile.rows * taps * tile.vectors


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


def _maps_per_tile(window: MapWindow, tile: Tile, target: Target) -> int:
    """Two maps share a tile where the sums of one are too few to hide the latency of an FMA."""
    core, sums = target.machine.core, tile.rows * tile.vectors
    is_latency_bound = sums < core.fma_ports * core.fma_latency_cycles
    is_long = sums * math.prod(window.taps) > OVERLAPPED_FMAS
    fits = 2 * sums <= _most_accumulators(window, target)
    return 2 if is_latency_bound and is_long and fits else 1


def _maps_per_copy(
    window: MapWindow, tile: Tile, channels: int | None, element_bytes: int, cores: int, step: int
) -> int:
    """Maps that a thread copies before it convolves them: a divisor of the channels, a multiple of
    `step`."""
    rows = -(-window.sizes[0] // tile.rows) * tile.rows
    map_bytes = window.span(0, rows) * window.span(1, window.sizes[1]) * element_bytes
    if channels is None:
        return step
    most = min(COPIED_BYTES // map_bytes, channels // (4 * cores))
    counts = range(most - most % step, step, -step)
    return next((n for n in counts if channels % n == 0), step)


def _map_window(c: Contraction) -> tuple[MapWindow, tuple[int, ...]] | None:
    """The window over a row-major map, and the order of its reduce axes: the columns of the window,
    then its rows. None where the map is channels-last, so that the weights differ from lane to
    lane, or where a size is dynamic."""
    if c.window is None or c.window.sliding is None or c.rows is None:
        return None
    weights = [load for load in c.window.loads if load != c.window.sliding]
    if any(c.lanes in dict(strides) for load in weights for strides in load):
        return None
    found = [_along(c, axis) for axis in (c.rows, c.lanes)]
    rows, columns = c.extents[c.rows], c.extents[c.lanes]
    if rows is None or columns is None or found[0] is None or found[1] is None:
        return None
    (taps_y, stride_y, gap_y, down), (taps_x, stride_x, gap_x, across) = found[0], found[1]
    others = tuple(axis for axis in c.k if axis not in (*down, *across))
    if any(c.extents[axis] != 1 for axis in others) or c.batch_loops != 1:
        return None  # a sum over channels, or no loop over them
    window = MapWindow((rows, columns), (taps_y, taps_x), (stride_y, stride_x), (gap_y, gap_x))
    return window, (*others, *across, *down)


def _along(c: Contraction, axis: int) -> tuple[int, int, int, tuple[int, ...]] | None:
    """Taps, stride and dilation of the window along a spatial axis, and its reduce axis, if there
    are several taps."""
    assert c.window is not None and c.window.sliding is not None
    steps = next((dict(strides) for strides in c.window.sliding if axis in dict(strides)), {})
    inner = tuple(a for a in steps if a != axis and c.extents[a] != 1)
    taps = c.extents[inner[0]] if inner else 1
    is_plain = len(inner) <= 1 and all(a in c.k and steps[a] > 0 for a in inner)
    if taps is None or not is_plain or steps.get(axis, 0) < 1:
        return None
    return taps, steps[axis], steps[inner[0]] if inner else 1, inner
