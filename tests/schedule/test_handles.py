"""Handles: they follow their nodes, and say which step consumed them."""

from ingot.schedule import Schedule
from tests.refusal import refused
from tests.schedule.common import elementwise, matmul


def test_a_handle_follows_its_loop_through_other_steps():
    sch = Schedule(matmul())
    i, j, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i)
    assert [loop.name for loop in sch.loops(sch.block("Y"))] == ["k", "i_2", "i"]
    assert sch.at_loop(i).var == "i"
    assert sch.loops(sch.block("Y"))[1] == j


def test_a_split_loop_is_consumed_and_the_error_names_the_step():
    sch = Schedule(matmul())
    i = sch.loops(sch.block("Y"))[0]
    sch.split(i, None, 4)
    before = sch.kernel
    with refused("bad-schedule", "i", hint="loops()") as caught:
        sch.unroll(i)
    assert caught.value.where == "l3, l4 = sch.split(l0, None, 4)"
    assert sch.kernel is before


def test_an_inlined_block_is_consumed():
    sch = Schedule(elementwise())
    block = sch.block("S")
    sch.compute_inline(block)
    with refused("bad-schedule", "S", where="sch.compute_inline(b0)"):
        sch.loops(block)


def test_loops_of_a_moved_block_are_consumed():
    sch = Schedule(elementwise())
    old = sch.loops(sch.block("S"))[0]
    sch.compute_at(sch.block("S"), sch.loops(sch.block("Z"))[0])
    with refused("bad-schedule", "i", where="sch.compute_at(b0, l2)"):
        sch.unroll(old)


def test_a_handle_of_another_schedule_is_refused():
    other = Schedule(matmul())
    loop = other.loops(other.block("Y"))[0]
    with refused("bad-schedule", "i", "elementwise", hint=("block()", "loops()")):
        Schedule(elementwise()).unroll(loop)


def test_an_unknown_block_lists_the_known_ones():
    with refused("bad-schedule", "block('X')", 0, where="matmul", hint=("Y", "Z")):
        Schedule(matmul()).block("X")


def test_attempt_undoes_all_steps_if_one_is_refused():
    sch = Schedule(matmul())
    kernel, text = sch.kernel, sch.trace.text()
    i, _, k = sch.loops(sch.block("Y"))
    with sch.attempt():
        sch.split(i, None, 4)
        sch.parallel(k)
    assert sch.kernel is kernel and sch.trace.text() == text
    sch.split(i, None, 4)
