"""Forks, workers of a DataLoader, threads, and any order of imports."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset

import ingot
import ingot.torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 64), torch.nn.ReLU()
    return torch.nn.Sequential(*layers).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def exe(model):
    made = ingot.compile(model, (torch.zeros(64, 64),), threads=2)
    made(torch.zeros(64, 64))  # the thread pool is there before the fork
    return made


def test_a_forked_process(model, exe):
    x = torch.randn(64, 64)
    wanted = model(x)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if torch.allclose(exe(x), wanted, atol=1e-4) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert_close(exe(x), wanted)


class Made(Dataset):
    def __init__(self, exe):
        self.exe = exe

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.exe(torch.full((64, 64), float(index)))


def test_workers_of_a_data_loader(model, exe):
    loader = DataLoader(Made(exe), batch_size=2, num_workers=2, multiprocessing_context="fork")
    found = torch.cat(list(loader))
    assert_close(found, torch.stack([model(torch.full((64, 64), float(i))) for i in range(6)]))


def test_torch_compile_in_a_forked_process(model):
    fast = torch.compile(model, backend="ingot")
    x = torch.randn(64, 64)
    wanted = fast(x)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if torch.allclose(fast(x), wanted) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads(model, exe):
    inputs = [torch.randn(64, 64) for _ in range(16)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(exe, inputs))
    for x, y in zip(inputs, found):
        assert_close(y, model(x))


ORDERS = [
    "onnxruntime ingot torch", "torch onnxruntime ingot", "ingot torch onnxruntime",
]  # fmt: skip
CODE = """
import {}
import numpy as np, torch, ingot
session = None
x = torch.randn(4, 8)
model = torch.nn.Linear(8, 8).eval()
exe = ingot.compile(model, (x,), threads=2)
assert torch.allclose(exe(x), model(x), atol=1e-5)
proto = {!r}
session = onnxruntime.InferenceSession(proto)
(y,) = session.run(None, {{"x": x.numpy()}})
assert np.allclose(ingot.compile(proto)(x.numpy())[0], y)
assert torch.allclose(exe(x), model(x), atol=1e-5)
"""


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_imports(order):
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 8]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    opset = [helper.make_opsetid("", 17)]
    proto = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    code = CODE.format(", ".join(order.split()), proto)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=240
    )
    assert done.returncode == 0, done.stderr


ENTRY_POINT = """
import sys, torch
model, x = torch.nn.Linear(8, 8).eval(), torch.randn(4, 8)
fast = torch.compile(model, backend="ingot")
with torch.no_grad():
    assert torch.allclose(fast(x), model(x), atol=1e-5)
assert "ingot.torch.backend" in sys.modules
"""


def test_the_back_end_is_found_before_ingot_is_imported():
    """By the entry point of the installed package."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY_POINT], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_a_seed_makes_runs_repeat():
    f = lambda x: x + torch.rand_like(x)  # noqa: E731
    exe = ingot.compile(f, (torch.zeros(100),))
    fast = torch.compile(f, backend="ingot")
    for call in (exe, fast):
        x = torch.zeros(100)
        torch.manual_seed(3)
        first, second = call(x), call(x)
        torch.manual_seed(3)
        assert_close(call(x), first)
        assert not torch.equal(first, second)
        assert first.min() >= 0 and first.max() < 1
