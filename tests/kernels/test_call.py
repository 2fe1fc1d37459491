"""Calling kernels: arrays and tensors, sizes, outputs given or made, threads, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

import ingot
from ingot.script import *
from tests.kernels.samples import floats, mm_relu
from tests.refusal import check, refused


@ingot.kernel
def accumulate(n: size, X: f32[n], S: f32[n]):
    for i in serial(n):
        S[i] += X[i]


@ingot.kernel
def blur(n: size, X: f32[n + 2], Y: f32[n]):
    for i in serial(n):
        Y[i] = X[i] + X[i + 1] + X[i + 2]


@ingot.kernel
def split_signs(n: size(1, 64, divisor=4), X: f32[n], P: f32[n], Q: f32[n]):
    for i in parallel(n):
        P[i] = max(X[i], 0.0)
        Q[i] = min(X[i], 0.0)


@ingot.kernel
def interior(n: size, X: f32[n], Y: f32[n]):
    for i in serial(1, n - 1):
        Y[i] = X[i]


@ingot.kernel
def scale(n: size, X: bf16[n], by: f32[()], Y: bf16[n]):
    for i in serial(n):
        Y[i] = bf16(f32(X[i]) * by[()])


def refusal(kernel, *arrays, **options) -> ingot.IngotError:
    with pytest.raises(ingot.IngotError) as caught:
        kernel(*arrays, **options)
    return caught.value


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k", "m"), [(1, 1, 1), (4, 7, 3), (16, 8, 32), (0, 2, 2)])
def test_symbolic_sizes(n, k, m):
    a, b = floats(n, k), floats(k, m, seed=1)
    want = np.maximum(a @ b, 0)
    np.testing.assert_allclose(mm_relu(a, b), want, 1e-5, 1e-5)
    np.testing.assert_allclose(mm_relu.interpret(a, b), want, 1e-5, 1e-5)


def test_outputs_are_filled_in_place():
    a, b, c = floats(5, 6), floats(6, 7, seed=1), np.full((5, 7), np.nan, np.float32)
    assert mm_relu(a, b, c) is None
    np.testing.assert_allclose(c, np.maximum(a @ b, 0), 1e-5, 1e-5)


def test_an_output_may_be_part_of_an_array():
    a, b, c = floats(5, 6), floats(6, 7, seed=1), np.zeros((3, 5, 7), np.float32)
    mm_relu(a, b, c[1])
    np.testing.assert_allclose(c[1], np.maximum(a @ b, 0), 1e-5, 1e-5)
    assert not c[0].any() and not c[2].any()


def test_inputs_may_be_strided():
    a, b = floats(12, 5)[::2].T, floats(6, 8, seed=1)[:, 1:]
    np.testing.assert_allclose(mm_relu(a, b), np.maximum(a @ b, 0), 1e-5, 1e-5)


def test_several_outputs_are_a_tuple():
    x = floats(8)
    p, q = split_signs(x)
    np.testing.assert_array_equal(p, np.maximum(x, 0))
    np.testing.assert_array_equal(q, np.minimum(x, 0))


def test_what_is_read_and_written_must_be_given():
    x, s = floats(5), floats(5, seed=1)
    want = s + x
    assert accumulate(x, s) is None
    np.testing.assert_array_equal(s, want)
    hint = ("X: f32[n]", "S: f32[n]")
    check(refusal(accumulate, x), "bad-input", 1, 2, where="accumulate", hint=hint)


def test_what_is_made_is_zero_where_nothing_is_written():
    x = np.ones(6, np.float32)
    np.testing.assert_array_equal(interior(x), [0, 1, 1, 1, 1, 0])
    given = np.full(6, 9, np.float32)
    interior(x, given)
    np.testing.assert_array_equal(given, [9, 1, 1, 1, 1, 9])


def test_sizes_are_solved():
    x = floats(9)
    np.testing.assert_allclose(blur(x), x[:-2] + x[1:-1] + x[2:], rtol=1e-6)
    assert blur(floats(2)).shape == (0,)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_nothing(threads):
    p, _ = split_signs(floats(64), threads=threads)
    np.testing.assert_array_equal(p, np.maximum(floats(64), 0))


def test_a_call_keeps_its_thread_count_to_itself():
    x, p, q = floats(64), floats(64), floats(64)
    usual = split_signs.executable().threads
    split_signs(x, p, q, threads=usual + 1)
    assert split_signs.executable().threads == usual
    for wrong in (0, True, "2"):
        with refused("bad-option", f"threads={wrong!r}"):
            split_signs(x, p, q, threads=wrong)


def test_numbers_stand_for_scalars():
    x = floats(6).astype(ml_dtypes.bfloat16)
    got = scale(x, 0.5)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype("f4"), x.astype("f4") * 0.5)


def test_native_code_is_made_once():
    exe = mm_relu.executable()
    mm_relu(floats(2, 3), floats(3, 4))
    assert mm_relu.executable() is exe


def test_a_profile_has_every_nest_and_leaves_the_arrays_alone():
    a, b, c = floats(9, 5), floats(5, 7), np.full((9, 7), 3, np.float32)
    profile = mm_relu.profile(a, b, c, threads=1, runs=2)
    assert (c == 3).all()
    assert profile.runs == 2 and profile.threads == 1 and len(profile.rows) == 2
    product, relu = profile.rows
    assert (product.flops, relu.flops) == (2 * 9 * 5 * 7, 9 * 7)
    assert relu.bytes == 2 * c.nbytes
    for row in profile.rows:
        assert row.time_us > 0 and row.wait_us >= 0 and row.roofline_fraction > 0
        assert row.bound in ("fma", *(level.name for level in profile.peak.levels))
    assert len(mm_relu.profile(a, b, runs=1).rows) == 2


# --- torch ----------------------------------------------------------------------------------------


def test_torch_tensors_share_their_memory():
    a, b = torch.randn(5, 6), torch.randn(6, 7, requires_grad=True)
    c = torch.full((5, 7), torch.nan)
    mm_relu(a, b, c)
    torch.testing.assert_close(c, torch.relu(a @ b).detach())


def test_torch_in_torch_out():
    x = torch.randn(8)
    p, q = split_signs(x)
    assert isinstance(p, torch.Tensor) and isinstance(q, torch.Tensor)
    torch.testing.assert_close(p + q, x)


def test_torch_bf16():
    x, y = torch.randn(6).bfloat16(), torch.zeros(6).bfloat16()
    scale(x, 2.0, y)
    torch.testing.assert_close(y, x * 2)
    assert scale(x, 2.0).dtype == torch.bfloat16


def test_torch_devices_and_types_are_refused_by_name():
    error = refusal(split_signs, torch.randn(8, device="meta"))
    check(error, "bad-input", "meta", where=("split_signs", "X: f32[n]"))
    error = refusal(split_signs, torch.randn(8, dtype=torch.float64))
    place = ("split_signs", "X: f32[n]")
    check(error, "bad-input", "float64", where=place, hint="X.astype('float32')")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "facts", "hint"),
    [
        ((floats(4, 5),), (1, 3), ("A: f32[n, k]", "B: f32[k, m]", "C: f32[n, m]")),
        (
            (floats(4, 5).astype("f8"), floats(5, 6)),
            ("A: f32[n, k]", "float64"),
            "A.astype('float32')",
        ),
        ((floats(4), floats(5, 6)), ("A: f32[n, k]", "[4]", 1, 2), False),
        ((floats(4, 5), floats(6, 7)), ("B: f32[k, m]", "[6, 7]", "[5, 7]", "k = 5"), False),
        (
            (floats(4, 5), floats(5, 6), floats(4, 5)),
            ("C: f32[n, m]", "[4, 5]", "[4, 6]", "m = 6"),
            False,
        ),
        ((floats(4, 5), "text"), ("B: f32[k, m]", "str"), "__dlpack__"),
        ((floats(4, 5), [[1.0]]), ("B: f32[k, m]", "list"), "__dlpack__"),
    ],
)
def test_bad_arrays_are_named(arrays, facts, hint):
    error = refusal(mm_relu, *arrays)
    check(error, "bad-input", *facts, where="mm_relu", hint=hint)


def test_outputs_must_be_writable_and_contiguous():
    a, b = floats(4, 5), floats(5, 6)
    c = np.zeros((4, 6), np.float32)
    c.flags.writeable = False
    place = ("mm_relu", "C")
    check(refusal(mm_relu, a, b, c), "bad-input", "read-only", where=place, hint="np.empty(…)")
    strided = np.zeros((4, 12), np.float32)[:, ::2]
    error = refusal(mm_relu, a, b, strided)
    check(error, "bad-input", "C-contiguous", where=place, hint="np.empty(…)")


def test_an_output_has_memory_of_its_own():
    x = floats(8)
    error = refusal(accumulate, x, x)
    check(error, "bad-input", "S", "X", where="accumulate")


@pytest.mark.parametrize("count", [6, 0, 68])
def test_sizes_have_demands(count):
    error = refusal(split_signs, floats(count))
    check(error, "bad-input", "n", count, 1, 64, 4, where="split_signs", hint=False)


def test_sizes_that_are_no_dimension_are_refused():
    @ingot.kernel
    def doubled(n: size, X: f32[2 * n]):
        for i in serial(n):
            X[2 * i] = 0.0

    error = refusal(doubled, floats(8))
    check(error, "bad-input", "n", where="doubled", hint="n")


def test_run_time_errors_name_the_kernel():
    @ingot.kernel
    def checked(n: size, at: i64[n], Y: i64[n]):
        for i in serial(n):
            if at[i] < 0:
                fail("a negative index", at[i])
            Y[i] = at[i]

    np.testing.assert_array_equal(checked(np.arange(3)), np.arange(3))
    error = refusal(checked, np.array([1, -7]))
    check(error, "run-failed", "a negative index", where="checked", hint=False)


# --- source ---------------------------------------------------------------------------------------


def test_source_at_every_stage():
    assert mm_relu.source() == str(mm_relu)
    assert "with block" not in mm_relu.source("legal") and "def mm_relu_0" in mm_relu.source(
        "legal"
    )
    assert "define" in mm_relu.source("llvm") and "; mm_relu_1" in mm_relu.source("llvm")
    assert "ret" in mm_relu.source("asm", target="x86-64-v3")
    stages = ("loops", "legal", "llvm", "asm")
    check(refusal(lambda: mm_relu.source("wasm")), "bad-option", "wasm", hint=stages)
