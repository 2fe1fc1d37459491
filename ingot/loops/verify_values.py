"""The invariants of values and accesses: types, lanes, ranks, names in scope. The base class of
`verify`'s statement checks. In: expressions. Out: nothing, or `IngotError("bad-loops")`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.loops.ir import Expr, Stmt
from ingot.loops.script_print import show
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

_LINES_SHOWN = 8  # of a statement in an error
_BITWISE = ("and", "or", "xor")
_INTEGERS_ONLY = ("floordiv", "mod", "rem", "shl", "shr")
_FLOATS_ONLY = ("floor", "ceil", "round", "trunc", "sqrt", "isnan")
_LANE_REDUCE = ("add", "mul", "min", "max", "and", "or")


class InvariantError(IngotError):
    """`stmt` violates an invariant; a caller with its source position can add it."""

    def __init__(self, what: str, where: str, why: str, stmt: Stmt | None):
        super().__init__("bad-loops", what, where=where, why=why)
        self.stmt = stmt


class ValueVerifier:
    """Checks expressions against the names in scope: variables, lets, buffers."""

    def __init__(self, kernel: ir.Kernel):
        self.kernel = kernel
        self.current: Stmt | None = None
        self.sizes: set[str] = set()
        self.variables: set[str] = set()
        self.lets: dict[str, tuple[DType, int]] = {}
        self.buffers: dict[str, ir.Buffer] = {}
        self.hidden: set[str] = set()  # bound outside the current block
        self.may_be_skipped = False

    def require(self, holds: bool, what: str, why: str = "") -> None:
        if holds:
            return
        origin = f" ({self.kernel.origin})" if self.kernel.origin else ""
        where = f"kernel {self.kernel.name}{origin}"
        if self.current is not None:
            where += f":\n{_excerpt(self.current)}"
        raise InvariantError(what, where, why, self.current)

    # --- names ---

    def variable(self, name: str) -> None:
        self.require(
            name not in self.hidden or name in self.variables,
            f"{name} is bound outside the block",
            why="a block's body may use only its own axes, sizes, buffers and the loops inside it",
        )
        self.require(name in self.variables, f"{name} is not bound here")

    def declared(self, buffer: ir.Buffer) -> None:
        known = self.buffers.get(buffer.name)
        self.require(known is not None, f"buffer {buffer.name} is not declared here")
        self.require(
            known == buffer,
            f"{buffer.name} is used with another type, shape or scope than declared",
        )

    # --- indices and accesses ---

    def index(self, i: arith.Expr) -> None:
        for sub in arith.walk(i):
            match sub:
                case arith.Var(name=name):
                    self.variable(name)
                case arith.Opaque(payload=payload):
                    self.require(
                        isinstance(payload, Expr), "an opaque index is not a value of the loop IR"
                    )
                    self.value(payload)
                    whole = payload.dtype is dtypes.i64 and payload.lanes == 1
                    self.require(
                        whole, f"the value {show(payload)} in an index is not a scalar i64"
                    )
                case arith.FloorDiv(b=b) | arith.Mod(b=b) if arith.as_int(b) == 0:
                    self.require(False, f"{show(i)} divides by zero")

    def access(self, x: ir.Load | ir.Store, width: int) -> None:
        """Checks common to Load and Store: buffer, indices, stride and mask."""
        self.declared(x.buffer)
        rank = x.buffer.rank
        self.require(
            len(x.indices) == rank,
            f"{x.buffer.name} has rank {rank} but {len(x.indices)} indices",
        )
        for i in (*x.indices, x.stride):
            self.index(i)
        self.require(width >= 1, "an access has at least one lane")
        if x.mask is not None:
            self.value(x.mask)
            fits = x.mask.dtype.is_bool and x.mask.lanes == width
            self.require(fits, f"the mask of {x.buffer.name} must be bool with {width} lanes")
        elif not self.may_be_skipped:
            self.in_range(x, width)

    def in_range(self, x: ir.Load | ir.Store, width: int) -> None:
        """Constant indices are within constant extents."""
        first = 0
        for i, dim in zip(map(arith.as_int, x.indices), map(arith.as_int, x.buffer.shape)):
            if i is None or dim is None:
                first = -1
                continue
            self.require(
                0 <= i < dim, f"{show_access(x)} is out of range: {i} is not in 0 … {dim - 1}"
            )
            first = -1 if first < 0 else first * dim + i
        stride = arith.as_int(x.stride)
        if first >= 0 and stride is not None:
            count = arith.as_int(arith.product(list(x.buffer.shape))) or 0
            last = first + (width - 1) * stride
            self.require(
                0 <= last < count, f"the last of {width} lanes of {show_access(x)} is out of range"
            )

    def box(self, box: ir.Slice, is_hint: bool = False) -> None:
        """A prefetch hint may be out of range: the row after the last."""
        self.declared(box.buffer)
        rank = box.buffer.rank
        whole = len(box.offsets) == len(box.extents) == rank
        self.require(whole, f"the box of {box.buffer.name} does not have its rank, {rank}")
        for offset, extent, dim in zip(box.offsets, box.extents, box.buffer.shape):
            self.index(offset)
            self.index(extent)
            start, count, size = map(arith.as_int, (offset, extent, dim))
            if start is not None and count is not None and size is not None and not is_hint:
                inside = start >= 0 and count >= 0 and start + count <= size
                self.require(inside, f"a box of {box.buffer.name} is out of range")

    def store(self, s: ir.Store) -> None:
        self.value(s.value)
        self.access(s, s.value.lanes)
        same = s.value.dtype is s.buffer.dtype
        self.require(
            same, f"a {s.value.dtype} is stored to {s.buffer.name}, which is {s.buffer.dtype}"
        )

    # --- values ---

    def condition(self, e: Expr, what: str) -> None:
        self.value(e)
        self.require(
            e.dtype.is_bool and e.lanes == 1, f"the condition of {what} is not a scalar bool"
        )

    def fail_values(self, values: Sequence[Expr]) -> None:
        self.require(len(values) <= 2, "a fail reports at most two integers")
        for e in values:
            self.value(e)
            self.require(e.dtype.is_int and e.lanes == 1, "a fail reports scalar integers")

    def same_type(self, items: Sequence[Expr], what: str) -> None:
        """Operands have one type and one number of lanes."""
        for e in items:
            self.value(e)
        kinds = list(dict.fromkeys(e.dtype for e in items))
        self.require(len(kinds) == 1, f"operands of {what} differ in type: {_names(kinds)}")
        widths = sorted({e.lanes for e in items})
        self.require(len(widths) == 1, f"operands of {what} differ in lanes: {widths}")

    @segmented
    def value(self, e: Expr) -> None:
        match e:
            case ir.Lit():
                self.literal(e)
            case ir.Index(expr=i):
                self.index(i)
            case ir.Ref(name=name, type=dtype, width=width):
                self.require(name not in self.hidden, f"{name} is bound outside the block")
                self.require(name in self.lets, f"no let binds {name} here")
                same = self.lets.get(name) == (dtype, width)
                self.require(same, f"{name} is used with another type than it was bound with")
            case ir.Unary(op=op, a=a):
                self.value(a)
                self.unary(op, a.dtype)
            case ir.Binary(op=op, a=a, b=b):
                self.require(op in ir.BINARY, f"there is no operator {op}")
                self.same_type((a, b), op)
                self.operator(op, a.dtype)
            case ir.Compare(op=op, a=a, b=b):
                self.require(op in ir.COMPARE, f"there is no comparison {op}")
                self.same_type((a, b), op)
            case ir.Math(fn=fn, args=args):
                arity = ir.MATH.get(fn) or ir.BIT_MATH.get(fn)
                self.require(arity == len(args), f"{fn} does not take {len(args)} arguments")
                self.same_type(args, fn)
                if fn in ir.BIT_MATH:
                    self.require(args[0].dtype is dtypes.u64, f"{fn} is defined on u64 only")
                else:
                    self.require(args[0].dtype.is_float, f"{fn} is defined on floats only")
            case ir.Select(cond=cond, a=a, b=b):
                self.value(cond)
                self.require(cond.dtype.is_bool, "the condition of a select is not bool")
                self.same_type((a, b), "select")
                fits = cond.lanes in (1, a.lanes)
                self.require(fits, f"a select over {a.lanes} lanes has {cond.lanes} conditions")
            case ir.Cast(a=a, mode=mode):
                self.value(a)
                self.require(mode in ("saturate", "wrap"), f"there is no cast mode {mode!r}")
            case ir.Bitcast(a=a, type=dtype):
                self.value(a)
                same = a.dtype.bits == dtype.bits
                self.require(same, f"a bitcast from {a.dtype} to {dtype} changes the width")
            case ir.Fma(a=a, b=b, c=c):
                self.same_type((a, b, c), "fma")
                self.operator("mul", a.dtype)
            case ir.Load():
                self.load(e)
            case ir.Ramp(base=base, stride=stride, width=width):
                self.index(base)
                self.index(stride)
                self.require(width >= 1, "a ramp has at least one lane")
            case ir.Broadcast(a=a, width=width):
                self.value(a)
                self.require(
                    a.lanes == 1 and width >= 1, "a broadcast needs a scalar and at least one lane"
                )
            case ir.Lanes(items=items):
                self.require(bool(items), "lanes(…) needs at least one value")
                self.same_type(items, "lanes")
                self.require(items[0].lanes == 1, "lanes(…) is built from scalars")
            case ir.Shuffle(a=a, b=b, picks=picks):
                self.same_type((a, b), "shuffle")
                count = a.lanes + b.lanes
                inside = bool(picks) and all(0 <= p < count for p in picks)
                self.require(inside, f"a shuffle of {count} lanes has picks {picks}")
            case ir.LaneReduce(op=op, a=a):
                self.require(op in _LANE_REDUCE, f"{op} is not a lane reduction")
                self.value(a)
                self.operator(op, a.dtype)
            case _:
                assert_never(e)  # type: ignore[arg-type]

    def load(self, e: ir.Load) -> None:
        self.access(e, e.width)
        if e.other is None:
            return
        self.require(e.mask is not None, f"the load of {e.buffer.name} has an other but no mask")
        self.value(e.other)
        fits = e.other.dtype is e.buffer.dtype and e.other.lanes == e.width
        self.require(
            fits, f"the other of {e.buffer.name} must be {e.buffer.dtype} with {e.width} lanes"
        )

    def literal(self, e: ir.Lit) -> None:
        if e.type.is_float:
            return
        whole = not isinstance(e.value, float) and e.type.lowest <= e.value <= e.type.highest
        self.require(whole, f"{e.value} is not a value of {e.type}")

    def unary(self, op: str, dtype: DType) -> None:
        self.require(op in ir.UNARY, f"there is no operator {op}")
        if op in _FLOATS_ONLY:
            self.require(dtype.is_float, f"{op} is defined on floats only, not on {dtype}")
        elif op == "not":
            self.require(not dtype.is_float, f"{op} is not defined on {dtype}")
        else:
            self.require(not dtype.is_bool, f"{op} is not defined on {dtype}")

    def operator(self, op: str, dtype: DType) -> None:
        if op in _BITWISE:
            self.require(not dtype.is_float, f"{op} is not defined on {dtype}")
        elif op in _INTEGERS_ONLY:
            self.require(dtype.is_int, f"{op} is defined on integers only, not on {dtype}")
        elif op not in ("min", "max"):
            self.require(not dtype.is_bool, f"{op} is not defined on {dtype}")


def _names(kinds: Sequence[DType]) -> str:
    return ", ".join(kind.name for kind in kinds)


def show_access(x: ir.Load | ir.Store) -> str:
    return f"{x.buffer.name}[{', '.join(map(show, x.indices))}]"


def _excerpt(s: Stmt) -> str:
    """The first lines of a statement, or its repr where it cannot be printed."""
    try:
        lines = show(s).splitlines()
    except (IngotError, IndexError):
        lines = [repr(s)]
    more = ["    …"] if len(lines) > _LINES_SHOWN else []
    return "\n".join(f"    {line[:160]}" for line in (*lines[:_LINES_SHOWN], *more))
