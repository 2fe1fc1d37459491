"""Expands math functions and narrow-type arithmetic into operations that the target has. A legalize
pass.

    y[i] = exp(x[i]) * 2   →   let t_1 = x[i]; let t_2 = …; y[i] = … * 2

Every value that an expansion uses twice becomes a Let before the statement, so that nothing is
computed twice and the text stays linear. In: flat, vectorised kernel. Out: no Math; f16, bf16 and
float8 values are only loaded, stored and converted by bits (f16 by an instruction where the target
has one).
"""

from __future__ import annotations

from functools import lru_cache

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import DType
from ingot.legalize.context import HALF_CASTS, ROUNDING, PassContext
from ingot.legalize.math import narrow, saturation, table
from ingot.legalize.math.code import Code, V, rounded, select
from ingot.loops import ir, visit
from ingot.loops.ir import Expr, Kernel, Stmt
from ingot.support.stack import segmented
from ingot.target import FMA

_ROUNDINGS = ("floor", "ceil", "trunc", "round")


def expand_math(kernel: Kernel, ctx: PassContext) -> Kernel:
    return ir.replace(kernel, body=_Expand(ctx).stmt(kernel.body))


class _Expand:
    def __init__(self, ctx: PassContext):
        self.names = ctx.names
        self.has_fma = ctx.has_any(FMA)
        self.has_rounding = ctx.has_any(ROUNDING)
        self.has_half = ctx.has_any(HALF_CASTS)
        self.has_all = self.has_fma and self.has_rounding

    @segmented
    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, ir.While) and self.must_change(s.cond):
            return self.loop_on_flag(s)
        code = Code(self.names.fresh, self.has_fma, self.has_rounding)
        new = visit.rebuild_stmt(
            s, self.stmt, lambda e: self.expr(e, code), lambda i: self.index(i, code)
        )
        return code.wrap(new)

    def loop_on_flag(self, s: ir.While) -> Stmt:
        """A condition that needs Lets is computed before the loop and after each iteration."""
        name = self.names.fresh("more")
        flag = ir.Buffer(name, dtypes.bool_, (arith.Const(1),), ir.THREAD)
        test = ir.Store(flag, (arith.Const(0),), s.cond)
        body = ir.seq(self.stmt(s.body), self.stmt(test))
        return ir.Alloc(flag, ir.seq(self.stmt(test), ir.While(flag[0], body)))

    # --- expressions ---------------------------------------------------------------------------

    def index(self, i: arith.Expr, code: Code) -> arith.Expr:
        if not isinstance(i, arith.Binary | arith.Opaque):
            return i
        return arith.substitute(i, {}, lambda payload: ir.index_of(self.expr(payload, code)))

    def must_change(self, e: Expr) -> bool:
        return _is_special(e, self.has_half) or (not self.has_all and _may_lack_instruction(e))

    @segmented
    def expr(self, e: Expr, code: Code) -> Expr:
        if not self.must_change(e):
            return e
        if isinstance(e, ir.Math):
            args = [self.expr(x, code) for x in e.args]
            return code.keep(self.math(e.fn, [code.value(x) for x in args]).e)
        if isinstance(e, ir.Cast) and saturation.dequantised(e) is not None:
            return self.dequantised(e, code)
        found = saturation.quantised(e)
        if found is not None:
            return saturation.to_int(self.operands_of(found, code), code).e
        new = visit.rebuild_expr(e, lambda x: self.expr(x, code), lambda i: self.index(i, code))
        return self.node(new, code)

    def operands_of(self, q: saturation.Quantised, code: Code) -> saturation.Quantised:
        zero = None if q.zero is None else self.expr(q.zero, code)
        return q._replace(value=self.expr(q.value, code), zero=zero)

    def dequantised(self, e: ir.Cast, code: Code) -> Expr:
        """cast(cast(v, u8) - zero, f32) in floats, without a way through bytes."""
        op, terms = saturation.summands(e.a)
        floats: list[Expr] = []
        for x in terms:
            q = saturation.quantised(x)
            if q is not None and q.value.dtype is e.type:
                floats.append(saturation.to_float(self.operands_of(q, code), code).e)
            else:
                floats.append(saturation.converted(self.expr(x, code), e.type))
        return ir.Binary(op, *floats) if op else floats[0]

    def math(self, fn: str, args: list[V]) -> V:
        dtype = args[0].dtype
        if not narrow.is_narrow_float(dtype):
            return table.apply(fn, args)
        wide = [self.widen(x).keep() for x in args]
        return self.shrink(table.apply(fn, wide), dtype, False)

    def node(self, e: Expr, code: Code) -> Expr:
        """One node whose operands are expanded."""
        match e:
            case ir.Cast(a=a, type=dtype, mode=mode):
                return self.cast(V(code, a), dtype, mode).e
            case ir.Unary(op=op, a=a) if narrow.is_narrow_float(a.dtype):
                wide = self.unary(op, self.widen(V(code, a)))
                return wide.e if op == "isnan" else self.shrink(wide, a.dtype, False).e
            case ir.Unary(op=op, a=a) if op in _ROUNDINGS and a.dtype.is_float:
                return rounded(op, V(code, a)).e
            case ir.Binary(op=op, a=a, b=b) if narrow.is_narrow_float(a.dtype):
                wide_pair = ir.Binary(op, self.widen(V(code, a)).e, self.widen(V(code, b)).e)
                return self.shrink(V(code, wide_pair), a.dtype, False).e
            case ir.Compare(op=op, a=a, b=b) if narrow.is_narrow_float(a.dtype):
                return ir.Compare(op, self.widen(V(code, a)).e, self.widen(V(code, b)).e)
            case ir.LaneReduce(op=op, a=a) if narrow.is_narrow_float(a.dtype):
                total = ir.LaneReduce(op, self.widen(V(code, a)).e)
                return self.shrink(V(code, total), a.dtype, False).e
            case ir.Fma(a=a, b=b, c=c) if narrow.is_narrow_float(a.dtype):
                x, y, z = [self.widen(V(code, operand)) for operand in (a, b, c)]
                return self.shrink(x * y + z, a.dtype, False).e
            case ir.Fma(a=a, b=b, c=c) if not self.has_fma:
                return ir.Binary("add", ir.Binary("mul", a, b), c)
            case ir.Unary(a=a) | ir.LaneReduce(a=a) if narrow.is_narrow_int(a.dtype):
                wide_one = ir.replace(e, a=_byte(V(code, a)).e)
                return narrow.wrapped_int(V(code, wide_one), a.dtype).e
            case ir.Binary(a=a, b=b) if narrow.is_narrow_int(a.dtype):
                return self.narrow_int_binary(e, code)
            case ir.Compare(op=op, a=a, b=b) if narrow.is_narrow_int(a.dtype):
                return ir.Compare(op, _byte(V(code, a)).e, _byte(V(code, b)).e)
        return e

    def unary(self, op: str, x: V) -> V:
        return rounded(op, x) if op in _ROUNDINGS else V(x.code, ir.Unary(op, x.e))

    def narrow_int_binary(self, e: ir.Binary, code: Code) -> Expr:
        a, b = _byte(V(code, e.a)), _byte(V(code, e.b)).keep()
        result = V(code, ir.Binary(e.op, a.e, b.e))
        if e.op == "shr":  # a shift by the type's width or more gives zero
            result = select((b < 0) | (b >= e.dtype.bits), 0, result)
        return narrow.wrapped_int(result, e.dtype).e

    # --- conversions ---------------------------------------------------------------------------

    def widen(self, x: V) -> V:
        """A narrow float as f32."""
        if x.dtype is dtypes.f16 and self.has_half:
            return x.to(dtypes.f32)
        return narrow.to_f32(x)

    def shrink(self, x: V, dtype: DType, saturate: bool) -> V:
        if dtype is dtypes.f16 and self.has_half:
            return x.to(dtypes.f16)
        return narrow.from_f32(x, dtype, saturate)

    def cast(self, x: V, dtype: DType, mode: str) -> V:
        source = x.dtype
        if source is dtype:
            return x
        if narrow.is_narrow_float(source):
            return self.cast(self.widen(x), dtype, mode)
        if narrow.is_narrow_int(source):
            return self.cast(_byte(x), dtype, mode)
        if narrow.is_narrow_float(dtype):
            return self.to_narrow(x, dtype, mode == "saturate")
        if _is_modular(source, dtype, mode):
            return self.cast(narrow.modular_int(x), dtype, mode)
        if narrow.is_narrow_int(dtype):
            return self.to_narrow_int(x, dtype)
        return x.to(dtype, mode)

    def to_narrow(self, x: V, dtype: DType, saturate: bool) -> V:
        if x.dtype is dtypes.f32:
            return self.shrink(x, dtype, saturate)
        if x.dtype is dtypes.f64:
            return self.shrink(narrow.round_to_odd_f32(x), dtype, saturate)
        if x.dtype.is_bool:
            return self.shrink(x.to(dtypes.f32), dtype, False)
        return self.shrink(narrow.int_to_f32(x), dtype, False)

    def to_narrow_int(self, x: V, dtype: DType) -> V:
        if x.dtype.is_float:
            return saturation.to_int(saturation.Quantised(x.e, dtype, False, None), x.code)
        return narrow.wrapped_int(x.to(dtypes.i8), dtype)


def _byte(x: V) -> V:
    """The value of a sub-byte integer as i8 or u8. The caller's arrays leave the other bits of its
    byte undefined (ml_dtypes has stored zeros there, and copies of the sign)."""
    wide = dtypes.i8 if x.dtype.is_signed else dtypes.u8
    return narrow.wrapped_int(x.to(wide), x.dtype).to(wide)


def _is_modular(source: DType, dtype: DType, mode: str) -> bool:
    return source.is_float and dtype.is_int and mode == "wrap"


def _is_narrow(dtype: DType) -> bool:
    return narrow.is_narrow_float(dtype) or narrow.is_narrow_int(dtype)


@lru_cache(maxsize=1 << 16)
@segmented
def _is_special(e: Expr, has_half: bool) -> bool:
    """Does `e` contain Math, or arithmetic of a narrow type?"""
    match e:
        case ir.Math():
            return True
        case ir.Cast(a=a, type=dtype, mode=mode):
            if has_half and {a.dtype.name, dtype.name} == {"f16", "f32"}:
                return _is_special(a, has_half)
            if _is_narrow(a.dtype) or _is_narrow(dtype) or _is_modular(a.dtype, dtype, mode):
                return True
            if saturation.quantised(e) is not None:
                return True
        case ir.Unary(a=a) | ir.Binary(a=a) | ir.Compare(a=a) | ir.LaneReduce(a=a) | ir.Fma(a=a):
            if _is_narrow(a.dtype):
                return True
    return any(_is_special(x, has_half) for x in _children(e))


@lru_cache(maxsize=1 << 16)
@segmented
def _may_lack_instruction(e: Expr) -> bool:
    """Does `e` contain an operation that older targets have no instruction for?"""
    if isinstance(e, ir.Fma) or (isinstance(e, ir.Unary) and e.op in _ROUNDINGS):
        return True
    return any(_may_lack_instruction(x) for x in _children(e))


def _children(e: Expr) -> list[Expr]:
    found: list[Expr] = []

    def on_expr(x: Expr) -> Expr:
        found.append(x)
        return x

    def on_index(i: arith.Expr) -> arith.Expr:
        found.extend(visit.opaque_values(i))
        return i

    visit.rebuild_expr(e, on_expr, on_index)
    return found
