"""The program verifier: dropped barriers, overlapping allocations, and each other invariant."""

from __future__ import annotations

import pytest

from ingot import IngotError
from ingot.arith import expr as arith
from ingot.program import interp, ir
from ingot.program.tables import walk
from ingot.program.verify import verify
from tests.models.build import HARD
from tests.program.programs import BODY, HEAD, hand, planned, rewrite
from tests.refusal import Fact, Facts, refused

MODELS = (
    "residual_cnn", "transformer_block", "lstm_both", "loop", "if_true", "if_of_sizes",
    "nonzero_gather", "dynamic_sequence", "kv_cache_scatter",
)  # fmt: skip


def assert_refused(program: ir.Program, *facts: Fact, where: Facts = ()) -> None:
    with refused("bad-program", *facts, where=where, hint=False):
        verify(program)


def without_barrier(program: ir.Program, number: int) -> ir.Program:
    seen = -1

    def drop(s: ir.Stmt) -> ir.Stmt:
        nonlocal seen
        seen += isinstance(s, ir.Barrier)
        return ir.Seq(()) if isinstance(s, ir.Barrier) and seen == number else s

    return ir.replace(program, body=rewrite(program.body, drop))


def barriers(program: ir.Program) -> int:
    return sum(isinstance(s, ir.Barrier) for s in walk(program.body))


@pytest.mark.parametrize("name", MODELS)
def test_every_dropped_barrier_is_refused(name: str):
    """So every barrier that the planner inserts is needed."""
    program, _ = planned(name)
    verify(program)
    for number in range(barriers(program)):
        assert_refused(without_barrier(program, number), "barrier")


def test_the_models_have_barriers():
    assert barriers(planned("transformer_block")[0]) >= 5
    assert barriers(planned("dynamic_sequence")[0]) >= 2


def moved(program: ir.Program, name: str, to: ir.Allocation | None) -> ir.Program:
    buffers = (ir.replace(b, allocation=to) if b.name == name else b for b in program.buffers)
    return ir.replace(program, buffers=tuple(buffers))


@pytest.mark.parametrize("name", ["loop", "if_true", "dynamic_sequence"])
def test_overlapping_allocations_are_refused_or_harmless(name: str):
    """Move every temporary onto every other of its arena: a program that the verifier accepts has
    the same results in the interpreter, where arenas are real memory."""
    program, store = planned(name)
    feeds = HARD[name]()[1]
    want = interp.run(program, store, feeds)
    temps = [b for b in program.buffers if b.storage is ir.Storage.TEMP]
    refusals = 0
    for b in temps:
        for other in temps:
            if b.allocation == other.allocation or b.allocation.arena != other.allocation.arena:  # type: ignore[union-attr]
                continue
            changed = moved(program, b.name, other.allocation)
            try:
                verify(changed)
            except IngotError as error:
                assert error.code == "bad-program"
                refusals += 1
                continue
            got = interp.run(changed, store, feeds)
            assert [x.tobytes() for x in got] == [x.tobytes() for x in want], (b.name, other.name)
    assert refusals > 3


def test_a_shifted_allocation_is_refused():
    program = hand()
    verify(program)
    for name, offset in (("t", 64), ("s", 128), ("i", 64), ("go", 128), ("u", 64), ("s", 256)):
        assert_refused(moved(program, name, ir.Allocation("main", arith.Const(offset))))


# --- hand-written programs ----------------------------------------------------------------------


def test_the_hand_written_program_is_legal():
    verify(hand())


@pytest.mark.parametrize("number", [0, 1])
def test_hand_written_barriers_are_needed(number: int):
    assert_refused(without_barrier(hand(), number), "barrier", "double", where="main")


DOUBLE = "run('double', ('x', 't'), (), 16)"


@pytest.mark.parametrize(
    "old, new, facts",
    [
        ("run('set', ('go',), (), 1)\n", "", ("'go'",)),
        ("copy('s', 't')\n", "", ("'s'",)),
        ("copy('s', 't')", "copy('s', 'u')", ("'u'",)),
        ("append('rows', 'u')", "append('rows', 't')", ()),
        (DOUBLE, "run('double', ('t', 't'), (), 16)", ("double", "'t'")),
        ("else:\n    copy('y', 's')", "else:\n    pass", ("'y'",)),
        ("copy('s', 't')", "copy('s', 'nothing')", ("'nothing'",)),
        (DOUBLE, "run('triple', ('x', 't'), (), 16)", ("'triple'",)),
        (DOUBLE, "run('double', ('x',), (), 16)", (1, 0, "double")),
        (DOUBLE, "run('double', ('x', 't'), (4,), 16)", (2, 1, "double")),
        (DOUBLE, "run('double', ('x', 'n'), (), 16)", ("b", "f32[16]", "'n'", "i64[]")),
        (DOUBLE, "run('double', ('x', 't'), (), zz)", ("zz",)),
        ("copy('s', 't')", "copy('s', 'n')", ("'n'", "'s'", 8, 64)),
        ("bind('m', 'i', 0)", "bind('w', 'i', 0)", ("'w'",)),
        ("bind('m', 'i', 0)", "bind('m', 'i', 0)\nreserve('none', 64)", ("'none'",)),
        ("with loop('i', 'n', 'go'):", "with loop('u', 'n', 'go'):", ("'u'", "i64", "f32[16]")),
        ("with loop('i', 'n', 'go'):", "with loop('i', 'u', 'go'):", ("'u'", "i64", "f32[16]")),
        ("with loop('i', 'n', 'go'):", "with loop('i', 'n', 'u'):", ("'u'", "bool", "f32[16]")),
        ("if flag('go'):", "if flag('x'):", ("'x'", "bool", "f32[16]")),
    ],
)
def test_violated_invariants(old: str, new: str, facts: tuple[Fact, ...]):
    assert old in BODY
    program = hand(BODY.replace(old, new, 1))
    if facts:
        assert_refused(program, *facts)
    else:
        verify(program)


AT_256 = "allocation=('main', 256)"


@pytest.mark.parametrize(
    "old, new, facts, where",
    [
        (AT_256, "allocation=('main', 320)", ("'u'", 320), (320, 384, "'main'")),
        (AT_256, "allocation=('main', -64)", ("'u'", 320), (-64, 0, "'main'")),
        ("arena('main', 320", "arena('main', 319", ("'u'", 319), (256, 320, "'main'")),
        ("allocation=('late', 0)", "allocation=('late', 64)", ("'v'", "m * 64"), "'late'"),
        (AT_256, "allocation=('main', 250)", ("'u'",), 250),
        (AT_256, "allocation=('other', 256)", ("'u'", "'other'"), ()),
        ("buffer('u', f32", "buffer('t', f32", ("buffer", "'t'"), ()),
        ("kernel('small')", "kernel('set')", ("kernel", "'set'"), ()),
        ("arena('late'", "arena('main'", ("arena", "'main'"), ()),
        ("inputs=('x', 'n')", "inputs=('x', 'z')", ("'z'",), ()),
        ("buffer('t', f32, (16,), 'temp'", "buffer('t', f32, (16,), 'constant'", ("'t'",), ()),
    ],
)
def test_broken_declarations(old: str, new: str, facts: tuple[Fact, ...], where: Facts):
    assert old in HEAD
    assert_refused(hand(head=HEAD.replace(old, new, 1)), *facts, where=where)


def test_an_arena_is_empty_after_it_is_reserved():
    tail = "reserve('late', m * 64)\nbarrier()\n"
    verify(hand(BODY + tail))
    head = HEAD.replace("buffer('v', f32, (m, 16)", "buffer('v', f32, (16,)").replace(
        "arena('late', m * 64", "arena('late', 64"
    )
    once = "run('double', ('x', 'v'), (), 16)\nbarrier()\nrun('double', ('v', 'y'), (), 16)\n"
    verify(hand(BODY + once, head))
    again = once.replace("barrier()\n", "barrier()\nreserve('late', 64)\nbarrier()\n", 1)
    assert_refused(hand(BODY + again, head), "double", "'v'")
    late = "reserve('late', 64)\nrun('double', ('x', 'v'), (), 16)\n"
    assert_refused(hand(BODY + late, head), "barrier", "Reserve", "double", where="'v'")


def test_accesses_of_a_branch_are_pending_after_the_if():
    """Accesses pending at the end of either branch are pending after the if."""
    after = "run('double', ('y', 't'), (), 16)\n"
    assert_refused(hand(BODY + after), "barrier", "double", where="'y'")
    verify(hand(BODY + "barrier()\n" + after))


def test_a_flag_must_not_be_written_while_threads_read_it():
    branch = "if flag('go'):\n    run('set', ('go',), (), 1)\nelse:\n    pass\n"
    assert_refused(hand(BODY + branch), "barrier", "If", "set", where="'go'")


def test_an_unplanned_program_needs_no_barriers():
    program = ir.replace(hand(), is_planned=False)
    verify(ir.replace(without_barrier(program, 0), is_planned=False))
