"""Quotients and remainders of a loop variable, counted along with the loop.

    for i: … i // n … i % n   →   q, r = start // n, start % n
                                  for i: … q … r …
                                         q, r = (q + 1, 0) if r + 1 == n else (q, r + 1)

So the index of a loop that was fused from two costs no division in an iteration, only one before
the first. A thread that runs a range of a parallel loop starts in the middle of it in the same way.
LLVM would leave the division in the loop, and would compute what depends on it again in the loops
inside: it moves no expression out of a loop that contains a division by a variable, which may trap.
Made by llvm_kernel.py for each loop; llvm_indices.py asks for the counters that indices need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ingot.arith import expr as arith
from ingot.arith.simplify import simplify
from ingot.codegen.llvm_text import Function
from ingot.support.stack import segmented

# Of the branch where a remainder returns to 0: weights that keep LLVM from making it a select.
RARELY = '!{!"branch_weights", i32 1, i32 1000}'


@dataclass(eq=False)
class Counter:
    """value // divisor and value % divisor: LLVM values in an iteration, and before the first."""

    value: arith.Expr
    divisor: arith.Expr
    quotient: str
    remainder: str
    divides: str  # the divisor
    first_quotient: str
    first_remainder: str
    counts: list[Counter] = field(default_factory=list)  # those that count its quotients
    has_remainder: bool = False  # is the remainder used?


class LoopCounters:
    """The counters of one loop. Made before the branch to the loop's head."""

    def __init__(self, fn: Function, var: str, start: str):
        self._fn, self._var, self._start = fn, var, start
        self._before, self._block = fn.area(), fn.block
        self._counters: dict[tuple[arith.Expr, arith.Expr], Counter] = {}
        self._phis: list[str] = []

    def at_head(self) -> None:
        """The loop's head is here, after its own phi."""
        self._phis = self._fn.area()

    @segmented
    def find(
        self, value: arith.Expr, divisor: arith.Expr, index: Callable[[arith.Expr], str]
    ) -> Counter | None:
        """The counter of value // divisor; None where the value is not counted by the loop.
        `index` prints a divisor, where it is known before the loop."""
        if (value, divisor) in self._counters:
            return self._counters[value, divisor]
        base, first = None, self._start
        if isinstance(value, arith.FloorDiv):
            base = self.find(value.a, value.b, index)
            if base is None:
                return None
            first = base.first_quotient
        elif value != arith.Var(self._var):
            return None
        made = self._counters[value, divisor] = self._new(value, divisor, first, index(divisor))
        if base is not None:
            base.counts.append(made)
        return made

    def _new(self, value: arith.Expr, divisor: arith.Expr, first: str, divides: str) -> Counter:
        fn = self._fn
        with fn.into(self._before):
            quotient = fn.op(f"udiv i64 {first}, {divides}")
            remainder = fn.op(f"urem i64 {first}, {divides}")
        return Counter(value, divisor, fn.fresh(), fn.fresh(), divides, quotient, remainder)

    def count(self) -> None:
        """After the loop's body: the values of the next iteration."""
        fn, found = self._fn, self._counters.values()
        equal = {c: same for c in found if (same := self._nested(c)) is not None}
        roots = [c for c in found if not isinstance(c.value, arith.FloorDiv) and c not in equal]
        following = {name: value for root in roots for name, value in self._raise(root).items()}
        first = {c.quotient: c.first_quotient for c in found}
        first |= {c.remainder: c.first_remainder for c in found}
        with fn.into(self._phis):
            for name, value in following.items():
                fn.do(f"{name} = phi i64 [{first[name]}, %{self._block}], [{value}, %{fn.block}]")
            for counter, same in equal.items():
                fn.do(f"{counter.quotient} = add i64 {same.quotient}, 0")

    def _nested(self, counter: Counter) -> Counter | None:
        """The counter of (i // m) // n, if this one is of i // (m · n): the quotients are equal."""
        if counter.has_remainder or counter.counts or isinstance(counter.value, arith.FloorDiv):
            return None
        for (value, divisor), other in self._counters.items():
            match value:
                case arith.FloorDiv(a=counter.value, b=inner):
                    if arith.is_const(simplify(inner * divisor - counter.divisor), 0):
                        return other
        return None

    def _raise(self, root: Counter) -> dict[str, str]:
        """Count an iteration; by name, the values of it and of those that count its quotients. A
        branch, since most iterations raise the remainder only."""
        fn, before = self._fn, self._fn.block
        wrap, done = fn.label("wrap"), fn.label("counted")
        raised = fn.op(f"add nuw nsw i64 {root.remainder}, 1")
        wraps = fn.op(f"icmp eq i64 {raised}, {root.divides}")
        fn.branch_if(wraps, wrap, done)
        fn.lines[-1] += f", !prof {RARELY}"
        fn.start(wrap)
        carried = {root.quotient: fn.op(f"add nuw nsw i64 {root.quotient}, 1")}
        for counter in root.counts:
            carried |= self._add(counter, "1")
        fn.branch(done)
        fn.start(done)
        values = {n: fn.op(f"phi i64 [{n}, %{before}], [{v}, %{wrap}]") for n, v in carried.items()}
        values[root.remainder] = fn.op(f"phi i64 [{raised}, %{before}], [0, %{wrap}]")
        return values

    @segmented
    def _add(self, counter: Counter, by: str) -> dict[str, str]:
        """Count `by` quotients of another counter, 0 or 1."""
        fn = self._fn
        raised = fn.op(f"add nuw nsw i64 {counter.remainder}, {by}")
        wraps = fn.op(f"icmp eq i64 {raised}, {counter.divides}")
        carry = fn.op(f"zext i1 {wraps} to i64")
        values = {
            counter.quotient: fn.op(f"add nuw nsw i64 {counter.quotient}, {carry}"),
            counter.remainder: fn.op(f"select i1 {wraps}, i64 0, i64 {raised}"),
        }
        for other in counter.counts:
            values |= self._add(other, carry)
        return values
