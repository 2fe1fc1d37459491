"""Region analysis: the box of each buffer that a statement accesses. In: a statement and ranges of
outer variables. Out: boxes (offset and extent in each dimension) over the variables bound outside.

A box contains every element that may be accessed. Guards and masks are ignored, so the box of a
guarded access may extend outside its buffer. An index that is not affine or depends on data gives
the whole dimension. Used by schedule, legalize and plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingot.arith import expr as arith
from ingot.arith.affine import affine
from ingot.arith.bounds import Interval, bounds_of, prove
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.ir import Buffer, Expr, Stmt
from ingot.support.stack import segmented

if TYPE_CHECKING:
    from collections.abc import Set

Env = Mapping[str, Interval]
Span = tuple[arith.Expr, arith.Expr]  # least and greatest value, inclusive
Dim = tuple[arith.Expr, arith.Expr]  # offset and extent
Loops = Mapping[str, tuple[arith.IntLike, arith.IntLike]]  # start and stop, outermost first

_LANE = "lane of a vector access"  # not an identifier, so no loop has this name


@dataclass(frozen=True)
class Region:
    """A box of a buffer; `is_whole` if some dimension could not be narrowed."""

    buffer: Buffer
    box: tuple[Dim, ...]
    is_whole: bool = False


@dataclass(frozen=True)
class RegionAccess:
    """One access, with indices over loop variables: axes are replaced by their bindings.

    `spans` has the first and last index in each dimension (they differ for boxes and vectors),
    `loops` the loops around it inside the analysed statement, `block` the innermost block.
    """

    buffer: Buffer
    spans: tuple[Span, ...]
    writes: bool
    loops: tuple[ir.For, ...]
    block: ir.Block | None
    is_guarded: bool

    @property
    def inner(self) -> dict[str, tuple[arith.Expr, arith.Expr]]:
        return {loop.var: (loop.start, loop.stop) for loop in self.loops}


def regions(stmt: Stmt, env: Env | None = None) -> tuple[dict[str, Region], dict[str, Region]]:
    """The regions that `stmt` reads and writes, by buffer, without buffers it allocates itself."""
    reads: dict[str, list[RegionAccess]] = {}
    writes: dict[str, list[RegionAccess]] = {}
    for access in accesses(stmt):
        (writes if access.writes else reads).setdefault(access.buffer.name, []).append(access)
    return (
        {name: _region(found, env or {}) for name, found in reads.items()},
        {name: _region(found, env or {}) for name, found in writes.items()},
    )


def box_of(
    indices: Sequence[tuple[arith.Expr, ...]], inner: Loops, env: Env | None = None
) -> list[Dim] | None:
    """The box that contains all of `indices` over the loops `inner`; None if unknown."""
    box = []
    for column in zip(*indices):
        spans = [_span((index, index), inner, env or {}) for index in column]
        dim = _union(spans, env or {})
        if dim is None:
            return None
        box.append(dim)
    return box


# --- boxes --------------------------------------------------------------------------------------


def _region(found: Sequence[RegionAccess], env: Env) -> Region:
    buffer = found[0].buffer
    box, whole = [], False
    for d, size in enumerate(buffer.shape):
        spans = [_span(access.spans[d], access.inner, env) for access in found]
        dim = _union(spans, env)
        whole = whole or dim is None
        box.append(dim or (arith.Const(0), size))
    return Region(buffer, tuple(box), whole)


def span_of(access: RegionAccess, dimension: int, env: Env | None = None) -> Span | None:
    """The range of an access's index in one dimension over its loops."""
    return _span(access.spans[dimension], access.inner, env or {})


def union_of(spans: Sequence[Span | None], env: Env | None = None) -> Dim | None:
    """The offset and extent that contain all spans; None if one is unknown."""
    return _union(spans, env or {})


def _union(spans: Sequence[Span | None], env: Env) -> Dim | None:
    low: arith.Expr | None = None
    high: arith.Expr | None = None
    for span in spans:
        if span is None:
            return None
        low = span[0] if low is None else _least(low, span[0], env)
        high = span[1] if high is None else _most(high, span[1], env)
    assert low is not None and high is not None
    return low, simplify(high - low + 1, env)


def _least(a: arith.Expr, b: arith.Expr, env: Env) -> arith.Expr:
    if prove("le", a, b, env):
        return a
    return b if prove("le", b, a, env) else arith.minimum(a, b)


def _most(a: arith.Expr, b: arith.Expr, env: Env) -> arith.Expr:
    if prove("ge", a, b, env):
        return a
    return b if prove("ge", b, a, env) else arith.maximum(a, b)


def _span(ends: Span, inner: Loops, env: Env) -> Span | None:
    """Eliminate the inner loops, innermost first: their bounds may mention outer ones."""
    low, high = ends
    if arith.opaques(low) or arith.opaques(high):
        return None
    ranges = {**env, **_ranges(inner, env)}
    low, high = simplify(low, ranges), simplify(high, ranges)
    for var, (start, stop) in reversed(list(inner.items())):
        first, last = arith.wrap(start), arith.wrap(stop) - 1
        if arith.opaques(first) or arith.opaques(last):
            if var in arith.free_vars(low) | arith.free_vars(high):
                return None
            continue
        least = _end(low, var, (first, last), False, ranges)
        most = _end(high, var, (first, last), True, ranges)
        if least is None or most is None:
            return None
        low, high = simplify(least, ranges), simplify(most, ranges)
    return low, high


def _ranges(inner: Loops, env: Env) -> dict[str, Interval]:
    """Constant ranges of the inner loops' variables, where known."""
    found: dict[str, Interval] = {}
    for var, (start, stop) in inner.items():
        known = {**env, **found}
        low, high = bounds_of(start, known).low, bounds_of(stop, known).high
        found[var] = Interval(low, None if high is None else high - 1)
    return found


@segmented
def _end(e: arith.Expr, var: str, ends: Span, upper: bool, env: Env) -> arith.Expr | None:
    """The greatest (or least) value of `e` over the range of `var`."""
    if var not in arith.free_vars(e):
        return e
    form = affine(e, (var,), env)
    if form is not None:
        sign = _sign(form.coeff[var], env)
        if sign is None:
            return None
        return form.rest + form.coeff[var] * ends[1 if (sign > 0) == upper else 0]
    assert isinstance(e, arith.Binary)
    a = _end(e.a, var, ends, upper, env)
    match e:
        case arith.Add() | arith.Min() | arith.Max():
            b = _end(e.b, var, ends, upper, env)
            return None if a is None or b is None else arith.BUILD[type(e)](a, b)
        case arith.Sub():
            b = _end(e.b, var, ends, not upper, env)
            return None if a is None or b is None else a - b
        case arith.Mul():
            return _scaled(e.a, e.b, var, ends, upper, env)
        case arith.FloorDiv() if var not in arith.free_vars(e.b) and _sign(e.b, env) == 1:
            return None if a is None else a // e.b
        case arith.Mod() if var not in arith.free_vars(e.b) and _sign(e.b, env) == 1:
            return e.b - 1 if upper else arith.Const(0)
    return None


def _scaled(
    a: arith.Expr, b: arith.Expr, var: str, ends: Span, upper: bool, env: Env
) -> arith.Expr | None:
    if var in arith.free_vars(a):
        a, b = b, a
    sign = None if var in arith.free_vars(a) else _sign(a, env)
    if sign is None:
        return None
    end = _end(b, var, ends, upper == (sign > 0), env)
    return None if end is None else a * end


def _sign(e: arith.Expr, env: Env) -> int | None:
    """1 if `e` is never negative, -1 if never positive, None if unknown.

    A divisor that is never negative counts as positive: a zero divisor is never evaluated.
    """
    range_ = bounds_of(e, env)
    if range_.low is not None and range_.low >= 0:
        return 1
    return -1 if range_.high is not None and range_.high <= 0 else None


# --- accesses -----------------------------------------------------------------------------------


def accesses(stmt: Stmt) -> list[RegionAccess]:
    """Every access of `stmt` in program order, without those to buffers it allocates."""
    local = {s.buffer.name for s in visit.walk_stmts(stmt) if isinstance(s, ir.Alloc)}
    walk = _Walk(local)
    walk.stmt(stmt)
    return walk.found


class _Walk:
    def __init__(self, local: Set[str]):
        self.local = local
        self.axes: dict[str, arith.Expr] = {}
        self.loops: tuple[ir.For, ...] = ()
        self.block: ir.Block | None = None
        self.guards = 0
        self.found: list[RegionAccess] = []

    @segmented
    def stmt(self, s: Stmt) -> None:
        if not isinstance(s, ir.Block):  # a block's `where` uses its axes
            self.loads(visit.own_exprs(s))
        match s:
            case ir.Store():
                self.access(s.buffer, self.wide(s, s.value.lanes), True, s.mask)
            case ir.Call() | ir.CopyAsync():
                self.boxes(s)
            case ir.For():
                before = self.loops
                start, stop = self.outside(s.start), self.outside(s.stop)
                self.loops = (*before, ir.replace(s, start=start, stop=stop))
                self.stmt(s.body)
                self.loops = before
            case ir.Block():
                self.inside(s)
            case ir.If() | ir.While():
                self.guards += 1
                for child in visit.sub_stmts(s):
                    self.stmt(child)
                self.guards -= 1
            case _:
                for child in visit.sub_stmts(s):
                    self.stmt(child)

    def inside(self, s: ir.Block) -> None:
        before = self.axes, self.block
        self.axes = self.axes | {axis.var: self.outside(axis.binding) for axis in s.axes}
        self.block = s
        self.loads(visit.own_exprs(s))
        self.guards += s.where is not None
        for child in visit.sub_stmts(s):
            self.stmt(child)
        self.guards -= s.where is not None
        self.axes, self.block = before

    def outside(self, i: arith.Expr) -> arith.Expr:
        return arith.substitute(i, self.axes)

    def loads(self, values: Sequence[Expr]) -> None:
        for e in (sub for value in values for sub in visit.walk_exprs(value)):
            if isinstance(e, ir.Load):
                self.access(e.buffer, self.wide(e, e.width), False, e.mask)

    def wide(self, x: ir.Load | ir.Store, width: int) -> tuple[Span, ...]:
        """Lanes extend along the last dimension; unknown if they may cross into the next row."""
        indices = [self.outside(i) for i in x.indices]
        spans: list[Span] = [(i, i) for i in indices]
        if width == 1 or not indices:
            return tuple(spans)
        length = self.outside(x.stride) * (width - 1)
        last = indices[-1]
        forward = _sign(length, {})
        if forward is None or (len(indices) > 1 and not self.stays_in_row(last + length, x.buffer)):
            unknown = arith.Opaque(_LANE)
            return ((unknown, unknown),) * len(indices)
        spans[-1] = (last, last + length) if forward > 0 else (last + length, last)
        return tuple(spans)

    def stays_in_row(self, last: arith.Expr, buffer: Buffer) -> bool:
        ends = {loop.var: (loop.start, loop.stop) for loop in self.loops}
        span = _span((last, last), ends, {})
        return span is not None and prove("lt", span[1], buffer.shape[-1])

    def boxes(self, s: ir.Call | ir.CopyAsync) -> None:
        if isinstance(s, ir.CopyAsync):
            operands = [(s.src, False), (s.dst, True)]
        else:
            meaning = s.instruction.meaning
            pairs = list(zip(meaning.params, s.args))
            read, written = visit.read(meaning.body), visit.written(meaning.body)
            operands = [(box, False) for param, box in pairs if param.name in read]
            operands += [(box, True) for param, box in pairs if param.name in written]
        for box, writes in operands:
            spans = []
            for offset, extent in zip(box.offsets, box.extents):
                first = self.outside(offset)
                spans.append((first, first + self.outside(extent) - 1))
            self.access(box.buffer, tuple(spans), writes, None)

    def access(
        self, buffer: Buffer, spans: tuple[Span, ...], writes: bool, mask: Expr | None
    ) -> None:
        if buffer.name not in self.local:
            guarded = self.guards > 0 or mask is not None
            self.found.append(RegionAccess(buffer, spans, writes, self.loops, self.block, guarded))
