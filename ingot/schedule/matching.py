"""Pattern matching for `tensorize`: does a nest compute what an instruction computes?

In: two nests. Out: the buffer slices (boxes) to call the instruction on. Both are normalised: loops
from zero around one store, maybe with an init, all indices over loop variables. They match if loops
of equal extent can be paired so that the expressions agree node by node (up to commutativity) and
each parameter is a box of one buffer: in every dimension a loop-invariant offset plus the
parameter's own index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import Block, Expr, For, Kernel, Slice, Stmt
from ingot.schedule.analyzer import Analyzer

COMMUTE = ("add", "mul", "min", "max", "and", "or", "xor")
Boxes = dict[str, Slice]  # by parameter
Loops = dict[str, arith.Expr]  # variable → extent, each from zero


@dataclass(frozen=True)
class Nest:
    """`loops`, outermost first, around `store`; `init` runs at the first point of the reduction."""

    loops: Loops
    store: ir.Store
    init: ir.Store | None


def nest_of(s: Stmt) -> Nest | str:
    """A statement in normal form, or why it has none."""
    loops: Loops = {}
    env: dict[str, arith.Expr] = {}
    init: Stmt | None = None
    while not isinstance(s, ir.Store):
        match s:
            case For(var=var, body=body):
                start, stop = (arith.substitute(e, env) for e in (s.start, s.stop))
                extent = arith.substitute(stop - start, {})
                if arith.is_const(extent, 1):
                    env[var] = start
                else:
                    loops[var] = extent
                    env[var] = start + arith.Var(var)
                s = body
            case Block(where=None):
                if s.init is not None and init is not None:
                    return "it has two inits"
                env |= {a.var: arith.substitute(a.binding, env) for a in s.axes}
                init = visit.substitute(s.init, env) if s.init is not None else init
                s = s.body
            case Block():
                return f"block {s.name} has a guard that varies with the loops"
            case _:
                return f"it contains a {type(s).__name__}"
    store = visit.substitute(s, env)
    assert isinstance(store, ir.Store)
    if store.mask is not None or store.value.lanes > 1:
        return "its store is masked or a vector store"
    if init is not None and not isinstance(init, ir.Store):
        return "its init is not one plain store"
    return Nest(loops, store, init)


def match(meaning: Kernel, nest: Nest, analyzer: Analyzer) -> Boxes | str:
    """The box for each parameter of `meaning`, or why the nest does not match."""
    wanted = nest_of(meaning.body)
    assert isinstance(wanted, Nest), "an instruction's meaning has a normal form"
    if (wanted.init is None) != (nest.init is None):
        return "either the nest or the instruction has an init, the other has none"
    for pairing in _pairings(wanted.loops, nest.loops, meaning, analyzer):
        found = next(_Match(meaning, nest, pairing, analyzer).boxes(wanted), None)
        if found is not None:
            return found
    if not any(True for _ in _pairings(wanted.loops, nest.loops, meaning, analyzer)):
        mine, other = (", ".join(map(str, x.values())) for x in (nest.loops, wanted.loops))
        return f"its loops run over ({mine}), those of the instruction over ({other})"
    return "its expression, or its indices, differ from the instruction's"


def _pairings(
    wanted: Loops, have: Loops, meaning: Kernel, analyzer: Analyzer
) -> Iterator[dict[str, arith.Expr]]:
    """All pairings of the loops, as substitutions for the meaning's variables and sizes."""
    if len(wanted) != len(have):
        return
    sizes = {s.name for s in meaning.sizes}
    for order in permutations(have):
        env: dict[str, arith.Expr] = {}
        for (var, extent), mine in zip(wanted.items(), order):
            if isinstance(extent, arith.Var) and extent.name in sizes:
                env.setdefault(extent.name, have[mine])
            if not analyzer.equal(arith.substitute(extent, env), have[mine]):
                break
            env[var] = arith.Var(mine)
        else:
            yield env


class _Match:
    def __init__(
        self, meaning: Kernel, nest: Nest, pairing: Mapping[str, arith.Expr], analyzer: Analyzer
    ):
        self.params = {p.name: p for p in meaning.params}
        self.nest, self.pairing, self.analyzer = nest, pairing, analyzer

    def boxes(self, wanted: Nest) -> Iterator[Boxes]:
        for boxes in self.store(wanted.store, self.nest.store, {}):
            if wanted.init is None or self.nest.init is None:
                found: Iterator[Boxes] = iter((boxes,))
            else:
                found = self.store(wanted.init, self.nest.init, boxes)
            yield from (b for b in found if b.keys() == self.params.keys() and self.is_unaliased(b))

    def store(self, a: ir.Store, b: ir.Store, boxes: Boxes) -> Iterator[Boxes]:
        for found in self.access(a.buffer, a.indices, b.buffer, b.indices, boxes):
            yield from self.value(a.value, b.value, found)

    def value(self, a: Expr, b: Expr, boxes: Boxes) -> Iterator[Boxes]:
        """All ways to match `b` with `a`."""
        match a, b:
            case ir.Load(), ir.Load() if a.mask is None and b.mask is None:
                yield from self.access(a.buffer, a.indices, b.buffer, b.indices, boxes)
                return
            case ir.Index(), ir.Index():
                if self.analyzer.equal(arith.substitute(a.expr, self.pairing), b.expr):
                    yield boxes
                return
        if _shell(a) != _shell(b):
            return
        mine, others = _children(a), _children(b)
        yield from self.values(mine, others, boxes)
        if isinstance(a, ir.Binary) and a.op in COMMUTE:
            yield from self.values(mine, others[::-1], boxes)

    def values(self, a: list[Expr], b: list[Expr], boxes: Boxes) -> Iterator[Boxes]:
        if not a:
            yield boxes
            return
        for found in self.value(a[0], b[0], boxes):
            yield from self.values(a[1:], b[1:], found)

    def access(
        self,
        param: ir.Buffer,
        wanted: tuple[arith.Expr, ...],
        buffer: ir.Buffer,
        indices: tuple[arith.Expr, ...],
        boxes: Boxes,
    ) -> Iterator[Boxes]:
        if param.name not in self.params or param.dtype is not buffer.dtype:
            return
        if any(isinstance(i, arith.Opaque) for i in wanted):
            yield from self.look_up(param, wanted, buffer, indices, boxes)
            return
        box = self.box(param, wanted, buffer, indices)
        if box is not None and boxes.get(param.name, box) == box:
            yield {**boxes, param.name: box}

    def look_up(
        self,
        param: ir.Buffer,
        wanted: tuple[arith.Expr, ...],
        buffer: ir.Buffer,
        indices: tuple[arith.Expr, ...],
        boxes: Boxes,
    ) -> Iterator[Boxes]:
        """A table that is indexed by loaded values: the whole buffer, and the values must match."""
        is_table = all(isinstance(i, arith.Opaque) for i in (*wanted, *indices))
        if not is_table or param.shape != buffer.shape:
            return
        whole = Slice(buffer, tuple(arith.Const(0) for _ in indices), buffer.shape)
        if boxes.get(param.name, whole) == whole:
            values = [[v for i in x for v in visit.opaque_values(i)] for x in (wanted, indices)]
            yield from self.values(*values, {**boxes, param.name: whole})

    def box(
        self,
        param: ir.Buffer,
        wanted: tuple[arith.Expr, ...],
        buffer: ir.Buffer,
        indices: tuple[arith.Expr, ...],
    ) -> Slice | None:
        """Dimensions that vary with the loops are the parameter's, in order; others have size 1."""
        pairs = [(arith.substitute(i, self.pairing), n) for i, n in zip(wanted, param.shape)]
        moving = iter([(i, n) for i, n in pairs if self.moves(i)])
        if any(not arith.is_const(n, 1) for i, n in pairs if not self.moves(i)):
            return None
        offsets: list[arith.Expr] = []
        extents: list[arith.Expr] = []
        for index, size in zip(map(self.analyzer.simplify, indices), buffer.shape):
            is_moving = self.moves(index)
            inner, extent = next(moving, (None, None)) if is_moving else (0, 1)
            if inner is None or extent is None:
                return None
            offsets.append(self.analyzer.simplify(index - inner))
            extents.append(arith.substitute(arith.wrap(extent), self.pairing))
            if self.moves(offsets[-1]) or visit.opaque_values(offsets[-1]):
                return None
            # elsewhere the box is where the nest accesses the buffer itself
            if is_moving and not self.inside(offsets[-1], extents[-1], size):
                return None
        return None if next(moving, None) else Slice(buffer, tuple(offsets), tuple(extents))

    def moves(self, index: arith.Expr) -> bool:
        return bool(visit.index_vars(index) & self.nest.loops.keys())

    def inside(self, offset: arith.Expr, extent: arith.Expr, size: arith.Expr) -> bool:
        return self.analyzer.at_most(0, offset) and self.analyzer.at_most(offset + extent, size)

    def is_unaliased(self, boxes: Boxes) -> bool:
        """Is the written buffer passed to one parameter only?"""
        written = self.nest.store.buffer.name
        return sum(box.buffer.name == written for box in boxes.values()) == 1


def _children(e: Expr) -> list[Expr]:
    found: list[Expr] = []

    def on_expr(x: Expr) -> Expr:
        found.append(x)
        return x

    visit.rebuild_expr(e, on_expr, lambda i: i)
    return found


def _shell(e: Expr) -> Expr:
    """The node without its operands: operator and types."""
    return visit.rebuild_expr(e, lambda x: ir.value_of(0, x.dtype), lambda i: arith.Const(0))
