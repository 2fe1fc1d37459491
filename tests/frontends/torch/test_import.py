"""Modules and exported programs → code, called as the module, against eager."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import ingot
import ingot.api
from ingot.support import options


class Dense(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 4)
        self.w = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.fc(x))
        return torch.addmm(y, y, self.w, beta=0.5, alpha=2.0) + 1


@pytest.fixture
def dense() -> Dense:
    torch.manual_seed(0)
    return Dense().eval()


def test_a_program_of_a_dynamic_batch(dense):
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(dense, (torch.randn(3, 8),), dynamic_shapes=({0: batch},))
    exe = ingot.compile(program)
    for rows in (1, 5, 64):
        x = torch.randn(rows, 8)
        assert_close(exe(x), dense(x))
    with pytest.raises(ingot.IngotError, match="65"):
        exe(torch.randn(65, 8))


def test_arrays_in_give_arrays_out(dense):
    exe = ingot.compile(dense, (torch.randn(3, 8),))
    x = torch.randn(3, 8)
    y = exe(x.numpy())
    assert type(y) is np.ndarray
    assert_close(torch.from_numpy(y), dense(x))


def test_the_names_of_dims(dense):
    rows = torch.export.Dim("rows", min=3, max=9)
    exe = ingot.compile(dense, (torch.randn(4, 8),), dynamic_shapes={"x": {0: rows}})
    assert [(s.name, s.low, s.high) for s in exe.package.symbols] == [("rows", 3, 9)]


class Nested(torch.nn.Module):
    def forward(self, x, pair, *, scale, flag=None):
        a, b = pair["a"], pair["b"][0]
        total = x + a + b
        if flag:
            total = total + 1
        return {"sum": total + scale, "rest": (None, [total, x.shape[0], x], "text")}


def test_nested_arguments_and_results():
    def given(rows: int) -> tuple:
        made = [torch.randn(rows, 3) for _ in range(3)]
        return made[0], {"a": made[1], "b": [made[2]]}

    rows = {0: torch.export.Dim.DYNAMIC}
    shapes = {"x": rows, "pair": {"a": rows, "b": [rows]}, "scale": None, "flag": None}
    program = torch.export.export(
        Nested(), given(4), {"scale": torch.tensor(2.0), "flag": True}, dynamic_shapes=shapes
    )
    exe = ingot.compile(program)
    x, pair = given(6)
    found = exe(x, pair, scale=torch.tensor(3.0), flag=True)
    wanted = Nested()(x, pair, scale=torch.tensor(3.0), flag=True)
    assert_close(found["sum"], wanted["sum"])
    assert found["rest"][0] is None and found["rest"][2] == "text"
    assert_close(found["rest"][1][0], wanted["rest"][1][0])
    assert found["rest"][1][1] == 6
    assert found["rest"][1][2] is x
    with pytest.raises(ingot.IngotError, match="compiled for True"):
        exe(x, pair, scale=torch.tensor(3.0), flag=False)
    with pytest.raises(ingot.IngotError, match="keys"):
        exe(x, {"a": x}, scale=torch.tensor(3.0), flag=True)


def test_inputs_and_outputs_are_not_copied(dense):
    exe = ingot.compile(lambda x: x + 1, (torch.zeros(4, 4),))
    x = torch.randn(4, 4)
    seen = []
    inner = exe._plain._run
    exe._plain._run = lambda arrays, out: seen.append(arrays) or inner(arrays, out)
    y = exe(x)
    assert seen[0][0].__array_interface__["data"][0] == x.data_ptr()
    assert_close(y, x + 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32])
def test_element_types(dtype):
    def f(x, y):
        return torch.relu(x + y)

    x, y = (torch.arange(-6, 6).to(dtype).reshape(3, 4) for _ in range(2))
    assert_close(ingot.compile(f, (x, y))(x, y), f(x, y))


def test_channels_last_in_and_out():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    exe = ingot.compile(lambda x: x + 1, (x,))
    y = exe(x)
    assert y.stride() == (x + 1).stride()
    assert_close(y, x + 1)
    assert_close(exe(x.contiguous()), x + 1)


def test_complex_arguments_and_results():
    def f(z, w):
        w.mul_(2)
        return z * 2 + w, torch.view_as_real(z * w)

    z, w = (torch.randn(3, 4, dtype=torch.complex64) for _ in range(2))
    exe = ingot.compile(f, (z.t(), w.t().clone()))
    for a in (z.t(), z.t().contiguous(), z.t().conj()):
        b, c = w.t().clone(), w.t().clone()
        assert_close(exe(a, b), f(a, c))
        assert_close(b, c)
    found = exe(z.t().numpy(), w.t().clone().numpy())
    wanted = f(z.t(), w.t().clone())
    assert found[0].dtype == np.complex64
    for array, tensor in zip(found, wanted):
        assert_close(torch.from_numpy(array), tensor)
    for wrong in (z.t().real, z.t().to(torch.complex128), 1.0):
        with pytest.raises(ingot.IngotError, match="expected complex64"):
            exe(wrong, w.t())
    with pytest.raises(ingot.IngotError, match="conjugate"):
        exe(z.t(), w.t().conj())


class Parts(torch.nn.Module):
    """Gives back what it has and what it is given."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(3))

    def forward(self, x):
        return self.table, x, {"y": None}


def test_results_that_are_not_computed():
    model = Parts()
    exe = ingot.compile(model, (torch.randn(2),))
    x = torch.randn(2)
    table, same, rest = exe(x)
    assert same is x and rest == {"y": None}
    assert table.data_ptr() == model.table.data_ptr()


def test_a_result_that_an_argument_is_updated_with():
    def f(x):
        v = x.view(-1)
        v.neg_()
        return v

    x = torch.randn(3, 4)
    y = x.clone()
    assert_close(ingot.compile(f, (x.clone(),))(x), f(y))
    assert_close(x, y)


def test_one_export_serves_all_sizes(monkeypatch):
    """Without another compilation, the ends of the ranges and 1 included."""
    compiled = []
    real = ingot.api._compile
    monkeypatch.setattr("ingot.api._compile", lambda *a, **k: compiled.append(1) or real(*a, **k))
    model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    batch, length = torch.export.Dim("batch", min=1, max=9), torch.export.Dim("length", max=33)
    shapes = {"src": {0: batch, 1: length}}
    exe = ingot.compile(model, (torch.randn(3, 5, 16),), dynamic_shapes=shapes)
    with torch.no_grad():
        for rows in (1, 2, 8, 9):
            for columns in (1, 2, 16, 17, 33):
                x = torch.randn(rows, columns, 16)
                assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)
    assert compiled == [1]


def test_examples_and_a_target():
    model, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
    for exe in (
        ingot.compile(model, (x,), target="x86-64-v2"),
        ingot.compile(model, example_inputs=(x,), target="x86-64-v2", threads=1),
    ):
        assert_close(exe(x), model(x))
    with pytest.raises(ingot.IngotError, match="bad-target"):
        ingot.compile(model, (x,), target="cuda")


def test_options_that_need_a_file_or_names(tmp_path):
    model, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
    rows = ({0: torch.export.Dim("rows", max=64)},)
    for given in ({"state": {"a": "b"}}, {"state": {"a": "b"}, "capacity": 4}):
        with pytest.raises(ingot.IngotError, match="register the cache as a buffer"):
            ingot.compile(model, (x,), **given)
    with pytest.raises(ingot.IngotError, match="not a file"):
        ingot.compile(model, (x,), dynamic_shapes=rows, specialise=True)
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (x,), dynamic_shapes=rows), path)
    with options.override(cache_dir=str(tmp_path / "cache"), cache_models=True):
        exe = ingot.compile(path, specialise={"calls": 2})
        for _ in range(4):
            assert_close(exe(x), model(x))
        assert exe.wait_for_builds(120) and list(exe.specialised.values()) == ["ready"]
        assert_close(exe(x), model(x))
