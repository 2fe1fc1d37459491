"""Contracts a multiply and an add into one fused multiply-add (FMA). A legalize pass.

    a * b + c  →  fma(a, b, c)        c - a * b  →  fma(-a, b, c)

Only f32 and f64, and only where the target has the instruction. A product of integer data, as in
the dequantised sum cast(i) * scale + bias, is rounded by itself, as the standard says: the next
quantisation rounds the result again, and there the last bit decides.
"""

from __future__ import annotations

from ingot import dtypes
from ingot.legalize.context import PassContext
from ingot.loops import ir, visit
from ingot.loops.ir import Binary, Expr, Kernel, Unary
from ingot.target import FMA


def contract_fma(kernel: Kernel, ctx: PassContext) -> Kernel:
    if not ctx.has_any(FMA):
        return kernel
    return ir.replace(kernel, body=visit.map_stmt(kernel.body, None, _contract))


def _contract(e: Expr) -> Expr:
    if not isinstance(e, Binary) or e.op not in ("add", "sub"):
        return e
    if e.dtype is not dtypes.f32 and e.dtype is not dtypes.f64:
        return e
    if any(map(_is_dequantised, (e.a, e.b))):
        return e
    match e:
        case Binary(op="add", a=Binary(op="mul", a=a, b=b), b=c):
            return ir.Fma(a, b, c)
        case Binary(op="add", a=c, b=Binary(op="mul", a=a, b=b)):
            return ir.Fma(a, b, c)
        case Binary(op="sub", a=Binary(op="mul", a=a, b=b), b=c):
            return ir.Fma(a, b, Unary("neg", c))
        case Binary(op="sub", a=c, b=Binary(op="mul", a=a, b=b)):
            return ir.Fma(Unary("neg", a), b, c)
    return e


def _is_dequantised(e: Expr) -> bool:
    """Is it a product of integer data, cast to a float, and a scale? (An index is no data.)"""
    if not isinstance(e, Binary) or e.op != "mul":
        return False
    casts = [x.a for x in (e.a, e.b) if isinstance(x, ir.Cast)]
    return any(x.dtype.is_int and not isinstance(x, ir.Index) for x in casts)
