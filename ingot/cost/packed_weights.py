"""Decide: matrix products with weights of 2, 4 or 8 bits, which are decoded in registers.

    few rows    packed_rows:  the codes of a panel are decoded where they are used, for all rows
    many rows   packed_tiles: the codes of a block of k are decoded once, to scratch in the L1 cache

A code takes two instructions to decode and one FMA per row; with one row the loop waits for memory,
and it reads each panel from end to end. In: the numbers of rows and of panel columns, the target.
Out: a plan of the block that sums the products.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.cost.plan import Blocking, ContractionPlan, Packing
from ingot.cost.tile import Tile
from ingot.target import Target

# Registers of a tile besides its accumulators: words, masks, a code and a broadcast; heuristic
OTHER_REGISTERS = 8
MOST_VECTORS = 8  # of a panel: with a chain of FMAs each, 8 keep two ports busy; Tile.cycles_per_k
TILE_VECTORS = 4  # of a tile of several rows; heuristic
MAX_ROWS = 6  # of a tile; heuristic


def panel_columns(columns: int, target: Target) -> int:
    """Columns of a panel of packed weights: as many vectors as one row's tile has accumulators."""
    lanes = target.lanes(dtypes.f32)
    most = MOST_VECTORS if target.vector_registers >= 32 else MOST_VECTORS // 2
    vectors = 1
    while vectors < most and vectors * lanes < columns:
        vectors *= 2
    return vectors * lanes


def decide_packed(rows: int | None, panel: int, target: Target) -> ContractionPlan:
    """The plan for so many rows; None: it is a dynamic size."""
    lanes = min(target.lanes(dtypes.f32), panel)
    most = _most_rows(panel // lanes, target)
    if rows is not None and rows <= most:
        vectors = _vectors(panel // lanes, rows, target)
        tile, algorithm = Tile(rows, vectors, lanes), "packed_rows"
    else:
        vectors = min(TILE_VECTORS, panel // lanes)
        tile, algorithm = Tile(most, vectors, lanes), "packed_tiles"
    return ContractionPlan(
        algorithm, 0, 1, tile=tile, packing=Packing("given", panel), blocking=Blocking("panels"),
        tail="pad",
    )  # fmt: skip


def _vectors(available: int, rows: int, target: Target) -> int:
    """Vectors of a tile of so many rows, whose accumulators are in registers."""
    room = target.vector_registers - OTHER_REGISTERS
    while available > 1 and rows * available > room:
        available //= 2
    return available


def _most_rows(available: int, target: Target) -> int:
    room = target.vector_registers - OTHER_REGISTERS
    return max(1, min(MAX_ROWS, room // min(TILE_VECTORS, available)))
