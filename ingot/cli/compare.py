"""Do two sets of answers agree? In: arrays by name. Out: the distance, worst output first.

The distance of two outputs is max|a − b| / max|b|, as everywhere in the project. Called by run.py
(`--expect`) and by the contest of `ingot bench`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

TOLERANCE = 1e-4


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """max|a − b| / max|b|; infinite where shapes differ or one alone is not a number."""
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    left, right = a.astype(np.float64), b.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    if same.all():
        return 0.0
    if not (np.isfinite(left[~same]).all() and np.isfinite(right[~same]).all()):
        return float("inf")
    largest = np.abs(right[np.isfinite(right)]).max(initial=0.0)
    worst = np.abs(left[~same] - right[~same]).max()
    return float(worst / largest) if largest else float("inf")


def worst_distance(
    answers: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> tuple[float, str]:
    """The largest distance and the output it is of; an output that is missing is infinitely far."""
    worst = (0.0, "")
    for name, array in expected.items():
        found = distance(answers[name], array) if name in answers else float("inf")
        worst = max(worst, (found, name))
    return worst


def misfit(answers: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> str:
    """Why no distance says how far they are: an output that is not there, or of another shape."""
    for name, array in expected.items():
        if name not in answers:
            return f"the model has no output {name!r}; its outputs are {', '.join(answers)}"
        if answers[name].shape != array.shape:
            return f"{name!r} is {list(answers[name].shape)}, expected {list(array.shape)}"
    return ""
