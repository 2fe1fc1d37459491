"""Timing for the examples: two functions, interleaved, so that noise affects both alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: one thread each


def compare_with_numpy(name: str, ours: Callable, numpy: Callable, work: float, unit: str) -> None:
    """Print the best rate of each; `work`: FLOPs or bytes of one call, `unit`: 10⁹ per second."""
    best = [float("inf")] * 2
    for _ in range(9):
        for which, run in enumerate((ours, numpy)):
            start = time.perf_counter()
            run()
            best[which] = min(best[which], time.perf_counter() - start)
    rates = [work / 1e9 / seconds for seconds in best]
    print(
        f"{name}: Ingot {rates[0]:.1f} {unit}, numpy {rates[1]:.1f} {unit}, "
        f"speedup {rates[0] / rates[1]:.2f} (one thread each)"
    )
