"""The first call at new sizes evaluates expressions that were compiled when the plan was loaded."""

from __future__ import annotations

import numpy as np

import ingot
from ingot.arith import tape
from tests.small import answers, small_model


def misses() -> int:
    return tape.tape.cache_info().misses + tape.definitions.cache_info().misses


def test_the_first_call_compiles_no_size_expression():
    tape.tape.cache_clear()
    tape.definitions.cache_clear()
    exe = ingot.compile(small_model())
    prepared = misses()
    assert prepared > 0
    for rows in (1, 5, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        for got, want in zip(exe(x), answers(x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert misses() == prepared
