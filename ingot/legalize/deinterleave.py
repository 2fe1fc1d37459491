"""Loads every second element by contiguous loads and a shuffle. A legalize pass.

    load(x[i], 4, stride 2)   →   shuffle(load(x[i], 4), load(x[i + 3], 4), lanes 0, 2, 5, 7)

A strided load is one load and one insertion for each lane. Both loads are within the elements that
the strided one spans, so they are in bounds where it is.
"""

from __future__ import annotations

from ingot.arith import expr as arith
from ingot.legalize.context import PassContext
from ingot.loops import ir, visit
from ingot.loops.ir import Expr, Kernel

MIN_LANES = 4  # with fewer, the insertions are as few as the two loads and the shuffle; heuristic


def deinterleave(kernel: Kernel, ctx: PassContext) -> Kernel:
    return ir.replace(kernel, body=visit.map_stmt(kernel.body, None, _from_contiguous))


def _from_contiguous(e: Expr) -> Expr:
    if not isinstance(e, ir.Load) or not arith.is_const(e.stride, 2) or not _has_form(e):
        return e
    (first,), width = e.indices, e.width
    low, high = (ir.Load(e.buffer, (i,), width) for i in (first, first + (width - 1)))
    picks = (*range(0, width, 2), *range(width + 1, 2 * width, 2))
    return ir.Shuffle(low, high, picks)


def _has_form(load: ir.Load) -> bool:
    """A bool is one bit in a register, not a byte to shuffle; registers have no addresses."""
    is_memory = load.buffer.scope != ir.REGISTER and not load.dtype.is_bool
    is_vector = load.width >= MIN_LANES and load.width % 2 == 0
    return is_memory and is_vector and load.mask is None


__all__ = ["deinterleave"]
