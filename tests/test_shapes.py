"""`shapes=` of ingot.compile and `--shape`: sizes, ranges, whole shapes, wrong names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import ingot
from ingot import api, pipeline
from ingot.support import options
from ingot.support.names import Shape
from tests.cli.test_commands import inside, succeed_inside
from tests.models.parts import info, model, node
from tests.refusal import Fact, Facts, refused
from tests.small import answers, small_model

X = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


def two_inputs(first: str = "a") -> onnx.ModelProto:
    """y[n, m] = a[n, 2] x … + b: two inputs, one of which determines both sizes."""
    nodes = [node("Concat", f"{first} b", "y", axis=1)]
    ports = [info(first, ["n", 2]), info("b", ["n", "m"])]
    return model("two", nodes, ports, [info("y", ["n", "k"])])


def sizes(exe: ingot.Executable) -> list[tuple]:
    return [port.shape for port in exe.inputs]


@pytest.mark.parametrize("shape", [(5, 4), [5, 4], Shape((5, 4))])
def test_the_shape_of_an_input(shape: Any):
    exe = ingot.compile(small_model(), shapes={"x": shape}, jobs=1)
    assert sizes(exe) == [(5, 4)]
    np.testing.assert_allclose(exe(X)[0], answers(X)[0], rtol=1e-6)


def test_a_pair_is_a_shape_or_a_range_by_its_name():
    """The input b has rank 2, the dimension m a range."""
    assert sizes(ingot.compile(two_inputs(), shapes={"b": (3, 4)}, jobs=1)) == [(3, 2), (3, 4)]
    exe = ingot.compile(two_inputs(), shapes={"m": (3, 4), "n": 2}, jobs=1)
    assert sizes(exe) == [(2, 2), (2, "m")]
    (m,) = exe.package.symbols
    assert (m.low, m.high) == (3, 4)
    exe = ingot.compile(two_inputs(), shapes={"a": (3, 2), "m": [4, 6]}, jobs=1)
    assert sizes(exe) == [(3, 2), (3, "m")]


def test_the_shape_of_a_graphs_input():
    graph = pipeline.run_stages(two_inputs(), api.make_session(), stop_after="import")
    assert sizes(ingot.compile(graph, shapes={"b": (5, 4)}, jobs=1)) == [(5, 2), (5, 4)]


def test_the_shape_of_an_argument():
    dim = torch.export.Dim("rows", min=1)
    module = torch.nn.Linear(4, 3).eval()
    exe = ingot.compile(
        module, (torch.ones(2, 4),), dynamic_shapes=({0: dim},), shapes={"input": (6, 4)}, jobs=1
    )
    assert sizes(exe) == [(6, 4)]
    assert exe(torch.ones(6, 4)).shape == (6, 3)


def test_whole_shapes_are_found_in_the_cache(tmp_path: Path):
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        first = ingot.compile(path, shapes={"x": (5, 4)}, jobs=1)
        same = ingot.compile(path, shapes={"batch": 5}, jobs=1)
        again = ingot.compile(path, shapes={"x": (5, 4)}, jobs=1)
    assert "cache" not in first.times_s
    assert "cache" in same.times_s and "cache" in again.times_s


@pytest.mark.parametrize(
    ("proto", "shapes", "facts", "hint"),
    [
        (small_model(), {"bacth": 2}, ["'bacth'"], ("'batch'",)),
        (small_model(), {"bacth": (2, 4)}, ["'bacth'"], ("'batch'",)),
        (small_model(), {"batch": (1, 2, 3)}, ["'batch'", "(1, 2, 3)"], ("(low, high)",)),
        (small_model(), {"batch": Shape((1, 2))}, ["'batch'", "1x2"], True),
        (small_model(), {"x": 5}, ["'x'"], ("input", "shape")),
        (small_model(), {"x": (5, 4, 1)}, ["'x'", "5x4x1", 2], False),
        (small_model(), {"x": (5, 3)}, ["'x'", "5x3", 4, 3], False),
        (small_model(), {"x": (5, 4), "batch": 6}, ["'x'", "5x4", 5, 6], False),
        (two_inputs(), {"b": (3, 4), "a": (2, 2)}, ["'a'", "2x2", "n=3"], False),
        (two_inputs("n"), {"n": 3}, ["'n'", "input", "dimension"], True),
        (two_inputs("n"), {"n": (3, 2)}, ["'n'", "input", "dimension"], True),
        (two_inputs("n"), {"n": (3, 2, 1)}, ["'n'", "input", "dimension"], True),
    ],
)
def test_names_and_shapes_that_cannot_be(
    proto: onnx.ModelProto, shapes: dict, facts: list[Fact], hint: bool | Facts
):
    with refused("bad-option", *facts, hint=hint):
        ingot.compile(proto, shapes=shapes, jobs=1)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--shape", "x=5x4"], None),
        (["--shape", "y=5x4"], ["'y'", "x"]),
        (["--shape", "bacth=5"], ["'bacth'", "'batch'"]),
        (["--shape", "x=5"], ["'x'", "input"]),
    ],
)
def test_the_command_line_says_the_same(tmp_path: Path, words: list[str], facts: list | None):
    path = tmp_path / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    if facts is None:
        assert "f32[5, 4]" in succeed_inside("compile", path, *words)
        return
    done = inside("compile", path, *words)
    assert done.exit_code == 2 and all(fact in done.output for fact in facts), done.output
