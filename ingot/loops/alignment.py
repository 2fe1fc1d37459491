"""Stride alignment of buffers. In: blocks annotated by `storage_align`. Out: padded shapes.

A buffer is dense and row-major, so a stride is changed by padding the next dimension. The
annotation stays on the blocks that write the buffer, for passes that shrink the buffer later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ingot.arith import expr as arith
from ingot.loops import visit
from ingot.loops.ir import Stmt

ANNOTATION = "storage_align "  # followed by the buffer's name


class Align(NamedTuple):
    """The stride of dimension `dim` is `offset` more than a multiple of `factor`."""

    dim: int
    factor: int
    offset: int

    def shape(self, shape: Sequence[arith.Expr]) -> tuple[arith.Expr, ...] | None:
        """The shape with the least padding of dimension `dim + 1`; None if no padding aligns it."""
        next_ = self.dim + 1
        inner = arith.product(list(shape[next_ + 1 :]))
        size, rest = arith.as_int(shape[next_]), arith.as_int(inner)
        if size is not None and rest is not None:
            for more in range(self.factor):
                if (size + more) * rest % self.factor == self.offset:
                    return (*shape[:next_], arith.Const(size + more), *shape[next_ + 1 :])
            return None
        if rest != 1:
            return None
        longer = shape[next_] + (self.offset - shape[next_]) % self.factor
        return (*shape[:next_], longer, *shape[next_ + 1 :])


def alignments(body: Stmt) -> dict[str, Align]:
    """The alignments that the blocks' annotations request, by buffer."""
    found: dict[str, Align] = {}
    for block in visit.blocks(body):
        for key, value in block.annotations:
            if key.startswith(ANNOTATION):
                found[key.removeprefix(ANNOTATION)] = Align(*value)
    return found
