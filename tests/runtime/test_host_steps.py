"""Host steps inside compiled programs: control flow, threads, errors, reports, interpreters."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto as P
from onnx import helper

import ingot
from ingot.graph import interp
from ingot.pipeline import open_session, run_stages
from ingot.program import interp as program_interp
from ingot.program import ir
from ingot.program.tables import walk
from ingot.runtime import host_steps
from ingot.support.errors import IngotError
from tests.ops.string_models import info, model, node, one, texts

S = P.STRING


def steps() -> onnx.ModelProto:
    """Host steps between kernels; one with a size that depends on data."""
    return model(
        [
            node("StringConcat", "x,x", "xx"),
            node("StringSplit", "xx", "parts,n", delimiter="-"),
            node("Concat", "parts,parts", "twice", axis=0),
            node("Cast", "n", "text", to=S),
            node("Equal", "parts,k", "e"),
        ],
        [info("x", S, ["n"])],
        [info("xx", S, None), info("twice", S, None), info("text", S, None), info("e", 9, None)],
        [helper.make_tensor("k", S, [1], [b"b"])],
    )


def wanted(x: np.ndarray) -> list:
    doubled = [t + t for t in x]
    rows = [t.split("-") for t in doubled]
    width = max(map(len, rows), default=0)
    parts = [row + [""] * (width - len(row)) for row in rows]
    equal = [[part == "b" for part in row] for row in parts]
    return [doubled, parts + parts, [str(len(row)) for row in rows], equal]


GIVEN = texts("b-a-", "q", "", "-b")


@pytest.mark.parametrize("threads", [1, 2])
def test_steps_between_kernels(threads, tmp_path):
    exe = ingot.compile(steps(), threads=threads)
    exe.save(tmp_path / "m.plan")
    for each in (exe, ingot.load(tmp_path / "m.plan", threads)):
        for x in (GIVEN, GIVEN[1:2], GIVEN[::-1]):
            assert [y.tolist() for y in each(x)] == wanted(x)


def test_interpreters_run_the_same_table():
    session = open_session("cpu")
    graph = run_stages(steps(), session, stop_after="import")
    table = session.store.strings
    numbers = table.encode(GIVEN)
    planned = run_stages(graph, session, "specialize", "barriers")
    assert sum(isinstance(s, ir.HostStep) for s in walk(planned.body)) == 4
    for found in (
        interp.run(graph, session.store, [numbers]),
        program_interp.run(planned, session.store, {"x": numbers}),
    ):
        *arrays, last = found
        assert [*(table.decode(a).tolist() for a in arrays), last.tolist()] == wanted(GIVEN)


def test_steps_in_a_loop():
    """The size of a step's result may differ in each iteration."""
    body = helper.make_graph(
        [
            node("Cast", "i", "s", to=S),
            node("StringConcat", "text,s", "longer"),
            node("StringSplit", "longer", "parts,n", delimiter="1"),
            node("ReduceSum", "n", "total", keepdims=0),
            node("Identity", "go", "go_on"),
        ],
        "body",
        [info("i", P.INT64, []), info("go", P.BOOL, []), info("text", S, [2])],
        [info("go_on", P.BOOL, []), info("longer", S, [2]), info("total", P.INT64, [])],
    )
    made = model(
        [node("Loop", "trips,,x", "y,totals", body=body)],
        [info("x", S, [2]), info("trips", P.INT64, [])],
        [info("y", S, None), info("totals", P.INT64, None)],
    )
    for threads in (1, 2):
        y, totals = ingot.compile(made, threads=threads)(texts("q", "1"), np.array(4))
        assert y.tolist() == ["q0123", "10123"] and totals.tolist() == [3, 5, 5, 5]


def test_the_report_and_the_profile_show_them():
    exe = ingot.compile(one("Cast", GIVEN, P.FLOAT, to=P.FLOAT), profile=True)
    line = next(line for line in exe.report().splitlines() if "parse_string" in line)
    assert "host step" in line and "Python" in line and "Cast of y" in line
    (row,) = exe.profile({"x": texts("1", "2")}, runs=3).rows
    assert row.kernel == "parse_string" and row.time_us > 0


def test_other_back_ends_refuse_them():
    with pytest.raises(IngotError, match="host step 'string_concat': it runs in Python") as caught:
        ingot.compile(steps(), target="c")
    assert "StringConcat" in caught.value.where


def test_what_a_step_raises_is_the_runs_error(monkeypatch):
    exe = ingot.compile(steps())

    def interrupted(inputs, attrs):
        raise KeyboardInterrupt

    def broken(inputs, attrs):
        raise ZeroDivisionError("by zero")

    monkeypatch.setitem(host_steps.STEPS, "string_split", broken)
    with pytest.raises(IngotError, match="string_split: by zero") as caught:
        exe(GIVEN)
    assert caught.value.code == "run-failed" and "StringSplit" in caught.value.where
    monkeypatch.setitem(host_steps.STEPS, "string_split", interrupted)
    with pytest.raises(KeyboardInterrupt):
        exe(GIVEN)
    monkeypatch.undo()
    assert [y.tolist() for y in exe(GIVEN)] == wanted(GIVEN)


def test_python_threads_call_one_model():
    exe, wrong = ingot.compile(steps()), []

    def work(seed: int) -> None:
        for number in range(40):
            x = texts(*(f"{seed}-{number}-{i}" for i in range(5)))
            if [y.tolist() for y in exe(x)] != wanted(x):
                wrong.append((seed, number))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_constants_are_folded_by_the_same_function():
    made = model(
        [node("StringConcat", "a,b", "c"), node("StringConcat", "c,x", "y")],
        [info("x", S, ["n"])],
        [info("y", S, None)],
        [helper.make_tensor(n, S, [1], [n.encode()]) for n in ("a", "b")],
    )
    exe = ingot.compile(made)
    assert len(exe.package.host_steps) == 1 and exe(texts("x"))[0].tolist() == ["abx"]
