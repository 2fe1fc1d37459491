"""`ingot verify` on models that are right, and what it prints when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from ingot.cli.main import main
from ingot.inspect.difference import Difference
from ingot.inspect.verify import Report
from tests.small import small_model


def ingot(*args: object) -> Result:
    return CliRunner().invoke(main, [*map(str, args)])


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    return path


@pytest.mark.parametrize("against", ["interpreter", "onnxruntime"])
def test_a_right_model(small: Path, tmp_path: Path, against: str):
    np.save(tmp_path / "x.npy", np.ones((5, 4), np.float32))
    done = ingot(
        "verify", small, "--input", f"x={tmp_path / 'x.npy'}", "--against", against, "--jobs", 1,
        "--save", tmp_path / "none", "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["is_right"] and [d["name"] for d in report["outputs"]] == ["y", "z"]
    assert report["compared"] == (4 if against == "onnxruntime" else 0)
    assert not (tmp_path / "none").exists()


def test_an_exported_program_against_torch(tmp_path: Path):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)

        def forward(self, x):
            return torch.tanh(self.linear(x)).sum(1)

    file = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net(), (torch.ones(2, 4),)), file)
    done = ingot("verify", file, "--against", "torch", "--jobs", 1)
    assert done.exit_code == 0, done.output
    assert "right" in done.stdout and "values agree" in done.stdout


def test_torch_cannot_read_onnx(small: Path):
    done = ingot("verify", small, "--against", "torch")
    assert done.exit_code == 2 and "--against interpreter" in done.stderr


def test_a_state_is_refused(small: Path):
    done = ingot("verify", small, "--state", "x=y")
    assert done.exit_code == 2 and "--feeds" in done.stderr


def test_the_report_has_what_a_person_needs():
    value = Difference("conv.out", "float32", 0.25, 1e-6, 4e6, (0, 3), 1.5, 2.0)
    report = Report(
        (value,), node="node 'conv' (Conv)", nodes=("node 'conv' (Conv)",), value=value,
        stage="schedule", until="legalize", kernel="conv_0", reproducer=Path("r/repro.py"),
        reproduces=True,
    )  # fmt: skip
    said = str(report)
    for fact in ("WRONG", "node 'conv' (Conv)", "schedule to legalize", "conv_0", "4e+06 ulps",
                 "norm 0.25", "python r/repro.py", "exit code 1"):  # fmt: skip
        assert fact in said
