"""How far an array is from the exact one, and whether rounding explains it.

In: an array, the exact one (float64), the same computed by the interpreter in the declared types,
and optionally how the exact one moves with inputs that are rounded otherwise. Out: a `Difference`.

Floats: the relative norm ‖got − exact‖ / ‖exact‖ may be FACTOR times what the interpreter's own
rounding makes, or what a rounding error of the inputs makes, and in any case FLOOR units of
rounding. Whole numbers and truth values are equal, or differ where these do; numbers that were
rounded from floats may be off by one in a few places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

FACTOR = 32  # of the interpreter's own error; Winograd's is about 4 times a direct sum's: heuristic
FLOOR = 16  # units of rounding (eps): a long sum in another order than numpy's; heuristic
OFF_BY_ONE = 0.02  # largest fraction of numbers that were rounded from floats; heuristic


@dataclass(frozen=True)
class Difference:
    """One value. `norm` is relative; of whole numbers the fraction that differs. `worst` is the
    index of the element with the largest distance; `ulps` its distance in units in the last place
    of the value's type at the exact number."""

    name: str
    dtype: str
    norm: float
    allowed: float
    ulps: float = 0.0
    worst: tuple[int, ...] = ()
    got: float = 0.0
    exact: float = 0.0

    @property
    def is_wrong(self) -> bool:
        return self.norm > self.allowed

    def __str__(self) -> str:
        at = f" at {list(self.worst)}" if self.worst else ""
        where = f"{self.got:.9g} for {self.exact:.9g}{at}, {self.ulps:.3g} ulps"
        return f"relative norm {self.norm:.2g} (rounding explains {self.allowed:.2g}); {where}"


@dataclass(frozen=True)
class Expected:
    """Inputs, and what outputs to expect, by position: exact ones and those of the interpreter.
    `moved` makes the exact ones of inputs with other rounding errors; it is called if needed."""

    feeds: Mapping[str, np.ndarray]
    names: tuple[str, ...]
    exact: list[np.ndarray]
    own: list[np.ndarray]
    moved: Callable[[], list[np.ndarray]]
    reads_floats: bool = True

    def differences(self, outputs: list[np.ndarray]) -> tuple[Difference, ...]:
        """The difference of each output from the exact one."""
        return tuple(self._difference(i, got) for i, got in enumerate(outputs))

    def _difference(self, i: int, got: np.ndarray) -> Difference:
        given = (self.names[i], got, self.exact[i], self.own[i])
        found = compare(*given, None, self.reads_floats)
        if not found.is_wrong:
            return found
        return compare(*given, self.moved()[i], self.reads_floats)


def compare(
    name: str,
    got: np.ndarray,
    exact: np.ndarray,
    own: np.ndarray,
    moved: np.ndarray | None = None,
    reads_floats: bool = True,
) -> Difference:
    """`own`: computed by the interpreter in the declared types; `moved`: exact, of inputs moved by
    a rounding error; `reads_floats`: whether floats decide the value."""
    dtype = str(own.dtype)
    if got.shape != exact.shape:
        return Difference(name, dtype, float("inf"), 0.0)
    others = [own] if moved is None else [own, moved]
    if own.dtype.kind in "OUT":  # strings
        wrong = got.astype(object) != exact.astype(object)
        return Difference(name, dtype, float(np.mean(wrong)) if wrong.size else 0.0, 0.0)
    if not is_float(own.dtype):
        return _of_whole_numbers(name, got, exact, others, reads_floats)
    eps = float(ml_dtypes.finfo(own.dtype).eps)
    top = float(ml_dtypes.finfo(own.dtype).max)
    a, b = _pair(got, exact, others, top)
    allowed = FACTOR * max(_norm(*_pair(x, exact, [], top)) for x in others) + FLOOR * eps
    worst, ulps = _worst(a, b, eps, float(ml_dtypes.finfo(own.dtype).tiny))
    at = np.unravel_index(worst, exact.shape) if exact.size else ()
    pair = (float(got[at]), float(exact[at])) if exact.size else (0.0, 0.0)
    # an infinite error of the reference itself explains nothing
    limit = allowed if np.isfinite(allowed) else FLOOR * eps
    return Difference(name, dtype, _norm(a, b), limit, ulps, tuple(map(int, at)), *pair)


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind in "fV" and dtype.names is None and _has_finfo(dtype)


def _has_finfo(dtype: Any) -> bool:
    try:
        ml_dtypes.finfo(dtype)
    except ValueError:
        return False
    return True


def _pair(
    got: np.ndarray, exact: np.ndarray, others: list[np.ndarray], top: float
) -> tuple[np.ndarray, np.ndarray]:
    """Both flat in float64, with zeros where they agree without being near: both NaN, equal
    infinities, the exact number beyond the type's range, or an own run that is not finite too."""
    a, b = (x.astype(np.float64).reshape(-1) for x in (got, exact))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    same |= np.isinf(a) & (np.sign(a) == np.sign(b)) & (np.abs(b) > top)
    for x in others:
        other = x.astype(np.float64).reshape(-1)
        same |= ~np.isfinite(a) & ~np.isfinite(other) & ((a == other) | np.isnan(a))
    agreed = np.where(np.isfinite(b), b, 0.0)
    return np.where(same, agreed, a), np.where(same, agreed, b)


def _norm(a: np.ndarray, b: np.ndarray) -> float:
    if np.array_equal(a, b):
        return 0.0
    with np.errstate(all="ignore"):
        error = float(np.linalg.norm(a - b))
        size = float(np.linalg.norm(b[np.isfinite(b)]))
    if not np.isfinite(error):
        return float("inf")
    return error / size if size else float("inf")


def _worst(a: np.ndarray, b: np.ndarray, eps: float, tiny: float) -> tuple[int, float]:
    """The element that is furthest off, and its distance in units in the last place."""
    if not a.size:
        return 0, 0.0
    with np.errstate(all="ignore"):
        distance = np.nan_to_num(np.abs(a - b), nan=np.inf)
    at = int(distance.argmax())
    size = max(abs(float(b[at])) if np.isfinite(b[at]) else 0.0, tiny)
    return at, float(distance[at] / (eps * 2.0 ** np.floor(np.log2(size))))


def _of_whole_numbers(
    name: str, got: np.ndarray, exact: np.ndarray, others: list[np.ndarray], reads_floats: bool
) -> Difference:
    a, b = got.astype(np.float64), exact.astype(np.float64)
    wrong, count = a != b, max(1, a.size)
    flips = max(np.count_nonzero(x.astype(np.float64) != b) for x in others)
    allowed = FACTOR * flips / count if reads_floats else 0.0
    if reads_floats and got.dtype != np.bool_ and np.abs(a - b).max(initial=0.0) <= 1:
        allowed = max(allowed, OFF_BY_ONE)
    norm = float(np.count_nonzero(wrong)) / count
    at = np.unravel_index(int(np.abs(a - b).argmax()), a.shape) if a.size else ()
    pair = (float(a[at]), float(b[at])) if a.size else (0.0, 0.0)
    ulps = abs(pair[0] - pair[1])
    return Difference(name, str(got.dtype), norm, allowed, ulps, tuple(map(int, at)), *pair)
