"""Decide: attention's two GEMMs, whose register tiles have the same rows.

In: both Contractions and the target. Out: a plan for each. The scores of a row tile go from the
first GEMM through the softmax to the second.
"""

from __future__ import annotations

from ingot.cost import contraction as cost
from ingot.cost.gemm import k_unroll, packed_width
from ingot.cost.plan import ContractionPlan, Packing
from ingot.cost.shape import Contraction
from ingot.cost.tile import Tile
from ingot.target import Target


def decide_attention(gemms: list[Contraction], target: Target) -> list[ContractionPlan]:
    shapes = [_shape(c, target) for c in gemms]
    tiles = cost.common_row_tiles(
        gemms[-1].row_count, shapes, target.vector_registers, target.machine.core
    )
    return [_plan(c, target, shape, tile) for c, shape, tile in zip(gemms, shapes, tiles)]


def _shape(c: Contraction, target: Target) -> cost.GemmShape:
    lanes, panel = target.lanes(c.dtype), c.operand.panel
    lanes = lanes if c.columns is None or panel else min(lanes, c.columns)
    return cost.GemmShape(c.columns, c.k_extents[-1], lanes, panel)


def _plan(c: Contraction, target: Target, shape: cost.GemmShape, best: Tile) -> ContractionPlan:
    width, lanes = shape.panel or best.columns, target.lanes(c.dtype)
    is_split = width > lanes and width % lanes == 0
    tile = Tile(best.rows, width // lanes if is_split else 1, lanes if is_split else width)
    packing = None if shape.panel is None else Packing("given", width)
    if packing is None and packed_width(c, target, width) is not None:
        packing = Packing("kernel", width)
    unroll = k_unroll(tile.rows, c.k_extents[-1])
    return ContractionPlan(
        "attention", c.rows, c.lanes, c.k_order, tile, packing, k_unroll=unroll, tail="pad"
    )
