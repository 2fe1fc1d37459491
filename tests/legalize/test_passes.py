"""Single legalize passes: where inits and allocations go, what is private, what is refused."""

import numpy as np
import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.legalize import legalize_kernel
from ingot.legalize.context import PassContext, bound_names
from ingot.legalize.lower_blocks import lower_blocks
from ingot.legalize.place_allocs import place_allocs
from ingot.legalize.split_kernels import split_kernel
from ingot.legalize.unroll import unroll
from ingot.loops import interp, ir, visit
from ingot.loops.build import Build
from ingot.loops.ir import LoopKind
from ingot.loops.script_parse import parse
from ingot.loops.verify import verify
from ingot.schedule import Schedule
from tests.legalize.common import AVX2, check
from tests.refusal import is_told, refused
from tests.schedule.common import matmul, softmax

f32 = dtypes.f32
n = arith.Var("n")


def ctx(kernel: ir.Kernel) -> PassContext:
    return PassContext.of(kernel, AVX2)


def reduction(rows=4, cols=6) -> ir.Kernel:
    b = Build("sum")
    x = b.param("x", f32, (rows, cols))
    total = b.reduce("total", (rows,), (cols,), "add", lambda i, k: x[i, k])
    return b.finish([total])


# --- lower_blocks -------------------------------------------------------------------------------


def test_an_init_stands_before_the_reduction():
    low = lower_blocks(reduction(), ctx(reduction()))
    (row,) = [low.body]
    assert isinstance(row, ir.For) and isinstance(row.body, ir.Seq)
    init, loop = row.body.stmts
    assert isinstance(init, ir.Store) and isinstance(loop, ir.For)


def test_an_init_gets_its_own_copies_of_spatial_loops():
    sch = Schedule(reduction())
    i, k = sch.loops(sch.block("total"))
    sch.reorder(k, i)
    sch.unroll(i)
    low = lower_blocks(sch.kernel, ctx(sch.kernel))
    assert isinstance(low.body, ir.Seq)
    init, loop = low.body.stmts
    assert isinstance(init, ir.For) and init.kind is LoopKind.UNROLL and init.var != i.name
    assert isinstance(loop, ir.For)
    check(sch.kernel)


def test_an_init_without_a_plain_loop_nest_is_conditional():
    sch = Schedule(reduction())
    sch.fuse(*sch.loops(sch.block("total")))  # one loop binds both axes
    low = lower_blocks(sch.kernel, ctx(sch.kernel))
    assert any(isinstance(s, ir.If) for s in visit.walk_stmts(low.body))
    check(sch.kernel)


def test_an_empty_reduction_still_has_its_init():
    b = Build("sum")
    x = b.param("x", f32, (3, n))
    total = b.reduce("total", (3,), (n,), "add", lambda i, k: x[i, k])
    sch = Schedule(b.finish([total], [ir.Size("n", 0)]))
    _, k = sch.loops(sch.block("total"))
    sch.split(k, None, 4)
    (legal,), _ = check(sch.kernel, {"n": 5})
    out = np.full(3, 7, np.float32)
    interp.run(legal, [np.zeros((3, 0), np.float32), out], {"n": 0})
    np.testing.assert_array_equal(out, 0)


# --- place_allocs -------------------------------------------------------------------------------


def allocs(kernel: ir.Kernel) -> list[ir.Buffer]:
    return [s.buffer for s in visit.walk_stmts(kernel.body) if isinstance(s, ir.Alloc)]


def recurrence(steps=5) -> ir.Kernel:
    """h = 2h + x[t]: a loop-carried value."""
    x, y = (ir.Buffer(name, f32, (arith.Const(steps),)) for name in "xy")
    h = ir.Buffer("h", f32, (arith.Const(1),))
    t = arith.Var("t")
    iteration = ir.seq(ir.Store(h, (arith.Const(0),), h[0] * 2.0 + x[t]), ir.Store(y, (t,), h[0]))
    body = ir.seq(
        ir.Store(h, (arith.Const(0),), ir.Lit(0.0, f32)), ir.serial("t", steps, iteration)
    )
    return ir.Kernel("recurrence", (x, y), (), ir.Alloc(h, body))


def test_a_loop_carried_value_keeps_its_buffer_outside():
    placed = place_allocs(recurrence(), ctx(recurrence()))
    assert isinstance(placed.body, ir.Alloc)


def test_a_buffer_read_before_it_is_written_stays_outside():
    x, y = (ir.Buffer(name, f32, (arith.Const(4),)) for name in "xy")
    last = ir.Buffer("last", f32, (arith.Const(4),))
    i, k = arith.Var("i"), arith.Var("k")
    # reads see what earlier iterations wrote, for every k but the last
    iteration = ir.seq(
        ir.Store(last, (i,), x[i]),
        ir.serial("k", i + 1, ir.Store(y, (i,), last[k])),
    )
    kernel = ir.Kernel("keep", (x, y), (), ir.Alloc(last, ir.serial("i", 4, iteration)))
    assert isinstance(place_allocs(kernel, ctx(kernel)).body, ir.Alloc)
    check(kernel)


def test_a_conditional_write_proves_nothing():
    x, y = (ir.Buffer(name, f32, (arith.Const(4),)) for name in "xy")
    t = ir.Buffer("t", f32, (arith.Const(1),))
    i, zero = arith.Var("i"), arith.Const(0)
    some = ir.If(ir.Compare("gt", x[i], ir.Lit(0.0, f32)), ir.Store(t, (zero,), x[i]))
    iteration = ir.seq(some, ir.Store(y, (i,), t[0]))
    body = ir.seq(ir.Store(t, (zero,), ir.Lit(3.0, f32)), ir.serial("i", 4, iteration))
    kernel = ir.Kernel("some", (x, y), (), ir.Alloc(t, body))
    assert isinstance(place_allocs(kernel, ctx(kernel)).body, ir.Alloc)
    check(kernel)


def test_an_intermediate_shrinks_to_what_one_iteration_accesses():
    sch = Schedule(softmax(4, 6))
    row, _ = sch.loops(sch.block("out"))
    for name in ("total", "power", "top"):
        sch.compute_at(sch.block(name), row)
    (kernel,), _ = check(sch.kernel)
    assert {b.name: b.shape for b in allocs(kernel)} == {"top": (1,), "power": (6,), "total": (1,)}
    assert all(b.scope == ir.THREAD for b in allocs(kernel))


# --- split_kernels ------------------------------------------------------------------------------


def test_nests_become_kernels_with_planned_temporaries():
    split = split_kernel(matmul(4, 8, 3))
    assert [k.name for k in split.kernels] == ["matmul_0", "matmul_1"]
    assert [[p.name for p in k.params] for k in split.kernels] == [
        ["A", "B", "Y"],
        ["bias", "Y", "Z"],
    ]
    assert [b.name for b in split.temporaries] == ["Y"]


def test_one_nest_keeps_its_name_and_its_buffers():
    split = split_kernel(recurrence())
    assert [k.name for k in split.kernels] == ["recurrence_0", "recurrence_1"]
    looped = ir.replace(recurrence(), body=ir.serial("z", 1, recurrence().body))
    (only,) = split_kernel(looped).kernels
    assert only.name == "recurrence" and [b.name for b in allocs(only)] == ["h"]


def test_sizes_are_those_in_use():
    m = arith.Var("m")
    b = Build("two")
    x, y = b.param("x", f32, (n,)), b.param("y", f32, (m,))
    a = b.compute("a", (n,), lambda i: x[i] + 1.0)
    c = b.compute("c", (m,), lambda i: y[i] + 1.0)
    first, second = split_kernel(b.finish([a, c], [ir.Size("n"), ir.Size("m")])).kernels
    assert [s.name for s in first.sizes] == ["n"] and [s.name for s in second.sizes] == ["m"]


def test_a_buffer_that_threads_must_share_is_planned_too():
    h = ir.Buffer("h", f32, (arith.Const(4),))
    x, y = (ir.Buffer(name, f32, (arith.Const(4),)) for name in "xy")
    i = arith.Var("i")
    # nothing shows that the element read was written in the same iteration
    odd = ir.If(ir.Compare("gt", x[i], ir.Lit(0.0, f32)), ir.Store(h, (i,), x[i]))
    loop = ir.For("i", arith.Const(0), arith.Const(4), ir.seq(odd, ir.Store(y, (i,), h[i])))
    shared = ir.replace(loop, kind=LoopKind.PARALLEL)
    split = split_kernel(ir.Kernel("k", (x, y), (), ir.Alloc(h, shared)))
    assert [b.name for b in split.temporaries] == ["h"]
    assert not allocs(split.kernels[0])


def test_a_parallel_loop_that_is_not_outermost_runs_serially():
    sch = Schedule(matmul(4, 8, 3))
    _, j = sch.loops(sch.block("Z"))
    sch.parallel(j)
    kernels, remarks = check(sch.kernel)
    (remark,) = remarks
    assert is_told("i_4", remark) and "parallel" in remark
    assert not any(
        isinstance(s, ir.For) and s.kind is LoopKind.PARALLEL
        for k in kernels
        for s in visit.walk_stmts(k.body)
    )


# --- unroll -------------------------------------------------------------------------------------


def unrolled(scope: str, count=3, kind=LoopKind.UNROLL) -> ir.Kernel:
    x, y = (ir.Buffer(name, f32, (arith.Const(count),)) for name in "xy")
    t = ir.Buffer("t", f32, (arith.Const(count),), scope)
    i, k = arith.Var("i"), arith.Var("k")
    fill = ir.For("i", arith.Const(0), arith.Const(count), ir.Store(t, (i,), x[i]), kind)
    inner = ir.Let("v", t[k] * 2.0, ir.Store(y, (k,), ir.Ref("v", f32)))
    use = ir.For("k", arith.Const(0), arith.Const(count), inner, kind)
    return ir.Kernel("k", (x, y), (), ir.Alloc(t, ir.seq(fill, use)))


def test_copies_have_names_of_their_own():
    flat = unroll(unrolled(ir.THREAD), ctx(unrolled(ir.THREAD)))
    verify(flat)
    assert len([s for s in visit.walk_stmts(flat.body) if isinstance(s, ir.Let)]) == 3
    assert len(bound_names(flat)) == len({"x", "y", "t"}) + 3
    check(unrolled(ir.THREAD))


def test_registers_get_constant_indices():
    kernel = unrolled(ir.REGISTER, kind=LoopKind.SERIAL)
    legal = legalize_kernel(kernel, AVX2)
    assert not any(isinstance(s, ir.For) for s in visit.walk_stmts(legal.body))
    x, y = np.float32([1, 2, 3]), np.zeros(3, np.float32)
    interp.run(legal, [x, y])
    np.testing.assert_array_equal(y, 2 * x)


def moving_register() -> ir.Kernel:
    """An index that no unrolling makes a constant: it is loaded."""
    x, t = ir.Buffer("x", dtypes.i64, (arith.Const(3),)), ir.Buffer("t", f32, (arith.Const(3),))
    t = ir.replace(t, scope=ir.REGISTER)
    place = ir.index_of(x[0])
    return ir.Kernel("k", (x,), (), ir.Alloc(t, ir.Store(t, (place,), ir.Lit(1.0, f32))))


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (moving_register, ("t",)),
        (lambda: unrolled(ir.REGISTER, 200), ("t", "(200,)", "f32", 512)),
        (lambda: unrolled(ir.REGISTER, 600), ("t", "(600,)", "f32", 512)),
    ],
)
def test_illegal_register_buffers_are_refused(make, facts):
    kernel = make()
    with refused("bad-schedule", *facts, where=kernel.name):
        unroll(kernel, ctx(kernel))


def test_a_guard_may_name_the_axes_of_its_block():
    kernel = parse(
        """
@ingot.kernel
def k(X: f32[12], Y: f32[12]):
    for i, j in grid(3, 4):
        with block("Y", spatial=(axis(i * 4 + j, 12),)) as (v,):
            where(v < 7)
            Y[v] = X[v] * 2.0
"""
    )
    check(kernel)
