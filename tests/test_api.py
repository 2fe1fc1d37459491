"""`ingot.compile` and the Executable: names, options, wrong options, figures, calls."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import api, pipeline, target
from ingot.support.dump import Dump
from tests.refusal import Fact, Facts, refused
from tests.small import answers, small_model

FOREIGN = "x86-64-v3" if os.uname().machine == "aarch64" else "aarch64"
X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


@pytest.fixture(scope="module")
def exe() -> ingot.Executable:
    return ingot.compile(small_model(), threads=1)


# --- entry points ---------------------------------------------------------------------------------


def test_public_names():
    assert set(ingot.__all__) >= {"compile", "Executable", "IngotError", "__version__"}
    assert all(hasattr(ingot, name) for name in ingot.__all__)
    assert set(ingot.__all__) <= set(dir(ingot))
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert ingot.__version__ == project["project"]["version"]


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
    with refused("bad-input", 3, 5, where="'x'", hint=False):
        fixed(X[:3])
    narrow = ingot.compile(small_model(), shapes={"batch": (2, 6)}, jobs=1)
    assert (narrow.package.symbols[0].low, narrow.package.symbols[0].high) == (2, 6)
    np.testing.assert_allclose(narrow(X)[0], answers(X)[0], rtol=1e-6)
    with refused("bad-input", "'batch'", 1, 2, 6, where="'x'", hint="shapes={'batch'"):
        narrow(X[:1])


def test_the_record_of_a_compilation():
    record = Dump(keep=True)
    ingot.compile(small_model(), dump=record, jobs=1)
    assert [entry.stage for entry in record.entries] == [
        stage.name for stage in pipeline.open_session("cpu").stages
    ]
    assert "matmul" in record.entries[0].text


@pytest.mark.parametrize(
    "options, code, facts, hint",
    [
        ({"threads": 0}, "bad-option", ["threads=0"], 1),
        ({"threads": "2"}, "bad-option", ["threads='2'"], 1),
        ({"threads": True}, "bad-option", ["threads=True"], 1),
        ({"jobs": -1}, "bad-option", ["jobs=-1"], 1),
        ({"shapes": {"bach": 1}}, "bad-option", ["'bach'"], "batch"),
        ({"shapes": {"batch": -1}}, "bad-option", ["'batch'", -1], False),
        ({"shapes": {"batch": (4, 2)}}, "bad-option", ["'batch'", 4, 2], False),
        ({"shapes": [1]}, "bad-option", ["shapes", "list"], 'shapes={"batch": 8}'),
        ({"state": ["x"]}, "bad-option", ["state", "list"], 'state={"past": "present"}'),
        ({"shapes": {"batch": "one"}}, "bad-option", ["shapes", "'batch'", "'one'"], True),
        ({"shapes": {"batch": (1, 2, 3)}}, "bad-option", ["'batch'", "(1, 2, 3)"], "(low, high)"),
        ({"shapes": {"batch": 1.5}}, "bad-option", ["shapes", "'batch'", 1.5], True),
        ({"state": {"past": "y"}}, "bad-option", ["state", "'past'"], "x"),
        ({"state": {"x": "present"}}, "bad-option", ["state", "'present'"], "y, z"),
        ({"state": {"x": "y"}}, "bad-option", ["'x'", "f32[batch, 4]", "'y'"], True),
        ({"target": "cpuu"}, "bad-target", ["'cpuu'"], ("cpu", *target.KNOWN)),
        ({"target": FOREIGN}, "bad-target", [f"'{FOREIGN}'", os.uname().machine], True),
    ],
)
def test_wrong_options_are_named(options: dict, code: str, facts: list[Fact], hint: bool | Facts):
    with refused(code, *facts, hint=hint):
        ingot.compile(small_model(), **options)


def test_wrong_models_are_refused(tmp_path: Path):
    with refused("bad-model"):
        ingot.compile(b"not a model")
    with refused("bad-model", where="nowhere.onnx", hint=False):
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
        with refused("bad-option", where="batch"):
            exe.memory_for()


def test_the_report_has_a_line_for_each_launch(exe: ingot.Executable):
    head, *lines, times = exe.report().splitlines()
    assert head.startswith("kernel") and len(lines) == len(exe.package.report) >= 2
    assert times.startswith("compile")
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
    "call, facts, hint",
    [
        (lambda e: e(), [0, 1], "x"),
        (lambda e: e(X, X), [2, 1], "x"),
        (lambda e: e(X, x=X), [1, "x"], "x"),
        (lambda e: e(y=X), ["'x'", "'y'"], "x: f32[batch, 4]"),
        (lambda e: e.run(None, {"x": X, "w": X}), ["'w'"], "x: f32[batch, 4]"),
        (lambda e: e.run(["yy"], {"x": X}), ["'yy'"], ("y: f32[batch, 3]", "z: f32[batch]")),
        (lambda e: e(X.astype(np.float64)), ["'x'", "float64"], "x.astype('float32')"),
        (lambda e: e(X[:, :3]), ["'x'", "[5, 3]", "[batch, 4]", "axis 1", 3, 4], False),
        (lambda e: e(X[0]), ["'x'", "[4]", "[batch, 4]", 1, 2], False),
    ],
)
def test_wrong_calls_name_the_input(exe: ingot.Executable, call, facts: list[Fact], hint):
    with refused("bad-input", *facts, hint=hint):
        call(exe)
