"""Every command that takes a model takes a .pt2 file."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from ingot.cli.main import main

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, more):
        self.calls.add_(1)
        return {"y": torch.relu(self.fc(x)) + more["z"], "x": x}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    torch.manual_seed(0)
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    given = torch.randn(3, 4), {"z": torch.randn(3, 3)}
    shapes = {"x": rows, "more": {"z": rows}}
    program = torch.export.export(Net().eval(), given, dynamic_shapes=shapes)
    path = tmp_path_factory.mktemp("models") / "net.pt2"
    torch.export.save(program, path)
    return path


def run(*words) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def test_run_and_save(model, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((5, 4), np.float32))
    np.save(tmp_path / "z.npy", np.zeros((5, 3), np.float32))
    words = ["--input", f"x={tmp_path / 'x.npy'}", "--input", f"more_z={tmp_path / 'z.npy'}"]
    run("run", model, *words, "--save", tmp_path / "out.npz")
    program = torch.export.load(model)
    wanted = program.module()(torch.ones(5, 4), {"z": torch.zeros(5, 3)})["y"]
    (found,) = np.load(tmp_path / "out.npz").values()
    np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_compile_show_and_profile(model, tmp_path):
    run("compile", model, "--shape", "x=2x4", "--save", tmp_path / "net.plan")
    assert "output1" in run("run", tmp_path / "net.plan")
    assert "linear (aten.linear.default)" in run("show", model, "--stage", "import")
    assert "matmul" in run("profile", model, "--shape", "x_d0=2")


def test_bench(model):
    """Without a peer: torch.compile takes long to load."""
    words = ["--peers", "", "--rounds", 1, "--round-s", 0.01, "--json"]
    data = json.loads(run("bench", model, *words))
    (entry,) = data["entries"]
    assert entry["runtime"] == "ingot" and entry["time_ms"] > 0 and not entry["failure"]
    assert [row["name"] for row in data["inputs"]] == ["x", "more_z"]
