"""Decide: depthwise convolutions and other windows without operand reuse; blocks of channels.

In: a Contraction with a Window and the target. Out: plans, the preferred one first. With blocks of
few channels and rows inside, the input rows of one output row stay in L1 for the next.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ingot.cost import contraction as cost
from ingot.cost.gemm import innermost_k, register_tiled
from ingot.cost.plan import Blocking, ContractionPlan
from ingot.cost.shape import Contraction, Strides
from ingot.support import options
from ingot.target import Target

MAX_UNROLL_TAPS = 16  # taps of a window's row that are unrolled, fewer than this; heuristic


def decide_depthwise(c: Contraction, target: Target) -> list[ContractionPlan]:
    if c.window is None or c.is_column_sum:
        return []
    plans = register_tiled("depthwise", c, target)
    return [_with_channel_blocks(_with_unrolled_taps(plan, c), c, target) for plan in plans]


def _with_unrolled_taps(plan: ContractionPlan, c: Contraction) -> ContractionPlan:
    """Adjacent rows load the same vectors, one tap apart."""
    taps = innermost_k(plan, c)
    return replace(plan, k_unroll=taps) if taps is not None and taps < MAX_UNROLL_TAPS else plan


def _with_channel_blocks(plan: ContractionPlan, c: Contraction, target: Target) -> ContractionPlan:
    blocking = _channel_blocks(plan, c, target)
    return plan if blocking is None else replace(plan, blocking=blocking)


def _channel_blocks(plan: ContractionPlan, c: Contraction, target: Target) -> Blocking | None:
    """Blocks of channels, the input copied per block where that fits; None where they do not
    pay."""
    assert plan.tile is not None and c.window is not None and c.rows is not None
    taps = {axis: c.extents[axis] for axis in c.k}
    sizes = {axis: n for axis, n in taps.items() if n is not None}
    if plan.tile.rows == 1 or not c.outer or c.columns is None or len(sizes) != len(taps):
        return None
    if plan.packing is not None:
        return None  # a grouped convolution with packed weights
    if not options.current().has("depthwise_order") or sum(n != 1 for n in sizes.values()) < 2:
        return None
    size = c.dtype.storage_bytes
    panels = -(-c.columns // plan.tile.columns)
    touched = sum(_span(x, sizes | {c.rows: plan.tile.rows}) for x in c.window.loads)
    width = plan.tile.columns * size
    counts = cost.depthwise_channel_blocks(
        panels, width, touched * width, target.caches, target.machine.core.line_bytes
    )
    for n in counts:
        if _may_copy(c, target, n * width, panels // n):
            return Blocking("channels_copied", (n,))
    by_rows = _row_blocks(c, target, counts or [panels], width, panels)
    if by_rows is not None:
        return by_rows
    if counts and cost.is_compute_bound_depthwise(
        math.prod(sizes.values()), plan.tile.lanes * size, target.machine
    ):
        return Blocking("channels", (counts[0],))
    return None


def _row_blocks(
    c: Contraction, target: Target, counts: list[int], width: int, panels: int
) -> Blocking | None:
    """Blocks of rows too, where the copy of a whole map does not fit: one that widens the map would
    else be written to memory. The longest block that fits in L2 repeats the fewest rows."""
    window = c.window
    assert window is not None
    rows = c.outer[-1]
    if not window.widens or window.sliding is None or rows is None or len(window.down) != 1:
        return None
    for height in (n for n in range(rows, 1, -1) if rows % n == 0):
        for n in counts:
            if _may_copy(c, target, n * width, panels // n, height):
                return Blocking("rows_copied", (n, height))
    return None


def _may_copy(
    c: Contraction, target: Target, pixel_bytes: int, blocks: int, height: int | None = None
) -> bool:
    """May a thread pad the input once per block of channels (and of `height` rows)? `pixel_bytes`:
    of a pixel in one block of channels; `blocks`: per image."""
    window, images = c.window, c.outer[:-1]
    assert window is not None and c.rows is not None
    if window.sliding is None or not window.is_padded_copy or len(images) > 1 or None in images:
        return False
    extents = {axis: c.extents[axis] for axis in (*c.k, *window.down, c.rows)}
    sizes = {axis: n for axis, n in extents.items() if n is not None}
    if len(sizes) != len(extents):
        return False
    if height is not None:
        (down,) = window.down
        blocks, sizes = blocks * (sizes[down] // height), sizes | {down: height}
    pixels = _span(window.sliding, sizes)
    copies = blocks * math.prod(n for n in images if n is not None)
    return cost.may_copy_per_thread(pixels * pixel_bytes, copies, target.cores, target.caches)


def _span(load: Strides, sizes: dict[int, int]) -> int:
    """Elements of the buffer that a tile touches, per lane."""
    total = 1
    for strides in load:
        total *= 1 + sum(abs(n) * (sizes[axis] - 1) for axis, n in strides if axis in sizes)
    return total
