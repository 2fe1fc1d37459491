"""The interpreter: results of kernels, rejected inputs, and memory semantics."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.dtypes import f32, i64
from ingot.loops import interp, ir
from ingot.loops.ir import Index, LoopKind
from ingot.loops.script_parse import parse
from tests.loops import kernels
from tests.loops.kernels import X, Y, buf, const, i, kernel, loop, num, store
from tests.refusal import Facts, refused


def ramp(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def fails(facts: Facts, made: ir.Kernel, *arrays: np.ndarray, code: str = "run-failed", **sizes):
    told = facts if isinstance(facts, tuple) else (facts,)
    with refused(code, *told, where=made.name, hint=False):
        interp.run(made, arrays, sizes)


# --- the hand-written kernels ---------------------------------------------------------------------


def test_matmul_with_a_dynamic_dimension():
    a, w, z = ramp(4, 8) - 9, ramp(8, 6) - 20, np.zeros((4, 6), np.float32)
    interp.run(kernels.matmul(), [a, w, z])
    np.testing.assert_array_equal(z, np.maximum(a @ w, 0))


def test_argmax_reduces_a_tuple():
    a = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    best, at = np.zeros(5, np.float32), np.zeros(5, np.int64)
    interp.run(kernels.argmax(), [a, best, at])
    np.testing.assert_array_equal(best, a.max(1))
    np.testing.assert_array_equal(at, a.argmax(1))


def test_gather_and_its_check():
    a, rows, out = ramp(5, 3), np.array([4, 0, 2, 2], np.int32), np.zeros((4, 3), np.float32)
    interp.run(kernels.gather(), [a, rows, out])
    np.testing.assert_array_equal(out, a[rows])
    rows[1] = 7
    fails(("row out of range", 7, 1), kernels.gather(), a, rows, out)


def test_masked_loads_access_nothing_out_of_range():
    a, out = ramp(6), np.zeros(10, np.float32)
    interp.run(kernels.padded(), [a, out])
    np.testing.assert_array_equal(out, np.pad(a, 2, constant_values=-1))


def test_split_blocks_with_where():
    a, y = ramp(10, 3, 5), np.full((10, 5), 9, np.float32)
    interp.run(kernels.scheduled(), [a, y])
    np.testing.assert_array_equal(y, a.sum(1))


def test_nested_blocks_and_scan():
    a, s, done = ramp(4, 6), np.zeros((4, 6), np.float32), np.zeros((), np.bool_)
    interp.run(kernels.nested_blocks(), [a, s, done])
    np.testing.assert_array_equal(s, a.cumsum(1))
    assert done


def test_vectors():
    x, y, z = ramp(16), np.full(16, -7, np.float32), np.zeros(16, np.float32)
    interp.run(kernels.vectors(), [x, y, z], {"n": 7})
    expect = np.full(16, -7, np.float32)
    for step in range(4):
        at = np.arange(step * 4, step * 4 + 4)
        masked = np.where(at < 7, x[at], np.float32(0.5))
        mixed = np.array([x[at[0]], x[step], x[at[1]], x[step + 4]])
        terms = x[at] * masked + mixed
        lanes = np.array([(terms[0] + terms[2]) + (terms[1] + terms[3]), 1.0, x[step], -0.0])
        expect[at[at < 7]] = lanes[at < 7]
        np.testing.assert_array_equal(z[step::4], mixed)
    np.testing.assert_array_equal(y, expect)


def test_control():
    x, y, z = ramp(16), np.zeros(16, np.float32), np.zeros(16, np.float32)
    x[1] = x[0]
    interp.run(kernels.control(), [x, y, z])
    np.testing.assert_array_equal(y[:6], [0, 1, 4, 6, 8, 0])
    np.testing.assert_array_equal(z[:6], [0, 0, 2, 3, 4, 0])
    x[1] = 5
    fails(("odd", 3), kernels.control(), x, y, z)


def test_threads_wait_at_sync():
    x, y, out = ramp(16), ramp(16)[::-1].copy(), np.zeros(4, np.float32)
    interp.run(kernels.devices(), [x, y, out])
    # thread t reads what thread 3 - t has copied: right only if all copied before any read
    expect = [np.dot(x[12 - t * 4 :][:4], y[t * 4 :][:4]) for t in range(4)]
    np.testing.assert_array_equal(out, expect)


def test_loads_and_stores_of_every_type():
    made = kernels.types()
    arrays = [np.array([2, 4]).astype(p.dtype.numpy) for p in made.params]
    before = [a.copy() for a in arrays]
    interp.run(made, arrays)
    for array, old in zip(arrays, before):
        assert array[0] == old[1] == array[1]


# --- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [16, -1])
def test_out_of_range_raises(index):
    made = kernel([X], loop("i", 1, store(X, i + index, num(1.0))))
    fails((f"X[{index}]", "(16,)"), made, ramp(16))


def test_out_of_range_in_one_dimension_raises_even_inside_the_memory():
    a = buf("a", f32, 4, 4)
    made = kernel([a], loop("i", 5, store(a, 0, i, num(1.0))))
    fails(("a[0, 4]", "(4, 4)"), made, ramp(4, 4))


def test_wide_access_out_of_range_raises():
    made = kernel([X, Y], loop("i", 4, store(Y, i * 4 + 1, ir.Load(X, (i * 4,), 4))))
    fails(("Y[13]", "(16,)"), made, ramp(16), ramp(16))


def test_uninitialised_memory_is_poisoned():
    t = buf("t", f32, 4, scope=ir.THREAD)
    x = ramp(16)
    interp.run(kernel([X], ir.Alloc(t, store(X, 0, t[0]))), [x])
    assert np.isnan(x[0])
    c, out = buf("c", i64, 1), buf("out", i64, 1)
    whole = np.zeros(1, np.int64)
    interp.run(kernel([out], ir.Alloc(c, store(out, 0, c[0]))), [whole])
    assert whole[0] == 0x5A5A5A5A5A5A5A5A


def test_an_alloc_in_a_loop_is_new_each_time():
    t = buf("t", f32, 1)
    read = store(X, i, t[0])
    body = ir.Alloc(t, ir.seq(read, store(t, 0, num(1.0))))
    x = ramp(16)
    interp.run(kernel([X], loop("i", 2, body)), [x])
    assert np.isnan(x[:2]).all()


def test_an_async_copy_completes_at_its_wait():
    text = """
def k(X: f32[4], Y: f32[4]):
    t = alloc(f32[4])
    copy_async(t[0:4], X[0:4], "c")
    Y[0] = t[0]
    wait("c")
    Y[1] = t[1]
"""
    y = ramp(4)
    interp.run(parse(text), [ramp(4) + 5, y])
    assert np.isnan(y[0]) and y[1] == 6
    fails("'c'", parse(text.replace('wait("c")', "pass")), ramp(4), y)


def test_arrays_need_not_be_contiguous():
    x = np.zeros((16, 2), np.float32)
    interp.run(kernel([X], loop("i", 16, store(X, i, num(3.0)))), [x[:, 1]])
    assert (x[:, 1] == 3).all() and (x[:, 0] == 0).all()


def test_flat_kernels_take_arrays_of_any_shape():
    x = ramp(4, 4)
    interp.run(kernel([X], store(X, 5, num(-1.0))), [x])
    assert x[1, 1] == -1


# --- control -----------------------------------------------------------------------------------


def test_loops_that_end_before_they_start_do_nothing():
    x = ramp(16)
    interp.run(kernel([X], ir.For("i", const(5), const(2), store(X, i, num(-1.0)))), [x])
    np.testing.assert_array_equal(x, ramp(16))


def test_select_evaluates_both_sides():
    both = ir.Select(ir.Compare("lt", Index(i), num(16, i64)), X[i], num(0.0))
    made = kernel([X, Y], loop("i", 17, store(Y, arith.Min(i, const(15)), both)))
    fails(("X[16]", "(16,)"), made, ramp(16), ramp(16))


def test_axes_stay_in_their_extent():
    axis = ir.Axis("v", ir.AxisKind.SPATIAL, const(3), i)
    made = kernel([X], loop("i", 4, ir.Block("b", (axis,), store(X, arith.Var("v"), num(0.0)))))
    fails(("v", "b", 3), made, ramp(16))


def test_lockstep_runs_lets_allocs_ifs_whiles_and_serial_loops():
    text = """
def k(out: f32[4]):
    a = alloc(f32[4], "shared")
    for t in bound("threadIdx.x", 4):
        mine = cast(t, f32)
        a[t] = mine
        sync("shared")
        for r in serial(2):
            with block("step", spatial=(t,), ordered=(r,)) as (vt, vr):
                c = alloc(i32[()], "thread")
                c[()] = 0
                while c[()] < 1:
                    next = a[(vt + 1) % 4]
                    sync("shared")
                    if vt >= 0:
                        a[vt] = next
                        sync("shared")
                    c[()] += 1
        out[t] = a[t]
"""
    out = np.zeros(4, np.float32)
    interp.run(parse(text), [out])
    np.testing.assert_array_equal(out, [2, 3, 0, 1])


def test_parallel_loops_run():
    x = ramp(16)
    interp.run(kernel([X], loop("i", 16, store(X, i, X[i] * 2.0), LoopKind.PARALLEL)), [x])
    np.testing.assert_array_equal(x, ramp(16) * 2)


def test_instructions_with_dynamic_dimensions():
    text = """
def k(X: f32[4, 6], Y: f32[6]):
    @instruction
    def add(n: size, p: f32[n], q: f32[n]):
        for u in serial(n):
            p[u] += q[u]
    for i in serial(4):
        call(add, X[i:i + 1, 1:4], Y[2:5])
"""
    x, y = ramp(4, 6), ramp(6)
    interp.run(parse(text), [x, y])
    expect = ramp(4, 6)
    expect[:, 1:4] += y[2:5]
    np.testing.assert_array_equal(x, expect)


# --- inputs ------------------------------------------------------------------------------------


def test_inputs_are_checked():
    made = kernels.matmul()
    a, w, z = ramp(4, 8), ramp(8, 6), ramp(4, 6)
    fails((3, 2), made, a, w, code="bad-input")
    fails(("w", "f32", "float64"), made, a, w.astype(float), z, code="bad-input")
    fails(("w", "(8, 6)", "(6, 6)"), made, a, ramp(6, 6), z, code="bad-input")
    fails(("n", 7), made, ramp(4, 7), ramp(7, 6), z, code="bad-input")
    flat = kernel([X], store(X, 0, num(1.0)), [ir.Size("n")])
    fails("n", flat, ramp(16), code="bad-input")


def test_the_failure_names_the_origin():
    made = ir.replace(kernel([X], ir.Fail("it broke")), origin="Gather_7 of model.onnx")
    with refused("run-failed", "it broke", where="Gather_7 of model.onnx", hint=False):
        interp.run(made, [ramp(16)])


def test_bf16_buffers_round_at_every_step():
    b = buf("b", dtypes.bf16, 4)
    x = np.array([1.0, 2**-8, 2**-8, 0], ml_dtypes.bfloat16)
    interp.run(kernel([b], store(b, 3, (b[0] + b[1]) + b[2])), [x])
    assert x[3] == 1.0  # each half-way sum falls back to 1, as two roundings do
