"""`ingot check`: would it compile, and what is in it; nothing is compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from ingot.api import compile as compile_model
from ingot.cli.main import main
from tests.small import small_model

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"


def ingot(*args: object) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, args)])


def said(*args: object, exit_code: int = 0) -> dict:
    done = ingot(*args, "--json")
    assert done.exit_code == exit_code, done.output
    return json.loads(done.stdout)


def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model_of(nodes: list, inputs: list, outputs: list, constants: dict, path: Path) -> Path:
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return path


def test_operators_sizes_memory_and_work(tmp_path: Path):
    """By hand: a convolution of 3 x 3 from 2 to 4 channels on 5 x 5, then a matmul with 36 x 7."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Flatten", ["b"], ["c"], name="flat"),
        helper.make_node("MatMul", ["c", "m"], ["y"], name="last"),
    ]
    constants = {"w": np.ones((4, 2, 3, 3), np.float32), "m": np.ones((36, 7), np.float32)}
    inputs, outputs = [value("x", "batch", 2, 5, 5)], [value("y", "batch", 7)]
    path = model_of(nodes, inputs, outputs, constants, tmp_path / "m.onnx")
    found = said(path, "--shape", "batch=2")
    assert found["passed"] and found["runs_here"]
    assert found["inputs"] == [{"name": "x", "dtype": "f32", "shape": [2, 2, 5, 5]}]
    assert [o["shape"] for o in found["outputs"]] == [[2, 7]]
    assert {o["name"]: o["nodes"] for o in found["operators"]} == dict.fromkeys(
        ("Conv", "Relu", "Flatten", "MatMul"), 1
    )
    assert found["parameters"] == 4 * 2 * 9 + 36 * 7
    assert found["weight_bytes"] == 4 * found["parameters"]
    assert found["port_bytes"] == 4 * (2 * 2 * 25 + 2 * 7)
    assert found["activation_bytes"] == 4 * 2 * (2 * 4 * 9)  # a and b; c is a view of b
    assert found["flops"] == 2 * 2 * (4 * 9 * 2 * 9 + 36 * 7)
    dynamic = said(path)
    assert dynamic["inputs"][0]["shape"] == ["batch", 2, 5, 5] and dynamic["dynamic"] == ["batch"]
    assert dynamic["flops"] is dynamic["activation_bytes"] is dynamic["port_bytes"] is None
    assert "--shape batch=N" in ingot(path).stdout and "would compile" in ingot(path).stdout


def test_a_recurrent_layer_and_a_transposed_convolution(tmp_path: Path):
    w, r = np.ones((1, 12, 3), np.float32), np.ones((1, 12, 4), np.float32)
    gru = helper.make_node("GRU", ["x", "w", "r"], ["y"], name="gru", hidden_size=4)
    path = model_of([gru], [value("x", 6, 2, 3)], [value("y", 6, 1, 2, 4)],
                    {"w": w, "r": r}, tmp_path / "gru.onnx")  # fmt: skip
    assert said(path)["flops"] == 2 * 6 * 2 * 12 * (3 + 4)
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="up")
    path = model_of([node], [value("x", 1, 2, 5)], [value("y", 1, 4, 7)],
                    {"w": np.ones((2, 4, 3), np.float32)}, tmp_path / "up.onnx")  # fmt: skip
    assert said(path)["flops"] == 2 * (2 * 5) * 4 * 3


def test_all_unsupported_operators_at_once(tmp_path: Path):
    nodes = [
        helper.make_node("First", ["x"], ["a"], name="one", domain="com.acme"),
        helper.make_node("First", ["a"], ["b"], name="two", domain="com.acme"),
        helper.make_node("Other", ["b"], ["y"], name="three", domain="com.acme"),
    ]
    path = model_of(nodes, [value("x", 4)], [value("y", 4)], {}, tmp_path / "m.onnx")
    found = said(path, exit_code=1)
    assert not found["passed"] and found["error"]["code"] == "unsupported-op"
    assert found["unsupported"] == {"com.acme.First": ["one", "two"], "com.acme.Other": ["three"]}
    text = ingot(path)
    assert text.exit_code == 1 and "would not compile" in text.stdout
    assert all(name in text.stdout for name in ("First", "one", "two", "Other", "three", "kernels"))


def test_a_model_that_contradicts_itself(tmp_path: Path):
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    constants = {"w": np.ones((5, 3), np.float32)}
    path = model_of([node], [value("x", 2, 4)], [value("y", 2, 3)], constants, tmp_path / "m.onnx")
    found = said(path, exit_code=1)
    assert found["error"]["code"] == "bad-type" and "product" in found["error"]["where"]
    assert "'product'" in ingot(path).stdout
    junk = tmp_path / "junk.onnx"
    junk.write_text("no model")
    assert said(junk, exit_code=1)["error"]["code"] == "bad-model"


def test_a_wrong_option_is_a_usage_error():
    assert ingot(DIGITS, "--shape", "bath=1").exit_code == 2
    assert ingot(DIGITS, "--target", "x86-64-v9").exit_code == 2
    assert ingot("nowhere.onnx").exit_code == 2


def test_a_plan_is_compiled_already(tmp_path: Path):
    path = tmp_path / "small.plan"
    compile_model(small_model(), jobs=1).save(path)
    found = said(path)
    assert found["kind"] == "plan" and found["passed"] and found["kernels"] >= 1
    assert found["inputs"][0]["name"] == "x" and not found["why_not"]
    assert "compiled already" in ingot(path).stdout


def test_a_torch_file(tmp_path: Path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (torch.randn(2, 4),)), path)
    found = said(path)
    assert {o["name"]: o["nodes"] for o in found["operators"]} == {
        "aten.linear.default": 1, "aten.relu.default": 1,
    }  # fmt: skip
    assert found["parameters"] == 15 and found["flops"] == 2 * 2 * 4 * 3
    assert found["activation_bytes"] == 2 * (4 * 2 * 3)  # not the transposed weights


def test_no_code_generator_is_started():
    code = (
        "import sys\nfrom ingot.cli.main import main\n"
        f"main(['check', {str(DIGITS)!r}], standalone_mode=False)\n"
        "from ingot.codegen import workers\nprint('WORKERS', len(workers.live_workers()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and "WORKERS 0" in done.stdout, done.stderr


def test_large_weights_are_not_read():
    """The store of the check has no digest of them: equal ones are two."""
    from ingot.cli.facts import LARGE_BYTES, QuickStore

    store, large = QuickStore(), np.zeros(LARGE_BYTES, np.uint8)
    assert store.add(large) != store.add(large)
    assert store.add(large[:8]) == store.add(large[:8].copy())
