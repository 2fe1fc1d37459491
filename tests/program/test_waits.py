"""waits: barriers wait for every thread only where a late one could read something else."""

from __future__ import annotations

import pytest

from ingot.program import ir
from ingot.program.tables import walk
from ingot.program.waits import Waits, control_reads
from tests.program.programs import planned


def loops(program: ir.Program) -> list[ir.Loop]:
    return [s for s in walk(program.body) if isinstance(s, ir.Loop)]


def test_a_recurrent_layer_waits_for_no_late_thread():
    program, _ = planned("lstm_both")
    waits = Waits(program)
    assert loops(program) and not waits.everywhere
    assert not any(map(waits.in_loop, loops(program)))


def test_a_loop_with_a_condition_waits_for_every_thread():
    program, _ = planned("loop")
    (loop,) = loops(program)
    condition = ir.replace(loop, keep_going=loop.trips)
    branch = ir.replace(loop, body=ir.If("flag", loop.body, ir.Seq(())))
    assert Waits(program).in_loop(condition) and Waits(program).in_loop(branch)


@pytest.mark.parametrize("name", ["lstm_both", "loop", "if_true", "nonzero_gather"])
def test_the_planner_keeps_what_late_threads_read(name: str):
    program, _ = planned(name)
    assert any(control_reads(s) for s in walk(program.body)) and not Waits(program).everywhere


def test_every_barrier_waits_where_a_trip_count_is_overwritten():
    program, _ = planned("lstm_both")
    buffers = program.buffer_map
    (trips,) = {buffers[s.trips] for s in loops(program) if s.trips is not None}
    launches = [s for s in walk(loops(program)[-1].body) if isinstance(s, ir.Launch)]
    written = next(buffers[name] for s in launches for name in s.args[-1:])
    moved = ir.replace(trips, allocation=written.allocation)
    others = tuple(moved if b is trips else b for b in program.buffers)
    assert Waits(ir.replace(program, buffers=others)).everywhere
