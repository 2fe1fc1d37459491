"""parallel, vectorize, unroll, annotate, set_scope: legal and illegal cases."""

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.loops.script_parse import parse
from ingot.schedule import Schedule
from tests.legalize.common import check, widths
from tests.schedule.common import (
    assert_same,
    conv1d,
    cumsum,
    elementwise,
    f32,
    matmul,
    refused_step,
    softmax,
)
from tests.schedule.equivalence import assert_everywhere


def rows_of_softmax() -> tuple[Schedule, ir.Kernel]:
    kernel = softmax()
    sch = Schedule(kernel)
    rows = sch.loops(sch.block("out"))[0]
    for name in ("total", "power", "top"):
        sch.compute_at(sch.block(name), rows)
    return sch, kernel


def test_parallel_on_spatial_loops():
    kernel = matmul()
    sch = Schedule(kernel)
    i, j, _ = sch.loops(sch.block("Y"))
    sch.parallel(sch.fuse(i, j))
    assert sch.at_loop(sch.loops(sch.block("Y"))[0]).kind is ir.LoopKind.PARALLEL
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize("mark", ["parallel", "vectorize"])
def test_a_reduce_loop_is_refused(mark):
    sch = Schedule(matmul())
    i, _, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i)
    with refused_step(f"{mark}(k)", "k", "reduce", "vk", "Y") as caught:
        getattr(sch, mark)(k)
    assert "for k in range(5):  ← here" in caught.value.where


@pytest.mark.parametrize("depth", [5, 8])
def test_the_innermost_loop_of_a_reduction_may_be_lanes(depth):
    """A vector of terms is reduced in one step; the init comes before it."""
    kernel = matmul(3, 4, depth)
    sch = Schedule(kernel)
    i, _, k = sch.loops(sch.block("Y"))
    sch.vectorize(k)
    sch.parallel(i)
    assert_everywhere(kernel, sch)


def test_a_guarded_reduction_has_no_lanes():
    sch = Schedule(matmul(3, 4, 7))
    k = sch.loops(sch.block("Y"))[2]
    _, lane = sch.split(k, None, 4)
    with refused_step("vectorize(k_1)", "k_1", "reduce", "vk", "Y"):
        sch.vectorize(lane)


def test_an_ordered_loop_is_refused():
    sch = Schedule(cumsum())
    i, t = sch.loops(sch.block("out"))
    with refused_step("parallel(t)", "t", "ordered", "vt", "out"):
        sch.parallel(t)
    sch.parallel(i)


def test_parallel_rows_with_their_own_scratch():
    sch, kernel = rows_of_softmax()
    sch.parallel(sch.loops(sch.block("out"))[0])
    sch.set_scope("power", "thread")
    assert_same(kernel, sch.kernel)


def test_parallel_refuses_what_another_iteration_writes():
    """Overlapping tiles of a producer write the same elements of a parameter."""
    b = Build("overlap")
    x, y = b.param("X", f32, (8,)), b.param("Y", f32, (9,))
    v = arith.Var("v")
    axis = ir.Axis("v", ir.AxisKind.SPATIAL, arith.Const(9), arith.Var("t") + arith.Var("r"))
    block = ir.Block("Y", (axis,), ir.Store(y, (v,), x[v % 8]))
    b.emit(ir.serial("t", 7, ir.serial("r", 3, block)))
    sch = Schedule(b.finish([]))
    with refused_step("parallel(t)", "Y", "t"):
        sch.parallel(sch.loops(sch.block("Y"))[0])


def test_parallel_refuses_a_neighbour_read_in_the_same_loop():
    """Z[i] reads S[i - 1], which another iteration writes."""
    b = Build("neighbour")
    x = b.param("X", f32, (8,))
    s, z = b.buffer("S", f32, (8,)), b.buffer("Z", f32, (8,))
    v, w = arith.Var("v"), arith.Var("w")

    def block(name: str, var: str, store: ir.Stmt) -> ir.Block:
        axis = ir.Axis(var, ir.AxisKind.SPATIAL, arith.Const(8), arith.Var("i"))
        return ir.Block(name, (axis,), store)

    first = ir.Compare("gt", ir.Index(w), ir.Lit(0, dtypes.i64))
    left = ir.Load(s, (w - 1,), mask=first, other=ir.Lit(0.0, f32))
    body = ir.seq(
        block("S", "v", ir.Store(s, (v,), x[v])), block("Z", "w", ir.Store(z, (w,), left))
    )
    b.emit(ir.serial("i", 8, body))
    sch = Schedule(b.finish([z]))
    with refused_step("parallel(i)", "Z", "S", "i", hint=("S", "compute_at")):
        sch.parallel(sch.loops(sch.block("Z"))[0])


def test_parallel_inside_parallel_is_refused():
    sch = Schedule(elementwise())
    i, j = sch.loops(sch.block("Z"))
    sch.parallel(i)
    with refused_step("parallel(i_4)", "i_3", "parallel"):
        sch.parallel(j)


def test_moving_a_block_under_a_parallel_loop_is_checked_again():
    kernel = conv1d(24)
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("Z"))[0], None, 8)
    sch.parallel(outer)
    sch.compute_at(sch.block("acc"), outer)
    sch.compute_at(sch.block("padded"), outer)  # tiles overlap, but each iteration has its own
    assert_same(kernel, sch.kernel)


def test_vectorize_needs_a_constant_extent_and_uniform_inner_loops():
    sch = Schedule(matmul(arith.Var("n"), 8, 4, [ir.Size("n")]))
    i, j, _ = sch.loops(sch.block("Y"))
    with refused_step("vectorize(i)", "n", hint="split(i, None, 8)"):
        sch.vectorize(i)
    sch.vectorize(j)  # k inside runs for all lanes at once
    z = sch.loops(sch.block("Z"))[1]
    sch.vectorize(z)
    assert sch.at_loop(z).kind is ir.LoopKind.VECTOR
    (kernel, _), notes = check(sch.kernel, {"n": 3})
    assert not notes and widths(kernel) == {8}


TRIANGLE = """
@ingot.kernel
def triangle(X: f32[4, 4], Z: f32[4, 4]):
    for i in serial(4):
        for j in serial(i):
            with block("Z", spatial=(i, j)) as (vi, vj):
                Z[vi, vj] = X[vi, vj] * 2.0
"""


def test_vectorize_refuses_divergent_lanes():
    sch = Schedule(parse(TRIANGLE))
    i, _ = sch.loops(sch.block("Z"))
    with refused_step("vectorize(i)", "j", "i"):
        sch.vectorize(i)


def test_vectorize_refuses_vectors_of_vectors():
    sch = Schedule(elementwise(4, 8))
    i, j = sch.loops(sch.block("Z"))
    sch.vectorize(j)
    with refused_step("vectorize(i_3)", "i_4", "vector"):
        sch.vectorize(i)
    sch = Schedule(elementwise(4, 8))
    i, j = sch.loops(sch.block("Z"))
    sch.vectorize(i)
    with refused_step("vectorize(i_4)", "i_3", "vector"):
        sch.vectorize(j)


def test_vectorize_refuses_lanes_that_share_an_element():
    """Each lane would need its own S, which has one element for each row."""
    b = Build("shared_lane")
    x = b.param("X", f32, (4, 8))
    s = b.compute("S", (4,), lambda i: x[i, 0] * 2.0)
    z = b.compute("Z", (4, 8), lambda i, j: s[i] + x[i, j])
    sch = Schedule(b.finish([z]))
    _, j = sch.loops(sch.block("Z"))
    sch.compute_at(sch.block("S"), j)
    with refused_step("vectorize(i_3)", "S", "i_3"):
        sch.vectorize(j)


def test_vectorize_refuses_a_failing_block():
    b = Build("checked")
    x = b.param("X", dtypes.i64, (8,))
    b.check((8,), lambda i: ir.Compare("lt", x[i], ir.Lit(0, dtypes.i64)), "negative")
    sch = Schedule(b.finish([]))
    with refused_step("vectorize(c)", "check", "Fail"):
        sch.vectorize(sch.loops(sch.block("check"))[0])


def test_unroll_needs_a_small_constant_extent():
    sch = Schedule(matmul(arith.Var("n"), 1000, 4, [ir.Size("n")]))
    i, j, k = sch.loops(sch.block("Y"))
    with refused_step("unroll(i)", "n", hint="split(i, None, 4)"):
        sch.unroll(i)
    with refused_step("unroll(i_2)", 1000, hint=256):
        sch.unroll(j)
    sch.unroll(k)
    assert sch.at_loop(k).kind is ir.LoopKind.UNROLL


def test_set_scope():
    sch = Schedule(matmul())
    sch.set_scope(sch.block("Y"), "register")
    alloc = sch.kernel.body
    assert isinstance(alloc, ir.Alloc) and alloc.buffer.scope == "register"
    with refused_step("set_scope('Z', 'thread')", "Z", hint="Y"):
        sch.set_scope("Z", "thread")


def test_scratch_of_a_thread_stays_inside_its_parallel_loop():
    sch = Schedule(matmul())
    sch.parallel(sch.loops(sch.block("Y"))[0])
    with refused_step("set_scope('Y', 'thread')", "Y", "thread", hint="global"):
        sch.set_scope("Y", "thread")
    other = Schedule(matmul())
    other.set_scope("Y", "thread")
    with refused_step("parallel(i)", "Y", "thread", hint="global"):
        other.parallel(other.loops(other.block("Y"))[0])


def test_annotate():
    sch = Schedule(matmul())
    block = sch.block("Y")
    sch.annotate(block, "tile", "6x16")
    sch.annotate(block, "tile", "4x8")
    assert dict(sch.at_block(block).annotations) == {"tile": "4x8"}
    with refused_step("annotate('x',", "object"):
        sch.annotate(block, "x", object())
