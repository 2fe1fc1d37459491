"""The canonical form of an expression: an integer-weighted sum of products of atoms.

    4*i + n*j - 3   is   {(i,): 4, (j, n): 1, (): -3}

An atom is a variable, an opaque leaf, or a `//`, `%`, `min` or `max`. Products are sorted by
`order`, which depends on names and text only, so that the form is the same in every process.
`simplify` decides which expressions become atoms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from ingot.arith import expr as ir
from ingot.arith.expr import Const, Expr
from ingot.support.stack import segmented

Product = tuple[Expr, ...]
Sum = dict[Product, int]
ONE: Product = ()
MAX_PRODUCT_TERMS = 128  # terms of an expanded product; larger ones stay factored; heuristic


def order(atom: Expr) -> tuple[int, str]:
    """Sort key of atoms: variables by name, then others by text."""
    return (0, atom.name) if isinstance(atom, ir.Var) else (1, _text(atom))


@lru_cache(maxsize=1 << 16)
def _text(atom: Expr) -> str:
    return ir.show(atom)


def constant(value: int) -> Sum:
    return {ONE: value} if value else {}


def atom(expr: Expr) -> Sum:
    return {(expr,): 1}


def as_constant(total: Mapping[Product, int]) -> int | None:
    """The value of a constant sum; None for others."""
    if not total:
        return 0
    return total.get(ONE) if len(total) == 1 else None


def add_to(total: Sum, more: Mapping[Product, int], times: int = 1) -> None:
    """total += times · more, in place."""
    for product, weight in more.items():
        new = total.get(product, 0) + times * weight
        if new:
            total[product] = new
        else:
            total.pop(product, None)


def plus(a: Mapping[Product, int], b: Mapping[Product, int], times: int = 1) -> Sum:
    total = dict(a)
    add_to(total, b, times)
    return total


def scaled(a: Mapping[Product, int], times: int) -> Sum:
    return {product: weight * times for product, weight in a.items()} if times else {}


def join(a: Product, b: Product) -> Product:
    if not a or not b:
        return a or b
    return tuple(sorted(a + b, key=order))


def times(a: Mapping[Product, int], b: Mapping[Product, int]) -> Sum:
    if len(a) * len(b) > MAX_PRODUCT_TERMS or _is_factored(a) or _is_factored(b):
        a, b = (x if len(x) == 1 else atom(to_expr(x)) for x in (a, b))
    total: Sum = {}
    for pa, wa in a.items():
        add_to(total, {join(pa, pb): wb for pb, wb in b.items()}, wa)
    return total


def _is_factored(total: Mapping[Product, int]) -> bool:
    """Is this a product that was too large to expand?"""
    return len(total) == 1 and any(
        type(x) is ir.Add or type(x) is ir.Sub for x in next(iter(total))
    )


def divide_product(product: Product, by: Product) -> Product | None:
    """product / by, if the product contains all factors of `by`."""
    rest = list(product)
    for factor in by:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def take_out_multiples(top: Sum, divisor: Sum) -> tuple[Sum, Sum] | None:
    """(q, r) with top = q·divisor + r and a smaller r, or None."""
    number = as_constant(divisor)
    if number == 0:
        return None
    if number is not None:
        return _take_out_number(top, number)
    quotient: Sum = {}
    lead = max(divisor, key=lambda p: (len(p), _by_atoms(p)))
    for product, weight in list(top.items()):
        rest = divide_product(product, lead)
        if rest is None or weight % divisor[lead] or top.get(product) != weight:
            continue
        part = {rest: weight // divisor[lead]}
        less = plus(top, times(part, divisor), -1)
        if len(less) < len(top):
            top = less
            add_to(quotient, part)
    return (quotient, top) if quotient else None


def _take_out_number(top: Sum, number: int) -> tuple[Sum, Sum] | None:
    """Weights are reduced towards zero, the constant to 0 … number-1."""
    quotient: Sum = {}
    rest: Sum = {}
    for product, weight in top.items():
        count = weight // number if product == ONE or weight >= 0 else -(-weight // number)
        if count:
            quotient[product] = count
        if weight != count * number:
            rest[product] = weight - count * number
    return (quotient, rest) if quotient else None


def _by_atoms(product: Product) -> list[tuple[int, str]]:
    return [order(a) for a in product]


def of(expr: Expr) -> Sum:
    """The sum of an expression, without rules; canonical if the expression is."""
    total: Sum = {}
    for term, sign in addends(expr):
        add_to(total, _of_addend(term), sign)
    return total


def addends(expr: Expr) -> Iterator[tuple[Expr, int]]:
    """The terms of a tree of + and - with their signs, from left to right."""
    todo: list[tuple[Expr, int]] = [(expr, 1)]
    while todo:
        term, sign = todo.pop()
        if isinstance(term, ir.Add | ir.Sub):
            todo.append((term.b, sign if isinstance(term, ir.Add) else -sign))
            todo.append((term.a, sign))
        else:
            yield term, sign


def _of_addend(term: Expr) -> Sum:
    if isinstance(term, Const):
        return constant(term.value)
    return _of_product(term) if isinstance(term, ir.Mul) else atom(term)


@segmented
def _of_product(term: ir.Mul) -> Sum:
    return times(of(term.a), of(term.b))


def to_expr(total: Mapping[Product, int]) -> Expr:
    """Added terms, then subtracted ones, each sorted; the constant is last."""
    if not total:
        return Const(0)
    if len(total) == 1:
        ((product, weight),) = total.items()
        return _term(product, weight)
    rest = total.get(ONE, 0)
    terms = sorted(((p, w) for p, w in total.items() if p), key=lambda item: _by_atoms(item[0]))
    added = [_term(p, w) for p, w in terms if w > 0]
    if not added:
        added, rest = [Const(rest)], 0
    result = added[0]
    for term in added[1:]:
        result = ir.add(result, term)
    for term in [_term(p, -w) for p, w in terms if w < 0]:
        result = ir.sub(result, term)
    return ir.add(result, Const(rest)) if rest >= 0 else ir.sub(result, Const(-rest))


def _term(product: Product, weight: int) -> Expr:
    if not product:
        return Const(weight)
    result = product[0]
    for factor in product[1:]:
        result = ir.mul(result, factor)
    return ir.mul(result, Const(weight))
