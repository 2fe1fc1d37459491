"""A fixed million of float32 through every function's machine code, special values included.

test_every_f32.py does all there are, on request.
"""

import numpy as np
import pytest

from ingot import dtypes, target
from ingot.backends.cpu import BACKEND
from ingot.loops import ir
from tests.math import bounds, measure, reference, samples
from tests.math.native import Native, host

UNARY = sorted(fn for fn, arity in ir.MATH.items() if arity == 1)
PLAIN = target.parse("x86-64-v2+no-sse4.1")  # no fma, no rounding instructions, four lanes
CHUNK = 1 << 16


def targets() -> list[target.Target]:
    return [host()] if BACKEND.why_not_here(PLAIN) else [host(), PLAIN]


def cases():
    """Every function on this machine; those that stay in f32 without fma too."""
    first, *others = targets()
    return [(fn, first) for fn in UNARY] + [(fn, on) for on in others for fn in bounds.F32]


@pytest.mark.parametrize(("fn", "on"), cases(), ids=lambda x: getattr(x, "name", x))
def test_a_million_arguments(fn, on):
    run = Native(fn, dtypes.f32, CHUNK, on)
    worst = measure.sweep_f32(run, reference.WIDE[fn], samples.million(fn))
    assert worst.ulp <= bounds.f32(fn, on), f"{fn}: {worst}"


def test_a_million_powers():
    run = Native("pow", dtypes.f32, CHUNK)
    worst = measure.sweep_f32(run, reference.WIDE["pow"], *samples.pairs(1_000_000))
    assert worst.ulp <= bounds.f32("pow", run.target), str(worst)


def test_remainders_are_exact():
    x, y = samples.pairs(300_000)
    got = Native("fmod", dtypes.f32, CHUNK)(x, y)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y)
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


@pytest.mark.parametrize("fn", ["exp", "exp2", "log", "sigmoid", "tanh", "erf", "rsqrt"])
def test_the_code_is_vectors_without_branches(fn):
    run = Native(fn, dtypes.f32, CHUNK, target.parse("x86-64-v3"))
    words = [line.split() for line in run.assembly().splitlines() if line.startswith("\t")]
    ops = [word[0] for word in words]
    loops = [op for op in ops if op.startswith("j")]
    assert len(loops) == 2, "only the loop itself may jump"  # into it, and back
    assert not [op for op in ops if op.startswith(("call", "vextract", "vinsert"))]
    assert not [op for op in ops if op.endswith(("ss", "sd")) and "broadcast" not in op]
    assert any("%ymm" in " ".join(word) for word in words)
