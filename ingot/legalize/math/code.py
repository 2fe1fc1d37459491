"""Straight-line code under construction: values with operators, and the Lets they need.

An expansion in this folder maps `V` values to one; it names each value that it uses more than once
with `keep()`, so that the text stays linear in the work. Python numbers take the type and width of
the other operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.legalize.terms import broadcast
from ingot.loops import ir


class Code:
    """Lets, and sometimes loops or branches, in order; each is visible to all that follow."""

    def __init__(self, fresh: Callable[[str], str], has_fma: bool, has_rounding: bool = True):
        self.fresh, self.has_fma, self.has_rounding = fresh, has_fma, has_rounding
        self.wrappers: list[Callable[[ir.Stmt], ir.Stmt]] = []
        self._named: dict[ir.Expr, ir.Expr] = {}

    def keep(self, e: ir.Expr) -> ir.Expr:
        """`e` bound to a Let, one for equal values; Refs and constants need none."""
        if isinstance(e, ir.Ref | ir.Lit) or (isinstance(e, ir.Broadcast) and _is_lit(e.a)):
            return e
        found = self._named.get(e)
        if found is None:
            name = self.fresh("t")
            self.wrappers.append(_let(name, e))
            found = self._named[e] = ir.Ref(name, e.dtype, e.lanes)
        return found

    def value(self, e: ir.Expr) -> V:
        return V(self, self.keep(e))

    def nested(self) -> Code:
        """Code for the body of a nested loop or branch."""
        return Code(self.fresh, self.has_fma, self.has_rounding)

    def wrap(self, body: ir.Stmt) -> ir.Stmt:
        """`body` inside all collected statements."""
        for wrapper in reversed(self.wrappers):
            body = wrapper(body)
        return body


def _let(name: str, value: ir.Expr) -> Callable[[ir.Stmt], ir.Stmt]:
    return lambda body: ir.Let(name, value, body)


def _is_lit(e: ir.Expr) -> bool:
    return isinstance(e, ir.Lit)


class V:
    """A value in `code`. `+ - * /` are IEEE operations of its type; comparisons give bools."""

    __slots__ = ("code", "e")

    def __init__(self, code: Code, e: ir.Expr):
        self.code, self.e = code, e

    @property
    def dtype(self) -> DType:
        return self.e.dtype

    def keep(self) -> V:
        return V(self.code, self.code.keep(self.e))

    def inside(self, code: Code) -> V:
        """This value, bound to a Let here, for use in a nested body."""
        return V(code, self.keep().e)

    def number(self, value: V | float | bool) -> V:
        """`value` in this value's type and width."""
        if isinstance(value, V):
            return value
        literal = ir.value_of(value, self.e.dtype)
        return V(self.code, broadcast(literal, self.e.lanes))

    def _binary(self, op: str, other: V | float, swap: bool = False) -> V:
        a, b = self.e, self.number(other).e
        return V(self.code, ir.Binary(op, b, a) if swap else ir.Binary(op, a, b))

    def __add__(self, other: V | float) -> V:
        return self._binary("add", other)

    def __radd__(self, other: float) -> V:
        return self._binary("add", other, True)

    def __sub__(self, other: V | float) -> V:
        return self._binary("sub", other)

    def __rsub__(self, other: float) -> V:
        return self._binary("sub", other, True)

    def __mul__(self, other: V | float) -> V:
        return self._binary("mul", other)

    def __rmul__(self, other: float) -> V:
        return self._binary("mul", other, True)

    def __truediv__(self, other: V | float) -> V:
        return self._binary("div", other)

    def __rtruediv__(self, other: float) -> V:
        return self._binary("div", other, True)

    def __and__(self, other: V | int) -> V:
        return self._binary("and", other)

    def __or__(self, other: V | int) -> V:
        return self._binary("or", other)

    def __xor__(self, other: V | int) -> V:
        return self._binary("xor", other)

    def __lshift__(self, other: V | int) -> V:
        return self._binary("shl", other)

    def __rshift__(self, other: V | int) -> V:
        return self._binary("shr", other)

    def __neg__(self) -> V:
        return V(self.code, ir.Unary("neg", self.e))

    def __invert__(self) -> V:
        return V(self.code, ir.Unary("not", self.e))

    def __abs__(self) -> V:
        return V(self.code, ir.Unary("abs", self.e))

    def _compare(self, op: str, other: V | float) -> V:
        return V(self.code, ir.Compare(op, self.e, self.number(other).e))

    def __lt__(self, other: V | float) -> V:
        return self._compare("lt", other)

    def __le__(self, other: V | float) -> V:
        return self._compare("le", other)

    def __gt__(self, other: V | float) -> V:
        return self._compare("gt", other)

    def __ge__(self, other: V | float) -> V:
        return self._compare("ge", other)

    def equals(self, other: V | float) -> V:
        return self._compare("eq", other)

    def differs(self, other: V | float) -> V:
        return self._compare("ne", other)

    def is_nan(self) -> V:
        return V(self.code, ir.Unary("isnan", self.e))

    def sqrt(self) -> V:
        return V(self.code, ir.Unary("sqrt", self.e))

    def trunc(self) -> V:
        return rounded("trunc", self)

    def floor(self) -> V:
        return rounded("floor", self)

    def to(self, dtype: DType, mode: str = "saturate") -> V:
        return self if dtype is self.dtype else V(self.code, ir.Cast(self.e, dtype, mode))

    def bits(self, dtype: DType) -> V:
        return V(self.code, ir.Bitcast(self.e, dtype))

    def mul_add(self, b: V | float, c: V | float) -> V:
        """self · b + c: an FMA where the target has one; the rounding may differ."""
        if self.code.has_fma:
            return V(self.code, ir.Fma(self.e, self.number(b).e, self.number(c).e))
        return self * b + c


def select(cond: V, a: V | float, b: V | float) -> V:
    """`a` where `cond`, else `b`; at least one is a value."""
    like = a if isinstance(a, V) else b
    assert isinstance(like, V)
    return V(cond.code, ir.Select(cond.e, like.number(a).e, like.number(b).e))


def rarely(cond: V, usual: Sequence[V], rare: Callable[[Code], Sequence[V]]) -> list[V]:
    """`usual`, but `rare` in the lanes where `cond` holds; a branch skips `rare` if there is no
    such lane.

    `rare` gets the code of the branch; it takes outer values through `inside`.
    """
    code, lanes, at = cond.code, cond.e.lanes, (arith.Const(0),)
    cond, usual = cond.keep(), [v.keep() for v in usual]
    slots = [_slot(code.fresh("slot"), v.dtype, lanes) for v in usual]
    branch = code.nested()
    better = [select(cond, new, old) for new, old in zip(rare(branch), usual)]
    first = [ir.Store(slot, at, v.e) for slot, v in zip(slots, usual)]
    again = branch.wrap(ir.seq(*(ir.Store(slot, at, v.e) for slot, v in zip(slots, better))))
    test = ir.If(cond.e if lanes == 1 else ir.LaneReduce("or", cond.e), again)

    def wrapper(body: ir.Stmt) -> ir.Stmt:
        body = ir.seq(*first, test, body)
        for slot in reversed(slots):
            body = ir.Alloc(slot, body)
        return body

    code.wrappers.append(wrapper)
    return [V(code, ir.Load(slot, at, lanes)).keep() for slot in slots]


def _slot(name: str, dtype: DType, lanes: int) -> ir.Buffer:
    return ir.Buffer(name, dtype, (arith.Const(lanes),), ir.THREAD)


def polynomial(x: V, coefficients: Sequence[float]) -> V:
    """c0 + c1·x + c2·x² + … by Horner's rule."""
    total = x.number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total.mul_add(x, c)
    return total


def estrin(x: V, square: V, coefficients: Sequence[float]) -> V:
    """The same by Estrin's scheme, one level: c0 + c1·x + x²·(c2 + c3·x + …), half as deep."""
    pairs = [coefficients[i : i + 2] for i in range(0, len(coefficients), 2)]
    *rest, last = [x.mul_add(c[1], c[0]) if len(c) == 2 else x.number(c[0]) for c in pairs]
    for pair in reversed(rest):
        last = square.mul_add(last, pair)
    return last


def copy_sign(size: V, sign: V) -> V:
    """|size| with the sign bit of `sign` (size ≥ 0 or NaN), which keeps the sign of -0.0."""
    kind = uint_of(sign.dtype)
    top = 1 << (sign.dtype.bits - 1)
    return ((size.bits(kind) & (top - 1)) | (sign.bits(kind) & top)).bits(size.dtype)


def int_of(dtype: DType) -> DType:
    return dtypes.of(f"i{dtype.bits}")


def uint_of(dtype: DType) -> DType:
    return dtypes.of(f"u{dtype.bits}")


# stored bits of the mantissa, and bias of the exponent: IEEE 754
MANTISSA = {"f32": 23, "f64": 52}
BIAS = {"f32": 127, "f64": 1023}


def power_of_two(n: V, dtype: DType) -> V:
    """2**n as `dtype`, from an integer of its width, for n in the range of normal exponents."""
    return ((n + BIAS[dtype.name]) << MANTISSA[dtype.name]).bits(dtype)


def scale(x: V, n: V) -> V:
    """x · 2**n in two multiplications, exact for subnormals; |n| ≤ twice the exponent range."""
    half, rest = halves(n, x.dtype)
    return x * half * rest


def halves(n: V, dtype: DType) -> tuple[V, V]:
    """Two powers of two whose product is 2**n."""
    half = (n >> 1).keep()
    return power_of_two(half, dtype).keep(), power_of_two(n - half, dtype)


def nearest(x: V) -> tuple[V, V]:
    """x rounded to an integer, as a float and as an integer, for |x| < 2**(mantissa - 1).

    Adding 1.5 · 2**mantissa leaves the integer in the low bits; no conversion is needed.
    """
    return from_magic((x + magic(x.dtype)).keep())


def magic(dtype: DType) -> float:
    return 1.5 * 2.0 ** MANTISSA[dtype.name]


def from_magic(shifted: V) -> tuple[V, V]:
    dtype = shifted.dtype
    as_float = (shifted - magic(dtype)).keep()
    kind = int_of(dtype)
    offset = int(dtype.numpy.type(magic(dtype)).view(kind.numpy))
    return as_float, (shifted.bits(kind) - offset).keep()


def rounded(op: str, x: V) -> V:
    """floor, ceil, trunc or round; expanded where the target has no instruction for it."""
    if x.code.has_rounding:
        return V(x.code, ir.Unary(op, x.e))
    x = x.keep()
    size = abs(x).keep()
    whole = 2.0 ** MANTISSA[x.dtype.name]
    near = ((size + whole) - whole).keep()  # to nearest even, for size < whole
    below = select(near > size, near - 1.0, near).keep()
    above = select(near < size, near + 1.0, near)
    is_negative = x < 0.0
    match op:
        case "round":
            result = near
        case "trunc":
            result = below
        case "floor":
            result = select(is_negative, above, below)
        case _:
            result = select(is_negative, below, above)
    return select(size < whole, copy_sign(result, x), x)


# --- double-double arithmetic: a sum high + low with about twice the precision -------------------


def two_sum(a: V, b: V) -> tuple[V, V]:
    """a + b exactly (Knuth's TwoSum), for any magnitudes."""
    total = (a + b).keep()
    part = (total - a).keep()
    return total, ((a - (total - part)) + (b - part)).keep()


def fast_two_sum(a: V, b: V) -> tuple[V, V]:
    """a + b exactly (Dekker's FastTwoSum), for |a| ≥ |b|."""
    total = (a + b).keep()
    return total, (b - (total - a)).keep()


def two_product(a: V, b: V) -> tuple[V, V]:
    """a · b exactly, where nothing over- or underflows."""
    a, b = a.keep(), b.keep()
    product = (a * b).keep()
    if a.code.has_fma:
        return product, V(a.code, ir.Fma(a.e, b.e, (-product).e)).keep()
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error.keep()


def _split(a: V) -> tuple[V, V]:
    """Veltkamp's split of a float64."""
    big = (a * 134217729.0).keep()
    high = (big - (big - a)).keep()
    return high, (a - high).keep()
