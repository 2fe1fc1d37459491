"""Makes the extents of loops a kernel's own size parameters, where they are a size plus a number.

    x: f32[n, H, W, 3], y: f32[n, H - 2, W - 2, 10]; loops over H - 2 and W - 2
    →  x: f32[n, h + 2, w + 2, 3], y: f32[n, h, w, 10]; launched with h = H - 2, w = W - 2

The product of two extents is then one term, h * w, and not H * W - H * 2 - W * 2 + 4, in which the
checks of a schedule find no factor: fused loops of a convolution without padding were not proved to
write distinct elements, and stayed serial. In: a kernel. Out: the kernel, and the values of its
sizes. Called with merge_axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.ir import Kernel
from ingot.lower.size_atoms import IndexRewriter, Sizes, fresh_names


@lru_cache(maxsize=1024)
def shift_sizes(kernel: Kernel) -> tuple[Kernel, Sizes]:
    """The kernel over the extents of its loops, and all its sizes' values."""
    offsets = _offsets(kernel)
    if not offsets:
        return kernel, tuple((size.name, arith.Var(size.name)) for size in kernel.sizes)
    names = dict(zip(offsets, fresh_names(kernel, "m")))
    made = _Shifted(kernel, {s: arith.Var(names[s]) - n for s, n in offsets.items()}).kernel()
    sizes = tuple(
        _size(s, names[s.name], offsets[s.name]) if s.name in offsets else s for s in kernel.sizes
    )
    values = tuple(
        (names.get(s.name, s.name), arith.Var(s.name) + offsets.get(s.name, 0))
        for s in kernel.sizes
    )
    return ir.replace(made, sizes=sizes), values


def _offsets(kernel: Kernel) -> dict[str, int]:
    """The least offset of each size in extents, if it is not 0: of a padded copy and a window over
    it, the window's."""
    found: dict[str, set[int]] = {}
    for block in visit.blocks(kernel.body):
        for axis in block.axes:
            size, offset = _size_and_offset(axis.extent)
            if size is not None:
                found.setdefault(size, set()).add(offset)
    least = {s.name: min(found[s.name]) for s in kernel.sizes if s.name in found}
    return {
        s.name: least[s.name]
        for s in kernel.sizes
        if least.get(s.name) and s.divisor == 1 and s.low + least[s.name] >= 0
    }


def _size_and_offset(extent: arith.Expr) -> tuple[str | None, int]:
    """(H, c) for an extent H + c; (H, q·c) for a quotient (H + p) // q + c: (H + q·c + p) // q"""
    match extent:
        case arith.Sub(a=arith.FloorDiv() as quotient, b=arith.Const(value=less)):
            name, divisor = _quotient(quotient)
            return name, -less * divisor
        case arith.Add(a=arith.FloorDiv() as quotient, b=arith.Const(value=more)):
            name, divisor = _quotient(quotient)
            return name, more * divisor
        case arith.FloorDiv():
            return _quotient(extent)[0], 0
    return _linear(extent)


def _quotient(e: arith.FloorDiv) -> tuple[str | None, int]:
    """(H, q) for (H + p) // q"""
    (name, _), divisor = _linear(e.a), arith.as_int(e.b) or 0
    return (name, divisor) if divisor > 0 else (None, 0)


def _linear(e: arith.Expr) -> tuple[str | None, int]:
    names = arith.free_vars(e)
    if len(names) != 1 or arith.opaques(e):
        return None, 0
    (name,) = names
    stride, offset = coefficient(e, name), arith.as_int(simplify(e - arith.Var(name)))
    is_shift = stride is not None and arith.is_const(stride, 1) and offset is not None
    return (name, offset or 0) if is_shift else (None, 0)


def _size(size: ir.Size, name: str, offset: int) -> ir.Size:
    high = None if size.high is None else size.high + offset
    likely = None if size.likely is None else size.likely + offset
    return ir.Size(name, size.low + offset, high, 1, likely)


class _Shifted(IndexRewriter):
    """Sizes replaced in all indices of a kernel."""

    def __init__(self, kernel: Kernel, values: Mapping[str, arith.Expr]):
        self.values = values
        super().__init__(kernel)

    def index(self, e: arith.Expr) -> arith.Expr:
        if not arith.free_vars(e) & self.values.keys() and not arith.opaques(e):
            return e
        made = arith.substitute(e, self.values, lambda inside: ir.index_of(self.node(inside)))
        return simplify(made)
