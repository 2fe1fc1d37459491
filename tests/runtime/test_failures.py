"""Errors met while running: they name the node, and the executable answers again afterwards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto as P

import ingot
from ingot import IngotError
from ingot.arith.expr import Const, Var
from ingot.runtime import failure
from ingot.support.abi import BAD_SIZE, NO_MEMORY
from tests.models.parts import graph, info, model, node, weight
from tests.refusal import check, is_told
from tests.runtime.common import assert_clean, bits, exe, feeds, lookup, package, script


def failing(compiled: ingot.Executable, given: dict) -> IngotError:
    with pytest.raises(IngotError) as caught:
        compiled.run(None, given)
    assert caught.value.code == "run-failed"
    return caught.value


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("bad", [(0,), (63,), (40,), (10, 50), (63, 62, 1)])
def test_a_thread_that_fails_stops_all(threads: int, bad: tuple[int, ...]):
    compiled, good = exe("lookup", threads), feeds("lookup")
    want = bits(compiled.run(None, good))
    error = failing(compiled, lookup(bad)[1])
    check(error, "run-failed", 10, where="'Gather_picked'", hint=False)
    assert any(is_told(99 + row, error.what) for row in bad), error
    assert bits(compiled.run(None, good)) == want
    assert [c.threads_used for c in compiled._loaded._free_contexts()] == [threads], (
        "the context is in use again"
    )


def test_failures_and_answers_in_turn():
    """Threads leave a barrier together however far ahead one is when another fails."""
    done = script(
        """
from ingot import IngotError
e, given = exe("lookup", 4), feeds("lookup")
want = bits(e.run(None, given))
for turn in range(3000):
    bad = {"rows": given["rows"].copy()}
    bad["rows"][turn % 64] = 99
    try:
        e.run(None, bad)
        raise AssertionError("no error")
    except IngotError as error:
        assert "Gather" in error.where
    assert bits(e.run(None, given)) == want
""",
        "lookup",
    )
    assert_clean(done)


def in_a_branch() -> ingot.Executable:
    """if flag: table[rows] else: zeros — the failing node is inside the branch."""
    inside = [node("Gather", "table rows", "then_y")]
    then = graph("then", inside, [], [info("then_y", ["n", 4])])
    other = graph("else", [node("Mul", "base zero", "else_y")], [], [info("else_y", ["n", 4])])
    proto = model(
        "branch",
        [node("If", "flag", "y", then_branch=then, else_branch=other)],
        [info("flag", [], P.BOOL), info("rows", ["n"], P.INT64), info("base", ["n", 4])],
        [info("y", ["n", 4])],
        {"table": weight(1, 10, 4), "zero": np.float32(0)},
    )
    return ingot.compile(proto, threads=2)


def test_inside_a_branch():
    compiled = in_a_branch()
    base = np.ones((32, 4), np.float32)
    bad = np.arange(32) % 10
    bad[31] = -11
    given = {"flag": np.array(True), "rows": bad, "base": base}
    error = failing(compiled, given)
    assert "Gather" in error.where
    assert not compiled(False, bad, base)[0].any(), "the other branch does not fail"
    bad[31] = -10
    assert compiled(True, bad, base)[0].shape == (32, 4)


def test_inside_a_loop():
    """Threads leave together even when one fails while another has yet to leave the barrier before:
    if each looked for itself, this would hang."""
    done = script(
        """
from ingot import IngotError
e, start = exe("runs_off"), np.zeros((16, 4), np.float32)
for turn in range(500):
    try:
        e(start, 12)
        raise AssertionError("no error")
    except IngotError as error:
        assert "Gather" in error.where
    assert e(start, 10)[0][0].tolist() == [180, 190, 200, 210]
assert e._loaded._free_contexts()[0].threads_used == 2
""",
        "runs_off",
    )
    assert_clean(done)


def sized() -> ingot.Executable:
    """An output of a size computed from data."""
    nodes = [node("ConstantOfShape", "size", "zeros"), node("Add", "zeros x", "y")]
    inputs = [info("size", [1], P.INT64), info("x", [1])]
    return ingot.compile(model("sized", nodes, inputs, [info("y", ["m"])]), threads=2)


def test_sizes_that_cannot_be():
    compiled, x = sized(), np.ones(1, np.float32)
    assert compiled(np.array([3]), x)[0].tolist() == [1, 1, 1]
    for size in (-1, -(2**60)):
        error = failing(compiled, {"size": np.array([size]), "x": x})
        check(error, "run-failed", size, where="'ConstantOfShape_zeros'", hint=False)
    assert compiled(np.array([0]), x)[0].shape == (0,)
    assert compiled(np.array([2]), x)[0].tolist() == [1, 1]


@pytest.mark.parametrize("size", [2**45, 2**58, 2**61, 2**62, 2**63 - 1])
def test_memory_that_a_computed_size_cannot_have(size: int):
    compiled, x = sized(), np.ones(1, np.float32)
    error = failing(compiled, {"size": np.array([size]), "x": x})
    place = "'ConstantOfShape_zeros'"
    check(error, "run-failed", "memory", where=place, hint="exe.memory_for(...)")
    assert compiled(np.array([2]), x)[0].tolist() == [1, 1]


@pytest.mark.parametrize("bytes_needed", [1 << 48, 1 << 63, 1 << 80])
@pytest.mark.parametrize("what", ["arena", "scratch"])
def test_memory_the_host_cannot_reserve(what: str, bytes_needed: int):
    built = package("rows")
    size = Const(bytes_needed) * (Var("n") // 6)
    if what == "arena":
        built = replace(built, arenas=tuple(replace(a, size_bytes=size) for a in built.arenas))
    else:
        built = replace(built, scratch_bytes=size)
    compiled, given = ingot.Executable(built, 2), feeds("rows")
    error = failing(compiled, given)
    check(error, "run-failed", bytes_needed, where="'rows'", hint="exe.memory_for(...)")
    small = {name: array[:5] for name, array in given.items()}
    assert bits(compiled.run(None, small)) == bits(exe("rows").run(None, small))


@pytest.mark.parametrize("rows", [1 << 46, 1 << 62])
def test_outputs_that_do_not_fit(rows: int):
    built = package("relu")
    (y,) = built.outputs
    large = ingot.Executable(replace(built, outputs=(replace(y, shape=(Const(rows),)),)))
    error = failing(large, feeds("relu"))
    check(error, "run-failed", "memory", where="'relu'", hint="exe.memory_for(...)")


def test_an_input_whose_copy_does_not_fit():
    rows = np.broadcast_to(np.float32(1), (1 << 46,))  # not contiguous, so it is copied
    error = failing(exe("relu"), dict.fromkeys(feeds("relu"), rows))
    check(error, "run-failed", 1 << 46, where="'relu'", hint="exe.memory_for(...)")


def test_records_in_the_programs_order():
    built = package("lookup")
    later = len(built.launches) - 1
    first = failure.run_error(built, [(later, BAD_SIZE, 5, 0), (0, BAD_SIZE, -4, 0)])
    assert "-4" in first.what
    same = failure.run_error(built, [(0, BAD_SIZE, 9, 0), (0, BAD_SIZE, 3, 0)])
    assert "9" in same.what, "thread 0 comes first"
    assert "memory" in failure.run_error(built, [(0, NO_MEMORY, 0, 0)]).what
