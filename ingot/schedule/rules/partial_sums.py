"""Partial sums: a long float sum is split into chunks of k, each accumulated in registers.

    for tile: for k_outer: for k_inner: partial += …
                           total += partial

The rounding error of one accumulator grows with its number of terms; with chunks of c terms, it is
that of c terms plus that of n / c totals. The total stays in memory. Used by contraction.py.
"""

from __future__ import annotations

from ingot.cost import contraction as cost
from ingot.schedule import reducers
from ingot.schedule.handles import LoopRef
from ingot.schedule.rules.block_info import BlockInfo, extent
from ingot.schedule.rules.elementwise import vectorize_and_unroll
from ingot.schedule.schedule import Schedule
from ingot.support import knobs
from ingot.target import Target


def split_partial_sums(
    sch: Schedule, target: Target, info: BlockInfo, reduced: list[LoopRef]
) -> list[LoopRef]:
    """The loops of the sum; if it is long, the first is the loop over its chunks."""
    sizes = [extent(sch, loop) for loop in reduced]
    if not knobs.current().partial_sums or None in sizes or not _adds_floats(info):
        return reduced
    chunking = cost.partial_sums([n for n in sizes if n is not None])
    if chunking is None:
        return reduced
    with sch.attempt():
        return _split(sch, target, info, reduced, *chunking)
    return reduced


def _adds_floats(info: BlockInfo) -> bool:
    reducer = reducers.recognise(info.block)
    return isinstance(reducer, reducers.Reducer) and reducer.ops == ("add",) and info.dtype.is_float


def _split(
    sch: Schedule, target: Target, info: BlockInfo, reduced: list[LoopRef], position: int, step: int
) -> list[LoopRef]:
    """A chunk is `step` iterations of loop `position` and all iterations of the loops inside it."""
    before, inside = reduced[:position], reduced[position:]
    if step != extent(sch, inside[0]):
        outer, inner = sch.split(inside[0], None, step)
        before, inside = [*before, outer], [inner, *inside[1:]]
    chunks = sch.fuse(*before) if len(before) > 1 else before[0]
    sch.rfactor(chunks, within=True)
    vectorize_and_unroll(sch, target, info.ref)
    return [chunks, *inside]
