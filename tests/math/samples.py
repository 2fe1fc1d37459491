"""Which arguments the suites try: fixed samples, special values first.

In: a function's name. Out: arrays. No sample depends on a clock or a hash.
"""

from __future__ import annotations

import numpy as np

INF, NAN = np.inf, np.nan

# Zeros, ends and neighbours of every type and of every branch in the recipes.
SPECIAL = (
    0.0, INF, NAN, 1.0, 0.5, 2.0, 3.0, 2.0**-149, 2.0**-148, 2.0**-126, 2.0**-126 - 2.0**-149,
    2.0**-125, 2.0**-24, 2.0**-23, 1 - 2.0**-24, 1 + 2.0**-23, 2.0**23, 2.0**24, 2.0**31,
    2.0**32, 2.0**63, 2.0**64, 2.0**127, 3.4028234663852886e38, 0.41421356, 0.625, 0.70710677,
    0.925, 1.4142135, 2.4142137, 3.95, 8192.0, 131072.0, 9.0, 10.0, 17.5, 18.0, 22.0, 87.33654,
    88.72283, 88.72284, 89.0, 103.97208, 103.97209, 104.0, 126.0, 127.0, 127.99999, 128.0, 129.0,
    149.0, 149.5, 150.0, 151.0, 16367173 * 2.0**72, 1.5707964, 3.1415927, 6.2831855, 4.712389,
    0.7853982,
)  # fmt: skip
SPECIAL_F64 = (
    2.0**-1074, 2.0**-1022, 2.0**-1022 - 2.0**-1074, 2.0**-53, 1 - 2.0**-53, 1 + 2.0**-52,
    2.0**52, 2.0**53, 2.0**1023, 1.7976931348623157e308, 709.782712893384, 709.7827128933841,
    710.4758600739439, 745.1332191019412, 746.0, 1023.9999999999999, 1024.0, 1074.0, 1074.5,
    1075.0, 6381956970095103 * 2.0**797, 2.0**30, 1e22, 5.0, 6.0, 40.0, 2.0**28,
)  # fmt: skip
# Where the values of interest lie, if not from -50 to 50.
RANGE = {
    "exp": (-104, 89), "exp2": (-150, 129), "log": (0, 50), "log2": (0, 50), "log1p": (-1, 9),
    "rsqrt": (0, 50), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "acosh": (1, 50),
    "erf": (-5, 5), "tanh": (-11, 11), "sin": (-1e5, 1e5), "cos": (-1e5, 1e5), "tan": (-1e5, 1e5),
    "sigmoid": (-104, 40), "sinh": (-90, 90), "cosh": (-90, 90), "expm1": (-20, 89),
}  # fmt: skip
RANGE_F64 = {
    "exp": (-746, 710), "exp2": (-1076, 1025), "sinh": (-711, 711), "cosh": (-711, 711),
    "sigmoid": (-746, 40), "expm1": (-40, 710), "erf": (-7, 7), "tanh": (-21, 21),
}  # fmt: skip


def specials(dtype: type) -> np.ndarray:
    """Both signs, and the neighbours of each."""
    values = np.array(SPECIAL if dtype is np.float32 else (*SPECIAL, *SPECIAL_F64), dtype)
    with np.errstate(over="ignore"):
        near = [values, np.nextafter(values, dtype(INF)), np.nextafter(values, dtype(0))]
    both = np.concatenate([*near, *(-v for v in near)])
    return both[~np.isnan(both)] if dtype is np.float64 else both


def million(fn: str) -> np.ndarray:
    """A million float32: half spread evenly over all bit patterns, half over the range."""
    low, high = RANGE.get(fn, (-50, 50))
    first = specials(np.float32)
    half = (1_000_000 - len(first)) // 2
    spread = np.linspace(0, (1 << 32) - 1, half).astype(np.uint32).view(np.float32)
    even = np.linspace(low, high, 1_000_000 - len(first) - half, dtype=np.float32)
    return np.concatenate([first, spread, even])


def sample_f64(fn: str, count: int) -> np.ndarray:
    """Finite float64 of all sizes, over the range, and near zero."""
    rng = np.random.default_rng(11)
    low, high = RANGE_F64.get(fn, RANGE.get(fn, (-50, 50)))
    any_size = np.ldexp(rng.uniform(1, 2, count), rng.integers(-1074, 1024, count))
    near = np.exp(rng.uniform(-40, 5, count))
    signs = rng.choice([-1.0, 1.0], (2, count))
    first = specials(np.float64)
    x = np.concatenate([first, rng.uniform(low, high, count), any_size * signs[0], near * signs[1]])
    return x[np.isfinite(x)]


GRID = (
    0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 7.0, 1e-3, 1e-40, 2.0**-149, 2.0**-126, 1e38, 2.0**127,
    3.4028234663852886e38, 2.0**24 + 2, 2.0**24, 2.0**23 + 1, 2.0**31, 1 - 2.0**-24, 1 + 2.0**-23,
    0.33333334, 148.5, 149.0, 150.0, 127.5, 128.0, INF,
)  # fmt: skip


def pairs(count: int, dtype: type = np.float32, seed: int = 3) -> list[np.ndarray]:
    """Arguments of pow and fmod: a grid of edges, then mixtures that keep the power in range."""
    rng = np.random.default_rng(seed)
    edges = np.array([NAN, *GRID, *(-v for v in GRID)])
    a, b = (m.ravel() for m in np.meshgrid(edges, edges))
    part = max(1, (count - len(a)) // 5)
    ranged = np.exp(rng.uniform(-80, 80, part))
    x = [a, ranged, rng.uniform(-5, 5, part), 1 + rng.standard_normal(part) * 1e-3,
         _any_bits(rng, part), ranged]  # fmt: skip
    y = [b, rng.uniform(-1.2, 1.2, part), rng.integers(-30, 30, part),
         rng.standard_normal(part) * 3e4, _any_bits(rng, part),
         rng.uniform(-104, 89, part) / np.log(ranged)]  # fmt: skip
    with np.errstate(over="ignore"):
        return [np.concatenate(each).astype(dtype) for each in (x, y)]


def _any_bits(rng: np.random.Generator, count: int) -> np.ndarray:
    bits = rng.integers(0, 1 << 32, count, np.uint32)
    with np.errstate(invalid="ignore"):  # some are signalling NaN
        return bits.view(np.float32).astype(np.float64)
