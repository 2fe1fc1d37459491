"""Handles: they follow their nodes, and say which step consumed them."""

import pytest

from ingot.schedule import Schedule
from ingot.support.errors import IngotError
from tests.schedule.common import elementwise, matmul


def test_a_handle_follows_its_loop_through_other_steps():
    sch = Schedule(matmul())
    i, j, k = sch.loops(sch.block("Y"))
    sch.reorder(k, i)
    assert [loop.name for loop in sch.loops(sch.block("Y"))] == ["k", "i_2", "i"]
    assert sch.at_loop(i).var == "i"
    assert sch.loops(sch.block("Y"))[1] == j


def test_a_split_loop_is_gone_and_the_error_names_the_step():
    sch = Schedule(matmul())
    i = sch.loops(sch.block("Y"))[0]
    sch.split(i, None, 4)
    before = sch.kernel
    with pytest.raises(IngotError) as caught:
        sch.unroll(i)
    assert caught.value.code == "bad-schedule"
    assert "loop i is gone" in caught.value.what
    assert caught.value.where == "l3, l4 = sch.split(l0, None, 4)"
    assert sch.kernel is before


def test_an_inlined_block_is_gone():
    sch = Schedule(elementwise())
    block = sch.block("S")
    sch.compute_inline(block)
    with pytest.raises(IngotError, match=r"(?s)block S is gone.*compute_inline"):
        sch.loops(block)


def test_loops_that_moved_away_are_gone():
    sch = Schedule(elementwise())
    old = sch.loops(sch.block("S"))[0]
    sch.compute_at(sch.block("S"), sch.loops(sch.block("Z"))[0])
    with pytest.raises(IngotError, match=r"(?s)loop i is gone.*compute_at"):
        sch.unroll(old)


def test_a_handle_of_another_schedule_is_refused():
    other = Schedule(matmul())
    loop = other.loops(other.block("Y"))[0]
    with pytest.raises(IngotError, match="not in kernel elementwise"):
        Schedule(elementwise()).unroll(loop)


def test_an_unknown_block_lists_the_known_ones():
    with pytest.raises(IngotError, match=r"(?s)0 blocks have that name.*one of: Y, Z"):
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
