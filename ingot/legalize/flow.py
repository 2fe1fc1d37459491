"""Dataflow of one buffer: does each execution of a statement write elements before it reads them?

Used by place_allocs (may an allocation move into this loop?) and split_kernels (may each thread
have its own copy?). The analysis is conservative: for every read it needs one earlier write in the
same execution whose box, under its guards, contains the box of the read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.arith import expr as arith
from ingot.legalize import boxes, terms
from ingot.legalize.boxes import Span
from ingot.legalize.ranges import Ranges
from ingot.loops import ir, visit
from ingot.support.stack import segmented

_FLIP = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


@dataclass(frozen=True)
class BufferAccess:
    """One load or store of the buffer: where, within which loops, under which conditions."""

    indices: tuple[arith.Expr, ...]
    loops: tuple[ir.For, ...]
    guards: tuple[ir.Expr, ...]
    is_write: bool
    is_certain: bool = True  # False in a While or an else: such a write proves nothing


def accesses(buffer: str, s: ir.Stmt) -> list[BufferAccess] | None:
    """Every access in program order; None where an async copy or a vector statement hides some."""
    collector = _Collect(buffer)
    collector.stmt(s, (), (), True)
    return None if collector.is_hidden else collector.found


class _Collect:
    def __init__(self, buffer: str):
        self.buffer = buffer
        self.found: list[BufferAccess] = []
        self.is_hidden = False

    def reads(self, e: ir.Expr, loops: tuple, guards: tuple, certain: bool) -> None:
        for x in visit.walk_exprs(e):
            if isinstance(x, ir.Load) and x.buffer.name == self.buffer:
                masks = guards if x.mask is None else (*guards, *visit.conjuncts(x.mask))
                self.is_hidden |= x.width != 1
                self.found.append(BufferAccess(x.indices, loops, masks, False, certain))

    @segmented
    def stmt(self, s: ir.Stmt, loops: tuple, guards: tuple, certain: bool) -> None:
        for e in visit.own_exprs(s):
            self.reads(e, loops, guards, certain)
        match s:
            case ir.Store(buffer=buffer) if buffer.name == self.buffer:
                masks = guards if s.mask is None else (*guards, *visit.conjuncts(s.mask))
                self.is_hidden |= s.value.lanes != 1
                self.found.append(BufferAccess(s.indices, loops, masks, True, certain))
            case ir.For(body=body):
                self.stmt(body, (*loops, s), guards, certain)
            case ir.If(cond=cond, then=then, orelse=orelse):
                self.stmt(then, loops, (*guards, *visit.conjuncts(cond)), certain)
                if orelse is not None:
                    self.stmt(orelse, loops, guards, False)
            case ir.While(body=body):
                self.stmt(body, loops, guards, False)
            case ir.Call(args=args):
                for box in args:
                    if box.buffer.name == self.buffer:
                        self.box(box, loops, guards)
            case ir.CopyAsync(dst=dst, src=src):
                self.is_hidden |= self.buffer in (dst.buffer.name, src.buffer.name)
            case _:
                for child in visit.sub_stmts(s):
                    self.stmt(child, loops, guards, certain)

    def box(self, box: ir.Slice, loops: tuple, guards: tuple) -> None:
        """All of the box may be read, then all of it may be written."""
        names = [f"place {d} of the box" for d in range(box.buffer.rank)]  # no loop has this name
        around = [ir.For(n, arith.Const(0), e, ir.Seq(())) for n, e in zip(names, box.extents)]
        indices = tuple(o + arith.Var(n) for o, n in zip(box.offsets, names))
        for is_write in (False, True):
            self.found.append(
                BufferAccess(indices, (*loops, *around), guards, is_write, not is_write)
            )


def is_written_first(found: list[BufferAccess], ranges: Ranges) -> bool:
    """Is every read covered by an earlier write of the same execution?"""
    writes: list[BufferAccess] = []
    for access in found:
        if access.is_write:
            writes.append(access)
        elif not any(_covers(write, access, ranges) for write in reversed(writes)):
            return False
    return True


def _covers(write: BufferAccess, read: BufferAccess, ranges: Ranges) -> bool:
    common = _common_loops(write.loops, read.loops)
    inner_write = {f.var: f for f in write.loops[common:]}
    inner_read = {f.var: f for f in read.loops[common:]}
    guards = _remaining_guards(write, read, inner_write, inner_read, common, ranges)
    if guards is None or not write.is_certain or not _must_run(write.loops[common:], ranges):
        return False
    for d in range(len(write.indices)):
        written = _clipped(write, d, inner_write, guards, ranges)
        read_span = _clipped(read, d, inner_read, read.guards, ranges)
        if written is None or read_span is None or not boxes.within(read_span, written, ranges):
            return False
    return True


def _common_loops(a: tuple[ir.For, ...], b: tuple[ir.For, ...]) -> int:
    count = 0
    while count < min(len(a), len(b)) and a[count] is b[count]:
        count += 1
    return count


def _must_run(loops: tuple[ir.For, ...], ranges: Ranges) -> bool:
    """Writes in a loop that may run in one execution and not in another prove nothing."""
    return all(ranges.is_positive(f.extent) or not _mentions_loops(f.extent, ranges) for f in loops)


def _mentions_loops(e: arith.Expr, ranges: Ranges) -> bool:
    return bool(terms.index_vars(e) - ranges.sizes) or bool(arith.opaques(e))


def _remaining_guards(
    write: BufferAccess,
    read: BufferAccess,
    inner: Mapping[str, ir.For],
    inner_read: Mapping[str, ir.For],
    common: int,
    ranges: Ranges,
) -> tuple[ir.Expr, ...] | None:
    """Guards of the write that clip its box; None where a guard does not bound an index."""
    left: list[ir.Expr] = []
    for guard in write.guards:
        if guard in read.guards and not terms.value_vars(guard) & (
            inner.keys() | inner_read.keys()
        ):
            continue
        if _is_first_iteration(guard, write, write.loops[:common], ranges):
            continue
        if not any(_clip(guard, i, inner, ranges) for i in write.indices):
            return None
        left.append(guard)
    return tuple(left)


def _is_first_iteration(
    guard: ir.Expr, write: BufferAccess, loops: tuple[ir.For, ...], ranges: Ranges
) -> bool:
    """Is the guard `expr == 0`, true in the first iteration of the common loops, and the element
    independent of them? Once written, it stays written."""
    match guard:
        case ir.Compare(op="eq", a=ir.Index(expr=e), b=ir.Index(expr=zero)):
            used = terms.index_vars(e)
        case _:
            return False
    starts = {f.var: f.start for f in loops}
    if not used <= starts.keys() or ranges.simplify(arith.substitute(e - zero, starts)) != 0:
        return False
    accessed = {v for i in write.indices for v in terms.index_vars(i)}
    accessed |= {
        v for f in write.loops for v in terms.index_vars(f.start) | terms.index_vars(f.stop)
    }
    return not used & accessed


def _clipped(
    access: BufferAccess,
    d: int,
    inner: Mapping[str, ir.For],
    guards: tuple[ir.Expr, ...],
    ranges: Ranges,
) -> Span | None:
    """The span of dimension `d`, clipped by the guards that bound it."""
    span = boxes.span_of(access.indices[d], inner, ranges)
    if span is None:
        return None
    low, high = span
    for guard in guards:
        clip = _clip(guard, access.indices[d], inner, ranges)
        if clip is not None and clip[0] == "high":
            high = arith.minimum(high, clip[1])
        elif clip is not None:
            low = arith.maximum(low, clip[1])
    return ranges.simplify(low), ranges.simplify(high)


def _clip(
    guard: ir.Expr, index: arith.Expr, inner: Mapping[str, ir.For], ranges: Ranges
) -> tuple[str, arith.Expr] | None:
    """The bound that `guard` puts on the coordinate `index`: ("high" or "low", last value)."""
    if not isinstance(guard, ir.Compare) or guard.op not in _FLIP:
        return None
    if not isinstance(guard.a, ir.Index) or not isinstance(guard.b, ir.Index):
        return None
    sides = ((guard.op, guard.a.expr, guard.b.expr), (_FLIP[guard.op], guard.b.expr, guard.a.expr))
    for op, e, limit in sides:
        strict = 1 if op in ("lt", "gt") else 0
        last = ranges.simplify(index - e + limit)
        if arith.opaques(last):  # memory may have changed between the accesses
            continue
        if not terms.index_vars(last) & inner.keys() and terms.index_vars(e):
            return ("high", last - strict) if op in ("lt", "le") else ("low", last + strict)
        factor = _factor(index, e, ranges)
        if factor is not None and not terms.index_vars(limit) & inner.keys():
            if op in ("lt", "le"):
                return "high", ranges.simplify(factor * (limit + 1 - strict) - 1)
            return "low", ranges.simplify(factor * (limit + strict))
    return None


def _factor(index: arith.Expr, quotient: arith.Expr, ranges: Ranges) -> arith.Expr | None:
    """c where `quotient` is index // c: a bound on the quotient then bounds the index."""
    for name in sorted(terms.index_vars(quotient)):
        whole, own = ranges.affine(index, name), ranges.affine(quotient, name)
        if whole is None or own is None or own[0] != 1 or not ranges.is_positive(whole[0]):
            continue
        rest = ranges.simplify(index - whole[0] * quotient)
        is_remainder = ranges.at_least(rest, 0) and ranges.is_at_most(rest, whole[0] - 1)
        return whole[0] if is_remainder else None
    return None
