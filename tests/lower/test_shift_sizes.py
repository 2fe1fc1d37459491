"""Extents of loops as a kernel's own sizes: a size minus a number, where no relation is lost."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.arith.expr import Var
from ingot.dtypes import f32
from ingot.loops import interp, ir
from ingot.loops.build import Build
from ingot.loops.verify import verify
from ingot.lower.merge_axes import simplify_axes
from ingot.lower.shift_sizes import shift_sizes

H, W = Var("H"), Var("W")


def windows(low: int = 3, divisor: int = 1) -> ir.Kernel:
    """Sums of two neighbours in each direction, two apart: extents H - 2 and W - 2."""
    b = Build("windows")
    x = b.param("x", f32, (H, W))
    y = b.compute("y", (H - 2, W - 2), lambda i, j: x[i, j] + x[i + 2, j + 2])
    return b.finish([y], [ir.Size("H", low, 9, divisor, 5), ir.Size("W", low)])


def test_extents_become_sizes():
    kernel, values = shift_sizes(windows())
    verify(kernel)
    assert values == (("m0", H + -2), ("m1", W + -2))
    assert kernel.params[0].shape == (Var("m0") + 2, Var("m1") + 2)
    assert kernel.params[1].shape == (Var("m0"), Var("m1"))
    assert kernel.sizes == (ir.Size("m0", 1, 7, 1, 3), ir.Size("m1", 1))


def test_results_stay():
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    got = np.zeros((3, 2), np.float32)
    interp.run(shift_sizes(windows())[0], [x, got])
    np.testing.assert_array_equal(got, x[:3, :2] + x[2:, 2:])


@pytest.mark.parametrize("case", [{"low": 1}, {"divisor": 2}])
def test_sizes_that_would_be_negative_or_lose_a_divisor_stay(case):
    kernel, values = shift_sizes(windows(**case))
    assert ("H", H) in values and kernel.params[0].shape[0] == H


def test_launches_pass_the_extents():
    _, values = simplify_axes(windows())
    assert [value for _, value in values] == [H + -2, W + -2]


def test_the_offset_of_a_quotient_is_absorbed():
    b = Build("halves")
    x = b.param("x", f32, (H - 2,))
    kernel = b.finish([b.compute("y", ((H + 1) // 2 - 1,), lambda i: x[i])], [ir.Size("H", 9)])
    made, values = shift_sizes(kernel)
    verify(made)
    assert values == (("m0", H + -2),)
    assert [p.shape for p in made.params] == [(Var("m0"),), ((Var("m0") + 1) // 2,)]
