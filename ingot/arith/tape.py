"""Repeated evaluation of one expression: compiled once to a tape, shared subexpressions once.

    tape(n * 3 + (n * 3) // 2).evaluate({"n": 4})      →  18

In: an expression without opaque leaves. Out: its value for many environments, several times faster
than `arith.evaluate`. Used where a size is needed for each new shape (runtime/sizes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from ingot.arith.expr import FOLD, Binary, Const, Expr, Var, fold

Step = tuple[Callable[[int, int], int], int, int]  # the operation, and where its operands are


class Tape:
    """`steps` append to a list that starts with the leaves: constants, then variables."""

    def __init__(self, expr: Expr):
        # one walk over the tree, which is long: a leaf has the place ~n until all are known
        leaves: dict[int | str, int] = {}
        places: dict[tuple[type, int, int], int] = {}

        def leaf(e: Expr) -> int:
            return leaves.setdefault(_leaf(e), ~len(leaves))

        def step(e: Binary, a: int, b: int) -> int:
            return places.setdefault((type(e), a, b), len(places))

        result, count = fold(expr, leaf, step), len(leaves)

        def place(n: int) -> int:
            return ~n if n < 0 else n + count

        self._leaves = list(leaves)
        self._steps: list[Step] = [(FOLD[kind], place(a), place(b)) for kind, a, b in places]
        self._result = place(result)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The value; KeyError names an unbound variable."""
        values = [env[leaf] if isinstance(leaf, str) else leaf for leaf in self._leaves]
        for operation, a, b in self._steps:
            values.append(operation(values[a], values[b]))
        return values[self._result]


@lru_cache(maxsize=1024)
def tape(expr: Expr) -> Tape:
    return Tape(expr)


class Definitions:
    """Names defined one after the other, each by an expression over variables and earlier names."""

    def __init__(self, definitions: Iterable[tuple[str, Expr]]):
        self._tapes = [(name, Tape(expr)) for name, expr in definitions]

    def evaluate(self, env: Mapping[str, int]) -> dict[str, int]:
        """The environment with the names."""
        known = dict(env)
        for name, expr in self._tapes:
            known[name] = expr.evaluate(known)
        return known


@lru_cache(maxsize=64)
def definitions(given: tuple[tuple[str, Expr], ...]) -> Definitions:
    return Definitions(given)


def _leaf(e: Expr) -> int | str:
    match e:
        case Const(value=value):
            return value
        case Var(name=name):
            return name
    raise TypeError(f"not a size: {e!r}")
