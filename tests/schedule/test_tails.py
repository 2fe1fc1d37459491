"""split's tails: mask, peel, shift, pad. What each makes, and when it is refused."""

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.build import Build
from ingot.loops.script_parse import parse
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.schedule.common import (
    check_step,
    conv1d,
    cumsum,
    elementwise,
    f32,
    matmul,
    refused_step,
)
from tests.schedule.equivalence import assert_everywhere

n = arith.Var("n")


def extents(sch: Schedule, name: str) -> list[str]:
    return [str(sch.at_loop(x).extent) for x in sch.loops(sch.block(name))]


def refusal(sch: Schedule, *args, **options) -> IngotError:
    before = sch.kernel
    with pytest.raises(IngotError) as caught:
        sch.split(*args, **options)
    assert caught.value.code == "bad-schedule" and sch.kernel is before
    return caught.value


# mask


@pytest.mark.parametrize("size", [1, 8, 11])
def test_a_masked_tail_has_no_branch_on_whole_vectors(size):
    def kernel(tail):
        sch = Schedule(elementwise(2, n, [ir.Size("n", 1)]))
        sch.compute_inline(sch.block("S"))
        _, lane = sch.split(sch.loops(sch.block("Z"))[1], None, 8, tail=tail)
        sch.vectorize(lane)
        return sch

    plain = elementwise(2, n, [ir.Size("n", 1)])
    masked = assert_everywhere(plain, kernel("mask"), {"n": size}).split[0].kernels[0]
    guarded = assert_everywhere(plain, kernel("guard"), {"n": size}).split[0].kernels[0]
    assert [s.mask is None for s in visit.stores(masked.body)] == [False]
    assert sorted(s.mask is None for s in visit.stores(guarded.body)) == [False, True]
    assert not any(isinstance(s, ir.If) for s in visit.walk_stmts(masked.body))


# peel


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_peeled_tail_is_a_copy_without_guards(which):
    kernel = matmul(7, 11, 10)
    sch = Schedule(kernel)
    loop = sch.loops(sch.block("Y"))[which]
    extent = arith.as_int(sch.at_loop(loop).extent)
    outer, _ = sch.split(loop, None, 4, tail="peel")
    assert str(sch.at_loop(outer).extent) == str(extent // 4)
    assert str(extent % 4) in extents(sch, "Y_tail")
    assert sch.at_block(sch.block("Y")).where is None
    assert sch.at_block(sch.block("Y_tail")).where is None
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("which", [0, 2])
def test_a_peeled_tail_of_a_dynamic_loop(which):
    sizes = [ir.Size("n", 1)]
    kernel = matmul(n, 5, 3, sizes) if which == 0 else matmul(3, 5, n, sizes)
    sch = Schedule(kernel)
    sch.split(sch.loops(sch.block("Y"))[which], None, 4, tail="peel")
    assert_everywhere(kernel, sch, *({"n": k} for k in (1, 3, 4, 7, 8)))


def test_a_peeled_tail_of_a_whole_split_is_none():
    sch = Schedule(matmul(8, 4, 4))
    sch.split(sch.loops(sch.block("Y"))[0], None, 4, tail="peel")
    assert [b.name for b in sch.blocks()] == ["Y", "Z"]


def test_a_reduction_continued_in_its_tail_has_one_init():
    kernel = matmul(4, 6, 10)
    sch = Schedule(kernel)
    sch.split(sch.loops(sch.block("Y"))[2], None, 4, tail="peel")
    assert sch.at_block(sch.block("Y")).init is not None
    assert sch.at_block(sch.block("Y_tail")).init is None


def test_both_parts_of_a_peeled_row_may_be_vectors_under_a_parallel_loop():
    kernel = elementwise(5, 19)
    sch = Schedule(kernel)
    sch.compute_inline(sch.block("S"))
    i, j = sch.loops(sch.block("Z"))
    _, lane = sch.split(j, None, 8, tail="peel")
    sch.vectorize(lane)
    sch.vectorize(sch.loops(sch.block("Z_tail"))[-1])
    sch.parallel(i)
    legal = assert_everywhere(kernel, sch).split[0].kernels[0]
    assert sorted(s.value.lanes for s in visit.stores(legal.body)) == [3, 8]
    assert all(s.mask is None for s in visit.stores(legal.body))


def test_a_peeled_tail_needs_room_for_its_count():
    sch = Schedule(matmul(7, 4, 4))
    error = refusal(sch, sch.loops(sch.block("Y"))[0], 2, None, tail="peel")
    check_step(error, 'split(i, 2, None, tail="peel")', hint="None")


def test_a_tail_that_cannot_be_guarded_can_be_peeled():
    text = """
    @ingot.kernel
    def counted(X: f32[7], Z: f32[7]):
        for i in serial(7):
            if index(i) >= 1:
                with block("Z", spatial=(i,)) as (vi,):
                    Z[vi] = X[vi]
    """
    sch = Schedule(parse(text))
    loop = sch.loops(sch.block("Z"))[0]
    error = refusal(sch, loop, None, 4)
    check_step(error, "split(i, None, 4)", "If", hint='tail="peel"')
    sch.split(loop, None, 4, tail="peel")
    assert_everywhere(parse(text), sch)


# shift


@pytest.mark.parametrize("which", [0, 1])
def test_a_shifted_tail_computes_some_points_twice(which):
    kernel = matmul(7, 11, 5)
    sch = Schedule(kernel)
    sch.split(sch.loops(sch.block("Y"))[which], None, 4, tail="shift")
    assert sch.at_block(sch.block("Y")).where is None
    assert_everywhere(kernel, sch)


def test_a_shifted_tail_under_a_parallel_loop_in_whole_vectors():
    kernel = elementwise(6, n, [ir.Size("n", 8)])
    sch = Schedule(kernel)
    sch.compute_inline(sch.block("S"))
    i, j = sch.loops(sch.block("Z"))
    _, lane = sch.split(j, None, 8, tail="shift")
    sch.vectorize(lane)
    sch.parallel(i)
    batch = assert_everywhere(kernel, sch, {"n": 8}, {"n": 13}, {"n": 16})
    (store,) = visit.stores(batch.split[0].kernels[0].body)
    assert store.value.lanes == 8 and store.mask is None


def test_shifted_tiles_are_not_parallel():
    sch = Schedule(elementwise(6, 11))
    outer, _ = sch.split(sch.loops(sch.block("Z"))[1], None, 4, tail="shift")
    with refused_step("parallel(i_4_0)", "Z", "i_4_0"):
        sch.parallel(outer)


def test_shift_refuses_a_reduction_over_the_loop():
    sch = Schedule(matmul(4, 4, 7))
    error = refusal(sch, sch.loops(sch.block("Y"))[2], None, 4, tail="shift")
    check_step(error, 'split(k, None, 4, tail="shift")', "k", "Y", hint='tail="guard"')


def test_shift_refuses_a_reduction_around_the_loop():
    sch = Schedule(matmul(7, 4, 4))
    i, j, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i, j)
    error = refusal(sch, i, None, 4, tail="shift")
    check_step(error, 'split(i, None, 4, tail="shift")', "k", "Y", hint='tail="guard"')


def test_shift_refuses_a_part_that_only_accumulates():
    sch = Schedule(matmul(7, 4, 6))
    i, j, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i, j)
    _, rest = sch.peel(k, 2)
    i, j = sch.loops(sch.block("Y_tail"))[1:]
    sch.reorder(i, j, rest)
    error = refusal(sch, i, None, 4, tail="shift")
    check_step(error, 'split(i_5, None, 4, tail="shift")', "Y_tail", hint='tail="guard"')


def test_shift_refuses_what_is_changed_in_place():
    text = """
    @ingot.kernel
    def twice(X: f32[7]):
        for i in serial(7):
            with block("X", spatial=(i,)) as (vi,):
                X[vi] = X[vi] * 2.0
    """
    sch = Schedule(parse(text))
    error = refusal(sch, sch.loops(sch.block("X"))[0], None, 4, tail="shift")
    check_step(error, 'split(i, None, 4, tail="shift")', "X", hint='tail="guard"')


def test_shift_refuses_ordered_axes():
    sch = Schedule(cumsum(7, 3))
    error = refusal(sch, sch.loops(sch.block("out"))[0], None, 4, tail="shift")
    check_step(error, 'split(i, None, 4, tail="shift")', "vt", "out", "ordered")


def test_shift_refuses_a_loop_that_may_be_shorter_than_a_tile():
    sch = Schedule(elementwise(n, 3, [ir.Size("n", 1)]))
    error = refusal(sch, sch.loops(sch.block("Z"))[0], None, 4, tail="shift")
    check_step(error, 'split(i_3, None, 4, tail="shift")', "n", 4, hint='tail="guard"')


# pad


@pytest.mark.parametrize("size", [1, 4, 5, 9])
def test_a_padded_tail_grows_intermediates(size):
    kernel = conv1d(n, 3, [ir.Size("n", 1)])
    sch = Schedule(kernel)
    sch.split(sch.loops(sch.block("acc"))[0], None, 4, tail="pad")
    sch.split(sch.loops(sch.block("padded"))[0], None, 4, tail="pad")
    shapes = {
        s.buffer.name: [arith.evaluate(d, {"n": 5}) for d in s.buffer.shape]
        for s in visit.walk_stmts(sch.kernel.body)
        if isinstance(s, ir.Alloc)
    }
    assert shapes == {"padded": [11], "acc": [8]}  # padded is read up to 7 + 2, and rounded up
    assert all(sch.at_block(b).where is None for b in sch.blocks()[:2])
    assert_everywhere(kernel, sch, {"n": size})


def test_a_padded_loop_may_be_a_vector_without_masks():
    kernel = conv1d(13)
    sch = Schedule(kernel)
    (i, k) = sch.loops(sch.block("acc"))
    outer, lane = sch.split(i, None, 8, tail="pad")
    sch.reorder(outer, k, lane)
    sch.vectorize(lane)
    legal = assert_everywhere(kernel, sch).split[0].kernels[1]
    assert {s.value.lanes for s in visit.stores(legal.body)} == {8}
    assert all(s.mask is None for s in visit.stores(legal.body))


@pytest.mark.parametrize(
    ("which", "loop", "why"),
    [
        (0, "i", ("A", 7)),
        (1, "i_2", ("B", 6)),
        (2, "k", ("reduce", "vk", "Y")),
    ],
)
def test_pad_refuses_what_has_no_room(which, loop, why):
    sch = Schedule(matmul(7, 6, 5))
    error = refusal(sch, sch.loops(sch.block("Y"))[which], None, 4, tail="pad")
    check_step(error, f'split({loop}, None, 4, tail="pad")', *why, hint='tail="guard"')


def test_pad_refuses_overwriting_other_elements():
    b = Build("halves")
    x = b.param("X", f32, (3, 4))
    y = b.buffer("Y", f32, (6, 4))
    for name, base in (("low", 0), ("high", 3)):
        axes = tuple(
            ir.Axis(f"v{name}{d}", ir.AxisKind.SPATIAL, arith.Const(size), arith.Var(f"{name}{d}"))
            for d, size in enumerate((3, 4))
        )
        i, j = (arith.Var(a.var) for a in axes)
        block = ir.Block(name, axes, ir.Store(y, (i + base, j), x[i, j] * 0.0 + float(base)))
        b.emit(ir.serial(f"{name}0", 3, ir.serial(f"{name}1", 4, block)))
    z = b.compute("Z", (6, 4), lambda i, j: y[i, j])
    sch = Schedule(b.finish([z]))
    sch.cache_read(sch.block("low"), "X")
    error = refusal(sch, sch.loops(sch.block("low"))[0], None, 2, tail="pad")
    check_step(error, 'split(low0, None, 2, tail="pad")', "low", "Y", hint='tail="guard"')


def test_pad_refuses_loaded_indices():
    b = Build("gather")
    x, at = b.param("X", f32, (3,)), b.param("at", ir.dtypes.i64, (7,))
    y = b.compute("Y", (7,), lambda i: x[ir.index_of(at[i])])
    z = b.compute("Z", (7,), lambda i: y[i])
    sch = Schedule(b.finish([z]))
    error = refusal(sch, sch.loops(sch.block("Y"))[0], None, 4, tail="pad")
    check_step(error, 'split(i, None, 4, tail="pad")', "X", hint='tail="guard"')


def test_an_unknown_tail():
    sch = Schedule(matmul(7, 6, 5))
    error = refusal(sch, sch.loops(sch.block("Y"))[0], None, 4, tail="cut")
    tails = ("guard", "mask", "peel", "shift", "pad", "none")
    check_step(error, 'split(i, None, 4, tail="cut")', "'cut'", hint=tails)
