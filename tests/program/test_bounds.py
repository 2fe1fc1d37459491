"""Bounds of the memory plan: proved, refuted by an example, or checked in each call. None is
accepted because a few small sizes satisfy it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

import ingot
from ingot import api, pipeline
from ingot.arith import expr as arith
from ingot.backends.packaging import package
from ingot.graph.store import ConstantStore
from ingot.program import ir
from ingot.program.bounds import Bound, counterexample, unproved
from ingot.program.verify import verify
from ingot.runtime.executable import Executable
from tests.deep.test_deep_models import SHAPE, after, chain, model
from tests.program.programs import HEAD, hand
from tests.refusal import refused

STEPS = ["softmax", "matmul", "softmax", "matmul", "softmax"]
HOLE = 700  # the size for which the arena is too small: no sample hits it


@lru_cache
def session_and_program() -> tuple[pipeline.Session, ir.Program]:
    session = api.make_session("cpu", {})
    last = pipeline.last_program_stage(session.stages)
    return session, pipeline.run_stages(model(chain(STEPS, "v"), SHAPE), session, stop_after=last)


def n_of(program: ir.Program) -> arith.Expr:
    return arith.Var(program.symbols[0].name)


def with_arena(size) -> ir.Program:
    """The program with another size of its arena, a function of n and of the planned size."""
    _, program = session_and_program()
    arenas = [
        ir.replace(a, size_bytes=arith.wrap(size(n_of(program), a.size_bytes)))
        for a in program.arenas
    ]
    return ir.replace(program, arenas=tuple(arenas))


def without_hole(n: arith.Expr, planned: arith.Expr) -> arith.Expr:
    return arith.minimum(planned, (n - HOLE) * (n - HOLE) * planned)


def test_the_planner_proves_its_bounds():
    _, program = session_and_program()
    assert arith.free_vars(program.arenas[0].size_bytes)
    assert unproved(program) == []


def test_a_bound_of_small_sizes_only_is_refused():
    """4,096 bytes hold the buffers of a few rows: the 24 samples alone would accept them."""
    with refused("bad-program", 4096, where="'main'", hint=False):
        verify(with_arena(lambda n, planned: 4096))


def test_a_bound_that_samples_cannot_refute_is_checked_in_each_call():
    program = with_arena(without_hole)
    verify(program)
    assert unproved(program)
    session, _ = session_and_program()
    stages = [s.name for s in session.stages]
    exe = Executable(pipeline.run_stages(program, session, start_from=stages[-1]))
    for rows in (1, HOLE - 1, HOLE + 1):
        x = np.linspace(-1, 1, rows * 8, dtype=np.float32).reshape(rows, 8)
        np.testing.assert_allclose(exe(x)[0], after(STEPS, x), rtol=1e-4)
    with refused("limit", HOLE, where="buffer"):
        exe(np.zeros((HOLE, 8), np.float32))


def test_the_check_is_kept_in_a_plan_file(tmp_path):
    session, _ = session_and_program()
    last = session.stages[-1].name
    exe = Executable(pipeline.run_stages(with_arena(without_hole), session, start_from=last))
    exe.save(tmp_path / "deep.plan")
    with refused("limit", HOLE, where="buffer"):
        ingot.load(tmp_path / "deep.plan")(np.zeros((HOLE, 8), np.float32))


@pytest.mark.parametrize("check", [verify, lambda p: package(p, ConstantStore(), (), ())])
def test_a_bound_over_a_size_of_the_run_must_be_proved(check):
    """It is known too late for a check of the call's sizes; without the verifier too, there is no
    package of such a program."""
    head = HEAD.replace("low=0, high=9", "low=0, high=900")
    check(hand(head=head))
    hole = f"min(m * 64, (m - {HOLE}) * (m - {HOLE}) * (m * 64))"
    with refused("bad-program", "'v'", where="'late'", why="m", hint=False):
        check(hand(head=head.replace("arena('late', m * 64", f"arena('late', {hole}")))


@pytest.mark.parametrize("divisor, fails", [(1, True), (32, False)])
def test_examples_are_sizes_that_can_occur(divisor: int, fails: bool):
    _, program = session_and_program()
    symbol = ir.replace(program.symbols[0], divisor=divisor)
    aligned = Bound("b", "not aligned", "", "", 0 - n_of(program) % 32)
    found = counterexample(aligned, ir.replace(program, symbols=(symbol,)))
    assert (found is not None) == fails
