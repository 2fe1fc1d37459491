"""Exact values to compare with, from others' libraries.

f32: float64 functions of torch, whose error is far below an ulp of f32; test_reference.py checks
them against mpmath. f64: mpmath, value by value, as longdouble.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import torch

Exact = Callable[..., np.ndarray]
PRECISION = 1300  # bits: enough to reduce the largest float64 by π


def _torch(fn: Callable) -> Exact:
    def exact(*args: np.ndarray) -> np.ndarray:
        return fn(*(torch.from_numpy(a) for a in args)).numpy()

    return exact


# Functions of float64 arrays.
WIDE: dict[str, Exact] = {
    "exp": _torch(torch.exp), "exp2": _torch(torch.exp2), "log": _torch(torch.log),
    "log2": _torch(torch.log2), "log1p": _torch(torch.log1p), "expm1": _torch(torch.expm1),
    "tanh": _torch(torch.tanh), "erf": _torch(torch.special.erf), "sigmoid": _torch(torch.sigmoid),
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": _torch(torch.sin), "cos": _torch(torch.cos),
    "tan": _torch(torch.tan), "asin": _torch(torch.asin), "acos": _torch(torch.acos),
    "atan": _torch(torch.atan), "sinh": _torch(torch.sinh), "cosh": _torch(torch.cosh),
    "asinh": np.arcsinh, "acosh": _torch(torch.acosh), "atanh": _torch(torch.atanh),
    "pow": np.power, "fmod": np.fmod,
}  # fmt: skip


def _sigmoid(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


_MPMATH: dict[str, Callable] = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.power(2, x), "log": mpmath.log,
    "log2": lambda x: mpmath.log(x, 2), "log1p": lambda x: mpmath.log(1 + x),
    "expm1": lambda x: mpmath.exp(x) - 1, "tanh": mpmath.tanh, "erf": mpmath.erf,
    "sigmoid": _sigmoid, "rsqrt": lambda x: 1 / mpmath.sqrt(x), "sin": mpmath.sin,
    "cos": mpmath.cos, "tan": mpmath.tan, "asin": mpmath.asin, "acos": mpmath.acos,
    "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh, "asinh": mpmath.asinh,
    "acosh": mpmath.acosh, "atanh": mpmath.atanh, "pow": mpmath.power, "fmod": mpmath.fmod,
}  # fmt: skip
