"""Loop expressions → LLVM instructions, one method for each node. Used by llvm_kernel.py.

No instruction has undefined behaviour: shifts and integer divisions are total, float→int saturates.
The base classes print indices (llvm_indices.py) and loads (llvm_memory.py).
"""

from __future__ import annotations

from typing import assert_never

from ingot.arith import expr as arith
from ingot.codegen.llvm_memory import LoadPrinter
from ingot.codegen.llvm_text import (
    intrinsic_suffix,
    literal,
    scalar_type,
    splat,
    value_type,
    vector,
)
from ingot.dtypes import DType
from ingot.loops import ir
from ingot.support.errors import IngotError
from ingot.support.stack import segmented

_FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_BITWISE = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}


class ValuePrinter(LoadPrinter):
    """Emits values into a Function, given the LLVM values of variables and buffers."""

    @segmented
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
                return self.load(e)
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
                return self.lanes([self.value(x) for x in items], scalar_type(e.dtype))
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
        raise IngotError(
            "codegen-failed", f"unary operator {e.op!r} is not supported by the LLVM printer"
        )

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
        """A tail mask, its first `count` lanes on. It compares 32-bit lanes, the width of most data
        it masks; a comparison of 64-bit indices would take several vectors."""
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
        raise IngotError(
            "codegen-failed", f"{op!r} on {dtype} is not supported by the LLVM printer"
        )

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
            return self.floor_divide(a, b, type, op == "floordiv", lanes, bits)
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
        # a constant goes first: then the compare alone propagates a NaN of the other operand, and
        # compare and select become one machine instruction
        first, second = (
            (y, x) if _is_non_nan_constant(y) and not _is_non_nan_constant(x) else (x, y)
        )
        a, b = self.value(first), self.value(second)
        return self.min_max(
            op, a, b, x.dtype, x.lanes, first_is_constant=_is_non_nan_constant(first)
        )

    def min_max(
        self, op: str, a: str, b: str, dtype: DType, lanes: int, first_is_constant: bool = False
    ) -> str:
        fn, type, mask = self.fn, value_type(dtype, lanes), vector("i1", lanes)
        if dtype.is_bool:
            return fn.op(f"{'and' if op == 'min' else 'or'} {type} {a}, {b}")
        if not dtype.is_float:
            name = f"llvm.{'s' if dtype.is_signed else 'u'}{op}.{intrinsic_suffix(dtype, lanes)}"
            return fn.call(type, name, [(type, a), (type, b)])
        if not first_is_constant:  # NaN propagates; the sign of a zero result is unspecified
            name = f"llvm.{op}imum.{intrinsic_suffix(dtype, lanes)}"
            return fn.call(type, name, [(type, a), (type, b)], flags="nsz")
        wins = fn.op(f"fcmp {'olt' if op == 'min' else 'ogt'} {type} {a}, {b}")
        return fn.op(f"select {mask} {wins}, {type} {a}, {type} {b}")

    def _lane_reduce(self, op: str, a: ir.Expr) -> str:
        """A balanced tree: combine lane i with lane i + ceil(n / 2); an odd lane is carried."""
        dtype, lanes, total = a.dtype, a.lanes, self.value(a)
        while lanes > 1:
            half = (lanes + 1) // 2
            low = self._pick(total, dtype, lanes, list(range(half)))
            high = self._pick(total, dtype, lanes, [min(half + i, lanes - 1) for i in range(half)])
            if op in ("min", "max"):
                combined = self.min_max(op, low, high, dtype, half)
            else:
                combined = self.combine(op, low, high, dtype, half)
            if lanes % 2:
                combined = self._replace_last(combined, low, dtype, half)
            total, lanes = combined, half
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
        """All lanes of a value, repeated `times` times."""
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
        """Saturating; legalize has expanded casts of mode wrap."""
        sign = "s" if target.is_signed else "u"
        suffixes = f"{intrinsic_suffix(target, lanes)}.{intrinsic_suffix(source, lanes)}"
        name = f"llvm.fpto{sign}i.sat.{suffixes}"
        return self.fn.call(value_type(target, lanes), name, [(value_type(source, lanes), a)])


@segmented
def _is_non_nan_constant(e: ir.Expr) -> bool:
    """A constant that is not NaN."""
    if isinstance(e, ir.Broadcast):
        return _is_non_nan_constant(e.a)
    return isinstance(e, ir.Lit) and e.value == e.value
