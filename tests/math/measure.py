"""Distances between computed and exact values, in units of the last place, over millions of points.

The unit at an exact value v is the spacing of the result's type at |v|, subnormals included.
Infinity counts as the number after the largest finite one, so overflow is measured like the rest.
NaN must meet NaN, and a zero must have the exact value's sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import mpmath
import numpy as np

BLOCK = 1 << 18  # values in float64 that stay in the cache between two passes
EXPONENT = np.int64(0x7FF << 52)


class Worst(NamedTuple):
    """The largest distance seen, and the arguments it was seen at."""

    ulp: float
    at: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.ulp:.3f} ulp at {', '.join(float(x).hex() for x in self.at)}"


NOWHERE = Worst(0.0, ())


def distances_f32(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Of float32 results from exact values in float64; infinite where they differ in kind."""
    size = np.abs(want)
    unit = (size.view(np.int64) & EXPONENT).view(np.float64)  # the power of two at or below |want|
    np.clip(unit, 2.0**-126, 2.0**127, out=unit)
    ends = 2.0**128
    have = np.clip(got.astype(np.float64), -ends, ends)
    distance = np.clip(want, -ends, ends)
    distance -= have
    np.abs(distance, out=distance)
    distance /= unit
    distance *= 2.0**23
    is_nan = np.isnan(want)
    wrong = np.isnan(got) != is_nan
    wrong |= (got == 0) & (np.signbit(got) != np.signbit(want)) & ~is_nan
    distance[is_nan] = 0
    distance[wrong] = np.inf
    return distance


def sweep_f32(
    run: Callable[..., np.ndarray], exact: Callable[..., np.ndarray], *args: np.ndarray
) -> Worst:
    """The worst of float32 arguments: `run` computes, `exact` takes and gives float64."""
    worst = NOWHERE
    got = run(*args)
    with np.errstate(all="ignore"):
        for start in range(0, len(got), BLOCK):
            block = slice(start, start + BLOCK)
            piece = [a[block] for a in args]
            distance = distances_f32(got[block], exact(*(p.astype(np.float64) for p in piece)))
            n = int(distance.argmax())
            worst = max(worst, Worst(float(distance[n]), tuple(float(p[n]) for p in piece)))
    return worst


def all_f32(chunk: int, step: int = 1) -> Iterator[np.ndarray]:
    """Every `step`th float32 there is, by its bits, `chunk` at a time."""
    for start in range(0, 1 << 32, chunk * step):
        stop = min(start + chunk * step, 1 << 32)
        yield np.arange(start, stop, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def distance_f64(got: float, want: mpmath.mpf) -> float:
    """Of one float64 result from an exact value that is neither NaN nor zero."""
    if math.isnan(got) or (got == 0 and math.copysign(1, got) != mpmath.sign(want)):
        return math.inf
    ends = mpmath.mpf(2) ** 1024
    size = min(abs(want), ends * (1 - mpmath.mpf(2) ** -54))
    unit = mpmath.mpf(2) ** max(mpmath.frexp(size)[1] - 53, -1074)
    have = mpmath.sign(got) * ends if math.isinf(got) else mpmath.mpf(got)
    return float(abs(have - max(-ends, min(want, ends))) / unit)


def sweep_f64(got: np.ndarray, exact: Sequence[mpmath.mpf], *args: np.ndarray) -> Worst:
    """The worst of float64 results beside exact values."""
    worst = NOWHERE
    for n, (have, want) in enumerate(zip(got, exact)):
        distance = distance_f64(float(have), want)
        worst = max(worst, Worst(distance, tuple(float(a[n]) for a in args)))
    return worst
