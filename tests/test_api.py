"""`ingot.compile` and what an Executable answers: names, options, wrong options, figures, calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import api, pipeline
from ingot.support.dump import Dump
from tests.small import answers, small_model

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


@pytest.fixture(scope="module")
def exe() -> ingot.Executable:
    return ingot.compile(small_model(), threads=1)


def error(code: str, *words: str):
    """An IngotError with that code, its text holding those words."""
    pattern = rf"(?s)^\[{code}\]" + "".join(f"(?=.*{word})" for word in words)
    return pytest.raises(ingot.IngotError, match=pattern)


# --- the door -------------------------------------------------------------------------------------


def test_public_names():
    assert set(ingot.__all__) >= {"compile", "Executable", "IngotError", "__version__"}
    assert all(hasattr(ingot, name) for name in ingot.__all__)


@pytest.mark.parametrize("form", ["proto", "bytes", "path", "text path", "graph"])
def test_a_model_may_come_in_many_forms(form: str, tmp_path: Path):
    proto = small_model()
    path = tmp_path / "small.onnx"
    path.write_bytes(proto.SerializeToString())
    session = api.make_session()
    model = {
        "proto": lambda: proto,
        "bytes": proto.SerializeToString,
        "path": lambda: path,
        "text path": lambda: str(path),
        "graph": lambda: pipeline.run_stages(proto, session, stop_after="import"),
    }[form]()
    graph = pipeline.run_stages(model, session, stop_after="import")
    assert [str(v.name) for v in graph.outputs] == ["y", "z"]


def test_shapes_fix_or_narrow_a_size():
    fixed = ingot.compile(small_model(), shapes={"batch": 5}, jobs=1)
    assert [str(port) for port in fixed.inputs] == ["x: f32[5, 4]"]
    with error("bad-input", "x", "5"):
        fixed(X[:3])
    narrow = ingot.compile(small_model(), shapes={"batch": (2, 6)}, jobs=1)
    assert (narrow.package.symbols[0].low, narrow.package.symbols[0].high) == (2, 6)
    np.testing.assert_allclose(narrow(X)[0], answers(X)[0], rtol=1e-6)
    with error("bad-input", "batch"):
        narrow(X[:1])


def test_the_record_of_a_compilation():
    record = Dump(keep=True)
    ingot.compile(small_model(), dump=record, jobs=1)
    assert [entry.stage for entry in record.entries] == list(pipeline.NAMES)
    assert "matmul" in record.entries[0].text


@pytest.mark.parametrize(
    "options, code, words",
    [
        ({"threads": 0}, "bad-option", ["threads=0"]),
        ({"threads": "2"}, "bad-option", ["threads='2'"]),
        ({"threads": True}, "bad-option", ["threads=True"]),
        ({"jobs": -1}, "bad-option", ["jobs=-1"]),
        ({"shapes": {"bach": 1}}, "bad-option", ["bach", "batch"]),
        ({"shapes": {"batch": 0}}, "bad-option", ["batch"]),
        ({"shapes": {"batch": (4, 2)}}, "bad-option", ["batch", "4 is above 2"]),
        ({"shapes": [1]}, "bad-option", ["shapes is given by name", "a list", '{"batch": 8}']),
        ({"state": ["x"]}, "bad-option", ["state is given by name", "a list"]),
        ({"shapes": {"batch": "one"}}, "bad-option", ["batch", "one"]),
        ({"shapes": {"batch": (1, 2, 3)}}, "bad-option", ["batch", "low, high"]),
        ({"shapes": {"batch": 1.5}}, "bad-option", ["batch", "1.5"]),
        ({"state": {"past": "y"}}, "bad-option", ["past", "inputs are x"]),
        ({"state": {"x": "present"}}, "bad-option", ["present", "outputs are y, z"]),
        ({"state": {"x": "y"}}, "bad-option", ["'x'", "'y'"]),
        ({"target": "cpuu"}, "bad-target", ["cpuu", "did you mean cpu"]),
        ({"target": "aarch64"}, "bad-target", ["cannot run here"]),
    ],
)
def test_wrong_options_are_named(options: dict, code: str, words: list[str]):
    with error(code, *words):
        ingot.compile(small_model(), **options)


def test_wrong_models_are_refused(tmp_path: Path):
    with error("bad-model"):
        ingot.compile(b"not a model")
    with error("bad-model", "nowhere.onnx"):
        ingot.compile(tmp_path / "nowhere.onnx")


# --- what an executable says ----------------------------------------------------------------------


def test_inputs_and_outputs(exe: ingot.Executable):
    assert [str(port) for port in exe.inputs] == ["x: f32[batch, 4]"]
    assert [str(port) for port in exe.outputs] == ["y: f32[batch, 3]", "z: f32[batch]"]
    assert repr(exe).startswith("<ingot.Executable small: (x: f32[batch, 4])")


def test_memory_is_known_before_a_run(exe: ingot.Executable):
    assert exe.memory["weights"] >= (12 + 3) * 4
    arenas = [name for name in exe.memory if name.startswith("arena")]
    figures = exe.memory_for(batch=5)
    assert figures.keys() == exe.memory.keys()
    assert all(isinstance(figure, int) for figure in figures.values())
    if any(not isinstance(exe.memory[name], int) for name in arenas):
        with error("bad-option", "batch"):
            exe.memory_for()


def test_the_report_has_a_line_for_each_launch(exe: ingot.Executable):
    head, *lines = exe.report().splitlines()
    assert head.startswith("kernel") and len(lines) == len(exe.package.report) >= 2
    assert any("'product' (MatMul)" in line and "'act' (Relu)" in line for line in lines)
    assert any("'rows' (ReduceSum)" in line for line in lines)


# --- calls ----------------------------------------------------------------------------------------


def test_every_way_of_calling(exe: ingot.Executable):
    y, z = answers(X)
    for got in (exe(X), exe(x=X), exe.run(None, {"x": X}), exe.run(["y", "z"], {"x": X})):
        np.testing.assert_allclose(got[0], y, rtol=1e-6)
        np.testing.assert_allclose(got[1], z, rtol=1e-6)
    (only,) = exe.run(["z"], {"x": X})
    np.testing.assert_allclose(only, z, rtol=1e-6)
    swapped = exe.run(["z", "y"], {"x": X})
    assert [a.shape for a in swapped] == [(5,), (5, 3)]


def test_results_in_the_callers_arrays(exe: ingot.Executable):
    mine = np.empty((5, 3), np.float32)
    got = exe.run(None, {"x": X}, out={"y": mine})
    assert got[0] is mine
    np.testing.assert_allclose(mine, answers(X)[0], rtol=1e-6)


def test_the_thread_count_may_change_between_calls(exe: ingot.Executable):
    before = exe.threads
    want = [a.tobytes() for a in exe(X)]
    try:
        exe.threads = 2
        assert [a.tobytes() for a in exe(X)] == want
    finally:
        exe.threads = before


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda e: e(), ["0 inputs", "x"]),
        (lambda e: e(X, X), ["2 inputs"]),
        (lambda e: e(X, x=X), ["by position and x by name", "all by position or all by name: x"]),
        (lambda e: e(y=X), ["'x'|x: f32", "'y'"]),
        (lambda e: e.run(None, {"x": X, "w": X}), ["'w'"]),
        (lambda e: e.run(["yy"], {"x": X}), ["'yy'", "z"]),
        (lambda e: e(X.astype(np.float64)), ["x", "float64"]),
        (lambda e: e(X[:, :3]), ["x", "3", "4"]),
        (lambda e: e(X[0]), ["x"]),
    ],
)
def test_wrong_calls_name_the_input(exe: ingot.Executable, call, words: list[str]):
    with error("bad-input", *words):
        call(exe)
