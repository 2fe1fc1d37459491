"""ceil, floor, round and trunc of f16 and bf16 are exact, vectorised for this machine: for all bit
patterns, in rows of 1 to 67 elements, so that whole vectors and every tail meet all of them.

clang 22 vectorises such loops wrongly for AVX-512 (runtime/c/compiler.py); here legalize does that
work, and LLVM gets vectors of f32.
"""

from __future__ import annotations

import numpy as np
import pytest

from ingot import dtypes
from ingot.loops import ir, visit
from ingot.loops.script_parse import parse
from ingot.schedule.rules import CPU_RULES, schedule_kernel
from tests.native import BACKEND, Batch

# every size for this machine, some around whole vectors for named targets that it can run
TARGETS = {"cpu": range(1, 68), "x86-64-v3": (7, 8, 33), "x86-64-v4": (15, 16, 33, 67)}
TARGETS = {t: sizes for t, sizes in TARGETS.items() if not BACKEND.why_not_here(BACKEND.target(t))}
PATTERNS = 1 << 16
REFERENCE = {"ceil": np.ceil, "floor": np.floor, "round": np.rint, "trunc": np.trunc}


def rows_of(size: int) -> int:
    return -(-PATTERNS // size)


def rounding(op: str, dtype: str, size: int) -> ir.Kernel:
    """Rows of `size` elements; one more in memory keeps them from becoming one long row."""
    rows = rows_of(size)
    return parse(f"""
@ingot.kernel
def {op}_{size}(x: {dtype}[{rows}, {size + 1}], y: {dtype}[{rows}, {size + 1}]):
    for i, j in grid({rows}, {size}):
        with block("y", spatial=(i, j)) as (row, column):
            y[row, column] = {op}(x[row, column])
""")


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", REFERENCE)
def test_every_bit_pattern_at_every_size(op: str, dtype: str, target: str):
    kind, cpu = getattr(dtypes, dtype), BACKEND.target(target)
    kernels = [rounding(op, dtype, size) for size in TARGETS[target]]
    scheduled = [schedule_kernel(k, cpu, "elementwise", CPU_RULES).finished() for k in kernels]
    batch = Batch(scheduled, level=3, target=cpu)
    for number, size in enumerate(TARGETS[target]):
        assert has_vectors(batch.split[number]) or size < cpu.lanes(dtypes.f32)
        patterns = np.resize(np.arange(PATTERNS, dtype=np.uint16), (rows_of(size), size))
        x = np.zeros((rows_of(size), size + 1), np.uint16)
        x[:, :size] = patterns
        got = np.zeros_like(x)
        batch.run(number, {"x": x.view(kind.numpy), "y": got.view(kind.numpy)}, {})
        assert_equal_bits(got[:, :size], expected(op, patterns.view(kind.numpy)), f"rows of {size}")


def has_vectors(split) -> bool:
    exprs = (e for k in split.kernels for e in visit.all_exprs(k.body))
    return any(e.lanes > 1 for e in exprs)


def expected(op: str, x: np.ndarray) -> np.ndarray:
    """Rounding in f32 is exact, and so is the way back."""
    with np.errstate(invalid="ignore"):
        return REFERENCE[op](x.astype(np.float32)).astype(x.dtype)


def assert_equal_bits(got: np.ndarray, want: np.ndarray, where: str) -> None:
    """Signs of zeros count, payloads of NaN do not."""
    both_nan = np.isnan(got.view(want.dtype).astype(np.float32)) & np.isnan(want.astype(np.float32))
    wrong = (got != want.view(np.uint16)) & ~both_nan
    assert not wrong.any(), f"{where}: {np.unique(want[wrong])[:8]}"
