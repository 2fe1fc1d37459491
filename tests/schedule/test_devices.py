"""bind and pipeline: loop kinds for other targets; a CPU runs such loops serially."""

import pytest

from ingot.arith import expr as arith
from ingot.loops import ir
from ingot.loops.ir import LoopKind
from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.native import legal_kernels
from tests.refusal import is_told
from tests.schedule.common import check_step, elementwise, matmul, softmax
from tests.schedule.equivalence import assert_everywhere

n = arith.Var("n")


def refusal(step, *args) -> IngotError:
    with pytest.raises(IngotError) as caught:
        step(*args)
    assert caught.value.code == "bad-schedule"
    return caught.value


# bind


def bound_gemm() -> tuple[ir.Kernel, Schedule]:
    kernel = matmul(n, 8, 5, [ir.Size("n", 1)])
    sch = Schedule(kernel)
    i, j, _ = sch.loops(sch.block("Y"))
    blocks, threads = sch.split(i, None, 4)
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.y")
    sch.bind(j, "threadIdx.x")
    return kernel, sch


def test_loops_are_bound_to_indices():
    kernel, sch = bound_gemm()
    loops = [sch.at_loop(x) for x in sch.loops(sch.block("Y"))]
    assert [x.tag for x in loops] == ["blockIdx.x", "threadIdx.y", "threadIdx.x", ""]
    assert [x.kind for x in loops[:3]] == [LoopKind.BOUND] * 3
    assert_everywhere(kernel, sch, {"n": 1}, {"n": 6})


def test_a_cpu_runs_bound_loops_in_order_and_says_so():
    _, sch = bound_gemm()
    remarks = [r for k in legal_kernels(sch.kernel).kernels for r in k.remarks]
    told = ("i_1", "threadIdx.y")
    assert any(all(is_told(fact, r.why) for fact in told) for r in remarks), remarks
    assert {r.about for r in remarks} == {ir.SERIAL_LOOPS}


def test_bind_refuses_what_is_not_independent():
    sch = Schedule(matmul(4, 8, 5))
    k = sch.loops(sch.block("Y"))[2]
    error = refusal(sch.bind, k, "threadIdx.x")
    assert error.what == "bind(k, 'threadIdx.x')"
    check_step(error, "bind", "k", "reduce", "vk", "Y")


@pytest.mark.parametrize(
    ("size", "tag", "why", "hint"),
    [
        (4, "threadIdx.w", "'threadIdx.w'", ("blockIdx.x", "threadIdx.z")),
        (n, "threadIdx.x", "n", True),
        (2048, "threadIdx.x", 2048, 1024),
    ],
)
def test_bind_refuses_indices_that_do_not_fit(size, tag, why, hint):
    sch = Schedule(elementwise(size, 3, [ir.Size("n")]))
    error = refusal(sch.bind, sch.loops(sch.block("Z"))[0], tag)
    check_step(error, f"bind(i_3, '{tag}')", why, hint=hint)


def test_an_index_is_bound_once_on_a_path():
    sch = Schedule(elementwise(4, 8))
    i, j = sch.loops(sch.block("Z"))
    sch.bind(j, "threadIdx.x")
    error = refusal(sch.bind, i, "threadIdx.x")
    check_step(error, "bind(i_3, 'threadIdx.x')", "i_4", "threadIdx.x")


def test_a_nest_is_for_threads_of_one_kind():
    sch = Schedule(elementwise(4, 8))
    i, j = sch.loops(sch.block("Z"))
    sch.parallel(i)
    error = refusal(sch.bind, j, "threadIdx.x")
    check_step(error, "bind(i_4, 'threadIdx.x')", "i_3", "parallel")
    sch = Schedule(elementwise(4, 8))
    i, j = sch.loops(sch.block("Z"))
    sch.bind(j, "threadIdx.x")
    check_step(refusal(sch.parallel, i), "parallel(i_3)", "i_4", "bound")


def test_memory_of_one_thread_stays_in_its_loop():
    sch = Schedule(elementwise(4, 8))
    sch.set_scope("S", "thread")
    loop = sch.loops(sch.block("Z"))[0]
    error = refusal(sch.bind, loop, "threadIdx.x")
    check_step(error, "bind(i_3, 'threadIdx.x')", "S", "thread", hint="global")
    sch.set_scope("S", ir.SHARED)
    sch.bind(loop, "threadIdx.x")  # threads of a block share it
    other = sch.loops(sch.block("S"))[0]
    error = refusal(sch.bind, other, "blockIdx.x")
    check_step(error, "bind(i, 'blockIdx.x')", "S", "shared", hint="global")


def test_bound_loops_are_rechecked_when_blocks_move():
    """Under a bound loop each iteration writes what it reads; a sum over the loop cannot."""
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
    check_step(error, "bind(k_2, 'blockIdx.x')", "k_2", "reduce", "vk_2", "total")


# pipeline


def staged() -> tuple[ir.Kernel, Schedule, list]:
    """A GEMM that copies a piece of A for each iteration of k."""
    kernel = matmul(4, 6, 12)
    sch = Schedule(kernel)
    i, j, k = sch.loops(sch.block("Y"))
    ko, ki = sch.split(k, None, 3)
    sch.reorder(ko, i, j, ki)
    copy = sch.cache_read(sch.block("Y"), "A")
    sch.compute_at(copy, ko)
    return kernel, sch, [ko, i, j, ki]


def test_pipeline_sets_an_annotation():
    kernel, sch, (ko, *_) = staged()
    sch.pipeline(ko, 3)
    assert dict(sch.at_loop(ko).annotations) == {"pipeline": 3}
    assert_everywhere(kernel, sch)


@pytest.mark.parametrize(("stages", "why", "hint"), [(1, 1, (2, 8)), (9, 9, (2, 8)), (5, 4, True)])
def test_pipeline_refuses_odd_counts(stages, why, hint):
    _, sch, (ko, *_) = staged()
    check_step(refusal(sch.pipeline, ko, stages), f"pipeline(k_0, {stages})", why, hint=hint)


def test_pipeline_refuses_a_loop_without_loads_to_overlap():
    sch = Schedule(matmul(4, 6, 12))
    error = refusal(sch.pipeline, sch.loops(sch.block("Y"))[2], 2)
    check_step(error, "pipeline(k, 2)", "k", hint=("cache_read", "compute_at(k)"))


def test_pipeline_refuses_non_serial_loops():
    _, sch, (_, i, *_) = staged()
    sch.unroll(i)
    check_step(refusal(sch.pipeline, i, 2), "pipeline(i, 2)", "i", "unroll")
