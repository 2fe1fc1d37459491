"""The table of expansions: which function computes what, by type. Used by expand_math."""

from __future__ import annotations

from collections.abc import Callable

from ingot import dtypes
from ingot.legalize.math import (
    error_function,
    exponential,
    logarithm,
    power,
    random_bits,
    trigonometry,
)
from ingot.legalize.math.code import V

Expansion = Callable[..., V]


def rsqrt(x: V) -> V:
    return 1.0 / x.sqrt()


# Computed in f32, for vector speed: within 2 ulp (tanh, erf, pow, sin, cos: 4).
F32: dict[str, Expansion] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": logarithm.log,
    "log2": logarithm.log2_f32,
    "log1p": logarithm.log1p,
    "sigmoid": exponential.sigmoid,
    "rsqrt": rsqrt,
    "tanh": error_function.tanh_f32,
    "erf": error_function.erf_f32,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "pow": power.pow_f32,
}

# f32 computed in f64, with less precision than f64 itself needs.
F32_AS_F64: dict[str, Expansion] = {
    "fmod": power.fmod_by_f64,
    "tan": trigonometry.tan_by_f64,
}

F64: dict[str, Expansion] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "sigmoid": exponential.sigmoid,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "tanh": exponential.tanh_by_expm1,
    "log": logarithm.log,
    "log2": logarithm.log2_f64,
    "log1p": logarithm.log1p,
    "asinh": logarithm.asinh,
    "acosh": logarithm.acosh,
    "atanh": logarithm.atanh,
    "erf": error_function.erf_f64,
    "rsqrt": rsqrt,
    "sin": trigonometry.sin,
    "cos": trigonometry.cos,
    "tan": trigonometry.tan,
    "asin": trigonometry.asin,
    "acos": trigonometry.acos,
    "atan": trigonometry.atan,
    "pow": power.pow_f64,
    "fmod": power.fmod_f64,
}


BITS: dict[str, Expansion] = {"philox": random_bits.philox}


def apply(fn: str, args: list[V]) -> V:
    """The function of f32 or f64 values, or of u64 bits."""
    if fn in BITS:
        return BITS[fn](*args)
    if args[0].dtype is dtypes.f64:
        return F64[fn](*args)
    if fn in F32:
        return F32[fn](*args)
    wide = [x.to(dtypes.f64) for x in args]
    return F32_AS_F64.get(fn, F64[fn])(*wide).to(dtypes.f32)
