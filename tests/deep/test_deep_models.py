"""Long models compile and run at Python's own recursion limit: chains of 10,000 nodes, and branches
of 1,000 nodes each."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.arith import expr as arith
from ingot.runtime import sizes
from tests.small import small_model

SHAPE = ["n", 8]
WEIGHT = (np.eye(8) / 2 + 0.125).astype(np.float32)
CONSTANTS = {
    "half": np.full(8, 0.5, np.float32),
    "weight": WEIGHT,
    "pairs": np.array([-1, 4, 2], np.int64),
    "rows": np.array([-1, 8], np.int64),
}


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


STEPS = {  # name → operator, second operand, what numpy does
    "relu": ("Relu", None, lambda x: np.maximum(x, 0)),
    "tanh": ("Tanh", None, np.tanh),
    "add": ("Add", "half", lambda x: x + np.float32(0.5)),
    "mul": ("Mul", "half", lambda x: x * np.float32(0.5)),
    "pairs": ("Reshape", "pairs", lambda x: x.reshape(-1, 4, 2)),
    "rows": ("Reshape", "rows", lambda x: x.reshape(-1, 8)),
    "transpose": ("Transpose", None, lambda x: x.T),
    "matmul": ("MatMul", "weight", lambda x: x @ WEIGHT),
    "softmax": ("Softmax", None, softmax),
}


def chain(steps: list[str], prefix: str) -> list[onnx.NodeProto]:
    names = ["x", *(f"{prefix}{i}" for i in range(len(steps)))]
    return [
        helper.make_node(STEPS[s][0], [a, *filter(None, [STEPS[s][1]])], [b])
        for s, a, b in zip(steps, names, names[1:])
    ]


def after(steps: list[str], x: np.ndarray) -> np.ndarray:
    for step in steps:
        x = STEPS[step][2](x)
    return x


def info(name: str, shape: list, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[onnx.NodeProto], shape: list, *more: onnx.ValueInfoProto) -> onnx.ModelProto:
    used = {name for n in nodes for name in n.input} | ({*CONSTANTS} if more else set())
    graph = helper.make_graph(
        nodes,
        "deep",
        [info("x", shape), *more],
        [info(nodes[-1].output[0], shape)],
        [numpy_helper.from_array(a, n) for n, a in CONSTANTS.items() if n in used],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


@pytest.fixture(autouse=True)
def default_limit():
    assert sys.getrecursionlimit() == 1000
    yield
    assert sys.getrecursionlimit() == 1000


@pytest.mark.parametrize(
    "cycle, shape, count",
    [
        (["relu", "tanh", "mul", "add"], SHAPE, 10_000),
        (["transpose", "add", "pairs", "rows"], [8, 8], 2_000),
        pytest.param(["transpose", "add", "pairs", "rows"], [8, 8], 10_000, marks=pytest.mark.long),
    ],
)
def test_a_long_chain(cycle: list[str], shape: list, count: int):
    steps = (cycle * count)[:count]
    exe = ingot.compile(model(chain(steps, "v"), shape))
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    (y,) = exe(x)
    np.testing.assert_allclose(y, after(steps, x), rtol=1e-4)


@pytest.mark.parametrize(
    "cycle, count",
    [(["relu", "tanh", "mul", "add"], 1_000), (["matmul", "relu", "softmax", "mul"], 250)],
)
def test_an_if_of_two_large_branches(cycle: list[str], count: int):
    """Its first call solves the scratch size of every launch of both branches."""
    then, orelse = (cycle * count)[:count], (cycle[::-1] * count)[:count]
    branches = {}
    for name, steps in (("then_branch", then), ("else_branch", orelse)):
        nodes = chain(steps, name)
        branches[name] = helper.make_graph(nodes, name, [], [info(nodes[-1].output[0], SHAPE)])
    node = helper.make_node("If", ["flag"], ["y"], **branches)
    exe = ingot.compile(model([node], SHAPE, info("flag", [], TensorProto.BOOL)))
    x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(5, 8)
    for flag, steps in ((True, then), (False, orelse)):
        (y,) = exe(x, np.array(flag))
        np.testing.assert_allclose(y, after(steps, x), rtol=1e-4)


def test_scratch_of_many_launches_is_solved():
    """max(max(max(…))) over 5,000 launches, as a decoder with two branches has."""
    package = ingot.compile(small_model()).package
    need: arith.Expr = arith.Const(0)
    for launch in range(5_000):
        need = arith.maximum(need, arith.Var("batch") * (launch % 97))
    found = sizes.solve(replace(package, scratch_bytes=need), [(3, 4)])
    assert found.scratch_bytes == 3 * 96


def test_a_caller_may_be_deep_already():
    def compiled(frames: int) -> list[np.ndarray]:
        if frames:
            return compiled(frames - 1)
        steps = ["relu", "tanh", "mul", "add"] * 100
        return ingot.compile(model(chain(steps, "v"), SHAPE))(np.ones((2, 8), np.float32))

    assert len(compiled(300)) == 1
