"""Variables from the values of expressions: what sizes are, from shapes that mention them.

In: pairs of an expression and what it is. Out: the variables that these determine. Called for a
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
    """`n` is its value, and `2 * n + m` gives n where m is known and the division has no rest.
    Whether all pairs agree is not asked. The answer holds `known` too."""
    found = {name: ir.wrap(value) for name, value in (known or {}).items()}
    todo = [(expr, ir.wrap(value)) for expr, value in pairs]
    for expr, value in todo:
        if isinstance(expr, ir.Var):
            found.setdefault(expr.name, value)
    is_learning = True
    while is_learning:
        is_learning = False
        for expr, value in todo:
            unknown = sorted(ir.free_vars(expr) - found.keys())
            if len(unknown) != 1:
                continue
            answer = _solved(ir.substitute(expr, found), unknown[0], value)
            if answer is not None:
                found[unknown[0]] = answer
                is_learning = True
    return found


def _solved(expr: Expr, name: str, value: Expr) -> Expr | None:
    form = affine(expr, (name,))
    step = None if form is None else ir.as_int(form.coeff[name])
    if form is None or not step:
        return None
    rest = simplify(value - form.rest)
    if abs(step) == 1:
        return simplify(rest * step)
    number = ir.as_int(rest)
    return None if number is None or number % step else ir.Const(number // step)
