"""Solver of linear equations: the values of sizes, from shapes that contain them.

In: pairs of an expression and its value. Out: the variables that these determine. Called for a
kernel's arguments, and for shapes and arrays on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ingot.arith import expr as ir
from ingot.arith.affine import affine
from ingot.arith.expr import Expr, IntLike
from ingot.arith.simplify import simplify


def solve(
    pairs: Iterable[tuple[Expr, IntLike]], known: Mapping[str, IntLike] | None = None
) -> dict[str, Expr]:
    """`n` gives n; `2 * n + m` gives n if m is known and the division is exact. Does not check that
    all pairs agree. The result includes `known`."""
    found = {name: ir.wrap(value) for name, value in (known or {}).items()}
    todo = [(expr, ir.wrap(value)) for expr, value in pairs]
    for expr, value in todo:
        if isinstance(expr, ir.Var):
            found.setdefault(expr.name, value)
    has_changed = True
    while has_changed:
        has_changed = False
        for expr, value in todo:
            unknown = sorted(ir.free_vars(expr) - found.keys())
            if len(unknown) != 1:
                continue
            solution = _solve_for(ir.substitute(expr, found), unknown[0], value)
            if solution is not None:
                found[unknown[0]] = solution
                has_changed = True
    return found


def _solve_for(expr: Expr, name: str, value: Expr) -> Expr | None:
    form = affine(expr, (name,))
    step = None if form is None else ir.as_int(form.coeff[name])
    if form is None or not step:
        return None
    rest = simplify(value - form.rest)
    if abs(step) == 1:
        return simplify(rest * step)
    number = ir.as_int(rest)
    return None if number is None or number % step else ir.Const(number // step)
