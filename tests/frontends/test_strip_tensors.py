"""Large tensors stay in the model's file, and nothing else changes; odd files are left alone."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ingot.frontends.onnx import loading
from ingot.frontends.onnx.loading import load
from ingot.frontends.onnx.strip_tensors import LARGE_BYTES, strip_large_tensors
from ingot.frontends.onnx.tensors import to_array
from tests.refusal import refused

WEIGHTS = {
    "large": np.arange(LARGE_BYTES // 2, dtype=np.float32).reshape(2, -1),
    "small": np.arange(6, dtype=np.int64),
    "half": np.linspace(-1, 1, LARGE_BYTES).astype(np.float16),
    "flags": np.arange(LARGE_BYTES + 9) % 3 == 0,
}


def model() -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("x", "y")]
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="act")]
    graph = helper.make_graph(nodes, "slim", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture
def in_steps(monkeypatch):
    monkeypatch.setattr(loading, "LARGE_FILE_BYTES", 0)


def test_tensors_are_views_of_the_mapped_file(tmp_path, in_steps):
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    source = load(path)
    assert source.model.ByteSize() < LARGE_BYTES
    assert [n.op_type for n in source.model.graph.node] == ["Relu"]
    for tensor in source.model.graph.initializer:
        found = to_array(tensor, source)
        np.testing.assert_array_equal(found, WEIGHTS[tensor.name])
        assert np.shares_memory(found, source.file) == (tensor.name in ("large", "half"))


def test_a_symbolic_link_to_the_model_is_fine(tmp_path, in_steps):
    (tmp_path / "elsewhere").mkdir()
    onnx.save(model(), tmp_path / "elsewhere" / "blob")
    (tmp_path / "model.onnx").symlink_to(tmp_path / "elsewhere" / "blob")
    source = load(tmp_path / "model.onnx")
    array = to_array(source.model.graph.initializer[0], source)
    np.testing.assert_array_equal(array, WEIGHTS["large"])


def test_data_that_does_not_fill_its_shape_is_refused(tmp_path, in_steps):
    proto = model()
    proto.graph.initializer[0].dims[0] = 3
    onnx.save(proto, tmp_path / "model.onnx")
    source = load(tmp_path / "model.onnx")
    facts = ("[3, 262144]", 3 * 262144 * 4, WEIGHTS["large"].nbytes)
    with refused("bad-model", *facts, where="'large'", hint=False):
        to_array(source.model.graph.initializer[0], source)


def test_no_file_can_name_the_key(tmp_path, in_steps):
    proto = model()
    tensor = proto.graph.initializer[1]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="", value="0 48")
    onnx.save(proto, tmp_path / "model.onnx")
    source = load(tmp_path / "model.onnx")
    with refused("bad-model", "''", where="'small'"):
        to_array(source.model.graph.initializer[1], source)


def test_what_the_parser_sees_is_the_same_but_for_the_data():
    whole = model()
    data = np.frombuffer(whole.SerializeToString(), np.uint8)
    small = onnx.load_from_string(strip_large_tensors(data, "key"))
    for tensor in small.graph.initializer:
        entries = {e.key: e.value for e in tensor.external_data}
        if "key" in entries:
            at, size = map(int, entries["key"].split())
            tensor.raw_data = data[at : at + size].tobytes()
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
    assert small == whole


def test_damaged_files_are_left_to_the_parser():
    """Truncated or with changed bytes: None, or bytes that the parser can read."""
    data = model().SerializeToString()
    rng = random.Random(3)
    assert strip_large_tensors(np.frombuffer(b"\x3b" + data, np.uint8), "key") is None  # a group
    assert strip_large_tensors(np.frombuffer(data[:-1], np.uint8), "key") is None
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.choice([rng.randrange(200), -rng.randrange(1, 200)])] = rng.randrange(256)
        strip_large_tensors(
            np.frombuffer(bytes(damaged[: rng.randrange(len(data) + 1)]), np.uint8), "key"
        )
