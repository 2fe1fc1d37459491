"""Depthwise convolutions with large windows: the order in which tiles go over the map.

    for blocks of channels: for tiles of a row: for rows: for channels of the block

With all channels of a pixel in turn, the weights of a 5 × 5 window leave the first-level cache from
tile to tile, and each input comes from the second level once for every row of the window. Down the
map with few channels, what one row's windows read is still there for the next row's. Used by the
rule for contractions; tiles.py says how many channels.
"""

from __future__ import annotations

import math

from ingot import tiles
from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.loops.ir import Load
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.roles import Roles
from ingot.schedule.rules.stages import Stage, extent, index_vars
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target


def down_the_map(
    sch: Schedule, target: Target, stage: Stage, roles: Roles, tile: tiles.Tile,
    loops: list[LoopRef],
) -> list[LoopRef] | None:  # fmt: skip
    """`loops` are those around a tile, the last two over tiles of a row and over panels; the same
    in another order, or None where that brings nothing."""
    *outer, across, panel = loops
    taps = [arith.as_int(a.extent) for a in stage.reduced]
    panels = extent(sch, panel)
    if not tile.is_apart or not outer or panels is None or None in taps:
        return None
    if not knobs.current().windows or sum(n != 1 for n in taps) < 2:
        return None
    sizes = {a.var: n for a, n in zip(stage.reduced, taps) if n is not None}
    assert roles.rows is not None
    touched = sum(_span(x, sizes | {roles.rows.var: tile.rows}) for x in stage.loads)
    size = stage.dtype.storage_bytes
    count = tiles.window_panels(
        panels, tile.columns * size, math.prod(sizes.values()), touched * tile.columns * size,
        tile.lanes * size, target.caches,
    )  # fmt: skip
    if count is None:
        return None
    blocks, within = sch.split(panel, None, count)
    return [*outer[:-1], blocks, across, outer[-1], within]


def _span(load: Load, sizes: dict[str, int]) -> int:
    """How many elements of a buffer a tile touches for each lane."""
    total = 1
    for index in load.indices:
        moves = {v: coefficient(index, v) for v in index_vars(index) & sizes.keys()}
        steps = {v: arith.as_int(step) for v, step in moves.items() if step is not None}
        total *= 1 + sum(abs(step or 0) * (sizes[v] - 1) for v, step in steps.items())
    return total
