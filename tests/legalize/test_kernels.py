"""Whole kernels, legalized pass by pass: each pass verifies and keeps the kernel's meaning."""

import random

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize import PASSES, legalize_kernel
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.loops.ir import LoopKind
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.legalize.common import AVX2, PLAIN, check, widths
from tests.refusal import is_told
from tests.schedule.common import conv1d, elementwise, matmul, softmax
from tests.schedule.test_random import CASES, random_step

f32, i64 = dtypes.f32, dtypes.i64
n = arith.Var("n")
SIZE = (ir.Size("n", 1),)


def tiled_matmul(m, cols, k, rows=2, lanes=8, sizes=()):
    sch = Schedule(matmul(m, cols, k, sizes))
    i, j, p = sch.loops(sch.block("Y"))
    outer, inner = sch.split(i, None, rows)
    columns, lane = sch.split(j, None, lanes)
    sch.reorder(outer, columns, p, inner, lane)
    sch.reverse_compute_at(sch.block("Z"), columns)
    row, column = sch.loops(sch.block("Z"))[-2:]
    for loop in (lane, column):
        sch.vectorize(loop)
    for loop in (inner, row):
        sch.unroll(loop)
    sch.parallel(outer)
    return sch.kernel


@pytest.mark.parametrize("on", [AVX2, PLAIN], ids=["avx2", "plain"])
@pytest.mark.parametrize("shape", [(4, 16, 3), (5, 19, 4), (1, 3, 2)])
def test_a_gemm_tile_has_one_small_buffer(shape, on):
    (kernel,), remarks = check(tiled_matmul(*shape), on=on)
    allocs = [s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]
    assert {b.shape for b in allocs} == {(16,)} or shape[0] == 1  # whole tiles may have their own
    assert not remarks and 8 in widths(kernel)
    fused = any(isinstance(e, ir.Fma) for e in visit.all_exprs(kernel.body))
    assert fused == on.has("fma")


def test_a_gemm_tile_with_a_dynamic_dimension():
    for size in (1, 2, 5, 6):
        (kernel,), _ = check(tiled_matmul(n, 19, 4, sizes=SIZE), {"n": size})
    allocs = [s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]
    assert {b.shape for b in allocs} == {(16,)}


@pytest.mark.parametrize("count", [1, 7, 8, 9, 24])
def test_whole_vectors_have_no_masks(count):
    sch = Schedule(elementwise(2, n, SIZE))
    sch.compute_inline(sch.block("S"))
    i, j = sch.loops(sch.block("Z"))
    _, lane = sch.split(j, None, 8)
    sch.vectorize(lane)
    sch.parallel(i)
    (kernel,), _ = check(sch.kernel, {"n": count})
    masks = [s.mask is None for s in visit.stores(kernel.body) if s.value.lanes == 8]
    assert sorted(masks) == [False, True]


def test_guards_that_always_hold_are_gone():
    sch = Schedule(elementwise(3, 16))
    sch.compute_inline(sch.block("S"))
    fused = sch.fuse(*sch.loops(sch.block("Z")))
    _, lane = sch.split(fused, None, 8)
    sch.vectorize(lane)
    (kernel,), _ = check(sch.kernel)
    assert not any(isinstance(s, ir.If) for s in visit.walk_stmts(kernel.body))
    (store,) = visit.stores(kernel.body)
    assert store.value.lanes == 8 and store.stride == 1 and store.mask is None


def test_softmax_intermediates_are_private_to_a_row():
    sch = Schedule(softmax(4, n, SIZE))
    row, _ = sch.loops(sch.block("out"))
    sch.parallel(row)
    for name in ("total", "power", "top"):
        sch.compute_at(sch.block(name), row)
    (kernel,), _ = check(sch.kernel, {"n": 11})
    assert isinstance(kernel.body, ir.For) and kernel.body.kind is LoopKind.PARALLEL
    shapes = {
        s.buffer.name: s.buffer.shape
        for s in visit.walk_stmts(kernel.body)
        if isinstance(s, ir.Alloc)
    }
    assert shapes == {"top": (1,), "power": (n,), "total": (1,)}


def test_padded_rows_with_a_dynamic_dimension():
    sch = Schedule(conv1d(n, 3, SIZE))
    sch.compute_inline(sch.block("padded"))
    (i, t) = sch.loops(sch.block("acc"))
    _, lane = sch.split(i, None, 4)
    sch.reorder(t, lane)
    sch.vectorize(lane)
    for size in (1, 3, 4, 9):
        check(sch.kernel, {"n": size})


@pytest.mark.parametrize("count", [8, 5])
def test_gathered_elements_are_loaded_lane_by_lane(count):
    b = Build("gather")
    x, at = b.param("x", f32, (3, count)), b.param("at", dtypes.i32, (count,))
    out = b.compute("out", (3, count), lambda i, j: x[i, ir.index_of(at[j])] * 2.0)
    sch = Schedule(b.finish([out]))
    _, j = sch.loops(sch.block("out"))
    _, lane = sch.split(j, None, 4)
    sch.vectorize(lane)
    (kernel,), remarks = check(sch.kernel)
    assert not remarks and 4 in widths(kernel)


def test_scattered_elements_are_stored_in_the_order_of_the_lanes():
    at = ir.Buffer("at", i64, (arith.Const(8),))
    x, y = (ir.Buffer(name, f32, (arith.Const(8),)) for name in "xy")
    j = arith.Var("j")
    where = ir.Compare("lt", ir.Index(j), ir.Index(arith.Const(7)))
    store = ir.If(where, ir.Store(y, (ir.index_of(at[j]),), x[j] + 1.0))
    loop = ir.For("j", arith.Const(0), arith.Const(8), store, LoopKind.VECTOR)
    order = np.array([3, 1, 3, 0, 2, 2, 7, 99])
    (kernel,), remarks = check(ir.Kernel("scatter", (at, x, y), (), loop), given={"at": order})
    assert not remarks and any(isinstance(e, ir.Shuffle) for e in visit.all_exprs(kernel.body))


def vector_nest(body, *buffers, lanes=8, name="v"):
    loop = ir.For("j", arith.Const(0), arith.Const(lanes), body, LoopKind.VECTOR)
    return ir.Kernel(name, buffers, (), loop)


def test_divergent_lanes_get_masks():
    x, y, z = (ir.Buffer(name, f32, (arith.Const(8),)) for name in "xyz")
    j = arith.Var("j")
    inner = ir.If(ir.Compare("gt", y[j], ir.Lit(0.0, f32)), ir.Store(z, (j,), y[j]))
    then = ir.seq(ir.Store(z, (j,), x[j] + 1.0), inner)
    orelse = ir.Store(z, (j,), x[j] * 3.0)
    body = ir.If(ir.Compare("gt", x[j], ir.Lit(0.0, f32)), then, orelse)
    (kernel,), remarks = check(vector_nest(body, x, y, z))
    assert not remarks and widths(kernel) == {8}


@pytest.mark.parametrize("op", ["add", "max", "mul"])
def test_lanes_that_update_one_element_are_reduced(op):
    x, total = ir.Buffer("x", f32, (arith.Const(8),)), ir.Buffer("total", f32, ())
    j = arith.Var("j")
    update = ir.Store(total, (), ir.Binary(op, ir.Load(total, ()), x[j] * 2.0))
    guard = ir.Compare("gt", x[j], ir.Lit(-0.5, f32))
    for body in (update, ir.If(guard, update)):
        (kernel,), remarks = check(vector_nest(body, x, total))
        assert not remarks
        assert any(isinstance(e, ir.LaneReduce) for e in visit.all_exprs(kernel.body))


def test_an_element_that_no_active_lane_uses_is_not_accessed():
    x, y = (ir.Buffer(name, f32, (arith.Const(8),)) for name in "xy")
    at, total = ir.Buffer("at", i64, (arith.Const(1),)), ir.Buffer("total", f32, (arith.Const(1),))
    j, far = arith.Var("j"), ir.index_of(at[0])  # out of range, and guarded by what lanes say
    update = ir.Store(total, (far,), ir.Load(total, (far,)) + x[j])
    copy = ir.Store(y, (j,), ir.Load(x, (far,)))
    never = ir.Compare("gt", x[j], ir.Lit(99.0, f32))
    inner = ir.If(never, ir.seq(update, copy))
    below = ir.Compare("lt", ir.Index(j), ir.Index(arith.Const(5)))
    for body in (inner, ir.If(below, inner)):
        kernels, remarks = check(vector_nest(body, x, y, at, total), given={"at": np.array([1000])})
        assert not remarks and len(kernels) == 1


def test_a_body_without_a_vector_form_is_scalar_with_a_remark():
    x, total = ir.Buffer("x", f32, (arith.Const(8),)), ir.Buffer("total", f32, ())
    j = arith.Var("j")
    last = ir.Store(total, (), x[j])
    fails = ir.If(ir.Compare("gt", x[j], ir.Lit(99.0, f32)), ir.Fail("too large", (ir.Index(j),)))
    odd = ir.Store(total, (), ir.Load(total, ()) * ir.Load(total, ()) + x[j])
    told = set()
    for body in (last, fails, odd):
        (kernel,), (remark,) = check(vector_nest(body, x, total))
        assert is_told("j", remark) and widths(kernel) <= {1}
        told.add(remark)
    assert len(told) == 3, "each for a reason of its own"


def test_a_vector_loop_of_dynamic_length_has_a_remark():
    x = ir.Buffer("x", f32, (n,))
    y = ir.Buffer("y", f32, (n,))
    j = arith.Var("j")
    loop = ir.For("j", arith.Const(0), n, ir.Store(y, (j,), x[j]), LoopKind.VECTOR)
    _, remarks = check(ir.Kernel("k", (x, y), SIZE, loop), {"n": 5})
    assert is_told("j", remarks[0])


def test_inner_loops_stay_inside_vectors():
    x, y = (
        ir.Buffer("x", f32, (arith.Const(3), arith.Const(8))),
        ir.Buffer("y", f32, (arith.Const(8),)),
    )
    acc = ir.Buffer("acc", f32, ())
    j, k = arith.Var("j"), arith.Var("k")
    add = ir.Store(acc, (), ir.Load(acc, ()) + x[k, j])
    body = ir.Alloc(
        acc,
        ir.seq(
            ir.Store(acc, (), ir.Lit(0.0, f32)),
            ir.serial("k", 3, add),
            ir.Store(y, (j,), ir.Math("tanh", (ir.Load(acc, ()),))),
        ),
    )
    (kernel,), remarks = check(vector_nest(body, x, y))
    assert not remarks and widths(kernel) == {8}
    assert [s.var for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.For)] == ["k"]


def test_a_condition_with_math_is_computed_every_iteration():
    x = ir.Buffer("x", f32, (arith.Const(1),))
    more = ir.Compare("lt", ir.Math("exp", (x[0],)), ir.Lit(20.0, f32))
    body = ir.While(more, ir.Store(x, (arith.Const(0),), x[0] + 0.5))
    check(ir.Kernel("grow", (x,), (), body), given={"x": np.zeros(1, np.float32)})


@pytest.mark.parametrize("name", CASES)
def test_random_schedules_keep_their_meaning(name):
    case = CASES[name]
    for seed in range(3):
        rng = random.Random(f"legal {name} {seed}")
        sch = Schedule(case.make())
        for _ in range(12):
            try:
                random_step(sch, rng)
            except IngotError as error:
                assert error.code == "bad-schedule"
        check(sch.kernel, case.sizes[-1], AVX2 if seed % 2 else PLAIN)


def test_the_passes_run_in_one_call():
    kernel = tiled_matmul(5, 19, 4)
    legal = legalize_kernel(kernel, AVX2)
    assert legal == legalize_kernel(kernel, AVX2) and legal.remarks == ()
    assert [s.name for s in PASSES][-1] == "simplify_stmts"
