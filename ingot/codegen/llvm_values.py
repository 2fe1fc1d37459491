"""Loop expressions → LLVM instructions. One method a node; used by llvm_kernel.py.

Nothing emitted is undefined: shifts and integer divisions are made total, float→int saturates,
index arithmetic that may hold foreign data carries no `nsw`.
"""

from __future__ import annotations

from functools import reduce
from typing import assert_never

from ingot.arith import expr as arith
from ingot.arith.bounds import Interval, bounds_of
from ingot.codegen.llvm_text import (
    Function,
    intrinsic_suffix,
    literal,
    memory_type,
    scalar_type,
    splat,
    value_type,
    vector,
)
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.support.errors import IngotError

_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_BITWISE = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


class Values:
    """Emits values into a Function, given where variables and buffers live."""

    def __init__(self, fn: Function):
        self.fn = fn
        self.variables: dict[str, str] = {}  # loop variables and sizes, i64
        self.ranges: dict[str, Interval] = {}
        self.lets: dict[str, str] = {}
        self.pointers: dict[str, str] = {}
        self.loops: list[str] = []  # variables of the loops around, outermost first

    # --- index arithmetic ---------------------------------------------------------------------

    def index(self, e: arith.Expr) -> str:
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
                flag = "" if _holds_data(e) else " nsw"
                return self.fn.op(f"{op}{flag} i64 {self.index(a)}, {self.index(b)}")
        raise TypeError(f"not an integer expression: {e!r}")

    def _divide_index(self, e: arith.FloorDiv | arith.Mod) -> str:
        a, b = self.index(e.a), self.index(e.b)
        is_div = isinstance(e, arith.FloorDiv)
        positive = (bounds_of(e.b, self.ranges).low or 0) > 0
        low = bounds_of(e.a, self.ranges).low
        if positive and low is not None and low >= 0:
            return self.fn.op(f"{'udiv' if is_div else 'urem'} i64 {a}, {b}")
        return self._floor_divide(a, b, "i64", is_div, lanes=1, bits=64)

    def _floor_divide(self, a: str, b: str, type: str, is_div: bool, lanes: int, bits: int) -> str:
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

    # --- values -------------------------------------------------------------------------------

    def value(self, e: ir.Expr) -> str:
        fn = self.fn
        match e:
            case ir.Lit(value=number, type=dtype):
                return literal(number, dtype)
            case ir.Index(expr=index):
                return self.index(index)
            case ir.Ref(name=name):
                return self.lets[name]
            case ir.Unary():
                return self._unary(e)
            case ir.Binary():
                return self._binary(e)
            case ir.Compare():
                return self._compare(e)
            case ir.Select(cond=cond, a=a, b=b):
                type = value_type(e.dtype, e.lanes)
                mask = self.value(cond)
                mask_type = vector("i1", cond.lanes)
                return fn.op(
                    f"select {mask_type} {mask}, {type} {self.value(a)}, {type} {self.value(b)}"
                )
            case ir.Cast(a=a, type=dtype):
                return self._cast(self.value(a), a.dtype, dtype, a.lanes)
            case ir.Bitcast(a=a, type=dtype):
                source, target = value_type(a.dtype, a.lanes), value_type(dtype, a.lanes)
                operand = self.value(a)
                return (
                    operand
                    if source == target
                    else fn.op(f"bitcast {source} {operand} to {target}")
                )
            case ir.Fma(a=a, b=b, c=c):
                type = value_type(e.dtype, e.lanes)
                args = [(type, self.value(x)) for x in (a, b, c)]
                return fn.call(type, f"llvm.fma.{intrinsic_suffix(e.dtype, e.lanes)}", args)
            case ir.Load():
                return self._load(e)
            case ir.Ramp(base=base, stride=stride, width=width):
                first = fn.broadcast("i64", self.index(base), width)
                step = fn.broadcast("i64", self.index(stride), width)
                numbers = "<" + ", ".join(f"i64 {i}" for i in range(width)) + ">"
                offsets = fn.op(f"mul <{width} x i64> {step}, {numbers}")
                return fn.op(f"add <{width} x i64> {first}, {offsets}")
            case ir.Broadcast(a=a, width=width):
                if isinstance(a, ir.Lit):
                    return splat(scalar_type(a.dtype), self.value(a), width)
                return fn.broadcast(scalar_type(a.dtype), self.value(a), width)
            case ir.Lanes(items=items):
                return self._lanes([self.value(x) for x in items], scalar_type(e.dtype))
            case ir.Shuffle(a=a, b=b, picks=(lane,)):  # one lane is a scalar
                picked, lane = (a, lane) if lane < a.lanes else (b, lane - a.lanes)
                type = value_type(a.dtype, a.lanes)
                return fn.op(f"extractelement {type} {self.value(picked)}, i32 {lane}")
            case ir.Shuffle(a=a, b=b, picks=picks):
                type = value_type(a.dtype, a.lanes)
                mask = "<" + ", ".join(f"i32 {p}" for p in picks) + ">"
                operands = f"{type} {self.value(a)}, {type} {self.value(b)}"
                return fn.op(f"shufflevector {operands}, <{len(picks)} x i32> {mask}")
            case ir.LaneReduce(op=op, a=a):
                return self._lane_reduce(op, a)
            case ir.Math(fn=name):
                raise IngotError("codegen-failed", f"math function {name} was not expanded")
            case _:
                assert_never(e)  # type: ignore[arg-type]

    def _lanes(self, items: list[str], type: str) -> str:
        wide, total = vector(type, len(items)), "poison"
        for lane, item in enumerate(items):
            total = self.fn.op(f"insertelement {wide} {total}, {type} {item}, i32 {lane}")
        return total

    def _unary(self, e: ir.Unary) -> str:
        fn, dtype, lanes = self.fn, e.a.dtype, e.a.lanes
        type, a = value_type(dtype, lanes), self.value(e.a)
        suffix = intrinsic_suffix(dtype, lanes)
        match e.op:
            case "neg" if dtype.is_float:
                return fn.op(f"fneg {type} {a}")
            case "neg":
                return fn.op(f"sub {type} {splat(scalar_type(dtype), '0', lanes)}, {a}")
            case "not":
                ones = splat(scalar_type(dtype), "true" if dtype.is_bool else "-1", lanes)
                return fn.op(f"xor {type} {a}, {ones}")
            case "abs" if dtype.is_float:
                return fn.call(type, f"llvm.fabs.{suffix}", [(type, a)])
            case "abs":
                if not dtype.is_signed:
                    return a
                name = f"llvm.abs.{suffix}"
                fn.declares[f"declare {type} @{name}({type}, i1 immarg)"] = None
                return fn.op(f"call {type} @{name}({type} {a}, i1 false)")
            case "isnan":
                return fn.op(f"fcmp uno {type} {a}, {a}")
            case "sqrt":
                return fn.call(type, f"llvm.sqrt.{suffix}", [(type, a)])
            case "floor" | "ceil" | "trunc" | "round":
                return fn.call(type, f"llvm.{_ROUNDING[e.op]}.{suffix}", [(type, a)])
        raise IngotError("codegen-failed", f"unary operator {e.op!r} is unknown to this printer")

    def _compare(self, e: ir.Compare) -> str:
        match e:
            case ir.Compare(
                op="lt",
                a=ir.Ramp(base=base, stride=arith.Const(value=1), width=width),
                b=ir.Broadcast(a=ir.Index(expr=limit)),
            ):
                return self._first_lanes(arith.sub(limit, base), width)
        dtype, type = e.a.dtype, value_type(e.a.dtype, e.a.lanes)
        a, b = self.value(e.a), self.value(e.b)
        if dtype.is_float:
            return self.fn.op(f"fcmp {_FLOAT_COMPARE[e.op]} {type} {a}, {b}")
        sign = "" if e.op in ("eq", "ne") else "s" if dtype.is_signed else "u"
        return self.fn.op(f"icmp {sign}{e.op} {type} {a}, {b}")

    def _first_lanes(self, count: arith.Expr, width: int) -> str:
        """The mask of a tail, its first `count` lanes: in 32 bits, as most of what it masks is; a
        comparison of indices would take several vectors."""
        fn, number = self.fn, self.index(count)
        for name, bound in (("smax", 0), ("smin", width)):
            number = fn.call("i64", f"llvm.{name}.i64", [("i64", number), ("i64", str(bound))])
        all_lanes = fn.broadcast("i32", fn.op(f"trunc i64 {number} to i32"), width)
        numbers = "<" + ", ".join(f"i32 {i}" for i in range(width)) + ">"
        return fn.op(f"icmp sgt <{width} x i32> {all_lanes}, {numbers}")

    def _binary(self, e: ir.Binary) -> str:
        dtype, type = e.dtype, value_type(e.dtype, e.lanes)
        if e.op in ("min", "max"):
            return self._min_max(e.op, e.a, e.b, type)
        a, b = self.value(e.a), self.value(e.b)
        return self.combine(e.op, a, b, dtype, e.lanes)

    def combine(self, op: str, a: str, b: str, dtype: DType, lanes: int) -> str:
        """One binary operation on operands already emitted (not min or max)."""
        fn, type = self.fn, value_type(dtype, lanes)
        if dtype.is_float and op in _FLOAT_BINARY:
            return fn.op(f"{_FLOAT_BINARY[op]} {type} {a}, {b}")
        if not dtype.is_float and op in _BITWISE:
            return fn.op(f"{_BITWISE[op]} {type} {a}, {b}")
        if dtype.is_int and op in ("shl", "shr"):
            return self._shift(op, a, b, dtype, lanes)
        if dtype.is_int and op in ("div", "rem", "floordiv", "mod"):
            return self._divide(op, a, b, dtype, lanes)
        raise IngotError("codegen-failed", f"{op!r} on {dtype} is unknown to this printer")

    def _shift(self, op: str, a: str, b: str, dtype: DType, lanes: int) -> str:
        fn, type, bits = self.fn, value_type(dtype, lanes), max(8, dtype.bits)
        scalar, mask = scalar_type(dtype), vector("i1", lanes)
        fits = fn.op(f"icmp ult {type} {b}, {splat(scalar, str(bits), lanes)}")
        zero = splat(scalar, "0", lanes)
        amount = fn.op(f"select {mask} {fits}, {type} {b}, {type} {zero}")
        name = "shl" if op == "shl" else "ashr" if dtype.is_signed else "lshr"
        moved = fn.op(f"{name} {type} {a}, {amount}")
        return fn.op(f"select {mask} {fits}, {type} {moved}, {type} {zero}")

    def _divide(self, op: str, a: str, b: str, dtype: DType, lanes: int) -> str:
        fn, type, bits = self.fn, value_type(dtype, lanes), max(8, dtype.bits)
        mask, scalar = vector("i1", lanes), scalar_type(dtype)
        if dtype.is_signed and op in ("floordiv", "mod"):
            return self._floor_divide(a, b, type, op == "floordiv", lanes, bits)
        zero, one = splat(scalar, "0", lanes), splat(scalar, "1", lanes)
        is_zero = fn.op(f"icmp eq {type} {b}, {zero}")
        is_div = op in ("div", "floordiv")
        if not dtype.is_signed:
            safe = fn.op(f"select {mask} {is_zero}, {type} {one}, {type} {b}")
            return fn.op(f"{'udiv' if is_div else 'urem'} {type} {a}, {safe}")
        is_minus = fn.op(f"icmp eq {type} {b}, {splat(scalar, '-1', lanes)}")
        unsafe = fn.op(f"or {mask} {is_zero}, {is_minus}")
        safe = fn.op(f"select {mask} {unsafe}, {type} {one}, {type} {b}")
        if not is_div:
            return fn.op(f"srem {type} {a}, {safe}")
        quotient = fn.op(f"sdiv {type} {a}, {safe}")
        negated = fn.op(f"sub {type} {zero}, {a}")
        return fn.op(f"select {mask} {is_minus}, {type} {negated}, {type} {quotient}")

    def _min_max(self, op: str, x: ir.Expr, y: ir.Expr, type: str) -> str:
        # a constant goes first: then NaN in the other operand wins by the compare alone, and the
        # pair becomes one machine instruction
        first, second = (y, x) if _is_number(y) and not _is_number(x) else (x, y)
        a, b = self.value(first), self.value(second)
        return self.min_max(op, a, b, x.dtype, x.lanes, first_is_number=_is_number(first))

    def min_max(
        self, op: str, a: str, b: str, dtype: DType, lanes: int, first_is_number: bool = False
    ) -> str:
        fn, type, mask = self.fn, value_type(dtype, lanes), vector("i1", lanes)
        if dtype.is_bool:
            return fn.op(f"{'and' if op == 'min' else 'or'} {type} {a}, {b}")
        if not dtype.is_float:
            name = f"llvm.{'s' if dtype.is_signed else 'u'}{op}.{intrinsic_suffix(dtype, lanes)}"
            return fn.call(type, name, [(type, a), (type, b)])
        if not first_is_number:  # NaN wins; which zero does is open
            name = f"llvm.{op}imum.{intrinsic_suffix(dtype, lanes)}"
            return fn.call(type, name, [(type, a), (type, b)], flags="nsz")
        wins = fn.op(f"fcmp {'olt' if op == 'min' else 'ogt'} {type} {a}, {b}")
        return fn.op(f"select {mask} {wins}, {type} {a}, {type} {b}")

    def _lane_reduce(self, op: str, a: ir.Expr) -> str:
        """A balanced tree by halves: lane i meets lane i + ceil(n / 2); an odd middle waits."""
        dtype, lanes, total = a.dtype, a.lanes, self.value(a)
        while lanes > 1:
            half = (lanes + 1) // 2
            low = self._pick(total, dtype, lanes, list(range(half)))
            high = self._pick(total, dtype, lanes, [min(half + i, lanes - 1) for i in range(half)])
            if op in ("min", "max"):
                met = self.min_max(op, low, high, dtype, half)
            else:
                met = self.combine(op, low, high, dtype, half)
            if lanes % 2:
                met = self._replace_last(met, low, dtype, half)
            total, lanes = met, half
        return total

    def _pick(self, value: str, dtype: DType, lanes: int, picks: list[int]) -> str:
        type = value_type(dtype, lanes)
        if len(picks) == 1:
            return self.fn.op(f"extractelement {type} {value}, i32 {picks[0]}")
        mask = ", ".join(f"i32 {p}" for p in picks)
        return self.fn.op(
            f"shufflevector {type} {value}, {type} poison, <{len(picks)} x i32> <{mask}>"
        )

    def repeat(self, value: str, dtype: DType, lanes: int, times: int) -> str:
        """All lanes of a value, several times over."""
        if times == 1:
            return value
        if lanes == 1:
            return self.fn.broadcast(scalar_type(dtype), value, times)
        return self._pick(value, dtype, lanes, list(range(lanes)) * times)

    def _replace_last(self, value: str, source: str, dtype: DType, lanes: int) -> str:
        type, last = value_type(dtype, lanes), lanes - 1
        item = self.fn.op(f"extractelement {type} {source}, i32 {last}")
        return self.fn.op(f"insertelement {type} {value}, {scalar_type(dtype)} {item}, i32 {last}")

    # --- conversions --------------------------------------------------------------------------

    def _cast(self, a: str, source: DType, target: DType, lanes: int) -> str:
        fn = self.fn
        if source is target:
            return a
        from_type, to_type = value_type(source, lanes), value_type(target, lanes)
        if target.is_bool:
            zero = splat(scalar_type(source), literal(0, source), lanes)
            compare = "fcmp une" if source.is_float else "icmp ne"
            return fn.op(f"{compare} {from_type} {a}, {zero}")
        if source.is_bool and not target.is_float:
            return fn.op(f"zext {from_type} {a} to {to_type}")
        if source.is_float and target.is_float:
            op = "fpext" if target.bits > source.bits else "fptrunc"
            return fn.op(f"{op} {from_type} {a} to {to_type}")
        if target.is_float:
            op = "sitofp" if source.is_signed and not source.is_bool else "uitofp"
            return fn.op(f"{op} {from_type} {a} to {to_type}")
        if source.is_float:
            return self._float_to_int(a, source, target, lanes)
        if max(8, target.bits) == max(8, source.bits):
            return a
        op = "trunc" if target.bits < source.bits else "sext" if source.is_signed else "zext"
        return fn.op(f"{op} {from_type} {a} to {to_type}")

    def _float_to_int(self, a: str, source: DType, target: DType, lanes: int) -> str:
        """Saturating: legalize has spelled out the other way."""
        sign = "s" if target.is_signed else "u"
        suffixes = f"{intrinsic_suffix(target, lanes)}.{intrinsic_suffix(source, lanes)}"
        name = f"llvm.fpto{sign}i.sat.{suffixes}"
        return self.fn.call(value_type(target, lanes), name, [(value_type(source, lanes), a)])

    # --- memory -------------------------------------------------------------------------------

    def pointer(self, buffer: ir.Buffer, index: arith.Expr) -> str:
        """The address in steps: what the innermost loop does not change, what it does, a number.

        LLVM takes the first step out of the loop, shares it and folds the last into instructions;
        of one long sum it keeps parts in registers of their own, and runs out of them.
        """
        address = self.pointers[buffer.name]
        for part in _steps(index, self.loops[-1:]):
            place = self.index(part)
            kind = memory_type(buffer.dtype)
            address = self.fn.op(f"getelementptr {kind}, ptr {address}, i64 {place}")
        return address

    def _load(self, e: ir.Load) -> str:
        if e.mask is None:
            is_dense = e.width == 1 or arith.is_const(e.stride, 1)
            return self._plain_load(e) if is_dense else self._strided_load(e)
        alike, rest = _by_lanes(e.mask)
        if not alike:
            return self._masked_load(e)
        return self._guarded_load(ir.replace(e, mask=rest, other=rest and e.other), alike, e.other)

    def _plain_load(self, e: ir.Load) -> str:
        type, align = vector(memory_type(e.dtype), e.width), e.dtype.storage_bytes
        address = self.pointer(e.buffer, e.indices[0])
        loaded = self.fn.op(f"load {type}, ptr {address}, align {align}")
        return self.from_memory(loaded, e.dtype, e.width)

    def _guarded_load(self, e: ir.Load, mask: list[ir.Expr], instead: ir.Expr | None) -> str:
        """A branch around the load: where the mask, one for all lanes, is false no memory is
        touched. A machine takes 50 ns for a masked load of nothing where nothing is mapped."""
        fn, type = self.fn, value_type(e.dtype, e.width)
        assert instead is not None
        holds, other = self.value(_all(mask)), self.value(instead)
        before, inside, after = fn.block, fn.label("guard"), fn.label("join")
        fn.branch_if(holds, inside, after)
        fn.start(inside)
        loaded = self._load(e)
        last = fn.block
        fn.branch(after)
        fn.start(after)
        return fn.op(f"phi {type} [{loaded}, %{last}], [{other}, %{before}]")

    def _masked_load(self, e: ir.Load) -> str:
        if not arith.is_const(e.stride, 1):
            return self._gather(e)
        fn, type = self.fn, vector(memory_type(e.dtype), e.width)
        address, align = self.pointer(e.buffer, e.indices[0]), e.dtype.storage_bytes
        assert e.mask is not None and e.other is not None
        mask, other = self.value(e.mask), self.to_memory(self.value(e.other), e.dtype, e.width)
        name = f"llvm.masked.load.{memory_suffix(e.dtype, e.width)}.p0"
        fn.declares[f"declare {type} @{name}(ptr, i32 immarg, <{e.width} x i1>, {type})"] = None
        loaded = fn.op(
            f"call {type} @{name}(ptr {address}, i32 {align}, <{e.width} x i1> {mask}, "
            f"{type} {other})"
        )
        return self.from_memory(loaded, e.dtype, e.width)

    def _strided_load(self, e: ir.Load) -> str:
        type, align = memory_type(e.dtype), e.dtype.storage_bytes
        items = []
        for address in self.lane_pointers(e.buffer, e.indices[0], e.stride, e.width):
            items.append(self.fn.op(f"load {type}, ptr {address}, align {align}"))
        return self.from_memory(self._lanes(items, type), e.dtype, e.width)

    def _gather(self, e: ir.Load) -> str:
        fn, type, width = self.fn, vector(memory_type(e.dtype), e.width), e.width
        assert e.mask is not None and e.other is not None
        mask, other = self.value(e.mask), self.to_memory(self.value(e.other), e.dtype, width)
        addresses = self.lane_addresses(e.buffer, e.indices[0], e.stride, width)
        name = f"llvm.masked.gather.{memory_suffix(e.dtype, width)}.v{width}p0"
        fn.declares[
            f"declare {type} @{name}(<{width} x ptr>, i32 immarg, <{width} x i1>, {type})"
        ] = None
        loaded = fn.op(
            f"call {type} @{name}(<{width} x ptr> {addresses}, i32 {e.dtype.storage_bytes}, "
            f"<{width} x i1> {mask}, {type} {other})"
        )
        return self.from_memory(loaded, e.dtype, width)

    def lane_pointers(
        self, buffer: ir.Buffer, index: arith.Expr, stride: arith.Expr, width: int
    ) -> list[str]:
        first, step, type = (
            self.pointer(buffer, index),
            self.index(stride),
            memory_type(buffer.dtype),
        )
        found = [first]
        for lane in range(1, width):
            offset = self.fn.op(f"mul i64 {step}, {lane}")
            found.append(self.fn.op(f"getelementptr {type}, ptr {first}, i64 {offset}"))
        return found

    def lane_addresses(
        self, buffer: ir.Buffer, index: arith.Expr, stride: arith.Expr, width: int
    ) -> str:
        offsets = self.value(ir.Ramp(arith.Const(0), stride, width))
        first = self.pointer(buffer, index)
        return self.fn.op(
            f"getelementptr {memory_type(buffer.dtype)}, ptr {first}, <{width} x i64> {offsets}"
        )

    def from_memory(self, value: str, dtype: DType, lanes: int) -> str:
        if not dtype.is_bool:
            return value
        zero = splat("i8", "0", lanes)
        return self.fn.op(f"icmp ne {vector('i8', lanes)} {value}, {zero}")

    def to_memory(self, value: str, dtype: DType, lanes: int) -> str:
        if not dtype.is_bool:
            return value
        return self.fn.op(f"zext {vector('i1', lanes)} {value} to {vector('i8', lanes)}")


def memory_suffix(dtype: DType, lanes: int) -> str:
    return "v" + str(lanes) + ("i8" if dtype.is_bool else intrinsic_suffix(dtype, 1))


def _steps(index: arith.Expr, innermost: list[str]) -> list[arith.Expr]:
    """The sum in up to three parts: without the innermost variable, with it, the number."""
    parts: list[list[arith.Expr]] = [[], [], []]
    for term in _terms(index):
        is_inner = bool(arith.free_vars(term) & set(innermost)) or _holds_data(term)
        parts[2 if isinstance(term, arith.Const) else int(is_inner)].append(term)
    sums = [reduce(arith.add, part) for part in parts if part]
    return [part for part in sums if not arith.is_const(part, 0)]


def _terms(e: arith.Expr) -> list[arith.Expr]:
    return _terms(e.a) + _terms(e.b) if isinstance(e, arith.Add) else [e]


def _holds_data(e: arith.Expr) -> bool:
    return any(isinstance(x, arith.Opaque) for x in arith.walk(e))


def _is_number(e: ir.Expr) -> bool:
    """A constant that is not NaN."""
    if isinstance(e, ir.Broadcast):
        return _is_number(e.a)
    return isinstance(e, ir.Lit) and e.value == e.value


def _by_lanes(mask: ir.Expr) -> tuple[list[ir.Expr], ir.Expr | None]:
    """The parts of a mask that are one for all lanes, and what is left of it."""
    parts = _conjuncts(mask)
    alike = [p.a if isinstance(p, ir.Broadcast) else p for p in parts if _is_alike(p)]
    rest = [p for p in parts if not _is_alike(p)]
    return alike, _all(rest) if rest else None


def _is_alike(e: ir.Expr) -> bool:
    return e.lanes == 1 or isinstance(e, ir.Broadcast)


def _conjuncts(mask: ir.Expr) -> list[ir.Expr]:
    if isinstance(mask, ir.Binary) and mask.op == "and":
        return [*_conjuncts(mask.a), *_conjuncts(mask.b)]
    return [mask]


def _all(parts: list[ir.Expr]) -> ir.Expr:
    return reduce(lambda a, b: ir.Binary("and", a, b), parts)
