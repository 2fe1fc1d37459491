"""What the examples share: two functions timed in turn, so that a busy machine is fair to both."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: one thread against one thread


def beside(name: str, ours: Callable, numpy: Callable, work: float, unit: str) -> None:
    """Print the best rates of both: `work` is what one call does, in units of 10⁹."""
    best = [float("inf")] * 2
    for _ in range(9):
        for which, run in enumerate((ours, numpy)):
            start = time.perf_counter()
            run()
            best[which] = min(best[which], time.perf_counter() - start)
    rates = [work / 1e9 / seconds for seconds in best]
    print(
        f"{name}: Ingot {rates[0]:.1f} {unit}, numpy {rates[1]:.1f} {unit}, "
        f"{rates[0] / rates[1]:.2f} times numpy's speed (one thread each)"
    )
