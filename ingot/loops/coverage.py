"""Does a kernel store to every element of a parameter? In: a kernel and a name. Out: True if that
is proved. Called by the operator that wraps a kernel, which zero-fills the output otherwise.

A store covers its buffer if it runs in every iteration of the loops around it, and each of its
indices is an affine sum c₁·i₁ + c₂·i₂ + … of loops of its own that takes every value of its
dimension: no coefficient is larger than the range that the smaller ones have covered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingot.arith import expr as arith
from ingot.arith.affine import affine
from ingot.arith.bounds import Interval, prove
from ingot.loops import ir, visit
from ingot.loops.ir import Expr, Stmt

Stops = dict[str, arith.Expr]  # the loops from 0, and their ends


def covers(kernel: ir.Kernel, name: str) -> bool:
    """Whether some store provably writes every element of the parameter."""
    env = {s.name: Interval(s.low, s.high) for s in kernel.sizes}
    return any(
        _fills(store, stops, guards, env)
        for store, stops, guards in _stores(kernel.body, {}, {}, ())
        if store.buffer.name == name
    )


Found = tuple[ir.Store, Stops, tuple[Expr, ...]]


def _stores(
    s: Stmt, stops: Stops, axes: Mapping[str, arith.Expr], guards: tuple[Expr, ...]
) -> Iterator[Found]:
    """Scalar stores with indices over loop variables only, and the guards around them."""
    todo = [(s, stops, axes, guards)]
    while todo:
        s, stops, axes, guards = todo.pop()
        match s:
            case ir.Seq() | ir.Let() | ir.Alloc():
                todo += [(x, stops, axes, guards) for x in reversed(visit.sub_stmts(s))]
            case ir.For(var=var, start=start, stop=stop, body=body) if arith.is_const(start, 0):
                todo.append((body, {**stops, var: arith.substitute(stop, axes)}, axes, guards))
            case ir.Block(axes=own, where=where):
                bound = {**axes, **{a.var: arith.substitute(a.binding, axes) for a in own}}
                terms = [] if where is None else visit.conjuncts(where)
                inner = (*guards, *(visit.substitute(t, bound) for t in terms))
                todo += [(x, stops, bound, inner) for x in visit.sub_stmts(s)]  # the body first
            case ir.Store(mask=None) if s.value.lanes == 1:
                yield _over_loops(s, axes), stops, guards


def _over_loops(s: ir.Store, axes: Mapping[str, arith.Expr]) -> ir.Store:
    return ir.replace(s, indices=tuple(arith.substitute(i, axes) for i in s.indices))


def _fills(
    store: ir.Store, stops: Stops, guards: tuple[Expr, ...], env: Mapping[str, Interval]
) -> bool:
    dims = list(zip(store.indices, store.buffer.shape))
    if not all(_excludes_only_out_of_range(term, dims, env) for term in guards):
        return False
    used: set[str] = set()
    for index, dim in dims:
        own = arith.free_vars(index) & stops.keys()
        if own & used or not _is_dense(index, {v: stops[v] for v in own}, dim, env):
            return False
        used |= own
    # a loop that no index uses repeats the store; it must run at least once
    return all(prove("ge", stops[v], 1, env) for v in stops.keys() - used)


def _excludes_only_out_of_range(
    term: Expr, dims: list[tuple[arith.Expr, arith.Expr]], env: Mapping[str, Interval]
) -> bool:
    """Does the guard skip only elements that are out of range?"""
    match term:
        case ir.Compare(op="lt", a=ir.Index(expr=a), b=(ir.Index() | ir.Lit()) as b):
            top = ir.index_of(b)
            return any(a == index and prove("ge", top, dim, env) for index, dim in dims)
        case ir.Compare(op="ge", a=ir.Index(expr=a), b=(ir.Index() | ir.Lit()) as b):
            return arith.is_const(ir.index_of(b), 0) and any(a == index for index, _ in dims)
    return False


def _is_dense(
    index: arith.Expr, stops: Stops, dim: arith.Expr, env: Mapping[str, Interval]
) -> bool:
    """Does the index take every value from 0 to dim - 1?"""
    form = affine(index, tuple(stops), env)
    if form is None or not arith.is_const(form.rest, 0):
        return False
    coefficients = sorted((arith.as_int(c) or 0, v) for v, c in form.coeff.items())
    covered: arith.Expr = arith.Const(0)  # the index takes all of 0 … covered
    for step, var in coefficients:
        if step < 1 or not prove("le", step, covered + 1, env):
            return False
        covered = covered + (stops[var] - 1) * step
    return prove("ge", covered + 1, dim, env)
