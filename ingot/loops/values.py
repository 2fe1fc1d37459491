"""Buffers and expressions of the loop IR. loops/ir.py has the statements and the whole grammar, and
re-exports every name of this file: import that.
"""

from __future__ import annotations

import keyword
import struct
from typing import Union

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.support.node import Node, node

IndexLike = Union[int, arith.Expr, "Expr"]
ValueLike = Union[int, float, bool, "Expr"]

# --- memory -------------------------------------------------------------------------------------

GLOBAL = "global"  # visible to all threads: a parameter, or a workspace that plan/ allocates
THREAD = "thread"  # private to a thread, on its stack or in its scratch memory
REGISTER = "register"  # kept in machine registers: indices are constant after legalize
SHARED = "shared"  # shared memory of a GPU block; other strings name an accelerator's memories


@node
class Buffer(Node):
    """A dense row-major array in a memory scope. Names are unique within a kernel."""

    name: str
    dtype: DType
    shape: tuple[arith.Expr, ...]
    scope: str = GLOBAL

    def __getitem__(self, indices: IndexLike | tuple[IndexLike, ...]) -> Load:
        items = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(index_of(i) for i in items))

    @property
    def rank(self) -> int:
        return len(self.shape)


@node
class Slice(Node):
    """A box of a buffer: the operand of instructions, asynchronous copies and prefetches."""

    buffer: Buffer
    offsets: tuple[arith.Expr, ...]
    extents: tuple[arith.Expr, ...]


@node
class Size(Node):
    """A dynamic dimension, passed at the call: its range, a known divisor, and the size that
    decisions assume."""

    name: str
    low: int = 0
    high: int | None = None
    divisor: int = 1
    likely: int | None = None


# --- expressions --------------------------------------------------------------------------------


class Expr(Node):
    """A scalar or vector value of `lanes` elements of `dtype`. Python operators build nodes."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:
        raise NotImplementedError

    @property
    def lanes(self) -> int:
        return 1

    def __add__(self, other: ValueLike) -> Expr:
        return Binary("add", self, value_of(other, self.dtype))

    def __radd__(self, other: ValueLike) -> Expr:
        return Binary("add", value_of(other, self.dtype), self)

    def __sub__(self, other: ValueLike) -> Expr:
        return Binary("sub", self, value_of(other, self.dtype))

    def __rsub__(self, other: ValueLike) -> Expr:
        return Binary("sub", value_of(other, self.dtype), self)

    def __mul__(self, other: ValueLike) -> Expr:
        return Binary("mul", self, value_of(other, self.dtype))

    def __rmul__(self, other: ValueLike) -> Expr:
        return Binary("mul", value_of(other, self.dtype), self)

    def __truediv__(self, other: ValueLike) -> Expr:
        return Binary("div", self, value_of(other, self.dtype))

    def __rtruediv__(self, other: ValueLike) -> Expr:
        return Binary("div", value_of(other, self.dtype), self)

    def __neg__(self) -> Expr:
        return Unary("neg", self)

    def __and__(self, other: ValueLike) -> Expr:
        return Binary("and", self, value_of(other, self.dtype))

    def __or__(self, other: ValueLike) -> Expr:
        return Binary("or", self, value_of(other, self.dtype))

    def __invert__(self) -> Expr:
        return Unary("not", self)


class LikeOperand(Expr):
    """A value with its operand's type and width, unless a subclass overrides them. Each is looked
    up once, down to the operand that knows it: a property of a property would recurse."""

    __slots__ = ("_dtype", "_lanes")
    a: Expr
    _dtype: DType
    _lanes: int

    @property
    def gives_flag(self) -> bool:
        """Is the type bool, whatever the operand's is?"""
        return False

    @property
    def operand(self) -> Expr:
        return self.a

    @property
    def dtype(self) -> DType:
        try:
            return self._dtype
        except AttributeError:
            e: Expr = self
            while type(e).dtype is LikeOperand.dtype and not hasattr(e, "_dtype"):
                e = _FLAG if e.gives_flag else e.operand  # type: ignore[attr-defined]
            object.__setattr__(self, "_dtype", e.dtype)
            return self._dtype

    @property
    def lanes(self) -> int:
        try:
            return self._lanes
        except AttributeError:
            e: Expr = self
            while type(e).lanes is LikeOperand.lanes and not hasattr(e, "_lanes"):
                e = e.operand  # type: ignore[attr-defined]
            object.__setattr__(self, "_lanes", e.lanes)
            return self._lanes


# docs/loops.md and interp.py define each operator. Integers wrap; min and max propagate
# NaN; "div" on integers truncates, "floordiv" and "mod" floor, "rem" has the dividend's sign;
# "and", "or", "xor", "not" are bitwise, hence logical on bool; shifts by the width or more give 0.
# A kernel must guard integer division by zero with a Fail: passes may not assume it away.
UNARY = ("neg", "not", "abs", "floor", "ceil", "round", "trunc", "sqrt", "isnan")
BINARY = ("add", "sub", "mul", "div", "floordiv", "mod", "rem", "min", "max",
          "and", "or", "xor", "shl", "shr")  # fmt: skip
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
MATH = {  # name → arity; legalize expands each into the nodes above (a polynomial)
    "exp": 1, "exp2": 1, "log": 1, "log2": 1, "log1p": 1, "expm1": 1, "tanh": 1, "erf": 1,
    "sigmoid": 1, "rsqrt": 1, "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1,
    "sinh": 1, "cosh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "pow": 2, "fmod": 2,
}  # fmt: skip
# name → arity, on u64 only. philox(counter, counter's upper half, key): 64 random bits, the first
# half of a block of Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011).
BIT_MATH = {"philox": 3}


@node
class Lit(Expr):
    """A constant. Floats compare by their bits: NaN equals itself, -0.0 differs from 0.0."""

    value: int | float | bool
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type

    def _key(self) -> tuple:
        if self.type.is_float:
            return (struct.pack("<d", float(self.value)), self.type)
        return (int(self.value), self.type)


_FLAG = Lit(True, dtypes.bool_)


@node
class Index(Expr):
    """An integer expression as an i64 value."""

    expr: arith.Expr

    @property
    def dtype(self) -> DType:
        return dtypes.i64


@node
class Ref(Expr):
    """The value bound by the Let of that name."""

    name: str
    type: DType
    width: int = 1

    @property
    def dtype(self) -> DType:
        return self.type

    @property
    def lanes(self) -> int:
        return self.width


@node
class Unary(LikeOperand):
    op: str
    a: Expr

    @property
    def gives_flag(self) -> bool:
        return self.op == "isnan"


@node
class Binary(LikeOperand):
    op: str
    a: Expr
    b: Expr


@node
class Compare(LikeOperand):
    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        return dtypes.bool_


@node
class Math(LikeOperand):
    """A function that legalize expands: `MATH` and `BIT_MATH` give its name and arity."""

    fn: str
    args: tuple[Expr, ...]

    @property
    def operand(self) -> Expr:
        return self.args[0]


@node
class Select(LikeOperand):
    """`a` where `cond`, else `b`. Both sides are evaluated: mask a load that may be invalid."""

    cond: Expr
    a: Expr
    b: Expr


@node
class Cast(LikeOperand):
    """Value conversion. Float→int saturates (NaN→0) unless `wrap`; int→int always wraps;
    anything→bool is `!= 0`; float→float rounds to nearest even; 8-bit floats saturate too."""

    a: Expr
    type: DType
    mode: str = "saturate"

    @property
    def dtype(self) -> DType:
        return self.type


@node
class Bitcast(LikeOperand):
    """The same bits read as another type of the same width."""

    a: Expr
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type


@node
class Fma(LikeOperand):
    """a * b + c, rounded once."""

    a: Expr
    b: Expr
    c: Expr


@node
class Load(Expr):
    """`width` elements from `indices` on, `stride` elements apart.

    A masked load accesses no memory where the mask is false, and yields `other` there.
    """

    buffer: Buffer
    indices: tuple[arith.Expr, ...]
    width: int = 1
    stride: arith.Expr = arith.Const(1)
    mask: Expr | None = None
    other: Expr | None = None

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def lanes(self) -> int:
        return self.width


@node
class Ramp(Expr):
    """base, base + stride, … as i64 lanes: a vector of indices."""

    base: arith.Expr
    stride: arith.Expr
    width: int

    @property
    def dtype(self) -> DType:
        return dtypes.i64

    @property
    def lanes(self) -> int:
        return self.width


@node
class Broadcast(LikeOperand):
    a: Expr
    width: int

    @property
    def lanes(self) -> int:
        return self.width


@node
class Lanes(LikeOperand):
    """A vector built from scalars, one for each lane."""

    items: tuple[Expr, ...]

    @property
    def operand(self) -> Expr:
        return self.items[0]

    @property
    def lanes(self) -> int:
        return len(self.items)


@node
class Shuffle(LikeOperand):
    """Lanes `picks` of the concatenation of `a` and `b`."""

    a: Expr
    b: Expr
    picks: tuple[int, ...]

    @property
    def lanes(self) -> int:
        return len(self.picks)


@node
class LaneReduce(LikeOperand):
    """Horizontal reduction of the lanes by add, mul, min, max, and, or, as a balanced tree."""

    op: str
    a: Expr

    @property
    def lanes(self) -> int:
        return 1


# --- small constructors -------------------------------------------------------------------------


def is_name(text: str) -> bool:
    """Whether `text` can name a buffer or variable: an identifier that is no keyword."""
    return text.isidentifier() and not keyword.iskeyword(text) and text not in ("nan", "inf")


def index_of(value: IndexLike) -> arith.Expr:
    """An index expression from a number, an integer expression or an i64 value."""
    match value:
        case Index(expr=inner):
            return inner
        case Lit(value=number) if value.dtype.is_int:
            return arith.Const(int(number))
        case Expr():
            return arith.Opaque(value if value.dtype is dtypes.i64 else Cast(value, dtypes.i64))
        case _:
            return arith.wrap(value)


def value_of(value: ValueLike | arith.Expr, dtype: DType) -> Expr:
    """A value of `dtype` from a number or an expression (which keeps its own type)."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, arith.Expr):
        return Index(value)
    if dtype.is_float:
        return Lit(float(value), dtype)
    return Lit(bool(value) if dtype.is_bool else int(value), dtype)
