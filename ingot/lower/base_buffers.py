"""Kernels over base buffers: a parameter that is a view becomes the whole buffer, with offsets.

In: a kernel and the regions of its parameters (graph/views.py). Out: the kernel over base buffers.
Programs, memory plans and verifiers then see one buffer, written by several launches. Called by
lower/kernels.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.graph.layouts import physical_shape
from ingot.graph.views import Region
from ingot.loops import ir, visit
from ingot.loops.ir import Kernel


@dataclass(frozen=True)
class PlacedKernel:
    """A kernel over base buffers, and the values of the sizes that are its output offsets. Kernels
    that differ only in offsets are then equal and can be deduplicated."""

    kernel: Kernel
    offsets: Mapping[str, int]


def in_base_buffers(kernel: Kernel, regions: Mapping[str, Region]) -> PlacedKernel:
    """The kernel with each parameter that has a region replaced by its base buffer."""
    written = visit.written(kernel.body)
    bases: dict[str, ir.Buffer] = {}
    begins: dict[str, list[arith.Expr]] = {}
    offsets: dict[str, int] = {}
    sizes: list[ir.Size] = []
    for p in kernel.params:
        if p.name not in regions:
            continue
        base = bases[p.name] = ir.replace(p, shape=physical_shape(regions[p.name].base.tensor))
        begins[p.name] = [arith.Const(n) for n in regions[p.name].offsets]
        for d, n in enumerate(regions[p.name].offsets):
            highest = arith.as_int(base.shape[d] - p.shape[d])
            if n and highest is not None and p.name in written:
                size = ir.Size(f"{p.name}_at_{d}", 0, highest)
                begins[p.name][d] = arith.Var(size.name)
                offsets[size.name] = n
                sizes.append(size)
    params = tuple(bases.get(p.name, p) for p in kernel.params)
    body = _offset_accesses(kernel.body, bases, begins) if bases else kernel.body
    made = ir.replace(kernel, params=params, body=body, sizes=(*kernel.sizes, *sizes))
    return PlacedKernel(made, offsets)


def _offset_accesses(
    body: ir.Stmt, bases: Mapping[str, ir.Buffer], begins: Mapping[str, list[arith.Expr]]
) -> ir.Stmt:
    def indices(x: ir.Load | ir.Store) -> tuple[arith.Expr, ...]:
        pairs = zip(x.indices, begins[x.buffer.name])
        return tuple(i if arith.is_const(n, 0) else i + n for i, n in pairs)

    def on_expr(e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Load) and e.buffer.name in bases:
            return ir.replace(e, buffer=bases[e.buffer.name], indices=indices(e))
        return e

    def on_stmt(s: ir.Stmt) -> ir.Stmt:
        if isinstance(s, ir.Store) and s.buffer.name in bases:
            return ir.replace(s, buffer=bases[s.buffer.name], indices=indices(s))
        return s

    return visit.map_stmt(body, on_stmt, on_expr)
