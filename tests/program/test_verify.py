"""The program's verifier: a dropped barrier, an overlapping slot, and every other broken law."""

from __future__ import annotations

import pytest

from ingot import IngotError
from ingot.arith import expr as arith
from ingot.program import interp, ir
from ingot.program.tables import walk
from ingot.program.verify import verify
from tests.models.build import HARD
from tests.program.programs import BODY, HEAD, hand, planned, rewrite

MODELS = (
    "residual_cnn", "transformer_block", "lstm_both", "loop", "if_true", "if_of_sizes",
    "nonzero_gather", "dynamic_sequence", "kv_cache_scatter",
)  # fmt: skip


def refused(program: ir.Program, *words: str) -> IngotError:
    with pytest.raises(IngotError) as caught:
        verify(program)
    assert caught.value.code == "bad-program"
    for word in words:
        assert word in str(caught.value), f"{word!r} is not in:\n{caught.value}"
    return caught.value


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
    """So each one the planner put in is also needed."""
    program, _ = planned(name)
    verify(program)
    for number in range(barriers(program)):
        refused(without_barrier(program, number), "a barrier is missing between")


def test_the_models_have_barriers():
    assert barriers(planned("transformer_block")[0]) >= 5
    assert barriers(planned("lstm_both")[0]) >= 2


def moved(program: ir.Program, name: str, place: ir.Place | None) -> ir.Program:
    buffers = tuple(ir.replace(b, place=place) if b.name == name else b for b in program.buffers)
    return ir.replace(program, buffers=buffers)


@pytest.mark.parametrize("name", ["loop", "if_true", "dynamic_sequence"])
def test_slots_that_overlap_are_refused_or_harmless(name: str):
    """Every temporary onto every other of its arena: what the verifier lets through computes the
    same in the interpreter, where arenas are real memory."""
    program, store = planned(name)
    feeds = HARD[name]()[1]
    want = interp.run(program, store, feeds)
    temps = [b for b in program.buffers if b.storage is ir.Storage.TEMP]
    refusals = 0
    for b in temps:
        for other in temps:
            if b.place == other.place or b.place.arena != other.place.arena:  # type: ignore[union-attr]
                continue
            changed = moved(program, b.name, other.place)
            try:
                verify(changed)
            except IngotError as error:
                assert error.code == "bad-program"
                refusals += 1
                continue
            got = interp.run(changed, store, feeds)
            assert [x.tobytes() for x in got] == [x.tobytes() for x in want], (b.name, other.name)
    assert refusals > 3


def test_a_slot_shifted_by_one_line_is_refused():
    program = hand()
    verify(program)
    for name, offset in (("t", 64), ("s", 128), ("i", 64), ("go", 128), ("u", 64), ("s", 256)):
        place = ir.Place("main", arith.Const(offset))
        refused(moved(program, name, place))


# --- hand-made programs -------------------------------------------------------------------------


def test_the_hand_made_program_is_sound():
    verify(hand())


@pytest.mark.parametrize("number", [0, 1])
def test_hand_made_barriers_are_needed(number: int):
    error = refused(without_barrier(hand(), number), "a barrier is missing")
    assert ("launch of double" in error.what) and error.where and error.why


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("run('set', ('go',), (), 1)\n", "", "reads 'go'"),
        ("copy('s', 't')\n", "", "reads 's'"),
        ("copy('s', 't')", "copy('s', 'u')", "reads 'u'"),
        ("append('rows', 'u')", "append('rows', 't')", ""),
        ("run('double', ('x', 't'), (), 16)", "run('double', ('t', 't'), (), 16)", "reads 't'"),
        ("else:\n    copy('y', 's')", "else:\n    pass", "output 'y' is not there at the end"),
        ("copy('s', 't')", "copy('s', 'nothing')", "'nothing'"),
        ("run('double', ('x', 't'), (), 16)", "run('triple', ('x', 't'), (), 16)", "'triple'"),
        ("run('double', ('x', 't'), (), 16)", "run('double', ('x',), (), 16)", "do not fit"),
        ("run('double', ('x', 't'), (), 16)", "run('double', ('x', 't'), (4,), 16)", "do not fit"),
        ("run('double', ('x', 't'), (), 16)", "run('double', ('x', 'n'), (), 16)", "parameter b"),
        ("run('double', ('x', 't'), (), 16)", "run('double', ('x', 't'), (), zz)", "zz"),
        ("copy('s', 't')", "copy('s', 'n')", "sizes"),
        ("bind('m', 'i', 0)", "bind('w', 'i', 0)", "no symbol"),
        ("bind('m', 'i', 0)", "bind('m', 'i', 0)\nreserve('none', 64)", "no arena"),
        ("with loop('i', 'n', 'go'):", "with loop('u', 'n', 'go'):", "must be one i64"),
        ("with loop('i', 'n', 'go'):", "with loop('i', 'u', 'go'):", "must be one i64"),
        ("with loop('i', 'n', 'go'):", "with loop('i', 'n', 'u'):", "must be one bool"),
        ("if flag('go'):", "if flag('x'):", "must be one bool"),
    ],
)
def test_broken_laws(old: str, new: str, words: str):
    assert old in BODY
    program = hand(BODY.replace(old, new, 1))
    if words:
        refused(program, words)
    else:
        verify(program)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("place=('main', 256)", "place=('main', 320)", "outside its arena"),
        ("place=('main', 256)", "place=('main', -64)", "outside its arena"),
        ("arena('main', 320", "arena('main', 319", "outside its arena"),
        ("place=('late', 0)", "place=('late', 64)", "outside its arena"),
        ("place=('main', 256)", "place=('main', 250)", "not aligned"),
        ("place=('main', 256)", "place=('other', 256)", "'other', which does not exist"),
        ("buffer('u', f32", "buffer('t', f32", "declared twice"),
        ("kernel('small')", "kernel('set')", "declared twice"),
        ("arena('late'", "arena('main'", "declared twice"),
        ("inputs=('x', 'n')", "inputs=('x', 'z')", "'z' is no buffer"),
        (
            "buffer('t', f32, (16,), 'temp'",
            "buffer('t', f32, (16,), 'constant'",
            "constants, and only",
        ),
    ],
)
def test_broken_declarations(old: str, new: str, words: str):
    assert old in HEAD
    refused(hand(head=HEAD.replace(old, new, 1)), words)


def test_an_arena_is_empty_after_it_is_reserved():
    tail = "reserve('late', m * 64)\nbarrier()\n"
    verify(hand(BODY + tail))
    head = HEAD.replace("buffer('v', f32, (m, 16)", "buffer('v', f32, (16,)").replace(
        "arena('late', m * 64", "arena('late', 64"
    )
    once = "run('double', ('x', 'v'), (), 16)\nbarrier()\nrun('double', ('v', 'y'), (), 16)\n"
    verify(hand(BODY + once, head))
    again = once.replace("barrier()\n", "barrier()\nreserve('late', 64)\nbarrier()\n", 1)
    refused(hand(BODY + again, head), "reads 'v', whose content is not there")
    late = "reserve('late', 64)\nrun('double', ('x', 'v'), (), 16)\n"
    refused(hand(BODY + late, head), "a barrier is missing between Reserve and launch of double")


def test_a_thread_ahead_in_a_branch_is_seen():
    """What a branch leaves unfinished counts after the if, whichever branch it was."""
    after = "run('double', ('y', 't'), (), 16)\n"
    refused(hand(BODY + after), "a barrier is missing")
    verify(hand(BODY + "barrier()\n" + after))


def test_a_flag_must_not_change_under_those_who_read_it():
    branch = "if flag('go'):\n    run('set', ('go',), (), 1)\nelse:\n    pass\n"
    refused(hand(BODY + branch), "a barrier is missing between If and launch of set")


def test_an_unplanned_program_is_not_held_to_places():
    program = ir.replace(hand(), is_planned=False)
    verify(ir.replace(without_barrier(program, 0), is_planned=False))
