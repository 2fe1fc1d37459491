"""The words of the kernel language under any import: explicit, renamed, by the module's name."""

from __future__ import annotations

import numpy as np

import ingot
import ingot.script
import ingot.script as T
from ingot.script import alloc, block, buffer, exp, f32, grid, init, size
from ingot.script import block as unit
from ingot.script import f32 as real
from ingot.script import grid as nest
from ingot.script import size as extent
from tests.refusal import refused


@ingot.kernel
def scaled(n: size, X: f32[n, 4], Y: f32[n]):
    t = alloc(f32[n])
    for i, j in grid(n, 4):
        with block("t", spatial=(i,), reduce=(j,)) as (vi, vj):
            with init():
                t[vi] = 0.0
            t[vi] += exp(X[vi, vj])
    for i in grid(n):
        with block("Y", spatial=(i,)) as vi:
            Y[vi] = t[vi]


def test_by_the_modules_name():
    @ingot.kernel(name="scaled")
    def by_name(n: T.size, X: T.f32[n, 4], Y: "T.f32[n]"):
        t = T.alloc(T.f32[n])
        for i, j in T.grid(n, 4):
            with T.block("t", spatial=(i,), reduce=(j,)) as (vi, vj):
                with T.init():
                    t[vi] = 0.0
                t[vi] += T.exp(X[vi, vj])
        for i in ingot.script.grid(n):
            with ingot.script.block("Y", spatial=(i,)) as vi:
                Y[vi] = t[vi]

    assert str(by_name) == str(scaled) and by_name == scaled
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(by_name.interpret(x), np.exp(x).sum(1), rtol=1e-6)


def test_under_another_name():
    @ingot.kernel(name="k")
    def renamed(n: extent, X: real[n], Y: real[n]):
        for i in nest(n):
            with unit("Y", spatial=(i,)) as vi:
                Y[vi] = real(2) * X[vi]

    @ingot.kernel(name="k")
    def plain(n: size, X: f32[n], Y: f32[n]):
        for i in grid(n):
            with block("Y", spatial=(i,)) as vi:
                Y[vi] = f32(2) * X[vi]

    assert renamed == plain


def twice_exp(x):
    return T.exp(x) * 2.0


def test_words_in_helpers():
    @ingot.kernel(name="k")
    def k(X: f32[4], Y: f32[4]):
        for i in T.serial(4):
            Y[i] = twice_exp(X[i])

    x = np.linspace(-1, 1, 4, dtype=np.float32)
    np.testing.assert_allclose(k.interpret(x), np.exp(x) * 2, rtol=1e-6)


def test_a_name_that_the_kernel_binds_is_no_word():
    @ingot.kernel
    def k(nest: f32[4], T: f32[4]):
        for i in range(4):
            T[i] = nest[i] + 1.0

    assert k.interpret(np.zeros(4, np.float32)).tolist() == [1] * 4


def test_ranges_of_sizes_in_brackets():
    @ingot.kernel
    def k(n: size[1, 512, 8], m: T.size[2], X: f32[n, m], Y: buffer[f32[n, m], "global"]):
        for i, j in grid(n, m):
            Y[i, j] = X[i, j]

    n, m = k.ir.sizes
    assert (n.low, n.high, n.divisor) == (1, 512, 8)
    assert (m.low, m.high, m.divisor) == (2, None, 1)
    with refused("bad-input", "size n is 12", hint=False):
        k.interpret(np.zeros((12, 2), np.float32))


def test_words_are_documented():
    words = [getattr(T, name) for name in T.__all__]
    functions = [word for word in words if type(word) is type(T.grid)]
    assert len(functions) > 50 and all(word.__doc__ for word in functions)
