"""What docs/math.md promises, in units of the last place."""

from ingot.target import FMA, Target

F32 = {
    "exp": 1.8, "exp2": 1.0, "log": 0.9, "sigmoid": 1.8, "rsqrt": 1.5, "tanh": 1.4, "erf": 1.9,
    "sin": 1.6, "cos": 1.6, "expm1": 1.6, "log2": 1.2, "log1p": 0.9,
}  # fmt: skip
F32_PLAIN = F32 | {"exp2": 1.4, "erf": 3.4, "log2": 1.75, "sin": 3.0, "cos": 3.0}  # without fma
F32_REST = 0.51  # through f64
F64 = {
    "exp": 1.1, "exp2": 1.25, "log": 1, "log2": 1, "log1p": 1, "expm1": 2, "sigmoid": 1.5,
    "rsqrt": 1.5, "sin": 1, "cos": 1, "tan": 2.5, "asin": 3, "acos": 3, "atan": 2, "sinh": 3,
    "cosh": 3, "asinh": 2, "acosh": 2, "atanh": 2, "tanh": 3, "erf": 4, "pow": 1.5, "fmod": 0,
}  # fmt: skip


def f32(fn: str, target: Target) -> float:
    has_fma = any(target.has(feature) for feature in FMA)
    return (F32 if has_fma else F32_PLAIN).get(fn, F32_REST)
