"""Math functions, nanoseconds per element on one thread: Ingot versus numpy and torch.

    python -m benchmarks.math_functions [rounds]

Arrays of 16384 float32 stay in L2, and call overhead is negligible. Rounds of the implementations
are interleaved, so that noise affects all of them alike. The best of all rounds is printed, and the
ratio to Ingot's.
(The file is not called math.py: scripts in this folder would import it instead of Python's math.)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from ingot import dtypes
from ingot.loops import ir
from tests.math.native import Native

COUNT = 1 << 14
CALLS = 4  # per round
RANGE = {"exp": (-20, 20), "exp2": (-20, 20), "log": (0.01, 50), "log2": (0.01, 50),
         "rsqrt": (0.01, 50), "pow": (0.1, 4), "sin": (-100, 100), "cos": (-100, 100)}  # fmt: skip
NUMPY: dict[str, Callable] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "expm1": np.expm1, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "atan": np.arctan, "pow": np.power,
}  # fmt: skip
FUNCTIONS = ("exp", "exp2", "log", "log2", "log1p", "expm1", "sigmoid", "tanh", "erf", "rsqrt",
             "sin", "cos", "tan", "atan", "pow")  # fmt: skip


def implementations(fn: str) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    low, high = RANGE.get(fn, (-4, 4))
    low = max(low, -0.9) if fn == "log1p" else low
    args = [rng.uniform(low, high, COUNT).astype(np.float32) for _ in range(ir.MATH[fn])]
    out = np.empty(COUNT, np.float32)
    run = Native(fn, dtypes.f32, COUNT)
    tensors, into = [torch.from_numpy(a) for a in args], torch.empty(COUNT)
    found: dict[str, Callable[[], object]] = {"ingot": run.bound(out, *args)}
    if fn in NUMPY:
        found["numpy"] = lambda: NUMPY[fn](*args, out=out)
    found["torch"] = lambda: getattr(torch, fn)(*tensors, out=into)
    return found


def round_ns(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / CALLS / COUNT


def main(rounds: int = 50) -> None:
    torch.set_num_threads(1)
    print(f"{'ns per element':14}{'ingot':>8}{'numpy':>8}{'torch':>8}   numpy, torch ÷ ingot")
    for fn in FUNCTIONS:
        calls = implementations(fn)
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(rounds):
            for name, call in calls.items():
                best[name] = min(best[name], round_ns(call))
        numbers = [best.get(name) for name in ("ingot", "numpy", "torch")]
        cells = "".join("       –" if n is None else f"{n:8.2f}" for n in numbers)
        ratios = ("   –  " if n is None else f"{n / best['ingot']:5.1f}×" for n in numbers[1:])
        print(f"{fn:14}{cells}   {'  '.join(ratios)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
