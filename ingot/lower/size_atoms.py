"""Makes rounded quotients of sizes a kernel's own size parameters.

    x: f32[n, (H + 1) // 2, 16], y: f32[n, (H + 3) // 4, 16]
    →  x: f32[n, h, 16], y: f32[n, (h + 1) // 2, 16]; launched with h = (H + 1) // 2

A network of strided convolutions divides a dynamic dimension again and again: inside a kernel only
the finest of the quotients of a dimension is needed, and the others follow from it,

    (H + r) // (q · d) = ((H + p) // q + (r - p) / q) // d     if q divides r - p,

so no relation between sizes is lost. Expressions are shorter, and kernels of several scales become
equal. In: a kernel. Out: the kernel, and the values of its sizes. Called with merge_axes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from ingot.arith import expr as arith
from ingot.arith.affine import coefficient
from ingot.arith.bounds import bounds_of
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.ir import Buffer, Expr, Kernel, Stmt
from ingot.support.stack import segmented

Sizes = tuple[tuple[str, arith.Expr], ...]  # size parameters, with their values


@dataclass(frozen=True)
class Quotient:
    """(size + offset) // divisor, with 0 <= offset < divisor or more."""

    size: str
    offset: int
    divisor: int

    @property
    def expr(self) -> arith.Expr:
        return (arith.Var(self.size) + self.offset) // self.divisor


@lru_cache(maxsize=1024)
def name_quotients(kernel: Kernel) -> tuple[Kernel, Sizes]:
    """The kernel over the finest quotients of its sizes, and all its sizes' values."""
    finest = _finest(kernel)
    if not finest:
        return kernel, tuple((size.name, arith.Var(size.name)) for size in kernel.sizes)
    names = dict(zip(finest, fresh_names(kernel, "q")))
    made = _Quotients(kernel, {size: (names[size], q) for size, q in finest.items()}).kernel()
    sizes = tuple(
        _size(kernel, names[s.name], finest[s.name].expr) if s.name in finest else s
        for s in kernel.sizes
    )
    values = tuple(
        (names[s.name], finest[s.name].expr) if s.name in finest else (s.name, arith.Var(s.name))
        for s in kernel.sizes
    )
    return ir.replace(made, sizes=sizes), values


def _finest(kernel: Kernel) -> dict[str, Quotient]:
    """For each size that occurs only in quotients, the one that the others follow from."""
    sizes = {size.name for size in kernel.sizes if size.divisor == 1}
    found: dict[str, set[Quotient]] = {}
    for index in dict.fromkeys(_all_indices(kernel)):
        _collect(index, sizes, found)
    finest = {}
    for size in (s.name for s in kernel.sizes):  # not in a set's order, which the hash seed decides
        if size in sizes and size in found:
            best = min(found[size], key=lambda q: (q.divisor, q.offset))
            if all(_follows(q, best) for q in found[size]):
                finest[size] = best
    return finest


def _collect(index: arith.Expr, sizes: set[str], found: dict[str, set[Quotient]]) -> None:
    """Add the index's quotients; a size that occurs in another way is removed from `sizes`."""
    todo = [index]
    while todo:
        e = todo.pop()
        quotient = _quotient(e, sizes)
        if quotient is not None:
            found.setdefault(quotient.size, set()).add(quotient)
        elif isinstance(e, arith.Binary):
            todo += [e.a, e.b]
        elif isinstance(e, arith.Var):
            sizes.discard(e.name)


def _quotient(e: arith.Expr, sizes: set[str]) -> Quotient | None:
    match e:
        case arith.FloorDiv(a=a, b=arith.Const(value=divisor)) if divisor > 1:
            names = arith.free_vars(a)
            if len(names) != 1 or not names <= sizes or arith.opaques(a):
                return None
            (name,) = names
            stride, offset = coefficient(a, name), arith.as_int(simplify(a - arith.Var(name)))
            if stride is not None and arith.is_const(stride, 1) and offset is not None:
                return Quotient(name, offset, divisor)
    return None


def _follows(q: Quotient, finest: Quotient) -> bool:
    is_multiple = q.divisor % finest.divisor == 0
    return is_multiple and (q.offset - finest.offset) % finest.divisor == 0


def _all_indices(kernel: Kernel) -> Iterator[arith.Expr]:
    for buffer in _buffers(kernel):
        yield from buffer.shape
    for s in visit.walk_stmts(kernel.body):
        match s:
            case ir.For(start=start, stop=stop):
                yield from (start, stop)
            case ir.Block(axes=axes):
                yield from (e for a in axes for e in (a.extent, a.binding))
            case ir.Store(indices=indices, stride=stride):
                yield from (*indices, stride)
    for e in visit.all_exprs(kernel.body):
        yield from visit.own_indices(e)


def _buffers(kernel: Kernel) -> list[Buffer]:
    inside = [s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]
    return [*kernel.params, *inside]


def fresh_names(kernel: Kernel, letter: str) -> Iterator[str]:
    taken = {size.name for size in kernel.sizes} | {b.name for b in _buffers(kernel)}
    taken |= {s.var for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For)}
    taken |= {a.var for b in visit.blocks(kernel.body) for a in b.axes}
    return (name for i in itertools.count() if (name := f"{letter}{i}") not in taken)


def _size(kernel: Kernel, name: str, value: arith.Expr) -> ir.Size:
    known = {size.name: Interval(size.low, size.high) for size in kernel.sizes}
    found = bounds_of(value, known)
    likely = {size.name: size.likely for size in kernel.sizes if size.likely is not None}
    return ir.Size(name, max(0, found.low or 0), found.high, 1, arith.assumed(value, likely))


class IndexRewriter:
    """A kernel with other indices, in the values inside indices too. A subclass says which."""

    def __init__(self, kernel: Kernel):
        self.source = kernel
        self.buffers = {
            b.name: ir.replace(b, shape=tuple(map(self.index, b.shape))) for b in _buffers(kernel)
        }

    def kernel(self) -> Kernel:
        body = visit.replace_buffers(self.node(self.source.body), self.buffers)
        params = tuple(self.buffers[p.name] for p in self.source.params)
        return ir.replace(self.source, params=params, body=body)

    @segmented
    def node(self, n: Expr | Stmt):
        if isinstance(n, ir.Alloc):
            n = ir.replace(n, buffer=self.buffers[n.buffer.name])
        if isinstance(n, Stmt):
            return visit.rebuild_stmt(n, self.node, self.node, self.index)
        return visit.rebuild_expr(n, self.node, self.index)

    def index(self, e: arith.Expr) -> arith.Expr:
        raise NotImplementedError


class _Quotients(IndexRewriter):
    """Quotients replaced by names."""

    def __init__(self, kernel: Kernel, named: Mapping[str, tuple[str, Quotient]]):
        self.named = named
        super().__init__(kernel)

    @segmented
    def index(self, e: arith.Expr) -> arith.Expr:
        quotient = _quotient(e, set(self.named))
        if quotient is not None:
            name, finest = self.named[quotient.size]
            steps = (quotient.offset - finest.offset) // finest.divisor
            return (arith.Var(name) + steps) // (quotient.divisor // finest.divisor)
        if isinstance(e, arith.Binary):
            a, b = self.index(e.a), self.index(e.b)
            return e if a is e.a and b is e.b else arith.BUILD[type(e)](a, b)
        if isinstance(e, arith.Opaque):
            return ir.index_of(self.node(e.payload))
        return e
