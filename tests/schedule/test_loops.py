"""split, reorder, fuse: legal and illegal cases."""

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.build import Build
from ingot.schedule import Schedule
from tests.refusal import refused
from tests.schedule.common import (
    assert_same,
    cumsum,
    elementwise,
    f32,
    matmul,
    refused_step,
    softmax,
)

n = arith.Var("n")


def vars_of(sch: Schedule, name: str) -> list[str]:
    return [loop.name for loop in sch.loops(sch.block(name))]


# split


def test_split_that_divides_has_no_guard():
    kernel = matmul(8, 20, 6)
    sch = Schedule(kernel)
    i, _, k = sch.loops(sch.block("Y"))
    sch.split(i, None, 4, tail="none")
    sch.split(k, 2, 3)
    assert sch.at_block(sch.block("Y")).where is None
    assert vars_of(sch, "Y") == ["i_0", "i_1", "i_2", "k_0", "k_1"]
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize("factors", [(None, 4), (3, 3), (None, 2, 2), (None, 50)])
def test_split_with_a_tail_is_guarded(factors):
    kernel = matmul(7, 5, 7)
    sch = Schedule(kernel)
    i, _, k = sch.loops(sch.block("Y"))
    sch.split(i, *factors)
    sch.split(k, *factors)
    assert sch.at_block(sch.block("Y")).where is not None
    assert_same(kernel, sch.kernel)


def test_split_of_a_split_with_tails():
    kernel = elementwise(11, 3)
    sch = Schedule(kernel)
    _, inner = sch.split(sch.loops(sch.block("Z"))[0], None, 5)
    sch.split(inner, None, 3)
    assert_same(kernel, sch.kernel)


@pytest.mark.parametrize("size", [1, 4, 7])
def test_split_of_a_symbolic_loop(size):
    kernel = matmul(n, 5, 3, [ir.Size("n")])
    sch = Schedule(kernel)
    sch.split(sch.loops(sch.block("Y"))[0], None, 4)
    assert_same(kernel, sch.kernel, n=size)


def test_split_uses_what_a_size_is_a_multiple_of():
    sch = Schedule(elementwise(n, 3, [ir.Size("n", divisor=8)]))
    sch.split(sch.loops(sch.block("Z"))[0], None, 4, tail="none")
    assert sch.at_block(sch.block("Z")).where is None
    assert_same(elementwise(n, 3, [ir.Size("n", divisor=8)]), sch.kernel, n=16)


def test_split_refuses_a_tail_when_asked():
    sch = Schedule(matmul(100, 4, 4))
    i = sch.loops(sch.block("Y"))[0]
    step, divisors = 'split(i, None, 24, tail="none")', (20, 25, 50)
    with refused_step(step, 24, 100, hint=('tail="guard"', *divisors)) as caught:
        sch.split(i, None, 24, tail="none")
    assert caught.value.what == step
    assert "for i in range(100):  ← here" in caught.value.where


@pytest.mark.parametrize(
    ("factors", "step", "why"),
    [
        ((2, 3), "split(i, 2, 3)", (2, 3, 7)),
        ((None, None), "split(i, None, None)", ("None",)),
        ((4,), "split(i, 4)", ()),
        ((None, 0), "split(i, None, 0)", (1,)),
    ],
)
def test_split_refuses_bad_factors(factors, step, why):
    sch = Schedule(matmul())
    with refused_step(step, *why):
        sch.split(sch.loops(sch.block("Y"))[0], *factors)


def test_split_refuses_a_non_serial_loop():
    sch = Schedule(matmul())
    i = sch.loops(sch.block("Y"))[0]
    sch.unroll(i)
    with refused_step("split(i, None, 2)", "i", "unroll"):
        sch.split(i, None, 2)


# reorder


def test_reorder_moves_reductions_outside():
    kernel = matmul()
    sch = Schedule(kernel)
    i, j, k = sch.loops(sch.block("Y"))
    sch.reorder(k, j, i)
    assert vars_of(sch, "Y") == ["k", "i_2", "i"]
    assert_same(kernel, sch.kernel)


def test_reorder_leaves_loops_between_in_place():
    sch = Schedule(matmul())
    i, _, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i)
    assert vars_of(sch, "Y") == ["k", "i_2", "i"]


def test_reorder_refuses_imperfectly_nested_loops():
    sch = Schedule(softmax())
    i, _ = sch.loops(sch.block("power"))
    j = sch.loops(sch.block("out"))[1]
    with refused_step("reorder(i_2, i_6)", "i_2", "i_6"):
        sch.reorder(i, j)


def test_reorder_refuses_across_a_sequence():
    sch = Schedule(softmax())
    rows, cols = sch.loops(sch.block("out"))
    sch.compute_at(sch.block("total"), rows)
    with refused_step("reorder(i_6, i_5)", "i_5", "i_6"):
        sch.reorder(cols, rows)


def test_reorder_of_ordered_loops():
    kernel = cumsum()
    sch = Schedule(kernel)
    i, t = sch.loops(sch.block("out"))
    to, ti = sch.split(t, 2, 3)
    with refused_step("reorder(t_1, t_0)", "out", "ordered"):
        sch.reorder(ti, to)
    sch.reorder(to, ti, i)
    assert_same(kernel, sch.kernel)


def test_reorder_refuses_loops_whose_bounds_use_each_other():
    b = Build("triangle")
    x, y = b.param("X", f32, (6, 6)), b.param("Y", f32, (6, 6))
    vi, vj = arith.Var("vi"), arith.Var("vj")
    axes = tuple(
        ir.Axis(v, ir.AxisKind.SPATIAL, arith.Const(6), arith.Var(v[1:])) for v in ("vi", "vj")
    )
    block = ir.Block("Y", axes, ir.Store(y, (vi, vj), x[vi, vj]))
    b.emit(ir.serial("i", 6, ir.For("j", arith.Const(0), arith.Var("i") + 1, block)))
    sch = Schedule(b.finish([]))
    i, j = sch.loops(sch.block("Y"))
    with refused_step("reorder(j, i)", "j", "i"):
        sch.reorder(j, i)
    with refused_step("fuse(i, j)", "j", "i"):
        sch.fuse(i, j)


def test_fuse_of_nothing_is_refused_and_changes_nothing():
    sch = Schedule(matmul(8, 20, 6))
    before = sch.kernel
    with refused("bad-schedule", where="fuse", hint="fuse(outer, inner)"):
        sch.fuse()
    assert sch.kernel is before


def test_reorder_refuses_a_loop_that_repeats_a_reduction():
    sch = Schedule(matmul(6, 8, 4))
    j = sch.loops(sch.block("Z"))[1]
    jo, _ = sch.split(j, None, 4)
    sch.reorder(jo, sch.loops(sch.block("Z"))[0])
    i = sch.loops(sch.block("Z"))[1]
    sch.compute_at(sch.block("Y"), i)
    around = sch.loops(sch.block("Y"))
    assert [x.name for x in around[:2]] == ["i_4_0", "i_3"]
    # every loop of the reduction's own nest may still move
    sch.reorder(around[-1], around[-2])
    assert_same(matmul(6, 8, 4), sch.kernel)


def test_reorder_refuses_to_start_a_reduction_in_its_middle():
    sch = Schedule(matmul(2, 3, 5))
    _, j, k = sch.loops(sch.block("Y"))
    outer, inner = sch.split(sch.fuse(j, k), None, 2)
    with refused_step("reorder(i_2_k_1, i_2_k_0)", "Y", "spatial", "reduce"):
        sch.reorder(inner, outer)
    assert_same(matmul(2, 3, 5), sch.kernel)


# fuse


def test_fuse_and_split_again():
    kernel = elementwise(6, 10)
    sch = Schedule(kernel)
    i, j = sch.loops(sch.block("Z"))
    flat = sch.fuse(i, j)
    assert arith.as_int(sch.at_loop(flat).extent) == 60
    sch.split(flat, None, 8)
    assert_same(kernel, sch.kernel)


def test_fuse_undoes_a_split():
    sch = Schedule(elementwise(8, 3))
    io, ii = sch.split(sch.loops(sch.block("Z"))[0], None, 4)
    fused = sch.fuse(io, ii)
    assert sch.at_block(sch.block("Z")).axes[0].binding == arith.Var(fused.name)


@pytest.mark.parametrize("size", [1, 5])
def test_fuse_of_symbolic_loops(size):
    kernel = elementwise(n, 7, [ir.Size("n")])
    sch = Schedule(kernel)
    sch.split(sch.fuse(*sch.loops(sch.block("Z"))), None, 4)
    assert_same(kernel, sch.kernel, n=size)


def test_fuse_refuses_imperfectly_nested_loops():
    sch = Schedule(matmul())
    i, _, k = sch.loops(sch.block("Y"))
    with refused_step("fuse(i, k)", "k", "i"):
        sch.fuse(i, k)
