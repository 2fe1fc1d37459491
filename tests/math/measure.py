"""Distances between computed and exact values, in units of the last place, over millions of points.

The unit at an exact value v is the spacing of the result's type at |v|, subnormals included.
Infinity counts as the number after the largest finite one, so overflow is measured like the rest.
NaN must meet NaN, and a zero must have the exact value's sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

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
    return _kinds(distance, got, want)


def distances_f64(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Of float64 results from exact values in longdouble."""
    top = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        near = np.abs(want).astype(np.float64)
    unit = np.spacing(np.minimum(near, top)).astype(np.longdouble)
    ends = np.longdouble(top) + np.spacing(top)
    distance = np.abs(np.clip(want, -ends, ends) - np.clip(got.astype(np.longdouble), -ends, ends))
    return _kinds((distance / unit).astype(np.float64), got, want)


def _kinds(distance: np.ndarray, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    is_nan = np.isnan(want)
    wrong = np.isnan(got) != is_nan
    wrong |= (got == 0) & (np.signbit(got) != np.signbit(want))
    distance[is_nan] = 0
    distance[wrong] = np.inf
    return distance


def worst_of(distance: np.ndarray, *args: np.ndarray) -> Worst:
    n = int(distance.argmax())
    return Worst(float(distance[n]), tuple(float(a[n]) for a in args))


def blocks(length: int) -> Iterator[slice]:
    return (slice(i, min(i + BLOCK, length)) for i in range(0, length, BLOCK))


def sweep_f32(
    run: Callable[..., np.ndarray], exact: Callable[..., np.ndarray], *args: np.ndarray
) -> Worst:
    """The worst of float32 arguments: `run` computes, `exact` takes and gives float64."""
    worst = NOWHERE
    got = run(*args)
    with np.errstate(all="ignore"):
        for b in blocks(len(got)):
            piece = [a[b] for a in args]
            want = exact(*(p.astype(np.float64) for p in piece))
            worst = max(worst, worst_of(distances_f32(got[b], want), *piece))
    return worst


def sweep_f64(
    run: Callable[..., np.ndarray], exact: Callable[..., np.ndarray], *args: np.ndarray
) -> Worst:
    """The worst of float64 arguments; `exact` gives longdouble."""
    with np.errstate(all="ignore"):
        return worst_of(distances_f64(run(*args), exact(*args)), *args)


def all_f32(chunk: int, step: int = 1) -> Iterator[np.ndarray]:
    """Every `step`th float32 there is, by its bits, `chunk` at a time."""
    for start in range(0, 1 << 32, chunk * step):
        stop = min(start + chunk * step, 1 << 32)
        yield np.arange(start, stop, step, dtype=np.uint64).astype(np.uint32).view(np.float32)
