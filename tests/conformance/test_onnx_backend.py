"""ingot.onnx_backend: the backend protocol's functions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from ingot import onnx_backend
from ingot.support.errors import IngotError
from tests.small import answers, small_model

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


@pytest.mark.parametrize("inputs", [[X], X, {"x": X}])
def test_a_prepared_model_runs(inputs):
    outputs = onnx_backend.prepare(small_model()).run(inputs)
    for got, want in zip(outputs, answers(X), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_outputs_have_their_names():
    y, z = onnx_backend.run_model(small_model(), [X])
    outputs = onnx_backend.prepare(small_model()).run([X])
    assert outputs["y"].tobytes() == y.tobytes() and outputs["z"].tobytes() == z.tobytes()


def test_a_single_node_runs():
    node = onnx.helper.make_node("Sub", ["a", "b"], ["c"])
    (c,) = onnx_backend.run_node(node, [X, X[:1]])
    np.testing.assert_array_equal(c, X - X[:1])


def test_a_node_of_an_older_opset():
    """Softmax flattened up to opset 12; Squeeze had its axes as an attribute."""
    x = X.reshape(1, 3, 4)
    (got,) = onnx_backend.run_node(
        onnx.helper.make_node("Softmax", ["a"], ["b"], axis=1), [x], opset_version=11
    )
    np.testing.assert_allclose(got, np.exp(x) / np.exp(x).sum(), rtol=1e-5)
    squeeze = onnx.helper.make_node("Squeeze", ["a"], ["b"], axes=[0])
    np.testing.assert_array_equal(onnx_backend.run_node(squeeze, [x], opset_version=11)[0], X)


def test_a_node_of_another_domain():
    node = onnx.helper.make_node("QuickGelu", ["a"], ["b"], domain="com.microsoft", alpha=1.0)
    for opset in (None, 1):
        (got,) = onnx_backend.run_node(node, [X], opset_version=opset)
        np.testing.assert_allclose(got, X / (1 + np.exp(-X)), rtol=1e-5)


NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "int4", "uint4", "int2",
          "float4_e2m1fn")  # fmt: skip


@pytest.mark.parametrize("name", NARROW)
def test_arrays_of_narrow_types(name):
    narrow = np.array([1, 0, -1, 1]).astype(np.int8).astype(getattr(ml_dtypes, name))
    cast = onnx.helper.make_node("Cast", ["a"], ["b"], to=onnx.TensorProto.FLOAT)
    (got,) = onnx_backend.run_node(cast, [narrow])
    np.testing.assert_array_equal(got, narrow.astype(np.float32))
    code = onnx.helper.np_dtype_to_tensor_dtype(narrow.dtype)
    back = onnx.helper.make_node("Cast", ["a"], ["b"], to=code)
    (again,) = onnx_backend.run_node(back, [got])
    assert again.dtype == narrow.dtype and again.astype(np.float32).tolist() == got.tolist()


def test_scalars():
    add = onnx.helper.make_node("Add", ["a", "b"], ["c"])
    (got,) = onnx_backend.run_node(add, [np.float32(2), np.array(3, np.float32)])
    assert got.shape == () and got.dtype == np.float32 and got == 5
    clip = onnx.helper.make_node("Clip", ["a", "", "top"], ["c"])  # an operand that is left out
    np.testing.assert_array_equal(
        onnx_backend.run_node(clip, [X, np.float32(0)])[0], np.minimum(X, 0)
    )


def test_types_of_sequences_and_strings():
    sequence = onnx_backend._type([X, X[:1]]).sequence_type.elem_type.tensor_type
    assert sequence.elem_type == onnx.TensorProto.FLOAT
    assert not sequence.shape.dim[0].dim_value and sequence.shape.dim[1].dim_value == 4
    ragged = onnx_backend._type([X, X[0]]).sequence_type.elem_type.tensor_type
    assert not ragged.HasField("shape")
    for texts in (np.array(["a", "bc"]), np.array(["a", "bc"], object)):
        tensor = onnx_backend._type(texts).tensor_type
        assert tensor.elem_type == onnx.TensorProto.STRING and tensor.shape.dim[0].dim_value == 2
    with pytest.raises(IngotError, match="complex64"):
        onnx_backend.run_node(onnx.helper.make_node("Neg", ["a"], ["b"]), [X.astype("complex64")])


def test_sequences_and_optionals_are_lists_and_none():
    at = onnx.helper.make_node("SequenceAt", ["s", "i"], ["y"])
    np.testing.assert_array_equal(onnx_backend.run_node(at, [[X, X[:1]], np.array(1)])[0], X[:1])
    insert = onnx.helper.make_node("SequenceInsert", ["s", "x"], ["y"])
    (got,) = onnx_backend.run_node(insert, [[X], X + 1])
    assert isinstance(got, list) and len(got) == 2
    np.testing.assert_array_equal(got[1], X + 1)
    has = onnx.helper.make_node("OptionalHasElement", ["o"], ["y"])
    assert onnx_backend.run_node(has, [X])[0] and not onnx_backend.run_node(has, [None])[0]


def test_strings_are_arrays_of_objects():
    concat = onnx.helper.make_node("StringConcat", ["a", "b"], ["y"])
    texts = np.array(["é", ""], object)
    assert onnx_backend.run_node(concat, [texts, np.array(["x", "y"])])[0].tolist() == ["éx", "y"]


def test_compatibility_is_that_of_operators_and_device():
    model = small_model()
    assert onnx_backend.is_compatible(model) and not onnx_backend.is_compatible(model, "CUDA")
    model.graph.node[0].op_type = "Vanished"
    assert not onnx_backend.is_compatible(model)


def test_too_many_inputs_are_refused():
    with pytest.raises(IngotError, match="2 inputs are given, the model has 1"):
        onnx_backend.prepare(small_model()).run([X, X])


def test_devices():
    assert onnx_backend.supports_device("CPU") and not onnx_backend.supports_device("CUDA")
    with pytest.raises(IngotError, match="'CUDA' is not supported"):
        onnx_backend.prepare(small_model(), device="CUDA")
