"""Loop expressions → C99 expressions, one method for each node. Used by c_kernel.py, c_program.py.

Every value is a scalar: legalize for one lane leaves no vector. Nothing printed is undefined in C:
integers compute in unsigned types and wrap, and what C leaves open is a function (c_helpers.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import assert_never

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, bounds_of
from ingot.codegen.c_helpers import Helpers
from ingot.codegen.c_text import (
    bare,
    float_bits,
    index_literal,
    literal,
    unprintable,
    value_type,
    width,
    wrapping_type,
)
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_BITWISE = {"and": "&", "or": "|", "xor": "^"}
_LOGICAL = {"and": "&&", "min": "&&", "or": "||", "max": "||", "xor": "!="}
_FUNCTIONS = ("min", "max", "div", "floordiv", "mod", "rem", "shl", "shr")


# Nested operations in one expression; a deeper one gets a variable. Each nests up to three
# parentheses, and a C99 compiler need only take 63.
MAX_HEIGHT = 12


class ValuePrinter:
    """Prints values and indices, given the C names of variables and buffers."""

    def __init__(self, helpers: Helpers, declare: Callable[[str, str], str] | None = None):
        """`declare(type, text)` makes a variable before the statement and gives its name."""
        self.helpers, self.declare = helpers, declare
        self._heights = [0]  # of the operands printed so far, for each node being printed
        self.variables: dict[str, str] = {}  # loop variables and sizes, int64_t
        self.ranges: dict[str, Interval] = {}
        self.lets: dict[str, str] = {}
        self.pointers: dict[str, str] = {}

    # --- indices ------------------------------------------------------------------------------

    @segmented
    def index(self, e: arith.Expr) -> str:
        match e:
            case arith.Const(value=value):
                return index_literal(value)
            case arith.Var(name=name):
                return self.variables[name]
            case arith.Opaque(payload=payload):
                return self.value(payload)
            case arith.FloorDiv() | arith.Mod():
                return self._divide_index(e)
            case arith.Min() | arith.Max():
                name = self.helpers.use("min" if isinstance(e, arith.Min) else "max", dtypes.i64)
                return f"{name}({self.index(e.a)}, {self.index(e.b)})"
            case arith.Binary(a=a, b=b):
                return self._sum(e.symbol, self.index(a), self.index(b), bool(arith.opaques(e)))
        raise TypeError(f"not an integer expression: {e!r}")

    def _sum(self, symbol: str, a: str, b: str, wraps: bool) -> str:
        """Bounds prove that an index fits 64 bits, except where it depends on loaded data."""
        if wraps:
            return f"(int64_t)((uint64_t){a} {symbol} (uint64_t){b})"
        return f"({a} {symbol} {b})"

    def _divide_index(self, e: arith.FloorDiv | arith.Mod) -> str:
        is_div = isinstance(e, arith.FloorDiv)
        a, b = self.index(e.a), self.index(e.b)
        is_positive = (bounds_of(e.b, self.ranges).low or 0) > 0
        low = bounds_of(e.a, self.ranges).low
        if is_positive and low is not None and low >= 0:
            return f"({a} {'/' if is_div else '%'} {b})"
        return f"{self.helpers.use('floordiv' if is_div else 'mod', dtypes.i64)}({a}, {b})"

    # --- values -------------------------------------------------------------------------------

    @segmented
    def value(self, e: ir.Expr) -> str:
        if e.lanes != 1:
            raise unprintable(f"vector of {e.lanes} lanes")
        self._heights.append(0)
        text, height = self._node(e), self._heights.pop() + 1
        if height >= MAX_HEIGHT and self.declare is not None:
            text, height = self.declare(value_type(e.dtype), text), 0
        self._heights[-1] = max(self._heights[-1], height)
        return text

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Variables may not come before: the value is not always computed, or more than once."""
        declare, self.declare = self.declare, None
        yield
        self.declare = declare

    def _node(self, e: ir.Expr) -> str:
        match e:
            case ir.Lit(value=number, type=dtype):
                return self._literal(number, dtype)
            case ir.Index(expr=index):
                return self.index(index)
            case ir.Ref(name=name):
                return self.lets[name]
            case ir.Unary():
                return self._unary(e)
            case ir.Binary():
                return self._binary(e)
            case ir.Compare(op="lt" | "ge" as op, a=a, b=ir.Lit(value=0)) if _is_unsigned(a.dtype):
                return "false" if op == "lt" else "true"  # a compiler warns of such a comparison
            case ir.Compare(op=op, a=a, b=b):
                return f"({self.value(a)} {_COMPARE[op]} {self.value(b)})"
            case ir.Select(cond=cond, a=a, b=b):
                return f"({self.value(cond)} ? {self.value(a)} : {self.value(b)})"
            case ir.Cast(a=a, type=dtype):
                return self._cast(self.value(a), a.dtype, dtype)
            case ir.Bitcast(a=a, type=dtype):
                return self._bitcast(self.value(a), a.dtype, dtype)
            case ir.Load():
                return self._load(e)
            case ir.LaneReduce(a=a) | ir.Broadcast(a=a):  # of one lane
                return self.value(a)
            case ir.Lanes(items=(item,)):
                return self.value(item)
            case ir.Ramp(base=base):
                return self.index(base)
            case ir.Shuffle() | ir.Lanes():
                raise unprintable(f"vector operation {type(e).__name__}")
            case ir.Fma():
                raise unprintable("fused multiply-add")
            case ir.Math(fn=name):
                raise IngotError("codegen-failed", f"math function {name} was not expanded")
            case _:
                assert_never(e)  # type: ignore[arg-type]

    def _literal(self, number: int | float | bool, dtype: DType) -> str:
        if dtype.name in ("f32", "f64") and not math.isfinite(dtype.numpy.type(number)):
            unsigned = dtypes.of(f"u{dtype.bits}")
            bits = literal(float_bits(number, dtype), unsigned)
            return f"{self.helpers.bits(unsigned, dtype)}({bits})"
        return literal(number, dtype)

    def _load(self, e: ir.Load) -> str:
        if e.mask is not None and e.other is not None:
            mask, other = self.value(e.mask), self.value(e.other)
            with self.in_place():  # the index may be valid under the mask only
                return f"({mask} ? {self._load(ir.replace(e, mask=None, other=None))} : {other})"
        element = f"{self.pointers[e.buffer.name]}[{bare(self.index(e.indices[0]))}]"
        return f"({element} != 0)" if e.dtype.is_bool else element

    def _unary(self, e: ir.Unary) -> str:
        dtype, a = e.a.dtype, self.value(e.a)
        match e.op:
            case "neg" if dtype.is_float:
                return f"(-{a})"
            case "neg":
                return self._wrapped("-", "0", a, dtype)
            case "not" if dtype.is_bool:
                return f"(!{a})"
            case "not":
                return f"({value_type(dtype)})(~({wrapping_type(dtype)}){a})"
            case "abs" if not dtype.is_signed:
                return a
            case "abs" | "isnan" | "sqrt":
                return f"{self.helpers.use(e.op, dtype)}({a})"
        raise unprintable(f"unary operator {e.op!r} on {dtype}")

    def _binary(self, e: ir.Binary) -> str:
        dtype, a, b = e.dtype, self.value(e.a), self.value(e.b)
        if dtype.is_bool:
            if e.op in _LOGICAL:
                return f"({a} {_LOGICAL[e.op]} {b})"
        elif dtype.is_float:
            if e.op in ("min", "max"):
                return f"{self.helpers.use(e.op, dtype)}({a}, {b})"
            if e.op in _ARITHMETIC or e.op == "div":
                return f"({a} {_ARITHMETIC.get(e.op, '/')} {b})"
        elif e.op in _ARITHMETIC or e.op in _BITWISE:
            return self._wrapped(_ARITHMETIC.get(e.op) or _BITWISE[e.op], a, b, dtype)
        elif e.op in ("shl", "shr") and _shifts_within(e):
            return self._shift(e.op, a, b, dtype)
        elif e.op in _FUNCTIONS:
            return f"{self.helpers.use(e.op, dtype)}({a}, {b})"
        raise unprintable(f"binary operator {e.op!r} on {dtype}")

    def _wrapped(self, symbol: str, a: str, b: str, dtype: DType) -> str:
        """Unsigned arithmetic, which wraps; the result converts to the type modulo its width."""
        unsigned = wrapping_type(dtype)
        if value_type(dtype) == unsigned:
            return f"({_typed(a, unsigned)} {symbol} {b})"
        return f"({value_type(dtype)})(({unsigned}){a} {symbol} ({unsigned}){b})"

    def _shift(self, op: str, a: str, b: str, dtype: DType) -> str:
        """By a constant within the width; a shift right of a negative number is not C's own."""
        if op == "shl":
            return f"({value_type(dtype)})(({wrapping_type(dtype)}){a} << {b})"
        if dtype.is_signed:
            return f"{self.helpers.use(op, dtype)}({a}, {b})"
        return f"({value_type(dtype)})({a} >> {b})"

    # --- conversions --------------------------------------------------------------------------

    def _cast(self, a: str, source: DType, target: DType) -> str:
        if source is target:
            return a
        if target.is_bool:
            return f"({a} != 0)"
        if source.is_float and not target.is_float:
            return f"{self.helpers.saturate(source, target)}({a})"
        return f"({value_type(target)}){a}"

    def _bitcast(self, a: str, source: DType, target: DType) -> str:
        from_type, to_type = value_type(source), value_type(target)
        if from_type == to_type:
            return a
        if {"float", "double"} & {from_type, to_type}:
            return f"{self.helpers.bits(source, target)}({a})"
        return f"({to_type}){a}"


def _typed(text: str, type: str) -> str:
    """A plain 0 gets its type, so that the whole operation is unsigned."""
    return f"({type}){text}" if text == "0" else text


def _is_unsigned(dtype: DType) -> bool:
    return dtype.is_int and not dtype.is_signed


def _shifts_within(e: ir.Binary) -> bool:
    return isinstance(e.b, ir.Lit) and 0 <= e.b.value < width(e.dtype)
