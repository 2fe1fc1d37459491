"""What the primitives share: their result type, and putting a changed nest back into a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.ir import Block, For, Kernel, Stmt
from ingot.schedule import tree
from ingot.schedule.checks import Problem
from ingot.schedule.facts import Facts
from ingot.schedule.show import refuse

Result = tuple[Kernel, Sequence[For | Block]]  # and the nodes made, in the order of the handles


def with_body(kernel: Kernel, body: Stmt) -> Kernel:
    return ir.replace(kernel, body=body)


def put(kernel: Kernel, old: Stmt, new: Stmt | None) -> Kernel:
    return with_body(kernel, tree.put(kernel.body, old, new))


_is_unsafe: ContextVar[bool] = ContextVar("unsafe schedule step", default=False)


@contextmanager
def unsafe() -> Iterator[None]:
    """Steps inside are not checked: their author answers for them."""
    token = _is_unsafe.set(True)
    try:
        yield
    finally:
        _is_unsafe.reset(token)


def is_unsafe() -> bool:
    return _is_unsafe.get()


def insist(kernel: Kernel, node: For | Block, what: str, problem: Problem | None) -> None:
    """Raise the problem, if there is one, and checks are made."""
    if problem is not None and not is_unsafe():
        raise refuse(kernel.body, node, what, problem.why, problem.hint)


def rebind(s: Stmt, env: Mapping[str, arith.IntLike], facts: Facts) -> Stmt:
    """Loop variables replaced in `s`; bindings and guards simplified, in the same way."""
    return tidy(visit.substitute(s, env), facts)


def tidy(s: Stmt, facts: Facts) -> Stmt:
    """Bindings, guards and bounds in canonical form. `facts` knows the loops around `s`."""
    match s:
        case For():
            start, stop = facts.simplify(s.start), facts.simplify(s.stop)
            loop = ir.replace(s, start=start, stop=stop)
            facts.add(loop)
            return ir.replace(loop, body=tidy(s.body, facts))
        case Block():
            axes = tuple(ir.replace(a, binding=facts.simplify(a.binding)) for a in s.axes)
            where = None if s.where is None else visit.map_expr(s.where, _canonical(facts))
            return ir.replace(s, axes=axes, where=where)
        case ir.Seq() | ir.Alloc() | ir.Let() | ir.If() | ir.While():
            return visit.rebuild_stmt(s, lambda x: tidy(x, facts), lambda e: e, lambda i: i)
    return s


def _canonical(facts: Facts):
    def fn(e: ir.Expr) -> ir.Expr:
        return ir.Index(facts.simplify(e.expr)) if isinstance(e, ir.Index) else e

    return fn


def nest(loops: list[For], body: Stmt) -> Stmt:
    """The loops around `body`, outermost first; their own bodies are dropped."""
    for loop in reversed(loops):
        body = ir.replace(loop, body=body)
    return body


def facts_at(kernel: Kernel, node: For | Block) -> Facts:
    return Facts(kernel, tree.loops_above(kernel.body, node))
