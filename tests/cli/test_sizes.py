"""Dynamic dimensions on the command line, where an input's size is an expression: `past + 1`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ingot.cli.bench import make_task
from ingot.cli.feeds import FeedSpec
from ingot.cli.sizes import file_sizes
from tests.cli.test_commands import inside, succeed_inside
from tests.refusal import Fact, is_told


def info(name: str, shape: list[str | int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> Path:
    """One mask over what is past and what is new; its size comes before those it is made of."""
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["all"], axis=1),
        helper.make_node("Add", ["all", "mask"], ["y"]),
    ]
    inputs = [
        info("mask", ["batch", "length + new"]), info("past", ["batch", "length"]),
        info("new", ["batch", "count"]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "decoder", inputs, [info("y", ["batch", "total"])])
    opset = [helper.make_opsetid("", 18)]
    path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    return path


def shape_of(said: str) -> list[int]:
    return json.loads(said)["outputs"][0]["shape"]


def test_random_inputs_fit_one_another(decoder: Path) -> None:
    assert shape_of(succeed_inside("run", decoder, "--json")) == [1, 2]
    said = succeed_inside("run", decoder, "--json", "--size", "length=6", "--size", "count=2")
    assert shape_of(said) == [1, 8]


def test_a_shape_says_what_its_parts_are(decoder: Path, tmp_path: Path) -> None:
    words = ["--json", "--shape", "mask=3x8", "--size", "count=2"]
    assert shape_of(succeed_inside("run", decoder, *words)) == [3, 8]
    plan = tmp_path / "decoder.plan"
    succeed_inside("compile", decoder, "--save", plan)
    assert shape_of(succeed_inside("run", plan, *words)) == [3, 8]


def test_a_size_may_be_zero(decoder: Path) -> None:
    words = ["--json", "--shape", "mask=3x2", "--shape", "past=3x0"]
    assert shape_of(succeed_inside("run", decoder, *words)) == [3, 2]
    assert shape_of(succeed_inside("run", decoder, *words[:1], "--shape", "mask=0x8",
                                   "--size", "count=2")) == [0, 8]  # fmt: skip


def test_an_array_says_what_its_parts_are(decoder: Path, tmp_path: Path) -> None:
    mask, past = np.ones((2, 9), np.float32), np.zeros((2, 4), np.float32)
    np.savez(tmp_path / "feeds.npz", mask=mask, past=past)
    said = succeed_inside("run", decoder, "--json", "--feeds", tmp_path / "feeds.npz")
    assert shape_of(said) == [2, 9]


@pytest.mark.parametrize(
    ("words", "expected"),
    {
        "left open": (["--shape", "mask=3x8"],
                      ["mask: f32[batch, count + length]", "count", "length"]),
        "contradicts": (["--shape", "mask=3x8", "--shape", "past=3x5", "--shape", "new=3x2"],
                        ["'mask'", "3x8", 7, "count=2", "length=5"]),
        "contradicts a size": (["--shape", "mask=3x8", "--size", "length=5", "--size", "count=1"],
                               ["3x8", 6, 8]),
        "below nothing": (["--shape", "mask=3x8", "--shape", "new=3x9"], ["length=-1"]),
        "too few": (["--shape", "mask=3x8x1"], ["'mask'", "3x8x1", 2]),
    }.values(),
)  # fmt: skip
def test_shapes_that_cannot_be(decoder: Path, words: list[str], expected: list[Fact]) -> None:
    done = inside("run", decoder, *words)
    assert done.exit_code == 2, done.output
    assert all(is_told(fact, done.output) for fact in expected), done.output


def test_other_runtimes_are_told_by_the_file_s_own_names(decoder: Path, tmp_path: Path) -> None:
    task = make_task(decoder, {"length": 6, "count": 2, "batch": 3}, FeedSpec(), tmp_path)
    assert task.file_sizes == {"batch": 3, "length + new": 8, "length": 6, "count": 2}
    assert task.sizes == {"batch": 3, "length": 6, "count": 2}


def test_a_name_of_two_sizes_is_none(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [info("x", ["?", "?", "n"])], [info("y", ["?", "?", "n"])]
    )
    onnx.save(helper.make_model(graph, ir_version=9), tmp_path / "model.onnx")
    assert file_sizes(tmp_path / "model.onnx", {"x": (2, 3, 4)}) == {"n": 4}
