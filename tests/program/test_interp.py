"""The program interpreter: results of each statement; arenas are real memory."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.graph.store import ConstantStore
from ingot.program import interp, ir
from ingot.program.verify import verify
from tests.program.programs import BODY, HEAD, hand, planned
from tests.refusal import refused

X = np.arange(16, dtype=np.float32) + 1


def run(trips: int = 3, body: str = BODY, head: str = HEAD) -> list[np.ndarray]:
    program = hand(body, head)
    verify(program)
    return interp.run(program, ConstantStore(), {"x": X, "n": np.array(trips)})


@pytest.mark.parametrize("trips", [0, 1, 3, 5])
def test_loops_count_collect_and_branch(trips: int):
    y, rows = run(trips)
    assert np.array_equal(y, X * 2 * 2**trips * 2)
    assert rows.shape == (trips, 16)
    assert all(np.array_equal(row, X * 4 * 2**k) for k, row in enumerate(rows))


def test_a_loop_stops_when_its_flag_falls():
    y, rows = run(trips=50)  # 2, 4, … 128: the flag falls when x[0] doubled passes 100
    assert len(rows) == 6 and rows[-1][0] == 128
    assert np.array_equal(y, rows[-1]), "the other branch copies"


def test_a_loop_by_flag_alone_and_one_by_count_alone():
    assert len(run(1, BODY.replace("loop('i', 'n', 'go')", "loop('i', None, 'go')"))[1]) == 6
    assert len(run(8, BODY.replace("loop('i', 'n', 'go')", "loop('i', 'n', None)"))[1]) == 8


def test_an_endless_loop_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interp, "_MAX_ITERATIONS", 50)
    endless = BODY.replace("loop('i', 'n', 'go')", "loop('i', None, None)")
    with refused("run-failed", where="i", hint=False):
        run(1, endless)


def test_collected_rows_start_anew_in_each_loop():
    again = "with loop('i', 'n', None):\n    append('rows', 's')\nbind('m', 'i', 0)\n"
    assert len(run(2, BODY + again)[1]) == 2


def test_reserved_memory_has_the_bound_size():
    late = "reserve('late', m * 64)\nbarrier()\ncopy('v', 'rows')\nbarrier()\ncopy('rest', 'v')\n"
    head = HEAD.replace("outputs=('y', 'rows'), names=('y', 'rows')",
                        "outputs=('y', 'rest'), names=('y', 'rest')")  # fmt: skip
    head = head.replace("buffer('y'", "buffer('rest', f32, (m, 16), 'temp')\nbuffer('y'")
    _, rest = run(3, BODY + late, head)
    assert np.array_equal(rest, run(3)[1])


def test_allocations_are_real_memory():
    """An overlap that the verifier rejects gives wrong outputs here."""
    program = hand()
    buffers = tuple(
        ir.replace(b, allocation=program.buffer_map["u"].allocation) if b.name == "s" else b
        for b in program.buffers
    )
    wrong = ir.replace(program, buffers=buffers)
    with refused("bad-program", "'s'", "'u'", hint=False):
        verify(wrong)
    small = interp.run(hand(BODY.replace("barrier()\n    copy('s', 'u')", "barrier()")),
                       ConstantStore(), {"x": X, "n": np.array(3)})  # fmt: skip
    same = interp.run(wrong, ConstantStore(), {"x": X, "n": np.array(3)})
    assert not np.array_equal(small[0], same[0])


def test_inputs_are_checked_and_not_written():
    program, store = planned("loop")
    with refused("bad-input", 2, 3, where="'x'", hint=False):
        interp.run(program, store, {"x": np.zeros((3, 4), np.float32), "counts": np.array([1, 1])})
    x = X.copy()
    interp.run(hand(), ConstantStore(), {"x": x, "n": np.array(2)})
    assert np.array_equal(x, X)


def test_a_kernels_failure_names_the_node():
    program, store = planned("gather_rows")
    rows = np.array([0, 1, 2, 3, 4, 99])
    with refused("run-failed", 99, 10, where="'Gather_y'", hint=False):
        interp.run(program, store, {"rows": rows})


def test_an_unknown_host_step():
    with refused("run-failed", "'print'", hint=False):
        interp.run(
            hand(BODY + "host('print', ('y',))\n"), ConstantStore(), {"x": X, "n": np.array(1)}
        )


def test_branches_of_par_all_run():
    both = ("barrier()\nwith par():\n    with branch(1):\n        copy('t', 's')\n"
            "    with branch(2):\n        copy('u', 's')\n")  # fmt: skip
    program = ir.replace(hand(BODY + both), outputs=("t", "u"), output_names=("t", "u"))
    t, u = interp.run(program, ConstantStore(), {"x": X, "n": np.array(2)})
    assert np.array_equal(t, u) and t[0] == 8
