"""Makes composite sizes of a kernel its own size parameters.

    x: f32[B * ((T + 89) // 270) - B * 3, 256]   →   x: f32[n0, 256]; launched with n0 = B * (…) - …

A size expression such as the length after several convolutions is passed by the launch. Inside the
kernel it is a plain, non-negative number: proofs about loops and accesses are short, and kernels
that differ only in how a size is computed become equal. It applies where every dynamic dimension is
indexed by an axis of that extent, so that no relation between two sizes is needed; a window, a
slice or a guard keeps the kernel as it is. Called with merge_axes; the launch gets the expressions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from ingot.arith import expr as arith
from ingot.arith.bounds import bounds_of
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.ir import Block, Buffer, Kernel, Stmt

PLAIN = (ir.Seq, ir.Alloc, ir.For, ir.Block, ir.Store, ir.Let)
MAX_DIVISOR = 64  # largest divisor of a size that is passed on; heuristic
Sizes = tuple[tuple[str, arith.Expr], ...]  # new size parameters, with their values


@lru_cache(maxsize=1024)
def abstract_sizes(kernel: Kernel) -> tuple[Kernel, Sizes]:
    """The kernel over sizes of its own, and their values in terms of the old ones."""
    dims = dict.fromkeys(d for d in _dims(kernel) if arith.free_vars(d))
    if all(isinstance(d, arith.Var) for d in dims) or not _is_plain(kernel):
        return kernel, tuple((size.name, arith.Var(size.name)) for size in kernel.sizes)
    taken = {size.name for size in kernel.sizes} | _names(kernel)
    names = {d: d.name if isinstance(d, arith.Var) else _fresh(taken) for d in dims}
    made = [_size(kernel, names[d], d) for d in dims]
    return _rewritten(kernel, names, made), tuple((names[d], d) for d in dims)


def _dims(kernel: Kernel) -> Iterator[arith.Expr]:
    """The dimensions of all buffers and the extents of all axes."""
    for buffer in _buffers(kernel):
        yield from buffer.shape
    for block in visit.blocks(kernel.body):
        yield from (a.extent for a in block.axes)


def _buffers(kernel: Kernel) -> list[Buffer]:
    inside = [s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]
    return [*kernel.params, *inside]


def _is_plain(kernel: Kernel) -> bool:
    """Do sizes occur only as dimensions, each indexed by an axis of that extent?"""
    sizes = {size.name for size in kernel.sizes}
    stmts = list(visit.walk_stmts(kernel.body))
    if not all(isinstance(s, PLAIN) for s in stmts):
        return False
    blocks = [s for s in stmts if isinstance(s, Block)]
    return all(block.where is None and _indexes_plainly(block, sizes) for block in blocks)


def _indexes_plainly(block: Block, sizes: set[str]) -> bool:
    dynamic = {a.var: a.extent for a in block.axes if arith.free_vars(a.extent)}
    inside = ir.seq(block.init, block.body)
    values = (i for e in visit.all_exprs(inside) for i in visit.own_indices(e))
    if any(visit.index_vars(i) & sizes for i in values):
        return False
    accesses: list[ir.Load | ir.Store] = [*visit.loads(inside), *visit.stores(inside)]
    return all(
        _is_whole(i, n, dynamic, sizes) for x in accesses for i, n in zip(x.indices, x.buffer.shape)
    )


def _is_whole(
    index: arith.Expr, dim: arith.Expr, dynamic: Mapping[str, arith.Expr], sizes: set[str]
) -> bool:
    """Does the index run over the whole dimension, or does it have nothing to do with sizes?"""
    if isinstance(index, arith.Var) and index.name in dynamic:
        return dynamic[index.name] == dim
    return not visit.index_vars(index) & (dynamic.keys() | sizes)


def _size(kernel: Kernel, name: str, value: arith.Expr) -> ir.Size:
    """The new parameter: what is known of its value."""
    if isinstance(value, arith.Var):
        return next(size for size in kernel.sizes if size.name == value.name)
    known = {size.name: Interval(size.low, size.high) for size in kernel.sizes}
    found = bounds_of(value, known)
    likely = {size.name: size.likely for size in kernel.sizes if size.likely is not None}
    divisor = next((n for n in range(MAX_DIVISOR, 1, -1) if _divides(n, value, kernel)), 1)
    low = max(0, found.low or 0)
    return ir.Size(name, low, found.high, divisor, arith.assumed(value, likely))


def _divides(number: int, value: arith.Expr, kernel: Kernel) -> bool:
    scaled = {size.name: arith.Var(size.name) * size.divisor for size in kernel.sizes}
    known = {size.name: Interval(0, None) for size in kernel.sizes}
    return arith.is_const(simplify(arith.substitute(value, scaled) % number, known), 0)


def _names(kernel: Kernel) -> set[str]:
    buffers = {b.name for b in _buffers(kernel)}
    loops = {s.var for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For)}
    return buffers | loops | {a.var for b in visit.blocks(kernel.body) for a in b.axes}


def _fresh(taken: set[str]) -> str:
    name = next(n for i in itertools.count() if (n := f"n{i}") not in taken)
    taken.add(name)
    return name


def _rewritten(kernel: Kernel, names: Mapping[arith.Expr, str], sizes: Sequence[ir.Size]) -> Kernel:
    def dim(d: arith.Expr) -> arith.Expr:
        return arith.Var(names[d]) if d in names else d

    def on_stmt(s: Stmt) -> Stmt:
        match s:
            case ir.For():
                return ir.replace(s, stop=dim(s.stop))
            case ir.Block():
                return ir.replace(
                    s, axes=tuple(ir.replace(a, extent=dim(a.extent)) for a in s.axes)
                )
            case ir.Alloc():
                return ir.replace(s, buffer=buffers[s.buffer.name])
        return s

    buffers = {b.name: ir.replace(b, shape=tuple(map(dim, b.shape))) for b in _buffers(kernel)}
    body = visit.replace_buffers(visit.map_stmt(kernel.body, on_stmt), buffers)
    params = tuple(buffers[p.name] for p in kernel.params)
    return ir.replace(kernel, params=params, sizes=tuple(sizes), body=body)
