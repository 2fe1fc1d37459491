"""`make bench`: FLOPs counted by hand, weight bytes, outputs in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

from benchmarks import exact, facts
from benchmarks.work import work_of
from ingot.cli.compare import distance

F32 = onnx.TensorProto.FLOAT


def model(nodes: list, x: list, y: list, **weights: np.ndarray) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F32, x)],
        [helper.make_tensor_value_info("y", F32, y)],
        [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return proto.SerializeToString()


def test_gemms_count_without_padding():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    made = model(nodes, ["rows", 7], ["rows", 5], w=np.ones((7, 5)))
    found = work_of(made, {"rows": 3})
    assert found.useful_flops == 2 * 3 * 5 * 7 and found.weights_bytes == 4 * 7 * 5
    assert work_of(made, {}).useful_flops is None


@pytest.mark.parametrize("node, shape, answer, weights, flops", [
    ({"op_type": "Conv", "group": 2, "strides": [2, 2], "pads": [1] * 4}, [1, 4, 9, 9],
     [1, 6, 5, 5], (6, 2, 3, 3), 2 * 6 * 25 * 2 * 9),
    ({"op_type": "ConvTranspose", "strides": [2, 2]}, [1, 4, 5, 5], [1, 3, 10, 10],
     (4, 3, 2, 2), 2 * 4 * 25 * 3 * 4),
])  # fmt: skip
def test_convolutions(node: dict, shape: list, answer: list, weights: tuple, flops: int):
    made = helper.make_node(inputs=["x", "w"], outputs=["y"], **node)
    found = work_of(model([made], shape, answer, w=np.ones(weights)), {})
    assert found.useful_flops == flops and found.weights_bytes == 4 * np.prod(weights)


def test_a_loop_counts_each_step():
    steps, features, hidden = 6, 5, 3
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)]
    made = model(
        nodes, [steps, 1, features], [steps, 1, 1, hidden],
        w=np.ones((1, 4 * hidden, features)), r=np.ones((1, 4 * hidden, hidden)),
    )  # fmt: skip
    found = work_of(made, {})
    assert found.useful_flops == 2 * steps * 4 * hidden * (features + hidden)
    assert found.weights_bytes == 4 * 4 * hidden * (features + steps * hidden)


def test_outputs_in_float64_are_those_of_torch():
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.norm = torch.nn.LayerNorm(8)
            self.lstm = torch.nn.LSTM(8, 6, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = torch.nn.functional.gelu(self.conv(x)).flatten(2).transpose(1, 2)
            return self.lstm(torch.softmax(self.norm(rows), -1))[0]

    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(1, 3, 5, 5)
    program = torch.onnx.export(net, (x,), dynamo=True, verbose=False, input_names=["x"])
    assert program is not None
    found = exact.outputs(program.model_proto.SerializeToString(), {}, {"x": x.numpy()})
    with torch.no_grad():
        plain = net(x).numpy()
        expected = net.double()(x.double()).numpy()
    assert found[0].dtype == np.float64
    assert distance(found[0], expected) < 1e-3 * distance(plain, expected)


def test_facts_are_kept(tmp_path: Path):
    first = facts.facts("digits-4", tmp_path)
    written = Path(first["exact"]).stat().st_mtime_ns
    assert facts.facts("digits-4", tmp_path) == first
    assert Path(first["exact"]).stat().st_mtime_ns == written
    assert first["useful_flops"] == 4 * facts.facts("digits", tmp_path)["useful_flops"]
