"""abstract_sizes: composite sizes become parameters, where no relation between sizes is needed."""

import numpy as np

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import interp, ir
from ingot.loops.build import Build
from ingot.loops.verify import verify
from ingot.lower.abstract_sizes import abstract_sizes

f32 = dtypes.f32
n, m = arith.Var("n"), arith.Var("m")
LENGTH = (n + 89) // 270 - 3
SIZES = [ir.Size("n", 721), ir.Size("m", 1, likely=1)]


def scaled(length: arith.Expr) -> ir.Kernel:
    b = Build("scale")
    x = b.param("x", f32, (length, 4))
    return b.finish([b.compute("out", (length, 4), lambda i, j: x[i, j] * 2.0)], SIZES)


def test_a_composite_size_becomes_a_parameter():
    made, sizes = abstract_sizes(scaled(m * LENGTH))
    verify(made)
    assert [str(d) for d in made.params[0].shape] == ["n0", "4"]
    assert sizes == (("n0", m * LENGTH),)
    assert made.sizes == (ir.Size("n0", 0),)
    x = np.ones((5, 4), np.float32)
    out = np.zeros((5, 4), np.float32)
    interp.run(made, [x, out], {"n0": 5})
    assert (out == 2).all()


def test_kernels_that_differ_in_how_a_size_is_computed_become_equal():
    assert abstract_sizes(scaled(LENGTH))[0] == abstract_sizes(scaled(LENGTH + m // 2))[0]


def test_bounds_divisor_and_likely_value_are_kept():
    (size,) = abstract_sizes(scaled(m * 48))[0].sizes
    assert (size.low, size.divisor, size.likely) == (48, 48, 48)


def test_plain_sizes_stay():
    kernel = scaled(n)
    assert abstract_sizes(kernel) == (kernel, (("n", n), ("m", m)))


def test_a_window_keeps_its_relation():
    """In y[i] = x[i] + x[i + 1] the length of x is one more than that of y."""
    b = Build("window")
    x = b.param("x", f32, (LENGTH + 1,))
    kernel = b.finish([b.compute("y", (LENGTH,), lambda i: x[i] + x[i + 1])], SIZES)
    assert abstract_sizes(kernel)[0] is kernel


def test_a_size_in_a_value_stays():
    b = Build("iota")
    last = ir.Index(LENGTH - 1)
    made = b.compute("y", (LENGTH,), lambda i: ir.Cast(last - ir.Index(i), f32))
    kernel = b.finish([made], SIZES)
    assert abstract_sizes(kernel)[0] is kernel
