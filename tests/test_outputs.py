"""Values inside a model as outputs: `outputs=` of ingot.compile and `--output`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import ingot
from ingot import api, pipeline
from ingot.support import options
from tests.cli.test_commands import inside, succeed_inside
from tests.models.parts import info, model, node
from tests.refusal import Fact, refused
from tests.small import WEIGHT, small_model

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


def peer(names: list[str]) -> list[np.ndarray]:
    """ONNX Runtime, with these values added to the file's outputs."""
    proto = small_model()
    del proto.graph.output[:]
    proto.graph.output.extend(
        onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names
    )
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return session.run(names, {"x": X})


@pytest.mark.parametrize(
    "names, values",
    [
        (["sum"], ["sum"]),
        (["z", "xw", "y"], ["z", "xw", "y"]),
        (["product"], ["xw"]),  # a node: its output
        (["rows", "sum", "sum"], ["z", "sum"]),
    ],
)
def test_values_and_nodes(names: list[str], values: list[str]):
    exe = ingot.compile(small_model(), outputs=names, jobs=1)
    assert [port.name for port in exe.outputs] == values
    for got, want in zip(exe(X), peer(values), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_inputs_and_constants_are_values_too():
    x, w = ingot.compile(small_model(), outputs=["x", "w"], jobs=1)(X)
    assert x.tobytes() == X.tobytes() and w.tobytes() == WEIGHT.tobytes()


def test_what_comes_after_is_not_computed():
    exe = ingot.compile(small_model(), outputs=["xw"], jobs=1)
    assert "'act' (Relu)" not in exe.report() and "'product' (MatMul)" in exe.report()


def test_the_callers_model_stays():
    proto = small_model()
    ingot.compile(proto, outputs=["sum"], jobs=1)
    assert [info.name for info in proto.graph.output] == ["y", "z"]


def test_the_cache_tells_them_apart(tmp_path: Path):
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        made = [ingot.compile(path, outputs=names, jobs=1) for names in (None, ["sum"], ["sum"])]
    assert [len(exe(X)) for exe in made] == [2, 1, 1]
    assert ["cache" in exe.times_s for exe in made] == [False, False, True]


def test_values_of_a_graph():
    nodes = [node("Neg", "x", "minus"), node("Exp", "minus", "y")]
    proto = model("chain", nodes, [info("x", ["n"])], [info("y", ["n"])])
    graph = pipeline.run_stages(proto, api.make_session(), stop_after="import")
    (minus,) = ingot.compile(graph, outputs=["minus"], jobs=1)(X[0])
    assert minus.tobytes() == (-X[0]).tobytes()
    with refused("bad-option", "'minsu'", hint="'minus'"):
        ingot.compile(graph, outputs=["minsu"], jobs=1)


@pytest.mark.parametrize(
    "outputs, facts, hint",
    [
        (["produkt"], ["'produkt'"], "'product'"),
        (["y", "nothing like it"], ["'nothing like it'"], "ingot show"),
        ("sum", ["outputs", "'sum'"], "outputs=["),
        ([3], ["outputs", "[3]"], "outputs=["),
    ],
)
def test_unknown_names(outputs: list, facts: list[Fact], hint: str):
    with refused("bad-option", *facts, hint=hint):
        ingot.compile(small_model(), outputs=outputs, jobs=1)


def test_a_module_returns_its_values_itself():
    with refused("bad-option", "torch", hint="return"):
        ingot.compile(torch.nn.Linear(4, 3), (torch.ones(2, 4),), outputs=["linear"], jobs=1)


def test_the_command_line(tmp_path: Path):
    path, saved = tmp_path / "small.onnx", tmp_path / "out.npz"
    path.write_bytes(small_model().SerializeToString())
    np.savez(tmp_path / "in.npz", x=X)
    words = ["--output", "sum", "--output", "rows"]
    succeed_inside("run", path, *words, "--feeds", tmp_path / "in.npz", "--save", saved)
    got = np.load(saved)
    assert got.files == ["sum", "z"]
    for name, want in zip(got.files, peer(got.files), strict=True):
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)
    assert "sum: f32[batch, 3]" in succeed_inside("compile", path, *words)
    assert "Relu" not in succeed_inside("show", path, "--output", "sum", "--stage", "dce")
    done = inside("profile", path, "--output", "sun")
    assert done.exit_code == 2 and "'sum'" in done.output
