"""Counterexamples: values of the variables for which a claimed lower bound does not hold.

In: ranges of variables; a sum and a bound. Out: whether some sample contradicts the bound. Used by
range_analysis.py before its search, which takes longest for what cannot be proved: most pairs of
buffers in an arena are in one order, so that every second question is of that kind. A sample is in
the ranges, so it contradicts only what no sound search proves.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.arith import expr as ir
from ingot.arith.expr import Expr
from ingot.arith.interval import ANY, Interval
from ingot.arith.sums import Sum

# distances from the lower end of a variable's range; each variable takes them in another order
DISTANCES = (0, 5, 77, 1009)


class Samples:
    """Values of variables within their ranges, and of atoms over them, which are kept."""

    def __init__(self, env: Mapping[str, Interval]):
        self._env = env
        self._variables: dict[str, tuple[int, ...] | None] = {}
        self._atoms: dict[Expr, tuple[int, ...] | None] = {}

    def contradict(self, total: Sum, goal: int) -> bool:
        """Is the sum below `goal` in a sample? False if it cannot be computed."""
        values = [0] * len(DISTANCES)
        for product, weight in total.items():
            term = [weight] * len(DISTANCES)
            for atom in product:
                found = self._of(atom)
                if found is None:
                    return False
                term = [x * y for x, y in zip(term, found)]
            values = [x + y for x, y in zip(values, term)]
        return min(values) < goal

    def _of(self, atom: Expr) -> tuple[int, ...] | None:
        if isinstance(atom, ir.Var):
            return self._variable(atom.name)
        if atom not in self._atoms:
            self._atoms[atom] = self._computed(atom)
        return self._atoms[atom]

    def _computed(self, atom: Expr) -> tuple[int, ...] | None:
        """None: an opaque leaf, a division by zero, or a variable without values."""
        columns = {name: self._variable(name) for name in sorted(ir.free_vars(atom))}
        known = {name: column for name, column in columns.items() if column is not None}
        samples = ({n: c[row] for n, c in known.items()} for row in range(len(DISTANCES)))
        try:
            return tuple(ir.evaluate(atom, sample) for sample in samples)
        except (KeyError, ZeroDivisionError):
            return None

    def _variable(self, name: str) -> tuple[int, ...] | None:
        if name not in self._variables:
            first = len(self._variables) % len(DISTANCES)
            steps = DISTANCES[first:] + DISTANCES[:first]
            self._variables[name] = _values(self._env.get(name, ANY), steps)
        return self._variables[name]


def _values(range_: Interval, steps: tuple[int, ...]) -> tuple[int, ...] | None:
    low, high = range_
    if low is None:
        return tuple(-step if high is None else high - step for step in steps)
    if high is None:
        return tuple(low + step for step in steps)
    return tuple(min(high, low + step) for step in steps) if low <= high else None
