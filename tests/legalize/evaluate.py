"""A numpy evaluator of expanded expressions over whole arrays: a million points at once.

Only what recipes produce: straight-line code, and branches that change nothing in the lanes they
are not for (`code.rarely`), so that they may be taken always. Lets and slots are dicts of arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ingot.dtypes import DType
from ingot.legalize.math.code import Code, V
from ingot.loops import ir


def evaluate_function(
    fn: Callable[..., V], dtypes: list[DType], arrays: list[np.ndarray], has_fma: bool = True
) -> np.ndarray:
    """fn applied to whole arrays, through the code it builds for one scalar."""
    count = iter(range(10**6))
    code = Code(lambda base: f"{base}{next(count)}", has_fma)
    env = {f"x{n}": a for n, a in enumerate(arrays)}
    args = [V(code, ir.Ref(f"x{n}", dtype)) for n, dtype in enumerate(dtypes)]
    result = fn(*args)
    with np.errstate(all="ignore"):
        run(code.wrap(ir.Fail("end", (result.e,))), env)
    return np.broadcast_to(env["end"], arrays[0].shape)


def run(s: ir.Stmt, env: dict[str, np.ndarray]) -> None:
    match s:
        case ir.Let(name=name, value=value, body=body):
            env[name] = evaluate(value, env)
            run(body, env)
        case ir.Alloc(body=body) | ir.If(then=body, orelse=None):
            run(body, env)
        case ir.Seq(stmts=stmts):
            for each in stmts:
                run(each, env)
        case ir.Store(buffer=buffer, value=value):
            env[buffer.name] = evaluate(value, env)
        case ir.Fail(values=(value,)):
            env["end"] = evaluate(value, env)
        case _:
            raise TypeError(f"no array meaning for {type(s).__name__}")


def evaluate(e: ir.Expr, env: dict[str, np.ndarray]) -> np.ndarray:
    match e:
        case ir.Lit(value=value, type=dtype):
            return np.asarray(value).astype(dtype.numpy)
        case ir.Ref(name=name):
            return env[name]
        case ir.Load(buffer=buffer):
            return env[buffer.name]
        case ir.Unary(op=op, a=a):
            return _UNARY[op](evaluate(a, env))
        case ir.Binary(op=op, a=a, b=b):
            return _BINARY[op](evaluate(a, env), evaluate(b, env))
        case ir.Compare(op=op, a=a, b=b):
            return _COMPARE[op](evaluate(a, env), evaluate(b, env))
        case ir.Select(cond=cond, a=a, b=b):
            return np.where(evaluate(cond, env), evaluate(a, env), evaluate(b, env))
        case ir.Cast(a=a, type=dtype):
            return _cast(evaluate(a, env), dtype)
        case ir.Bitcast(a=a, type=dtype):
            return (
                np.ascontiguousarray(evaluate(a, env))
                .view(dtype.numpy)
                .reshape(np.shape(evaluate(a, env)))
            )
        case ir.Fma(a=a, b=b, c=c):
            return _fma(evaluate(a, env), evaluate(b, env), evaluate(c, env))
    raise TypeError(f"no array meaning for {type(e).__name__}")


def _cast(x: np.ndarray, dtype: DType) -> np.ndarray:
    if x.dtype.kind == "f" and dtype.is_int:
        clipped = np.clip(np.nan_to_num(x), float(dtype.lowest), float(dtype.highest))
        return clipped.astype(dtype.numpy)
    return x.astype(dtype.numpy)


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Rounded once but for rare ties: f32 through float64, f64 by exact products."""
    if a.dtype == np.float32:
        wide = [np.asarray(x, np.float64) for x in (a, b, c)]
        return (wide[0] * wide[1] + wide[2]).astype(np.float32)
    p = a * b
    e = _product_error(a, b, p)
    s = p + c
    t = s - p
    f = (p - (s - t)) + (c - t)
    exact = s + (e + f)
    return np.where(np.isfinite(exact), exact, s)


def _product_error(a: np.ndarray, b: np.ndarray, p: np.ndarray) -> np.ndarray:
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    big = a * 134217729.0
    high = big - (big - a)
    return high, a - high


_UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "isnan": np.isnan,
    "trunc": np.trunc,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "not": np.invert,
}
_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_COMPARE = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def ulp_error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest distance in units of the last place; `want` is wider than `got`. Specials must
    match exactly: NaN with NaN, infinities and zeros with their signs."""
    with np.errstate(over="ignore"):
        narrow = want.astype(got.dtype)
    nan = np.isnan(narrow)
    assert np.array_equal(np.isnan(got), nan), "NaN differs"
    inf = np.isinf(narrow) | np.isinf(got)
    near = np.nextafter(narrow, got.dtype.type(0)) == got  # overflow by one rounding
    assert np.all((got == narrow)[inf] | near[inf]), "infinity differs"
    zero = (narrow == 0) & (want == 0)
    assert np.array_equal(np.signbit(got[zero]), np.signbit(narrow[zero])), "sign of zero differs"
    fine = ~(nan | inf)
    spacing = np.spacing(np.abs(narrow[fine])).astype(np.longdouble)
    distance = np.abs(got[fine].astype(np.longdouble) - want[fine]) / spacing
    return float(distance.max(initial=0))
