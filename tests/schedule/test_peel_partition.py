"""peel and partition: one loop becomes two over consecutive ranges."""

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir, visit
from ingot.loops.script_parse import parse
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.refusal import refused
from tests.schedule.common import check_step, conv1d, cumsum, elementwise, matmul, softmax
from tests.schedule.equivalence import assert_everywhere
from tests.schedule.sequences import IN_PLACE

n = arith.Var("n")


def extents(sch: Schedule, name: str) -> list[str]:
    return [str(sch.at_loop(x).extent) for x in sch.loops(sch.block(name))]


def refusal(step, *args, **options) -> IngotError:
    with pytest.raises(IngotError) as caught:
        step(*args, **options)
    assert caught.value.code == "bad-schedule"
    return caught.value


@pytest.mark.parametrize("side", ["end", "start"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_peel_either_side_of_any_loop(which, side):
    kernel = matmul(5, 6, 4)
    sch = Schedule(kernel)
    main, rest = sch.peel(sch.loops(sch.block("Y"))[which], 2, side)
    assert str(sch.at_loop(rest).extent) == "2"
    assert sch.at_loop(main).extent == sch.at_loop(sch.loops(sch.block("Y"))[which]).extent
    assert [b.name for b in sch.blocks()] == (
        ["Y", "Y_tail", "Z"] if side == "end" else ["Y_head", "Y", "Z"]
    )
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize("side", ["end", "start"])
def test_peel_of_a_dynamic_reduction(side):
    kernel = matmul(3, 4, n, [ir.Size("n", 2)])
    sch = Schedule(kernel)
    i, j, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i, j)
    sch.peel(k, 2, side)
    assert_everywhere(kernel, sch, {"n": 2}, {"n": 3}, {"n": 7})


def test_only_the_first_range_of_a_reduction_has_its_init():
    sch = Schedule(matmul(3, 4, 5))
    sch.peel(sch.loops(sch.block("Y"))[2], 1, "start")
    assert sch.at_block(sch.block("Y_head")).init is not None
    assert sch.at_block(sch.block("Y")).init is None


def test_peel_keeps_the_order_of_a_scan():
    kernel = cumsum(3, 6)
    sch = Schedule(kernel)
    sch.peel(sch.loops(sch.block("out"))[1], 2)
    assert_everywhere(kernel, sch)


def test_peel_copies_all_blocks_of_a_row():
    kernel = softmax(6, 5)
    sch = Schedule(kernel)
    row = sch.loops(sch.block("out"))[0]
    for name in ("total", "power", "top"):
        sch.compute_at(sch.block(name), row)
    main, rest = sch.peel(row, 1)
    assert {b.name for b in sch.blocks()} == {
        x for name in ("top", "power", "total", "out") for x in (name, f"{name}_tail")
    }
    sch.parallel(main)
    assert_everywhere(kernel, sch)
    assert sch.at_loop(rest).kind is ir.LoopKind.SERIAL


def test_peel_consumes_the_loop_but_not_the_loops_inside():
    sch = Schedule(matmul(5, 6, 4))
    i, j, _ = sch.loops(sch.block("Y"))
    sch.peel(i, 1)
    sch.vectorize(sch.split(j, None, 2)[1])
    with refused("bad-schedule", where="i", hint="loops()") as caught:
        sch.parallel(i)
    assert caught.value.where == "l3, l4 = sch.peel(l0, 1)"


@pytest.mark.parametrize(
    ("count", "side", "why", "hint"),
    [
        (8, "end", (8, 7), True),
        (0, "end", (), "peel(i, 1)"),
        (1, "middle", ("'middle'",), ("end", "start")),
    ],
)
def test_peel_refuses(count, side, why, hint):
    sch = Schedule(matmul(7, 6, 4))
    error = refusal(sch.peel, sch.loops(sch.block("Y"))[0], count, side)
    check_step(error, f"peel(i, {count})", *why, hint=hint)


def test_peel_refuses_more_than_the_lower_bound_of_a_dynamic_loop():
    sch = Schedule(matmul(n, 6, 4, [ir.Size("n", 2)]))
    error = refusal(sch.peel, sch.loops(sch.block("Y"))[0], 3)
    check_step(error, "peel(i, 3)", 3, "n")


def test_peel_and_partition_refuse_non_serial_loops():
    sch = Schedule(elementwise(6, 8))
    loop = sch.loops(sch.block("Z"))[1]
    sch.vectorize(loop)
    check_step(refusal(sch.peel, loop, 1), "peel(i_4, 1)", "i_4", "vector")
    check_step(refusal(sch.partition, loop, 1), "partition(i_4, 1)", "i_4", "vector")


@pytest.mark.parametrize("at", [0, 1, 3, 5])
def test_partition_anywhere(at):
    kernel = matmul(5, 6, 4)
    sch = Schedule(kernel)
    sch.partition(sch.loops(sch.block("Y"))[0], at)
    assert extents(sch, "Y")[0] == str(at) and extents(sch, "Y_rest")[0] == str(5 - at)
    assert_everywhere(kernel, sch)


def test_partition_of_a_partition():
    kernel = elementwise(9, 4)
    sch = Schedule(kernel)
    low, high = sch.partition(sch.loops(sch.block("Z"))[0], 6)
    sch.partition(low, 2)
    sch.parallel(high)
    assert [b.name for b in sch.blocks()] == ["S", "Z", "Z_rest_2", "Z_rest"]
    assert_everywhere(kernel, sch)


def test_the_inside_of_a_partition_has_no_guards():
    kernel = conv1d(19)
    sch = Schedule(kernel)
    _, rest = sch.partition(sch.loops(sch.block("padded"))[0], 1)
    inner, _ = sch.partition(rest, 19)
    sch.vectorize(sch.split(inner, None, 19)[1])
    legal = assert_everywhere(kernel, sch).split[0].kernels
    (wide,) = [s for k in legal for s in visit.stores(k.body) if s.value.lanes == 19]
    assert isinstance(wide.value, ir.Load) and wide.value.mask is None


@pytest.mark.parametrize("at", [-1, 8])
def test_partition_refuses_points_outside(at):
    sch = Schedule(matmul(7, 6, 4))
    error = refusal(sch.partition, sch.loops(sch.block("Y"))[0], at)
    check_step(error, f"partition(i, {at})", at, 0, 7)
    assert "for i in range(7):  ← here" in error.where


def test_a_consumer_of_two_loops_does_not_move_into_one():
    sch = Schedule(matmul(7, 6, 4))
    main, _ = sch.peel(sch.loops(sch.block("Y"))[0], 2, "start")
    error = refusal(sch.reverse_compute_at, sch.block("Z"), main)
    check_step(error, "reverse_compute_at(Z, i)", "Y_head", "Y")
    sch = Schedule(matmul(7, 6, 4))
    i, j, _ = sch.loops(sch.block("Y"))
    sch.peel(j, 2)
    sch.reverse_compute_at(sch.block("Z"), i)  # both loops are under i
    sch.parallel(i)
    assert_everywhere(matmul(7, 6, 4), sch)


@pytest.mark.parametrize("op", ["decompose_reduction", "rfactor"])
def test_a_tail_of_a_started_reduction_is_not_decomposed(op):
    sch = Schedule(matmul(3, 4, n, [ir.Size("n", 1)]))
    sch.split(sch.loops(sch.block("Y"))[2], None, 4, tail="peel")
    tail = sch.block("Y_tail")
    loop = sch.loops(tail)[-1]
    args = (tail, loop) if op == "decompose_reduction" else (loop,)
    check_step(refusal(getattr(sch, op), *args), op, "Y_tail")


def test_a_consumer_does_not_overwrite_what_its_producer_still_reads():
    """Z overwrites X, of which T reads a neighbour: under T's loop it would run too early."""
    kernel = parse(IN_PLACE)
    sch = Schedule(kernel)
    error = refusal(sch.reverse_compute_at, sch.block("X"), sch.loops(sch.block("T"))[0])
    check_step(error, "reverse_compute_at(X, i)", "T", "X")
