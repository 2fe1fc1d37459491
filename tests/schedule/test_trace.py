"""Traces: the text is the source that made the schedule, and replays to an equal kernel."""

import pytest

from ingot.loops import ir
from ingot.schedule import Schedule, Trace, replay
from ingot.schedule.default import schedule_kernel
from ingot.target import parse
from tests.schedule.common import conv1d, matmul, softmax


def tiled() -> Schedule:
    sch = Schedule(matmul())
    block = sch.block("Y")
    i, j, k = sch.loops(block)
    io, ii = sch.split(i, None, 4)
    jo, ji = sch.split(j, None, 4, tail="none")
    sch.reorder(io, jo, k, ii, ji)
    tile = sch.fuse(io, jo)
    sch.reverse_compute_at(sch.block("Z"), tile)
    sch.parallel(tile)
    sch.vectorize(ji)
    sch.set_scope("Y", "thread")
    sch.annotate(block, "note", 3)
    return sch


def test_text_is_python_that_makes_the_same_kernel():
    sch = tiled()
    assert sch.trace.text() == "\n".join([
        "b0 = sch.block('Y')",
        "l0, l1, l2 = sch.loops(b0)",
        "l3, l4 = sch.split(l0, None, 4)",
        "l5, l6 = sch.split(l1, None, 4, tail='none')",
        "sch.reorder(l3, l5, l2, l4, l6)",
        "l7 = sch.fuse(l3, l5)",
        "b1 = sch.block('Z')",
        "sch.reverse_compute_at(b1, l7)",
        "sch.parallel(l7)",
        "sch.vectorize(l6)",
        "sch.set_scope('Y', 'thread')",
        "sch.annotate(b0, 'note', 3)",
    ])  # fmt: skip
    other = Schedule(matmul())
    exec(sch.trace.text(), {"sch": other})
    assert other.kernel == sch.kernel


def test_unused_queries_are_omitted():
    sch = Schedule(matmul())
    sch.loops(sch.block("Z"))
    i = sch.loops(sch.block("Y"))[0]
    sch.loops(sch.block("Y"))
    sch.unroll(i)
    assert sch.trace.text() == "\n".join(
        ["b1 = sch.block('Y')", "l2, l3, l4 = sch.loops(b1)", "sch.unroll(l2)"]
    )


def test_a_trace_serialises():
    sch = tiled()
    again = Trace.from_json(sch.trace.to_json())
    assert again == sch.trace
    assert replay(matmul(), again).kernel == sch.kernel


@pytest.mark.parametrize("make", [matmul, softmax, conv1d])
def test_the_rules_replay(make):
    sch = schedule_kernel(make(), parse("x86-64-v3"), None)
    assert sch.kernel != make()
    assert replay(make(), sch.trace).kernel == sch.kernel


def test_equal_kernels_ignore_ids():
    assert matmul() == matmul() and isinstance(matmul(), ir.Kernel)
