"""decompose_reduction, rfactor, and the reducers they know."""

import pytest

from ingot import dtypes
from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import Build, identity
from ingot.schedule import Schedule, reducers
from ingot.support.errors import IngotError
from tests.schedule.common import check_step, conv1d, cumsum, f32, matmul, softmax
from tests.schedule.equivalence import assert_everywhere
from tests.schedule.test_caches import extents, refusal

n = arith.Var("n")


# decompose_reduction


@pytest.mark.parametrize("where", [0, 1, 2])
def test_an_init_before_any_loop_of_the_reduction(where):
    kernel = matmul(7, 10, 5)
    sch = Schedule(kernel)
    loops = sch.loops(sch.block("Y"))
    made = sch.decompose_reduction(sch.block("Y"), loops[where])
    assert made.name == "Y_init" and len(extents(sch, "Y_init")) == 2
    block = sch.at_block(sch.block("Y"))
    assert block.init is None and dict(block.annotations)[ir.ACCUMULATES] is True
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize(("rows", "depth"), [(8, 6), (7, 5)])
def test_an_init_of_tiles(rows, depth):
    kernel = matmul(rows, 10, depth)
    sch = Schedule(kernel)
    i, j, k = sch.loops(sch.block("Y"))
    io, ii = sch.split(i, None, 4)
    ko, ki = sch.split(k, None, 2)
    sch.reorder(io, ko, ki, ii, j)
    sch.decompose_reduction(sch.block("Y"), ko)
    assert extents(sch, "Y_init") == [2, 4, 10]
    sch.parallel(io)
    sch.vectorize(sch.loops(sch.block("Y_init"))[2])
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("size", [1, 6])
def test_an_init_over_a_symbolic_reduction(size):
    kernel = matmul(4, 6, n, [ir.Size("n", 1)])
    sch = Schedule(kernel)
    sch.split(sch.loops(sch.block("Y"))[2], None, 4)
    sch.decompose_reduction(sch.block("Y"), sch.loops(sch.block("Y"))[2])
    assert_everywhere(kernel, sch, {"n": size})


def test_decompose_refuses_a_loop_inside_the_reduction():
    sch = Schedule(matmul())
    i, _, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i)
    error = refusal(sch, "decompose_reduction", sch.block("Y"), i)
    check_step(error, "decompose_reduction(Y, i)", "k", hint="k")


def test_decompose_refuses_a_loop_of_another_block():
    sch = Schedule(matmul())
    error = refusal(sch, "decompose_reduction", sch.block("Y"), sch.loops(sch.block("Z"))[0])
    check_step(error, "decompose_reduction(Y, i_3)", "i_3", "Y")


def test_decompose_refuses_what_has_no_init():
    sch = Schedule(matmul())
    error = refusal(sch, "decompose_reduction", sch.block("Z"), sch.loops(sch.block("Z"))[0])
    check_step(error, "decompose_reduction(Z, i_3)", "Z", "init")


@pytest.mark.parametrize(
    ("depth", "part", "ends_early"), [(7, 4, False), (9, 5, False), (7, 8, True)]
)
def test_decompose_chunks_of_a_reduction_with_a_short_last_one(depth, part, ends_early):
    """Sums of a chunk start with its first iteration, so that it must exist."""
    sch = Schedule(kernel := matmul(3, 8, depth))
    k = sch.loops(sch.block("Y"))[2]
    parts, inner = sch.split(k, 2 if ends_early else None, part)
    made = sch.rfactor(parts)
    inner = sch.loops(made)[-1]
    if ends_early:  # all iterations of the second chunk are beyond the end
        error = refusal(sch, "decompose_reduction", made, inner)
        check_step(error, "decompose_reduction(Y_rf, k_1)", "guard")
    else:
        sch.decompose_reduction(made, inner)
    assert_everywhere(kernel, sch)


def test_decompose_refuses_overlapping_tiles():
    """Each iteration computes its part of the sums again, neighbours included."""
    sch = Schedule(halo())
    outer, _ = sch.split(sch.loops(sch.block("Z"))[0], None, 4)
    sch.compute_at(sch.block("S"), outer)
    error = refusal(sch, "decompose_reduction", sch.block("S"), outer)
    check_step(error, "decompose_reduction(S, i_2_0)", "i_2_0", "S", hint="i_2_0")
    inner = sch.loops(sch.block("S"))[1]
    sch.decompose_reduction(sch.block("S"), inner)
    assert_everywhere(halo(), sch)


def halo() -> ir.Kernel:
    b = Build("halo")
    x = b.param("X", f32, (12, 3))
    s = b.reduce("S", (12,), (3,), "add", lambda i, k: x[i, k])
    return b.finish([b.compute("Z", (8,), lambda i: s[i] + s[i + 2])])


# rfactor


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("depth", [8, 7])
def test_partial_sums_along_a_split(axis, depth):
    kernel = matmul(3, 5, depth)
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("Y"))[2], None, 4)
    made = sch.rfactor(outer, axis)
    assert made.name == "Y_rf" and sch.loops(made)[2] == outer
    assert extents(sch, "Y") == [3, 5, 2] and extents(sch, "Y_rf") == [3, 5, 2, 4]
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize(("axis", "rows", "depth"), [(0, 8, 8), (2, 7, 8), (1, 8, 7)])
def test_a_partial_sum_is_added_within_its_loop(axis, rows, depth):
    kernel = matmul(rows, 5, depth)
    sch = Schedule(kernel)
    i, j, k = sch.loops(sch.block("Y"))
    io, ii = sch.split(i, None, 4)
    ko, ki = sch.split(k, None, 3 if depth % 2 else 4)
    sch.reorder(io, ko, ki, ii, j)
    made = sch.rfactor(ko, axis, within=True)
    assert sch.loops(made) == [io, ko, ki, ii, j]
    assert sch.loops(sch.block("Y"))[:2] == [io, ko] and len(extents(sch, "Y")) == 4
    sch.parallel(io)
    sch.vectorize(j)
    sch.unroll(ii)
    assert_everywhere(kernel, sch)


def test_the_innermost_loop_of_a_sum_within_itself():
    kernel = matmul(4, 5, 6)
    sch = Schedule(kernel)
    sch.rfactor(sch.loops(sch.block("Y"))[2], within=True)
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_partial_sums_of_a_dynamic_length_within_their_loop(size):
    kernel = matmul(4, 6, n, [ir.Size("n", 1)])
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("Y"))[2], None, 4)
    sch.rfactor(outer, within=True)
    assert_everywhere(kernel, sch, {"n": size})


def test_rfactor_within_a_loop_refuses_what_it_does_not_complete():
    sch = Schedule(matmul(4, 6, 8))
    k = sch.loops(sch.block("Y"))[2]
    ko, ki = sch.split(k, None, 4)
    sch.reorder(ki, ko)
    error = refusal(sch, "rfactor", ko, 0, True)
    check_step(error, "rfactor(k_0, 0)", "k_1")


def test_rfactor_of_lanes():
    """The usual way to a vector reduction: partial sums by lane, then a sum over lanes."""
    kernel = softmax(4, 21)
    sch = Schedule(kernel)
    _, lane = sch.split(sch.loops(sch.block("total"))[1], None, 8)
    made = sch.rfactor(lane)
    sch.compute_at(made, sch.loops(sch.block("total"))[0])
    loops = sch.loops(made)
    sch.reorder(loops[-1], loops[1])
    sch.vectorize(loops[1])
    assert_everywhere(kernel, sch)


def test_every_loop_of_the_reduction_at_once():
    kernel = conv1d(9)
    sch = Schedule(kernel)
    sch.rfactor(sch.loops(sch.block("acc"))[1])
    block = sch.at_block(sch.block("acc_rf"))
    assert block.init is None and all(a.kind is ir.AxisKind.SPATIAL for a in block.axes)
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("op", reducers.OPERATORS)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.i32])
def test_every_operator(op, dtype):
    if dtype.is_float and op in ("and", "or", "xor"):
        return
    b = Build(op)
    x = b.param("X", dtype, (3, 11))
    y = b.reduce("Y", (3,), (11,), op, lambda i, k: x[i, k])
    kernel = b.finish([b.compute("Z", (3,), lambda i: y[i])])
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("Y"))[1], None, 4)
    sch.rfactor(outer)
    assert_everywhere(kernel, sch)


def test_a_reduction_whose_init_is_not_the_identity():
    b = Build("bias")
    x, c = b.param("X", f32, (3, 8)), b.param("c", f32, (3,))
    y = b.buffer("Y", f32, (3,))
    vi, vk = arith.Var("vi"), arith.Var("vk")
    axes = (
        ir.Axis("vi", ir.AxisKind.SPATIAL, arith.Const(3), arith.Var("i")),
        ir.Axis("vk", ir.AxisKind.REDUCE, arith.Const(8), arith.Var("k")),
    )
    body = ir.Store(y, (vi,), ir.Fma(x[vi, vk], x[vi, vk], y[vi]))
    block = ir.Block("Y", axes, body, ir.Store(y, (vi,), c[vi]))
    b.emit(ir.serial("i", 3, ir.serial("k", 8, block)))
    kernel = b.finish([y])
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("Y"))[1], None, 4)
    sch.rfactor(outer)
    starts = [s.value for s in visit.stores(sch.at_block(sch.block("Y_rf")).init)]
    assert starts == [identity("add", f32)]
    assert_everywhere(kernel, sch)


def argmax(ties: str = "lt", rows: int = 4, cols: int = 9) -> ir.Kernel:
    b = Build("argmax")
    x = b.param("X", dtypes.i32, (rows, cols))

    def better(i, k, value, place):
        here, at = x[i, k], ir.Index(k)
        wins = ir.Compare("gt", here, value)
        if ties:
            wins = wins | (ir.Compare("eq", here, value) & ir.Compare(ties, at, place))
        return [ir.Select(wins, here, value), ir.Select(wins, at, place)]

    start = [identity("max", dtypes.i32), ir.Lit(0, dtypes.i64)]
    return b.finish(b.fold(["best", "place"], (rows,), (cols,), start, better))


@pytest.mark.parametrize("ties", ["lt", "gt"])
@pytest.mark.parametrize("which", [0, 1])
def test_argmax_is_a_select_reducer(ties, which):
    kernel = argmax(ties)
    sch = Schedule(kernel)
    parts = sch.split(sch.loops(sch.block("best"))[1], None, 4)
    made = sch.rfactor(parts[which])
    assert visit.written(sch.at_block(made)) == {"best_rf", "place_rf"}
    assert_everywhere(kernel, sch)


def test_two_sums_at_once():
    b = Build("moments")
    x = b.param("X", f32, (3, 10))
    start = [ir.Lit(0.0, f32), ir.Lit(0.0, f32)]
    update = lambda i, k, s, q: [s + x[i, k], q + x[i, k] * x[i, k]]  # noqa: E731
    kernel = b.finish(b.fold(["s", "q"], (3,), (10,), start, update))
    sch = Schedule(kernel)
    outer, _ = sch.split(sch.loops(sch.block("s"))[1], None, 4)
    sch.rfactor(outer, 1)
    assert_everywhere(kernel, sch)


def why_not(kernel: ir.Kernel, block: str, loop: int, axis: int = 0) -> IngotError:
    sch = Schedule(kernel)
    return refusal(sch, "rfactor", sch.loops(sch.block(block))[loop], axis)


def test_rfactor_refuses_an_order_dependent_select():
    """The first of equal values in program order: partial results have no order."""
    error = why_not(argmax(""), "best", 1)
    check_step(error, "rfactor(k, 0)", "best", hint=("op(acc, x)", "add", "mul", "min"))


def test_rfactor_refuses_unknown_reducers():
    b = Build("horner")
    x = b.param("X", f32, (3, 8))
    update = lambda i, k, acc: [acc * 0.5 + x[i, k]]  # noqa: E731
    kernel = b.finish(b.fold(["y"], (3,), (8,), [ir.Lit(0.0, f32)], update))
    error = why_not(kernel, "y", 1)
    check_step(error, "rfactor(k, 0)", "y", hint=("op(acc, x)", "add", "mul", "min"))


@pytest.mark.parametrize(
    ("make", "block", "loop", "axis", "step", "why"),
    [
        (matmul, "Y", 0, 0, "rfactor(i, 0)", ("i", "reduce", "Y")),
        (matmul, "Y", 2, 5, "rfactor(k, 5)", (5,)),
        (cumsum, "out", 1, 0, "rfactor(t, 0)", ("vt", "out", "ordered")),
    ],
)
def test_rfactor_refuses(make, block, loop, axis, step, why):
    check_step(why_not(make(), block, loop, axis), step, *why)


def test_rfactor_refuses_non_serial_and_imperfect_loops():
    sch = Schedule(matmul(8, 8, 8))
    i, _, k = sch.loops(sch.block("Y"))
    sch.parallel(i)
    check_step(refusal(sch, "rfactor", k), "rfactor(k, 0)", "i", 0)
    sch = Schedule(matmul(8, 8, 8))
    i = sch.loops(sch.block("Y"))[0]
    sch.reverse_compute_at(sch.block("Z"), i)
    check_step(refusal(sch, "rfactor", i), "rfactor(i, 0)", 2, "i")


@pytest.mark.parametrize("size", [1, 5, 8, 19])
def test_partial_results_of_dynamic_rows_stay_under_the_row_loop(size):
    """Lanes beyond a short row are neither initialised nor read: both have the same guard."""
    kernel = softmax(6, n, [ir.Size("n", 1)])
    sch = Schedule(kernel)
    row = sch.loops(sch.blocks()[-1])[0]
    for name in [ref.name for ref in sch.blocks() if sch.at_block(ref).init is not None]:
        _, lane = sch.split(sch.loops(sch.block(name))[-1], None, 8)
        sch.rfactor(lane, axis=1)
    for ref in reversed(sch.blocks()[:-1]):
        sch.compute_at(ref, row)
    sch.parallel(row)
    assert all(sch.loops(ref)[0] == row for ref in sch.blocks())
    assert_everywhere(kernel, sch, {"n": size})
