"""cache_read, cache_write, reindex: copy stages of a block. Legal and illegal cases."""

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.schedule.common import (
    check_step,
    conv1d,
    cumsum,
    elementwise,
    f32,
    matmul,
    relu,
    softmax,
)
from tests.schedule.equivalence import assert_everywhere

n = arith.Var("n")
SIZE = (ir.Size("n", 1),)


def refusal(sch: Schedule, op: str, *args, **options) -> IngotError:
    before = sch.kernel
    with pytest.raises(IngotError) as caught:
        getattr(sch, op)(*args, **options)
    assert caught.value.code == "bad-schedule" and sch.kernel is before
    return caught.value


def blocks(sch: Schedule) -> list[str]:
    return [b.name for b in visit.blocks(sch.kernel.body)]


def read_by(sch: Schedule, name: str) -> set[str]:
    return visit.read(sch.at_block(sch.block(name)))


def extents(sch: Schedule, name: str) -> list[int | None]:
    return [arith.as_int(sch.at_loop(x).extent) for x in sch.loops(sch.block(name))]


# cache_read


def test_a_read_goes_through_a_copy():
    kernel = matmul(7, 20, 5)
    sch = Schedule(kernel)
    made = sch.cache_read(sch.block("Y"), "A", "thread")
    assert made.name == "A_thread" and blocks(sch) == ["A_thread", "Y", "Z"]
    assert read_by(sch, "Y") == {"A_thread", "B", "Y"}
    assert read_by(sch, "A_thread") == {"A"}
    assert_everywhere(kernel, sch)


def test_only_the_given_block_reads_the_copy():
    kernel = softmax(5, 11)
    sch = Schedule(kernel)
    sch.cache_read(sch.block("top"), "X")
    assert read_by(sch, "top") == {"X_global", "top"} and "X" in read_by(sch, "power")
    assert_everywhere(kernel, sch)


def test_a_copy_comes_after_the_writer():
    kernel = elementwise(4, 6)
    sch = Schedule(kernel)
    sch.cache_read(sch.block("Z"), "S")
    assert blocks(sch) == ["S", "S_global", "Z"]
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("rows", [20, 19])
def test_a_copy_moved_to_a_tile_covers_the_tile(rows):
    kernel = matmul(rows, 16, 5)
    sch = Schedule(kernel)
    a = sch.cache_read(sch.block("Y"), "A", "thread")
    outer, _ = sch.split(sch.loops(sch.block("Y"))[0], None, 4)
    sch.compute_at(a, outer)
    assert extents(sch, "A_thread") == [5, 4, 5]
    sch.parallel(outer)
    legal = assert_everywhere(kernel, sch).split[0].kernels[0]
    held = [s.buffer for s in visit.walk_stmts(legal.body) if isinstance(s, ir.Alloc)]
    assert [arith.as_int(b.shape[0]) for b in held if b.name == "A_thread"] == [20]


def test_inside_a_loop_that_writes_it_a_copy_covers_one_iteration():
    kernel = conv1d(20)
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("acc"))[0], None, 5)
    sch.compute_at(sch.block("padded"), outer)
    sch.cache_read(sch.block("acc"), "padded")
    assert extents(sch, "padded_global") == [4, 7]
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("size", [1, 6])
def test_a_guarded_read_stays_guarded(size):
    kernel = conv1d(n, 3, SIZE)
    sch = Schedule(kernel)
    sch.cache_read(sch.block("padded"), "X", "thread")
    assert all(x.mask is not None for x in visit.loads(sch.at_block(sch.block("padded"))))
    assert_everywhere(kernel, sch, {"n": size})


def test_a_copy_may_be_packed_at_once():
    kernel = matmul(7, 20, 5)
    sch = Schedule(kernel)
    made = sch.cache_read(sch.block("Y"), "B", layout=lambda k, j: (j // 8, k, j % 8))
    assert sch.trace.steps[-1].options == (("layout", "k, j -> j // 8, k, j % 8"),)
    assert extents(sch, made.name) == [3, 5, 8]
    assert_everywhere(kernel, sch)


def test_cache_read_refuses_what_the_block_does_not_read():
    error = refusal(sch := Schedule(matmul()), "cache_read", sch.block("Z"), "A")
    check_step(error, "cache_read(Z, 'A', 'global')", "Z", "A", hint=("Y", "bias"))
    assert "← here" in error.where


def test_cache_read_refuses_an_output():
    error = refusal(sch := Schedule(matmul()), "cache_read", sch.block("Y"), "Y")
    check_step(error, "cache_read(Y, 'Y', 'global')", "Y", hint="cache_write")


def test_cache_read_refuses_inside_a_vector():
    sch = Schedule(elementwise(4, 8))
    sch.vectorize(sch.loops(sch.block("Z"))[1])
    error = refusal(sch, "cache_read", sch.block("Z"), "S")
    check_step(error, "cache_read(Z, 'S', 'global')", "i_4", "vector")


def test_cache_read_refuses_a_thread_scope_outside_the_parallel_loop():
    sch = Schedule(matmul(8, 8, 8))
    sch.parallel(sch.loops(sch.block("Y"))[0])
    error = refusal(sch, "cache_read", sch.block("Y"), "A", "thread")
    check_step(error, "cache_read(Y, 'A', 'thread')", "A_thread", "thread", hint="global")


# cache_write


@pytest.mark.parametrize("block", ["Y", "Z"])
def test_an_output_goes_through_a_copy(block):
    kernel = matmul(7, 20, 5)
    sch = Schedule(kernel)
    out = sch.cache_write(sch.block(block), "thread")
    assert out.name == f"{block}_out" and read_by(sch, out.name) == {f"{block}_thread"}
    assert visit.written(sch.at_block(sch.block(block))) == {f"{block}_thread"}
    assert_everywhere(kernel, sch)


def test_a_copy_out_is_fused_into_the_tile():
    kernel = matmul(8, 20, 5)
    sch = Schedule(kernel)
    out = sch.cache_write(sch.block("Y"), "register")
    i, j, k = sch.loops(sch.block("Y"))
    io, ii = sch.split(i, None, 4)
    jo, ji = sch.split(j, None, 4)
    sch.reorder(io, jo, k, ii, ji)
    sch.reverse_compute_at(out, jo)
    for loop in (ii, *sch.loops(out)[2:3]):
        sch.unroll(loop)
    sch.vectorize(ji)
    sch.vectorize(sch.loops(out)[3])
    sch.parallel(io)
    legal = assert_everywhere(kernel, sch).split[0].kernels[0]
    held = [s.buffer for s in visit.walk_stmts(legal.body) if isinstance(s, ir.Alloc)]
    assert [(b.scope, arith.as_int(b.shape[0])) for b in held] == [("register", 16)]


def test_inside_a_loop_a_copy_out_covers_the_tile():
    kernel = matmul(7, 20, 5)
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("Y"))[0], None, 4)
    sch.reverse_compute_at(sch.block("Z"), outer)
    sch.cache_write(sch.block("Z"))
    assert extents(sch, "Z_out") == [2, 4, 20]
    assert_everywhere(kernel, sch)


def test_one_of_two_outputs():
    b = Build("pair")
    x = b.param("X", f32, (3, 7))
    start = [ir.Lit(0.0, f32), ir.Lit(1.0, f32)]
    outs = b.fold(["s", "p"], (3,), (7,), start, lambda i, k, s, p: [s + x[i, k], p * x[i, k]])
    kernel = b.finish(outs)
    sch = Schedule(kernel)
    error = refusal(sch, "cache_write", sch.block("s"))
    check_step(error, "cache_write(s, 'global')", "p", "s", hint="buffer=")
    sch.cache_write(sch.block("s"), buffer="p")
    assert visit.written(sch.at_block(sch.block("s"))) == {"s", "p_global"}
    assert_everywhere(kernel, sch)


def test_cache_write_refuses_a_scan():
    sch = Schedule(cumsum())
    error = refusal(sch, "cache_write", sch.block("out"))
    check_step(error, "cache_write(out, 'global')", "out")


def test_cache_write_refuses_a_second_writer():
    sch = Schedule(matmul())
    sch.decompose_reduction(sch.block("Y"), sch.loops(sch.block("Y"))[0])
    error = refusal(sch, "cache_write", sch.block("Y"))
    check_step(error, "cache_write(Y, 'global')", "Y_init", "Y")


def test_cache_write_refuses_a_part_of_the_buffer():
    b = Build("half")
    x, z = b.param("X", f32, (8,)), b.buffer("Z", f32, (8,))
    v = arith.Var("v")
    axis = ir.Axis("v", ir.AxisKind.SPATIAL, arith.Const(4), arith.Var("i"))
    b.emit(ir.serial("i", 4, ir.Block("Z", (axis,), ir.Store(z, (v,), x[v]))))
    error = refusal(sch := Schedule(b.finish([z])), "cache_write", sch.block("Z"))
    check_step(error, "cache_write(Z, 'global')", "Z", "v", 4, 8)


# reindex


def strided(taps: int = 3) -> ir.Kernel:
    b = Build("strided")
    x, w = b.param("X", f32, (20,)), b.param("W", f32, (taps,))
    acc = b.reduce("acc", (8,), (taps,), "add", lambda i, t: x[i * 2 + t] * w[t])
    return b.finish([b.compute("Z", (8,), lambda i: relu(acc[i]))])


def test_a_block_reads_at_its_own_axes():
    kernel = strided()
    sch = Schedule(kernel)
    made = sch.reindex(sch.block("acc"), "X")
    assert extents(sch, made.name) == [8, 3]
    loads = [x for x in visit.loads(sch.at_block(sch.block("acc"))) if x.buffer.name == made.name]
    assert [[str(i) for i in x.indices] for x in loads] == [["vi", "vk"]]
    outer, _ = sch.split(sch.loops(sch.block("acc"))[0], None, 3)
    sch.compute_at(made, outer)
    assert_everywhere(kernel, sch)


def test_the_guard_of_a_load_moves_to_the_stage():
    kernel = conv1d(9)
    sch = Schedule(kernel)
    sch.compute_inline(sch.block("padded"))
    sch.cache_read(sch.block("acc"), "X")
    made = sch.reindex(sch.block("acc"), "X_global")
    assert all(x.mask is not None for x in visit.loads(sch.at_block(made)))
    assert all(x.mask is None for x in visit.loads(sch.at_block(sch.block("acc"))))
    assert_everywhere(kernel, sch)


def test_a_block_writes_at_its_own_axes():
    b = Build("spread")
    x, z = b.param("X", f32, (4, 3)), b.buffer("Z", f32, (12,))
    vi, vj = arith.Var("vi"), arith.Var("vj")
    axes = tuple(
        ir.Axis(name, ir.AxisKind.SPATIAL, arith.Const(size), arith.Var(name[1:]))
        for name, size in (("vi", 4), ("vj", 3))
    )
    store = ir.Store(z, (vi * 3 + vj,), x[vi, vj] * 2.0)
    b.emit(ir.serial("i", 4, ir.serial("j", 3, ir.Block("Z", axes, store))))
    kernel = b.finish([z])
    sch = Schedule(kernel)
    out = sch.reindex(sch.block("Z"), "Z")
    assert out.name == "Z_out" and extents(sch, "Z_out") == [4, 3]
    assert_everywhere(kernel, sch)


def test_reindex_of_a_gather_reads_what_it_needs():
    b = Build("gather")
    x, at = b.param("X", f32, (3, 4)), b.param("at", dtypes.i64, (5,))
    kernel = b.finish([b.compute("Z", (5, 4), lambda i, j: x[at[i], j] + 1.0)])
    sch = Schedule(kernel)
    sch.reindex(sch.block("Z"), "X")
    assert read_by(sch, "Z") == {"X_reindex"}
    assert_everywhere(kernel, sch)


def test_reindex_refuses_two_indices():
    b = Build("two")
    x = b.param("X", f32, (9,))
    sch = Schedule(b.finish([b.compute("Z", (8,), lambda i: x[i] + x[i + 1])]))
    error = refusal(sch, "reindex", sch.block("Z"), "X")
    check_step(error, "reindex(Z, 'X')", "Z", "X", 2, hint="cache_read")


def test_reindex_refuses_an_index_shared_by_instances():
    b = Build("fold")
    x, z = b.param("X", f32, (6,)), b.buffer("Z", f32, (3,))
    v = arith.Var("v")
    axis = ir.Axis("v", ir.AxisKind.SPATIAL, arith.Const(6), arith.Var("i"))
    b.emit(ir.serial("i", 6, ir.Block("Z", (axis,), ir.Store(z, (v // 2,), x[v]))))
    error = refusal(sch := Schedule(b.finish([z])), "reindex", sch.block("Z"), "Z")
    check_step(error, "reindex(Z, 'Z')", "[v // 2]", "v")
