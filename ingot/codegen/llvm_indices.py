"""Integer expressions → LLVM instructions on i64; the LLVM values of variables, lets and buffers.

The base of llvm_memory.py and llvm_values.py. Index arithmetic on loaded data carries no `nsw`;
divisions are total.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, bounds_of
from ingot.codegen.llvm_counters import LoopCounters
from ingot.codegen.llvm_text import Function, splat, vector
from ingot.loops import ir
from ingot.support.stack import segmented


@dataclass
class Area:
    """Instructions at the start of a loop's body, and the indices that they compute."""

    lines: list[str]
    known: dict[arith.Expr, str] = field(default_factory=dict)


class IndexPrinter:
    """Emits indices into a Function, given the LLVM values of variables and buffers."""

    def __init__(self, fn: Function):
        self.fn = fn
        self.variables: dict[str, str] = {}  # loop variables and sizes, i64
        self.ranges: dict[str, Interval] = {}
        self.lets: dict[str, str] = {}
        self.pointers: dict[str, str] = {}
        self.loops: list[str] = []  # variables of the loops around, outermost first
        self.sizes: set[str] = set()  # the dynamic dimensions
        self._counters: list[LoopCounters] = []  # of the loops around
        self._areas = [Area(fn.area())]  # of the function, then of each loop around

    @contextmanager
    def body_of(self, loop: str, counters: LoopCounters) -> Iterator[None]:
        """Around the statements of a loop; the first of them starts here."""
        self.loops.append(loop)
        self._counters.append(counters)
        self._areas.append(Area(self.fn.area()))
        yield
        counters.count()
        self.loops.pop()
        self._counters.pop()
        self._areas.pop()

    def value(self, e: ir.Expr) -> str:
        """An opaque value inside an index; llvm_values.py prints it."""
        raise NotImplementedError

    @segmented
    def index(self, e: arith.Expr) -> str:
        """The value of an index. One of dynamic sizes is computed once, where the innermost loop
        that it depends on starts: their divisions would make most of a kernel's text. No operation
        traps, so it may be computed where its use is guarded."""
        if not isinstance(e, arith.Binary) or not arith.free_vars(e) & self.sizes:
            return self._new_index(e)
        if arith.opaques(e):
            return self._new_index(e)
        if isinstance(e, arith.FloorDiv | arith.Mod) and (counted := self._counted(e)):
            return counted
        names = arith.free_vars(e)
        level = max((i + 1 for i, loop in enumerate(self.loops) if loop in names), default=0)
        area = self._areas[level]
        if e not in area.known:
            with self.fn.into(area.lines):
                area.known[e] = self._new_index(e)
        return area.known[e]

    def _new_index(self, e: arith.Expr) -> str:
        match e:
            case arith.Const(value=value):
                return str(value)
            case arith.Var(name=name):
                return self.variables[name]
            case arith.Opaque(payload=payload):
                return self.value(payload)
            case arith.FloorDiv() | arith.Mod():
                return self._divide_index(e)
            case arith.Min() | arith.Max():
                name = "smin" if isinstance(e, arith.Min) else "smax"
                args = [("i64", self.index(e.a)), ("i64", self.index(e.b))]
                return self.fn.call("i64", f"llvm.{name}.i64", args)
            case arith.Binary(a=a, b=b):
                op = {"+": "add", "-": "sub", "*": "mul"}[e.symbol]
                flag = "" if arith.opaques(e) else " nsw"
                return self.fn.op(f"{op}{flag} i64 {self.index(a)}, {self.index(b)}")
        raise TypeError(f"not an integer expression: {e!r}")

    def _counted(self, e: arith.FloorDiv | arith.Mod) -> str | None:
        """The value of a quotient or remainder that a loop around counts."""
        if not self._may_count(e):
            return None
        for counters in reversed(self._counters):
            if (counter := counters.find(e.a, e.b, self._divisor)) is not None:
                if isinstance(e, arith.FloorDiv):
                    return counter.quotient
                counter.has_remainder = True
                return counter.remainder
        return None

    def _may_count(self, e: arith.FloorDiv | arith.Mod) -> bool:
        """Are the divisors natural, and known where the kernel starts? Is a loop divided?"""
        value: arith.Expr = e
        while isinstance(value, arith.FloorDiv | arith.Mod):
            if not arith.free_vars(value.b) <= self.sizes or arith.opaques(value.b):
                return False
            if not _is_natural(bounds_of(value.b, self.ranges)):
                return False
            value = value.a
        return isinstance(value, arith.Var) and _is_natural(self.ranges[value.name])

    def _divisor(self, e: arith.Expr) -> str:
        """A natural divisor before a loop, which runs no iteration where it is 0."""
        is_positive = (bounds_of(e, self.ranges).low or 0) > 0
        return self.index(e if is_positive else arith.maximum(e, 1))

    def _divide_index(self, e: arith.FloorDiv | arith.Mod) -> str:
        a, b = self.index(e.a), self.index(e.b)
        is_div = isinstance(e, arith.FloorDiv)
        positive = (bounds_of(e.b, self.ranges).low or 0) > 0
        low = bounds_of(e.a, self.ranges).low
        if positive and low is not None and low >= 0:
            return self.fn.op(f"{'udiv' if is_div else 'urem'} i64 {a}, {b}")
        return self.floor_divide(a, b, "i64", is_div, lanes=1, bits=64)

    def floor_divide(self, a: str, b: str, type: str, is_div: bool, lanes: int, bits: int) -> str:
        """Signed division rounding down, or its remainder; defined for every divisor."""
        fn, one = self.fn, splat(f"i{bits}", "1", lanes)
        zero, minus = splat(f"i{bits}", "0", lanes), splat(f"i{bits}", "-1", lanes)
        mask = vector("i1", lanes)
        is_zero = fn.op(f"icmp eq {type} {b}, {zero}")
        is_minus = fn.op(f"icmp eq {type} {b}, {minus}")
        unsafe = fn.op(f"or {mask} {is_zero}, {is_minus}")
        safe = fn.op(f"select {mask} {unsafe}, {type} {one}, {type} {b}")
        quotient = fn.op(f"sdiv {type} {a}, {safe}")
        product = fn.op(f"mul {type} {quotient}, {safe}")
        rest = fn.op(f"sub {type} {a}, {product}")
        has_rest = fn.op(f"icmp ne {type} {rest}, {zero}")
        signs = fn.op(f"xor {type} {rest}, {safe}")
        differ = fn.op(f"icmp slt {type} {signs}, {zero}")
        fix = fn.op(f"and {mask} {has_rest}, {differ}")
        if is_div:
            lower = fn.op(f"sub {type} {quotient}, {one}")
            floored = fn.op(f"select {mask} {fix}, {type} {lower}, {type} {quotient}")
            negated = fn.op(f"sub {type} {zero}, {a}")
            return fn.op(f"select {mask} {is_minus}, {type} {negated}, {type} {floored}")
        shifted = fn.op(f"add {type} {rest}, {safe}")
        return fn.op(f"select {mask} {fix}, {type} {shifted}, {type} {rest}")


def _is_natural(range_: Interval) -> bool:
    return range_.low is not None and range_.low >= 0
