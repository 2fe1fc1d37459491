"""Compare two sets of outputs. In: arrays by name. Out: the largest distance, and its output.

The distance of two arrays is max|a − b| / max|b|. Called by run.py (`--expect`) and by
peers/rounds.py (`ingot bench`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

TOLERANCE = 1e-4  # largest max|a-b|/max|b| at which outputs match; heuristic


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """max|a − b| / max|b|; infinite if shapes or strings differ, or if only one has a NaN or
    infinity."""
    if a.shape != b.shape:
        return float("inf")
    if not a.size:
        return 0.0
    if a.dtype.kind in "OUT" or b.dtype.kind in "OUT":  # strings are equal or not
        return 0.0 if np.array_equal(a.astype(object), b.astype(object)) else float("inf")
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
    outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> tuple[float, str]:
    """The largest distance and the name of its output; infinite for a missing output."""
    worst = (0.0, "")
    for name, array in expected.items():
        found = distance(outputs[name], array) if name in outputs else float("inf")
        worst = max(worst, (found, name))
    return worst


def mismatch(outputs: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> str:
    """A missing output or a wrong shape, for which there is no distance; empty if there is none."""
    for name, array in expected.items():
        if name not in outputs:
            return f"the model has no output {name!r}; its outputs are {', '.join(outputs)}"
        if outputs[name].shape != array.shape:
            return f"{name!r} has shape {list(outputs[name].shape)}, expected {list(array.shape)}"
    return ""
