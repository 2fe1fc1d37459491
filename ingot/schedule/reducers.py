"""Reducers: the associative and commutative combiner of a reduce block, if it is a known one.

In: a block. Out: a `Reducer`, or a text that says why there is none. Two forms are known:

- one operator for each output:  Y[i] = op(Y[i], x), where the operator has an identity;
- a select reducer, such as argmax:  every output is select(take, x, acc), with one condition that
  compares the new values with the accumulated ones. That it is commutative and associative is
  proved by trying all orders of three values: comparisons depend only on the order of values.

Used by rfactor, pad and vectorize.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import identity
from ingot.loops.ir import Block, Expr, Stmt
from ingot.support.stack import segmented

OPERATORS = ("add", "mul", "min", "max", "and", "or", "xor")
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    name: getattr(operator, name) for name in ir.COMPARE
}
Fresh = Callable[[str], str]


@dataclass(frozen=True)
class Reducer:
    """accs = combine(accs, terms): a buffer and a term for each output, all at one index."""

    buffers: tuple[ir.Buffer, ...]
    point: tuple[arith.Expr, ...]
    terms: tuple[Expr, ...]
    ops: tuple[str, ...] = ()  # one for each output; empty for a select reducer
    take: Expr | None = None  # of a select reducer: whether the new values are taken

    def update(self, terms: Sequence[Expr], fresh: Fresh) -> Stmt:
        """accs = combine(accs, terms), all values computed before any is stored."""
        return assign(self.buffers, self.point, self._combined(terms), fresh)

    def _combined(self, terms: Sequence[Expr]) -> list[Expr]:
        accs = [ir.Load(b, self.point) for b in self.buffers]
        if self.take is None:
            return [ir.Binary(op, a, x) for op, a, x in zip(self.ops, accs, terms)]
        take = _replaced(self.take, dict(zip(self.terms, terms)))
        return [ir.Select(take, x, a) for a, x in zip(accs, terms)]

    def moved(self, buffers: Sequence[ir.Buffer], point: Sequence[arith.Expr]) -> Reducer:
        """The same reducer on other buffers."""
        env: dict[Expr, Expr] = {
            ir.Load(old, self.point): ir.Load(new, tuple(point))
            for old, new in zip(self.buffers, buffers)
        }
        take = None if self.take is None else _replaced(self.take, env)
        return ir.replace(self, buffers=tuple(buffers), point=tuple(point), take=take)

    def substituted(self, env: Mapping[str, arith.IntLike]) -> Reducer:
        """The same reducer with other variables in its terms."""
        terms = tuple(visit.substitute(x, env) for x in self.terms)
        take = None if self.take is None else visit.substitute(self.take, env)
        point = tuple(arith.substitute(i, env) for i in self.point)
        return ir.replace(self, terms=terms, take=take, point=point)

    def initial_values(self, block: Block) -> list[Expr]:
        """The init of a partial result: the identity; a select reducer may see its init twice."""
        if self.take is None:
            return [identity(op, b.dtype) for op, b in zip(self.ops, self.buffers)]
        inits = {s.buffer.name: s.value for s in visit.stores(block.init or ir.Seq(()))}
        return [inits[b.name] for b in self.buffers]

    def masked(self, mask: Expr, fresh: Fresh) -> Stmt:
        """The update, which leaves the accumulators unchanged where the mask is false."""
        if self.take is not None:
            return ir.replace(self, take=ir.Binary("and", mask, self.take)).update(
                self.terms, fresh
            )
        pairs = zip(self.terms, self.ops, self.buffers)
        terms = [ir.Select(mask, x, identity(op, b.dtype)) for x, op, b in pairs]
        return self.update(terms, fresh)


def assign(
    buffers: Sequence[ir.Buffer],
    point: tuple[arith.Expr, ...],
    values: Sequence[Expr],
    fresh: Fresh,
) -> Stmt:
    """Store the values, all computed before any is stored."""
    if len(values) == 1:
        return ir.Store(buffers[0], point, values[0])
    names = [fresh("t") for _ in values]
    refs = [ir.Ref(name, value.dtype) for name, value in zip(names, values)]
    body = ir.seq(*(ir.Store(b, point, ref) for b, ref in zip(buffers, refs)))
    for name, value in reversed(list(zip(names, values))):
        body = ir.Let(name, value, body)
    return body


def recognise(block: Block) -> Reducer | str:
    """The block's reducer, or why it is not a known one."""
    if block.init is None:
        return f"block {block.name} has no init"
    stores = _stores(block.body)
    if stores is None:
        return f"block {block.name} does more than update its outputs"
    if len({s.indices for s in stores}) > 1 or any(s.mask is not None for s in stores):
        return f"block {block.name} stores its outputs at different indices"
    initialised = {s.buffer.name for s in visit.stores(block.init)}
    if initialised != {s.buffer.name for s in stores}:
        return f"the init of block {block.name} does not store all that the block updates"
    buffers, point = tuple(s.buffer for s in stores), stores[0].indices
    accs = [ir.Load(b, point) for b in buffers]
    values = [s.value for s in stores]
    found = _per_output(buffers, point, accs, values) or _select_reducer(
        buffers, point, accs, values
    )
    if found is None:
        return f"the combiner of block {block.name} is not a known reducer"
    if found.take is not None and not _is_order_independent(found, accs):
        return f"which values block {block.name} selects depends on their order"
    return found


def _stores(body: Stmt) -> list[ir.Store] | None:
    """The stores of a body of lets around stores, with the lets substituted."""
    env: dict[Expr, Expr] = {}
    while isinstance(body, ir.Let):
        env[ir.Ref(body.name, body.value.dtype)] = _replaced(body.value, env)
        body = body.body
    stmts = body.stmts if isinstance(body, ir.Seq) else (body,)
    stores = [s for s in stmts if isinstance(s, ir.Store) and s.value.lanes == 1]
    if len(stores) < len(stmts) or len({s.buffer.name for s in stores}) < len(stmts):
        return None
    return [ir.replace(s, value=_replaced(s.value, env)) for s in stores]


def _per_output(
    buffers: tuple[ir.Buffer, ...], point: tuple, accs: list[ir.Load], values: list[Expr]
) -> Reducer | None:
    names = {b.name for b in buffers}
    found = [_operation(acc, value, names) for acc, value in zip(accs, values)]
    if any(x is None for x in found):
        return None
    pairs = [x for x in found if x is not None]
    return Reducer(buffers, point, tuple(x for _, x in pairs), tuple(op for op, _ in pairs))


def _operation(acc: ir.Load, value: Expr, names: set[str]) -> tuple[str, Expr] | None:
    """op(acc, x)  →  (op, x)"""
    match value:
        case ir.Binary(op=op, a=a, b=b) if op in OPERATORS:
            for held, x in ((a, b), (b, a)):
                if held == acc and not _reads(x, names):
                    return op, x
        case ir.Fma(a=a, b=b, c=c) if c == acc and not _reads(a, names) | _reads(b, names):
            return "add", ir.Binary("mul", a, b)
    return None


def _select_reducer(
    buffers: tuple[ir.Buffer, ...], point: tuple, accs: list[ir.Load], values: list[Expr]
) -> Reducer | None:
    """select(take, x, acc) for every output, with the same condition."""
    names = {b.name for b in buffers}
    takes, terms = set(), []
    for acc, value in zip(accs, values):
        if not isinstance(value, ir.Select) or value.b != acc or _reads(value.a, names):
            return None
        takes.add(value.cond)
        terms.append(value.a)
    return Reducer(buffers, point, tuple(terms), take=takes.pop()) if len(takes) == 1 else None


def _reads(e: Expr, names: set[str]) -> bool:
    return any(isinstance(x, ir.Load) and x.buffer.name in names for x in visit.walk_exprs(e))


@segmented
def _replaced(e: Expr, env: Mapping[Expr, Expr]) -> Expr:
    """Replace whole subexpressions, the largest first."""
    if e in env:
        return env[e]
    return visit.rebuild_expr(e, lambda x: _replaced(x, env), lambda i: i)


def _is_order_independent(found: Reducer, accs: list[ir.Load]) -> bool:
    """Is the selection commutative and associative?"""
    tuples = list(itertools.product(*(_samples(b) for b in found.buffers)))
    try:
        better = dict(_selections(found, accs, tuples))
    except KeyError:
        return False  # the condition is not made of comparisons alone
    samples = range(len(tuples))
    commutes = all(better[a, b] == better[b, a] for a in samples for b in samples)
    return commutes and all(
        better[better[a, b], c] == better[a, better[b, c]]
        for a, b, c in itertools.product(samples, repeat=3)
    )


def _samples(buffer: ir.Buffer) -> tuple:
    """Values for every order of three, and NaN."""
    if buffer.dtype.is_bool:
        return (False, True)
    return (0.0, 1.0, 2.0, nan) if buffer.dtype.is_float else (0, 1, 2)


def _selections(
    found: Reducer, accs: list[ir.Load], tuples: list[tuple]
) -> Iterator[tuple[tuple[int, int], int]]:
    """Which of two is kept: ((acc, new), kept), as indices into `tuples`."""
    assert found.take is not None
    for (m, acc), (n, new) in itertools.product(enumerate(tuples), repeat=2):
        known = dict(zip(accs, acc)) | dict(zip(found.terms, new))
        yield (m, n), n if _evaluate(found.take, known) else m


@segmented
def _evaluate(e: Expr, known: Mapping[Expr, Any]) -> Any:
    match e:
        case _ if e in known:
            return known[e]
        case ir.Compare(op=op, a=a, b=b):
            return COMPARE[op](_evaluate(a, known), _evaluate(b, known))
        case ir.Binary(op="and", a=a, b=b) if e.dtype.is_bool:
            return _evaluate(a, known) and _evaluate(b, known)
        case ir.Binary(op="or", a=a, b=b) if e.dtype.is_bool:
            return _evaluate(a, known) or _evaluate(b, known)
        case ir.Unary(op="not", a=a) if e.dtype.is_bool:
            return not _evaluate(a, known)
        case ir.Unary(op="isnan", a=a):
            value = _evaluate(a, known)
            return value != value
    raise KeyError(e)
