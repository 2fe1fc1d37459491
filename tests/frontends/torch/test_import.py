"""Modules and exported programs → code, called as the module, against eager."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import ingot


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
