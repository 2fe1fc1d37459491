"""Shared by the primitives: result type, unchecked mode, errors, replacing a nest in a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import Block, For, Kernel, Stmt
from ingot.schedule import tree
from ingot.schedule.analyzer import Analyzer
from ingot.schedule.checks import Problem
from ingot.schedule.show import schedule_error
from ingot.support.stack import segmented

Result = tuple[
    Kernel, Sequence[For | Block]
]  # the new kernel; the new nodes, in the order of the returned handles


def with_body(kernel: Kernel, body: Stmt) -> Kernel:
    return ir.replace(kernel, body=body)


def put(kernel: Kernel, old: Stmt, new: Stmt | None) -> Kernel:
    return with_body(kernel, tree.put(kernel.body, old, new))


_is_unsafe: ContextVar[bool] = ContextVar("unsafe schedule step", default=False)


@contextmanager
def unsafe() -> Iterator[None]:
    """Skip the legality checks of the steps inside; their author guarantees legality."""
    token = _is_unsafe.set(True)
    try:
        yield
    finally:
        _is_unsafe.reset(token)


def is_unsafe() -> bool:
    return _is_unsafe.get()


def raise_if(kernel: Kernel, node: For | Block, what: str, problem: Problem | None) -> None:
    """Raise the problem, if there is one and checks are on."""
    if problem is not None and not is_unsafe():
        raise schedule_error(kernel.body, node, what, problem.why, problem.hint)


def substitute_loops(s: Stmt, env: Mapping[str, arith.IntLike], analyzer: Analyzer) -> Stmt:
    """Replace loop variables in `s`, then canonicalize it."""
    return canonicalize(visit.substitute(s, env), analyzer)


@segmented
def canonicalize(s: Stmt, analyzer: Analyzer) -> Stmt:
    """Simplify bindings, guards and bounds. `analyzer` knows the loops around `s`."""
    match s:
        case For():
            start, stop = analyzer.simplify(s.start), analyzer.simplify(s.stop)
            loop = ir.replace(s, start=start, stop=stop)
            analyzer.add(loop)
            return ir.replace(loop, body=canonicalize(s.body, analyzer))
        case Block():
            axes = tuple(ir.replace(a, binding=analyzer.simplify(a.binding)) for a in s.axes)
            where = None if s.where is None else visit.map_expr(s.where, _canonical(analyzer))
            return ir.replace(s, axes=axes, where=where)
        case ir.Seq() | ir.Alloc() | ir.Let() | ir.If() | ir.While():
            return visit.rebuild_stmt(
                s, lambda x: canonicalize(x, analyzer), lambda e: e, lambda i: i
            )
    return s


def _canonical(analyzer: Analyzer):
    def fn(e: ir.Expr) -> ir.Expr:
        return ir.Index(analyzer.simplify(e.expr)) if isinstance(e, ir.Index) else e

    return fn


def nest(loops: list[For], body: Stmt) -> Stmt:
    """The loops around `body`, outermost first; their own bodies are dropped."""
    for loop in reversed(loops):
        body = ir.replace(loop, body=body)
    return body


def analyzer_at(kernel: Kernel, node: For | Block) -> Analyzer:
    return Analyzer(kernel, tree.loops_above(kernel.body, node))
