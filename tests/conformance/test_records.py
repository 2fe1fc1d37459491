"""The records of the suite: what counts as a difference, and that every gap has its reason."""

from __future__ import annotations

import onnx
import pytest

from ingot.program.ir import HostStep
from tests.conformance import cases, records
from tests.conformance.run import report
from tests.conformance.workers import run_all

RESULTS = {"test_a": "passed", "test_b": "host step", "test_c_1": "Error: x", "test_c_2": "Error"}


def test_a_case_may_fail_in_another_way_but_not_change_its_kind():
    assert not records.differing({"test_c_1": "another error"}, RESULTS)
    assert records.differing({"test_c_1": "passed"}, RESULTS) == ["test_c_1"]
    assert records.differing({"test_a": "host step"}, RESULTS) == ["test_a"]
    assert records.differing({"test_new": "passed"}, RESULTS) == ["test_new"]


def test_gaps_have_reasons_and_reasons_have_gaps():
    assert not records.complaints(RESULTS, {"test_c_*": "there is no such thing"})
    (text,) = records.complaints(RESULTS, {"test_c_1": "no such thing"})
    assert "test_c_2 is a gap without a reason" in text
    (text,) = records.complaints(RESULTS, {"test_*_?": "no", "test_b": "no"})
    assert "test_b passes" in text
    (text,) = records.complaints(RESULTS, {"test_c*": "no", "test_gone": "no"})
    assert "'test_gone'" in text
    assert len(records.complaints(RESULTS, {"test_c_*": "  "})) == 2


def test_the_table_counts_by_operator():
    operators = {"test_a": "Add", "test_b": "Add", "test_c_1": "x.Sub", "test_c_2": "x.Sub"}
    counts = records.by_operator(RESULTS, {"test_c_1": "passed"}, operators)
    assert (counts["Add"].passed, counts["Add"].host_step, counts["Add"].gap) == (1, 1, 0)
    assert counts["x.Sub"].gaps == ["test_c_1", "test_c_2"] and counts["x.Sub"].peer == 1
    assert records.table(counts).splitlines()[-1].split() == ["all", "4", "1", "1", "2", "1"]


def test_a_difference_is_the_exit_code(capsys):
    known = records.read(records.RESULTS)
    name = next(n for n, r in known.items() if r == "passed")
    assert report({name: "passed"}, known) == 0
    assert report({name: "Error: broken"}, known) == 1
    assert f"differs from results.json: {name}: Error: broken" in capsys.readouterr().out


@pytest.mark.long  # each worker generates the suite
def test_a_worker_that_dies_is_a_result_and_the_next_case_runs():
    names = ["test_that_there_is_not", "test_gradient_of_add", "test_abs"]
    found = run_all(names, runtime=cases.ONNX_RUNTIME, workers=1)
    assert found["test_that_there_is_not"] == "crash: exit code 1"
    assert "Gradient" in found["test_gradient_of_add"] and found["test_abs"] == "passed"


def test_host_steps_are_counted(monkeypatch):
    monkeypatch.setattr(HostStep, "__init__", HostStep.__init__)
    cases.count_host_steps()
    step = HostStep("lower_case", ("x", "y"))
    assert step.args == ("x", "y") and cases.host_steps.pop() == "lower_case"


def test_what_an_error_said_is_kept():
    trace = (
        "Traceback\n  File x\ningot.support.errors.IngotError: [limit] no\n  where: y\n  why:   z"
    )
    assert cases.summary(trace) == "IngotError: [limit] no | z"
    assert cases.summary("AssertionError\n") == "AssertionError"


def test_the_records_are_of_one_suite():
    results, operators = records.read(records.RESULTS), records.read(records.OPERATORS)
    assert set(results) == set(operators) == set(records.read(records.PEER))
    assert len(results) == 2033 and onnx.__version__ == "1.23.2", "the records are of 1.23.2"
    assert operators["test_softmax_example_expanded"] == "Softmax"
    assert operators["test_ai_onnx_ml_binarizer"] == "ai.onnx.ml.Binarizer"


def test_every_gap_has_its_reason():
    wrong = records.complaints(records.read(records.RESULTS), records.read(records.GAPS))
    assert not wrong, "\n".join(wrong[:20])
