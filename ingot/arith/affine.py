"""Affine forms. In: an expression and variables. Out: coefficients and a remainder.

    affine(n*i + 4*j + k + 1, ["i", "j"])  →  i: n, j: 4, rest: k + 1

Schedules and legalize compute strides with it. Coefficients and rest contain none of the variables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ingot.arith import expr as ir
from ingot.arith import sums
from ingot.arith.expr import Const, Expr, IntLike, wrap
from ingot.arith.interval import Interval
from ingot.arith.simplify import simplifier
from ingot.arith.sums import Sum


@dataclass(frozen=True)
class Affine:
    """Σ coeff[v]·v + rest. A variable that does not occur has coefficient 0."""

    coeff: dict[str, Expr]
    rest: Expr

    def to_expr(self) -> Expr:
        total = self.rest
        for name, factor in self.coeff.items():
            total = total + factor * ir.Var(name)
        return total


def affine(
    expr: IntLike, vars: Collection[str], env: Mapping[str, Interval] | None = None
) -> Affine | None:
    """The affine form of `expr` over `vars`; None if it is not affine."""
    coeff: dict[str, Sum] = {name: {} for name in vars}
    rest: Sum = {}
    for product, weight in simplifier(env).normal(wrap(expr)).items():
        mentioned = [atom for atom in product if not coeff.keys().isdisjoint(ir.free_vars(atom))]
        if not mentioned:
            rest[product] = weight
            continue
        atom = mentioned[0]
        if len(mentioned) > 1 or not isinstance(atom, ir.Var):
            return None
        factor = sums.divide_product(product, (atom,))
        assert factor is not None
        sums.add_to(coeff[atom.name], {factor: weight})
    return Affine({name: sums.to_expr(c) for name, c in coeff.items()}, sums.to_expr(rest))


def coefficient(expr: IntLike, var: str, env: Mapping[str, Interval] | None = None) -> Expr | None:
    """The stride of `expr` in `var`; None if it is not affine in `var`."""
    form = affine(expr, (var,), env)
    return None if form is None else form.coeff.get(var, Const(0))
