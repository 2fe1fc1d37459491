"""Static bounds check: accesses that are always out of range, such as `A[i + 1]` for i in range(n)
of A: f32[n].

In: a kernel that a user wrote. Out: nothing, or `InvariantError` with the statement. Called by
`@ingot.kernel`. It rejects only what is certain: an affine index over loops whose bounds depend on
no other loop, in a statement that is never skipped. The interpreter checks the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ingot.arith import expr as arith
from ingot.arith.affine import affine
from ingot.arith.bounds import Interval, bounds_of, prove
from ingot.arith.simplify import simplify
from ingot.loops import ir, visit
from ingot.loops.ir import Expr, Stmt
from ingot.loops.verify_values import InvariantError, show_access
from ingot.support.stack import segmented

Env = Mapping[str, Interval]


def check_bounds(kernel: ir.Kernel) -> None:
    """Reject an access that is out of range in some iteration for all sizes."""
    if any(isinstance(s, ir.Fail) for s in visit.walk_stmts(kernel.body)):
        return  # statements after a Fail may never run
    env = {size.name: Interval(max(1, size.low), size.high) for size in kernel.sizes}
    walk = _Walk(env)
    walk.stmt(kernel.body)
    for stmt, access, loops, axes in walk.found:
        for index, dim in zip(access.indices, access.buffer.shape):
            range_ = _ends(arith.substitute(index, axes), loops, env)
            if range_ is None:
                continue
            low, high = range_
            if prove("ge", high, dim, env):
                raise _outside(kernel, stmt, access, f"the index reaches {high}, beyond {dim} - 1")
            if prove("lt", low, 0, env):
                raise _outside(kernel, stmt, access, f"the index starts at {low}")


def _outside(kernel: ir.Kernel, stmt: Stmt, access: ir.Load | ir.Store, why: str) -> InvariantError:
    what = f"{show_access(access)} is out of range"
    return InvariantError(what, f"kernel {kernel.name}", why, stmt)


def _ends(
    index: arith.Expr, loops: Mapping[str, ir.For], env: Env
) -> tuple[arith.Expr, arith.Expr] | None:
    """The least and greatest value of an index; None if they are not known."""
    form = affine(index, list(loops), env)
    if form is None or visit.opaque_values(form.rest) or arith.free_vars(form.rest) - env.keys():
        return None
    low, high = form.rest, form.rest
    for var, step in form.coeff.items():
        range_ = bounds_of(step, env)
        first, last = loops[var].start, loops[var].stop - 1
        if range_.low is not None and range_.low >= 0:
            low, high = low + step * first, high + step * last
        elif range_.high is not None and range_.high <= 0:
            low, high = low + step * last, high + step * first
        else:
            return None
    return simplify(low, env), simplify(high, env)


Found = tuple[Stmt, ir.Load | ir.Store, dict[str, ir.For], dict[str, arith.Expr]]


class _Walk:
    """Accesses that every run of the kernel makes, with the loops around them and axis bindings."""

    def __init__(self, env: Env):
        self.env = env
        self.loops: dict[str, ir.For] = {}
        self.axes: dict[str, arith.Expr] = {}
        self.found: list[Found] = []

    @segmented
    def stmt(self, s: Stmt) -> None:
        if isinstance(s, ir.If | ir.While) or (isinstance(s, ir.Block) and s.where is not None):
            return
        for load in (load for value in visit.own_exprs(s) for load in _unconditional_loads(value)):
            self.found.append((s, load, self.loops, self.axes))
        if isinstance(s, ir.Store) and s.mask is None and s.value.lanes == 1:
            self.found.append((s, s, self.loops, self.axes))
        before = self.loops, self.axes
        if isinstance(s, ir.For):
            if not self.is_certain(s):
                return
            self.loops = {**self.loops, s.var: s}
        if isinstance(s, ir.Block):
            bound = {axis.var: arith.substitute(axis.binding, self.axes) for axis in s.axes}
            self.axes = {**self.axes, **bound}
        for child in visit.sub_stmts(s):
            self.stmt(child)
        self.loops, self.axes = before

    def is_certain(self, loop: ir.For) -> bool:
        """It runs all iterations at any sizes, or none: its bounds depend on sizes alone."""
        names = arith.free_vars(loop.start) | arith.free_vars(loop.stop)
        is_plain = not (visit.opaque_values(loop.start) or visit.opaque_values(loop.stop))
        is_empty = prove("le", loop.stop, loop.start, self.env)
        return is_plain and names <= self.env.keys() and not is_empty


def _unconditional_loads(e: Expr) -> Iterator[ir.Load]:
    """Loads of a value that do not depend on a select's condition."""
    todo = [e]
    while todo:
        e = todo.pop()
        if isinstance(e, ir.Load) and e.mask is None and e.width == 1:
            yield e
        todo += [e.cond] if isinstance(e, ir.Select) else reversed(visit.sub_exprs(e))
