"""Exact values to compare with, from others' libraries.

f32: float64 functions of numpy and torch, whose error is far below an ulp of f32 (test_reference.py
checks that). f64: mpmath, value by value.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import torch

PRECISION = 160  # bits

Exact = Callable[..., np.ndarray]


def _torch(fn: Callable) -> Exact:
    def exact(*args: np.ndarray) -> np.ndarray:
        return fn(*(torch.from_numpy(a) for a in args)).numpy()

    return exact


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = WIDE["exp"](-np.abs(x))  # torch.sigmoid loses what is subnormal
    return np.where(x < 0, e, 1) / (1 + e)


# Functions of float64 arrays. torch's are vectors of Sleef's, several times as fast as libm; its
# log1p loses subnormals.
WIDE: dict[str, Exact] = {
    "exp": _torch(torch.exp), "exp2": _torch(torch.exp2), "log": _torch(torch.log),
    "log2": _torch(torch.log2), "log1p": np.log1p, "expm1": _torch(torch.expm1),
    "tanh": _torch(torch.tanh), "erf": _torch(torch.special.erf), "sigmoid": _sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": _torch(torch.sin), "cos": _torch(torch.cos),
    "tan": _torch(torch.tan), "asin": _torch(torch.asin), "acos": _torch(torch.acos),
    "atan": _torch(torch.atan), "sinh": _torch(torch.sinh), "cosh": _torch(torch.cosh),
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "pow": np.power,
    "fmod": np.fmod,
}  # fmt: skip


def _beside_one(fn: Callable) -> Callable:
    """With enough digits that adding 1 loses none. (mpmath's own expm1 may take gigabytes.)"""

    def exact(x: mpmath.mpf) -> mpmath.mpf:
        with mpmath.workprec(PRECISION + abs(mpmath.mag(x))):
            return fn(x)

    return exact


# Functions of mpmath numbers within their domain.
EXACT: dict[str, Callable] = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.power(2, x), "log": mpmath.log,
    "log2": lambda x: mpmath.log(x, 2), "log1p": _beside_one(lambda x: mpmath.log(1 + x)),
    "expm1": _beside_one(lambda x: mpmath.exp(x) - 1),
    "tanh": mpmath.tanh, "erf": mpmath.erf, "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x), "sin": mpmath.sin, "cos": mpmath.cos,
    "tan": mpmath.tan, "asin": mpmath.asin, "acos": mpmath.acos, "atan": mpmath.atan,
    "sinh": mpmath.sinh, "cosh": mpmath.cosh, "asinh": mpmath.asinh, "acosh": mpmath.acosh,
    "atanh": mpmath.atanh, "pow": mpmath.power, "fmod": mpmath.fmod,
}  # fmt: skip


def exact_values(fn: str, *args: np.ndarray) -> list[mpmath.mpf]:
    """Of float64 arguments; mpmath reduces large ones with as many digits as they need."""
    with mpmath.workprec(PRECISION):
        return [EXACT[fn](*map(mpmath.mpf, map(float, point))) for point in zip(*args)]
