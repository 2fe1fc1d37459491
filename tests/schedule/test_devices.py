"""bind and pipeline: marks that other targets realise, and a CPU runs as they are."""

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.ir import LoopKind
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.native import legal_parts
from tests.schedule.agree import assert_everywhere
from tests.schedule.common import elementwise, matmul, softmax

n = arith.Var("n")


def refusal(step, *args) -> IngotError:
    with pytest.raises(IngotError) as caught:
        step(*args)
    assert caught.value.code == "bad-schedule"
    return caught.value


# bind


def bound_product() -> tuple[ir.Kernel, Schedule]:
    kernel = matmul(n, 8, 5, [ir.Size("n", 1)])
    sch = Schedule(kernel)
    i, j, _ = sch.loops(sch.block("Y"))
    blocks, threads = sch.split(i, None, 4)
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.y")
    sch.bind(j, "threadIdx.x")
    return kernel, sch


def test_loops_are_bound_to_indices():
    kernel, sch = bound_product()
    loops = [sch.at_loop(x) for x in sch.loops(sch.block("Y"))]
    assert [x.tag for x in loops] == ["blockIdx.x", "threadIdx.y", "threadIdx.x", ""]
    assert [x.kind for x in loops[:3]] == [LoopKind.BOUND] * 3
    assert_everywhere(kernel, sch, {"n": 1}, {"n": 6})


def test_a_cpu_runs_bound_loops_in_order_and_says_so():
    _, sch = bound_product()
    notes: list[str] = []
    legal_parts(sch.kernel, notes=notes)
    assert "matmul_0: the loop i_1 runs in order: there is no threadIdx.y here" in notes


def test_bind_refuses_what_is_not_independent():
    sch = Schedule(matmul(4, 8, 5))
    k = sch.loops(sch.block("Y"))[2]
    error = refusal(sch.bind, k, "threadIdx.x")
    assert error.what == "bind(k, 'threadIdx.x')"
    assert error.why.startswith("k feeds the reduce axis vk of block Y")


@pytest.mark.parametrize(
    ("size", "tag", "why"),
    [
        (4, "threadIdx.w", "there is no index 'threadIdx.w'"),
        (n, "threadIdx.x", "its extent n is not a number"),
        (2048, "threadIdx.x", "2048 threads are more than a block has"),
    ],
)
def test_bind_refuses_indices_that_do_not_fit(size, tag, why):
    sch = Schedule(elementwise(size, 3, [ir.Size("n")]))
    assert refusal(sch.bind, sch.loops(sch.block("Z"))[0], tag).why == why


def test_an_index_is_bound_once_on_the_way_down():
    sch = Schedule(elementwise(4, 8))
    i, j = sch.loops(sch.block("Z"))
    sch.bind(j, "threadIdx.x")
    error = refusal(sch.bind, i, "threadIdx.x")
    assert error.why == "i_4 on the same way is bound to threadIdx.x"


def test_a_nest_is_for_threads_of_one_kind():
    sch = Schedule(elementwise(4, 8))
    i, j = sch.loops(sch.block("Z"))
    sch.parallel(i)
    error = refusal(sch.bind, j, "threadIdx.x")
    assert error.why == "it lies inside i_3, which is parallel"
    sch = Schedule(elementwise(4, 8))
    i, j = sch.loops(sch.block("Z"))
    sch.bind(j, "threadIdx.x")
    assert refusal(sch.parallel, i).why == "i_4 inside it is bound already"


def test_memory_of_one_thread_stays_in_its_loop():
    sch = Schedule(elementwise(4, 8))
    sch.set_scope("S", "thread")
    loop = sch.loops(sch.block("Z"))[0]
    error = refusal(sch.bind, loop, "threadIdx.x")
    assert error.why == "S is in scope thread, but is touched inside and outside the loop"
    sch.set_scope("S", ir.SHARED)
    sch.bind(loop, "threadIdx.x")  # threads of a block share it
    other = sch.loops(sch.block("S"))[0]
    error = refusal(sch.bind, other, "blockIdx.x")
    assert error.why == "S is in scope shared, but is touched inside and outside the loop"


def test_a_mark_is_checked_again_when_blocks_move():
    """Under a bound loop each iteration fills what it reads; a sum over the loop cannot move in."""
    kernel = softmax(4, 6)
    sch = Schedule(kernel)
    row, _ = sch.loops(sch.block("out"))
    sch.bind(row, "blockIdx.x")
    for name in ("total", "power", "top"):
        sch.compute_at(sch.block(name), row)
    assert_everywhere(kernel, sch)
    sch = Schedule(kernel)
    row, k = sch.loops(sch.block("total"))
    sch.reorder(k, row)
    sch.bind(row, "threadIdx.x")
    error = refusal(sch.bind, k, "blockIdx.x")
    assert error.why.startswith("k_2 feeds the reduce axis vk_2 of block total")


# pipeline


def staged() -> tuple[ir.Kernel, Schedule, list]:
    """A product that copies a piece of A for each step of k."""
    kernel = matmul(4, 6, 12)
    sch = Schedule(kernel)
    i, j, k = sch.loops(sch.block("Y"))
    ko, ki = sch.split(k, None, 3)
    sch.reorder(ko, i, j, ki)
    copy = sch.cache_read(sch.block("Y"), "A")
    sch.compute_at(copy, ko)
    return kernel, sch, [ko, i, j, ki]


def test_pipeline_leaves_a_note():
    kernel, sch, (ko, *_) = staged()
    sch.pipeline(ko, 3)
    assert dict(sch.at_loop(ko).annotations) == {"pipeline": 3}
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize(
    ("stages", "why"), [(1, "1 stages"), (9, "9 stages"), (5, "it has only 4 iterations")]
)
def test_pipeline_refuses_odd_counts(stages, why):
    _, sch, (ko, *_) = staged()
    assert refusal(sch.pipeline, ko, stages).why == why


def test_pipeline_refuses_a_loop_without_loads_to_run_ahead():
    sch = Schedule(matmul(4, 6, 12))
    error = refusal(sch.pipeline, sch.loops(sch.block("Y"))[2], 2)
    assert error.why.startswith("no block under it loads ahead")
    assert error.hint == "cache_read, then compute_at(k)"


def test_pipeline_refuses_marked_loops():
    _, sch, (_, i, *_) = staged()
    sch.unroll(i)
    assert refusal(sch.pipeline, i, 2).why == "i is already marked unroll"
