"""storage_align: pad the stride of a dimension to a multiple of a factor, plus an offset.

    Y: f32[64, 64]   →   storage_align("Y", 0, 32, 8)   →   Y: f32[64, 72], rows 72 = 2·32 + 8 apart

Elements at a stride of a power of two share few cache sets or memory banks; an odd stride spreads
them. Only addresses change, so it is legal for every intermediate; legalize keeps the stride where
it shrinks the buffer to a tile.
"""

from __future__ import annotations

from ingot.loops import dependences, ir, visit
from ingot.loops.alignment import ANNOTATION, Align
from ingot.loops.ir import Kernel
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.primitives.base import Result, put, with_body
from ingot.schedule.primitives.set_scope import intermediate
from ingot.schedule.show import buffer_error


def storage_align(kernel: Kernel, buffer: str, dim: int, factor: int, offset: int = 0) -> Result:
    what = f"storage_align({buffer!r}, {dim}, {factor}, {offset})"
    old = intermediate(kernel, buffer, what)
    if not 0 <= dim < old.rank - 1:
        why = f"dimension {dim} of {old.rank} has no stride to change"
        hint = "a dimension before the last: that one's stride is 1"
        raise buffer_error(kernel, old, what, why, hint)
    if factor < 1 or not 0 <= offset < factor:
        why = f"the offset {offset} is not in range(0, {factor})"
        raise buffer_error(kernel, old, what, why, "for instance a factor of 32 and an offset of 8")
    shape = Align(dim, factor, offset).shape(old.shape)
    if shape is None:
        why = f"no size of dimension {dim + 1} gives that stride"
        raise buffer_error(kernel, old, what, why, "align an inner dimension first")
    shape = tuple(Analyzer(kernel).simplify(e) for e in shape)
    new = kernel
    for block in dependences.writers(kernel.body, buffer):
        annotations = {**dict(block.annotations), f"{ANNOTATION}{buffer}": (dim, factor, offset)}
        new = put(new, block, ir.replace(block, annotations=tuple(sorted(annotations.items()))))
    body = visit.replace_buffers(new.body, {buffer: ir.replace(old, shape=shape)})
    return with_body(kernel, body), []
