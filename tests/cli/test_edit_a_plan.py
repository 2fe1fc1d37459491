"""A plan edited in the text between two stages, through the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info
from onnx.numpy_helper import from_array

import ingot
from ingot.cli.main import main

WEIGHTS = np.random.default_rng(0).normal(size=(40, 32)).astype(np.float32)
TARGET = ("--target", "x86-64-v3")


def command(*words: object) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> Path:
    """The text after planning, with its constants beside it."""
    folder = tmp_path_factory.mktemp("dumped")
    nodes = [make_node("MatMul", ["x", "w"], ["p"]), make_node("Relu", ["p"], ["y"])]
    graph = make_graph(nodes, "g", [make_tensor_value_info("x", 1, (48, 40))],
                       [make_tensor_value_info("y", 1, (48, 32))],
                       [from_array(WEIGHTS, "w")])  # fmt: skip
    model = folder / "model.onnx"
    model.write_bytes(make_model(graph).SerializeToString())
    command("compile", model, *TARGET, "--dump", folder, "--stop-after", "plan_contractions")
    (text,) = folder.glob("*-plan_contractions.txt")
    return text


@pytest.mark.parametrize("rows", [6, 3, 2])
def test_an_edited_tile_is_compiled(dumped: Path, rows: int):
    whole = dumped.read_text(encoding="utf-8")
    assert len(re.findall(r'plans=\["matmul: gemm [^"]*tile=6x2x8[^"]*"\]', whole)) == 1
    text, plan = dumped.with_name("edited.txt"), dumped.with_name("edited.plan")
    text.write_text(whole.replace("tile=6x2x8", f"tile={rows}x2x8"), encoding="utf-8")
    printed = command("compile", text, *TARGET, "--start-from", "lower", "--save", plan, "--json")
    (row,) = json.loads(printed)["kernels"]
    assert row["tile"] == f"{rows} x 16" and f"tile={rows}x2x8" in row["plan"]
    x = np.random.default_rng(3).normal(size=(48, 40)).astype(np.float32)
    (got,) = ingot.load(plan)(x)
    np.testing.assert_allclose(got, np.maximum(x @ WEIGHTS, 0), rtol=1e-4, atol=1e-4)


def test_a_plan_that_is_given_before_the_stage_is_kept(dumped: Path):
    """The text with a plan, started from the stage that makes plans."""
    text = dumped.with_name("given.txt")
    whole = dumped.read_text(encoding="utf-8").replace("tile=6x2x8", "tile=4x2x8")
    text.write_text(whole, encoding="utf-8")
    words = ("--start-from", "plan_contractions", "--json")
    (row,) = json.loads(command("compile", text, *TARGET, *words))["kernels"]
    assert row["tile"] == "4 x 16"


def test_what_is_no_plan_is_refused_with_its_place(dumped: Path):
    text = dumped.with_name("wrong.txt")
    wrong = dumped.read_text(encoding="utf-8").replace("tile=6x2x8", "tile=6by16")
    text.write_text(wrong, encoding="utf-8")
    done = CliRunner().invoke(main, ["compile", str(text), *TARGET, "--start-from", "lower"])
    assert done.exit_code and "[bad-text]" in done.output
    assert "tile=6by16" in done.output and "tile=6x2x8" in done.output


@pytest.mark.parametrize(
    "old, new, facts",
    [
        ("axes=0,1", "axes=0,7", ["axis 7", "0 to 2"]),
        ("matmul: gemm", "mm: gemm", ["'mm'", "blocks: ", "matmul"]),
    ],
)
def test_a_plan_of_another_block_is_refused(dumped: Path, old: str, new: str, facts: list[str]):
    text = dumped.with_name("other.txt")
    text.write_text(dumped.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    done = CliRunner().invoke(main, ["compile", str(text), *TARGET, "--start-from", "lower"])
    assert done.exit_code and "[bad-graph]" in done.output, done.output
    assert all(fact in done.output for fact in facts), done.output


def test_a_format_of_another_back_end_is_refused(dumped: Path):
    """No plan file is written under a name that promises C."""
    file = dumped.with_name("model.c")
    model = dumped.with_name("model.onnx")
    done = CliRunner().invoke(main, ["compile", str(model), *TARGET, "--save", str(file)])
    assert done.exit_code and "--target c" in done.output and not file.exists()
