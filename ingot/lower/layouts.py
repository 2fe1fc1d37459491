"""Layout realisation: a kernel over logical indices → the kernel over physical indices.

In: a kernel whose stages are plain nests, and the layouts of its parameters. Out: parameters of
physical shape, every access mapped, and each nest's loops reordered to the memory order of its
output, so that the schedule rules find the contiguous axis innermost. Intermediates of an output's
rank take its layout, except copies of short rows (SHORT). Called by lower/kernels.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.arith import expr as arith
from ingot.graph.layouts import is_permutation, physical_index, physical_shape
from ingot.graph.types import Layout, TensorType
from ingot.loops import ir, visit
from ingot.loops.build import nest
from ingot.loops.ir import AxisKind, Block, Buffer, Kernel, Stmt
from ingot.support.stack import segmented

SHORT = 8  # channels; a padded copy of an image with fewer keeps the default layout (heuristic)
Layouts = Mapping[str, Layout]  # buffer name → layout


def realise_layouts(kernel: Kernel, layouts: Layouts, outputs: int) -> Kernel:
    """Map every buffer that has a layout; the last `outputs` parameters are the outputs."""
    if not layouts:
        return kernel
    known = dict(layouts) | _inner_layouts(kernel, layouts, outputs)
    body = visit.map_stmt(kernel.body, lambda s: _stmt(s, known), lambda e: _expr(e, known))
    params = tuple(_physical(p, known) for p in kernel.params)
    return ir.replace(kernel, params=params, body=_reordered(body))


def _inner_layouts(kernel: Kernel, layouts: Layouts, outputs: int) -> dict[str, Layout]:
    found = [layouts[p.name] for p in kernel.params[-outputs:] if p.name in layouts]
    by_rank = {len(x.axes): x for x in found if is_permutation(x)}
    made = [s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]
    copies = _default_layout_copies(kernel, layouts)
    return {
        b.name: by_rank[b.rank]
        for b in made
        if b.rank in by_rank and not (b.name in copies and _is_short(b, by_rank[b.rank]))
    }


def _is_short(buffer: Buffer, layout: Layout) -> bool:
    """Would the contiguous rows be shorter than a vector?"""
    size = arith.as_int(buffer.shape[layout.axes[-1][0]])
    return size is not None and size < SHORT


def _default_layout_copies(kernel: Kernel, layouts: Layouts) -> set[str]:
    """Buffers that a stage computes from parameters in the default layout only: a padded image."""
    params = {p.name for p in kernel.params} - layouts.keys()
    found: set[str] = set()
    for block in visit.blocks(kernel.body):
        loads = [x.buffer for x in visit.loads(block.body)]
        if block.init is None and loads and all(b.name in params for b in loads):
            found |= {s.buffer.name for s in visit.stores(block.body)}
    return found


def _physical(buffer: Buffer, layouts: Layouts) -> Buffer:
    layout = layouts.get(buffer.name)
    if layout is None:
        return buffer
    shape = physical_shape(TensorType(buffer.dtype, buffer.shape, layout))
    return ir.replace(buffer, shape=shape)


def _expr(e: ir.Expr, layouts: Layouts) -> ir.Expr:
    if isinstance(e, ir.Load) and e.buffer.name in layouts:
        index = physical_index(layouts[e.buffer.name], e.indices)
        return ir.replace(e, buffer=_physical(e.buffer, layouts), indices=index)
    return e


def _stmt(s: Stmt, layouts: Layouts) -> Stmt:
    match s:
        case ir.Store(buffer=buffer, indices=indices) if buffer.name in layouts:
            index = physical_index(layouts[buffer.name], indices)
            return ir.replace(s, buffer=_physical(buffer, layouts), indices=index)
        case ir.Alloc(buffer=buffer) if buffer.name in layouts:
            return ir.replace(s, buffer=_physical(buffer, layouts))
    return s


# --- loop order ---------------------------------------------------------------------------------


@segmented
def _reordered(s: Stmt) -> Stmt:
    match s:
        case ir.For():
            return _reordered_nest(s)
        case ir.Seq() | ir.Alloc():
            return visit.rebuild_stmt(s, _reordered, lambda e: e, lambda i: i)
    return s


def _reordered_nest(top: ir.For) -> Stmt:
    """for c: for y: for x: Y[y, x, c]  →  for y: for x: for c: Y[y, x, c]"""
    loops: list[str] = []
    inner: Stmt = top
    while isinstance(inner, ir.For):
        loops.append(inner.var)
        inner = inner.body
    if not isinstance(inner, Block) or [a.binding for a in inner.axes] != [*map(arith.Var, loops)]:
        return top
    stores = list(visit.stores(inner.body))
    if not stores or any(a.kind not in (AxisKind.SPATIAL, AxisKind.REDUCE) for a in inner.axes):
        return top
    positions = {i.name: n for n, i in enumerate(stores[0].indices) if isinstance(i, arith.Var)}
    last = len(stores[0].indices)  # the inner tile of a blocked axis is innermost
    axes = tuple(
        sorted(
            inner.axes,
            key=lambda a: (a.kind is AxisKind.REDUCE, positions.get(a.var, last)),
        )
    )
    names = iter([a.binding.name for a in axes])  # type: ignore[attr-defined]
    block = inner
    return nest(axes, lambda bound: ir.replace(block, axes=bound), lambda _: next(names))
