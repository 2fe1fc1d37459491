"""Plan files without torch, .pt2 files, and the cache across processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import ingot

ROOT = Path(ingot.__file__).parents[1]


class Running(torch.nn.Module):
    """Keeps a sum, takes and gives nested containers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.register_buffer("total", torch.arange(4.0))
        self.register_buffer("zeros", torch.zeros(1000, dtype=torch.bfloat16))

    def forward(self, pair, *, scale):
        self.total.add_(pair["a"].sum(0))
        self.zeros.add_(1)
        return {"y": self.fc(pair["a"]) * scale, "rest": [self.total + 0, pair["b"][0], None]}


def _given(rows: int = 3):
    return {"a": torch.randn(rows, 4), "b": (torch.arange(2),)}, {"scale": torch.tensor(2.0)}


def _run(code: str, **environment: str) -> str:
    on = {"PYTHONPATH": str(ROOT), "INGOT_CACHE_MODELS": "1"}
    environment = {**os.environ, **on, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LOAD = """
import sys
sys.modules["torch"] = None      # importing it is an error
import numpy as np, ingot
exe = ingot.load({plan!r})
data = np.load({data!r})
pair = {{"a": data["a"], "b": (data["b"],)}}
for _ in range(2):
    made = exe(pair, scale=data["scale"])
y, (total, b, none) = made["y"], made["rest"]
assert none is None and b is not None
np.savez({out!r}, y=y, total=total)
"""


def test_a_saved_module_runs_without_torch(tmp_path):
    torch.manual_seed(0)
    model = Running().eval()
    args, kwargs = _given()
    exe = ingot.compile(torch.export.export(model, (args,), kwargs))
    plan, data, out = (str(tmp_path / name) for name in ("m.plan", "in.npz", "out.npz"))
    exe.save(plan)
    assert os.path.getsize(plan) < 1 << 20
    np.savez(data, a=args["a"].numpy(), b=args["b"][0].numpy(), scale=kwargs["scale"].numpy())
    _run(LOAD.format(plan=plan, data=data, out=out))
    with torch.no_grad():
        model(args, **kwargs)
        wanted = model(args, **kwargs)
    found = np.load(out)
    assert_close(torch.from_numpy(found["y"]), wanted["y"])
    assert_close(torch.from_numpy(found["total"]), wanted["rest"][0])


def test_a_loaded_plan_takes_tensors(tmp_path):
    model = Running().eval()
    args, kwargs = _given()
    ingot.compile(model, (args,), example_kwargs=kwargs).save(tmp_path / "m.plan")
    exe = ingot.load(tmp_path / "m.plan")
    found = exe(args, **kwargs)
    with torch.no_grad():
        assert_close(found, model(args, **kwargs))
    with pytest.raises(ingot.IngotError, match="no module"):
        exe.refresh()


def test_a_pt2_file(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    rows = torch.export.Dim("rows", max=100)
    program = torch.export.export(model, (torch.randn(2, 4),), dynamic_shapes=({0: rows},))
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    exe = ingot.compile(path)
    x = torch.randn(7, 4)
    assert_close(exe(x), model(x))
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    with pytest.raises(ingot.IngotError, match=r"does not read this file"):
        ingot.compile(tmp_path / "bad.pt2")
    with pytest.raises(ingot.IngotError, match=r"cannot be read|does not read"):
        ingot.compile(tmp_path / "absent.pt2")


CACHED = """
import torch, ingot
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, {width}), torch.nn.ReLU()).eval()
exe = ingot.compile(model, (torch.zeros(2, 4),))
print("cache" in exe.times_s)
with torch.no_grad():
    model[0].weight.add_(1)
torch.testing.assert_close(exe(torch.ones(2, 4)), model(torch.ones(2, 4)))
"""


def test_the_cache_serves_other_processes(tmp_path):
    found = [
        _run(CACHED.format(width=width), INGOT_CACHE_DIR=str(tmp_path)).strip()
        for width in (3, 3, 5)
    ]
    assert found == ["False", "True", "False"]


def test_a_cached_pt2_file_needs_no_torch(tmp_path):
    model = torch.nn.Linear(4, 3).eval()
    program = torch.export.export(model, (torch.randn(2, 4),))
    torch.export.save(program, tmp_path / "model.pt2")
    path, folder = str(tmp_path / "model.pt2"), str(tmp_path / "cache")
    compile = f"import ingot; exe = ingot.compile({path!r})"
    _run(compile, INGOT_CACHE_DIR=folder)
    check = "; import sys, numpy as np; exe(np.zeros((2, 4), np.float32))"
    check += "; assert 'torch' not in sys.modules and 'cache' in exe.times_s"
    _run(compile + check, INGOT_CACHE_DIR=folder)
