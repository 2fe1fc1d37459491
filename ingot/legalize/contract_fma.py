"""Contracts a multiply and an add into one fused multiply-add (FMA). A legalize pass.

    a * b + c  →  fma(a, b, c)        c - a * b  →  fma(-a, b, c)

Only f32 and f64, and only where the target has the instruction.
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
