"""The grammar of the loop IR, whole, on one page. In: nothing. Out: the nodes everyone matches on.

    kernel ::= Kernel(name, params: Buffer*, sizes: Size*, body: stmt)
    stmt   ::= For(var, start, stop, body, kind, tag) | While(cond, body) | If(cond, then, orelse)
             | Let(name, value, body) | Alloc(buffer, body) | Store(buffer, indices, value, ...)
             | Block(name, axes, body, init, where) | Seq(stmts) | Call(instruction, args)
             | Sync(scope) | CopyAsync(dst, src, token) | Wait(token) | Prefetch(box, writes)
             | Fail(reason, values)
    expr   ::= Lit | Index | Ref | Unary | Binary | Compare | Math | Select | Cast | Bitcast | Fma
             | Load | Ramp | Broadcast | Lanes | Shuffle | LaneReduce

Index arithmetic is `arith`: the indices of a Load or Store are integer expressions; a value enters
one through `arith.Opaque(expr)`, and an index becomes a value through `Index`. The sum types are
closed: every consumer matches exhaustively and ends in `assert_never`. `docs/loops.md` gives the
meaning of each node; `loops/interp.py` is that meaning, executable.
"""

from __future__ import annotations

import itertools
import keyword
import struct
from dataclasses import field, replace
from enum import Enum
from typing import Any, Union

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.support.node import Node, node

IndexLike = Union[int, arith.Expr, "Expr"]
ValueLike = Union[int, float, bool, "Expr"]

_ids = itertools.count(1)


def fresh_id() -> int:
    """An identity for a loop or block: what schedule handles hold, outside equality."""
    return next(_ids)


# --- memory -------------------------------------------------------------------------------------

GLOBAL = "global"  # visible to all threads; a parameter or a workspace the program plans
THREAD = "thread"  # scratch of one thread, on its stack or in its share of the workspace
REGISTER = "register"  # indices constant after legalize; lives in machine registers
SHARED = "shared"  # of one GPU block; any other string is an accelerator's own memory


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
    """A box of a buffer: what instructions and asynchronous copies work on."""

    buffer: Buffer
    offsets: tuple[arith.Expr, ...]
    extents: tuple[arith.Expr, ...]


@node
class Size(Node):
    """A symbolic size given at the call: its range, and a divisor it is known to have."""

    name: str
    low: int = 0
    high: int | None = None
    divisor: int = 1


# --- expressions --------------------------------------------------------------------------------


class Expr(Node):
    """A value: `dtype` of each lane, `lanes` of them. Arithmetic operators build nodes."""

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
    """A value of its operand's type and width, unless a node says otherwise."""

    __slots__ = ()
    a: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    @property
    def lanes(self) -> int:
        return self.a.lanes


# What each operator means is in docs/loops.md and interp.py. Integers wrap; min and max propagate
# NaN; "div" on integers truncates, "floordiv" and "mod" floor, "rem" has the dividend's sign;
# "and", "or", "xor", "not" are bitwise and therefore logical on bool; integer division by zero must
# be guarded by a Fail before it, never assumed away; shifts by the width or more are zero.
UNARY = ("neg", "not", "abs", "floor", "ceil", "round", "trunc", "sqrt", "isnan")
BINARY = ("add", "sub", "mul", "div", "floordiv", "mod", "rem", "min", "max",
          "and", "or", "xor", "shl", "shr")  # fmt: skip
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
MATH = {  # arity; expanded by legalize into the nodes above, one polynomial each
    "exp": 1, "exp2": 1, "log": 1, "log2": 1, "log1p": 1, "expm1": 1, "tanh": 1, "erf": 1,
    "sigmoid": 1, "rsqrt": 1, "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1,
    "sinh": 1, "cosh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "pow": 2, "fmod": 2,
}  # fmt: skip


@node
class Lit(Expr):
    """A constant. Floats compare by bits, so that NaN equals itself and -0.0 is not 0.0."""

    value: int | float | bool
    type: DType

    @property
    def dtype(self) -> DType:
        return self.type

    def _key(self) -> tuple:
        if self.type.is_float:
            return (struct.pack("<d", float(self.value)), self.type)
        return (int(self.value), self.type)


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
    def dtype(self) -> DType:
        return dtypes.bool_ if self.op == "isnan" else self.a.dtype


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
class Math(Expr):
    """A function that legalize expands: `MATH` gives its name and arity."""

    fn: str
    args: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.args[0].dtype

    @property
    def lanes(self) -> int:
        return self.args[0].lanes


@node
class Select(LikeOperand):
    """`a` where `cond`, else `b`. Both sides are evaluated: guard a load that may not be."""

    cond: Expr
    a: Expr
    b: Expr


@node
class Cast(LikeOperand):
    """Conversion of value. Float→int saturates (NaN→0) unless `wrap`; int→int always wraps;
    anything→bool is `!= 0`; float→float rounds to nearest even, and saturates only if asked."""

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
    """`width` elements, the first at `indices`, each `stride` elements after the one before.

    A guarded load (`mask` given) touches no memory where the mask is false and yields `other`.
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
    """base, base + stride, … as i64 lanes: an index that varies over a vector."""

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
class Broadcast(Expr):
    a: Expr
    width: int

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    @property
    def lanes(self) -> int:
        return self.width


@node
class Lanes(Expr):
    """A vector built from scalars, one for each lane."""

    items: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.items[0].dtype

    @property
    def lanes(self) -> int:
        return len(self.items)


@node
class Shuffle(Expr):
    """Lanes picked from `a` followed by `b`."""

    a: Expr
    b: Expr
    picks: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.a.dtype

    @property
    def lanes(self) -> int:
        return len(self.picks)


@node
class LaneReduce(Expr):
    """One value from all lanes: op is add, mul, min, max, and, or. The order is a balanced tree."""

    op: str
    a: Expr

    @property
    def dtype(self) -> DType:
        return self.a.dtype


# --- statements ---------------------------------------------------------------------------------


class Stmt(Node):
    __slots__ = ()


class LoopKind(Enum):
    SERIAL = "serial"
    PARALLEL = "parallel"  # iterations are independent; threads share them out
    VECTOR = "vector"  # iterations become lanes
    UNROLL = "unroll"  # iterations are written out
    BOUND = "bound"  # to a GPU index: `tag` names it (blockIdx.x, threadIdx.y, …)


Annotations = tuple[tuple[str, Any], ...]
ACCUMULATES = "accumulates"  # the note of a reduce block whose initial values are stored elsewhere
MASKED = ("tail", "mask")  # the note of a loop whose guarded vectors are masked, never branched on


@node
class For(Stmt):
    """`body` for var = start … stop-1. `stop <= start` means not at all."""

    var: str
    start: arith.Expr
    stop: arith.Expr
    body: Stmt
    kind: LoopKind = LoopKind.SERIAL
    tag: str = ""
    annotations: Annotations = ()
    uid: int = field(default_factory=fresh_id, compare=False, repr=False)

    @property
    def extent(self) -> arith.Expr:
        return self.stop - self.start


@node
class While(Stmt):
    cond: Expr
    body: Stmt


@node
class If(Stmt):
    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@node
class Let(Stmt):
    """`name` is `value`, evaluated once, within `body`."""

    name: str
    value: Expr
    body: Stmt


@node
class Alloc(Stmt):
    """`buffer` exists within `body`; its content is undefined until stored."""

    buffer: Buffer
    body: Stmt


@node
class Store(Stmt):
    """As Load: `value.lanes` elements from `indices` on, `stride` apart, where `mask` is true."""

    buffer: Buffer
    indices: tuple[arith.Expr, ...]
    value: Expr
    stride: arith.Expr = arith.Const(1)
    mask: Expr | None = None


class AxisKind(Enum):
    SPATIAL = "spatial"  # instances are independent
    REDUCE = "reduce"  # instances combine; any order within the declared reduction
    ORDERED = "ordered"  # instances run in order (cumsum, recurrences)
    OPAQUE = "opaque"  # nothing is known (sort, NMS)


@node
class Axis(Node):
    """A block's own variable, its domain 0 … extent-1, and its value in terms of outer loops."""

    var: str
    kind: AxisKind
    extent: arith.Expr
    binding: arith.Expr


@node
class Block(Stmt):
    """One unit of computation, seen only through its axes: the body mentions no outer loop.

    `init` runs before the body at the first instance of the reduce axes. `where` skips instances.
    """

    name: str
    axes: tuple[Axis, ...]
    body: Stmt
    init: Stmt | None = None
    where: Expr | None = None
    annotations: Annotations = ()
    uid: int = field(default_factory=fresh_id, compare=False, repr=False)


@node
class Seq(Stmt):
    stmts: tuple[Stmt, ...]


@node
class Instruction(Node):
    """A machine operation with its meaning as a kernel; `emit` is the printer's spelling of it."""

    name: str
    meaning: Kernel
    emit: str = ""


@node
class Call(Stmt):
    """Run an instruction on boxes of buffers."""

    instruction: Instruction
    args: tuple[Slice, ...]


@node
class Sync(Stmt):
    """All threads of `scope` ("threads", "shared", …) have come here before any goes on."""

    scope: str


@node
class CopyAsync(Stmt):
    """Start a copy; it has happened once `token` has been waited for."""

    dst: Slice
    src: Slice
    token: str


@node
class Wait(Stmt):
    token: str


@node
class Prefetch(Stmt):
    """A hint: this box will be read (or written) soon. It touches nothing, and means nothing."""

    box: Slice
    writes: bool = False


@node
class Fail(Stmt):
    """Leave the kernel with an error: `reason`, and up to two integers for the message."""

    reason: str
    values: tuple[Expr, ...] = ()


@node
class Kernel(Node):
    """One function over buffers. Parameters are global; which are written is seen in the body."""

    name: str = field(compare=False)
    params: tuple[Buffer, ...]
    sizes: tuple[Size, ...]
    body: Stmt
    origin: str = field(default="", compare=False)
    family: str = field(default="", compare=False)  # of the anchor: names the schedule rule


# --- small constructors -------------------------------------------------------------------------


def is_name(text: str) -> bool:
    """Whether `text` can name a buffer or variable: an identifier that the text form can say."""
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


def seq(*stmts: Stmt | None) -> Stmt:
    """A sequence, flattened; one statement stays itself."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, Seq):
            flat.extend(stmt.stmts)
        elif stmt is not None:
            flat.append(stmt)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def serial(var: str, extent: IndexLike, body: Stmt) -> For:
    return For(var, arith.Const(0), index_of(extent), body)


__all__ = [name for name in dir() if not name.startswith("_")] + ["replace"]
