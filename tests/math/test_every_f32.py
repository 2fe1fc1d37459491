"""All 2³² float32 through every function, and 2²⁶ pairs through pow:  make math-long

A few minutes a function on one core. The worst of each is printed; docs/math.md has the table.
"""

import pytest

from ingot import dtypes
from tests.math import bounds, measure, reference, samples
from tests.math.native import Native
from tests.math.test_f32 import UNARY, targets

CHUNK = 1 << 20
PAIRS = 1 << 22  # of a turn

pytestmark = pytest.mark.long


def sweep(run, fn, step=1):
    chunks = measure.all_f32(CHUNK, step)
    worst = max(measure.sweep_f32(run, reference.WIDE[fn], x) for x in chunks)
    print(f"\n{fn:8} {worst}")
    assert worst.ulp <= bounds.f32(fn, run.target)


@pytest.mark.parametrize("fn", UNARY)
def test_every_argument(fn):
    sweep(Native(fn, dtypes.f32, CHUNK), fn)


@pytest.mark.parametrize("on", targets()[1:], ids=lambda t: t.name)
@pytest.mark.parametrize("fn", sorted(bounds.F32))
def test_every_seventh_argument_without_fma(fn, on):
    sweep(Native(fn, dtypes.f32, CHUNK, on), fn, 7)


def test_a_dense_sample_of_powers():
    run = Native("pow", dtypes.f32, CHUNK)
    turns = (samples.pairs(PAIRS, seed=n) for n in range((1 << 26) // PAIRS))
    worst = max(measure.sweep_f32(run, reference.WIDE["pow"], *pair) for pair in turns)
    print(f"\npow      {worst}")
    assert worst.ulp <= bounds.f32("pow", run.target)
